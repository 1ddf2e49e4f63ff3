//! Statistical counters: they carry no protocol, so they stay real under a model checker and may be statics.

use std::sync::atomic::{AtomicU64, Ordering};

use super::CachePadded;

/// A number that many threads add to and somebody reads now and then.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    pub const fn new() -> Self {
        Counter(AtomicU64::new(0))
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        // Relaxed: nothing is published through a counter.
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The number as of some recent moment.
    pub fn get(&self) -> u64 {
        // Relaxed: as above.
        self.0.load(Ordering::Relaxed)
    }
}

/// Shares of a [`LaneCounter`]; more cores than this share them.
const SHARES: usize = 16;

/// A counter in one share a core, each on its own cache line.
#[derive(Debug)]
pub struct LaneCounter([CachePadded<Counter>; SHARES]);

impl LaneCounter {
    /// Zero.
    pub const fn new() -> Self {
        LaneCounter([const { CachePadded::new(Counter::new()) }; SHARES])
    }

    /// Adds `n` to the share of the core the thread runs on.
    pub fn add(&self, n: u64) {
        self.0[rustix::thread::sched_getcpu() % SHARES].add(n);
    }

    /// The sum as of some recent moment.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|share| share.get()).sum()
    }
}

impl Default for LaneCounter {
    fn default() -> Self {
        Self::new()
    }
}
