//! The write-back queue: the files with something to write, and what the flusher is to do with them.
//!
//! The durable profile writes what is old, what was rewritten, and what is too much. The scratch profile writes only
//! what is too much, and without spill space nothing; then what a file takes beside its pages is charged to the room.
//! [`Flusher`](super::flusher::Flusher) takes files from the queue. What both leave to others: how pages are written
//! (`writeback`).

use crate::Result;
use crate::blocking;
use crate::cache::FramePool;
use crate::inode::InodeObj;
use crate::meta::Meta;
use crate::pages::{FileData, PAGE};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::sync::{Arc, Condvar, Mutex};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Bytes that a file on the queue takes beside its pages and its index: its inode, and what is kept for its data.
const QUEUED_BYTES: u64 = 1280;
/// Files that leave the queue with its lock held, which others wait for.
const REMOVED_AT_ONCE: usize = 64;
/// Most blocks charged in advance, or given back late.
const CHARGE: u64 = 32;
/// Files that the flusher writes, because it is time, before it looks whether there is something more urgent.
const EXPIRED_AT_ONCE: usize = 1024;
/// Batches of the flusher that a sync of scratch files waits for at the most.
const AWAITED_BATCHES: u64 = 4;

/// A file, and the generation of its truncation that is to be written.
pub(in crate::file) type Due = (Arc<InodeObj>, u64);

/// A file with something to write.
#[derive(Debug)]
struct Queued {
    inode: Arc<InodeObj>,
    since: Instant,
}

#[derive(Debug, Default)]
struct Inside {
    /// In the order of their age, by numbers that only grow. There may be hundreds of thousands: nobody goes over all
    /// of them but a sync of all.
    files: BTreeMap<u64, Queued>,
    next: u64,
    /// Frames are needed: the file with this number, or the next, has its turn; behind the last comes the first.
    turn: u64,
    /// Rewritten files, and which generation is to go home.
    urgent: Vec<Due>,
    under_pressure: bool,
    /// The flusher is at work because of pressure; so many batches it has written so.
    is_relieving_pressure: bool,
    batches: u64,
    is_running: bool,
    stops: bool,
}

impl Inside {
    /// The files from the one on whose turn it is, up to the last.
    fn in_turn(&self) -> impl Iterator<Item = (u64, &Arc<InodeObj>)> {
        let is_last = self.files.range(self.turn..).next().is_none();
        let from = if is_last { 0 } else { self.turn };
        self.files.range(from..).map(|(number, queued)| (*number, &queued.inode))
    }

    /// Puts a file at the end, as one whose oldest change is of now; the generation of its truncation.
    fn append(&mut self, inode: Arc<InodeObj>) -> u64 {
        let generation = inode.data().pages.enqueued(self.next);
        self.files.insert(self.next, Queued { inode, since: Instant::now() });
        self.next += 1;
        generation
    }

    /// Moves files to the end that have been on the queue for so long, up to `most` of them; these are they.
    fn take_expired(&mut self, expire: Duration, most: usize) -> Vec<Due> {
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

    fn is_busy(&self) -> bool {
        self.is_running && !self.stops && (self.under_pressure || self.is_relieving_pressure)
    }
}

/// What the flusher is to do in a turn.
#[derive(Debug)]
pub(super) struct Turn {
    /// Files that were rewritten from nothing, to be recorded soon.
    pub rewritten: Vec<Due>,
    /// Files that it is time for.
    pub due: Vec<Due>,
    /// Whether there are too many dirty pages or files.
    pub under_pressure: bool,
}

/// The files with something to write, and who waits for whom.
#[derive(Debug)]
pub(in crate::file) struct WriteBackQueue {
    meta: Arc<Meta>,
    pool: Arc<FramePool>,
    /// Files that may stay on the queue.
    limit: usize,
    inside: Mutex<Inside>,
    /// Wakes the flusher.
    wake: Condvar,
    /// Tells of each batch of the flusher.
    batch_written: Condvar,
    /// Files on the queue.
    // Relaxed, as is `charged`: numbers to compare with limits; the queue is behind its lock.
    len: AtomicUsize,
    /// Blocks charged for them.
    charged: AtomicU64,
}

/// Notes that a file is on the queue no more, if nothing of it is left to write.
fn leaves(inode: &InodeObj) -> bool {
    // Pages under write-back are in no set, and come back if it fails.
    let nothing_under_way = inode.data().write_back.try_lock();
    nothing_under_way.is_some() && leaves_quiet(inode.data())
}

/// The same by a caller who has the write-back mutex.
fn leaves_quiet(data: &FileData) -> bool {
    data.pages.dequeue_if_clean(|| data.size() == data.logged_size())
}

impl WriteBackQueue {
    /// An empty queue, on which so many files may stay.
    pub fn new(meta: Arc<Meta>, pool: Arc<FramePool>, limit: usize) -> WriteBackQueue {
        WriteBackQueue {
            meta,
            pool,
            limit,
            inside: Mutex::new(Inside::default()),
            wake: Condvar::new(),
            batch_written: Condvar::new(),
            len: AtomicUsize::new(0),
            charged: AtomicU64::new(0),
        }
    }

