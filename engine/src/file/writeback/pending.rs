//! Files that were truncated to nothing, and whose record of that waits for the new content.

use crate::format::Nid;
use crate::inode::InodeObj;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

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
        match files.get_mut(&inode.nid()) {
            Some((there, _)) if Arc::ptr_eq(there, inode) => {}
            // One that had this number before is gone, and about to be taken out.
            Some(there) => {
                self.blocks.fetch_sub(there.1, Ordering::Relaxed);
                self.blocks.fetch_add(blocks, Ordering::Relaxed);
                *there = (Arc::clone(inode), blocks);
            }
            None => {
                self.blocks.fetch_add(blocks, Ordering::Relaxed);
                files.insert(inode.nid(), (Arc::clone(inode), blocks));
            }
        }
        // Release: pairs with `any`.
        self.count.store(files.len(), Ordering::Release);
    }

    /// It is recorded, or the file is gone: another that has its number by now stays.
    pub fn remove(&self, inode: &Arc<InodeObj>) {
        let mut files = self.files.lock();
        if let Entry::Occupied(there) = files.entry(inode.nid())
            && Arc::ptr_eq(&there.get().0, inode)
        {
            let (_, blocks) = there.remove();
            self.blocks.fetch_sub(blocks, Ordering::Relaxed);
        }
        // Release: pairs with `any`.
        self.count.store(files.len(), Ordering::Release);
    }
}
