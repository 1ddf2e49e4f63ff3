//! Records about files: their mappings, the credits for a record, and logging it.

use super::file_blocks::Picked;
use super::{Change, Logged, Mapping, Meta, Need, ROOM_CHANGED};
use crate::alloc::{BITS_DELTA_BYTES, Extent};
use crate::error::Result;
use crate::extent::{self, Root};
use crate::format::{Inode, Intent, SLOT_PAYLOAD};
use crate::inode::{Draft, InodeObj};
use crate::pages::PAGES_END;
use crate::planted::{self, Bug};
use crate::store::Handle;
use crate::takeover;
use std::ops::Range;

/// Slots of an inode and of an entry in the orphan table, with the block that may be made for it.
pub(crate) const INODE_SLOTS: u32 = 8;
/// Extents that a node holds at least while a tree is filled in ascending order: half of what it can hold.
const RUNS_OF_NODE: usize = 64;
/// Bytes of a record for one extent of a tree that is dropped: its bits, and a leaf of its own at the worst.
const DROPPED_BYTES: usize = 2 * BITS_DELTA_BYTES + 64;
/// Extents that a file has more at the most for each run that is marked: what is before and behind it.
const RUNS_OF_CHANGE: usize = 2;
/// Bytes beside the data of an absorbed page, and of a range that is superseded.
pub(crate) const KEY_BYTES: usize = 64;

pub(crate) const BLOCK: u64 = crate::device::BLOCK_SIZE as u64;

/// Credits for a record about a file.
pub struct Room<'a> {
    handle: Handle<'a>,
    /// They were taken for dropping all the file's extents at once.
    drops_all: bool,
    /// They are enough only if the extents find room in the inode.
    in_root: bool,
}

/// What a change makes of a file, staged.
pub(super) struct Edited<'a> {
    pub draft: Draft,
    /// Pages whose blocks are still to be freed, see [`Logged::left`].
    pub left: Option<Range<u64>>,
    /// The file's blocks, once the record has committed.
    pub picked: Picked<'a>,
}

impl Meta {
    /// What lies at `page`. Of a file that was truncated to nothing, and whose record of that waits: nothing. Takes the
    /// inode lock shared, until it has come to a leaf: a record about other pages may split one, and put a half of it where
    /// the root of before does not lead.
    pub fn map(&self, inode: &InodeObj, page: u64) -> Result<Mapping> {
        if inode.made_data().is_some_and(|data| data.pages.is_truncate_pending()) {
            return Ok(Mapping::Hole { len: PAGES_END.saturating_sub(page).max(1) });
        }
        let Ok(logical) = u32::try_from(page) else { return Ok(Mapping::Hole { len: 1 }) };
        let image = inode.lock.read();
        let root = Root::load(&image)?;
        #[cfg(all(test, not(any(loom, shuttle))))]
        super::hooks::Hooks::run(&self.hooks.when_root_is_read);
        let found = extent::lookup(&*self.store, &root, logical)?;
        drop(image);
        let mapping = match found {
            extent::Mapping::Hole { len } => Mapping::Hole { len },
            extent::Mapping::Mapped { block, len, unwritten } => {
                Mapping::Mapped { block, len: u64::from(len), unwritten }
            }
        };
        #[cfg(all(test, not(any(loom, shuttle))))]
        super::hooks::Hooks::run(&self.hooks.when_mapped);
        Ok(mapping)
    }

    /// The run of blocks at a page that read as zeros: its pages, and the first of its blocks. `None`: there is none. Takes
    /// the inode lock shared.
    pub fn unwritten_run(&self, inode: &InodeObj, page: u64) -> Result<Option<(Range<u64>, u64)>> {
        let image = inode.lock.read();
        let run = extent::next_run(&*self.store, &Root::load(&image)?, page)?;
        drop(image);
        let run = run.filter(|run| run.unwritten && u64::from(run.logical) <= page);
        Ok(run.map(|run| (run.logical.into()..run.end(), run.block)))
    }

    /// How many of `need.runs` fit one record beside the rest of `need`; 0 if not even that fits.
    pub fn fitting(&self, inode: &InodeObj, mut need: Need) -> usize {
        loop {
            let (slots, _) = self.slots_of(inode, &need);
            if self.allowed(slots) == slots || need.runs == 0 {
                return need.runs;
            }
            need.runs /= 2;
        }
    }

