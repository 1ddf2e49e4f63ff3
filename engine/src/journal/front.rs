//! The seam of the journal: what the file system asks of one. `conformance` holds what every implementation must keep.
//!
//! The engine uses [`Journal`] through static dispatch and pays nothing for the seam. Other journals, built to be compared
//! with, implement it outside the engine, and in a build with the feature `baselines` in its place.

use super::{CreditClass, Credits, Durability, Journal, JournalStats, Position};
use crate::Result;
use crate::pmem::DurabilityLevel;

/// A journal: records go in, a commit makes them durable, the head lets them go.
pub trait JournalFront: Send + Sync {
    /// Room for one record.
    type Credits<'j>
    where
        Self: 'j;

    /// See [`Journal::credits`].
    fn credits(&self, max_slots: u32, class: CreditClass) -> Result<Self::Credits<'_>>;
    /// See [`Journal::log`].
    fn log(
        &self,
        credits: Self::Credits<'_>,
        payload: &[u8],
        apply: impl FnOnce(Position, Position),
    ) -> Result<Position>;
    /// See [`Journal::tail`].
    fn tail(&self) -> Position;
    /// See [`Journal::commit_upto`].
    fn commit_upto(&self, upto: Position, durability: Durability) -> Result<()>;
    /// See [`Journal::committed`].
    fn committed(&self, durability: DurabilityLevel) -> Position;
    /// See [`Journal::head`].
    fn head(&self) -> Position;
    /// See [`Journal::advance_head`].
    fn advance_head(&self, to: Position, round: u64) -> Result<()>;
    /// See [`Journal::fail`].
    fn fail(&self, why: String);
    /// See [`Journal::failed`].
    fn failed(&self) -> Option<String>;
    /// See [`Journal::stats`].
    fn stats(&self) -> JournalStats;
}

impl JournalFront for Journal {
    type Credits<'j> = Credits<'j>;

    fn credits(&self, max_slots: u32, class: CreditClass) -> Result<Credits<'_>> {
        self.credits(max_slots, class)
    }

    fn log(
        &self,
        credits: Credits<'_>,
        payload: &[u8],
        apply: impl FnOnce(Position, Position),
    ) -> Result<Position> {
        self.log(credits, payload, apply)
    }

    fn tail(&self) -> Position {
        self.tail()
    }

    fn commit_upto(&self, upto: Position, durability: Durability) -> Result<()> {
        self.commit_upto(upto, durability)
    }

    fn committed(&self, durability: DurabilityLevel) -> Position {
        self.committed(durability)
    }

    fn head(&self) -> Position {
        self.head()
    }

    fn advance_head(&self, to: Position, round: u64) -> Result<()> {
        self.advance_head(to, round)
    }

    fn fail(&self, why: String) {
        self.fail(why);
    }

    fn failed(&self) -> Option<String> {
        self.failed()
    }

    fn stats(&self) -> JournalStats {
        self.stats()
    }
}
