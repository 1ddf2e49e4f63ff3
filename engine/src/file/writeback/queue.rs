//! When dirty pages are written: the files that have some, by whom and why they are taken from the list.
//!
//! The durable profile writes what is old, what was rewritten, and what is too much. The scratch profile writes only
//! what is too much, and without spill space nothing; then what a file takes beside its pages is charged to the room.
//! This is the list of the files; [`flusher`](super::flusher) takes them from it. What both leave to others: how pages are written
//! (`writeback`).

use crate::Result;
use crate::file::data_path::DataPath;
use crate::file::writeback::Order;
use crate::inode::InodeObj;
use crate::pages::FileData;
use crate::pages::PAGE;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Bytes that a file on the list takes beside its pages and its index: its inode, and what is kept for its data.
const LISTED_BYTES: u64 = 1280;
/// Files that leave the list with its lock held, which others wait for.
const UNLISTED_AT_ONCE: usize = 64;
/// Most blocks charged in advance, or given back late.
const CHARGE: u64 = 32;

/// A file with something to write.
#[derive(Debug)]
pub(super) struct Listed {
    inode: Arc<InodeObj>,
    pub(super) since: Instant,
}

#[derive(Debug)]
pub(super) struct Work {
    /// In the order of their age, by numbers that only grow. There may be hundreds of thousands: nobody goes over all
    /// of them but who syncs all.
    pub(super) files: BTreeMap<u64, Listed>,
    pub(super) next: u64,
    /// Frames are needed: the file with this number, or the next, has its turn; behind the last comes the first.
    pub(super) turn: u64,
    /// Rewritten files, and which rewriting is to go home.
    pub(super) urgent: Vec<(Arc<InodeObj>, u64)>,
    pub(super) pressed: bool,
    /// The background is at work because it was pressed; so many batches it has written so.
    pub(super) relieving: bool,
    pub(super) batches: u64,
    pub(super) running: bool,
    pub(super) stop: bool,
}

/// The files with something to write, and who waits for whom.
#[derive(Debug)]
pub(in crate::file) struct WriteBackWork {
    pub(super) inside: Mutex<Work>,
    /// Wakes the background.
    pub(super) wake: Condvar,
    /// Tells of each batch of the background.
    pub(super) relieved: Condvar,
    /// Files on the list.
    // Relaxed, as is `charged`: numbers to compare with limits; the list is behind its lock.
    pub(super) listed: AtomicUsize,
    /// Blocks charged for them.
    pub(super) charged: AtomicU64,
}

impl Default for WriteBackWork {
    fn default() -> Self {
        let work = Work {
            files: BTreeMap::new(),
            next: 0,
            turn: 0,
            urgent: Vec::new(),
            pressed: false,
            relieving: false,
            batches: 0,
            running: false,
            stop: false,
        };
        WriteBackWork {
            inside: Mutex::new(work),
            wake: Condvar::new(),
            relieved: Condvar::new(),
            listed: AtomicUsize::new(0),
            charged: AtomicU64::new(0),
        }
    }
}

impl Work {
    /// The files from the one on whose turn it is, up to the last.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = (u64, &Arc<InodeObj>)> {
        let is_last = self.files.range(self.turn..).next().is_none();
        let from = if is_last { 0 } else { self.turn };
        self.files.range(from..).map(|(number, listed)| (*number, &listed.inode))
    }
}

impl Work {
    /// Puts a file at the end, as one whose oldest change is of now; how often it has been emptied.
    fn append(&mut self, inode: Arc<InodeObj>) -> u64 {
        let generation = inode.data().pages.enqueued(self.next);
        self.files.insert(self.next, Listed { inode, since: Instant::now() });
        self.next += 1;
        generation
    }

    /// Moves files to the end that have been on the list for so long, up to `most` of them; these are they, with how
    /// often each has been emptied.
    pub(super) fn take_expired(&mut self, expire: Duration, most: usize) -> Vec<(Arc<InodeObj>, u64)> {
        let (mut expired, now) = (Vec::new(), Instant::now());
        while expired.len() < most
            && let Some(first) = self.files.first_entry()
            && now.duration_since(first.get().since) >= expire
        {
            expired.push(first.remove().inode);
        }
        let moved = |inode: Arc<InodeObj>| (Arc::clone(&inode), self.append(inode));
        expired.into_iter().map(moved).collect()
    }
}

impl WriteBackWork {
    pub(super) fn lock(&self) -> MutexGuard<'_, Work> {
        self.inside.lock()
    }

    fn remove(&self, work: &mut Work, number: u64) {
        work.files.remove(&number);
        self.listed.store(work.files.len(), Relaxed);
    }
}

/// Notes that a file is on the list no more, if nothing of it is left to write.
fn leaves_list(inode: &InodeObj) -> bool {
    // Pages in the hands of a write-back are in no set, and come back if it fails.
    let nothing_in_flight = inode.data().write_back.try_lock();
    nothing_in_flight.is_some() && leaves_list_quiet(inode.data())
}

/// The same by a caller who has the write-back mutex.
fn leaves_list_quiet(data: &FileData) -> bool {
    data.pages.dequeue_if_clean(|| data.size() == data.logged_size())
}

