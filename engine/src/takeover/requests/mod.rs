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
//! A slot is free again when its last *holder* is gone: the reply, which another thread may send, and the thread that
//! serves the request. It says so with a number of holders beside the rest, which is this process's alone.
//!
//! What this leaves to others: which record decides an operation (`crate::vfs`), whether it is whole (`crate::recovery`),
//! and what is answered.

#![allow(unsafe_code, reason = "a leaf module: the slot of a thread's request, by address")]

mod free;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use super::life::LeftCounts;
use super::memory::Mapping;
use crate::lane;
use crate::sync::CachePadded;
use free::FreeSlots;
use std::cell::Cell;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    attempts: AtomicU16,
    /// Who holds the slot in this process; what a predecessor has left here means nothing.
    holders: AtomicU16,
    /// The incarnation that has taken it up last.
    server: AtomicU32,
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
    /// The incarnation that has taken it up last: those between it and the one that asks died of something else.
    pub server: u32,
}

/// The slots.
#[derive(Debug)]
pub struct Requests {
    slots: *const [RequestSlot],
    /// Keeps the slots mapped.
    _mapping: Arc<Mapping>,
    free: FreeSlots,
    /// Those that a predecessor has left.
    left: Mutex<Vec<(u32, Left)>>,
}

// SAFETY: the slots are atomic words of a mapping that lives as long as this value; all else is atomic or behind a lock.
// Guarded by the tests of this module.
unsafe impl Send for Requests {}
// SAFETY: as above.
unsafe impl Sync for Requests {}

/// The slots, as a lane's threads hold them: each lane counts its own holders, for all lanes' in one place would have every
/// request write a line that every core wants.
type OfLane = Arc<CachePadded<Arc<Requests>>>;

/// The slots for each lane.
#[derive(Debug)]
pub(super) struct Lanes(Box<[OfLane]>);

/// A hold on the slot of a request in service. Free again when the last is dropped: with the reply sent, and its thread
/// done.
#[derive(Debug)]
pub struct Taken {
    requests: OfLane,
    number: u32,
}

