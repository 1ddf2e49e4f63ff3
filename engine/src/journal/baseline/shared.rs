//! What operations and the committing thread share: the state and its locks, and how room is counted. The protocol is
//! that of [`super::transactions`].

use std::collections::VecDeque;
use std::time::Instant;

use super::buffers::{Head, Table};
use super::touched::{BLOCK_BYTES, UNIT_BYTES};
use super::transactions::Handle;
use crate::device::BlockDevice;
use crate::format::{Position, SLOT_PAYLOAD};
use crate::journal::CreditClass;
use crate::journal::header::HeaderWriter;
use crate::journal::ring::{BLOCK_SLOTS, Geometry};
use crate::journal::stream::Stream;
use crate::pmem::PersistentMemory;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{
    Arc, CachePadded, Counter, LaneCounter, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, WaitQueue,
};
use crate::unwinding::Unwinding;
use crate::{Error, Result};

/// Most slots of a transaction that operations may fill: it is one record, whose slots are counted by 16 bits.
const MOST_SLOTS: u64 = 48_000;
/// What each record is framed by at the most: it ends within a block, and its commit block follows.
const FRAME: u64 = 2 * BLOCK_SLOTS;

/// The transaction that takes handles.
pub(super) struct Running {
    /// Counts transactions, from 1 on.
    pub number: u64,
    /// Its first position.
    pub start: Position,
    /// It takes none: it is about to commit.
    pub locked: bool,
}

/// What operations and the committing thread share.
pub(super) struct Shared {
    /// Units are logged, and not blocks.
    pub as_units: bool,
    pub epoch: u64,
    pub ring: Geometry,
    pub front: Arc<dyn PersistentMemory>,
    pub stream: Option<Stream>,
    /// Where file data go, and how many of its writes transactions depend on.
    pub data: Arc<dyn BlockDevice>,
    pub depends: AtomicU64,
    /// jbd2's state lock.
    pub state: RwLock<Running>,
    /// Handles that are open.
    pub updates: CachePadded<AtomicU32>,
    /// Handles that the running transaction has had.
    pub handles: CachePadded<AtomicU64>,
    /// Bytes of its record.
    pub bytes: AtomicU64,
    /// Slots that it was charged for them.
    pub charged: AtomicU64,
    /// Slots promised to operations, and what the running transaction was charged.
    pub outstanding: CachePadded<AtomicU64>,
    /// jbd2's list lock, and the running transaction's blocks.
    pub list: CachePadded<Mutex<Vec<Arc<Head>>>>,
    /// What it logs beside images.
    pub logical: Mutex<Vec<u8>>,
    pub table: Table,
    pub tail: AtomicU64,
    pub committed: AtomicU64,
    pub head: AtomicU64,
    /// The youngest transaction whose commit was asked for.
    pub requested: AtomicU64,
    /// Ends of the transactions that the head has not passed.
    pub ends: Mutex<VecDeque<Position>>,
    pub header: Mutex<HeaderWriter>,
    /// Of handles that wait for the next transaction.
    pub started: WaitQueue,
    /// Of the committing thread, which waits for handles.
    pub left: WaitQueue,
    /// Of those that wait for a commit.
    pub commits: WaitQueue,
    /// Of those that wait for credits.
    pub room: WaitQueue,
    /// Of the committing thread, which waits for work.
    pub wanted: WaitQueue,
    pub over: AtomicBool,
    pub failed: AtomicBool,
    pub why: OnceLock<String>,
    pub need_checkpoint: Box<dyn Fn() + Send + Sync>,
    pub records: LaneCounter,
    pub commits_made: Counter,
    pub coalesced: Counter,
    pub wait_ns: Counter,
    /// Nanoseconds that operations waited for a transaction that was locked up, or for the state or the list lock.
    pub lock_ns: Counter,
}

impl Shared {
    /// The next position.
    pub fn tail(&self) -> Position {
        // Relaxed: an operation that has returned is ordered before by whatever told the caller of it.
        self.tail.load(Ordering::Relaxed)
    }

    /// The first position that recovery needs.
    pub fn head(&self) -> Position {
        // Acquire: pairs with the Release in `advance_head`.
        self.head.load(Ordering::Acquire)
    }

    /// The end of the last transaction that has committed.
    pub fn durable(&self) -> Position {
        // Acquire: pairs with the Release of the committing thread.
        self.committed.load(Ordering::Acquire)
    }

    /// Whether the journal has failed.
    pub fn is_failed(&self) -> bool {
        // Acquire: pairs with the Release in `fail`.
        self.failed.load(Ordering::Acquire)
    }

    /// An error if it has, with the reason.
    pub fn check(&self) -> Result<()> {
        if self.is_failed() {
            return Err(Error::ReadOnly(self.why.get().cloned().unwrap_or_default()));
        }
        Ok(())
    }

    /// Makes it fail; the first reason stays.
    pub fn fail(&self, why: String) {
        if self.stop(why.clone()) {
            tracing::error!(reason = %why, "the journal failed: look for errors of its device, then mount anew");
        }
    }

    /// The same for a reason that the caller tells of; whether it is the first.
    pub fn stop(&self, why: String) -> bool {
        let is_first = self.why.set(why).is_ok();
        // Release: pairs with the Acquire in `is_failed`, whose caller reads the reason.
        self.failed.store(true, Ordering::Release);
        for queue in [&self.started, &self.left, &self.commits, &self.room, &self.wanted] {
            queue.wake_all();
        }
        is_first
    }

