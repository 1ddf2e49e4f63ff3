//! What a panic breaks off, where nobody can know how far it came.

use super::Store;
use crate::unwinding::Unwinding;

/// Makes the file system read-only if a panic begins while it lives. Dropped before the locks of what it is about.
#[must_use = "to be dropped when what it is about has come to its end"]
pub(crate) struct BrokenOff<'s> {
    store: &'s Store,
    why: &'static str,
    unwinding: Unwinding,
}

impl<'s> BrokenOff<'s> {
    /// From now on.
    pub fn watch(store: &'s Store, why: &'static str) -> BrokenOff<'s> {
        BrokenOff { store, why, unwinding: Unwinding::watch() }
    }
}

impl Drop for BrokenOff<'_> {
    fn drop(&mut self) {
        if self.unwinding.has_begun() {
            self.store.fail(self.why);
        }
    }
}
