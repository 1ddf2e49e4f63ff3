//! Ends the process at a call of SQLite's, for tests: feature `mortal` alone.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

static LEFT: LazyLock<AtomicU64> = LazyLock::new(|| {
    let at = std::env::var("NARUFS_SQLITE_DIE_AT").ok().and_then(|at| at.parse().ok());
    AtomicU64::new(at.unwrap_or(u64::MAX))
});

/// Called before and after each call that may change something: the one whose number the environment names is the last.
pub fn step() {
    if LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        std::process::abort();
    }
}
