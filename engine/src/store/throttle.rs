//! Operations that wait because far too much metadata is dirty.
//!
//! It says who asks for the round that they wait for; it runs none. Limits: at `limit` dirty pages a round is due, at
//! twice as many that are *unwritten* (dirty or in flight) operations wait.
//!
//! # How the numbers change
//! | a page | dirty | in flight | by whom | who is told |
//! | --- | ---: | ---: | --- | --- |
//! | clean, is changed | +1 | | a commit | nobody |
//! | dirty, is changed | | | a commit | nobody |
//! | dirty, is claimed | -1 | +1 | a round | nobody |
//! | in flight, is changed | +1 | -1 | a commit | nobody |
//! | in flight, is home | | -1 | a round | who waits, at the round's end |
//! | in flight, its write fails | +1 | -1 | a round | who waits, at the round's end |
//! | in flight and changed, is home or fails | | | a round | who waits, at the round's end |
//! | dirty, its block is freed | -1 | | a commit | nobody |
//!
//! No others: eviction takes clean pages alone, and redo marks pages before anybody waits. A change is counted a little
//! after it is made.
//!
//! # Protocol
//! A commit need not have looked at the numbers: it draws on the reserve, or has begun while little was dirty. So much
//! may become dirty at any time, also after a round's last look at the numbers and before that round wakes those who
//! wait. Nobody but those who wait can then see that there is too much; therefore
//! 1. who finds far too much looks whether a round is running, and notes one if none is: *at each look*, those within
//!    the wait among them, not once before it;
//! 2. a round says that it runs before it takes the dirty lists, and that it has ended, however it ends, before it wakes
//!    those who wait;
//! 3. the note of a round is taken before that round says that it runs.
//!
//! Nobody sleeps for ever. The last look of one who sleeps lies after it has joined the wait queue. It saw a round
//! running, or has noted one, or saw a note. In the first case that round wakes it, for had the round waked before the
//! look, the queue's fences would have shown that it had ended. A note is taken by the thread, whose round wakes it
//! likewise; and a note that was seen but had been taken before belongs to a round that has not waked yet, by the same
//! fences. Who is woken looks again.
//!
//! Model: `loom_models.rs`.

use super::Store;
use super::dirty::DirtyPages;
use super::signal::Signal;
use crate::Result;

/// How much is dirty, and who is to do something about it.
pub(super) struct Throttle<'s> {
    pub dirty: &'s DirtyPages,
    /// Dirty pages at which a round is due.
    pub limit: usize,
    pub signal: &'s Signal,
}

impl Throttle<'_> {
    /// What is unwritten when operations wait.
    fn far_too_much(&self) -> usize {
        self.limit.saturating_mul(2)
    }

    /// Whether far too much is unwritten. Where that or a round is due and none is running, one is noted.
    pub fn look(&self) -> bool {
        let (dirty, in_flight) = self.dirty.dirty_and_in_flight();
        let is_far_too_much = dirty + in_flight >= self.far_too_much();
        // A running round looks at its end whether another is due, and wakes those who wait.
        if (is_far_too_much || dirty >= self.limit) && !self.signal.round_is_running() {
            self.signal.need_round();
        }
        is_far_too_much
    }

    /// Waits until less is unwritten, or the caller has another reason to leave.
    pub fn wait(&self, mut leaves: impl FnMut() -> bool) {
        self.signal.wait_throttled(|| leaves() || !self.look());
    }
}

impl Store {
    /// Starts a round where much is dirty, and waits where it is far too much: until it is less, or a round has failed.
    /// What a round is writing counts: should it fail, it is as dirty as before. The first look is at what is shown,
    /// which may be behind; all others are exact.
    pub(super) fn throttle(&self) -> Result<()> {
        if self.dirty.about_unwritten() < self.dirty_limit {
            return Ok(());
        }
        let throttle = Throttle { dirty: &self.dirty, limit: self.dirty_limit, signal: &self.signal };
        loop {
            let failures = self.failures.count();
            if !throttle.look() {
                return Ok(());
            }
            let has_failed = || self.failures.count() != failures;
            throttle.wait(|| has_failed() || self.failed().is_some());
            self.check_writable()?;
            if has_failed()
                && self.dirty.unwritten() >= throttle.far_too_much()
                && let Some(e) = self.failures.last()
            {
                return Err(e);
            }
        }
    }
}
