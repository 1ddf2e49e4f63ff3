//! Who takes files from the list to write them: the background, and whoever finds no frames.

use super::queue::Work;
use crate::cache::Fresh;
use crate::file::data_path::DataPath;
use crate::file::writeback::batch::Weight;
use crate::file::writeback::{BATCH_PAGES, Order};
use crate::inode::InodeObj;
use crate::planted::{self, Spot};
use crate::store::Profile;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Arc, thread};
use crate::{Error, Result, blocking};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Tries to get frames by write-back that writes nothing, before scratch space counts as full.
const IDLE_TRIES: usize = 16;
/// Files that go home together when frames are needed, if they are small.
const RELIEVED_FILES: usize = 64;
/// Files that the background writes, because it is time, before it looks whether there is something more urgent.
const EXPIRED_AT_ONCE: usize = 1024;
/// Batches of the background that a sync of scratch files waits for at the most.
const AWAITED_BATCHES: u64 = 4;

/// A turn of the background: whoever waits for it goes on when it ends, by a panic too.
struct Turn<'p>(&'p DataPath);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut work = self.0.work.lock();
        work.relieving = false;
        if !work.pressed {
            self.0.pace.end();
        }
        drop(work);
        self.0.work.relieved.notify_all();
    }
}

impl DataPath {
    /// Has the background write until the target is reached, if there is a background.
    pub(in crate::file) fn press(&self) {
        let mut work = self.work.lock();
        if work.running && !work.stop {
            work.pressed = true;
            self.pace.begin();
            self.work.wake.notify_one();
        }
    }

