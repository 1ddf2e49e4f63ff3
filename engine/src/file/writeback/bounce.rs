//! Memory for the copies that write-back makes of pages: shares of a bounded whole.
//!
//! Nobody waits for a share, for whoever has one may wait for the journal, and the journal for write-back: when all is
//! taken, who asks gets the least that a request needs, and so writes in smaller rounds. The whole is exceeded by that
//! much for each thread at the most.

use crate::pages::readahead::REQUEST_PAGES;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The least share: a request of the largest size.
const LEAST: usize = REQUEST_PAGES as usize;

/// See the module.
#[derive(Debug)]
pub(in crate::file) struct BounceBuffers {
    most: usize,
    // Relaxed: a number to compare with; it orders nothing.
    taken: AtomicUsize,
}

/// So many pages, until this is dropped.
#[derive(Debug)]
pub(in crate::file) struct Share<'s> {
    of: &'s BounceBuffers,
    pages: usize,
}

impl BounceBuffers {
    /// All of `most` pages.
    pub fn new(most: usize) -> BounceBuffers {
        BounceBuffers { most, taken: AtomicUsize::new(0) }
    }

    /// Up to `want` pages.
    pub fn share(&self, want: usize) -> Share<'_> {
        let left = self.most.saturating_sub(self.taken.load(Relaxed));
        let pages = want.min(left.max(LEAST));
        self.taken.fetch_add(pages, Relaxed);
        Share { of: self, pages }
    }
}

impl Share<'_> {
    /// Pages of the share.
    pub fn pages(&self) -> usize {
        self.pages
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.of.taken.fetch_sub(self.pages, Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_is_left_but_never_less_than_a_request() {
        let bounce = BounceBuffers::new(1000);
        let first = bounce.share(700);
        let second = bounce.share(700);
        assert_eq!((first.pages(), second.pages()), (700, 300));
        assert_eq!(bounce.share(700).pages(), LEAST);
        assert_eq!(bounce.share(3).pages(), 3);
        drop(first);
        assert_eq!(bounce.share(1000).pages(), 700);
    }
}