impl DataPath {
    /// Puts a file on the list of those to write, once.
    pub(in crate::file) fn list(&self, inode: &Arc<InodeObj>) {
        let is_listed = || inode.data().pages.queued().is_some();
        if is_listed() {
            return;
        }
        let mut work = self.work.lock();
        if !is_listed() {
            self.append(&mut work, inode);
        }
    }

    /// Puts a file that was emptied at the end of the list: nothing of it is older, and it may be half rewritten.
    pub(in crate::file) fn list_emptied(&self, inode: &Arc<InodeObj>) {
        let mut work = self.work.lock();
        let listed = inode.data().pages.queued();
        if let Some(number) = listed {
            work.files.remove(&number);
        }
        self.append(&mut work, inode);
    }

    fn append(&self, work: &mut Work, inode: &Arc<InodeObj>) {
        work.append(Arc::clone(inode));
        self.work.listed.store(work.files.len(), Relaxed);
        if work.files.len() == 1 {
            self.work.wake.notify_one();
        }
    }

    /// Takes files off the list that are idle.
    pub(in crate::file) fn unlist(&self, inodes: &[Arc<InodeObj>]) {
        for some in inodes.chunks(UNLISTED_AT_ONCE) {
            let mut work = self.work.lock();
            for inode in some {
                let listed = inode.data().pages.queued();
                if let Some(number) = listed
                    && leaves_list(&**inode)
                {
                    self.work.remove(&mut work, number);
                }
            }
        }
    }

    /// The same for files that have just been written, where their times are not owed either: nothing else would look at
    /// them until they are old.
    pub(in crate::file) fn unlist_written(&self, inodes: &[Arc<InodeObj>]) {
        let is_written = |inode: &&Arc<InodeObj>| {
            let (data, pages) = (inode.data(), inode.data().pages.summary());
            pages.is_queued && pages.is_clean() && data.size() == data.logged_size()
        };
        let settled = inodes.iter().filter(is_written).filter(|inode| !inode.has_lazy_times());
        let settled: Vec<_> = settled.cloned().collect();
        self.unlist(&settled);
    }

    /// The same by a caller who has the write-back mutex.
    pub(in crate::file) fn unlist_quiet(&self, data: &FileData) {
        let mut work = self.work.lock();
        let listed = data.pages.queued();
        if let Some(number) = listed
            && leaves_list_quiet(data)
        {
            self.work.remove(&mut work, number);
            drop(work);
            self.discharge();
        }
    }

    /// Every file with something to write, for a sync of all.
    pub(in crate::file) fn listed(&self) -> Vec<Arc<InodeObj>> {
        self.work.lock().files.values().map(|listed| Arc::clone(&listed.inode)).collect()
    }

    /// Has the background write a rewritten file home soon, unless it is emptied once more before that.
    pub(in crate::file) fn hurry(&self, inode: &Arc<InodeObj>, rewriting: u64) {
        self.work.lock().urgent.push((Arc::clone(inode), rewriting));
        self.work.wake.notify_one();
    }

    /// Whether more than so many pages are dirty, or too many files.
    pub(in crate::file) fn is_crowded(&self, dirty: usize) -> bool {
        self.pool.dirty() > dirty || self.work.listed.load(Relaxed) > self.options.files
    }

    /// Whether the file whose turn it is, is a small one.
    pub(in crate::file) fn next_is_small(&self) -> bool {
        let next = self.work.lock().in_turn().next().map(|(_, inode)| Arc::clone(inode));
        next.is_some_and(|inode| Self::small_pages(&inode, Order::PRESSURE).is_some())
    }

    /// Charges the room for what files take beside their pages, where they never leave memory. A file that is on
    /// the list may go on without, for what it overwrites has its room.
    pub(in crate::file) fn charge(&self, inode: &InodeObj) -> Result<()> {
        let due = self.due(1);
        let charged = self.work.charged.load(Relaxed);
        if due <= charged {
            return Ok(());
        }
        let ahead = self.charged_ahead();
        let more = match self.meta.reserve(due - charged + ahead) {
            Ok(()) => due - charged + ahead,
            Err(_) if inode.data().pages.queued().is_some() => return Ok(()),
            Err(_) => {
                self.meta.reserve(due - charged)?;
                due - charged
            }
        };
        self.work.charged.fetch_add(more, Relaxed);
        Ok(())
    }

    /// Blocks that the files on the list, and so many more, are to be charged for, with what the indexes take.
    fn due(&self, more: u64) -> u64 {
        let files = self.work.listed.load(Relaxed) as u64 + more;
        (files * LISTED_BYTES + self.pool.index_bytes() as u64).div_ceil(PAGE)
    }

    /// Gives back what was charged for files that are on the list no more.
    fn discharge(&self) {
        let (due, ahead) = (self.due(0), self.charged_ahead());
        let charged = self.work.charged.load(Relaxed);
        if charged > due + 2 * ahead
            && self.work.charged.compare_exchange(charged, due + ahead, Relaxed, Relaxed).is_ok()
        {
            self.meta.unreserve(charged - due - ahead);
        }
    }

    /// Blocks charged before they are due: few where there are few, for nobody has the use of them.
    fn charged_ahead(&self) -> u64 {
        (self.pool.len() as u64 / 64).clamp(1, CHARGE)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
