//! Who takes files from the queue to write them: a thread of its own, writers that are throttled, and whoever finds no
//! frames.

use super::queue::{Due, Taken, Turn};
use crate::cache::Fresh;
use crate::file::data_path::step_pages;
use crate::file::sync::data_journal::{Absorb, DataJournal};
use crate::file::writeback::batch::Weight;
use crate::file::writeback::throttle::Levels;
use crate::file::writeback::{BATCH_PAGES, Order, WriteBack};
use crate::inode::InodeObj;
use crate::pages::{PAGES_END, page_after};
use crate::planted::{self, Spot};
use crate::store::Profile;
use crate::sync::{Arc, thread};
use crate::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Tries to get frames by write-back that writes nothing, before scratch space counts as full.
const IDLE_TRIES: usize = 16;
/// Files that go home in a batch when frames are needed, if they are small.
const FILES_AT_ONCE: usize = 64;
/// Times that a writer writes home by itself before it goes on although there is too much.
const OWN_BATCHES: usize = 4;

/// See the module.
#[derive(Debug)]
pub(in crate::file) struct Flusher {
    write_back: Arc<WriteBack>,
    journal: Arc<DataJournal>,
    /// Dirty data is written home after this time.
    expire: Duration,
}

/// A turn of the flusher: whoever waits for it goes on when it ends, by a panic too.
struct TurnGuard<'f>(&'f Flusher);

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        let write_back = &self.0.write_back;
        write_back.queue().end_turn(|| write_back.throttle().end());
    }
}

impl Flusher {
    /// A flusher without a thread; see [`Flusher::run`].
    pub fn new(write_back: Arc<WriteBack>, journal: Arc<DataJournal>, expire: Duration) -> Flusher {
        Flusher { write_back, journal, expire }
    }

    /// Has the flusher write until the target is reached, if its thread runs.
    fn put_under_pressure(&self) {
        let write_back = &self.write_back;
        write_back.queue().put_under_pressure(|| write_back.throttle().begin());
    }

