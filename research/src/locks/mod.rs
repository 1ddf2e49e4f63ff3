//! Range locks of the literature, second implementations of the engine's
//! [`FileLock`](narufs_engine::lock::FileLock), for comparison alone.
//!
//! | | what it is | a held range is |
//! | --- | --- | --- |
//! | `TreeLock`, with the feature `baselines` | as published for F2FS: an interval tree and counts of those ahead, under one lock | a node of the tree |
//! | [`ListLock`] | Kogan, Dice, Issa, EuroSys'20: a lock-free list sorted by start | a node of the list |
//! | [`ShardLock`] | lists by segment, each under a mutex | an entry in each list |
//! | `narufs_engine::lock::RangeLock` | the engine's: one word for the file, then one word for each segment, then lists | a word |
//!
//! Waiters sleep in all of them. The first three make no difference between the first thread and the second.

mod list;
mod shards;

pub use list::ListLock;
/// The published lock is one that a mount can have.
#[cfg(feature = "baselines")]
pub use narufs_engine::lock::TreeLock;
pub use shards::ShardLock;

use narufs_engine::lock::Access;
use std::ops::Range;

/// A range and how it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u64,
    end: u64,
    access: Access,
}

impl Span {
    fn new(range: Range<u64>, access: Access) -> Span {
        let start = range.start.min(u64::MAX - 1);
        Span { start, end: range.end.max(start + 1), access }
    }

    fn overlaps(&self, other: &Span) -> bool {
        self.start < other.end && other.start < self.end
    }

    fn excludes(&self, other: &Span) -> bool {
        (self.access == Access::Write || other.access == Access::Write) && self.overlaps(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narufs_engine::lock::{FileLock, RangeLock};
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

    const CELLS: u64 = 8;
    const WRITER: i64 = 1 << 32;

    /// Threads take random ranges of cells; who is in a cell with a writer notices.
    fn conforms<L: FileLock>() {
        let lock = L::for_file(1);
        let cells: [AtomicI64; CELLS as usize] = std::array::from_fn(|_| AtomicI64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..6_u64 {
                let (lock, cells) = (&lock, &cells);
                scope.spawn(move || {
                    let mut random = thread + 1;
                    for step in 0..3000 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let first = (random >> 33) % CELLS;
                        let last = first + (random >> 40) % (CELLS - first);
                        let end = if last + 1 == CELLS { u64::MAX } else { (last + 1) << 14 };
                        let writes = (random >> 50).is_multiple_of(3);
                        let range = first << 14..end;
                        let guard = match (writes, step % 5) {
                            (true, 0) => lock.try_write(range),
                            (false, 0) => lock.try_read(range),
                            (true, _) => Some(lock.write(range)),
                            (false, _) => Some(lock.read(range)),
                        };
                        if guard.is_none() {
                            continue;
                        }
                        let mine = if writes { WRITER } else { 1 };
                        for cell in &cells[first as usize..=last as usize] {
                            let before = cell.fetch_add(mine, SeqCst);
                            assert!(before < WRITER && (!writes || before == 0), "the lock let two in");
                        }
                        for cell in &cells[first as usize..=last as usize] {
                            cell.fetch_sub(mine, SeqCst);
                        }
                    }
                });
            }
        });
        assert!(lock.try_write(0..u64::MAX).is_some(), "everything was given back");
        let held = lock.try_read(0..4096).expect("free");
        assert!(lock.try_write(0..1).is_none());
        drop(held);
    }

    #[test]
    fn the_list_conforms() {
        conforms::<ListLock>();
    }

    #[test]
    fn the_shards_conform() {
        conforms::<ShardLock>();
    }

    #[test]
    fn the_engine_s_conforms() {
        conforms::<RangeLock>();
    }
}
