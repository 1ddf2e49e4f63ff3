//! Journals that narufs is measured against, in the place of its own: the same engine, the same media, another journal.
//!
//! - `Jbd2` and `Fine` ([`Transactions`]): operations join a running transaction, one thread commits it. The first logs
//!   images of whole blocks, as jbd2; the second logs what has changed, in units as large as an inode, as fine-grained
//!   journaling for memory (Chen et al., MSST 2016).
//! - `Paper` ([`Paper`]): no lock, to the letter of the thesis that T1 and T2 are from.
//!
//! # What they write, and who reads it
//! The ring is the engine's own: its header, its slots with position and checksum, its commit records; so the scan and
//! the redo of every build recover what a baseline has written, without a line of their own, and no image needs to be
//! told apart. That changes nothing of what is measured:
//! - What a baseline logs are records as the engine knows them. The image of a block is a write of all its bytes, that of
//!   a unit a write of 256; a transaction is *one* record, so that it counts whole or not at all.
//! - Which bytes are copied, by whom, under which locks, and what is waited for, is the baseline's. What comes on top is
//!   an eighth of framing: 32 bytes for each slot of 256, which hold the checksum that jbd2 keeps in a block's tag.
//!
//! Absorption (T9) lies above the journal and goes on: what it logs becomes part of the transaction.
//!
//! # What every one must keep
//! A position that [`MountJournal::log`] gives is below that of what is logged after the operation returned, or the same
//! within a transaction; everything below `committed` is in the ring and applied. `conformance::journal` holds them to
//! it. What these do not have: answers before a loss of power would spare what was synced (`durability=window`,
//! `=process`): every fsync waits for its commit. A server that is to be followed by another on a live mount cannot use
//! a journal whose operations are in no ring when they return.

mod buffers;
mod committer;
mod front;
mod paper;
mod shared;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod touched;
mod transactions;

pub use paper::Paper;
pub use touched::{Buffer, Logical, MountRecord, Touch, Touches, UNIT, UNITS};
pub use transactions::{Promised, Transactions};

use std::time::Duration;

use super::{CreditClass, Credits, Done, Durability, Journal, JournalStats, Look, Media, Options, Position};
use crate::Result;
use crate::baseline::JournalBaseline;
use crate::device::BlockDevice;
use crate::pmem::DurabilityLevel;
use crate::sync::Arc;

/// The journal of a mount.
#[allow(clippy::large_enum_variant, reason = "there is one for each mount")]
pub enum MountJournal {
    /// The engine's own.
    Ours(Journal),
    /// The published one without locks.
    Paper(Paper),
    /// One of transactions.
    Transactions(Transactions),
}

