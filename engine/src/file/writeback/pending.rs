//! Files that were truncated to nothing, and whose record of that waits for the new content.

use crate::format::Nid;
use crate::inode::InodeObj;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex};
use std::collections::BTreeMap;

/// A file, and the blocks of its old content.
type Waiting = (Arc<InodeObj>, u64);

/// See the module.
#[derive(Debug, Default)]
pub(in crate::file) struct PendingTruncations {
    files: Mutex<BTreeMap<Nid, Waiting>>,
    count: AtomicUsize,
    /// Blocks of all of them.
    // Relaxed: a number to show; changed under the lock of `files`.
    blocks: AtomicU64,
}

impl PendingTruncations {
    /// Whether there are some.
    pub fn any(&self) -> bool {
        // Acquire: pairs with the Release in `add`: a truncation that returned before an fsync began is seen by it.
        self.count.load(Ordering::Acquire) > 0
    }

    /// All of them.
    pub fn files(&self) -> Vec<Arc<InodeObj>> {
        self.files.lock().values().map(|(inode, _)| Arc::clone(inode)).collect()
    }

    /// Blocks of old content that their records will free.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// A truncation waits, whose record frees so many blocks. One that waits already has those that it had.
    pub fn add(&self, inode: &Arc<InodeObj>, blocks: u64) {
        let mut files = self.files.lock();
        let before = files.get(&inode.nid()).map(|(_, blocks)| *blocks);
        if before.is_none() {
            self.blocks.fetch_add(blocks, Ordering::Relaxed);
        }
        files.insert(inode.nid(), (Arc::clone(inode), before.unwrap_or(blocks)));
        // Release: pairs with `any`.
        self.count.store(files.len(), Ordering::Release);
    }

    /// It is recorded, or the file is gone.
    pub fn remove(&self, nid: Nid) {
        let mut files = self.files.lock();
        if let Some((_, blocks)) = files.remove(&nid) {
            self.blocks.fetch_sub(blocks, Ordering::Relaxed);
        }
        // Release: pairs with `any`.
        self.count.store(files.len(), Ordering::Release);
    }
}
