//! How many blocks may still be promised: exact, and spread over lanes so that cores do not share a line.
//!
//! Every free block of the image is in exactly one place: in the common pot, in a lane's purse, in the
//! reserve for operations that make room, or promised to somebody (a reservation, an allocation under way).
//! Which block it will be is of no interest here.

use crate::lane;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{CachePadded, Mutex};

/// Blocks that a purse takes from the pot at a time.
const PURSE: u64 = 256;

/// The account of free blocks.
// Every access is Relaxed: the numbers publish nothing; which blocks they stand for is settled under the
// lock of a group.
#[derive(Debug)]
pub(crate) struct Budget {
    pot: AtomicU64,
    purses: Box<[CachePadded<AtomicU64>]>,
    reserve: AtomicU64,
    reserve_target: u64,
    sweep: Mutex<()>,
}

fn subtract(from: &AtomicU64, n: u64) -> bool {
    from.fetch_update(Relaxed, Relaxed, |have| have.checked_sub(n)).is_ok()
}

impl Budget {
    /// An account of `free` blocks, of which up to `reserve_target` are kept back.
    pub fn new(free: u64, reserve_target: u64) -> Budget {
        let reserve = free.min(reserve_target);
        Budget {
            pot: AtomicU64::new(free - reserve),
            purses: (0..lane::count()).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            reserve: AtomicU64::new(reserve),
            reserve_target,
            sweep: Mutex::new(()),
        }
    }

    /// Takes `n` blocks, or none.
    pub fn take(&self, n: u64) -> bool {
        let purse = &self.purses[lane::current()];
        if subtract(purse, n) {
            return true;
        }
        // A purse is filled only while the pot is large: what is on its way from pot to purse is not seen
        // by a sweep.
        if self.pot.load(Relaxed) > n + PURSE * 4 * self.purses.len() as u64 && subtract(&self.pot, n + PURSE)
        {
            purse.fetch_add(PURSE, Relaxed);
            return true;
        }
        if subtract(&self.pot, n) {
            return true;
        }
        let _one_at_a_time = self.sweep.lock();
        self.empty_purses();
        subtract(&self.pot, n)
    }

    /// Takes `n` blocks, or none; from what is kept back as well where there are no others.
    pub fn take_even_reserved(&self, n: u64) -> bool {
        if self.take(n) {
            return true;
        }
        let taken = self.take_up_to(n);
        let is_enough = subtract(&self.reserve, n - taken);
        if !is_enough {
            self.pot.fetch_add(taken, Relaxed);
        }
        is_enough
    }

    /// Takes `n` blocks or as many as there are.
    pub fn take_up_to(&self, n: u64) -> u64 {
        if self.take(n) {
            return n;
        }
        let mut taken = 0;
        // The update always succeeds: it subtracts no more than there is.
        let _ = self.pot.fetch_update(Relaxed, Relaxed, |have| {
            taken = have.min(n);
            Some(have - taken)
        });
        taken
    }

    /// Takes `n` blocks from what is kept back for operations that make room.
    pub fn take_reserve(&self, n: u64) -> bool {
        subtract(&self.reserve, n)
    }

    /// Takes `n` blocks from what is kept back, as long as half of that stays.
    pub fn take_half_of_reserve(&self, n: u64) -> bool {
        let least = self.reserve_target / 2;
        let less = |have: u64| have.checked_sub(n).filter(|left| *left >= least);
        self.reserve.fetch_update(Relaxed, Relaxed, less).is_ok()
    }

    /// Fills up what is kept back while there is plenty.
    pub fn fill_reserve(&self) {
        let missing = self.missing();
        if missing > 0 && self.pot.load(Relaxed) > 4 * self.reserve_target && subtract(&self.pot, missing) {
            self.give(missing);
        }
    }

    /// Gives blocks back that were promised as data and were not needed. Nothing of them goes to the reserve: a thread
    /// that has taken extents from that, one record after the other, takes them again.
    pub fn give_back(&self, n: u64) {
        self.pot.fetch_add(n, Relaxed);
    }