    /// Keeps dirty pages and their files below their limits. Called with at most a range held, by who is about to
    /// write so many bytes.
    ///
    /// # Errors
    /// What kept them from being written; ENOSPC if memory has no room for one more file.
    pub fn throttle(&self, inode: &InodeObj, bytes: usize) -> Result<()> {
        let (queue, throttle) = (self.write_back.queue(), self.write_back.throttle());
        let levels = self.write_back.levels();
        if levels.limit == usize::MAX {
            return queue.charge(inode);
        }
        let dirty = self.write_back.pool().dirty();
        if dirty > levels.wakes() && !throttle.is_on() {
            self.put_under_pressure();
        }
        if dirty > levels.throttles() && throttle.is_on() {
            // Small files cost more than their bytes: then a second writer gets more done than a patient one.
            if self.next_is_small() {
                let _ = self.write_some();
            } else {
                throttle.spend(page_after(bytes as u64).min(step_pages(self.write_back.pool())) as i64);
            }
        }
        if !queue.is_crowded(levels.limit) {
            return Ok(());
        }
        self.put_under_pressure();
        let mut failed = None;
        for _ in 0..OWN_BATCHES {
            if !queue.is_crowded(levels.limit) {
                return Ok(());
            }
            match self.write_some() {
                Ok(_) => failed = None,
                Err(e) => failed = Some(e),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// `count` frames, writing dirty pages home to get them. Called with no lock held.
    ///
    /// # Errors
    /// What kept all files from being written; ENOSPC if there is neither memory nor spill space; EIO where pages have to
    /// stay, for a flush of what lies in place has failed.
    pub fn frames(&self, count: usize) -> Result<Vec<Fresh<'_>>> {
        let write_back = &*self.write_back;
        let (mut failures, mut idle) = (0, 0);
        let mut failure = None;
        let mut written = write_back.written();
        loop {
            if let Some(taken) = write_back.pool().take_many(count) {
                return Ok(taken);
            }
            let files = write_back.queue().len();
            match self.write_some() {
                Ok(true) => {}
                Ok(false) => thread::yield_now(),
                Err(e) => {
                    failures += 1;
                    failure = Some(e);
                }
            }
            // What one file has nothing of does not make up for what another's pages meet.
            let now = write_back.written();
            (failures, idle) = if now == written { (failures, idle + 1) } else { (0, 0) };
            written = now;
            match failure.take_if(|_| failures > files) {
                Some(e) => return Err(e),
                None if write_back.keeps() && !write_back.is_place_in_doubt() => {}
                None if idle > IDLE_TRIES + 2 * write_back.pool().len().div_ceil(BATCH_PAGES) + files => {
                    let full = if write_back.keeps() { libc::EIO } else { libc::ENOSPC };
                    return Err(failure.unwrap_or(Error::Errno(full)));
                }
                None => {}
            }
        }
    }

    /// Whether the file whose turn it is, is a small one.
    fn next_is_small(&self) -> bool {
        let next = self.write_back.queue().first_in_turn();
        next.is_some_and(|inode| WriteBack::small_pages(&inode, Order::PRESSURE).is_some())
    }

    /// Writes a batch of the files that wait longest; false if there is none.
    pub fn write_some(&self) -> Result<bool> {
        let write_back = &self.write_back;
        if write_back.profile() == Profile::InMemory {
            return Ok(false);
        }
        let next = self.take_turns();
        if next.is_empty() {
            return Ok(false);
        }
        write_back.write_batches(&next, Order::PRESSURE);
        write_back.queue().remove_idle(&next);
        // The large one, or one that had nobody to go home with, or owes its size alone.
        if let Some(left) = next.iter().find(|inode| inode.data().pages.queued().is_some()) {
            write_back.write_under_pressure(left)?;
            write_back.queue().remove_idle(std::slice::from_ref(left));
        }
        Ok(true)
    }

    /// The files that have waited longest for their turn: the first, and light ones that follow it if it is light too.
    fn take_turns(&self) -> Vec<Arc<InodeObj>> {
        self.write_back.queue().take_turns(FILES_AT_ONCE, |inode, count| match WriteBack::weight(inode) {
            Weight::Heavy if count > 0 => Taken::Not,
            Weight::Heavy => Taken::AsLast,
            Weight::Light => Taken::Yes,
            // It may be half rewritten, and gives few frames.
            Weight::Rewritten => Taken::PassedOver,
        })
    }

    /// Writes old, urgent and pressing data home until [`Flusher::stop`]; to be run by a thread of its own.
    /// It sleeps while there is nothing to write. A panic ends the turn, not the thread: pages that were under write-back
    /// are dirty again, and their files' next fsyncs are told.
    pub fn run(&self) {
        self.write_back.queue().begin_running();
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.take_turn())) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => tracing::error!("writing home in the background panicked; it is tried again later"),
            }
        }
    }

    /// Waits for something to write, and writes it; false at the end.
    fn take_turn(&self) -> bool {
        let guard = TurnGuard(self);
        let queue = self.write_back.queue();
        let expire = self.write_back.keeps().then_some(self.expire);
        let Some(Turn { rewritten, due, under_pressure }) = queue.await_turn(expire) else { return false };
        planted::panic_at(Spot::Background);
        // A failure is noted in the file and told to whoever syncs it; the pages stay dirty.
        for (inode, generation) in rewritten {
            let _ = self.write_rewritten(&inode, generation);
            queue.remove_idle(&[inode]);
        }
        self.write_due(due);
        let Levels { target, .. } = self.write_back.levels();
        let progress = || (self.write_back.written(), queue.len());
        let (mut seen, mut idle) = (progress(), 0);
        while under_pressure && queue.is_crowded(target) {
            let done = self.write_some();
            let stops = queue.tell_batch();
            // Where there is no spill space left no file gives way, however often it has its turn.
            let now = progress();
            (idle, seen) = if now == seen { (idle + 1, seen) } else { (0, now) };
            if stops || idle > seen.1 || !matches!(done, Ok(true)) {
                break;
            }
        }
        drop(guard);
        true
    }

    /// Writes files that it is time for, each unless it has been emptied since. A failure is noted in the file and told
    /// to whoever syncs it; the pages stay dirty.
    pub(super) fn write_due(&self, due: Vec<Due>) {
        let queue = self.write_back.queue();
        let files = |due: &[Due]| due.iter().map(|(inode, _)| Arc::clone(inode)).collect::<Vec<_>>();
        queue.remove_idle(&files(&due));
        let owes = |(inode, _): &Due| inode.has_lazy_times() || inode.data().pages.queued().is_some();
        let due: Vec<_> = due.into_iter().filter(owes).collect();
        let inodes = files(&due);
        self.write_back.write_batches(&inodes, Order::HOME);
        for (inode, generation) in &due {
            let _ = self.write_rewritten(inode, *generation);
        }
        queue.remove_idle(&inodes);
    }

    /// All of a file that was rewritten from nothing, unless it has been emptied again; or the journal takes it, and it
    /// goes home later.
    fn write_rewritten(&self, inode: &Arc<InodeObj>, generation: u64) -> Result<()> {
        let is_pending = inode.data().pages.is_truncate_pending();
        if is_pending && self.journal.absorb(inode, Absorb::Replacing, Some(generation))?.is_some() {
            return Ok(());
        }
        self.write_back.write_generation(inode, 0..PAGES_END, Order::HOME, Some(generation))
    }

    /// Ends [`Flusher::run`].
    pub fn stop(&self) {
        self.write_back.queue().stop();
    }
}
