//! The dirty pages, listed per lane, and how many there are.
//!
//! It holds what a checkpoint has to write; it does not write. Invariant: a page is on one list once, from
//! the change that made it dirty until it is drained (see the states in [`super::page`]).
//!
//! Two numbers in one word: pages that are dirty, and pages that are on their way home and have not changed since.
//! Each change of a page's state is counted by who makes it, with one addition, a little after it; so a number may
//! be off by as many changes as are being made, and a page on its way is never missing from both. Models:
//! `loom_models.rs`.

use super::page::{Moved, Page, PageRef};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, CachePadded, Mutex};

/// Lists; more cores than this share them. Models look at one.
const LISTS: usize = if cfg!(loom) { 1 } else { 16 };
/// Bits of the number of dirty pages; above them lies that of the pages on their way home.
const DIRTY_BITS: u32 = 32;

#[derive(Default)]
pub(crate) struct DirtyPages {
    lists: [CachePadded<Mutex<Vec<PageRef>>>; LISTS],
    counts: AtomicU64,
}

impl DirtyPages {
    /// Does what a change of state asks for.
    pub fn note(&self, page: &PageRef, moved: Moved) {
        self.count_in(moved);
        if moved.lists() {
            self.lists[rustix::thread::sched_getcpu() % LISTS].lock().push(Arc::clone(page));
        }
    }

    fn count_in(&self, moved: Moved) {
        let (dirty, in_flight) = moved.adds();
        let added = (in_flight << DIRTY_BITS).wrapping_add(dirty);
        if added != 0 {
            // Relaxed: numbers that limits are compared with; they publish nothing.
            self.counts.fetch_add(added as u64, Ordering::Relaxed);
        }
    }

    /// Forgets a page; its list drops it when it is drained.
    pub fn forget(&self, page: &Page) {
        self.count_in(page.forget());
    }

    /// Claims a page for writing; true for one caller.
    pub fn claim(&self, page: &Page) -> bool {
        page.claim().inspect(|moved| self.count_in(*moved)).is_some()
    }

    /// Number of dirty pages, those that are only being written not among them.
    pub fn count(&self) -> usize {
        self.counts().0
    }

    /// Number of pages that are dirty or being written: what would be dirty should no write succeed.
    pub fn unwritten(&self) -> usize {
        let (dirty, in_flight) = self.counts();
        dirty + in_flight
    }

    fn counts(&self) -> (usize, usize) {
        // Relaxed: as in `count_in`.
        let counts = self.counts.load(Ordering::Relaxed) as i64;
        // Either may be below zero for a moment: a page is claimed by one and was counted by another not yet.
        let dirty = i64::from(counts as i32);
        let in_flight = (counts - dirty) >> DIRTY_BITS;
        (dirty.max(0) as usize, in_flight.max(0) as usize)
    }

    /// Takes every list: whatever was changed before the call is among the pages.
    pub fn drain(&self) -> Vec<PageRef> {
        self.lists.iter().flat_map(|list| std::mem::take(&mut *list.lock())).collect()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::format::BlockKind;

    /// A page that is dirty, listed, and taken from its list for a round.
    fn drained(pages: &DirtyPages) -> PageRef {
        let page = Page::fresh(40, BlockKind::Bucket, 1, 1);
        pages.note(&page, page.mark_dirty());
        assert_eq!(pages.drain().len(), 1);
        page
    }

    #[test]
    fn what_is_being_written_is_unwritten() {
        let pages = DirtyPages::default();
        let page = drained(&pages);
        assert_eq!((pages.count(), pages.unwritten()), (1, 1));
        assert!(pages.claim(&page) && !pages.claim(&page));
        assert_eq!((pages.count(), pages.unwritten()), (0, 1));
        pages.note(&page, page.mark_dirty());
        pages.note(&page, page.mark_dirty());
        assert_eq!((pages.count(), pages.unwritten(), pages.drain().len()), (1, 1, 0));
        pages.note(&page, page.finish(true));
        assert_eq!((pages.count(), pages.unwritten(), pages.drain().len()), (1, 1, 1));
        assert!(pages.claim(&page));
        pages.note(&page, page.finish(true));
        assert_eq!((pages.count(), pages.unwritten(), pages.drain().len()), (1, 1, 1));
        assert!(pages.claim(&page));
        pages.note(&page, page.finish(false));
        assert_eq!((pages.count(), pages.unwritten(), pages.drain().len()), (0, 0, 0));
    }

    #[test]
    fn what_is_freed_while_its_write_fails_is_not_dirty_again() {
        for changed in [false, true] {
            let pages = DirtyPages::default();
            let page = drained(&pages);
            assert!(pages.claim(&page));
            if changed {
                pages.note(&page, page.mark_dirty());
            }
            pages.forget(&page);
            assert_eq!((pages.count(), pages.unwritten()), (0, 1), "it is in flight yet");
            pages.note(&page, page.finish(true));
            assert_eq!((pages.count(), pages.unwritten(), pages.drain().len()), (0, 0, 0));
            assert!(!page.is_dirty() && page.is_forgotten());
        }
    }
}
