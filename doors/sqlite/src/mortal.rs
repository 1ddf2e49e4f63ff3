//! Ends the process at a call of SQLite's, and makes its memory small, for tests: feature `mortal` alone.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

static LEFT: LazyLock<AtomicU64> = LazyLock::new(|| {
    let at = std::env::var("NARUFS_SQLITE_DIE_AT").ok().and_then(|at| at.parse().ok());
    AtomicU64::new(at.unwrap_or(u64::MAX))
});

static PIECES: LazyLock<usize> = LazyLock::new(|| {
    let most = std::env::var("NARUFS_SQLITE_PIECES").ok().and_then(|most| most.parse().ok());
    most.unwrap_or(1 << 16)
});

/// Pieces that a transaction may have in memory.
pub fn most_pieces() -> usize {
    *PIECES
}

/// Called before and after each call that may change something: the one whose number the environment names is the last.
pub fn step() {
    if LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        std::process::abort();
    }
}
