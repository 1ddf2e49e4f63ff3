//! Requests in service: what a successor must know of each, so that none is done twice and none is forgotten.
//!
//! # States
//! | state | who stores it, when | what it says after a kill |
//! | --- | --- | --- |
//! | free | the server, when the reply has been sent | nothing was in service |
//! | taken | the server, before it does anything | nothing is known: it was not done |
//! | decided | the thread that serves it, between the reservation of the record that decides it and the record's persist | it was done if the record at that position is whole |
//! | done | recovery, once it knows that the record is whole; or a write, while it has its range | it was done |
//!
//! A record's position is stored before the record can be whole, and its slots are sealed before any lock of the operation
//! is released: so what another has seen is known to have been done, and what is not known to have been done nobody has
//! seen. A head that has passed the position has passed a whole record.
//!
//! What this leaves to others: which record decides an operation (`crate::vfs`), whether it is whole (`crate::recovery`),
//! and what is answered.

#![allow(unsafe_code, reason = "a leaf module: the slot of a thread's request, by address")]

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Set in the number of a request that the kernel sends once more.
pub const RESENT: u64 = 1 << 63;

const TAKEN: u32 = 1;
const DECIDED: u32 = 2;
const DONE: u32 = 3;

/// One request. Zero bytes are a free slot.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct RequestSlot {
    /// The kernel's number of it; 0: free.
    unique: AtomicU64,
    nodeid: AtomicU64,
    epoch: AtomicU64,
    position: AtomicU64,
    /// The inode that it made.
    nid: AtomicU64,
    /// Bytes that it wrote.
    written: AtomicU64,
    opcode: AtomicU32,
    state: AtomicU32,
    /// Servers that were killed while it was in service.
    attempts: AtomicU32,
    _reserved: AtomicU32,
}

/// What a predecessor has left of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// The kernel's number of it, without the bit that says that it is sent once more.
    pub unique: u64,
    /// What was asked.
    pub opcode: u32,
    /// Of which inode.
    pub nodeid: u64,
    /// Whether it was done: it is only to be answered.
    pub done: bool,
    /// The inode that it made, if it did.
    pub nid: u64,
    /// Bytes that it wrote.
    pub written: u64,
    /// Servers that were killed while it was in service, this time included.
    pub attempts: u32,
}

/// The slots.
#[derive(Debug)]
pub struct Requests {
    /// In the memory of `Takeover`, which this value is a part of and does not outlive.
    slots: *const [RequestSlot],
    /// Free ones.
    free: Mutex<Vec<u32>>,
    /// Those that a predecessor has left.
    left: Mutex<Vec<(u32, Left)>>,
}

// SAFETY: the slots are atomic words of a mapping that lives as long as this value; all else is behind locks. Guarded by
// the tests of this module.
unsafe impl Send for Requests {}
// SAFETY: as above.
unsafe impl Sync for Requests {}

/// The slot of a request in service. Free again when dropped, which is when its reply has been sent.
#[derive(Debug)]
pub struct Taken {
    memory: std::sync::Arc<super::Takeover>,
    number: u32,
}

/// While it lives, what this thread does is done for the request.
#[derive(Debug)]
pub struct Entered<'t> {
    _taken: &'t Taken,
}

#[derive(Clone, Copy)]
struct Current {
    slot: *const RequestSlot,
    /// The next record that this thread logs decides the request.
    armed: bool,
}

const NONE: Current = Current { slot: std::ptr::null(), armed: false };

thread_local! {
    static CURRENT: Cell<Current> = const { Cell::new(NONE) };
}

/// Runs `with` on the slot of the thread's request, if it has one.
#[inline]
fn with_current(current: Current, with: impl FnOnce(&RequestSlot)) {
    if !current.slot.is_null() {
        // SAFETY: `Entered` has set the address and takes it back when it ends; meanwhile it borrows the `Taken`, which
        // keeps the memory mapped. Guarded by `what_a_thread_does_is_noted_for_its_request_alone`.
        with(unsafe { &*current.slot });
    }
}

/// The next record that this thread logs decides its request; `nid` is the inode that it makes, or 0.
#[inline]
pub(crate) fn decides(nid: u64) {
    let current = CURRENT.get();
    with_current(current, |slot| {
        slot.nid.store(nid, Ordering::Relaxed);
        CURRENT.set(Current { armed: true, ..current });
    });
}

/// A record of this thread's has this position, and is not persistent yet.
#[inline]
pub(crate) fn reserved(epoch: u64, position: u64) {
    let current = CURRENT.get();
    if !current.armed {
        return;
    }
    CURRENT.set(Current { armed: false, ..current });
    with_current(current, |slot| {
        slot.epoch.store(epoch, Ordering::Relaxed);
        slot.position.store(position, Ordering::Relaxed);
        // Release: the position is there for who finds the state, and both before the record is whole.
        slot.state.store(DECIDED, Ordering::Release);
    });
}