/// Room for one record of it.
#[must_use = "credits hold room in the ring until they are dropped"]
pub enum MountCredits<'j> {
    /// In slots.
    Slots(Credits<'j>),
    /// In a transaction.
    Transactions(Promised<'j>),
}

/// The same of whichever it is.
macro_rules! each {
    ($self:ident, $journal:ident => $then:expr) => {
        match $self {
            MountJournal::Ours($journal) => $then,
            MountJournal::Paper($journal) => $then,
            MountJournal::Transactions($journal) => $then,
        }
    };
}

impl MountJournal {
    /// Begins the chosen journal, see [`Journal::start`]; `data` is the device that file data go to.
    pub fn start(
        choice: JournalBaseline,
        media: Media,
        options: Options,
        data: Arc<dyn BlockDevice>,
    ) -> Result<MountJournal> {
        let transactions = |media, options, units| {
            Transactions::start(units, media, options, data).map(MountJournal::Transactions)
        };
        match choice {
            JournalBaseline::Ours => Journal::start(media, options).map(MountJournal::Ours),
            JournalBaseline::Paper => Journal::start(media, options).map(Paper::new).map(MountJournal::Paper),
            JournalBaseline::Jbd2 => transactions(media, options, false),
            JournalBaseline::Fine => transactions(media, options, true),
        }
    }

    /// See [`Journal::max_record_slots`].
    pub fn max_record_slots(&self) -> u32 {
        each!(self, journal => journal.max_record_slots())
    }

    /// See [`Journal::slots`].
    pub fn slots(&self) -> u64 {
        each!(self, journal => journal.slots())
    }

    /// See [`Journal::tail`].
    pub fn tail(&self) -> Position {
        each!(self, journal => journal.tail())
    }

    /// See [`Journal::epoch`].
    pub fn epoch(&self) -> u64 {
        each!(self, journal => journal.epoch())
    }

    /// See [`Journal::head`].
    pub fn head(&self) -> Position {
        each!(self, journal => journal.head())
    }

    /// See [`Journal::committed`].
    pub fn committed(&self, durability: DurabilityLevel) -> Position {
        each!(self, journal => journal.committed(durability))
    }

    /// See [`Journal::advance_head`].
    pub fn advance_head(&self, to: Position, round: u64) -> Result<()> {
        each!(self, journal => journal.advance_head(to, round))
    }

    /// See [`Journal::fail`].
    pub fn fail(&self, why: String) {
        each!(self, journal => journal.fail(why));
    }

    /// See [`Journal::stop`].
    pub(crate) fn stop(&self, why: String) -> bool {
        each!(self, journal => journal.stop(why))
    }

    /// See [`Journal::failed`].
    pub fn failed(&self) -> Option<String> {
        each!(self, journal => journal.failed())
    }

    /// See [`Journal::stats`].
    pub fn stats(&self) -> JournalStats {
        each!(self, journal => journal.stats())
    }

    /// See [`Journal::kept_young`].
    pub fn kept_young(&self) -> u64 {
        match self {
            MountJournal::Ours(journal) => journal.kept_young(),
            _ => 0,
        }
    }

    /// See [`Journal::has_room`].
    pub fn has_room(&self, max_slots: u32, class: CreditClass) -> bool {
        each!(self, journal => journal.has_room(max_slots, class))
    }

    /// See [`Journal::credits`].
    pub fn credits(&self, max_slots: u32, class: CreditClass) -> Result<MountCredits<'_>> {
        match self {
            MountJournal::Ours(journal) => journal.credits(max_slots, class).map(MountCredits::Slots),
            MountJournal::Paper(journal) => journal.credits(max_slots, class).map(MountCredits::Slots),
            MountJournal::Transactions(journal) => {
                journal.credits(max_slots, class).map(MountCredits::Transactions)
            }
        }
    }

    /// See [`Journal::credits_now`].
    pub fn credits_now(&self, max_slots: u32, look: Look) -> Result<Option<MountCredits<'_>>> {
        match self {
            MountJournal::Ours(journal) => Ok(journal.credits_now(max_slots, look)?.map(MountCredits::Slots)),
            MountJournal::Paper(journal) => {
                Ok(journal.credits_now(max_slots, look)?.map(MountCredits::Slots))
            }
            MountJournal::Transactions(journal) => {
                Ok(journal.credits_now(max_slots, look)?.map(MountCredits::Transactions))
            }
        }
    }

    /// See [`Journal::log`].
    pub fn log(
        &self,
        credits: MountCredits<'_>,
        record: MountRecord<'_>,
        apply: impl FnOnce(Position, Position),
    ) -> Result<Position> {
        match (self, credits) {
            (MountJournal::Ours(journal), MountCredits::Slots(credits)) => {
                journal.log(credits, record.payload, apply)
            }
            (MountJournal::Paper(journal), MountCredits::Slots(credits)) => {
                journal.log(credits, record, apply)
            }
            (MountJournal::Transactions(journal), MountCredits::Transactions(credits)) => {
                journal.log(credits, record, apply)
            }
            _ => unreachable!("a journal gives its own kind of credits"),
        }
    }

    /// See [`Journal::commit_upto`].
    pub fn commit_upto(&self, upto: Position, durability: Durability) -> Result<()> {
        match self {
            MountJournal::Ours(journal) => journal.commit_upto(upto, durability),
            MountJournal::Paper(journal) => journal.commit_upto(upto),
            MountJournal::Transactions(journal) => journal.commit_upto(upto),
        }
    }

    /// See [`Journal::settle_upto`].
    pub fn settle_upto(&self, upto: Position, durability: Durability) -> Result<()> {
        match self {
            MountJournal::Ours(journal) => journal.settle_upto(upto, durability),
            _ => self.commit_upto(upto, durability),
        }
    }

    /// See [`Journal::commit_then`]; of a baseline the thread waits.
    pub fn commit_then(&self, upto: Position, durability: Durability, done: Done) {
        match self {
            MountJournal::Ours(journal) => journal.commit_then(upto, durability, done),
            _ => done(self.commit_upto(upto, durability)),
        }
    }

    /// See [`Journal::commit_beyond`].
    pub fn commit_beyond(&self, from: Position) -> Position {
        each!(self, journal => journal.commit_beyond(from))
    }

    /// See [`Journal::may_lag`].
    pub fn may_lag(&self, durability: Durability) -> bool {
        matches!(self, MountJournal::Ours(journal) if journal.may_lag(durability))
    }

    /// See [`Journal::commit_flushes`]. A transaction is committed once the data that it maps are down, as jbd2's is.
    pub fn commit_flushes(&self, durability: Durability) -> bool {
        match self {
            MountJournal::Ours(journal) => journal.commit_flushes(durability),
            MountJournal::Paper(_) => false,
            MountJournal::Transactions(_) => true,
        }
    }

    /// See [`Journal::depend`].
    pub fn depend(&self, writes: u64) {
        match self {
            MountJournal::Ours(journal) => journal.depend(writes),
            MountJournal::Paper(_) => {}
            MountJournal::Transactions(journal) => journal.depend(writes),
        }
    }

    /// See [`Journal::keep_promises`]; a baseline makes none.
    pub fn keep_promises(&self) -> Result<()> {
        match self {
            MountJournal::Ours(journal) => journal.keep_promises(),
            _ => Ok(()),
        }
    }

    /// See [`Journal::keep_promises_briefly`].
    pub fn keep_promises_briefly(&self, upto: Position) -> Result<()> {
        match self {
            MountJournal::Ours(journal) => journal.keep_promises_briefly(upto),
            _ if upto > self.committed(DurabilityLevel::Power) => self.commit_upto(upto, Durability::Power),
            _ => Ok(()),
        }
    }

    /// See [`Journal::wait_due`]; a baseline has nothing to stream.
    pub fn wait_due(&self, window: Duration) -> bool {
        match self {
            MountJournal::Ours(journal) => journal.wait_due(window),
            _ => false,
        }
    }

    /// See [`Journal::end_streaming`].
    pub fn end_streaming(&self) {
        if let MountJournal::Ours(journal) = self {
            journal.end_streaming();
        }
    }
}
