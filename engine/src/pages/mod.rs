//! The states of the pages of one regular file: which are dirty, logged or under write-back, and what the journal
//! holds of them; and all that is kept for its content ([`FileData`]), what is being read ahead of it included.
//! Nothing else knows which page is where; what a page contains is the cache's.
//!
//! # States
//! They say where the newest content of a page is:
//! - *clean*: in place on the device, or in a hole. The page is in no set.
//! - *dirty*: in the cache alone.
//! - *logged*: in the cache and in a data record of the journal, and not in place yet.
//! - *under write-back*: on its way to its place. The page is in no set but held by [`UnderWriteBack`].
//! - *being logged*: on its way into a data record, held by [`Logging`].
//!
//! A writer may make a page dirty in every state; a page that is under write-back, being logged or logged is then in
//! the dirty set besides, and that set counts: what is on its way is an older version.
//!
//! | from | to | role | while it holds | call |
//! | --- | --- | --- | --- | --- |
//! | any | dirty | writer | range | [`PageStates::dirtied`] |
//! | dirty, logged | under write-back | flusher, fsync, checkpoint | write-back mutex | [`PageStates::begin_write_back`] |
//! | under write-back | clean | the same | write-back mutex | [`WriteBackEnd::written`] |
//! | under write-back | dirty | the same | write-back mutex | [`WriteBackEnd::failed`], [`UnderWriteBack::put_back`], drop |
//! | dirty | being logged | fsync, rename, last close, batch | write-back mutex | [`PageStates::begin_logging`] |
//! | being logged | logged | the same | write-back mutex | [`LoggingEnd::logged`](token::LoggingEnd::logged) |
//! | being logged | dirty | the same | write-back mutex | [`Logging::abort`], drop |
//! | any | clean, not cached | truncation, punched hole | range, write-back mutex | [`PageStates::remove`] |
//! | clean, in place | dirty | fsync whose flush failed | nothing | [`PageStates::flush_ended`] |
//!
//! # Records
//! A page has a *record* while the journal's ring holds data records of it. A write-back of newer content makes the
//! record *stale*: it has to be superseded before an fsync that needs the newer content returns. Records are forgotten
//! ([`PageStates::forget_records`]) by the role that has logged what supersedes them, with the write-back mutex in hand,
//! and by a checkpoint once the ring's head has passed them ([`PageStates::look_below`]).
//!
//! # Truncation to nothing
//! It is *pending* from the time when the file is empty in memory until the record that drops the old content is logged;
//! until then the copies in [`OldContent`] stand for what only the journal has of that. Each such truncation begins a
//! new *generation*: work that was asked for in one is not done in the next.
//!
//! # Tokens
//! The serving thread outlives a panic, so what was taken must come back. A token that is dropped before it was finished,
//! by a panic or an error, makes all its pages dirty again, whatever became of them (one that is clean by now is passed
//! over by the next write-back), and notes a failure, which each open file is told of by its next fsync. Blocks that were
//! given to new pages are not given back, for they may be mapped by then: those that are not are free again after the
//! next mount. Pages whose data record is logged have a record: it is superseded before it may stand for newer content,
//! and the head does not pass it before they are in place.
//!
//! # Invariants
//! 1. There is at most one token of each kind, and its holder has the write-back mutex of the file.
//! 2. A page leaves the dirty and logged sets only into a token, or by removal: so a role that finds it in no set, and
//!    then no token, finds it in place, or recorded.
//! 3. A page with a record that is not in place yet is dirty, logged, or in a token: a checkpoint finds it there.
//! 4. A file that has dirty or logged pages, or a truncation pending, and no token, is on the write-back queue once its
//!    writer has returned; it leaves the queue by [`PageStates::dequeue_if_clean`] alone.
//!
//! # Locks
//! All of it is behind one mutex, taken by each call for a few instructions. Below it are latches of frames, and, where a
//! token is finished, the locks of what is set aside and of volatile blocks; above it are the locks of the write-back
//! queue and of the files with records. What is kept are numbers of pages, positions in the journal and counts, and no
//! references.