/// The thread's request has written so many bytes; its range is still held.
#[inline]
pub(crate) fn wrote(bytes: usize) {
    with_current(CURRENT.get(), |slot| {
        slot.written.store(bytes as u64, Ordering::Relaxed);
        // Release: as above; and behind the bytes themselves.
        slot.state.store(DONE, Ordering::Release);
    });
}

impl Requests {
    /// The slots of some memory; those in use are a predecessor's.
    pub(super) fn new(slots: &[RequestSlot]) -> Requests {
        let mut left = Vec::new();
        let mut free = Vec::new();
        for (number, slot) in slots.iter().enumerate().rev() {
            let number = number as u32;
            match slot.look() {
                Some(one) => left.push((number, one)),
                None => free.push(number),
            }
        }
        Requests { slots, free: Mutex::new(free), left: Mutex::new(left) }
    }

    fn slots(&self) -> &[RequestSlot] {
        // SAFETY: the mapping lives as long as this value, which is a part of its owner. Guarded by this module's tests.
        unsafe { &*self.slots }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn left_list(&self) -> std::sync::MutexGuard<'_, Vec<(u32, Left)>> {
        self.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A slot for a request that was read. None: all are in use; it is
    /// served all the same, and would be served again after a kill.
    pub fn take(
        memory: &std::sync::Arc<super::Takeover>,
        unique: u64,
        opcode: u32,
        nodeid: u64,
    ) -> Option<Taken> {
        let requests = memory.requests();
        let number = requests.free().pop()?;
        let slot = &requests.slots()[number as usize];
        slot.opcode.store(opcode, Ordering::Relaxed);
        slot.nodeid.store(nodeid, Ordering::Relaxed);
        slot.attempts.store(0, Ordering::Relaxed);
        slot.nid.store(0, Ordering::Relaxed);
        slot.written.store(0, Ordering::Relaxed);
        slot.state.store(TAKEN, Ordering::Relaxed);
        // Release: rule 2 of the module above.
        slot.unique.store(unique & !RESENT, Ordering::Release);
        Some(Taken { memory: std::sync::Arc::clone(memory), number })
    }

    /// What a predecessor has left of a request that is sent once more; it is left no longer. With its slot, which goes on
    /// saying what it says: a kill before the reply leaves it as this one did, with one attempt more. What was not done is
    /// begun anew.
    pub fn resume(memory: &std::sync::Arc<super::Takeover>, unique: u64) -> Option<(Left, Taken)> {
        let requests = memory.requests();
        let mut left = requests.left_list();
        let at = left.iter().position(|(_, one)| one.unique == unique & !RESENT)?;
        let (number, one) = left.swap_remove(at);
        drop(left);
        let slot = &requests.slots()[number as usize];
        slot.attempts.store(one.attempts, Ordering::Relaxed);
        if !one.done {
            slot.state.store(TAKEN, Ordering::Relaxed);
            slot.nid.store(0, Ordering::Relaxed);
            slot.written.store(0, Ordering::Relaxed);
        }
        Some((one, Taken { memory: std::sync::Arc::clone(memory), number }))
    }

    /// All that a predecessor has left.
    pub fn all_left(&self) -> Vec<Left> {
        self.left_list().iter().map(|(_, one)| *one).collect()
    }

    /// Nobody will ask for the rest: their replies were delivered.
    pub fn forget_left(&self) {
        let left = std::mem::take(&mut *self.left_list());
        left.into_iter().for_each(|(number, _)| self.give(number));
    }

    /// Has recovery say of each request that a predecessor has left whether the record that decides it is whole.
    pub(crate) fn judge(
        &self,
        mut is_whole: impl FnMut(u64, u64) -> crate::Result<bool>,
    ) -> crate::Result<()> {
        for (number, left) in self.left_list().iter_mut() {
            let slot = &self.slots()[*number as usize];
            if slot.state.load(Ordering::Relaxed) == DECIDED {
                let (epoch, position) =
                    (slot.epoch.load(Ordering::Relaxed), slot.position.load(Ordering::Relaxed));
                let state = if is_whole(epoch, position)? { DONE } else { TAKEN };
                // Release: a successor of this process finds it judged.
                slot.state.store(state, Ordering::Release);
            }
            left.done = slot.state.load(Ordering::Relaxed) == DONE;
        }
        Ok(())
    }

    fn give(&self, number: u32) {
        // Release: rule 2 of the module above.
        self.slots()[number as usize].unique.store(0, Ordering::Release);
        self.free().push(number);
    }
}

impl RequestSlot {
    fn look(&self) -> Option<Left> {
        // Acquire: pairs with the Release of `take`, in another process.
        let unique = self.unique.load(Ordering::Acquire);
        (unique != 0).then(|| Left {
            unique,
            opcode: self.opcode.load(Ordering::Relaxed),
            nodeid: self.nodeid.load(Ordering::Relaxed),
            done: self.state.load(Ordering::Relaxed) == DONE,
            nid: self.nid.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            attempts: self.attempts.load(Ordering::Relaxed).saturating_add(1),
        })
    }
}

impl Taken {
    /// Has the death of the server that this one replaces count as more than one attempt.
    pub fn add_attempts(&self, more: u32) {
        let slot = &self.memory.requests().slots()[self.number as usize];
        slot.attempts.fetch_add(more, Ordering::Relaxed);
    }

