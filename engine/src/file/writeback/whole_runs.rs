//! Blocks that a file was given beforehand become written as a whole run, where the image is so full that there is no block
//! for the extents that a part of it would need: the rest of the run is zeroed on the device, and the run stays one. What was
//! allocated beforehand can so be written on every image, as its user was promised. ext4 does the same.
//!
//! The caller has the write-back mutex until the record is logged: whatever else of the run is dirty lies in memory, and
//! goes over the zeros later, and nobody else writes to blocks that read as zeros.

use super::WriteBack;
use super::place::{Place, WriteExtent};
use crate::Result;
use crate::device::{BLOCK_SIZE, Cause, IoBuf, Op, Request};
use crate::inode::InodeObj;
use crate::meta::Change;
use crate::pages::readahead::REQUEST_PAGES;
use std::ops::Range;

/// Whole runs of a file, in pages, that are to become written.
#[derive(Debug, Default)]
pub(super) struct WholeRuns(Vec<Range<u64>>);

impl WriteBack {
    /// Zeroes what these extents leave of the unwritten runs that they lie in.
    pub(super) fn zero_rest_of_runs(
        &self,
        inode: &InodeObj,
        extents: &[WriteExtent<'_>],
        cause: Cause,
    ) -> Result<WholeRuns> {
        let mut whole = WholeRuns::default();
        let mut written = extents.iter().filter(|extent| extent.place == Place::Unwritten).peekable();
        while let Some(first) = written.peek() {
            let Some((run, block)) = self.meta.unwritten_run(inode, first.page)? else { break };
            let mut at = run.start;
            while let Some(extent) = written.next_if(|extent| run.contains(&extent.page)) {
                self.zero(block + (at - run.start), extent.page - at, cause)?;
                at = extent.page + extent.frames.len() as u64;
            }
            self.zero(block + (at - run.start), run.end - at, cause)?;
            whole.0.push(run);
        }
        Ok(whole)
    }

    fn zero(&self, mut block: u64, mut count: u64, cause: Cause) -> Result<()> {
        let device = self.meta.store().device();
        while count > 0 {
            let part = count.min(REQUEST_PAGES);
            let buf = IoBuf::zeroed(part as usize * BLOCK_SIZE);
            device.run(vec![Request { op: Op::Write, block, buf, cause }])?;
            (block, count) = (block + part, count - part);
        }
        Ok(())
    }
}

impl WholeRuns {
    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where a part of a run could not be written none of it becomes written.
    pub fn fail_as_one(&self, extents: &mut [WriteExtent<'_>]) {
        for run in &self.0 {
            let is_in =
                |extent: &WriteExtent<'_>| extent.place == Place::Unwritten && run.contains(&extent.page);
            let failed =
                extents.iter().filter(|extent| is_in(extent)).find_map(|one| one.result.clone().err());
            if let Some(e) = failed {
                extents.iter_mut().filter(|one| is_in(one)).for_each(|one| one.result = Err(e.clone()));
            }
        }
    }

    /// Has a record mark all of each run instead of what was written of it.
    pub fn widen(&self, change: &mut Change) {
        for run in &self.0 {
            let before = change.mark_written.len();
            change.mark_written.retain(|pages| !run.contains(&pages.start));
            if change.mark_written.len() < before {
                change.mark_written.push(run.clone());
            }
        }
        change.mark_written.sort_unstable_by_key(|pages| pages.start);
    }
}
