//! Where the time of checkpoint rounds goes, and how many bytes each phase moves.

use crate::sync::Counter;
use std::time::Instant;

/// A phase of a round; the numbers are those of the steps in [`crate::checkpoint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[repr(usize)]
pub enum Phase {
    /// 1: the commit that says where the head goes.
    Commit,
    /// 2: data that only records hold goes home; in the background what of it is not yet over when the images are home.
    Data,
    /// 3: the dirty lists are taken and put in order.
    Collect,
    /// 3: pages are claimed, copied and checksummed.
    Copy,
    /// 4: what the images hold becomes durable in the journal.
    Log,
    /// 5: images go to the double-write area.
    DoubleWrite,
    /// 5: flush.
    AreaFlush,
    /// 6: images go home.
    #[cfg_attr(feature = "serde", serde(rename = "Home"))]
    WriteHome,
    /// 6: flush.
    HomeFlush,
    /// 6 to 8: pages are clean; the last flush and commit, and the head.
    Retire,
}

impl Phase {
    /// Every one, in the order of the discriminants.
    pub const ALL: [Phase; 10] = [
        Phase::Commit,
        Phase::Data,
        Phase::Collect,
        Phase::Copy,
        Phase::Log,
        Phase::DoubleWrite,
        Phase::AreaFlush,
        Phase::WriteHome,
        Phase::HomeFlush,
        Phase::Retire,
    ];
}

/// What a phase has cost.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PhaseCount {
    /// The phase.
    pub phase: Phase,
    /// Nanoseconds, summed over threads: while several are at work more than have passed.
    pub ns: u64,
    /// Bytes of images that it moved; 0 for one that moves none.
    pub bytes: u64,
}

/// What rounds have done since the mount.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CheckpointStats {
    /// Rounds that set out to write.
    pub rounds: u64,
    /// Nanoseconds that passed in them.
    pub ns: u64,
    /// Threads that write images home, at the most.
    pub threads: usize,
    /// Batches of images: each has been through the double-write area by itself.
    pub batches: u64,
    /// Home writes: neighbours share one.
    pub home_requests: u64,
    /// Phase by phase.
    pub phases: Vec<PhaseCount>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub rounds: Counter,
    pub ns: Counter,
    pub batches: Counter,
    pub home_requests: Counter,
    phases: [(Counter, Counter); Phase::ALL.len()],
}

impl Counters {
    /// Does a part of a phase.
    pub fn time<R>(&self, phase: Phase, work: impl FnOnce() -> R) -> R {
        let began = Instant::now();
        let result = work();
        self.phases[phase as usize].0.add(nanoseconds_since(began));
        result
    }

    /// A phase has moved so many bytes.
    pub fn moved(&self, phase: Phase, bytes: usize) {
        self.phases[phase as usize].1.add(bytes as u64);
    }

    /// The counts so far, of rounds that so many threads carry out.
    pub fn snapshot(&self, threads: usize) -> CheckpointStats {
        let phases = Phase::ALL.iter().zip(&self.phases);
        let count = |(phase, (ns, bytes)): (&Phase, &(Counter, Counter))| PhaseCount {
            phase: *phase,
            ns: ns.get(),
            bytes: bytes.get(),
        };
        CheckpointStats {
            rounds: self.rounds.get(),
            ns: self.ns.get(),
            threads,
            batches: self.batches.get(),
            home_requests: self.home_requests.get(),
            phases: phases.map(count).collect(),
        }
    }
}

pub(super) fn nanoseconds_since(began: Instant) -> u64 {
    began.elapsed().as_nanos() as u64
}