    /// Puts a file on the queue, once.
    pub fn add(&self, inode: &Arc<InodeObj>) {
        let is_queued = || inode.data().pages.queued().is_some();
        if is_queued() {
            return;
        }
        let mut inside = self.inside.lock();
        if !is_queued() {
            self.append(&mut inside, inode);
        }
    }

    /// Puts a file that was emptied at the end of the queue: nothing of it is older, and it may be half rewritten.
    pub fn add_emptied(&self, inode: &Arc<InodeObj>) {
        let mut inside = self.inside.lock();
        let queued = inode.data().pages.queued();
        if let Some(number) = queued {
            inside.files.remove(&number);
        }
        self.append(&mut inside, inode);
    }

    fn append(&self, inside: &mut Inside, inode: &Arc<InodeObj>) {
        inside.append(Arc::clone(inode));
        self.len.store(inside.files.len(), Relaxed);
        if inside.files.len() == 1 {
            self.wake.notify_one();
        }
    }

    fn take_out(&self, inside: &mut Inside, number: u64) {
        inside.files.remove(&number);
        self.len.store(inside.files.len(), Relaxed);
    }

    /// Takes files off the queue that are idle.
    pub fn remove_idle(&self, inodes: &[Arc<InodeObj>]) {
        for some in inodes.chunks(REMOVED_AT_ONCE) {
            let mut inside = self.inside.lock();
            for inode in some {
                let queued = inode.data().pages.queued();
                if let Some(number) = queued
                    && leaves(inode)
                {
                    self.take_out(&mut inside, number);
                }
            }
        }
    }

    /// The same for files that have just been written, where their times are not owed either: nothing else would look at
    /// them until they are old.
    pub fn remove_written(&self, inodes: &[Arc<InodeObj>]) {
        let is_written = |inode: &&Arc<InodeObj>| {
            let (data, pages) = (inode.data(), inode.data().pages.summary());
            pages.is_queued && pages.is_clean() && data.size() == data.logged_size()
        };
        let settled = inodes.iter().filter(is_written).filter(|inode| !inode.has_lazy_times());
        let settled: Vec<_> = settled.cloned().collect();
        self.remove_idle(&settled);
    }

    /// The same by a caller who has the write-back mutex.
    pub fn remove_quiet(&self, data: &FileData) {
        let mut inside = self.inside.lock();
        let queued = data.pages.queued();
        if let Some(number) = queued
            && leaves_quiet(data)
        {
            self.take_out(&mut inside, number);
            drop(inside);
            self.discharge();
        }
    }

