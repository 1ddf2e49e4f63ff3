//! Files that run ahead of the journal: their size and times in memory, and whether a truncation to nothing is pending.
//!
//! A slot belongs to one file from the first change that no record holds until a record holds all of them. Its number is
//! kept with the file.

#![allow(unsafe_code, reason = "a leaf module: slots of a mapping that lives as long as this")]

use super::Takeover;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const TRUNCATE_PENDING: u32 = 1;

/// One file. Zero bytes are a free slot.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct InodeSlot {
    /// Its number; 0: free.
    nid: AtomicU64,
    generation: AtomicU32,
    flags: AtomicU32,
    size: AtomicU64,
    mtime: AtomicI64,
    ctime: AtomicI64,
    /// Where the record lies that drops the old content, once it is about to be logged: 0 before.
    epoch: AtomicU64,
    position: AtomicU64,
    /// Of the first slot: from this number on none was ever used. Pages beyond are not touched: they take no memory.
    used: AtomicU64,
}

/// What a predecessor has left of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptInode {
    /// Where.
    pub slot: u32,
    /// The file.
    pub nid: u64,
    /// The generation of its number.
    pub generation: u32,
    /// Its size in bytes.
    pub size: u64,
    /// When its content changed, and when the inode did, in nanoseconds.
    pub mtime: i64,
    /// See `mtime`.
    pub ctime: i64,
    /// Its old content is gone, and no record says so.
    pub truncate_pending: bool,
}

/// The slots.
#[derive(Debug)]
pub struct Inodes {
    /// In the memory of `Takeover`, which this value is a part of and does not outlive.
    slots: *const [InodeSlot],
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    /// Those that came back.
    back: Vec<u32>,
    /// From here on none was ever used.
    fresh: u32,
}

// SAFETY: the slots are atomic words of a mapping that lives as long as this value; all else is behind a lock. Guarded by
// the tests of this module.
unsafe impl Send for Inodes {}
// SAFETY: as above.
unsafe impl Sync for Inodes {}

impl Inodes {
    pub(super) fn new(slots: &[InodeSlot]) -> Inodes {
        Inodes { slots, free: Mutex::new(Free { back: Vec::new(), fresh: 0 }) }
    }

