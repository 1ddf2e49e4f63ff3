//! Freed blocks that may not be given out yet.
//!
//! A block that held data leaves when its freeing record is durable against a loss of power: else a crash could
//! bring the old owner back with the new owner's bytes. A block that held metadata leaves when the journal's
//! head has passed the record: until then redo may write the old page to it. No write to a block is in flight when the
//! record that frees it is made: who writes data home has its file's write-back mutex, and who frees them takes it.
//!
//! What this leaves to others: the bits and the counts of what it lets go.

use std::collections::VecDeque;

use super::Extent;
use crate::format::Position;
use crate::lane;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{CachePadded, Mutex};

/// What was freed, by the end of the freeing record, lowest first.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    waiting: Mutex<VecDeque<(Position, T)>>,
    /// End of the lowest record in the queue, `u64::MAX` if it is empty.
    // Relaxed everywhere: written under the lock; a reader that sees it late comes again with the next
    // commit or head.
    lowest: AtomicU64,
}

impl<T> Queue<T> {
    /// An empty queue.
    pub fn new() -> Queue<T> {
        Queue { waiting: Mutex::new(VecDeque::new()), lowest: AtomicU64::new(u64::MAX) }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.lowest.load(Relaxed) == u64::MAX
    }

    /// Takes in what the record that ends at `end` has freed.
    pub fn push(&self, end: Position, freed: T) {
        let mut waiting = self.waiting.lock();
        // Two threads of a lane may come in either order, by a few places.
        let at = waiting.iter().rposition(|(other, _)| *other <= end).map_or(0, |at| at + 1);
        waiting.insert(at, (end, freed));
        self.note(&waiting);
    }

    fn note(&self, waiting: &VecDeque<(Position, T)>) {
        self.lowest.store(waiting.front().map_or(u64::MAX, |(end, _)| *end), Relaxed);
    }

    /// Lets go what was freed by records that end at or below `upto`.
    pub fn pop(&self, upto: Position, out: &mut Vec<T>) {
        if self.lowest.load(Relaxed) > upto {
            return;
        }
        let mut waiting = self.waiting.lock();
        let ripe = waiting.iter().take_while(|(end, _)| *end <= upto).count();
        out.extend(waiting.drain(..ripe).map(|(_, freed)| freed));
        self.note(&waiting);
    }
}

/// One lane's share.
#[derive(Debug)]
struct Share {
    data: Queue<Extent>,
    metadata: Queue<Extent>,
}

/// Freed blocks that wait.
#[derive(Debug)]
pub(super) struct Quarantine {
    shares: Box<[CachePadded<Share>]>,
    blocks: AtomicU64,
}

impl Quarantine {
    /// Nothing is in it.
    pub fn new() -> Quarantine {
        let share = || Share { data: Queue::new(), metadata: Queue::new() };
        Quarantine {
            shares: (0..lane::count()).map(|_| CachePadded::new(share())).collect(),
            blocks: AtomicU64::new(0),
        }
    }

    /// Number of blocks that wait.
    pub fn blocks(&self) -> u64 {
        // Relaxed: a moment's answer.
        self.blocks.load(Relaxed)
    }

    /// Takes in what the record that ends at `end` has freed.
    pub fn push(&self, end: Position, extent: Extent, was_metadata: bool) {
        // Relaxed: counted before it can leave, so the number never falls below 0.
        self.blocks.fetch_add(u64::from(extent.len), Relaxed);
        let share = &self.shares[lane::current()];
        if was_metadata { &share.metadata } else { &share.data }.push(end, extent);
    }

    /// Lets go the data blocks freed by records that end at or below `upto`.
    pub fn data_durable(&self, upto: Position) -> Vec<Extent> {
        self.pop(upto, |share| &share.data)
    }

    /// Lets go the metadata blocks freed by records that end at or below `upto`.
    pub fn head_passed(&self, upto: Position) -> Vec<Extent> {
        self.pop(upto, |share| &share.metadata)
    }

    fn pop(&self, upto: Position, queue: impl Fn(&Share) -> &Queue<Extent>) -> Vec<Extent> {
        let mut out = Vec::new();
        for share in &self.shares {
            queue(share).pop(upto, &mut out);
        }
        // Relaxed: see `push`.
        self.blocks.fetch_sub(out.iter().map(|extent| u64::from(extent.len)).sum(), Relaxed);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64) -> Extent {
        Extent { start, len: 2 }
    }

    #[test]
    fn data_and_metadata_wait_for_different_things() {
        let quarantine = Quarantine::new();
        quarantine.push(20, extent(200), false);
        quarantine.push(10, extent(100), false);
        quarantine.push(15, extent(300), true);
        assert_eq!(quarantine.blocks(), 6);
        assert_eq!(quarantine.data_durable(9), []);
        assert_eq!(quarantine.data_durable(19), [extent(100)]);
        assert_eq!(quarantine.head_passed(14), []);
        assert_eq!(quarantine.head_passed(15), [extent(300)]);
        assert_eq!(quarantine.data_durable(u64::MAX - 1), [extent(200)]);
        assert_eq!(quarantine.blocks(), 0);
    }
}