    /// Has this thread's work count for the request, until the guard goes.
    pub fn enter(&self) -> Entered<'_> {
        let slot = &self.memory.requests().slots()[self.number as usize];
        CURRENT.set(Current { slot, armed: false });
        Entered { _taken: self }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.memory.requests().give(self.number);
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(NONE);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::Takeover;
    use super::*;
    use std::sync::Arc;

    /// What was left of a request, which is answered.
    fn left(memory: &Arc<Takeover>, unique: u64) -> Option<Left> {
        Requests::resume(memory, unique).map(|(left, _)| left)
    }

    /// As a successor finds it.
    fn killed(memory: &Takeover) -> Arc<Takeover> {
        Takeover::adopt(memory.descriptor().try_clone_to_owned().expect("a descriptor")).expect("it is there")
    }

    #[test]
    fn what_a_thread_does_is_noted_for_its_request_alone() {
        let memory = Takeover::create(1).expect("memory");
        let first = Requests::take(&memory, 10, 1, 5).expect("a free slot");
        let second = Requests::take(&memory, 12, 2, 6).expect("a free slot");
        second.add_attempts(1);
        {
            let _entered = first.enter();
            reserved(1, 7);
            decides(99);
            reserved(3, 8);
            reserved(3, 9);
        }
        decides(1);
        reserved(3, 10);
        {
            let _entered = second.enter();
            wrote(4096);
        }
        let next = killed(&memory);
        next.requests().judge(|epoch, position| Ok((epoch, position) == (3, 8))).expect("judged");
        let mut all = next.requests().all_left();
        all.sort_by_key(|one| one.unique);
        let one = |unique, opcode, nodeid, nid, written, attempts| Left {
            unique,
            opcode,
            nodeid,
            done: true,
            nid,
            written,
            attempts,
        };
        assert_eq!(all, [one(10, 1, 5, 99, 0, 1), one(12, 2, 6, 0, 4096, 2)]);
        assert_eq!(left(&next, 10 | RESENT).map(|left| left.unique), Some(10));
        assert_eq!(left(&next, 10), None);
        next.requests().forget_left();
        assert_eq!(killed(&next).requests().all_left(), []);
    }

    #[test]
    fn a_record_that_is_not_whole_was_not_done_and_what_was_judged_stays_so() {
        let memory = Takeover::create(1).expect("memory");
        let taken = Requests::take(&memory, 4, 9, 1).expect("a free slot");
        {
            let _entered = taken.enter();
            decides(0);
            reserved(1, 100);
        }
        let next = killed(&memory);
        next.requests().judge(|_, _| Ok(false)).expect("judged");
        assert_eq!(next.requests().all_left().iter().map(|left| left.done).collect::<Vec<_>>(), [false]);
        let third = killed(&next);
        third.requests().judge(|_, _| Ok(true)).expect("nothing is left to judge");
        assert!(left(&third, 4).is_some_and(|left| !left.done && left.attempts == 1));
        drop(taken);
    }

    #[test]
    fn what_is_resumed_is_left_again_by_the_next_kill() {
        let memory = Takeover::create(1).expect("memory");
        let [done, begun] = [4, 6].map(|unique| Requests::take(&memory, unique, 9, 1).expect("a free slot"));
        {
            let _entered = done.enter();
            wrote(10);
        }
        let next = killed(&memory);
        next.requests().judge(|_, _| Ok(false)).expect("judged");
        let resume = |unique| Requests::resume(&next, unique | RESENT).expect("it was left");
        let [(done_left, _done), (begun_left, resumed)] = [4, 6].map(resume);
        assert!(Requests::resume(&next, 4).is_none());
        assert_eq!((done_left.done, begun_left.done), (true, false));
        resumed.add_attempts(3);
        let third = killed(&next);
        third.requests().judge(|_, _| Ok(false)).expect("judged");
        let mut left = third.requests().all_left();
        left.sort_by_key(|one| one.unique);
        let told = |one: &Left| (one.done, one.written, one.attempts);
        assert_eq!(left.iter().map(told).collect::<Vec<_>>(), [(true, 10, 2), (false, 0, 5)]);
        drop(begun);
    }

    #[test]
    fn answered_requests_leave_nothing() {
        let memory = Takeover::create(1).expect("memory");
        for unique in 1..100_000 {
            drop(Requests::take(&memory, unique * 2, 1, 1).expect("a free slot"));
        }
        assert_eq!(killed(&memory).requests().all_left(), []);
    }
}
