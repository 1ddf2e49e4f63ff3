//! What finding and giving back ids takes, counted and timed: for comparisons, in builds with the feature `baselines`
//! alone. And a table as large as one likes, for them.
//!
//! Each lane counts for itself, so that counting is no meeting place. Clocks are read only once that was asked for.

use super::{IdBlock, Nat, corrupt};
use crate::alloc::Class;
use crate::format::{
    BLOCK_HEADER_SIZE, BlockKind, NAT_ENTRY_SIZE, NAT_PER_BLOCK, NatEntry, NatIndexEntry, SLOT_PAYLOAD,
};
use crate::lane;
use crate::store::DELTA_HEADER_SIZE;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, CachePadded};
use crate::{Error, Result};
use std::time::Instant;
use zerocopy::IntoBytes;

/// What was done for ids since the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IdWork {
    /// Scans of the table.
    pub scans: u64,
    /// Blocks of the table of which a scan, or a look into the index, saw how much of them is free.
    pub passed: u64,
    /// Of these, the ones whose entries were gone through.
    pub read: u64,
    /// How often a thread waited for another's scan.
    pub waits: u64,
    /// Ids that were taken.
    pub taken: u64,
    /// Nanoseconds of that, if they were asked for.
    pub taken_ns: u64,
    /// Ids that were freed.
    pub freed: u64,
    /// Nanoseconds of that, and of giving them back once they are durable.
    pub freed_ns: u64,
}

/// The same of one lane.
// Relaxed: counters.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub scans: AtomicU64,
    pub passed: AtomicU64,
    pub read: AtomicU64,
    pub waits: AtomicU64,
    pub taken: AtomicU64,
    pub taken_ns: AtomicU64,
    pub freed: AtomicU64,
    pub freed_ns: AtomicU64,
}

/// The counters of one table.
pub(super) struct Work {
    lanes: Box<[CachePadded<Done>]>,
    is_timed: AtomicBool,
}

impl Work {
    /// Nothing was done yet.
    pub fn new() -> Work {
        let lanes = (0..lane::count()).map(|_| CachePadded::default()).collect();
        Work { lanes, is_timed: AtomicBool::new(false) }
    }

    /// Adds to a counter of this thread's lane.
    pub fn add(&self, counter: impl Fn(&Done) -> &AtomicU64, amount: u64) {
        counter(&self.lanes[lane::current()]).fetch_add(amount, Ordering::Relaxed);
    }

    /// The time, if it is asked for.
    pub fn now(&self) -> Option<Instant> {
        self.is_timed.load(Ordering::Relaxed).then(Instant::now)
    }

    /// Adds the time since then.
    pub fn add_since(&self, counter: impl Fn(&Done) -> &AtomicU64, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.add(counter, begun.elapsed().as_nanos() as u64);
        }
    }

    fn sum(&self) -> IdWork {
        let sum = |counter: fn(&Done) -> &AtomicU64| {
            self.lanes.iter().map(|done| counter(done).load(Ordering::Relaxed)).sum()
        };
        IdWork {
            scans: sum(|done| &done.scans),
            passed: sum(|done| &done.passed),
            read: sum(|done| &done.read),
            waits: sum(|done| &done.waits),
            taken: sum(|done| &done.taken),
            taken_ns: sum(|done| &done.taken_ns),
            freed: sum(|done| &done.freed),
            freed_ns: sum(|done| &done.freed_ns),
        }
    }
}

impl Nat {
    /// What was done for ids so far.
    pub(crate) fn work(&self) -> IdWork {
        self.shared.ids.work.sum()
    }

    /// Reads clocks from now on, or no more.
    pub(crate) fn time_work(&self, timed: bool) {
        self.shared.ids.work.is_timed.store(timed, Ordering::Relaxed);
    }

    /// Fills new blocks of the table with entries that are in use, and lead to `place`, so that no id of them is free.
    /// There are no inodes behind them: nobody can come to them, and fsck will say so.
    pub(crate) fn fill(&self, blocks: u64, place: NatEntry) -> Result<()> {
        let shared = &self.shared;
        let len = NAT_PER_BLOCK as usize * NAT_ENTRY_SIZE;
        let entries = BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + len;
        // Besides the entries, what is recorded of a new block and of its pointer.
        let slots = (len + 8 * DELTA_HEADER_SIZE).div_ceil(SLOT_PAYLOAD) as u32 + 8;
        for _ in 0..blocks {
            let mut h = shared.store.begin(slots)?;
            let Some(index) = shared.ids.next_new(shared.capacity()) else {
                return Err(Error::Errno(libc::ENOSPC));
            };
            let (pointer_page, offset, pointer) = shared.pointer(index)?;
            if pointer.block() != 0 {
                return Err(corrupt(index * NAT_PER_BLOCK, "it is there already"));
            }
            let block = shared.alloc.allocate(&mut h, 1, None, Class::Metadata, None)?.start;
            let page = h.init(block, BlockKind::Nat, index, 0)?;
            for entry in h.edit(&page, entries.clone()).chunks_exact_mut(NAT_ENTRY_SIZE) {
                entry.copy_from_slice(place.as_bytes());
            }
            *h.edit_as(&pointer_page, offset) = NatIndexEntry::new(block, 0);
            h.commit()?;
            // Known, so that the unmount notes that it is full.
            let full = Arc::new(IdBlock::load(index, &page));
            shared.ids.counts.looked_into(full.in_use(), 0);
            shared.ids.insert_new(&full, lane::current());
        }
        Ok(())
    }
}