    /// The state lock, shared; a wait for it is counted.
    pub fn state(&self) -> RwLockReadGuard<'_, Running> {
        self.state.try_read().unwrap_or_else(|| {
            let since = Instant::now();
            let state = self.state.read();
            self.lock_ns.add(since.elapsed().as_nanos() as u64);
            state
        })
    }

    /// The list lock; a wait for it is counted.
    pub fn list(&self) -> MutexGuard<'_, Vec<Arc<Head>>> {
        self.list.try_lock().unwrap_or_else(|| {
            let since = Instant::now();
            let list = self.list.lock();
            self.lock_ns.add(since.elapsed().as_nanos() as u64);
            list
        })
    }

    /// The next transaction begins here. Under the state lock.
    pub fn begins(&self, start: Position) {
        // Relaxed: as in `tail`.
        self.tail.store(start, Ordering::Relaxed);
    }

    /// Slots that all of a transaction may take.
    pub fn most(&self) -> u64 {
        (self.ring.slots / 4).min(MOST_SLOTS)
    }

    /// The least and the most images that an operation is promised, and the slots of one.
    fn images(&self) -> (u64, u64, u64) {
        let slots = |bytes: usize| bytes.div_ceil(SLOT_PAYLOAD) as u64;
        if self.as_units { (8, 512, slots(UNIT_BYTES)) } else { (6, 64, slots(BLOCK_BYTES)) }
    }

    /// Slots to promise to an operation whose own record has so many at the most. That has hundreds of bytes for a block
    /// as a rule, and those that are large hold file data, which no image repeats; what an operation takes beyond comes
    /// out of the reserve.
    pub fn need(&self, max_slots: u32) -> u64 {
        let (least, most, slots) = self.images();
        let max_slots = u64::from(max_slots);
        max_slots + slots * (least + max_slots / 2).min(most)
    }

    /// The largest record of an operation: it finds room in an empty transaction, with some left.
    pub fn max_record(&self) -> u64 {
        let (least, most, slots) = self.images();
        let large = self.most().saturating_sub(most * slots).min(self.most() / 2);
        // Of `need`, without the bound on images.
        let small = self.most().saturating_sub(least * slots) * 2 / (slots + 2);
        large.max(small)
    }

    /// Whether so many slots are in a transaction's bounds.
    fn fits_transaction(&self, total: u64, class: CreditClass) -> bool {
        let more = if class == CreditClass::Reserve { self.most() / 4 } else { 0 };
        total <= self.most() + more
    }

    /// Whether so many slots are free behind the running transaction's start, but for what others are to have.
    pub fn fits_ring(&self, state: &Running, total: u64, class: CreditClass) -> bool {
        let reserve = self.ring.slots / if class == CreditClass::Reserve { 32 } else { 4 };
        total + FRAME + reserve <= self.ring.slots.saturating_sub(state.start - self.head())
    }

    /// Whether a checkpoint is to begin before anybody waits for one: as the kernel's flushers write metadata home that
    /// has been dirty for a while.
    pub fn is_filling(&self, end: Position) -> bool {
        end.saturating_sub(self.head()) > self.ring.slots / 4
    }

    /// Whether both hold.
    pub fn fits(&self, state: &Running, total: u64, class: CreditClass) -> bool {
        self.fits_transaction(total, class) && self.fits_ring(state, total, class)
    }

    /// Promises room if there is some.
    pub fn promise(&self, need: u64, class: CreditClass) -> bool {
        let state = self.state();
        // Relaxed: the state lock orders it against a change of transactions.
        let total = self.outstanding.fetch_add(need, Ordering::Relaxed) + need;
        let fits = self.fits(&state, total, class);
        if !fits {
            self.outstanding.fetch_sub(need, Ordering::Relaxed);
        }
        fits
    }

    /// Has the transaction committed, or the ring emptied, for who has found no room.
    pub fn make_room(&self, need: u64, class: CreditClass) {
        let state = self.state();
        // Relaxed: it is looked at again and again.
        let total = self.outstanding.load(Ordering::Relaxed) + need;
        let is_empty = self.handles.load(Ordering::Relaxed) == 0;
        let (number, fits) = (state.number, self.fits_ring(&state, total, class));
        drop(state);
        if !is_empty && !self.fits_transaction(total, class) {
            self.request(number);
        }
        if !fits {
            (self.need_checkpoint)();
        }
    }

    /// Has the transaction committed if it is full of what was logged, and not of promises alone, for who does not wait for
    /// room: who may use the reserve would fill it further, and nobody else would find room in it.
    pub fn settle_full(&self) {
        // Relaxed: it is looked at again and again.
        if self.charged.load(Ordering::Relaxed) > self.most() / 2 {
            let number = self.state().number;
            self.request(number);
        }
    }

    /// Asks for a transaction's commit; false if it was asked for before.
    pub fn request(&self, number: u64) -> bool {
        // Relaxed: the queue orders it.
        let is_first = self.requested.fetch_max(number, Ordering::Relaxed) < number;
        if is_first {
            self.wanted.wake_all();
        }
        is_first
    }

    /// Opens a handle of the running transaction.
    pub fn join(&self) -> Result<Handle<'_>> {
        loop {
            self.check()?;
            let state = self.state();
            if !state.locked {
                let (transaction, start) = (state.number, state.start);
                // Relaxed: the state lock orders both against the lock-up.
                self.updates.fetch_add(1, Ordering::Relaxed);
                let is_first = self.handles.fetch_add(1, Ordering::Relaxed) == 0;
                let end = start + 1;
                self.tail.fetch_max(end, Ordering::Relaxed);
                let first = if is_first { start } else { end };
                let unwinding = Unwinding::watch();
                return Ok(Handle { shared: self, transaction, first, end, unwinding });
            }
            drop(state);
            let since = Instant::now();
            self.started.wait_until(|| self.is_failed() || !self.state().locked);
            self.lock_ns.add(since.elapsed().as_nanos() as u64);
        }
    }
}
