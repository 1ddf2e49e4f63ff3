//! Flushes of the device that have failed in the life of a mount.
//!
//! A failed flush covers nothing, and no later one may cover it up: the kernel tells of a lost write once. A server that
//! goes on knows that by itself (`crate::device`). Its successor opens the device anew, and its flushes succeed; so what
//! failed is noted here:
//! - What lies in place may not be there: that it is newer than what the journal holds ([`homes`](super::homes)) counts no
//!   more, and the journal's is put back.
//! - What was written and not synced may be gone: who syncs a file next is told once.
//!
//! # Protocol
//! `failed` counts them, `heeded` says up to which one a server has come back from: it has recovered without heeding what
//! lies in place. Both are zero in memory of older builds. Whatever they hold, nothing worse follows than that.

use super::Takeover;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
#[repr(C)]
pub(super) struct LostFlushes {
    failed: AtomicU64,
    heeded: AtomicU64,
}

impl LostFlushes {
    /// One has failed.
    pub fn note(&self) {
        // Release: what was noted of homes before is there for who finds this.
        self.failed.fetch_add(1, Ordering::Release);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        // Acquire: pairs with `note`, in another process.
        self.failed.load(Ordering::Acquire)
    }

    /// A server that has found so many has come back from them.
    pub fn heed(&self, found: u64) {
        // Relaxed: one process has the memory; who comes next has all of its stores.
        self.heeded.store(found, Ordering::Relaxed);
    }

    /// Whether one has failed since.
    pub fn are_heeded(&self) -> bool {
        self.count() == self.heeded.load(Ordering::Relaxed)
    }
}

impl Takeover {
    /// A flush of the device has failed.
    pub(crate) fn note_lost_flush(&self) {
        self.flushes().note();
    }

    /// Whether one has failed, in this process or before, that no server has come back from: what lies in place may not be
    /// there.
    pub(crate) fn is_place_in_doubt(&self) -> bool {
        !self.flushes().are_heeded()
    }

    /// Whether one had failed before this process came, whatever has come since: what was written and not synced may be gone.
    pub(crate) fn has_lost_flushes(&self) -> bool {
        self.lost_before > 0
    }

    /// This process has come back from those that it has found.
    pub(crate) fn heed_lost_flushes(&self) {
        self.flushes().heed(self.lost_before);
    }
}
