//! A lock that is one word until two threads first meet at it, and from then on a table of locks.
//!
//! Most files and directories are used by one thread at a time: for them a whole-object lock in one word is
//! both smallest and fastest. When somebody meets a conflict, the word is *opened*, once and for good: its
//! holders leave, and any thread that comes then uses the table that the owner of the word keeps.
//!
//! # Protocol
//! The word holds OPEN (bit 0), WRITER (bit 1) and the number of readers (from bit 2).
//! 1. While OPEN is clear, a thread enters by one compare-and-swap: from a word without WRITER to one reader
//!    more, or from 0 to WRITER. It leaves by one subtraction of what it added.
//! 2. A thread that cannot enter so (a conflict, or repeated failure of its compare-and-swap, which is
//!    contention too) makes the table, then sets OPEN. OPEN is never cleared.
//! 3. Once OPEN is set nobody enters by the word; its holders stay until they leave. The one whose leaving
//!    makes the word exactly OPEN wakes a thread that waits for that.
//! 4. A thread uses the table only after it has seen the word exactly OPEN. So no holder by the word ever
//!    coexists with a holder by the table, and what the last did is visible to the first: each leaving is a
//!    release, leavings and the setting of OPEN are read-modify-writes of one atomic and so one release
//!    sequence, and the load of exactly OPEN is an acquire.
//!
//! The holder's part of the object is not recorded in the word, so a second request of the same thread may
//! wait for itself: a thread makes one request at a time to one object (the lock order sees to it).

use super::Access;
use crate::sync::WaitQueue;
use crate::sync::atomic::{AtomicU64, Ordering};

const OPEN: u64 = 1;
const WRITER: u64 = 2;
const READER: u64 = 4;

/// Compare-and-swaps that may fail before contention counts as a conflict.
const PATIENCE: u32 = 2;

/// The word, and the threads that wait for its holders to leave.
#[derive(Debug, Default)]
pub(super) struct OneWord {
    word: AtomicU64,
    left: WaitQueue,
}

/// How a thread got in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It holds the whole object by the word and must [`OneWord::leave`].
    Word,
    /// It must use the table.
    Table,
}

impl OneWord {
    /// Enters by the word, or says that the table is to be used; `None` says that the word is open (or was
    /// opened just now) but has holders still.
    #[inline]
    pub(super) fn try_enter(&self, access: Access, make_table: impl FnOnce()) -> Option<Way> {
        // Acquire: pairs with the Release of `leave` and of the setting of OPEN; rule 4.
        let mut word = self.word.load(Ordering::Acquire);
        let mut failures = 0;
        while word & OPEN == 0 {
            let (free, add) = match access {
                Access::Read => (word & WRITER == 0, READER),
                Access::Write => (word == 0, WRITER),
            };
            if !free || failures > PATIENCE {
                make_table();
                // Release: a thread that sees OPEN sees the table. Acquire: as the load above.
                word = self.word.fetch_or(OPEN, Ordering::AcqRel) | OPEN;
                break;
            }
            // Acquire: pairs with the Release of those that left before. Relaxed on failure would do for the
            // entry, but the value may turn out to be exactly OPEN: as the load above.
            match self.word.compare_exchange_weak(word, word + add, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(Way::Word),
                Err(now) => word = now,
            }
            failures += 1;
        }
        (word == OPEN).then_some(Way::Table)
    }

    /// Waits until the holders by the word have left, after [`OneWord::try_enter`] said `None`.
    #[cold]
    pub(super) fn wait_until_left(&self) {
        // Acquire: pairs with the Release of `leave`; rule 4.
        self.left.wait_until(|| self.word.load(Ordering::Acquire) == OPEN);
    }

    /// Leaves what was entered by the word.
    #[inline]
    pub(super) fn leave(&self, access: Access) {
        let added = match access {
            Access::Read => READER,
            Access::Write => WRITER,
        };
        // Release: pairs with the Acquire of those that enter later, by the word or by the table.
        let before = self.word.fetch_sub(added, Ordering::Release);
        if before == OPEN + added {
            self.left.wake_all();
        }
    }

    /// Whether a writer has the word, unless it is open and nobody has it: then the table knows. Readers that
    /// have it still keep writers out of the table.
    #[inline]
    pub(super) fn is_written(&self) -> Option<bool> {
        // Acquire: pairs with the Release of `leave`, and of the setting of OPEN for the table.
        match self.word.load(Ordering::Acquire) {
            OPEN => None,
            word => Some(word & WRITER != 0),
        }
    }

    /// Whether the word was opened.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn is_open(&self) -> bool {
        // Relaxed: tests ask when nobody else is there.
        self.word.load(Ordering::Relaxed) & OPEN != 0
    }
}
