//! Blocks that a file was given beforehand become written as a whole run, where the image is so full that there is no block
//! for the extents that a part of it would need: the rest of the run is zeroed on the device, and the run stays one. What was
//! allocated beforehand can so be written on every image, as its user was promised. ext4 does the same.
//!
//! The run in which the file ends becomes written only that far, as long as there is room for two of it: nothing is to be
//! written beyond the recorded size. Where there is not, its end becomes so too, in zeros. A write there is then in place
//! before the size that covers it is recorded; after a crash between the two the file may show, once it is longer, what was
//! last written there instead of zeros.
//!
//! The caller has the write-back mutex until the record is logged: whatever else of the run is dirty lies in memory, and
//! goes over the zeros later; nobody else writes to blocks that read as zeros; and none of them is freed meanwhile.

use super::WriteBack;
use super::place::{Place, WriteExtent};
use crate::device::{BLOCK_SIZE, Cause, IoBuf, Op, Request};
use crate::inode::InodeObj;
use crate::meta::Change;
use crate::pages::readahead::REQUEST_PAGES;
use crate::{Error, Result};
use std::ops::Range;

/// Requests that zeros go to the device in at once.
const AT_ONCE: usize = 16;

/// Whole runs of a file, in pages, that are to become written.
#[derive(Debug, Default)]
pub(super) struct WholeRuns(Vec<Range<u64>>);

impl WriteBack {
    /// Zeroes what these extents leave, before that page, of the unwritten runs that they lie in.
    pub(super) fn zero_rest_of_runs(
        &self,
        inode: &InodeObj,
        extents: &[WriteExtent<'_>],
        upto: u64,
        cause: Cause,
    ) -> Result<WholeRuns> {
        let mut whole = WholeRuns::default();
        let mut written = extents.iter().filter(|extent| extent.place == Place::Unwritten).peekable();
        while let Some(first) = written.peek() {
            let Some((run, block)) = self.meta.unwritten_run(inode, first.page)? else {
                return Err(Error::Corrupt {
                    what: "extent",
                    place: format!("nid {}", inode.nid()),
                    detail: format!("page {} has other blocks than it had", first.page),
                });
            };
            let (mut at, mut holes) = (run.start, Vec::new());
            while let Some(extent) = written.next_if(|extent| run.contains(&extent.page)) {
                holes.push(at..extent.page);
                at = extent.page + extent.frames.len() as u64;
            }
            holes.push(at..run.end.min(upto.max(at)));
            let blocks =
                |pages: Range<u64>| block + (pages.start - run.start)..block + (pages.end - run.start);
            self.zero(holes.into_iter().map(blocks), cause)?;
            whole.0.push(run);
        }
        Ok(whole)
    }

    fn zero(&self, runs: impl Iterator<Item = Range<u64>>, cause: Cause) -> Result<()> {
        let device = self.meta.store().device();
        let part = |start: u64, end: u64| {
            let pages = (end - start).min(REQUEST_PAGES);
            let buf = IoBuf::zeroed(pages as usize * BLOCK_SIZE);
            Request { op: Op::Write, block: start, buf, cause }
        };
        let step = REQUEST_PAGES as usize;
        let mut requests =
            runs.flat_map(|run| run.clone().step_by(step).map(move |start| part(start, run.end))).peekable();
        while requests.peek().is_some() {
            device.run(requests.by_ref().take(AT_ONCE).collect())?;
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

    /// Has a record mark all of each run, up to that page, instead of what was written of it: each range that it marks lies
    /// in one run.
    pub fn widen(&self, change: &mut Change, upto: u64) {
        for run in &self.0 {
            let before = change.mark_written.len();
            change.mark_written.retain(|pages| !run.contains(&pages.start));
            if change.mark_written.len() < before {
                change.mark_written.push(run.start..run.end.min(upto));
            }
        }
        change.mark_written.sort_unstable_by_key(|pages| pages.start);
    }
}
