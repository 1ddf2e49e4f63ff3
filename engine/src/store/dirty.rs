//! The dirty pages, listed per lane, and how many there are.
//!
//! It holds what a checkpoint has to write; it does not write. Invariant: a page is on one list once, from
//! the change that made it dirty until it is drained (see the states in [`super::page`]).

use super::page::{Marked, Page, PageRef};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, CachePadded, Mutex};

/// Lists; more cores than this share them.
const LISTS: usize = 16;

#[derive(Default)]
pub(crate) struct DirtyPages {
    lists: [CachePadded<Mutex<Vec<PageRef>>>; LISTS],
    count: AtomicUsize,
}

impl DirtyPages {
    /// Does what a change of state asks for.
    pub fn note(&self, page: &PageRef, marked: Marked) {
        if marked.newly {
            // Relaxed: a number that limits are compared with; it publishes nothing.
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        if marked.list {
            self.lists[rustix::thread::sched_getcpu() % LISTS].lock().push(Arc::clone(page));
        }
    }

    /// Forgets a page; its list drops it when it is drained.
    pub fn forget(&self, page: &Page) {
        if page.forget() {
            // Relaxed: as in `note`.
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Claims a page for writing; true for one caller.
    pub fn claim(&self, page: &Page) -> bool {
        let claimed = page.claim();
        if claimed {
            // Relaxed: as in `note`.
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        claimed
    }

    /// Number of dirty pages, those being written not among them.
    pub fn count(&self) -> usize {
        // Relaxed: as in `note`.
        self.count.load(Ordering::Relaxed)
    }

    /// Takes every list: whatever was changed before the call is among the pages.
    pub fn drain(&self) -> Vec<PageRef> {
        self.lists.iter().flat_map(|list| std::mem::take(&mut *list.lock())).collect()
    }
}