/// While it lives, what this thread does is done for the request.
#[derive(Debug)]
pub struct Entered {
    _taken: Taken,
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
        // SAFETY: `Entered` has set the address and takes it back when it ends; meanwhile it holds the slot, and with it
        // the memory. Guarded by `what_a_thread_does_is_noted_for_its_request_alone`.
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

/// Whether the next record that this thread logs decides its request.
pub(crate) fn is_decisive() -> bool {
    CURRENT.get().armed
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

impl Lanes {
    /// The same slots for every lane.
    pub fn new(requests: Requests) -> Lanes {
        let requests = Arc::new(requests);
        Lanes((0..lane::count()).map(|_| Arc::new(CachePadded::new(Arc::clone(&requests)))).collect())
    }

    /// For the lane that this thread is in now.
    pub fn own(&self) -> &OfLane {
        &self.0[lane::current() % self.0.len()]
    }
}

impl Requests {
    /// The slots of some memory; those in use are a predecessor's.
    ///
    /// They lie in the mapping, which this value keeps.
    pub(super) fn new(slots: &[RequestSlot], mapping: Arc<Mapping>) -> Requests {
        let look = |(number, slot): (usize, &RequestSlot)| Some((number as u32, slot.look()?));
        let left: Vec<_> = slots.iter().enumerate().filter_map(look).collect();
        let free = FreeSlots::new(slots.len(), left.iter().map(|(number, _)| *number as usize));
        Requests { slots, _mapping: mapping, free, left: Mutex::new(left) }
    }

    fn slot(&self, number: u32) -> &RequestSlot {
        // SAFETY: the mapping lives as long as this value. Guarded by this module's tests.
        unsafe { &(*self.slots)[number as usize] }
    }

    fn left_list(&self) -> MutexGuard<'_, Vec<(u32, Left)>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a request that was read. None: all are in use; it is served all the same, and would be served again
    /// after a kill.
    pub fn take(memory: &super::Takeover, unique: u64, opcode: u32, nodeid: u64) -> Option<Taken> {
        let requests = memory.lanes().own();
        let number = requests.free.take()? as u32;
        let slot = requests.slot(number);
        slot.opcode.store(opcode, Ordering::Relaxed);
        slot.nodeid.store(nodeid, Ordering::Relaxed);
        slot.attempts.store(0, Ordering::Relaxed);
        slot.server.store(memory.incarnation(), Ordering::Relaxed);
        slot.nid.store(0, Ordering::Relaxed);
        slot.written.store(0, Ordering::Relaxed);
        slot.state.store(TAKEN, Ordering::Relaxed);
        // Release: rule 2 of the module above.
        slot.unique.store(unique & !RESENT, Ordering::Release);
        Some(Taken::first(requests, number))
    }

    /// What a predecessor has left of a request that is sent once more; it is left no longer. With its slot, which goes on
    /// saying what it says: a kill before the reply leaves it as this one did, with one attempt more. What was not done is
    /// begun anew.
    pub fn resume(memory: &super::Takeover, unique: u64) -> Option<(Left, Taken)> {
        let requests = memory.lanes().own();
        let mut left = requests.left_list();
        let at = left.iter().position(|(_, one)| one.unique == unique & !RESENT)?;
        let (number, one) = left.swap_remove(at);
        drop(left);
        let slot = requests.slot(number);
        slot.attempts.store(u16::try_from(one.attempts).unwrap_or(u16::MAX), Ordering::Relaxed);
        slot.server.store(memory.incarnation(), Ordering::Relaxed);
        if !one.done {
            slot.state.store(TAKEN, Ordering::Relaxed);
            slot.nid.store(0, Ordering::Relaxed);
            slot.written.store(0, Ordering::Relaxed);
        }
        Some((one, Taken::first(requests, number)))
    }

    /// How many a predecessor has left, by what it has said of them itself.
    pub(super) fn count_left(&self) -> LeftCounts {
        let mut counts = LeftCounts::default();
        for (number, _) in self.left_list().iter() {
            match self.slot(*number).state.load(Ordering::Relaxed) {
                DECIDED => counts.decided += 1,
                DONE => counts.done += 1,
                _ => counts.taken += 1,
            }
        }
        counts
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
            let slot = self.slot(*number);
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
        self.slot(number).unique.store(0, Ordering::Release);
        self.free.give(number as usize);
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
            attempts: u32::from(self.attempts.load(Ordering::Relaxed)) + 1,
            server: self.server.load(Ordering::Relaxed),
        })
    }
}

impl Taken {
    fn first(requests: &OfLane, number: u32) -> Taken {
        // Relaxed: nobody else has the slot.
        requests.slot(number).holders.store(1, Ordering::Relaxed);
        Taken { requests: Arc::clone(requests), number }
    }

    fn slot(&self) -> &RequestSlot {
        self.requests.slot(self.number)
    }

    /// Has the death of the server that this one replaces count as more than one attempt.
    pub fn add_attempts(&self, more: u32) {
        // Relaxed: this server alone counts, and a successor reads it when this one is gone.
        let attempts = &self.slot().attempts;
        let more = u16::try_from(more).unwrap_or(u16::MAX);
        attempts.store(attempts.load(Ordering::Relaxed).saturating_add(more), Ordering::Relaxed);
    }

    /// Has this thread's work count for the request, until the guard goes.
    pub fn enter(&self) -> Entered {
        let slot = self.slot();
        // Relaxed: this hold is one already.
        slot.holders.fetch_add(1, Ordering::Relaxed);
        CURRENT.set(Current { slot, armed: false });
        Entered { _taken: Taken { requests: Arc::clone(&self.requests), number: self.number } }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Release and Acquire: what every holder has noted comes before the slot is free.
        if self.slot().holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.requests.give(self.number);
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(NONE);
    }
}
