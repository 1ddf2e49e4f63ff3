//! How fast writers may go: as fast as memory while there is room, and as fast as the device when there is none.
//!
//! Levels of dirty pages, from below: the *target*, which the background leaves; where the background is woken; where
//! writers are *paced*; the *limit*. A paced writer spends an allowance. Each request that lands grants one, of
//! twice its pages where pacing begins, down to none at the limit: so the dirty pages settle where writers go at the
//! device's speed, and a writer waits for a request or two at a time, not for a batch.
//!
//! What this leaves to others: which pages are written, and by whom (`writeback`).
//!
//! Invariant: nobody waits unless the background is at work, or about to be, and when it ends it wakes all. Who waits
//! holds at most a range, which the background never takes.

use crate::file::data_path::DataPath;
use crate::file::writeback::BATCH_PAGES;
use crate::inode::InodeObj;
use crate::pages::page_after;
use crate::store::Profile;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::sync::{Condvar, Mutex};
use crate::{Result, blocking};

/// Most pages that an allowance holds: what was not spent in a lull is no leave for a burst.
const MOST_ALLOWED: i64 = 1024;

#[derive(Debug, Default)]
struct Allowance {
    /// Pages; below zero, writers wait.
    pages: i64,
    relieving: bool,
}

/// What paced writers may spend.
#[derive(Debug, Default)]
pub(in crate::file) struct Pace {
    inside: Mutex<Allowance>,
    granted: Condvar,
    /// As inside, to be looked at by each write.
    // Relaxed: a hint; who waits looks inside.
    relieving: AtomicBool,
}

impl Pace {
    /// The background is at work, or about to be.
    pub fn begin(&self) {
        let mut inside = self.inside.lock();
        if !inside.relieving {
            *inside = Allowance { pages: MOST_ALLOWED, relieving: true };
            self.relieving.store(true, Relaxed);
        }
    }

    /// The background is not at work any more.
    pub fn end(&self) {
        let mut inside = self.inside.lock();
        inside.relieving = false;
        self.relieving.store(false, Relaxed);
        self.granted.notify_all();
    }

    /// Whether the background was at work a moment ago.
    fn is_relieving(&self) -> bool {
        self.relieving.load(Relaxed)
    }

    /// Spends so many pages, and waits until there is some allowance again.
    fn spend(&self, pages: i64) {
        {
            let mut inside = self.inside.lock();
            inside.pages -= pages;
            if !inside.relieving || inside.pages >= 0 {
                return;
            }
        }
        blocking::about_to_block();
        let mut inside = self.inside.lock();
        while inside.relieving && inside.pages < 0 {
            self.granted.wait(&mut inside);
        }
    }

    /// Adds to the allowance.
    fn grant(&self, pages: i64) {
        let mut inside = self.inside.lock();
        let waited = inside.pages < 0;
        inside.pages = (inside.pages + pages).min(MOST_ALLOWED);
        if waited && inside.pages >= 0 {
            self.granted.notify_all();
        }
    }
}

/// Numbers of dirty pages, see the module.
#[derive(Debug, Clone, Copy)]
pub(in crate::file) struct Levels {
    pub target: usize,
    pub limit: usize,
}

impl Levels {
    fn wakes(self) -> usize {
        self.target + (self.limit - self.target) / 4
    }

    fn paces(self) -> usize {
        self.target + (self.limit - self.target) / 2
    }

    /// What the landing of so many pages allows while so many are dirty.
    fn grant(self, pages: usize, dirty: usize) -> i64 {
        let span = (self.limit - self.paces()).max(1);
        let room = self.limit.saturating_sub(dirty);
        if room >= span { MOST_ALLOWED } else { (2 * pages * room / span) as i64 }
    }
}

impl DataPath {
    /// The limit is three quarters of the pool, the target half of it. In the scratch profile the limit is all that
    /// read misses and partial overwrites can spare, and the target near it, for there is nothing to be gained by
    /// writing earlier.
    pub(in crate::file) fn levels(&self) -> Levels {
        let frames = self.pool.len();
        match self.meta.profile() {
            Profile::Durable => Levels { target: frames / 2, limit: frames * 3 / 4 },
            Profile::Spilling { .. } => {
                let limit = frames * 7 / 8;
                Levels { target: limit - (limit / 8).min(2 * BATCH_PAGES), limit }
            }
            Profile::InMemory => Levels { target: usize::MAX, limit: usize::MAX },
        }
    }

    /// Keeps dirty pages and their files below their limits. Called with at most a range held, by who is about to
    /// write so many bytes.
    ///
    /// # Errors
    /// What kept them from being written; ENOSPC if memory has no room for one more file.
    pub(in crate::file) fn throttle(&self, inode: &InodeObj, bytes: usize) -> Result<()> {
        let levels = self.levels();
        if levels.limit == usize::MAX {
            return self.charge(inode);
        }
        let dirty = self.pool.dirty();
        if dirty > levels.wakes() && !self.pace.is_relieving() {
            self.press();
        }
        if dirty > levels.paces() && self.pace.is_relieving() {
            // Small files cost more than their bytes: then a second writer gets more done than a patient one.
            if self.next_is_small() {
                let _ = self.relieve();
            } else {
                self.pace.spend(page_after(bytes as u64).min(self.step_pages()) as i64);
            }
        }
        if !self.is_crowded(levels.limit) {
            return Ok(());
        }
        self.press();
        let mut failed = None;
        for _ in 0..4 {
            if !self.is_crowded(levels.limit) {
                return Ok(());
            }
            match self.relieve() {
                Ok(_) => failed = None,
                Err(e) => failed = Some(e),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// So many pages have landed.
    pub(in crate::file) fn landed(&self, pages: usize) {
        if self.pace.is_relieving() {
            self.pace.grant(self.levels().grant(pages, self.pool.dirty()));
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::{Arc, thread};

    #[test]
    fn a_landing_allows_less_the_nearer_the_limit_is() {
        let levels = Levels { target: 1000, limit: 2000 };
        let grants: Vec<i64> =
            [1500, 1625, 1750, 1875, 2000, 2100].map(|dirty| levels.grant(100, dirty)).to_vec();
        assert_eq!(grants, [MOST_ALLOWED, 150, 100, 50, 0, 0]);
        assert!(levels.wakes() < levels.paces());
    }

    #[test]
    fn a_writer_waits_for_its_grant_and_for_nothing_once_the_background_ends() {
        let pace = Arc::new(Pace::default());
        pace.spend(1 << 20);
        pace.begin();
        pace.spend(MOST_ALLOWED);
        for last in [false, true] {
            let (tell, told) = std::sync::mpsc::channel();
            let writer = thread::spawn({
                let pace = Arc::clone(&pace);
                move || {
                    blocking::set_hook(Some(Box::new(move || tell.send(()).expect("somebody listens"))));
                    pace.spend(10);
                }
            });
            told.recv().expect("it waits");
            if last {
                pace.end()
            } else {
                pace.grant(10)
            }
            writer.join().expect("no panic");
        }
        pace.spend(1 << 20);
    }
}
