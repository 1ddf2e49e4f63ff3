//! How fast writers may go: as fast as memory while there is room, and as fast as the device when there is none.
//!
//! Levels of dirty pages, from below: the *target*, which the flusher leaves; where the flusher is woken; where
//! writers are *throttled*; the *limit*. A throttled writer spends an allowance. Each request that ends grants one, of
//! twice its pages where throttling begins, down to none at the limit: so the dirty pages settle where writers go at the
//! device's speed, and a writer waits for a request or two at a time, not for a batch.
//!
//! What this leaves to others: which pages are written, and by whom (`writeback`).
//!
//! Invariant: nobody waits unless the flusher is at work, or about to be, and when it ends it wakes all. Who waits
//! holds at most a range, which the flusher never takes.

use crate::blocking;
use crate::file::writeback::BATCH_PAGES;
use crate::store::Profile;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::sync::{Condvar, Counter, Mutex};
use std::time::Instant;

/// Most pages that an allowance holds: what was not spent in a lull is no leave for a burst.
const MOST_ALLOWED: i64 = 1024;

#[derive(Debug, Default)]
struct Allowance {
    /// Pages; below zero, writers wait.
    pages: i64,
    is_on: bool,
}

/// What throttled writers may spend.
#[derive(Debug, Default)]
pub(in crate::file) struct Throttle {
    inside: Mutex<Allowance>,
    granted: Condvar,
    /// As inside, to be looked at by each write.
    // Relaxed: a hint; who waits looks inside.
    is_on: AtomicBool,
    /// Writers that have waited, and their nanoseconds.
    waits: Counter,
    wait_ns: Counter,
}

impl Throttle {
    /// The flusher is at work, or about to be.
    pub fn begin(&self) {
        let mut inside = self.inside.lock();
        if !inside.is_on {
            *inside = Allowance { pages: MOST_ALLOWED, is_on: true };
            self.is_on.store(true, Relaxed);
        }
    }

    /// The flusher is not at work any more.
    pub fn end(&self) {
        let mut inside = self.inside.lock();
        inside.is_on = false;
        self.is_on.store(false, Relaxed);
        self.granted.notify_all();
    }

    /// Whether the flusher was at work a moment ago.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Spends so many pages, and waits until there is some allowance again.
    pub fn spend(&self, pages: i64) {
        {
            let mut inside = self.inside.lock();
            inside.pages -= pages;
            if !inside.is_on || inside.pages >= 0 {
                return;
            }
        }
        blocking::about_to_block();
        let began = Instant::now();
        let mut inside = self.inside.lock();
        while inside.is_on && inside.pages < 0 {
            self.granted.wait(&mut inside);
        }
        drop(inside);
        self.waits.add(1);
        self.wait_ns.add(began.elapsed().as_nanos() as u64);
    }

    /// How many writers have waited for allowance, and for how many nanoseconds.
    pub fn counts(&self) -> [u64; 2] {
        [&self.waits, &self.wait_ns].map(Counter::get)
    }

    /// Adds to the allowance.
    pub fn grant(&self, pages: i64) {
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
    /// Where the flusher is woken.
    pub fn wakes(self) -> usize {
        self.target + (self.limit - self.target) / 4
    }

    /// Where writers are throttled.
    pub fn throttles(self) -> usize {
        self.target + (self.limit - self.target) / 2
    }

    /// What the end of requests for so many pages allows while so many are dirty.
    pub fn grant(self, pages: usize, dirty: usize) -> i64 {
        let span = (self.limit - self.throttles()).max(1);
        let room = self.limit.saturating_sub(dirty);
        if room >= span { MOST_ALLOWED } else { (2 * pages * room / span) as i64 }
    }
}

impl Levels {
    /// Of a pool of so many frames. The limit is three quarters of it, the target half of it. In the scratch profile the
    /// limit is all that read misses and partial overwrites can spare, and the target near it, for there is nothing to be
    /// gained by writing earlier.
    pub fn of(profile: Profile, frames: usize) -> Levels {
        match profile {
            Profile::Durable => Levels { target: frames / 2, limit: frames * 3 / 4 },
            Profile::Spilling { .. } => {
                let limit = frames * 7 / 8;
                Levels { target: limit - (limit / 8).min(2 * BATCH_PAGES), limit }
            }
            Profile::InMemory => Levels { target: usize::MAX, limit: usize::MAX },
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::{Arc, thread};

    #[test]
    fn a_request_s_end_allows_less_the_nearer_the_limit_is() {
        let levels = Levels { target: 1000, limit: 2000 };
        let grants: Vec<i64> =
            [1500, 1625, 1750, 1875, 2000, 2100].map(|dirty| levels.grant(100, dirty)).to_vec();
        assert_eq!(grants, [MOST_ALLOWED, 150, 100, 50, 0, 0]);
        assert!(levels.wakes() < levels.throttles());
    }

    #[test]
    fn a_writer_waits_for_its_grant_and_for_nothing_once_the_flusher_ends() {
        let throttle = Arc::new(Throttle::default());
        throttle.spend(1 << 20);
        throttle.begin();
        throttle.spend(MOST_ALLOWED);
        for last in [false, true] {
            let (tell, told) = std::sync::mpsc::channel();
            let writer = thread::spawn({
                let throttle = Arc::clone(&throttle);
                move || {
                    blocking::set_hook(Some(Box::new(move || tell.send(()).expect("somebody listens"))));
                    throttle.spend(10);
                }
            });
            told.recv().expect("it waits");
            if last {
                throttle.end()
            } else {
                throttle.grant(10)
            }
            writer.join().expect("no panic");
        }
        throttle.spend(1 << 20);
    }
}
