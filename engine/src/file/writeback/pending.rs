//! Files that were truncated to nothing, and whose record of that waits for the new content.

use crate::format::Nid;
use crate::inode::InodeObj;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::file) struct PendingTruncations {
    files: Mutex<BTreeMap<Nid, Arc<InodeObj>>>,
    count: AtomicUsize,
}

impl PendingTruncations {
    /// Whether there are some.
    pub fn any(&self) -> bool {
        // Acquire: pairs with the Release in `add`: a truncation that returned before an fsync began is seen by it.
        self.count.load(Ordering::Acquire) > 0
    }

    /// All of them.
    pub fn files(&self) -> Vec<Arc<InodeObj>> {
        self.files.lock().values().cloned().collect()
    }

    /// A truncation waits.
    pub fn add(&self, inode: &Arc<InodeObj>) {
        let mut files = self.files.lock();
        files.insert(inode.nid(), Arc::clone(inode));
        // Release: pairs with `any`.
        self.count.store(files.len(), Ordering::Release);
    }

    /// It is recorded, or the file is gone.
    pub fn remove(&self, nid: Nid) {
        let mut files = self.files.lock();
        files.remove(&nid);
        // Release: pairs with `any`.
        self.count.store(files.len(), Ordering::Release);
    }
}
