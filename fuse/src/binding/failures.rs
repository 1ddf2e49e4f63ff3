//! Which thread was told of which failed write-back, of files that the kernel keeps open.
//!
//! Elsewhere each open file is told once. The kernel does not say which of its open files an fsync comes from, but which
//! thread asks: that one is told once.
//!
//! What this leaves to others: what has failed (`narufs_engine::vfs::ErrorMark`).

use narufs_engine::format::Nid;
use narufs_engine::vfs::ErrorMark;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What each thread was told, by inode and thread. Only those stand here whose sync has failed.
#[derive(Debug, Default)]
pub struct Failures {
    marks: Mutex<HashMap<(Nid, u32), Arc<ErrorMark>>>,
    /// How many; so that who has nothing to look for need not take the lock. Relaxed: who is told twice, because it
    /// looked too early, has asked twice at the same time.
    count: AtomicUsize,
}

impl Failures {
    /// What a thread that is about to sync a file has been told.
    pub fn begin(failures: &Arc<Failures>, nid: Nid, thread: u32) -> Report {
        let key = (nid, thread);
        let is_empty = failures.count.load(Ordering::Relaxed) == 0;
        let known = if is_empty { None } else { failures.marks.lock().get(&key).cloned() };
        Report {
            key,
            mark: known.unwrap_or_else(|| Arc::new(ErrorMark::of(None))),
            failures: Arc::clone(failures),
        }
    }

    /// The kernel holds this inode no more.
    pub fn forget(&self, nid: Nid) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let mut marks = self.marks.lock();
            marks.retain(|(of, _), _| *of != nid);
            self.count.store(marks.len(), Ordering::Relaxed);
        }
    }
}

/// What a thread that syncs is told by the outcome.
pub struct Report {
    key: (Nid, u32),
    pub(super) mark: Arc<ErrorMark>,
    failures: Arc<Failures>,
}

impl Report {
    /// The sync has ended so.
    pub fn end<T>(self, outcome: &narufs_engine::Result<T>) {
        if outcome.is_err() {
            let mut marks = self.failures.marks.lock();
            marks.insert(self.key, self.mark);
            self.failures.count.store(marks.len(), Ordering::Relaxed);
        }
    }
}
