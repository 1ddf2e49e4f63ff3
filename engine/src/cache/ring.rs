//! A queue of frame numbers without a lock. Each number is in it once at the most, which is its caller's care, so
//! that it never overflows.
//!
//! # Protocol
//! A thread that puts a number in takes the next place by adding to `tail`, waits until any thread that has the number
//! of a whole round before has emptied it, and stores there. A thread that takes one out moves `head` past it, waits
//! until it is stored, and empties the place. Both waits are for another thread's next instruction: a place is claimed
//! only when it has been promised.

use super::pool::pause;
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// See the module.
#[derive(Debug)]
pub(super) struct Ring {
    /// 0, or a number plus one.
    places: Box<[AtomicU32]>,
    head: CachePadded<AtomicUsize>,
    tail: CachePadded<AtomicUsize>,
}

impl Ring {
    /// An empty ring for the numbers below `numbers`.
    pub fn new(numbers: usize) -> Ring {
        Ring {
            places: (0..numbers).map(|_| AtomicU32::new(0)).collect(),
            head: CachePadded::new(AtomicUsize::new(0)),
            tail: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    fn place(&self, at: usize) -> &AtomicU32 {
        &self.places[at % self.places.len()]
    }

    /// Numbers in the ring as of some recent moment.
    pub fn len(&self) -> usize {
        // Relaxed, both: a bound for loops; `pop` decides.
        let tail = self.tail.load(Ordering::Relaxed);
        tail.saturating_sub(self.head.load(Ordering::Relaxed))
    }

    /// Adds a number that is not in the ring.
    pub fn push(&self, number: u32) {
        // Relaxed: the exchange below publishes.
        let place = self.place(self.tail.fetch_add(1, Ordering::Relaxed));
        let mut round = 0;
        // Release: pairs with the Acquire in `pop`, so that what was done to the frame before is seen. Relaxed on
        // failure: tried again.
        while place.compare_exchange(0, number + 1, Ordering::Release, Ordering::Relaxed).is_err() {
            pause(&mut round);
        }
    }

    /// Takes the oldest out.
    pub fn pop(&self) -> Option<u32> {
        // Relaxed, here and below: the exchange of `head` decides which thread has the place, the swap brings the
        // number.
        let mut at = self.head.load(Ordering::Relaxed);
        loop {
            if at >= self.tail.load(Ordering::Relaxed) {
                return None;
            }
            match self.head.compare_exchange_weak(at, at + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => at = now,
            }
        }
        let mut round = 0;
        loop {
            // Acquire: pairs with the Release in `push`.
            if let Some(number) = self.place(at).swap(0, Ordering::Acquire).checked_sub(1) {
                return Some(number);
            }
            pause(&mut round);
        }
    }
}
