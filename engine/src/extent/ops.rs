//! The operations on a tree. Each is made of searches and of edits of one leaf.

use std::ops::Range;

use super::node::damaged;
use super::tree::{Edit, seek, seek_last};
use super::{LOGICAL_END, Root, Run};
use crate::alloc::{Alloc, Extent, Reservation};
use crate::store::Handle;
use crate::{Error, Result};

/// How far a call came that does a bounded part of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Nothing is left to do.
    pub done: bool,
    /// Where to go on: what is still to be done lies at or after this block of the file (for
    /// [`remove`] and [`shift_up`], which work from the end down, before it).
    pub next: u64,
    /// Blocks of data freed.
    pub freed: u64,
}

/// Maps blocks `logical..logical + extent.len` of the file, which must be a hole. Leaf blocks that this takes
/// come from the slack of the reservation, then from what is free, then from the allocator's reserve.
///
/// # Errors
/// EFBIG past the end of all files; [`Error::Corrupt`] if part of it is mapped; ENOSPC.
pub(crate) fn insert(
    h: &mut Handle<'_>,
    alloc: &Alloc,
    root: &mut Root,
    logical: u32,
    extent: Extent,
    unwritten: bool,
    reservation: Option<&mut Reservation>,
) -> Result<()> {
    let run = Run { logical, len: extent.len, block: extent.start, unwritten };
    if run.end() > LOGICAL_END {
        return Err(Error::Errno(libc::EFBIG));
    }
    Edit { h, alloc, root, reservation }.insert(run)?;
    root.blocks += u64::from(extent.len);
    Ok(())
}

/// Makes the unwritten blocks of a range written: their data is down. At most `budget` extents of one leaf a
/// call.
pub(crate) fn mark_written(
    h: &mut Handle<'_>,
    alloc: &Alloc,
    root: &mut Root,
    range: Range<u64>,
    budget: u32,
    reservation: Option<&mut Reservation>,
) -> Result<Progress> {
    Edit { h, alloc, root, reservation }.mark(range, budget, false)
}

/// Makes the mapped blocks of a range unwritten: they read as zeros. At most `budget` extents of one leaf a
/// call.
#[cfg(test)]
pub(crate) fn mark_unwritten(
    h: &mut Handle<'_>,
    alloc: &Alloc,
    root: &mut Root,
    range: Range<u64>,
    budget: u32,
) -> Result<Progress> {
    Edit { h, alloc, root, reservation: None }.mark(range, budget, true)
}

/// Unmaps a range and frees its blocks, from its end down: at most `budget` extents of one leaf a call. Call
/// it again, with the range or with its end cut to [`Progress::next`], until it is done; in between the file
/// is whole, only shorter of blocks. The blocks of a directory are freed as metadata; their pages the caller
/// forgets with the same handle.
pub(crate) fn remove(
    h: &mut Handle<'_>,
    alloc: &Alloc,
    root: &mut Root,
    range: Range<u64>,
    budget: u32,
) -> Result<Progress> {
    remove_within((h, alloc, root), range, budget, None)
}