mod data;
mod delayed;
mod old_content;
pub(crate) mod readahead;
mod sets;
mod token;

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub(crate) use data::Marks;
pub use data::{ErrorMark, FileData};
pub(crate) use delayed::Delayed;
pub(crate) use old_content::{OldContent, OldContentBudget, OldPage};
pub(crate) use sets::{Below, Summary, Take};
pub(crate) use token::{Logging, UnderWriteBack, WriteBackEnd};

use crate::device::BLOCK_SIZE;
use crate::format::{MAX_FILE_SIZE, Position};
use crate::planted::{self, Bug};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use sets::Sets;
use std::ops::Range;

/// Bytes of a page: of a block, too.
pub(crate) const PAGE: u64 = BLOCK_SIZE as u64;
/// Page number after the last that a file can have.
pub(crate) const PAGES_END: u64 = MAX_FILE_SIZE / PAGE;

/// The page of a byte.
pub(crate) fn page_of(offset: u64) -> u64 {
    offset / PAGE
}

/// The first page that begins at or after a byte.
pub(crate) fn page_after(offset: u64) -> u64 {
    offset.div_ceil(PAGE)
}

/// Pages that lie wholly within bytes.
pub(crate) fn whole_pages(bytes: Range<u64>) -> Range<u64> {
    let start = page_after(bytes.start);
    start..page_of(bytes.end).max(start)
}

/// The states of the pages of one file, see the module.
#[derive(Debug, Default)]
pub(crate) struct PageStates {
    sets: Mutex<Sets>,
    /// Failures of write-back so far.
    failures: AtomicU64,
}

/// Which pages a write-back takes.
#[derive(Debug)]
pub(crate) struct Selection {
    /// The pages to choose from.
    pub pages: Range<u64>,
    /// By their state.
    pub take: Take,
    /// At most so many.
    pub most: usize,
    /// The page of the recorded end, if that lies within a page: its zeroed rest must be down before the recorded size
    /// grows, so it goes with pages beyond it.
    pub tail: Option<u64>,
}

impl PageStates {
    /// Pages were made dirty under their range, which have blocks.
    pub fn dirtied(&self, pages: Vec<u64>) {
        self.sets.lock().dirty.extend(pages);
    }

    /// The same where blocks were set aside for some of them: how many of the extent blocks that came with those they do not
    /// need.
    #[must_use = "somebody else may need them"]
    pub fn delayed(&self, pages: Vec<u64>, delayed: &Delayed) -> u64 {
        let mut sets = self.sets.lock();
        sets.dirty.extend(pages);
        sets.delay(delayed)
    }

    /// Takes pages out of the dirty and logged sets, to be written in place. The caller has the write-back mutex. Also
    /// whether the page of the recorded end stays behind, dirty.
    pub fn begin_write_back(&self, selection: Selection) -> (UnderWriteBack<'_>, bool) {
        let (pages, tail_waits) = self.sets.lock().select(selection);
        (UnderWriteBack::new(self, pages), tail_waits)
    }

