//! Readers counted by core, and the moment when those of before have left.
//!
//! A thread that follows pointers that another thread may take away does so between [`Readers::enter`] and the end of
//! the [`Reading`] that it gives. A thread that takes a pointer away keeps what it led to until every reader that may
//! have seen it has left (a *grace period*); nobody ever waits for that: it is looked at now and then
//! ([`Readers::poll`]).
//!
//! What this leaves to others: what waits for the end of a period (`rcu_table::limbo`), and that readers are brief: a
//! reader takes no lock, makes no system call and does not allocate, so that it is held up by the scheduler alone.
//!
//! # Protocol
//! The epoch is a number that only rises; its lowest bit is the *parity*. Each core has two counters, one a parity.
//! 1. A reader reads the epoch and adds one to the counter of that parity of its core; a fence follows; then it reads.
//!    It may have read an old epoch: nothing depends on which of the two it takes.
//! 2. It leaves by taking one from the very counter it added to, wherever it runs by then.
//! 3. The epoch goes from e to e + 1 by a thread that has, after reading e and a fence, found all counters of the
//!    parity of e + 1 at zero. Readers of that parity stay out meanwhile but for stragglers, so they come to zero.
//! 4. What was unlinked may be freed when the epoch is three further than it was found after the unlinking and a
//!    fence. Of these three steps the first may have been under way before; the second and the third began later, and
//!    have seen each of a core's two counters at zero in between. A counter that is at zero has been left by all that
//!    entered before; and by the fences, a thread that enters it afterwards does not see what was unlinked.
//!
//! This is the sleepable RCU of Linux (McKenney, "Sleepable Read-Copy Update", 2006) with one count in place of its
//! two, as readers here know where they entered, and without its waiting. Models: `loom_readers.rs`.

use super::CachePadded;
use super::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Most cores with counters of their own; more share them.
const MOST_CORES: usize = 128;
/// Steps of the epoch that make up a grace period.
const STEPS: u64 = 3;

/// Those that read now, by core.
#[derive(Debug)]
pub struct Readers {
    epoch: CachePadded<AtomicU64>,
    cores: Box<[CachePadded<[AtomicUsize; 2]>]>,
}

/// A reader inside; it leaves when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Reading<'a>(&'a AtomicUsize);

/// When something was unlinked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grace(u64);

impl Readers {
    /// Nobody reads yet. Models have one core unless they say otherwise.
    pub fn new() -> Readers {
        let cores = if cfg!(any(loom, shuttle)) { 1 } else { super::available_cores().min(MOST_CORES) };
        Readers::with_cores(cores)
    }

    pub(super) fn with_cores(cores: usize) -> Readers {
        let counters = || CachePadded::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        Readers {
            epoch: CachePadded::new(AtomicU64::new(0)),
            cores: (0..cores).map(|_| counters()).collect(),
        }
    }

    /// Begins to read.
    #[inline]
    pub fn enter(&self) -> Reading<'_> {
        self.enter_at(if self.cores.len() == 1 { 0 } else { rustix::thread::sched_getcpu() })
    }

    #[inline]
    pub(super) fn enter_at(&self, core: usize) -> Reading<'_> {
        // Relaxed: rule 1; the counters decide.
        let parity = self.epoch.load(Ordering::Relaxed) as usize % 2;
        let count = &self.cores[core % self.cores.len()][parity];
        if cfg!(all(target_arch = "x86_64", not(any(loom, shuttle)))) {
            // A locked instruction is a full barrier of this processor, several times cheaper than its fence.
            count.fetch_add(1, Ordering::SeqCst);
            std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        } else {
            count.fetch_add(1, Ordering::Relaxed);
            // SeqCst: pairs with the fences of `now` and `advance`: either the count is seen there, or what is read
            // from here on shows what was unlinked before.
            fence(Ordering::SeqCst);
        }
        Reading(count)
    }

    /// The moment after what the caller has just unlinked; see [`Readers::passed`].
    pub fn now(&self) -> Grace {
        // SeqCst: pairs with the fences of `enter` and `advance`.
        fence(Ordering::SeqCst);
        // Relaxed: the fence orders it.
        Grace(self.epoch.load(Ordering::Relaxed))
    }

    /// Whether all that read at that moment have left.
    pub fn passed(&self, since: Grace) -> bool {
        // Acquire: pairs with the Release in `advance`, which has acquired what the readers released on leaving.
        self.epoch.load(Ordering::Acquire) >= since.0 + STEPS
    }

    /// The same, after moving the epoch on as far as those that read now permit.
    pub fn poll(&self, since: Grace) -> bool {
        for _ in 0..STEPS {
            if self.passed(since) {
                return true;
            }
            if !self.advance() {
                return false;
            }
        }
        self.passed(since)
    }

    /// Moves the epoch on by one, unless somebody still reads in the parity that would come.
    fn advance(&self) -> bool {
        // Relaxed: what earlier steps have seen of readers goes on with theirs, as each step is an exchange.
        let epoch = self.epoch.load(Ordering::Relaxed);
        // SeqCst: pairs with the fence of `enter`, and with that of `now` for a thread that has found the epoch before
        // this.
        fence(Ordering::SeqCst);
        let parity = (epoch as usize + 1) % 2;
        // Acquire: pairs with the Release of a reader that leaves.
        if self.cores.iter().any(|core| core[parity].load(Ordering::Acquire) != 0) {
            return false;
        }
        // Release: pairs with the Acquire in `passed`. A failure says that another has made the step.
        let _ = self.epoch.compare_exchange(epoch, epoch + 1, Ordering::Release, Ordering::Relaxed);
        true
    }
}

impl Default for Readers {
    fn default() -> Self {
        Readers::new()
    }
}

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `advance`: what was read was read before.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_period_ends_when_those_who_read_at_its_beginning_have_left() {
        let readers = Readers::with_cores(2);
        for core in 0..2 {
            let reading = readers.enter_at(core);
            let since = readers.now();
            assert!(!readers.poll(since) && !readers.poll(since));
            let later = readers.enter_at(1 - core);
            drop(reading);
            drop(later);
            assert!(readers.poll(since));
        }
    }

    /// Readers that follow each other without a gap: those of before leave all the same.
    #[test]
    fn readers_that_overlap_for_ever_hold_nothing_up() {
        let readers = Readers::with_cores(1);
        let mut reading = readers.enter_at(0);
        for _ in 0..100 {
            let since = readers.now();
            let mut looks = 0;
            while !readers.poll(since) {
                let next = readers.enter_at(0);
                reading = next;
                looks += 1;
                assert!(looks < 10);
            }
        }
        drop(reading);
    }
}
