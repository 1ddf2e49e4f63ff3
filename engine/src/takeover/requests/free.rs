//! Which slots are free: a bit for each, and for each lane a place where it begins to look.
//!
//! # Protocol
//! Who clears a set bit has the slot, until it sets the bit again. Acquire and Release of that pair: what its last owner
//! did with the slot is over for the next one. Where a lane begins is a hint: a lane takes the slot that it gave last, whose
//! cache line it has, and no other lane looks there before its own are all in use.
//!
//! Invariant: a slot has one owner at most.

use crate::lane;
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU64, Ordering};

const BITS: usize = u64::BITS as usize;

/// See the module.
#[derive(Debug)]
pub(super) struct FreeSlots {
    /// A set bit is a free slot.
    words: Box<[CachePadded<AtomicU64>]>,
}

impl FreeSlots {
    /// So many slots, but for those that are in use.
    pub fn new(slots: usize, in_use: impl IntoIterator<Item = usize>) -> FreeSlots {
        let mut words: Vec<u64> =
            (0..slots).step_by(BITS).map(|first| u64::MAX >> BITS.saturating_sub(slots - first)).collect();
        in_use.into_iter().for_each(|slot| words[slot / BITS] &= !(1 << (slot % BITS)));
        FreeSlots { words: words.into_iter().map(|word| CachePadded::new(AtomicU64::new(word))).collect() }
    }

    /// A free slot, which is the caller's now. None: there is none.
    #[inline]
    pub fn take(&self) -> Option<usize> {
        let count = self.words.len();
        let first = lane::current() * count / lane::count();
        (0..count).map(|nth| (first + nth) % count).find_map(|at| self.take_from(at))
    }

    #[inline]
    fn take_from(&self, at: usize) -> Option<usize> {
        let word = &self.words[at];
        // Relaxed: the bit is looked at again as it is taken.
        let mut seen = word.load(Ordering::Relaxed);
        while seen != 0 {
            let bit = seen & seen.wrapping_neg();
            // Acquire: pairs with the Release of `give`.
            seen = word.fetch_and(!bit, Ordering::Acquire);
            if seen & bit != 0 {
                return Some(at * BITS + bit.trailing_zeros() as usize);
            }
        }
        None
    }

    /// The caller's slot is free from now on.
    #[inline]
    pub fn give(&self, slot: usize) {
        // Release: what was done with it is over for who takes it.
        self.words[slot / BITS].fetch_or(1 << (slot % BITS), Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_free_slot_is_taken_once_from_whatever_lane() {
        let free = FreeSlots::new(200, (0..200).step_by(3));
        let mut taken = BTreeSet::new();
        for turn in 0.. {
            lane::pin(Some(turn % 3));
            match free.take() {
                Some(slot) => assert!(taken.insert(slot)),
                None => break,
            }
        }
        lane::pin(None);
        assert!(taken.iter().copied().eq((0..200).filter(|slot| slot % 3 != 0)));
        free.give(100);
        assert_eq!((free.take(), free.take()), (Some(100), None));
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::sync::{Arc, thread};
    use loom::cell::UnsafeCell;

    #[test]
    fn loom_a_slot_has_one_owner_at_a_time() {
        loom::model(|| {
            let shared = Arc::new((FreeSlots::new(2, []), [UnsafeCell::new(()), UnsafeCell::new(())]));
            let other = Arc::clone(&shared);
            let work = |(free, cells): &(FreeSlots, [UnsafeCell<()>; 2])| {
                lane::pin(Some(0));
                for _ in 0..2 {
                    if let Some(slot) = free.take() {
                        // The model fails if two threads are here at once, or one does not see the other's end.
                        cells[slot].with_mut(|_| ());
                        free.give(slot);
                    }
                }
            };
            let thread = thread::spawn(move || work(&other));
            work(&shared);
            thread.join().expect("no panic");
            assert_eq!([shared.0.take(), shared.0.take()].map(|slot| slot.is_some()), [true, true]);
        });
    }
}
