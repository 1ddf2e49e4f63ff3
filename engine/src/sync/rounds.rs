//! Work that serves all who ask for it at a time, done by one of them.

use super::atomic::{AtomicU64, Ordering::Relaxed};
use super::{Mutex, MutexGuard};

/// Rounds of such work, one after the other.
#[derive(Debug, Default)]
pub struct Rounds {
    one_at_a_time: Mutex<()>,
    // Relaxed: changed under the mutex.
    ended: AtomicU64,
}

/// A round that its holder is to do; dropped before its end it was none.
pub struct Round<'r> {
    rounds: &'r Rounds,
    _one_at_a_time: MutexGuard<'r, ()>,
}

impl Rounds {
    /// Waits for the round under way, if there is one. The next; `None`: another has done one that began after this call.
    pub fn begin(&self) -> Option<Round<'_>> {
        let seen = self.ended.load(Relaxed);
        let one_at_a_time = self.one_at_a_time.lock();
        // The first to end since may have begun before, and have passed what this call is for.
        (self.ended.load(Relaxed) <= seen + 1)
            .then_some(Round { rounds: self, _one_at_a_time: one_at_a_time })
    }
}

impl Round<'_> {
    /// It was done.
    pub fn end(self) {
        self.rounds.ended.fetch_add(1, Relaxed);
    }
}
