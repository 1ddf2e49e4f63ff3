//! Statistical counters: they carry no protocol, so they stay real under a model checker and may be statics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

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

/// A level that every core raises and lowers, and that is often compared with a limit: a core keeps back what it has
/// added until that is worth a write of the line that all read.
#[derive(Debug)]
pub struct Gauge {
    level: CachePadded<AtomicI64>,
    kept_back: [CachePadded<AtomicI64>; SHARES],
    batch: i64,
}

impl Gauge {
    /// Zero; a core keeps back less than `batch`. With 1 the level is exact.
    pub fn new(batch: u32) -> Self {
        Gauge {
            level: CachePadded::new(AtomicI64::new(0)),
            kept_back: [const { CachePadded::new(AtomicI64::new(0)) }; SHARES],
            batch: i64::from(batch.max(1)),
        }
    }

    /// Adds `n`, which may be negative.
    pub fn add(&self, n: i64) {
        let share = &self.kept_back[rustix::thread::sched_getcpu() % SHARES];
        // Relaxed, here and below: nothing is published through the level.
        let kept = share.fetch_add(n, Ordering::Relaxed) + n;
        if kept.abs() >= self.batch {
            self.level.fetch_add(share.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The level, but for what the cores keep back.
    pub fn about(&self) -> u64 {
        self.level.load(Ordering::Relaxed).max(0) as u64
    }

    /// The level as of some recent moment.
    pub fn get(&self) -> u64 {
        let kept: i64 = self.kept_back.iter().map(|share| share.load(Ordering::Relaxed)).sum();
        (self.level.load(Ordering::Relaxed) + kept).max(0) as u64
    }
}

impl Default for LaneCounter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_is_never_further_off_than_what_the_cores_keep_back() {
        for batch in [1, 8] {
            let gauge = Gauge::new(batch);
            let off = u64::from(batch - 1) * SHARES as u64;
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..1000).for_each(|n| gauge.add(if n % 3 == 2 { -1 } else { 1 })));
                }
            });
            let level = 4 * (667 - 333);
            assert_eq!(gauge.get(), level);
            assert!(gauge.about().abs_diff(level) <= off);
            gauge.add(-(level as i64));
            assert_eq!(gauge.get(), 0);
        }
    }
}
