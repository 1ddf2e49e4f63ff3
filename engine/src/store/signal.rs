//! What wakes the background thread, and what it wakes.
//!
//! Two notes: "a round is needed" and "something is uncommitted". The thread sleeps without either, so an
//! idle mount uses no CPU. Giving a note that is there already costs one load.
//!
//! It knows too whether a round is running: until it says that it has ended, whoever waits for less to be dirty need
//! not ask for another. The argument is in `throttle.rs`.

use std::time::Duration;

use crate::sync::WaitQueue;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const ROUND: u32 = 1;
const UNCOMMITTED: u32 = 2;
const STOP: u32 = 4;

/// Notes to the background thread, and the place where throttled operations wait for it.
#[derive(Debug)]
pub struct Signal {
    notes: AtomicU32,
    /// Whether a round is running.
    running: AtomicBool,
    thread: WaitQueue,
    throttled: WaitQueue,
}

impl Default for Signal {
    fn default() -> Self {
        Signal {
            notes: AtomicU32::new(0),
            running: AtomicBool::new(false),
            thread: WaitQueue::new(),
            throttled: WaitQueue::new(),
        }
    }
}

/// What the thread woke for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// A round is needed.
    Round,
    /// The interval is over and something is uncommitted.
    Commit,
    /// The file system is being unmounted.
    Stop,
}

/// A round that is running: as long as this lives, throttled operations leave it to the round to wake them.
#[must_use = "the round has ended when it is dropped"]
pub(crate) struct RunningRound<'s>(&'s Signal);

impl Drop for RunningRound<'_> {
    fn drop(&mut self) {
        // Relaxed: as in `round_is_running`.
        self.0.running.store(false, Ordering::Relaxed);
    }
}

impl Signal {
    fn note(&self, note: u32) {
        // Relaxed: a note carries nothing but itself; the wait queue's fences order it against sleeping.
        if self.notes.load(Ordering::Relaxed) & note == 0 {
            self.notes.fetch_or(note, Ordering::Relaxed);
            self.thread.wake_all();
        }
    }

    /// A checkpoint round is needed: the ring is filling, or much metadata is dirty.
    pub fn need_round(&self) {
        self.note(ROUND);
    }

    /// Takes the note that a round is needed, for who runs it without the thread.
    pub(crate) fn take_round(&self) -> bool {
        // Relaxed: as in `note`.
        self.notes.load(Ordering::Relaxed) & ROUND != 0
            && self.notes.fetch_and(!ROUND, Ordering::Relaxed) & ROUND != 0
    }

    /// Something was logged.
    pub(crate) fn uncommitted(&self) {
        self.note(UNCOMMITTED);
    }

    /// The thread must end.
    pub(crate) fn stop(&self) {
        self.note(STOP);
    }

    /// Sleeps until there is something to do, and takes its note away.
    pub(crate) fn wait(&self, interval: Duration) -> Woken {
        // Relaxed throughout: as in `note`.
        let has = |notes: u32| self.notes.load(Ordering::Relaxed) & notes != 0;
        self.thread.wait_until(|| has(ROUND | UNCOMMITTED | STOP));
        if !has(ROUND | STOP) {
            self.thread.wait_timeout(|| has(ROUND | STOP), interval);
        }
        if has(STOP) {
            return Woken::Stop;
        }
        // Taken before the work: what comes meanwhile is noted anew.
        if self.notes.fetch_and(!ROUND, Ordering::Relaxed) & ROUND != 0 {
            return Woken::Round;
        }
        self.notes.fetch_and(!UNCOMMITTED, Ordering::Relaxed);
        Woken::Commit
    }

    /// A round begins; it has ended when what is given is dropped. The caller holds the lock that lets one run at a
    /// time, and lets throttled operations look again after that.
    pub(crate) fn round_begins(&self) -> RunningRound<'_> {
        // Relaxed: seen late, it costs a round more.
        self.running.store(true, Ordering::Relaxed);
        RunningRound(self)
    }

    /// Whether a round is running, which will let throttled operations look again.
    pub(crate) fn round_is_running(&self) -> bool {
        // Relaxed: the fences of the wait queue order it: who sees a round running that has ended is woken.
        self.running.load(Ordering::Relaxed)
    }

    /// Waits until `ready` holds; a round that ends, or a failure, makes it look again.
    pub(crate) fn wait_throttled(&self, ready: impl FnMut() -> bool) {
        self.throttled.wait_until(ready);
    }

    /// Lets throttled operations look again.
    pub(crate) fn wake_throttled(&self) {
        self.throttled.wake_all();
    }
}