    /// Gives blocks back: first to the reserve.
    pub fn give(&self, n: u64) {
        let mut rest = n;
        if self.reserve.load(Relaxed) < self.reserve_target {
            // The update always succeeds: it adds no more than is missing.
            let _ = self.reserve.fetch_update(Relaxed, Relaxed, |have| {
                let add = self.reserve_target.saturating_sub(have).min(n);
                rest = n - add;
                Some(have + add)
            });
        }
        if rest > 0 {
            self.pot.fetch_add(rest, Relaxed);
        }
    }

    fn empty_purses(&self) {
        for purse in &self.purses {
            let n = purse.swap(0, Relaxed);
            if n > 0 {
                self.pot.fetch_add(n, Relaxed);
            }
        }
    }

    /// Blocks that can be promised now, without the reserve.
    pub fn available(&self) -> u64 {
        self.pot.load(Relaxed) + self.purses.iter().map(|purse| purse.load(Relaxed)).sum::<u64>()
    }

    /// Blocks that the next to be given back fill the reserve with.
    pub fn missing(&self) -> u64 {
        self.reserve_target.saturating_sub(self.reserved())
    }

    /// Blocks that are kept back when none are missing.
    pub fn reserve_target(&self) -> u64 {
        self.reserve_target
    }

    /// Blocks kept back.
    pub fn reserved(&self) -> u64 {
        self.reserve.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_is_found_in_another_lanes_purse() {
        let blocks = 100_000;
        let budget = Budget::new(blocks, 10);
        lane::pin(Some(0));
        assert!(budget.take(1));
        lane::pin(Some(1));
        assert!(budget.take(blocks - 11));
        assert!(!budget.take(1));
        assert_eq!(budget.take_up_to(5), 0);
        assert!(budget.take_reserve(10) && !budget.take_reserve(1));
        budget.give(4);
        assert_eq!((budget.available(), budget.reserved()), (0, 4));
        budget.give(10);
        assert_eq!((budget.available(), budget.reserved()), (4, 10));
        assert_eq!(budget.take_up_to(9), 4);
        lane::pin(None);
    }

    #[test]
    fn what_is_kept_back_is_given_to_who_was_promised_it_before() {
        let budget = Budget::new(100, 20);
        assert!(!budget.take(85) && budget.take_even_reserved(85));
        assert_eq!((budget.available(), budget.reserved()), (0, 15));
        assert!(!budget.take_even_reserved(16));
        assert_eq!((budget.available(), budget.reserved()), (0, 15));
    }

    #[test]
    fn half_of_what_is_kept_back_stays_and_is_filled_up_while_there_is_plenty() {
        let budget = Budget::new(1000, 20);
        assert!(budget.take_half_of_reserve(7) && !budget.take_half_of_reserve(4));
        assert!(budget.take_half_of_reserve(3));
        assert_eq!((budget.reserved(), budget.missing()), (10, 10));
        budget.fill_reserve();
        assert_eq!((budget.available(), budget.reserved(), budget.missing()), (970, 20, 0));
        assert!(budget.take_half_of_reserve(10) && budget.take(900));
        budget.fill_reserve();
        assert_eq!((budget.available(), budget.missing()), (70, 10), "others want these more");
        budget.give(15);
        assert_eq!((budget.available(), budget.missing()), (75, 0));
    }

    #[test]
    fn threads_take_each_block_once() {
        let budget = Budget::new(50_000, 0);
        let taken: u64 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|lane| {
                    let budget = &budget;
                    scope.spawn(move || {
                        lane::pin(Some(lane));
                        let mut taken = 0;
                        while budget.take(3) {
                            taken += 3;
                        }
                        taken
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
        });
        assert_eq!(taken + budget.available(), 50_000);
        assert!(budget.available() < 3 * 4);
    }
}
