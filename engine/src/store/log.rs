//! Where the store's records go: to the journal, or nowhere.
//!
//! The scratch profile keeps nothing after unmount, so its records only count positions; during recovery
//! there is no journal yet, and nothing may be logged. One type, statically known, so that the durable path
//! pays a predictable branch and no more.

use crate::format::{Position, SLOT_PAYLOAD};
use crate::journal::{CreditClass, Durability, Look, MountCredits, MountJournal, MountRecord};
use crate::pmem::DurabilityLevel;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, OnceLock};
use crate::{Error, Result};

/// The store's view of the journal.
pub enum Log {
    /// No journal: the scratch profile.
    Volatile(VolatileLog),
    /// The durable profile: the journal, once recovery is over.
    Durable(OnceLock<Arc<MountJournal>>),
}

impl Default for Log {
    fn default() -> Self {
        Log::Volatile(VolatileLog { next: AtomicU64::new(0) })
    }
}

/// Counts positions.
#[derive(Debug)]
pub struct VolatileLog {
    next: AtomicU64,
}

/// What an operation may reserve.
pub(super) enum Allowance<'s> {
    /// There is no limit.
    Volatile,
    /// Credits of the journal.
    Durable(MountCredits<'s>),
}

impl Log {
    /// A log whose journal is attached after recovery.
    pub fn durable() -> Log {
        Log::Durable(OnceLock::new())
    }

    /// The journal, if there is one and recovery is over.
    pub fn journal(&self) -> Option<&Arc<MountJournal>> {
        match self {
            Log::Volatile(_) => None,
            Log::Durable(journal) => journal.get(),
        }
    }

    fn attached(journal: &OnceLock<Arc<MountJournal>>) -> Result<&Arc<MountJournal>> {
        journal.get().ok_or_else(|| Error::ReadOnly("it was mounted without a journal".into()))
    }

    /// Whether records are counted, and nothing else: nobody reads their payload.
    pub(super) fn only_counts(&self) -> bool {
        matches!(self, Log::Volatile(_))
    }

    /// Takes credits for so many slots; may sleep.
    pub(super) fn allow(&self, max_slots: u32, class: CreditClass) -> Result<Allowance<'_>> {
        match self {
            Log::Volatile(_) => Ok(Allowance::Volatile),
            Log::Durable(journal) => {
                Self::attached(journal)?.credits(max_slots, class).map(Allowance::Durable)
            }
        }
    }

    /// As [`Log::allow`] for an ordinary record, without waiting; `None` if it would, or is too large.
    pub(super) fn allow_now(&self, max_slots: u32, look: Look) -> Result<Option<Allowance<'_>>> {
        match self {
            Log::Volatile(_) => Ok(Some(Allowance::Volatile)),
            Log::Durable(journal) => {
                Ok(Self::attached(journal)?.credits_now(max_slots, look)?.map(Allowance::Durable))
            }
        }
    }

    /// Logs a record, applies it with its first and end position, and seals it.
    pub(super) fn log(
        &self,
        allowance: Allowance<'_>,
        record: MountRecord<'_>,
        apply: impl FnOnce(Position, Position),
    ) -> Result<Position> {
        match (self, allowance) {
            (Log::Durable(journal), Allowance::Durable(credits)) => {
                Self::attached(journal)?.log(credits, record, apply)
            }
            (Log::Volatile(log), _) => {
                let slots = record.len().div_ceil(SLOT_PAYLOAD).max(1) as u64;
                // Relaxed: positions need only differ; the page latches order the changes.
                let first = log.next.fetch_add(slots, Ordering::Relaxed);
                apply(first, first + slots);
                Ok(first + slots)
            }
            (Log::Durable(_), Allowance::Volatile) => unreachable!("a log gives its own kind of allowance"),
        }
    }

    /// The next position to be reserved.
    pub(super) fn tail(&self) -> Position {
        match self {
            // Relaxed: it is a moment's answer.
            Log::Volatile(log) => log.next.load(Ordering::Relaxed),
            Log::Durable(journal) => journal.get().map_or(0, |journal| journal.tail()),
        }
    }

    /// Makes everything below `upto` durable; may sleep.
    pub(super) fn commit_upto(&self, upto: Position, durability: Durability) -> Result<()> {
        match self {
            Log::Volatile(_) => Ok(()),
            Log::Durable(journal) => match journal.get() {
                Some(journal) => journal.commit_upto(upto, durability),
                // Nothing was ever logged.
                None => Ok(()),
            },
        }
    }

    /// Makes what has returned below `upto` durable; may sleep.
    pub(super) fn settle_upto(&self, upto: Position, durability: Durability) -> Result<()> {
        match self.journal() {
            Some(journal) => journal.settle_upto(upto, durability),
            // Nothing was ever logged, or nothing is to last.
            None => Ok(()),
        }
    }

    /// Everything below is durable at this level.
    pub(super) fn committed(&self, durability: DurabilityLevel) -> Position {
        match self.journal() {
            Some(journal) => journal.committed(durability),
            None => self.tail(),
        }
    }

    /// Why nothing can be logged any more.
    pub(super) fn failed(&self) -> Option<String> {
        self.journal().and_then(|journal| journal.failed())
    }
}
