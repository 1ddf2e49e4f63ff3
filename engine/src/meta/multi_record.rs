//! Removals and moves of blocks that take more than one record: one step in each, and an intent from the first to the
//! last, so that a crash in between is gone on from.
//!
//! What this leaves to others: how extents change (`extent`), and what finds the intents after a crash (`intents`).

use super::Meta;
use super::log::{BLOCK, INODE_SLOTS};
use crate::error::Result;
use crate::extent::{self, Progress, Root};
use crate::format::Intent;
use crate::inode::InodeObj;
use crate::store::Handle;
use crate::takeover::requests;
use std::ops::Range;

impl Meta {
    /// Slots of one step of a removal or move, with its intent and the inode.
    pub(crate) fn step_slots(&self, inode: &InodeObj) -> u32 {
        extent::edit_slots(inode.lock.read().extent_depth, self.step()) + INODE_SLOTS
    }

    /// Runs steps, each in a record of its own, until `step` says that it is done; `intent` covers the time
    /// between the first and the last, should there be more than one. Given up in between, the file is of no use
    /// until the next mount goes on.
    fn in_steps(
        &self,
        inode: &InodeObj,
        intent: (Intent, [u64; 2]),
        step: impl FnMut(&mut Handle<'_>, &mut Root) -> Result<Progress>,
        size: Option<u64>,
        mut begun: bool,
    ) -> Result<()> {
        let done = self.all_steps(inode, intent, step, size, &mut begun);
        if begun && let Err(e) = &done {
            tracing::error!(nid = inode.nid(), "it cannot be used until the next mount: {e}");
            inode.poison();
        }
        done
    }

    fn all_steps(
        &self,
        inode: &InodeObj,
        intent: (Intent, [u64; 2]),
        mut step: impl FnMut(&mut Handle<'_>, &mut Root) -> Result<Progress>,
        size: Option<u64>,
        begun: &mut bool,
    ) -> Result<()> {
        loop {
            let slots = self.step_slots(inode);
            let mut h = if *begun { self.begin_rest(slots)? } else { self.begin(slots)? };
            // A write home may be at the zeros around what it writes: no block is freed under it.
            let _quiet = inode.made_data().map(|data| data.write_back.lock());
            let mut image = inode.lock.write();
            let mut draft = inode.draft(&image);
            let mut root = Root::load(&draft.image)?;
            let progress = step(&mut h, &mut root)?;
            root.store(&mut draft.image);
            if progress.done {
                if let Some(size) = size {
                    draft.image.size.set(size);
                }
                if *begun {
                    self.space.end_intent(&mut h, inode.nid(), intent.0)?;
                }
            } else if *begun {
                self.space.note_progress(&mut h, inode.nid(), intent.0, progress.next)?;
            } else {
                self.space.begin_intent(&mut h, inode.nid(), inode.generation(), intent.0, intent.1)?;
                self.space.note_progress(&mut h, inode.nid(), intent.0, progress.next)?;
            }
            self.stage(&mut h, inode, &draft.image)?;
            if !*begun {
                requests::decides(0);
            }
            let _installing = self.commit(h)?;
            *begun |= !progress.done;
            inode.install(&mut image, &draft);
            if progress.done {
                return Ok(());
            }
        }
    }

    /// Moves the pages from `range.end` on down to `range.start`, after freeing `range`, and sets the size, in as many
    /// records as it takes (recovery finishes what was begun); a failure as of [`Meta::free_rest`].
    pub fn collapse(&self, inode: &InodeObj, range: Range<u64>, size: u64) -> Result<()> {
        self.move_down(inode, range, 0, false, size)
    }

    /// Moves the pages from `at` on up by `by`, and sets the size; a failure as of [`Meta::free_rest`].
    pub fn insert_hole(&self, inode: &InodeObj, at: u64, by: u64, size: u64) -> Result<()> {
        self.move_up(inode, at, by, extent::LOGICAL_END, false, size)
    }

    /// Frees the blocks of pages that a record has left, in records of its own: it may sleep for credits. The
    /// caller has their range. If it fails, it has called [`InodeObj::poison`]: the intent stays, and the next
    /// mount acts on it, so nobody may use the file until then.
    pub fn free_rest(&self, inode: &InodeObj, pages: Range<u64>) -> Result<()> {
        self.free_range(inode, pages, Intent::Punch)
    }

    /// COLLAPSE_RANGE. `progress` is 0 until the range is a hole, then the first block not yet moved.
    pub(crate) fn move_down(
        &self,
        inode: &InodeObj,
        range: Range<u64>,
        progress: u64,
        begun: bool,
        size: u64,
    ) -> Result<()> {
        let bytes = [range.start * BLOCK, range.end * BLOCK];
        let by = (range.end - range.start) as u32;
        let mut from = progress;
        self.in_steps(
            inode,
            (Intent::Collapse, bytes),
            |h, root| {
                if from == 0 {
                    let progress = extent::remove(h, &self.alloc, root, range.clone(), self.step())?;
                    from = if progress.done { range.end } else { 0 };
                    return Ok(Progress { done: false, next: from, freed: progress.freed });
                }
                let progress = extent::shift_down(h, &self.alloc, root, from, by, self.step())?;
                from = progress.next;
                Ok(progress)
            },
            Some(size),
            begun,
        )
    }

    /// INSERT_RANGE: what lies from `at` up to `upto` is not moved yet.
    pub(crate) fn move_up(
        &self,
        inode: &InodeObj,
        at: u64,
        by: u64,
        mut upto: u64,
        begun: bool,
        size: u64,
    ) -> Result<()> {
        self.in_steps(
            inode,
            (Intent::Insert, [at * BLOCK, by * BLOCK]),
            |h, root| {
                let progress = extent::shift_up(h, &self.alloc, root, at..upto, by as u32, self.step())?;
                upto = progress.next;
                Ok(progress)
            },
            Some(size),
            begun,
        )
    }

    /// Goes on with a collapse that a crash has cut short: the size follows from what was moved.
    pub(crate) fn resume_collapse(&self, inode: &InodeObj, range: Range<u64>, progress: u64) -> Result<()> {
        let size = inode.size().saturating_sub((range.end - range.start) * BLOCK);
        self.move_down(inode, range, progress, true, size)
    }

    /// Goes on with an insertion that a crash has cut short.
    pub(crate) fn resume_insert(&self, inode: &InodeObj, at: u64, by: u64, progress: u64) -> Result<()> {
        let size = inode.size() + by * BLOCK;
        self.move_up(inode, at, by, progress, true, size)
    }

    /// Frees the blocks of a range in as many records as it takes.
    pub(crate) fn free_range(&self, inode: &InodeObj, range: Range<u64>, intent: Intent) -> Result<()> {
        let mut upto = range.end;
        self.in_steps(
            inode,
            (intent, [range.start * BLOCK, range.end.saturating_mul(BLOCK)]),
            |h, root| {
                let progress = extent::remove(h, &self.alloc, root, range.start..upto, self.step())?;
                upto = progress.next;
                Ok(progress)
            },
            None,
            true,
        )
    }
}