    /// Every file with something to write, for a sync of all.
    pub fn files(&self) -> Vec<Arc<InodeObj>> {
        self.inside.lock().files.values().map(|queued| Arc::clone(&queued.inode)).collect()
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Has the flusher write a rewritten file home soon, unless it is emptied once more before that.
    pub fn expedite(&self, inode: &Arc<InodeObj>, generation: u64) {
        self.inside.lock().urgent.push((Arc::clone(inode), generation));
        self.wake.notify_one();
    }

    /// Whether more than so many pages are dirty, or too many files.
    pub fn is_crowded(&self, dirty: usize) -> bool {
        self.pool.dirty() > dirty || self.len() > self.limit
    }

    // Turns of files whose frames are needed.

    /// The file whose turn it is.
    pub(super) fn first_in_turn(&self) -> Option<Arc<InodeObj>> {
        self.inside.lock().in_turn().next().map(|(_, inode)| Arc::clone(inode))
    }

    /// Gives files their turns, in order, as long as `takes` says so; the first of all that it passes over if none else.
    pub(super) fn take_turns(
        &self,
        most: usize,
        mut takes: impl FnMut(&InodeObj, usize) -> Taken,
    ) -> Vec<Arc<InodeObj>> {
        let mut inside = self.inside.lock();
        let (mut next, mut turn, mut passed) = (Vec::new(), inside.turn, None);
        for (number, inode) in inside.in_turn().take(most) {
            let taken = takes(inode, next.len());
            if taken == Taken::Not {
                break;
            }
            turn = number + 1;
            match taken {
                Taken::PassedOver => passed = passed.or_else(|| Some(Arc::clone(inode))),
                _ => next.push(Arc::clone(inode)),
            }
            if taken == Taken::AsLast {
                break;
            }
        }
        if next.is_empty() {
            next.extend(passed);
        }
        inside.turn = turn;
        next
    }

    // The flusher's thread.

    /// The flusher runs: pressure is its business from now on.
    pub(super) fn begin_running(&self) {
        self.inside.lock().is_running = true;
    }

    /// Tells the flusher of pressure, if it runs; `begin` is called first, with the queue locked.
    pub(super) fn put_under_pressure(&self, begin: impl FnOnce()) {
        let mut inside = self.inside.lock();
        if inside.is_running && !inside.stops {
            inside.under_pressure = true;
            begin();
            self.wake.notify_one();
        }
    }

    /// Waits for something to do; files that have been on the queue for `expire`, if that is given, are due. `None` at
    /// the end.
    pub(super) fn await_turn(&self, expire: Option<Duration>) -> Option<Turn> {
        let mut inside = self.inside.lock();
        loop {
            if inside.stops {
                inside.under_pressure = false;
                return None;
            }
            let rewritten = std::mem::take(&mut inside.urgent);
            let due = expire.map_or_else(Vec::new, |expire| inside.take_expired(expire, EXPIRED_AT_ONCE));
            let under_pressure = std::mem::take(&mut inside.under_pressure);
            inside.is_relieving_pressure = under_pressure;
            if !rewritten.is_empty() || !due.is_empty() || under_pressure {
                return Some(Turn { rewritten, due, under_pressure });
            }
            let oldest = inside.files.values().next().map(|queued| queued.since);
            match oldest.zip(expire) {
                Some((since, expire)) => {
                    let left = (since + expire).saturating_duration_since(Instant::now());
                    self.wake.wait_for(&mut inside, left);
                }
                None => self.wake.wait(&mut inside),
            }
        }
    }

    /// The flusher has written a batch because of pressure; whether it is to stop.
    pub(super) fn tell_batch(&self) -> bool {
        let mut inside = self.inside.lock();
        inside.batches += 1;
        let stops = inside.stops;
        drop(inside);
        self.batch_written.notify_all();
        stops
    }

    /// A turn is over; `end` is called, with the queue locked, if there is no pressure any more.
    pub(super) fn end_turn(&self, end: impl FnOnce()) {
        let mut inside = self.inside.lock();
        inside.is_relieving_pressure = false;
        if !inside.under_pressure {
            end();
        }
        drop(inside);
        self.batch_written.notify_all();
    }

    /// Waits for the batches that the flusher writes because of pressure, but not for all that others may add.
    pub fn await_flusher(&self) {
        if !self.inside.lock().is_busy() {
            return;
        }
        blocking::about_to_block();
        let mut inside = self.inside.lock();
        let last = inside.batches + AWAITED_BATCHES;
        while inside.is_busy() && inside.batches < last {
            self.batch_written.wait(&mut inside);
        }
    }

    /// Ends the flusher's thread.
    pub(super) fn stop(&self) {
        self.inside.lock().stops = true;
        self.wake.notify_all();
        self.batch_written.notify_all();
    }

    // What files take where they never leave memory.

    /// Charges the room for what files take beside their pages, where they never leave memory. A file that is on
    /// the queue may go on without, for what it overwrites has its room.
    pub fn charge(&self, inode: &InodeObj) -> Result<()> {
        let due = self.due(1);
        let charged = self.charged.load(Relaxed);
        if due <= charged {
            return Ok(());
        }
        let ahead = self.charged_ahead();
        let more = match self.meta.reserve(due - charged + ahead, 0) {
            Ok(()) => due - charged + ahead,
            Err(_) if inode.data().pages.queued().is_some() => return Ok(()),
            Err(_) => {
                self.meta.reserve(due - charged, 0)?;
                due - charged
            }
        };
        self.charged.fetch_add(more, Relaxed);
        Ok(())
    }

    /// Blocks that the files on the queue, and so many more, are to be charged for, with what the indexes take.
    fn due(&self, more: u64) -> u64 {
        let files = self.len() as u64 + more;
        (files * QUEUED_BYTES + self.pool.index_bytes() as u64).div_ceil(PAGE)
    }

    /// Gives back what was charged for files that are on the queue no more.
    fn discharge(&self) {
        let (due, ahead) = (self.due(0), self.charged_ahead());
        let charged = self.charged.load(Relaxed);
        if charged > due + 2 * ahead
            && self.charged.compare_exchange(charged, due + ahead, Relaxed, Relaxed).is_ok()
        {
            self.meta.unreserve(charged - due - ahead, 0);
        }
    }

    /// Blocks charged before they are due: few where there are few, for nobody has the use of them.
    fn charged_ahead(&self) -> u64 {
        (self.pool.len() as u64 / 64).clamp(1, CHARGE)
    }

    /// Files that have been on the queue for so long, as the flusher takes them.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub fn take_expired(&self, expire: Duration, most: usize) -> Vec<Due> {
        self.inside.lock().take_expired(expire, most)
    }
}

/// Whether a file has its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// Yes.
    Yes,
    /// Yes, and none behind it.
    AsLast,
    /// Not if another has.
    PassedOver,
    /// No, and none behind it.
    Not,
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