    /// Takes all dirty pages below `end` out of their set, to be logged; those beyond have writers that have not set the
    /// size yet. The caller has the write-back mutex, and the file is not yet among those with records: an fsync that
    /// finds no dirty page, and a checkpoint that finds no record, must see that some may be on their way.
    pub fn begin_logging(&self, end: u64) -> Logging<'_> {
        let mut sets = self.sets.lock();
        sets.being_logged = true;
        let beyond = sets.dirty.split_off(&end);
        let pages = std::mem::replace(&mut sets.dirty, beyond).into_iter().collect();
        drop(sets);
        Logging::new(self, pages)
    }

    /// As [`PageStates::begin_logging`], of these pages alone, as far as they are dirty.
    pub fn begin_logging_of(&self, pages: impl Iterator<Item = u64>) -> Logging<'_> {
        let mut sets = self.sets.lock();
        sets.being_logged = true;
        let pages = pages.filter(|page| sets.dirty.remove(page)).collect();
        drop(sets);
        Logging::new(self, pages)
    }

    /// A record of a batch that ends there has pages of this file. The caller has the write-back mutex.
    pub fn batched(&self, end: Position) {
        self.sets.lock().batched_upto = end;
    }

    /// The position after the last record of a batch that has pages of this file: before that is durable, none of them may
    /// be in place. Who writes there has the write-back mutex.
    pub fn batched_upto(&self) -> Position {
        if planted::is(Bug::BatchHomeBeforeRecord) {
            return 0;
        }
        self.sets.lock().batched_upto
    }

    /// The pages are cached no more, and no block is set aside for `reserved` of them. The caller has their range and
    /// the write-back mutex. How many extent blocks are not needed any more.
    pub fn remove(&self, pages: &Range<u64>, reserved: u64) -> u64 {
        let mut sets = self.sets.lock();
        sets.remove(pages);
        sets.unreserve(reserved)
    }

    /// The ring holds no data records of these pages that count any more. The caller has the write-back mutex.
    pub fn forget_records(&self, pages: &Range<u64>) {
        self.sets.lock().forget_records(pages);
    }

    /// The same for single pages.
    pub fn forget_records_of(&self, pages: &[u64]) {
        let mut sets = self.sets.lock();
        for page in pages {
            sets.stale.remove(page);
            sets.records.remove(page);
        }
    }

    /// Dirty pages have got blocks, and need none of so many that were set aside. How many extent blocks are not needed any
    /// more.
    pub fn unreserve(&self, count: u64) -> u64 {
        self.sets.lock().unreserve(count)
    }

    /// Blocks set aside for dirty pages.
    pub fn reserved(&self) -> u64 {
        self.sets.lock().reserved
    }

    /// Some numbers, all of one moment.
    pub fn summary(&self) -> Summary {
        self.sets.lock().summary()
    }

    /// Whether some of these pages are dirty.
    pub fn has_dirty(&self, pages: Range<u64>) -> bool {
        self.sets.lock().has_dirty(pages)
    }

    /// Whether the recorded size has to wait: for a pending truncation, or for this page, which is dirty.
    pub fn holds_up_size(&self, tail: Option<u64>) -> bool {
        let sets = self.sets.lock();
        sets.truncate_pending || tail.is_some_and(|page| sets.dirty.contains(&page))
    }

    /// Whether the ring holds data records of some of these pages.
    pub fn has_records(&self, pages: Range<u64>) -> bool {
        self.sets.lock().records.range(pages).next().is_some()
    }

    /// Whether the page is in place with newer content than its record.
    pub fn is_stale(&self, page: u64) -> bool {
        self.sets.lock().stale.contains(&page)
    }

    /// All such pages.
    pub fn stale(&self) -> Vec<u64> {
        self.sets.lock().stale.iter().copied().collect()
    }

    /// Whether an fsync finds nothing to write in these pages, nor anything that may come back to be written.
    pub fn is_synced(&self, pages: &Range<u64>) -> bool {
        self.sets.lock().is_synced(pages)
    }

    /// Whether a write-back of everything finds nothing to do, and nothing that may come back to it.
    pub fn is_written(&self) -> bool {
        let sets = self.sets.lock();
        sets.is_synced(&(0..u64::MAX)) && sets.logged.is_empty()
    }

    /// Whether nothing here would be missed, if that can be seen without waiting. What is in place but has a record
    /// counts: a later write-back must know of it.
    pub fn is_idle(&self) -> bool {
        let Some(sets) = self.sets.try_lock() else { return false };
        // An fsync is to tell of failures.
        sets.is_clean() && sets.records.is_empty() && sets.queued.is_none() && self.failures() == 0
    }

    // What the journal holds.

    /// Pages whose content the journal alone has durably, with the position after the oldest record.
    pub fn only_in_records(&self) -> Vec<(u64, Position)> {
        self.sets.lock().only_in_records()
    }

    /// What of the file only records below `upto` hold; records below `head` are forgotten first. Also whether the file
    /// has nothing in the journal at all. For a checkpoint, which has the list of such files locked.
    pub fn look_below(&self, head: Position, upto: Position) -> (Below, bool) {
        self.sets.lock().look_below(head, upto)
    }

    // Truncation to nothing.

    /// Whether a truncation to nothing is pending: what is mapped must not be read.
    pub fn is_truncate_pending(&self) -> bool {
        self.sets.lock().truncate_pending
    }

    /// The file is empty, and the record that drops its old content, of so many extents at most, is to come. The caller
    /// has the whole range and the write-back mutex, and has removed the pages.
    pub fn begin_truncate(&self, extents: usize) {
        let mut sets = self.sets.lock();
        sets.truncate_pending = true;
        sets.truncate_extents = extents;
        sets.truncate_generation += 1;
        sets.lost = false;
        sets.forget_records(&(0..u64::MAX));
    }

    /// The record that drops the old content is logged. The caller has the write-back mutex.
    pub fn truncate_recorded(&self) {
        self.sets.lock().truncate_recorded();
    }

    /// The file is gone. The caller has the whole range and the write-back mutex, and has removed the pages.
    pub fn discard(&self) {
        let mut sets = self.sets.lock();
        sets.truncate_recorded();
        sets.unflushed.clear();
    }

    /// Keeps copies of old content that the journal alone has. The caller is about to truncate.
    pub fn keep_old(&self, old: OldContent) {
        self.sets.lock().old = old;
    }

    /// What `with` makes of each copy, and its block, that records up to `upto` hold.
    pub fn old_below<T>(&self, upto: Position, with: impl FnMut(&OldPage) -> T) -> Vec<T> {
        self.sets.lock().old.below(upto).map(with).collect()
    }

    /// Those copies are in place.
    pub fn old_in_place(&self, upto: Position) {
        self.sets.lock().old.in_place(upto);
    }

    // Flushes.

    /// Pages written in place that no flush is known to cover, with the device's count of writes then.
    pub fn unflushed(&self) -> Vec<(u64, u64)> {
        self.sets.lock().unflushed.iter().map(|(page, count)| (*page, *count)).collect()
    }

    /// So many writes of the device are flushed.
    pub fn flushed(&self, count: u64) {
        self.sets.lock().unflushed.retain(|_, written| *written > count);
    }

    /// A flush failed for a page that has left the cache since: its content is gone.
    pub fn is_lost(&self) -> bool {
        self.sets.lock().lost
    }

    /// A flush of these pages, as [`PageStates::unflushed`] told them, is over. Where it has failed, `redirty` makes the
    /// frame of a page dirty, and tells whether that is news; `None`: it is cached no more, and its content is lost.
    /// Whether any content of the file is lost.
    pub fn flush_ended(
        &self,
        pages: Vec<(u64, u64)>,
        is_flushed: bool,
        mut redirty: impl FnMut(u64) -> Option<bool>,
    ) -> bool {
        let mut sets = self.sets.lock();
        for (page, count) in pages {
            // Else it was written once more, or removed.
            if sets.unflushed.get(&page) != Some(&count) {
                continue;
            }
            if is_flushed {
                sets.unflushed.remove(&page);
            } else if let Some(is_news) = redirty(page) {
                if is_news {
                    sets.dirty.insert(page);
                }
                sets.unflushed.remove(&page);
            } else {
                sets.lost = true;
            }
        }
        sets.lost
    }

    // The file's place in the write-back queue; changed with the queue locked.

    /// The file has this number in the queue; the generation of its truncation.
    pub fn enqueued(&self, number: u64) -> u64 {
        let mut sets = self.sets.lock();
        sets.queued = Some(number);
        sets.truncate_generation
    }

    /// Its number in the queue.
    pub fn queued(&self) -> Option<u64> {
        self.sets.lock().queued
    }

    /// Notes that the file leaves the queue, if nothing of its pages is left to write and `and` holds. The caller has the
    /// write-back mutex, so that nothing comes back.
    pub fn dequeue_if_clean(&self, and: impl FnOnce() -> bool) -> bool {
        let mut sets = self.sets.lock();
        let leaves = sets.is_clean() && and();
        if leaves {
            sets.queued = None;
        }
        leaves
    }

    /// The page where the next write-back for want of frames begins.
    pub fn cursor(&self) -> u64 {
        self.sets.lock().cursor
    }

    /// Moves it.
    pub fn set_cursor(&self, page: u64) {
        self.sets.lock().cursor = page;
    }

    // Failures.

    /// Notes a failure of write-back, to be told to every open file.
    pub fn note_failure(&self) {
        // Release: pairs with the Acquire in `failures`.
        self.failures.fetch_add(1, Ordering::Release);
    }

    /// Failures so far.
    pub fn failures(&self) -> u64 {
        // Acquire: pairs with the Release in `note_failure`.
        self.failures.load(Ordering::Acquire)
    }

    /// Whether copies of old content are kept.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub fn has_old(&self) -> bool {
        !self.sets.lock().old.is_empty()
    }
}
