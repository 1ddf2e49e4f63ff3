//! What a cache of somebody else's, the kernel's above a mount, may hold of a file's pages, and when it has to let go
//! of them because a write went past it.
//!
//! It is known for the file as a whole, and counted down: after [`PATIENCE`] writes past the cache without a use of the
//! cache in between all of it is recalled at once, and whatever is written past it from then on needs nothing.
//!
//! # Protocol
//! 1. *Lend*: before a page's bytes are read for the cache (or a write through it is served), `left` becomes
//!    [`PATIENCE`]. The pages are in the cache already by then, locked until they are filled.
//! 2. *Recall*: after a write past the cache has taken effect, its writer looks at `left`. If it is 0, nothing is
//!    cached. Otherwise it is counted down to 1, and the pages written are recalled; a thread that finds it at 1
//!    recalls all, and afterwards sets it to 0, if it still is 1.
//! 3. A fence (SeqCst) lies between 1 and the reading, and between the effect and 2. So either the reader finds what
//!    was written, or the writer finds that there may be pages.
//!
//! Invariant: with 0 the cache holds no page. It can be set to 0 only if nothing was lent since a recall of all began,
//! for lending sets it to something else than 1; and that recall waited for the pages that were being filled.

use crate::sync::atomic::{AtomicU32, Ordering, fence};

/// Writes past the cache after whose last all of the cache is recalled: many, for what is read from it without asking
/// is not seen here, and would have to be read anew.
const PATIENCE: u32 = 4096;

/// What is to be recalled from a cache after a write past it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recall {
    /// Nothing is cached.
    Nothing,
    /// The pages written.
    Written,
    /// All pages of the file.
    All,
}

/// Whether pages may be cached.
#[derive(Debug)]
pub struct Lent {
    left: AtomicU32,
}

impl Lent {
    /// Nothing is cached.
    pub(super) fn new() -> Lent {
        Lent { left: AtomicU32::new(0) }
    }

    /// Rule 1.
    pub fn lend(&self) {
        // Relaxed, both: the fence orders them.
        if self.left.load(Ordering::Relaxed) != PATIENCE {
            self.left.store(PATIENCE, Ordering::Relaxed);
        }
        // SeqCst: rule 3; pairs with that of `recall`.
        fence(Ordering::SeqCst);
    }

    /// Rule 2.
    pub fn recall(&self) -> Recall {
        // SeqCst: rule 3; pairs with that of `lend`.
        fence(Ordering::SeqCst);
        // Relaxed, all: nothing is read through it, and the fence orders what is written before.
        if self.left.load(Ordering::Relaxed) == 0 {
            return Recall::Nothing;
        }
        let less = |left: u32| (left > 1).then(|| left - 1);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => Recall::Written,
            Err(0) => Recall::Nothing,
            Err(_) => Recall::All,
        }
    }

    /// All has been recalled, by one that was told to.
    pub fn recalled(&self) {
        // Release: a thread that finds 0 comes after the recall. Relaxed on failure: nothing is read through it.
        let _ = self.left.compare_exchange(1, 0, Ordering::Release, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn all_is_recalled_after_long_enough_and_nothing_then_until_it_is_used_again() {
        let lent = Lent::new();
        assert_eq!(lent.recall(), Recall::Nothing);
        lent.lend();
        for _ in 1..PATIENCE {
            assert_eq!(lent.recall(), Recall::Written);
        }
        assert_eq!((lent.recall(), lent.recall()), (Recall::All, Recall::All), "until it is done");
        lent.lend();
        lent.recalled();
        assert_eq!(lent.recall(), Recall::Written, "it was used meanwhile");
        while lent.recall() != Recall::All {}
        lent.recalled();
        assert_eq!(lent.recall(), Recall::Nothing);
    }
}

/// The file is one number; the cache's page is filled under its lock, which a recall waits for.
#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::sync::{Arc, Mutex, thread};

    struct Shared {
        lent: Lent,
        file: AtomicU32,
        page: Mutex<Option<u32>>,
    }

    impl Shared {
        fn new(left: u32) -> Arc<Shared> {
            Arc::new(Shared {
                lent: Lent { left: AtomicU32::new(left) },
                file: AtomicU32::new(0),
                page: Mutex::new((left > 0).then_some(0)),
            })
        }

        fn fill(&self) {
            let mut page = self.page.lock();
            self.lent.lend();
            *page = Some(self.file.load(Ordering::Relaxed));
        }

        fn write_past(&self, value: u32) {
            self.file.store(value, Ordering::Relaxed);
            let recall = self.lent.recall();
            if recall != Recall::Nothing {
                *self.page.lock() = None;
            }
            if recall == Recall::All {
                self.lent.recalled();
            }
        }
    }

    /// After a write past the cache has returned, the cache holds nothing older, however much was left.
    #[test]
    fn no_old_page_is_cached_behind_a_write_past_the_cache() {
        for left in [0, 1, 2] {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(2);
            builder.check(move || {
                let shared = Shared::new(left);
                let filler = thread::spawn({
                    let shared = shared.clone();
                    move || shared.fill()
                });
                let other = thread::spawn({
                    let shared = shared.clone();
                    move || shared.write_past(2)
                });
                shared.write_past(1);
                assert_ne!(*shared.page.lock(), Some(0), "an old page is cached");
                for thread in [filler, other] {
                    thread.join().expect("a model's threads do not panic");
                }
            });
        }
    }
}
