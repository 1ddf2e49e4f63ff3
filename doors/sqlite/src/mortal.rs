//! Ends the process at a call of SQLite's, has the sync of a directory or the end of a journal fail, makes memory small, and locks the bytes that
//! SQLite's own test programs lock, for tests: feature `mortal` alone.

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

static PENDING: LazyLock<u64> = LazyLock::new(|| {
    let at = std::env::var("NARUFS_SQLITE_PENDING").ok().and_then(|at| at.parse().ok());
    at.unwrap_or(0x4000_0000)
});

/// The first of the bytes that are locked: SQLite's test programs move it.
pub fn pending_byte() -> u64 {
    *PENDING
}

static FAILS: LazyLock<AtomicU64> = LazyLock::new(|| {
    let at = std::env::var("NARUFS_SQLITE_FAIL_SYNC").ok().and_then(|at| at.parse().ok());
    AtomicU64::new(at.unwrap_or(u64::MAX))
});

/// Whether this sync of a directory, whose number the environment names, fails.
pub fn fails() -> bool {
    FAILS.fetch_sub(1, Ordering::Relaxed) == 1
}

static ENDS: LazyLock<AtomicU64> = LazyLock::new(|| {
    let fail = std::env::var("NARUFS_SQLITE_FAIL_ENDS").ok().and_then(|fail| fail.parse().ok());
    AtomicU64::new(fail.unwrap_or(0))
});

/// Whether an attempt to end a journal that is a file fails: so many as the environment says, from the first on.
pub fn end_fails() -> bool {
    ENDS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// Called before and after each call that may change something: the one whose number the environment names is the last.
pub fn step() {
    if LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        std::process::abort();
    }
}