    /// Takes room for one [`Change`]. May sleep: called with at most a range in hand.
    pub fn credits(&self, inode: &InodeObj, need: Need) -> Result<Room<'_>> {
        let (slots, in_root) = self.slots_of(inode, &need);
        let handle = self.begin_reserve(slots)?;
        Ok(Room { handle, drops_all: need.dropped > 0, in_root })
    }

    /// As [`Meta::credits`], for who has credits for another file already: never waits, `None` if there is no room.
    pub fn try_credits(&self, inode: &InodeObj, need: Need) -> Result<Option<Room<'_>>> {
        #[cfg(all(test, not(any(loom, shuttle))))]
        if self.hooks.refuses() {
            return Ok(None);
        }
        let (slots, in_root) = self.slots_of(inode, &need);
        let handle = self.store.try_begin(slots)?;
        Ok(handle.map(|handle| Room { handle, drops_all: need.dropped > 0, in_root }))
    }

    /// As [`Meta::try_credits`], for bytes that may as well be written home: `None` also where there is so little room
    /// that it is to be left to others.
    pub fn ample_credits(&self, inode: &InodeObj, need: Need) -> Result<Option<Room<'_>>> {
        #[cfg(all(test, not(any(loom, shuttle))))]
        if self.hooks.is_crowded.load(crate::sync::atomic::Ordering::SeqCst) {
            return Ok(None);
        }
        let (slots, in_root) = self.slots_of(inode, &need);
        let handle = self.store.try_begin_amply(slots)?;
        Ok(handle.map(|handle| Room { handle, drops_all: need.dropped > 0, in_root }))
    }

    /// Records a change that is within its credits. Takes the inode lock exclusively. Volatile blocks named in
    /// `insert` belong to the file once it succeeds, and still to the caller if it fails.
    pub fn log(&self, room: Room<'_>, inode: &InodeObj, change: Change) -> Result<Logged> {
        self.log_after(room, inode, change, || ())
    }

    /// The same, with what must not have happened if the change cannot be staged, which may read the device: it is done
    /// just before the record is logged, with the inode lock in hand.
    pub fn log_after(
        &self,
        room: Room<'_>,
        inode: &InodeObj,
        change: Change,
        staged: impl FnOnce(),
    ) -> Result<Logged> {
        let Room { handle: mut h, drops_all, in_root } = room;
        #[cfg(all(test, not(any(loom, shuttle))))]
        {
            if in_root && self.hooks.has_changed() {
                return Err(ROOM_CHANGED);
            }
            self.hooks.check(self, inode, &change);
        }
        #[cfg(all(test, not(any(loom, shuttle))))]
        let absorbs = !change.data.is_empty();
        let mut image = inode.lock.write();
        if image.nid.get() == 0 && change.is_empty() {
            // Freed since its times changed: nothing is owed to it.
            return Ok(Logged { end: self.store.tail(), left: None });
        }
        let more = change.insert.len() + RUNS_OF_CHANGE * change.mark_written.len();
        if in_root && !extent::stays_in_root(&image, more) {
            return Err(ROOM_CHANGED);
        }
        let drops_content = change.remove.as_ref().is_some_and(|range| range.start == 0);
        let Edited { draft, left, picked } = self.edit_as(&mut h, inode, &image, change, drops_all)?;
        staged();
        if drops_content {
            inode.decides_truncation();
        }
        let committed = self.commit(h);
        if drops_content {
            takeover::undecided();
        }
        let (end, installing) = committed?;
        picked.belong_to_file();
        inode.install(&mut image, &draft);
        drop(installing);
        drop(image);
        self.trim_reserved();
        #[cfg(all(test, not(any(loom, shuttle))))]
        if absorbs {
            super::hooks::Hooks::run(&self.hooks.when_absorbed);
        }
        Ok(Logged { end, left })
    }

    /// Stages what a change makes of an inode, whose lock the caller has exclusively.
    pub(super) fn edit_as(
        &self,
        h: &mut Handle<'_>,
        inode: &InodeObj,
        image: &Inode,
        change: Change,
        drops_all: bool,
    ) -> Result<Edited<'_>> {
        let mut draft = inode.draft(image);
        let mut root = Root::load(&draft.image)?;
        let mut left = None;
        if let Some(range) = change.remove {
            let mut progress = extent::remove(h, &self.alloc, &mut root, range.clone(), self.step())?;
            while drops_all && !progress.done {
                let part = range.start..progress.next;
                progress = extent::remove(h, &self.alloc, &mut root, part, self.step())?;
            }
            if !progress.done {
                let rest = range.start..progress.next;
                let bytes = [rest.start * BLOCK, rest.end.saturating_mul(BLOCK)];
                self.space.begin_intent(h, inode.nid(), inode.generation(), Intent::Punch, bytes)?;
                left = Some(rest);
            }
        }
        // First, for it has no promise: where it fails, nothing of one was taken.
        for range in &change.mark_written {
            let mut from = range.start;
            loop {
                let part = from..range.end;
                let progress = extent::mark_written(h, &self.alloc, &mut root, part, self.step(), None)?;
                if progress.done {
                    break;
                }
                from = progress.next;
            }
        }
        let mut picked = self.picked();
        for run in &change.insert {
            let extent = Extent { start: run.blocks.start, len: run.blocks.len };
            let page = u32::try_from(run.page).map_err(|_| crate::Error::Errno(libc::EFBIG))?;
            picked.log(h, run.blocks)?;
            // What is promised to others stays there for them.
            let mut promise = self.reserved.lock().split_slack(root.most_nodes_of_insert());
            let inserted =
                extent::insert(h, &self.alloc, &mut root, page, extent, run.unwritten, Some(&mut promise));
            self.reserved.lock().merge(promise);
            inserted?;
        }
        root.store(&mut draft.image);
        if let Some(size) = change.size {
            draft.image.size.set(size);
        }
        for key in change.supersede.into_iter().filter(|_| !planted::is(Bug::NoSupersede)) {
            h.supersede(key);
        }
        for (key, bytes) in change.data {
            h.data(key, bytes);
        }
        self.stage(h, inode, &draft.image)?;
        Ok(Edited { draft, left, picked })
    }

    /// Whether an fsync may be answered before the power durability has come: then the commit that makes its records
    /// durable sees to the flush of what they depend on, see [`Meta::order_after`].
    pub fn may_lag(&self) -> bool {
        self.store.journal().is_some_and(|journal| journal.may_lag(self.durability))
    }

    /// What is logged from now on counts only with so many completed writes of the device flushed: they are, on
    /// return, or will be before it can count.
    pub fn order_after(&self, writes: u64) -> Result<()> {
        match self.store.journal() {
            Some(journal) if journal.commit_flushes(self.durability) => {
                journal.depend(writes);
                Ok(())
            }
            _ => self.store.device().flush_upto(writes),
        }
    }

    /// Slots that a record with all of `need` takes at the most, and whether they are enough only as long as the
    /// file's extents find room in its inode.
    pub(super) fn slots_of(&self, inode: &InodeObj, need: &Need) -> (u32, bool) {
        let (depth, in_root) = {
            let image = inode.lock.read();
            (image.extent_depth, need.again && extent::stays_in_root(&image, RUNS_OF_CHANGE * need.runs))
        };
        if in_root && need.dropped == 0 && need.data == 0 {
            let bytes = need.runs * BITS_DELTA_BYTES + need.superseded * KEY_BYTES;
            return (INODE_SLOTS + bytes.div_ceil(SLOT_PAYLOAD) as u32, true);
        }
        let runs = match need.dropped {
            0 => (need.runs as u32).saturating_mul(extent::edit_slots(depth, 1)),
            // Into an empty tree, in ascending order: its nodes are full but for the last.
            dropped => {
                let nodes = need.runs.div_ceil(RUNS_OF_NODE) + 2;
                let bytes = dropped * DROPPED_BYTES + need.runs * BITS_DELTA_BYTES;
                nodes as u32 * extent::edit_slots(0, 1) + bytes.div_ceil(SLOT_PAYLOAD) as u32
            }
        };
        let data = need.data + (need.data.div_ceil(BLOCK as usize) + need.superseded) * KEY_BYTES;
        let data = data.div_ceil(SLOT_PAYLOAD) as u32;
        (runs.saturating_add(self.step_slots(inode)).saturating_add(data), false)
    }
}
