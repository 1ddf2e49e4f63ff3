//! Sleeping until a condition on atomics holds, at next to no cost for those that make it hold.
//!
//! # Protocol
//! A queue has a *count* of waiters and a *ticket* that sleepers sleep on.
//! 1. A waiter that has spun in vain adds itself to the count, then runs a SeqCst fence.
//! 2. It reads the ticket, *then* its condition. If the condition holds it leaves.
//! 3. Otherwise it sleeps unless the ticket has changed since, and continues at 2. It leaves the count only
//!    on its way out.
//! 4. A waker first makes the condition hold (any atomic access of its own), then runs a SeqCst fence, then
//!    reads the count. Zero: done. Otherwise it raises the ticket and wakes the sleepers.
//!
//! No wake-up is lost. The two fences are totally ordered: either the waiter's comes first, then the waker
//! sees the count; or the waker's comes first, then the waiter sees the condition. In the first case the
//! ticket is raised after the condition holds: a waiter that read the new ticket sees the condition (the
//! waker's fence and the acquire on the ticket), and one that read the old does not fall asleep, or is woken.

use std::time::{Duration, Instant};

use super::atomic::{AtomicU32, Ordering, fence};
use super::futex::Futex;
use super::spin;
use crate::blocking::about_to_block;

/// A place to wait until a condition holds. The condition reads atomics alone and takes no lock.
#[derive(Debug)]
pub struct WaitQueue {
    waiters: AtomicU32,
    ticket: Futex,
}

impl WaitQueue {
    /// A queue where nobody waits.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new() -> Self {
        WaitQueue { waiters: AtomicU32::new(0), ticket: Futex::new() }
    }

    /// A queue where nobody waits.
    #[cfg(any(loom, shuttle))]
    pub fn new() -> Self {
        WaitQueue { waiters: AtomicU32::new(0), ticket: Futex::new() }
    }

    /// Returns once `ready` has held: at once, after a short spin, or after a sleep.
    ///
    /// What `ready` reads must be changed before [`wake_all`](Self::wake_all) is called; it needs Acquire
    /// only for the sake of what the caller does next.
    pub fn wait_until(&self, mut ready: impl FnMut() -> bool) {
        if ready() || spin(&mut ready) {
            return;
        }
        self.sleep(&mut ready, None);
    }

    /// As [`wait_until`](Self::wait_until), for `timeout` at most; says whether `ready` has held.
    pub fn wait_timeout(&self, mut ready: impl FnMut() -> bool, timeout: Duration) -> bool {
        ready() || spin(&mut ready) || self.sleep(&mut ready, Instant::now().checked_add(timeout))
    }

    /// As [`wait_until`](Self::wait_until); returns what `ready` found.
    pub fn wait_for<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        let mut found = None;
        self.wait_until(|| {
            found = ready();
            found.is_some()
        });
        found.expect("the wait ends when something is found")
    }

    /// Wakes everyone that waits, to look again. Costs a fence and a load when nobody does.
    pub fn wake_all(&self) {
        self.wake(u32::MAX >> 1);
    }

    /// Wakes one that waits, if anyone does. Only for queues where any waiter can use what came free; a waiter
    /// that leaves without using it must pass the wake-up on.
    pub fn wake_one(&self) {
        self.wake(1);
    }

    /// Whether anyone waits just now; a hint.
    pub fn has_waiters(&self) -> bool {
        // Relaxed: a hint.
        self.waiters.load(Ordering::Relaxed) != 0
    }

    fn wake(&self, n: u32) {
        // Pairs with the fence in `sleep`: orders the caller's change before the load of the count.
        fence(Ordering::SeqCst);
        // Relaxed: the fence orders it.
        if self.waiters.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Relaxed: the fence makes it a release. It pairs with the Acquire load in `sleep`: a thread that sees the new
        // ticket sees the change.
        self.ticket.word.fetch_add(1, Ordering::Relaxed);
        self.ticket.wake(n);
    }

    #[cold]
    fn sleep(&self, ready: &mut dyn FnMut() -> bool, deadline: Option<Instant>) -> bool {
        // Relaxed: the fence orders it.
        self.waiters.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `wake`: orders the count before the loads of the condition.
        fence(Ordering::SeqCst);
        let held = loop {
            // Acquire: pairs with the Release in `wake`.
            let seen = self.ticket.word.load(Ordering::Acquire);
            if ready() {
                break true;
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break false;
            }
            about_to_block();
            self.ticket.wait(seen, left);
        };
        // Relaxed: a waker that still sees this waiter only wakes in vain.
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        held
    }
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}
