//! A table by number that a sweeping hand keeps small: what comes in joins a queue, and is looked at in turn.
//!
//! What this leaves to others: locks, and which entries may go.
//!
//! Invariants: every entry's number is in the queue. The queue may have numbers that are *stale*: their entry was
//! removed, or they are there a second time. They never outnumber entries by more than [`SLACK`]: if they would,
//! one pass forgets them all, which those removals have paid for.

use crate::numbers::NumberMap;
use std::collections::VecDeque;

/// Stale numbers that are not worth a pass.
const SLACK: usize = 16;

/// The table.
#[derive(Debug)]
pub(crate) struct Swept<V> {
    entries: NumberMap<V>,
    /// In the order of the hand.
    queue: VecDeque<u64>,
}

impl<V> Default for Swept<V> {
    fn default() -> Self {
        Swept { entries: NumberMap::default(), queue: VecDeque::new() }
    }
}

impl<V> Swept<V> {
    /// The entry of a number.
    pub fn get(&self, number: u64) -> Option<&V> {
        self.entries.get(&number)
    }

    /// Puts an entry there, in the place of the one that the number may have had.
    pub fn insert(&mut self, number: u64, value: V) {
        if self.entries.insert(number, value).is_none() {
            self.queue.push_back(number);
        }
        if self.queue.len() > 2 * self.entries.len() + SLACK {
            self.forget_stale();
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, number: u64) {
        self.entries.remove(&number);
    }

    /// The entries, in no order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Numbers in the queue.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Makes room where there are more than `limit` entries: looks at `looks` numbers of the queue at the most,
    /// and drops the entries that `may_go`.
    pub fn sweep(&mut self, limit: usize, looks: usize, mut may_go: impl FnMut(u64, &V) -> bool) {
        for _ in 0..looks {
            if self.entries.len() <= limit {
                break;
            }
            let Some(number) = self.queue.pop_front() else { break };
            let Some(value) = self.entries.get(&number) else { continue };
            if may_go(number, value) {
                self.entries.remove(&number);
            } else {
                self.queue.push_back(number);
            }
        }
    }

    /// Leaves each entry's number in the queue once, where it comes up first.
    fn forget_stale(&mut self) {
        let mut seen = NumberMap::with_capacity_and_hasher(self.entries.len(), Default::default());
        self.queue.retain(|number| self.entries.contains_key(number) && seen.insert(*number, ()).is_none());
        // Not to its length: the next that come in would make it grow at once.
        self.queue.shrink_to(2 * self.queue.len() + SLACK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_leaves_nothing_behind() {
        let mut table = Swept::default();
        for number in 0..100_000 {
            table.insert(number, ());
            if number >= 10 {
                table.remove(number - 10);
            }
            assert!(table.queue.len() <= 2 * (table.len() + 1) + SLACK);
        }
        assert_eq!(table.len(), 10);
        assert!(table.queue.capacity() <= 128, "{}", table.queue.capacity());
    }

    #[test]
    fn the_same_number_may_come_and_go() {
        let mut table = Swept::default();
        table.insert(1, 0);
        for n in 0..100_000 {
            table.insert(2, n);
            table.insert(2, n + 1);
            table.remove(2);
        }
        table.insert(2, 7);
        assert_eq!(table.get(2), Some(&7));
        assert!(table.queue.len() <= 2 * table.len() + SLACK);
        table.sweep(0, usize::MAX, |_, _| true);
        assert_eq!(table.len(), 0);
    }

    /// The hand comes to each entry, whatever was forgotten, and those that may not go come up again.
    #[test]
    fn every_entry_comes_up_in_turn() {
        let mut table = Swept::default();
        for number in 0..1000 {
            table.insert(number, number);
        }
        for number in (0..1000).filter(|n| n % 10 != 0) {
            table.remove(number);
        }
        (1000..1010).for_each(|number| table.insert(number, number));
        let mut met = Vec::new();
        table.sweep(0, 110, |number, value| {
            assert_eq!(number, *value);
            met.push(number);
            false
        });
        assert_eq!(met, (0..1000).step_by(10).chain(1000..1010).collect::<Vec<_>>());
        table.sweep(100, usize::MAX, |number, _| number % 20 == 0);
        assert_eq!(table.len(), 100);
        assert!(table.get(0).is_none() && table.get(10).is_some());
    }
}
