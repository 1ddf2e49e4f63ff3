//! Who writes which pages home: a lane of numbers for each thread, and claims on them by compare-and-swap.
//!
//! What this leaves to others: what the numbers mean. (That a page goes home once is said by its own state, which is
//! claimed by a compare-and-swap too; see [`crate::store::Page`].)
//!
//! # Protocol
//! 1. The numbers are dealt out before anybody claims, in runs: neighbours lie in one lane.
//! 2. A lane is one word: the first number that nobody has claimed, and the end of those that nobody has.
//! 3. Its thread claims from the beginning, as many as it can write at once.
//! 4. A thread whose lane is empty claims from the ends of others', at the most half of what is left there: what the
//!    lane's own thread comes to next stays with it, in one run.
//! 5. Nothing is ever put back: the first number only grows, the end only falls, so a word that is what it was has not
//!    changed meanwhile. A lane that was seen empty is empty for good, and who has seen all of them empty is done,
//!    whatever became of the other threads: lanes of threads that could not be started are emptied by the rest.
//!
//! Models: `loom_models.rs`.

use std::ops::Range;

use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The numbers below a count, for several threads to claim.
pub(super) struct Claims {
    lanes: Vec<CachePadded<AtomicU64>>,
}

/// Bits of the end; above them lies the beginning.
const END_BITS: u32 = 32;

fn word(left: &Range<usize>) -> u64 {
    (left.start as u64) << END_BITS | left.end as u64
}

fn left(word: u64) -> Range<usize> {
    (word >> END_BITS) as usize..word as u32 as usize
}

impl Claims {
    /// The numbers below `count`, in `lanes` lanes.
    pub fn new(count: usize, lanes: usize) -> Claims {
        assert!(u32::try_from(count).is_ok(), "metadata pages are counted in 32 bits");
        let lane = |n: usize| count * n / lanes..count * (n + 1) / lanes;
        let lanes = (0..lanes).map(|n| CachePadded::new(AtomicU64::new(word(&lane(n)))));
        Claims { lanes: lanes.collect() }
    }

    /// Up to `most` numbers that nobody else gets, for the thread of lane `own`; none once all are claimed.
    pub fn take(&self, own: usize, most: usize) -> Option<Range<usize>> {
        let count = self.lanes.len();
        let first = |left: &Range<usize>| left.start..left.end.min(left.start.saturating_add(most));
        let last = |left: &Range<usize>| left.end - left.len().div_ceil(2).min(most)..left.end;
        self.claim(own, first).or_else(|| (1..count).find_map(|n| self.claim((own + n) % count, last)))
    }

    /// Claims a part of what is left of a lane, at its beginning or its end.
    fn claim(&self, lane: usize, part: impl Fn(&Range<usize>) -> Range<usize>) -> Option<Range<usize>> {
        let rest = |seen: u64| {
            let left = left(seen);
            let claimed = part(&left);
            let rest =
                if claimed.start == left.start { claimed.end..left.end } else { left.start..claimed.start };
            (!left.is_empty()).then(|| (word(&rest), claimed))
        };
        // Relaxed on both: the claim is the word itself; what the numbers stand for was there before the threads were.
        let seen =
            self.lanes[lane].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seen| Some(rest(seen)?.0));
        seen.ok().and_then(rest).map(|(_, claimed)| claimed)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_claimed_once_whoever_comes() {
        for (count, lanes) in [(0, 1), (1, 4), (7, 2), (100, 3), (1000, 8)] {
            for threads in 1..=lanes {
                let claims = Claims::new(count, lanes);
                let mut claimed: Vec<usize> = std::thread::scope(|scope| {
                    let claims = &claims;
                    let work = move |own| std::iter::from_fn(|| claims.take(own, 3)).flatten().collect();
                    let all: Vec<_> = (0..threads).map(|own| scope.spawn(move || work(own))).collect();
                    all.into_iter().flat_map(|one| -> Vec<usize> { one.join().expect("no panic") }).collect()
                });
                claimed.sort_unstable();
                assert_eq!(claimed, (0..count).collect::<Vec<_>>());
                assert!(claims.take(0, 1).is_none());
            }
        }
    }

    #[test]
    fn who_comes_to_help_leaves_the_beginning() {
        let claims = Claims::new(20, 2);
        assert_eq!(claims.take(0, 4), Some(0..4));
        assert_eq!(claims.take(0, 100), Some(4..10));
        assert_eq!(claims.take(0, 3), Some(17..20));
        assert_eq!(claims.take(0, 100), Some(13..17));
        assert_eq!(claims.take(1, 2), Some(10..12));
        assert_eq!(claims.take(0, 100), Some(12..13));
        assert_eq!((claims.take(0, 1), claims.take(1, 1)), (None, None));
    }
}