/// The same; leaf blocks that it takes to cut a run in two come from the slack of the reservation first.
pub(crate) fn remove_within(
    (h, alloc, root): (&mut Handle<'_>, &Alloc, &mut Root),
    range: Range<u64>,
    budget: u32,
    reservation: Option<&mut Reservation>,
) -> Result<Progress> {
    let (start, end) = (range.start, range.end.min(LOGICAL_END));
    let mut edit = Edit { h, alloc, root, reservation };
    let last = match seek_last(edit.source(), edit.root, end)? {
        Some(run) if run.end() > start && end > start => run,
        _ => return Ok(Progress { done: true, next: start, freed: 0 }),
    };
    let path = edit.descend(u64::from(last.logical))?;
    let leaf = path.leaf();
    let upto = leaf.partition_point(|run| run.logical <= last.logical);
    let first = leaf[..upto].partition_point(|run| run.end() <= start);
    let first = first.max(upto.saturating_sub(budget.max(1) as usize));
    let cut = leaf[first..upto].to_vec();
    let mut kept = Vec::new();
    let mut freed = 0;
    for run in &cut {
        let (from, to) = (u64::from(run.logical).max(start), run.end().min(end));
        if from > u64::from(run.logical) {
            kept.push(run.part(u64::from(run.logical), from));
        }
        if to < run.end() {
            kept.push(run.part(to, run.end()));
        }
        let part = run.part(from, to);
        edit.alloc.free(edit.h, Extent { start: part.block, len: part.len }, edit.root.maps_metadata)?;
        freed += u64::from(part.len);
    }
    edit.splice(path, first, cut.len(), &kept)?;
    edit.root.blocks = edit.root.blocks.saturating_sub(freed);
    let next = cut.first().map_or(start, |run| u64::from(run.logical)).max(start);
    let more = seek_last(edit.source(), edit.root, next)?.is_some_and(|run| run.end() > start);
    Ok(Progress { done: next <= start || !more, next, freed })
}

/// Takes blocks out of the tree that stay allocated, for another to have them: part of one run, or all of it, so many
/// from a block on. Leaf blocks are as with [`insert`].
///
/// # Errors
/// [`Error::Corrupt`] if no run has all of them.
pub(crate) fn take(
    h: &mut Handle<'_>,
    alloc: &Alloc,
    root: &mut Root,
    (from, len): (u64, u32),
    reservation: Option<&mut Reservation>,
) -> Result<()> {
    let upto = from + u64::from(len);
    let mut edit = Edit { h, alloc, root, reservation };
    let run = seek(edit.source(), edit.root, from)?;
    let Some(run) = run.filter(|run| u64::from(run.logical) <= from && run.end() >= upto) else {
        return Err(damaged(edit.root, 0, "blocks that are to be taken are not there"));
    };
    let mut kept = Vec::with_capacity(2);
    if u64::from(run.logical) < from {
        kept.push(run.part(u64::from(run.logical), from));
    }
    if upto < run.end() {
        kept.push(run.part(upto, run.end()));
    }
    edit.take_out(&run, &kept)?;
    root.blocks = root.blocks.saturating_sub(u64::from(len));
    Ok(())
}

/// COLLAPSE: runs at or after block `from` move down by `by` blocks, into a hole that the caller has made,
/// lowest first, at most `budget` a call. `from` of the next call, and of a resumption after a crash, is
/// [`Progress::next`].
pub(crate) fn shift_down(
    h: &mut Handle<'_>,
    alloc: &Alloc,
    root: &mut Root,
    from: u64,
    by: u32,
    budget: u32,
) -> Result<Progress> {
    let mut edit = Edit { h, alloc, root, reservation: None };
    let mut next = from;
    let mut leaf = None;
    for _ in 0..budget.max(1) {
        let Some(run) = seek(edit.source(), edit.root, next)? else {
            return Ok(Progress { done: true, next, freed: 0 });
        };
        let Some(logical) = run.logical.checked_sub(by).filter(|_| u64::from(run.logical) >= next) else {
            return Err(damaged(edit.root, 0, "a run lies across the start of what is moved"));
        };
        if is_elsewhere(&leaf, &run) {
            return Ok(Progress { done: false, next, freed: 0 });
        }
        let keys = edit.take_out(&run, &[])?;
        leaf.get_or_insert(keys);
        edit.insert(Run { logical, ..run })?;
        next = run.end();
    }
    let done = seek(edit.source(), edit.root, next)?.is_none();
    Ok(Progress { done, next, freed: 0 })
}

/// INSERT: what lies at or after block `from` and before `until` moves up by `by` blocks, highest first, at
/// most `budget` runs a call. `until` is [`LOGICAL_END`] in the first call; in the next, and after a crash,
/// [`Progress::next`]. A run across `from` is cut.
///
/// # Errors
/// EFBIG if something would end past the end of all files.
pub(crate) fn shift_up(
    h: &mut Handle<'_>,
    alloc: &Alloc,
    root: &mut Root,
    moved: Range<u64>,
    by: u32,
    budget: u32,
) -> Result<Progress> {
    let (from, mut next) = (moved.start, moved.end);
    let mut leaf = None;
    let mut edit = Edit { h, alloc, root, reservation: None };
    for _ in 0..budget.max(1) {
        let Some(run) = seek_last(edit.source(), edit.root, next)?.filter(|run| run.end() > from) else {
            return Ok(Progress { done: true, next: from, freed: 0 });
        };
        let start = u64::from(run.logical).max(from);
        let part = run.part(start, run.end());
        if part.end() + u64::from(by) > LOGICAL_END {
            return Err(Error::Errno(libc::EFBIG));
        }
        let stays = (start > u64::from(run.logical)).then(|| run.part(u64::from(run.logical), start));
        if is_elsewhere(&leaf, &run) {
            return Ok(Progress { done: false, next, freed: 0 });
        }
        let keys = edit.take_out(&run, stays.as_slice())?;
        leaf.get_or_insert(keys);
        edit.insert(Run { logical: part.logical + by, ..part })?;
        next = start;
    }
    let done = seek_last(edit.source(), edit.root, next)?.is_none_or(|run| run.end() <= from);
    Ok(Progress { done, next, freed: 0 })
}

/// Whether a run lies outside the leaf that a call has worked on so far: the next call's work, so that the
/// slots of one call are bounded.
fn is_elsewhere(leaf: &Option<Range<u64>>, run: &Run) -> bool {
    leaf.as_ref().is_some_and(|keys| !keys.contains(&u64::from(run.logical)))
}

#[cfg(test)]
impl Root {
    /// Leaves so many bytes of the inline area to extents that `capacity` runs fit: 4 when inline attributes
    /// come, 8 when they go. Runs that do not fit move into an extent block.
    pub(crate) fn set_capacity(&mut self, h: &mut Handle<'_>, alloc: &Alloc, capacity: usize) -> Result<()> {
        Edit { h, alloc, root: self, reservation: None }.set_capacity(capacity)
    }
}

impl Edit<'_, '_> {
    fn insert(&mut self, mut run: Run) -> Result<()> {
        loop {
            let start = u64::from(run.logical);
            let path = self.descend(start)?;
            if start < path.low {
                // Nothing would find it again.
                return Err(damaged(self.root, 0, "blocks are to be mapped below the first key"));
            }
            let leaf = path.leaf();
            let at = leaf.partition_point(|other| other.logical <= run.logical);
            let free_to = leaf.get(at).map_or(path.high, |next| u64::from(next.logical));
            let mapped = at.checked_sub(1).is_some_and(|before| leaf[before].end() > start)
                || free_to < run.end() && at < leaf.len();
            if mapped {
                return Err(damaged(self.root, 0, "blocks are to be mapped that are mapped already"));
            }
            // A leaf may not reach past the key of the next, even where that begins with a hole.
            let here = run.part(start, run.end().min(free_to));
            self.splice(path, at, 0, &[here])?;
            if here.end() == run.end() {
                return Ok(());
            }
            run = run.part(here.end(), run.end());
        }
    }

    /// Replaces one run, which the tree has, by others within its range; the keys between which its leaf lies.
    fn take_out(&mut self, run: &Run, instead: &[Run]) -> Result<Range<u64>> {
        let path = self.descend(u64::from(run.logical))?;
        let keys = path.low..path.high;
        match path.leaf().iter().position(|other| other == run) {
            Some(at) => self.splice(path, at, 1, instead).map(|()| keys),
            None => Err(damaged(self.root, 0, "a run is not where its key says")),
        }
    }

    fn mark(&mut self, range: Range<u64>, budget: u32, unwritten: bool) -> Result<Progress> {
        let end = range.end.min(LOGICAL_END);
        let mut next = range.start;
        let mut left = budget.max(1);
        let mut leaf = None;
        while next < end {
            let Some(run) = seek(self.source(), self.root, next)?.filter(|run| u64::from(run.logical) < end)
            else {
                break;
            };
            let (start, stop) = (u64::from(run.logical).max(next), run.end().min(end));
            if run.unwritten != unwritten {
                if left == 0 || is_elsewhere(&leaf, &run) {
                    return Ok(Progress { done: false, next, freed: 0 });
                }
                left -= 1;
                let mut parts = Vec::with_capacity(3);
                if start > u64::from(run.logical) {
                    parts.push(run.part(u64::from(run.logical), start));
                }
                parts.push(Run { unwritten, ..run.part(start, stop) });
                if stop < run.end() {
                    parts.push(run.part(stop, run.end()));
                }
                let keys = self.take_out(&run, &parts)?;
                leaf.get_or_insert(keys);
            }
            next = stop;
        }
        Ok(Progress { done: true, next: end, freed: 0 })
    }
}