    fn slots(&self) -> &[InodeSlot] {
        // SAFETY: the mapping lives as long as this value, which is a part of its owner. Guarded by this module's tests.
        unsafe { &*self.slots }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a predecessor has left; their slots are in use until they are given back. To be called once, before any is
    /// taken.
    pub fn left(&self) -> Vec<KeptInode> {
        let used = self.used();
        let mut free = self.free();
        let mut left = Vec::new();
        for (number, slot) in used.iter().enumerate() {
            match slot.look(number as u32) {
                Some(kept) => left.push(kept),
                None => free.back.push(number as u32),
            }
        }
        free.fresh = used.len() as u32;
        left
    }

    /// Has recovery say of each pending truncation whether the record that ends it is whole. To be called before
    /// [`Inodes::left`].
    pub(crate) fn judge(
        &self,
        mut is_whole: impl FnMut(u64, u64) -> crate::Result<bool>,
    ) -> crate::Result<()> {
        for slot in self.used() {
            let position = slot.position.load(Ordering::Relaxed);
            let is_pending = slot.look(0).is_some_and(|kept| kept.truncate_pending);
            if is_pending && position != 0 && is_whole(slot.epoch.load(Ordering::Relaxed), position)? {
                slot.flags.store(0, Ordering::Release);
            }
            // Of the next epoch it would mean something else.
            slot.position.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The slots that were ever in use.
    fn used(&self) -> &[InodeSlot] {
        let used = self.slots().first().map_or(0, |first| first.used.load(Ordering::Relaxed));
        &self.slots()[..used.min(self.slots().len() as u64) as usize]
    }

    /// A slot for a file; what it says counts at once. None: all are in use.
    pub fn take(&self, nid: u64, generation: u32, size: u64) -> Option<u32> {
        let number = {
            let mut free = self.free();
            match free.back.pop() {
                Some(number) => number,
                None if (free.fresh as usize) < self.slots().len() => {
                    free.fresh += 1;
                    // Relaxed: it is there before the slot counts, which is Release.
                    self.slots()[0].used.store(u64::from(free.fresh), Ordering::Relaxed);
                    free.fresh - 1
                }
                None => return None,
            }
        };
        let slot = &self.slots()[number as usize];
        slot.generation.store(generation, Ordering::Relaxed);
        slot.flags.store(0, Ordering::Relaxed);
        slot.size.store(size, Ordering::Relaxed);
        slot.mtime.store(0, Ordering::Relaxed);
        slot.ctime.store(0, Ordering::Relaxed);
        slot.position.store(0, Ordering::Relaxed);
        // Release: rule 2 of the module above.
        slot.nid.store(nid, Ordering::Release);
        Some(number)
    }

    /// The file has this size.
    #[inline]
    pub fn set_size(&self, slot: u32, size: u64) {
        // Release: what it shows of the file is there.
        self.slots()[slot as usize].size.store(size, Ordering::Release);
    }

    /// The file has these times.
    #[inline]
    pub fn set_times(&self, slot: u32, mtime: i64, ctime: i64) {
        let slot = &self.slots()[slot as usize];
        slot.mtime.store(mtime, Ordering::Relaxed);
        slot.ctime.store(ctime, Ordering::Relaxed);
    }

    /// Whether the old content is gone with no record that says so.
    #[inline]
    pub fn set_truncate_pending(&self, slot: u32, pending: bool) {
        let slot = &self.slots()[slot as usize];
        if pending {
            slot.position.store(0, Ordering::Relaxed);
        }
        // Release: a size of 0 is there first.
        slot.flags.store(if pending { TRUNCATE_PENDING } else { 0 }, Ordering::Release);
    }

    /// A record holds all of it.
    pub fn give(&self, slot: u32) {
        // Release: rule 2 of the module above.
        self.slots()[slot as usize].nid.store(0, Ordering::Release);
        self.free().back.push(slot);
    }
}

/// A slot that a file has; free again when dropped.
#[derive(Debug)]
pub struct KeptSlot {
    memory: Arc<Takeover>,
    number: u32,
}

impl KeptSlot {
    /// A slot for a file of this size. None: all are in use.
    pub fn take(memory: &Arc<Takeover>, nid: u64, generation: u32, size: u64) -> Option<KeptSlot> {
        let number = memory.inodes().take(nid, generation, size)?;
        Some(KeptSlot { memory: Arc::clone(memory), number })
    }

    /// The slot that a predecessor has left of a file.
    pub fn inherit(memory: &Arc<Takeover>, kept: &KeptInode) -> KeptSlot {
        KeptSlot { memory: Arc::clone(memory), number: kept.slot }
    }

    /// See [`Inodes::set_size`].
    #[inline]
    pub fn set_size(&self, size: u64) {
        self.memory.inodes().set_size(self.number, size);
    }

    /// See [`Inodes::set_times`].
    #[inline]
    pub fn set_times(&self, mtime: i64, ctime: i64) {
        self.memory.inodes().set_times(self.number, mtime, ctime);
    }

    /// See [`Inodes::set_truncate_pending`].
    pub fn set_truncate_pending(&self, pending: bool) {
        self.memory.inodes().set_truncate_pending(self.number, pending);
    }

    /// The next record that this thread logs drops the file's old content.
    pub fn decides(&self) {
        let slot: *const InodeSlot = &self.memory.inodes().slots()[self.number as usize];
        DECIDED.set(slot);
    }
}

impl Drop for KeptSlot {
    fn drop(&mut self) {
        if !self.memory.is_left() {
            self.memory.inodes().give(self.number);
        }
    }
}

thread_local! {
    /// The file whose old content the thread's next record drops. The thread holds the file's lock until that is logged, or
    /// given up, so the slot is the file's.
    static DECIDED: Cell<*const InodeSlot> = const { Cell::new(std::ptr::null()) };
}

/// A record of this thread's has this position, and is not persistent yet.
#[inline]
pub(super) fn reserved(epoch: u64, position: u64) {
    let slot = DECIDED.get();
    if !slot.is_null() {
        DECIDED.set(std::ptr::null());
        // SAFETY: the address was set by `decides`, on this thread, of a slot whose file this thread has locked since, and
        // whose memory that file keeps mapped. Guarded by `a_truncation_is_over_once_its_record_is_whole`.
        let slot = unsafe { &*slot };
        slot.epoch.store(epoch, Ordering::Relaxed);
        // Release: the epoch is there for who finds the position, and both before the record is whole.
        slot.position.store(position, Ordering::Release);
    }
}

/// No record was logged after all.
pub(crate) fn undecided() {
    DECIDED.set(std::ptr::null());
}

impl InodeSlot {
    fn look(&self, slot: u32) -> Option<KeptInode> {
        // Acquire: pairs with the Release of `take`, in another process.
        let nid = self.nid.load(Ordering::Acquire);
        (nid != 0).then(|| KeptInode {
            slot,
            nid,
            generation: self.generation.load(Ordering::Relaxed),
            size: self.size.load(Ordering::Relaxed),
            mtime: self.mtime.load(Ordering::Relaxed),
            ctime: self.ctime.load(Ordering::Relaxed),
            truncate_pending: self.flags.load(Ordering::Relaxed) & TRUNCATE_PENDING != 0,
        })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::Takeover;
    use super::*;

    #[test]
    fn a_truncation_is_over_once_its_record_is_whole() {
        let memory = Takeover::create(1).expect("memory");
        let slots: Vec<_> =
            (1..=4).map(|nid| KeptSlot::take(&memory, nid, 1, 0).expect("a free slot")).collect();
        for (slot, position) in slots.iter().zip([10, 20, 30]) {
            slot.set_truncate_pending(true);
            slot.decides();
            super::super::reserved(7, position);
            super::super::reserved(7, 99);
        }
        slots[3].set_truncate_pending(true);
        slots[2].set_truncate_pending(true);
        slots.into_iter().for_each(std::mem::forget);
        let next =
            Takeover::adopt(memory.descriptor().try_clone_to_owned().expect("fd")).expect("it is there");
        next.inodes().judge(|epoch, position| Ok(epoch == 7 && position != 20)).expect("judged");
        let pending: Vec<_> = next.inodes().left().iter().map(|kept| kept.truncate_pending).collect();
        assert_eq!(pending, [false, true, true, true]);
    }

    #[test]
    fn a_successor_finds_the_files_that_were_left_and_uses_the_other_slots() {
        let memory = Takeover::create(1).expect("memory");
        let inodes = memory.inodes();
        let slots: Vec<u32> =
            (1..=5).map(|nid| inodes.take(nid, 3, 10 * nid).expect("a free slot")).collect();
        inodes.set_size(slots[1], 7);
        inodes.set_times(slots[1], -5, 6);
        inodes.set_truncate_pending(slots[3], true);
        inodes.give(slots[0]);
        inodes.give(slots[2]);
        let next =
            Takeover::adopt(memory.descriptor().try_clone_to_owned().expect("fd")).expect("it is there");
        let left = next.inodes().left();
        assert_eq!(left.iter().map(|kept| kept.nid).collect::<Vec<_>>(), [2, 4, 5]);
        assert_eq!((left[0].size, left[0].mtime, left[0].ctime, left[0].generation), (7, -5, 6, 3));
        assert_eq!(left.iter().map(|kept| kept.truncate_pending).collect::<Vec<_>>(), [false, true, false]);
        let taken: Vec<u32> = (0..3).map(|_| next.inodes().take(9, 0, 0).expect("a free slot")).collect();
        assert!(taken.iter().all(|slot| left.iter().all(|kept| kept.slot != *slot)));
        assert_eq!(taken.iter().max(), Some(&5));
    }
}
