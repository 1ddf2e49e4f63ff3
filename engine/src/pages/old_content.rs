//! Copies of what a file held before it was truncated to nothing, where only data records of the journal have that
//! durably.
//!
//! An emptied file has its old blocks until the record of its new content, and shows the old content after a crash
//! before that. What of this is logged lies in records that the ring's head may come to meanwhile. So copies of these
//! pages are kept: a checkpoint that is to pass the records writes them in place first, and the record of the new content
//! drops the others, which then have cost no write at all.
//!
//! # Invariants
//! 1. Copies are made, written and dropped under the file's write-back mutex. A file that has some has a truncation
//!    pending and is among those with records; the blocks that its copies name are its own until the record that drops
//!    them all.
//! 2. Files keep few pages each, and together an eighth of what bounce buffers may take: beyond that, and where a page
//!    cannot be copied, what is logged is written in place before the file is truncated.

use crate::format::Position;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Pages that one file keeps at the most.
const MOST_OF_FILE: usize = 32;

/// Pages that may be kept of all files together.
#[derive(Debug)]
pub(crate) struct OldContentBudget {
    most: usize,
    // Relaxed: a number to compare with; it orders nothing.
    taken: Arc<AtomicUsize>,
}

impl OldContentBudget {
    /// Beside so many pages of bounce buffers.
    pub fn beside(bounce: usize) -> OldContentBudget {
        OldContentBudget { most: (bounce / 8).max(MOST_OF_FILE), taken: Arc::default() }
    }

    /// Room for so many pages of one file, if there is that much.
    pub fn share(&self, pages: usize) -> Option<Share> {
        let more = |taken: usize| (taken + pages <= self.most).then_some(taken + pages);
        let taken = pages <= MOST_OF_FILE && self.taken.fetch_update(Relaxed, Relaxed, more).is_ok();
        taken.then(|| Share { of: Arc::clone(&self.taken), pages })
    }
}

/// So many pages, until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<AtomicUsize>,
    pages: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.fetch_sub(self.pages, Relaxed);
    }
}

/// The copy of a page.
#[derive(Debug)]
pub(crate) struct OldPage {
    /// Its place.
    pub block: u64,
    /// Position after the oldest record whose content is not in place.
    pub first: Position,
    /// A block.
    pub bytes: Box<[u8]>,
}

/// What one file keeps.
#[derive(Debug, Default)]
pub(crate) struct OldContent {
    pages: Vec<OldPage>,
    share: Option<Share>,
}

impl OldContent {
    /// These pages, for which there is room.
    pub fn new(mut pages: Vec<OldPage>, share: Share) -> OldContent {
        pages.sort_unstable_by_key(|page| page.block);
        OldContent { pages, share: Some(share) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Those that records up to `upto` hold, by their blocks.
    pub(super) fn below(&self, upto: Position) -> impl Iterator<Item = &OldPage> {
        self.pages.iter().filter(move |page| page.first <= upto)
    }

    pub(super) fn is_below(&self, upto: Position) -> bool {
        self.below(upto).next().is_some()
    }

    pub(super) fn clear(&mut self) {
        *self = OldContent::default();
    }

    /// Those are in place.
    pub(super) fn in_place(&mut self, upto: Position) {
        self.pages.retain(|page| page.first > upto);
        if self.pages.is_empty() {
            self.share = None;
        }
    }
}
