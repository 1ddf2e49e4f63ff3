//! The dirty pages, listed per lane, and how many there are.
//!
//! It holds what a checkpoint has to write; it does not write. Invariant: a page is on one list once, from
//! the change that made it dirty until it is drained or its block is freed (see the states in [`super::page`]).
//!
//! *A page whose block is freed leaves its list at once*: what is made and removed again between two rounds is not
//! dirty any more, so nothing would start the round that drains it, and the list would be all that keeps it in memory.
//! It has the same list for all its life, and its [`Seat`] tells its place there. A write that has failed may list it
//! beside that: who lists it looks, under the list's lock, whether it was freed; who frees it has said so before taking
//! that lock. Whichever comes second finds what the first has done.
//!
//! Two numbers in one word: pages that are dirty, and pages that are on their way home and have not changed since.
//! Each change of a page's state is counted by who makes it, with one addition to the word of its core, a little after
//! it; so a number may be off by as many changes as are being made, and a page on its way is never missing from both,
//! for a claim and a failed write add nothing to the sum of the two. Models: `loom_models.rs`.
//!
//! Who asks before each operation reads no other core's line: every so many changes a core *shows* the sums of all,
//! in a line that is read by all and seldom written.

use super::page::{Moved, Page, PageRef};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, CachePadded, Mutex};

/// Cores with a list and counts of their own; more share them. Models look at one.
const CORES: usize = if cfg!(loom) { 1 } else { 16 };
/// Bits of the number of dirty pages; above them lies that of the pages on their way home.
const DIRTY_BITS: u32 = 32;

pub(crate) struct DirtyPages {
    lists: [CachePadded<Mutex<Vec<PageRef>>>; CORES],
    counts: [CachePadded<Counts>; CORES],
    /// The sums as of some recent moment.
    shown: CachePadded<AtomicU64>,
    /// Changes of a core after which it shows them.
    batch: u64,
}

/// Where a page is listed when it is dirty.
pub(super) struct Seat {
    list: u8,
    /// Its index there. Read and written with the list locked; of no meaning unless the page is found there.
    index: AtomicU32,
}

impl Seat {
    /// On the list of the core that brings the page into memory: as a rule it is the one that changes it first.
    pub fn here() -> Seat {
        Seat { list: (rustix::thread::sched_getcpu() % CORES) as u8, index: AtomicU32::new(0) }
    }
}

#[derive(Default)]
struct Counts {
    sums: AtomicU64,
    changes: AtomicU64,
}

impl DirtyPages {
    /// No pages. Where `limit` of them are much, what is shown is off by a sixty-fourth of that at the most, but for
    /// changes that are being made.
    pub fn new(limit: usize) -> DirtyPages {
        DirtyPages {
            lists: Default::default(),
            counts: Default::default(),
            shown: CachePadded::default(),
            batch: (limit / (64 * CORES)).max(1) as u64,
        }
    }

    /// Does what a change of state asks for.
    pub fn note(&self, page: &PageRef, moved: Moved) {
        self.count_in(moved);
        if moved.lists() {
            let mut list = self.list_of(page).lock();
            if !page.is_forgotten() {
                // Relaxed, as in `forget`: under the list's lock.
                page.seat().index.store(list.len() as u32, Ordering::Relaxed);
                list.push(Arc::clone(page));
            }
        }
    }

    fn list_of(&self, page: &Page) -> &Mutex<Vec<PageRef>> {
        &self.lists[usize::from(page.seat().list)]
    }

    fn count_in(&self, moved: Moved) {
        let (dirty, in_flight) = moved.adds();
        let added = (in_flight << DIRTY_BITS).wrapping_add(dirty);
        if added != 0 {
            let counts = &self.counts[rustix::thread::sched_getcpu() % CORES];
            // Relaxed, here and below: numbers that limits are compared with; they publish nothing.
            counts.sums.fetch_add(added as u64, Ordering::Relaxed);
            if counts.changes.fetch_add(1, Ordering::Relaxed) % self.batch == self.batch - 1 {
                self.show();
            }
        }
    }

    /// Shows the sums of now. Of two who do so at once, the later may show the older ones, until the next.
    fn show(&self) {
        let sums = self.sums();
        // Looked at first: where nothing has changed the line stays with its readers.
        if self.shown.load(Ordering::Relaxed) != sums {
            self.shown.store(sums, Ordering::Relaxed);
        }
    }

    fn sums(&self) -> u64 {
        let sums = self.counts.iter().map(|counts| counts.sums.load(Ordering::Relaxed));
        sums.fold(0, u64::wrapping_add)
    }

