//! Numbers of the journal, for any thread that watches it.

use super::Journal;
use crate::pmem::DurabilityLevel;
use crate::sync::{Counter, LaneCounter};

/// Counts inside the journal.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) records: LaneCounter,
    pub(super) voids: Counter,
    pub(super) commits: Counter,
    pub(super) coalesced: Counter,
    pub(super) wait_ns: Counter,
}

/// Numbers since the journal was started.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct JournalStats {
    /// Slots of the ring.
    pub ring_slots: u64,
    /// Next position.
    pub tail: u64,
    /// First position that recovery needs.
    pub head: u64,
    /// Everything below survives the process.
    pub committed_process: u64,
    /// Everything below survives a loss of power.
    pub committed_power: u64,
    /// Nanoseconds since the oldest answer to an fsync that a loss of power would take back; 0: there is none.
    pub power_lag_ns: u64,
    /// Times the tail has gone around the ring, since the ring was made.
    pub laps: u64,
    /// Records logged.
    pub records: u64,
    /// Reservations that were abandoned.
    pub voids: u64,
    /// Commits written.
    pub commits: u64,
    /// Calls for a commit that another's commit served.
    pub coalesced: u64,
    /// Bytes written to the ring region of the image.
    pub bytes_streamed: u64,
    /// Nanoseconds that callers waited for credits and for commits.
    pub wait_ns: u64,
    /// Nanoseconds that operations waited for locks of the journal, which the engine's own has none of.
    #[cfg(feature = "baselines")]
    pub lock_ns: u64,
    /// Cache lines written back by the memory of the ring's front.
    pub write_backs: u64,
    /// Fences of the same.
    pub fences: u64,
}

impl Counters {
    pub(super) fn read(&self, journal: &Journal) -> JournalStats {
        let (write_backs, fences) = journal.front.counts();
        let tail = journal.tail();
        JournalStats {
            ring_slots: journal.ring.slots,
            tail,
            head: journal.head(),
            committed_process: journal.committed(DurabilityLevel::Process),
            committed_power: journal.committed(DurabilityLevel::Power),
            power_lag_ns: journal.lag.now().as_nanos() as u64,
            laps: tail / journal.ring.slots,
            records: self.records.get(),
            voids: self.voids.get(),
            commits: self.commits.get(),
            coalesced: self.coalesced.get(),
            bytes_streamed: journal.stream.as_ref().map_or(0, |s| s.bytes.get()),
            wait_ns: self.wait_ns.get(),
            #[cfg(feature = "baselines")]
            lock_ns: 0,
            write_backs,
            fences,
        }
    }
}
