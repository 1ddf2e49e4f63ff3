//! Batches whose pages are still to be moved: whether a mount can finish them.
//!
//! What this leaves to others: the orphan table that names them (`links`), and the moves, which the next mount makes.

use super::extents::{self, Visitor};
use super::state::State;
use crate::Result;
use crate::device::BLOCK_SIZE;
use crate::extent::Run;
use crate::file::{MOST_MANIFEST_BYTES, manifest_runs};
use crate::format::{Inode, OrphanEntry};

/// What a staging file maps.
struct Collect(Vec<Run>);

impl Visitor for Collect {
    fn node(&mut self, _: &mut State<'_>, _: u64) -> bool {
        true
    }

    fn run(&mut self, _: &mut State<'_>, run: &mut Run) -> Result<bool> {
        self.0.push(*run);
        Ok(true)
    }
}

impl Collect {
    /// The run that has a page which was written.
    fn run_at(&self, page: u64) -> Option<&Run> {
        let at = self.0.partition_point(|run| run.end() <= page);
        self.0.get(at).filter(|run| u64::from(run.logical) <= page && !run.unwritten)
    }
}

/// Why the batch of this entry cannot be finished.
pub(super) fn problem(
    state: &mut State<'_>,
    inode: &mut Inode,
    entry: &OrphanEntry,
) -> Result<Option<String>> {
    let mut there = Collect(Vec::new());
    extents::walk(state, inode, &mut there)?;
    let (place, len) = (entry.arg0.get(), entry.arg1.get());
    if len > MOST_MANIFEST_BYTES || place.checked_add(len).is_none_or(|end| end > inode.size.get()) {
        return Ok(Some("the manifest of its batch lies outside of the file".into()));
    }
    let block_size = BLOCK_SIZE as u64;
    let first = place / block_size;
    let mut bytes = Vec::new();
    for page in first..(place + len).div_ceil(block_size) {
        let Some(run) = there.run_at(page) else {
            return Ok(Some("a part of the manifest of its batch is not there".into()));
        };
        match state.image.read(run.block + page - u64::from(run.logical)) {
            Ok(block) => bytes.extend_from_slice(&block),
            Err(why) => return Ok(Some(format!("the manifest of its batch: {why}"))),
        }
    }
    let from = (place % block_size) as usize;
    let manifest = bytes.get(from..from + len as usize).unwrap_or_default();
    let Some(runs) = manifest_runs(manifest, first, entry.nid.get()) else {
        return Ok(Some("the manifest of its batch does not verify".into()));
    };
    let mut moved = entry.progress.get();
    let mut sources = Vec::with_capacity(runs.len());
    for run in &runs {
        let pages = u64::from(run.pages.get());
        let skipped = moved.min(pages);
        moved -= skipped;
        sources.push((run.source.get() + skipped, run.source.get() + pages));
    }
    // Each page once, however many runs name it.
    sources.sort_unstable();
    let mut done = 0;
    for (from, end) in sources {
        let mut page = from.max(done);
        while page < end {
            let Some(found) = there.run_at(page) else {
                return Ok(Some(format!("page {page} of what its batch is to move is not there")));
            };
            page = found.end();
        }
        done = done.max(end);
    }
    Ok(None)
}
