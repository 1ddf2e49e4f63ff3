//! Where the store's records go: to the journal, or nowhere.
//!
//! The scratch profile keeps nothing after unmount, so its records only count positions. One type, statically
//! known, so that the durable path pays a predictable branch and no more.

use crate::Result;
use crate::format::{Position, SLOT_PAYLOAD};
use crate::pmem::Horizon;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The store's view of the journal.
#[derive(Debug)]
pub enum Log {
    /// No journal: the scratch profile.
    Volatile(VolatileLog),
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
#[derive(Debug)]
pub(super) enum Allowance<'s> {
    /// Nothing to account for.
    Volatile(std::marker::PhantomData<&'s ()>),
}

impl Log {
    /// Takes credits for so many slots; may sleep.
    pub(super) fn allow(&self, _max_slots: u32) -> Result<Allowance<'_>> {
        match self {
            Log::Volatile(_) => Ok(Allowance::Volatile(std::marker::PhantomData)),
        }
    }

    /// Logs a record, applies it with its first and end position, and seals it.
    pub(super) fn log(
        &self,
        allowance: &mut Allowance<'_>,
        payload: &[u8],
        apply: impl FnOnce(Position, Position),
    ) -> Result<Position> {
        match (self, allowance) {
            (Log::Volatile(log), Allowance::Volatile(_)) => {
                let slots = payload.len().div_ceil(SLOT_PAYLOAD) as u64;
                // Relaxed: positions need only differ; the page latches order the changes.
                let first = log.next.fetch_add(slots, Ordering::Relaxed);
                apply(first, first + slots);
                Ok(first + slots)
            }
        }
    }

    /// The next position to be reserved.
    pub fn tail(&self) -> Position {
        match self {
            // Relaxed: it is a moment's answer.
            Log::Volatile(log) => log.next.load(Ordering::Relaxed),
        }
    }

    /// Makes everything below `upto` durable at the horizon; may sleep.
    pub fn commit_upto(&self, _upto: Position, _horizon: Horizon) -> Result<()> {
        match self {
            Log::Volatile(_) => Ok(()),
        }
    }

    /// Everything below is durable at the horizon.
    pub fn committed(&self, _horizon: Horizon) -> Position {
        self.tail()
    }

    /// Why nothing can be logged any more.
    pub fn failed(&self) -> Option<String> {
        None
    }
}
