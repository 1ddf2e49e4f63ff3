//! Blocks for data: set aside for what is to be written, and allocated without a record yet (*volatile*).

use super::{Blocks, Meta};
use crate::alloc::{Extent, Reservation, SLACK_OF_RECORD, VolatileExtent};
use crate::error::Result;
use crate::store::Handle;

/// Extent blocks that stay promised while something is allocated and not yet inserted.
pub(super) const SPARE_EXTENT_BLOCKS: u64 = 16;

/// Volatile blocks on their way into a record: volatile again if they do not come to be the file's.
pub(super) struct Picked<'a> {
    meta: &'a Meta,
    extents: Vec<VolatileExtent>,
}

impl Picked<'_> {
    /// Puts `blocks` into the record, if they are volatile: all or a part of one allocation.
    pub fn log(&mut self, h: &mut Handle<'_>, blocks: Blocks) -> Result<()> {
        let Some(volatile) = self.meta.take_volatile(blocks) else { return Ok(()) };
        let logged = self.meta.alloc.log_allocation(h, &volatile);
        self.extents.push(volatile);
        logged
    }

    /// The record has committed.
    pub fn belong_to_file(mut self) {
        for volatile in self.extents.drain(..) {
            volatile.into_extent();
        }
    }
}

impl Drop for Picked<'_> {
    fn drop(&mut self) {
        for volatile in self.extents.drain(..) {
            self.meta.volatile.lock().insert(volatile.extent().start, volatile);
        }
    }
}

impl Meta {
    /// See [`Picked`].
    pub(super) fn picked(&self) -> Picked<'_> {
        Picked { meta: self, extents: Vec::new() }
    }

    fn keep_reserved(&self, more: Reservation) {
        let mut reserved = self.reserved.lock();
        reserved.merge(more);
        // What is allocated and not yet inserted may still need some.
        reserved.trim(SPARE_EXTENT_BLOCKS);
    }

    /// Extent blocks that data needs no more, or never did, of those that were promised for it.
    pub fn need_fewer_nodes(&self, nodes: u64) {
        if nodes > 0 {
            self.reserved.lock().need_fewer(nodes);
            self.trim_reserved();
        }
    }

    /// Gives back what is promised and not needed, but for what allocations under way may take.
    pub fn trim_promises(&self) {
        self.reserved.lock().trim(SPARE_EXTENT_BLOCKS);
    }

    /// Extent blocks that are promised to data in files that is not home yet, and that it may turn out not to need.
    pub fn promised_nodes(&self) -> u64 {
        self.reserved.lock().due()
    }

    /// Gives back extent blocks that were promised for data which needed none.
    pub(super) fn trim_reserved(&self) {
        if self.volatile.lock().is_empty() {
            self.reserved.lock().trim(0);
        }
    }

    /// The volatile blocks that a record makes permanent: all or a part of one allocation.
    fn take_volatile(&self, blocks: Blocks) -> Option<VolatileExtent> {
        let mut volatile = self.volatile.lock();
        let key = *volatile.range(..=blocks.start).next_back()?.0;
        if volatile.get(&key)?.extent().end() <= blocks.start {
            return None;
        }
        let mut found = volatile.remove(&key)?;
        if key < blocks.start {
            let rest = found.split_off((blocks.start - key) as u32);
            volatile.insert(key, std::mem::replace(&mut found, rest?));
        }
        if let Some(rest) = found.split_off(blocks.len) {
            volatile.insert(rest.extent().start, rest);
        }
        Some(found)
    }

    /// Sets blocks aside for data that will be written later, and up to `nodes` extent blocks that it may need; ENOSPC is
    /// answered here. May sleep, and may start a checkpoint: never called under a write-back mutex.
    pub fn reserve(&self, blocks: u64, nodes: u64) -> Result<()> {
        self.keep_reserved(self.alloc.reserve_delayed(blocks, nodes)?);
        Ok(())
    }

    /// The same for what a predecessor has set them aside for: others may have to wait for room.
    pub fn reserve_again(&self, blocks: u64, nodes: u64) -> Result<()> {
        let reserved = self.alloc.reserve_again(blocks, nodes)?;
        self.keep_reserved(reserved);
        Ok(())
    }

    /// The same for blocks that are to be mapped at once: as many as one record takes, and the rest is given back. All
    /// that statfs shows can be had so. [`Meta::unreserve_record`] ends it.
    pub fn reserve_for_record(&self, blocks: u64) -> Result<()> {
        self.keep_reserved(self.alloc.reserve_for_record(blocks)?);
        Ok(())
    }

    /// Gives back what was set aside for one record, which has mapped all but so many of the blocks.
    pub fn unreserve_record(&self, blocks: u64) {
        self.unreserve(blocks, SLACK_OF_RECORD);
    }

    /// Gives back what was set aside: so many blocks, and extent blocks.
    pub fn unreserve(&self, blocks: u64, nodes: u64) {
        let mut reserved = self.reserved.lock();
        debug_assert!(blocks <= reserved.blocks(), "no more than was set aside");
        reserved.shrink(blocks);
        reserved.need_fewer(nodes);
        drop(reserved);
        self.trim_reserved();
    }

    /// Takes 1 to `want` blocks out of what was set aside (beyond it, if there are more), volatile until
    /// [`Meta::log`] inserts them. Never sleeps for space: callers hold a write-back mutex, which a checkpoint
    /// may be waiting for. Up to `ahead` blocks behind them are kept for the file to grow into, as long as others are
    /// free. ENOSPC where more was set aside than there is ([`crate::store::Profile::Spilling`]).
    pub fn allocate(&self, want: u32, ahead: u32, goal: Option<u64>) -> Result<Blocks> {
        #[cfg(all(test, not(any(loom, shuttle))))]
        super::hooks::Hooks::run(&self.hooks.when_allocated);
        let volatile = self.alloc.allocate_volatile(want, ahead, goal, &mut self.reserved.lock())?;
        let Extent { start, len } = volatile.extent();
        self.volatile.lock().insert(start, volatile);
        Ok(Blocks { start, len })
    }

    /// Puts volatile blocks back, and aside again; nothing is being written to them.
    pub fn release(&self, blocks: Blocks) {
        let volatile = self.take_volatile(blocks);
        debug_assert!(volatile.is_some(), "released what was not allocated");
        if let Some(volatile) = volatile {
            volatile.into_reservation(&mut self.reserved.lock());
        }
    }

    /// Whether a block is allocated and in no record.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn is_volatile(&self, block: u64) -> bool {
        let volatile = self.volatile.lock();
        volatile.range(..=block).next_back().is_some_and(|(_, run)| block < run.extent().end())
    }

    /// As [`Meta::allocate`], out of what is set aside for nobody: for data that has blocks which cannot be written.
    /// ENOSPC if there is nothing of the kind.
    pub fn allocate_spare(&self, want: u32) -> Result<Blocks> {
        let volatile = self.alloc.allocate_volatile(want, 0, None, &mut Reservation::empty(&self.alloc))?;
        let Extent { start, len } = volatile.extent();
        self.volatile.lock().insert(start, volatile);
        Ok(Blocks { start, len })
    }

    /// Puts volatile blocks back for anybody.
    pub fn release_spare(&self, blocks: Blocks) {
        drop(self.take_volatile(blocks));
    }
}