    /// Forgets a page, which leaves its list. The caller has a reference to it.
    pub fn forget(&self, page: &Page) {
        let moved = page.forget();
        self.count_in(moved);
        if moved.unlists() {
            let mut list = self.list_of(page).lock();
            let index = page.seat().index.load(Ordering::Relaxed) as usize;
            // Else a round has drained it.
            if list.get(index).is_some_and(|listed| std::ptr::eq(&raw const **listed, page)) {
                list.swap_remove(index);
                if let Some(moved) = list.get(index) {
                    moved.seat().index.store(index as u32, Ordering::Relaxed);
                }
            }
        }
    }

    /// Claims a page for writing; true for one caller.
    pub fn claim(&self, page: &Page) -> bool {
        page.claim().inspect(|moved| self.count_in(*moved)).is_some()
    }

    /// Number of dirty pages, those that are only being written not among them.
    pub fn count(&self) -> usize {
        numbers(self.sums()).0
    }

    /// Number of pages that are dirty or being written: what would be dirty should no write succeed.
    pub fn unwritten(&self) -> usize {
        let (dirty, in_flight) = self.dirty_and_in_flight();
        dirty + in_flight
    }

    /// Numbers of pages that are dirty, and that are being written and have not changed since; found in one look.
    pub fn dirty_and_in_flight(&self) -> (usize, usize) {
        numbers(self.sums())
    }

    /// The same as it was shown.
    pub fn about_unwritten(&self) -> usize {
        // Relaxed: as where it is shown.
        let (dirty, in_flight) = numbers(self.shown.load(Ordering::Relaxed));
        dirty + in_flight
    }

    /// Takes every list: whatever was changed before the call is among the pages.
    pub fn drain(&self) -> Vec<PageRef> {
        self.lists.iter().flat_map(|list| std::mem::take(&mut *list.lock())).collect()
    }

    /// Number of pages on the lists.
    #[cfg(test)]
    pub fn listed(&self) -> usize {
        self.lists.iter().map(|list| list.lock().len()).sum()
    }
}

/// The numbers of dirty pages and of those on their way.
fn numbers(sums: u64) -> (usize, usize) {
    let sums = sums as i64;
    // Either may be below zero for a moment: a page is claimed by one and was counted by another not yet.
    let dirty = i64::from(sums as i32);
    let in_flight = (sums - dirty) >> DIRTY_BITS;
    (dirty.max(0) as usize, in_flight.max(0) as usize)
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
        let pages = DirtyPages::new(1);
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
            let pages = DirtyPages::new(1);
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

    #[test]
    fn what_is_freed_leaves_its_list_and_the_others_stay() {
        let pages = DirtyPages::new(1);
        let mut made: Vec<_> =
            (0..100).map(|block| Page::fresh(40 + block, BlockKind::Bucket, 1, 1)).collect();
        made.iter().for_each(|page| pages.note(page, page.mark_dirty()));
        let mut at = 0;
        while made.len() > 10 {
            at = (at + 37) % made.len();
            let gone = made.swap_remove(at);
            pages.forget(&gone);
            pages.forget(&gone);
            assert_eq!(Arc::strong_count(&gone), 1);
            assert_eq!((pages.count(), pages.listed()), (made.len(), made.len()));
        }
        // A seat of before a round is another's afterwards.
        assert_eq!(pages.drain().len(), 10);
        let other = Page::fresh(7, BlockKind::Bucket, 1, 1);
        pages.note(&other, other.mark_dirty());
        made.iter().for_each(|page| pages.forget(page));
        assert_eq!((pages.count(), pages.listed()), (1, 1));
        assert!(Arc::ptr_eq(&pages.drain()[0], &other));
    }

    /// Pages made dirty on any core and written by others: the sums are exact afterwards, and what is shown is never
    /// further off than was said.
    #[test]
    fn what_is_shown_is_about_what_there_is() {
        const LIMIT: usize = 64 * CORES * 4;
        let pages = DirtyPages::new(LIMIT);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let pages = &pages;
                scope.spawn(move || {
                    for block in 0..300 {
                        let page = Page::fresh(thread * 1000 + block, BlockKind::Bucket, 1, 1);
                        pages.note(&page, page.mark_dirty());
                        if block % 3 == 0 {
                            assert!(pages.claim(&page));
                            pages.note(&page, page.finish(block % 2 == 0));
                        }
                    }
                });
            }
        });
        assert_eq!((pages.count(), pages.unwritten()), (8 * 250, 8 * 250));
        // Two may have shown their sums in the wrong order; then the next to show them mends it.
        for block in 0..4 * 4 * CORES as u64 {
            let page = Page::fresh(10_000 + block, BlockKind::Bucket, 1, 1);
            pages.note(&page, page.mark_dirty());
        }
        assert!(pages.about_unwritten().abs_diff(pages.unwritten()) <= LIMIT / 64);
    }
}
