//! What became of checkpoint rounds where one that fails does not make the file system read-only.

use crate::Error;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Notes of rounds that failed, for operations that wait for one.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Why the last round failed, if it did.
    last: Mutex<Option<Error>>,
    count: AtomicU64,
}

impl Failures {
    /// Rounds that failed.
    pub fn count(&self) -> u64 {
        // Acquire: pairs with the Release in `note`: who sees that one more has failed finds out why.
        self.count.load(Ordering::Acquire)
    }

    /// Why the last round failed, unless it went well.
    pub fn last(&self) -> Option<Error> {
        self.last.lock().clone()
    }

    /// Notes what became of a round.
    pub fn note(&self, failure: Option<Error>) {
        let has_failed = failure.is_some();
        let before = std::mem::replace(&mut *self.last.lock(), failure.clone());
        match (before, failure) {
            (None, Some(e)) => {
                tracing::error!(error = %e, "metadata cannot be spilled, and stays in memory: look at the spill device");
            }
            (Some(_), None) => tracing::info!("metadata is spilled again"),
            _ => {}
        }
        if has_failed {
            // Release: pairs with the Acquire in `count`.
            self.count.fetch_add(1, Ordering::Release);
        }
    }
}
