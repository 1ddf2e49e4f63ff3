//! How far a server has come, and where those before it have ended.
//!
//! A server notes each phase as it enters it; its successor finds the last one, and counts. Nothing hangs on what is found:
//! it tells users how a mount fares, and tests what their kills have hit.
//!
//! What this leaves to others: what each phase does.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What a server is doing. In this order it goes through them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Phase {
    /// It opens the image, and waits for its lock.
    Starting,
    /// It recovers what the journal holds.
    Recovering,
    /// It takes over what runs ahead of the journal.
    Adopting,
    /// It answers what its predecessor had read.
    Draining,
    /// It serves.
    Serving,
}

const PHASES: usize = Phase::ALL.len();

impl Phase {
    /// All of them, in their order.
    pub const ALL: [Phase; 5] =
        [Phase::Starting, Phase::Recovering, Phase::Adopting, Phase::Draining, Phase::Serving];

    fn number(self) -> usize {
        self as usize
    }
}

/// Requests that were in service when servers ended, by what was known of them then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LeftCounts {
    /// Nothing had been done.
    pub taken: u64,
    /// The record that decides them had its position.
    pub decided: u64,
    /// They were done.
    pub done: u64,
}

/// One phase of a mount's servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PhaseCounts {
    /// Which.
    pub phase: Phase,
    /// Servers that ended in it.
    pub ends: u64,
    /// How long it took the server that there is; 0: it is in it still, or was not. The first one begins with the end of
    /// the server before.
    pub ns: u64,
}

/// What servers of a mount have noted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Life {
    /// In their order.
    pub phases: Vec<PhaseCounts>,
    /// All that was left, at each end.
    pub left: LeftCounts,
}

/// As it lies in memory. Zero bytes are those of a first server that starts.
#[repr(C)]
#[derive(Debug)]
pub(super) struct LifeWords {
    phase: AtomicU32,
    _reserved: AtomicU32,
    /// When the server has entered each, in nanoseconds of the monotonic clock.
    began: [AtomicU64; PHASES],
    ends: [AtomicU64; PHASES],
    left: [AtomicU64; 3],
}

// All accesses are Relaxed: one process at a time has the memory, and stores of one that was killed are there (rules 1 and 2
// of the module above).
impl LifeWords {
    /// The server does this from now on.
    pub fn enter(&self, phase: Phase) {
        self.enter_at(phase, now());
    }

    /// The same, from some nanosecond of the monotonic clock on.
    pub fn enter_at(&self, phase: Phase, nanosecond: u64) {
        self.began[phase.number()].store(nanosecond, Ordering::Relaxed);
        self.phase.store(phase as u32, Ordering::Relaxed);
    }

    /// A successor begins: counts what its predecessor was doing, and what it has left. What it was doing, if it has said
    /// so.
    pub fn follow(&self, left: LeftCounts) -> Option<Phase> {
        let found = self.phase.load(Ordering::Relaxed);
        let phase = Phase::ALL.into_iter().find(|phase| *phase as u32 == found);
        if let Some(phase) = phase {
            self.ends[phase.number()].fetch_add(1, Ordering::Relaxed);
        }
        for (sum, count) in self.left.iter().zip([left.taken, left.decided, left.done]) {
            sum.fetch_add(count, Ordering::Relaxed);
        }
        for began in &self.began {
            began.store(0, Ordering::Relaxed);
        }
        self.enter(Phase::Starting);
        phase
    }

    /// What was noted.
    pub fn look(&self) -> Life {
        let began = |number: usize| self.began.get(number).map_or(0, |began| began.load(Ordering::Relaxed));
        let phases = Phase::ALL.map(|phase| {
            let (from, ends) = (began(phase.number()), &self.ends[phase.number()]);
            // A first server has nothing to drain.
            let until = (phase.number() + 1..PHASES).map(began).find(|until| *until != 0).unwrap_or(0);
            let ns = if from == 0 { 0 } else { until.saturating_sub(from) };
            PhaseCounts { phase, ends: ends.load(Ordering::Relaxed), ns }
        });
        let [taken, decided, done] = [0, 1, 2].map(|kind| self.left[kind].load(Ordering::Relaxed));
        Life { phases: phases.to_vec(), left: LeftCounts { taken, decided, done } }
    }
}

/// The monotonic clock, which processes share, in nanoseconds.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn words() -> LifeWords {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        let left = std::array::from_fn(|_| AtomicU64::new(0));
        LifeWords {
            phase: AtomicU32::new(0),
            _reserved: AtomicU32::new(0),
            began: zeros(),
            ends: zeros(),
            left,
        }
    }

    #[test]
    fn a_successor_counts_where_its_predecessor_ended_and_what_it_left() {
        let words = words();
        words.enter_at(Phase::Recovering, 100);
        words.enter_at(Phase::Serving, 130);
        assert_eq!(words.look().phases[1], PhaseCounts { phase: Phase::Recovering, ends: 0, ns: 30 });
        assert_eq!(words.follow(LeftCounts { taken: 1, decided: 2, done: 3 }), Some(Phase::Serving));
        words.enter_at(Phase::Starting, 200);
        for (phase, at) in Phase::ALL.into_iter().zip([200, 210, 230, 260, 300]) {
            words.enter_at(phase, at);
            if phase == Phase::Adopting {
                let life = words.look();
                assert_eq!(life.phases.iter().map(|one| one.ns).collect::<Vec<_>>(), [10, 20, 0, 0, 0]);
            }
        }
        let life = words.look();
        assert_eq!(life.phases.iter().map(|one| one.ns).collect::<Vec<_>>(), [10, 20, 30, 40, 0]);
        assert_eq!(life.phases.iter().map(|one| one.ends).collect::<Vec<_>>(), [0, 0, 0, 0, 1]);
        words.enter(Phase::Adopting);
        assert_eq!(words.follow(LeftCounts { taken: 1, ..LeftCounts::default() }), Some(Phase::Adopting));
        words.phase.store(77, Ordering::Relaxed);
        assert_eq!(words.follow(LeftCounts::default()), None);
        let life = words.look();
        assert_eq!(life.left, LeftCounts { taken: 2, decided: 2, done: 3 });
        assert_eq!(life.phases.iter().map(|one| one.ends).sum::<u64>(), 2);
    }
}
