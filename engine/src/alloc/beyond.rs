//! Promises beyond blocks: the scratch profile promises memory and spill space together, and a page in memory that
//! was promised room may find none of the blocks free. Then it stays in memory.
//!
//! Data leaves a share of the blocks to metadata, so that what is spilled can be recorded, and what frees space
//! gets on.

use super::{Class, Extent, Shared, Wish};
use crate::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// How many blocks are left behind the promises.
// Every access is Relaxed: the number publishes nothing; which blocks it stands for is settled under the lock of
// a group.
#[derive(Debug)]
pub(super) struct Beyond {
    /// Free blocks without those kept for metadata, which may take more than there are.
    blocks: AtomicI64,
    promised: u64,
}

impl Beyond {
    /// Of `free` blocks `kept_back` are metadata's; `promised` are promised that do not exist.
    pub fn new(free: u64, kept_back: u64, promised: u64) -> Beyond {
        Beyond { blocks: AtomicI64::new(free as i64 - kept_back as i64), promised }
    }

    /// Blocks that are promised and do not exist.
    pub fn promised(&self) -> u64 {
        self.promised
    }

    /// Up to `want` blocks for data.
    fn take(&self, want: u32) -> u32 {
        let mut taken = 0;
        // The update always succeeds: it subtracts no more than there is.
        let _ = self.blocks.fetch_update(Relaxed, Relaxed, |have| {
            taken = have.clamp(0, i64::from(want));
            Some(have - taken)
        });
        taken as u32
    }

    /// Takes blocks back.
    pub fn give(&self, blocks: u32) {
        self.blocks.fetch_add(i64::from(blocks), Relaxed);
    }
}

impl Shared {
    /// Blocks for a promise, as far as there are any.
    pub(super) fn pick_real(&self, (want, ahead): Wish, goal: Option<u64>, class: Class) -> Option<Extent> {
        let Some(beyond) = &self.beyond else { return self.pick((want, ahead), goal, class) };
        if class != Class::Data {
            let extent = self.pick((want, ahead), goal, class)?;
            beyond.blocks.fetch_sub(i64::from(extent.len), Relaxed);
            return Some(extent);
        }
        let taken = beyond.take(want);
        let extent = if taken > 0 { self.pick((taken, ahead), goal, class) } else { None };
        beyond.give(taken - extent.map_or(0, |extent| extent.len));
        extent
    }
}
