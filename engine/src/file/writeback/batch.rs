//! Small files go home in batches: their new pages side by side in large requests, one flush for all, then a record for
//! each.
//!
//! What this leaves to others: what of a file is written and recorded, and in which order (`writeback`); files that
//! are large, or under write-back by somebody else just now.
//!
//! # Protocol
//! 1. Credits are taken for each file before any mutex is. The first may be waited for; the others are not, for who
//!    holds credits and waits for more could wait for itself. Where they are at an end the batch is: a small ring makes
//!    batches smaller, and another begins behind it.
//! 2. Then the write-back mutexes: all are tried, none is waited for, so that two who have files in common cannot
//!    wait for one another. What is not to be had now is left to whoever has it, and to the caller.
//! 3. Pages are selected and given places, file after file, each behind the last one's; all are written, in the order of
//!    their blocks, and waited for; then each file is recorded as it would be alone. The first record flushes the
//!    device, and the others find that done.
//!
//! *Side by side.* What only data records of the journal hold goes home before the head passes them, in places that it
//! has: it takes no credits and needs no record. Several threads write such batches, each the next one when its last
//! is over: while one waits for the device the others select and copy. A batch knows nothing of the others. Its thread
//! has the mutexes of its own files and has waited for none of them, and waits for nothing but the device, and for the
//! journal to keep what it has promised, which waits for no write-back: so no thread waits for another.
//! Who asked goes on when all threads have ended, and then looks at each file: its pages are in no set, or under write-back,
//! until their bytes have been written, so the head passes no record of a batch that is not over, and the flush before
//! it moves covers them all.

use crate::file::writeback::WriteBack;
use crate::file::writeback::{BATCH_PAGES, Order};
use crate::inode::InodeObj;
use crate::pages::{Marks, PAGES_END, Take};
use crate::scoped;
use crate::sync::{Arc, Mutex};

/// Pages of a file that is small enough.
const SMALL_PAGES: usize = 64;

/// Files of one batch: each takes credits of its own.
const BATCH_FILES: usize = 1024;

/// Batches that are written side by side.
const AT_ONCE: usize = 3;
/// Files that make another thread worth its start.
const FILES_PER_THREAD: usize = 128;

/// What it takes to write a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::file) enum Weight {
    /// It is small, or has nothing to write any more.
    Light,
    /// It is small, and was rewritten from nothing.
    Rewritten,
    Heavy,
}

impl WriteBack {
    /// Writes the small ones of these files home, as many as can be at once. A failure is noted with its file, which
    /// stays dirty: the caller goes over the files once more, one by one, and meets it then.
    pub fn write_batches(&self, files: &[Arc<InodeObj>], order: Order) {
        let mut files = files.iter();
        while let Some(batch) = Self::next_batch(&mut files, order) {
            self.write_batches_of(&batch, order);
        }
    }

    /// The same by several threads at once, for what takes no credits.
    pub fn write_side_by_side(&self, files: &[Arc<InodeObj>], order: Order) {
        debug_assert!(
            order.take == Take::Recorded,
            "who waits for credits has no mutex that others wait for"
        );
        let threads = (files.len() / FILES_PER_THREAD).clamp(1, AT_ONCE);
        let left = Mutex::new(files.iter());
        let next = || Self::next_batch(&mut left.lock(), order);
        let work = || {
            while let Some(batch) = next() {
                self.write_batches_of(&batch, order);
            }
        };
        scoped::share(threads, work);
    }

    /// The next small files that make a batch, of those that are left.
    fn next_batch<'f>(
        files: &mut std::slice::Iter<'f, Arc<InodeObj>>,
        order: Order,
    ) -> Option<Vec<&'f Arc<InodeObj>>> {
        let (mut batch, mut pages) = (Vec::new(), 0);
        while let Some(inode) = files.as_slice().first() {
            if let Some(count) = Self::small_pages(inode, order) {
                if batch.len() == BATCH_FILES || pages + count > BATCH_PAGES {
                    break;
                }
                batch.push(inode);
                pages += count;
            }
            files.next();
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// Writes these in as few batches as there are credits for.
    fn write_batches_of(&self, mut files: &[&Arc<InodeObj>], order: Order) {
        // One alone has nothing to share.
        while files.len() > 1 {
            match self.write_batch_of(files, order) {
                0 => return,
                done => files = &files[done..],
            }
        }
    }

    /// Pages that a file has to write, if it is small.
    pub fn small_pages(inode: &InodeObj, order: Order) -> Option<usize> {
        let pages = inode.data().pages.summary();
        let count = match order.take {
            Take::Dirty => pages.dirty,
            Take::All | Take::Recorded => pages.unwritten(),
        };
        (pages.truncate_pending.is_none() && (1..=SMALL_PAGES).contains(&count)).then_some(count)
    }

    /// What it takes to write a file for its frames.
    pub fn weight(inode: &InodeObj) -> Weight {
        let pages = inode.data().pages.summary();
        match pages.unwritten() {
            pages if pages > SMALL_PAGES => Weight::Heavy,
            _ if pages.truncate_pending.is_some() => Weight::Rewritten,
            _ => Weight::Light,
        }
    }

    /// Writes as many of these, from the first on, as there are credits for; their number.
    fn write_batch_of(&self, files: &[&Arc<InodeObj>], order: Order) -> usize {
        let mut rooms = Vec::with_capacity(files.len());
        for inode in files {
            let room = match order.take {
                Take::Recorded => None,
                _ => match self.room(inode, rooms.is_empty()) {
                    Ok(Some(room)) => Some(room),
                    // An error is met again, and told, by who goes over the files.
                    Ok(None) | Err(_) => break,
                },
            };
            rooms.push((*inode, room));
        }
        let count = rooms.len();
        let mut guards = Vec::with_capacity(rooms.len());
        let mut prepared = Vec::with_capacity(rooms.len());
        let mut goal = None;
        for (inode, room) in rooms {
            let Some(guard) = inode.data().write_back.try_lock() else { continue };
            // Emptied since it was looked at: it may be half rewritten. And whole runs may take long.
            if inode.data().pages.is_truncate_pending() || inode.data().marks() != Marks::Parts {
                continue;
            }
            let Some(one) = self.prepare(inode, 0..PAGES_END, order, room, goal) else { continue };
            goal = one.extents.last().map(|extent| extent.end()).or(goal);
            guards.push(guard);
            prepared.push(one);
        }
        let batched_upto =
            prepared.iter().map(|one| one.inode.data().pages.batched_upto()).max().unwrap_or(0);
        let mut extents: Vec<_> = prepared.iter_mut().flat_map(|one| &mut one.extents).collect();
        extents.sort_by_key(|extent| extent.block);
        self.submit(&mut extents, batched_upto, order.cause);
        let completed = self.meta.store().device().writes_completed();
        for (one, guard) in prepared.into_iter().zip(guards) {
            let data = one.inode.data();
            if self.record(one, completed).is_err() {
                self.note_failure(data);
            }
            drop(guard);
        }
        count
    }
}