    /// `count` frames, writing dirty pages home to get them. Called with no lock held.
    ///
    /// # Errors
    /// What kept all files from being written; ENOSPC if there is neither memory nor spill space.
    pub(in crate::file) fn frames(&self, count: usize) -> Result<Vec<Fresh<'_>>> {
        let (mut failures, mut idle) = (0, 0);
        let mut failure = None;
        let mut written = self.counters.written.get();
        loop {
            if let Some(taken) = self.pool.take_many(count) {
                return Ok(taken);
            }
            let files = self.work.listed.load(Relaxed);
            match self.relieve() {
                Ok(true) => {}
                Ok(false) => thread::yield_now(),
                Err(e) => {
                    failures += 1;
                    failure = Some(e);
                }
            }
            // What one file has nothing of does not make up for what another's pages meet.
            let now = self.counters.written.get();
            (failures, idle) = if now == written { (failures, idle + 1) } else { (0, 0) };
            written = now;
            match failure.take_if(|_| failures > files) {
                Some(e) => return Err(e),
                None if self.keeps() => {}
                None if idle > IDLE_TRIES + 2 * self.pool.len().div_ceil(BATCH_PAGES) + files => {
                    return Err(failure.unwrap_or(Error::Errno(libc::ENOSPC)));
                }
                None => {}
            }
        }
    }

    /// Writes a batch of the files that wait longest; false if there is none.
    pub(in crate::file) fn relieve(&self) -> Result<bool> {
        if self.meta.profile() == Profile::InMemory {
            return Ok(false);
        }
        let next = self.take_turns();
        if next.is_empty() {
            return Ok(false);
        }
        self.write_together(&next, Order::PRESSURE);
        self.unlist(&next);
        // The large one, or one that had nobody to go home with, or owes its size alone.
        if let Some(left) = next.iter().find(|inode| inode.data().pages.queued().is_some()) {
            self.write_pressed(left)?;
            self.unlist(std::slice::from_ref(left));
        }
        Ok(true)
    }

    /// The files that have waited longest for their turn: the first, and light ones that follow it if it is light too.
    fn take_turns(&self) -> Vec<Arc<InodeObj>> {
        let mut work = self.work.lock();
        let (mut next, mut turn, mut passed) = (Vec::new(), work.turn, None);
        for (number, inode) in work.in_turn().take(RELIEVED_FILES) {
            let weight = Self::weight(inode);
            if weight == Weight::Heavy && !next.is_empty() {
                break;
            }
            turn = number + 1;
            match weight {
                Weight::Light => next.push(Arc::clone(inode)),
                // It may be half rewritten, and gives few frames.
                Weight::Rewritten => passed = passed.or_else(|| Some(Arc::clone(inode))),
                Weight::Heavy => {
                    next.push(Arc::clone(inode));
                    break;
                }
            }
        }
        if next.is_empty() {
            next.extend(passed);
        }
        work.turn = turn;
        next
    }

    /// Waits for the batches that the background writes because it is pressed, but not for all that others may add.
    pub(in crate::file) fn await_relief(&self) {
        let is_busy = |work: &Work| work.running && !work.stop && (work.pressed || work.relieving);
        if !is_busy(&self.work.lock()) {
            return;
        }
        blocking::about_to_block();
        let mut work = self.work.lock();
        let last = work.batches + AWAITED_BATCHES;
        while is_busy(&work) && work.batches < last {
            self.work.relieved.wait(&mut work);
        }
    }

    /// Writes old, urgent and pressing data home until [`DataPath::stop`]; to be run by a thread of its own.
    /// It sleeps while there is nothing to write. A panic ends the turn, not the thread: pages that were in its hands
    /// are dirty again, and their files' next fsyncs are told.
    pub fn run_background(&self) {
        self.work.lock().running = true;
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.take_background_turn())) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => tracing::error!("writing home in the background panicked; it is tried again later"),
            }
        }
    }

    /// Waits for something to write in the background, and writes it; false at the end.
    fn take_background_turn(&self) -> bool {
        let turn = Turn(self);
        let (rewritten, due, pressed) = {
            let mut work = self.work.lock();
            loop {
                if work.stop {
                    work.pressed = false;
                    return false;
                }
                let rewritten = std::mem::take(&mut work.urgent);
                let expire = self.options.expire;
                let due = if self.keeps() { work.take_expired(expire, EXPIRED_AT_ONCE) } else { Vec::new() };
                let pressed = std::mem::take(&mut work.pressed);
                work.relieving = pressed;
                if !rewritten.is_empty() || !due.is_empty() || pressed {
                    break (rewritten, due, pressed);
                }
                let oldest = work.files.values().next().filter(|_| self.keeps());
                match oldest.map(|listed| listed.since + expire) {
                    Some(due) => {
                        let left = due.saturating_duration_since(Instant::now());
                        self.work.wake.wait_for(&mut work, left);
                    }
                    None => self.work.wake.wait(&mut work),
                }
            }
        };
        planted::panic_at(Spot::Background);
        // A failure is noted in the file and told to whoever syncs it; the pages stay dirty.
        for (inode, rewriting) in rewritten {
            let _ = self.write_rewritten(&inode, rewriting);
            self.unlist(&[inode]);
        }
        self.write_due(due);
        let target = self.levels().target;
        let progress = || (self.counters.written.get(), self.work.listed.load(Relaxed));
        let (mut seen, mut idle) = (progress(), 0);
        while pressed && self.is_crowded(target) {
            let done = self.relieve();
            let stop = {
                let mut work = self.work.lock();
                work.batches += 1;
                work.stop
            };
            self.work.relieved.notify_all();
            // Where there is no spill space left no file gives way, however often it has its turn.
            let now = progress();
            (idle, seen) = if now == seen { (idle + 1, seen) } else { (0, now) };
            if stop || idle > seen.1 || !matches!(done, Ok(true)) {
                break;
            }
        }
        drop(turn);
        true
    }

    /// Writes files that it is time for, each unless it has been emptied since. A failure is noted in the file and told
    /// to whoever syncs it; the pages stay dirty.
    pub(in crate::file) fn write_due(&self, due: Vec<(Arc<InodeObj>, u64)>) {
        let files =
            |due: &[(Arc<InodeObj>, u64)]| due.iter().map(|(inode, _)| Arc::clone(inode)).collect::<Vec<_>>();
        self.unlist(&files(&due));
        let owes = |(inode, _): &(Arc<InodeObj>, u64)| {
            inode.has_lazy_times() || inode.data().pages.queued().is_some()
        };
        let due: Vec<_> = due.into_iter().filter(owes).collect();
        let inodes = files(&due);
        self.write_together(&inodes, Order::HOME);
        for (inode, rewritings) in &due {
            let _ = self.write_rewritten(inode, *rewritings);
        }
        self.unlist(&inodes);
    }

    /// Ends [`DataPath::run_background`] and [`DataPath::run_settling`].
    pub fn stop(&self) {
        self.budget.end();
        self.work.lock().stop = true;
        self.work.wake.notify_all();
        self.work.relieved.notify_all();
    }
}
