//! The table that finds metadata pages by block number, within a budget.
//!
//! It decides what stays in memory; it does not read, write or change pages. Shards keep cores apart; each
//! evicts within its own share of the budget, second chance in order of arrival.
//!
//! Invariants: at most one page of a block is in the table; a page is dropped only while the table holds the
//! only reference to it and it is clean. References come out of the table under the shard's lock alone, so
//! the count cannot rise meanwhile; dirty lists hold references, so what is dirty stays.

use super::page::PageRef;
use crate::device::BLOCK_SIZE;
use crate::swept::Swept;
use crate::sync::{Arc, CachePadded, Mutex};

const SHARDS: usize = 64;
/// Pages looked at for each page that comes in over the budget: bounded work, and it catches up.
const LOOKS: usize = 16;

pub(super) struct PageTable {
    shards: Box<[CachePadded<Mutex<Swept<PageRef>>>]>,
    /// Pages of a shard.
    share: usize,
}

impl PageTable {
    /// A table for so many bytes of pages (at least a few).
    pub fn new(budget: usize) -> PageTable {
        let shards = (0..SHARDS).map(|_| CachePadded::default()).collect();
        PageTable { shards, share: (budget / BLOCK_SIZE / SHARDS).max(1) }
    }

    fn shard(&self, block: u64) -> &Mutex<Swept<PageRef>> {
        // The odd multiplier of Knuth's spreads neighbours over the shards.
        &self.shards[(block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % SHARDS]
    }

    /// The page of a block, if it is here.
    pub fn find(&self, block: u64) -> Option<PageRef> {
        let page = self.shard(block).lock().get(block).cloned();
        page.inspect(|page| page.touch())
    }

    /// The page of the block of `unloaded`, if there is one; otherwise `unloaded` itself comes in, and the
    /// caller, who holds its exclusive latch, loads it.
    pub fn find_or_insert(&self, unloaded: &PageRef) -> Option<PageRef> {
        let mut shard = self.shard(unloaded.block()).lock();
        if let Some(page) = shard.get(unloaded.block()) {
            page.touch();
            return Some(Arc::clone(page));
        }
        self.insert(&mut shard, Arc::clone(unloaded));
        None
    }

    /// Puts a fresh page in the place of whatever the block had.
    pub fn replace(&self, page: PageRef) {
        let mut shard = self.shard(page.block()).lock();
        self.insert(&mut shard, page);
    }

    /// Drops a page whose block was freed, or whose load failed; not another page of the same block.
    pub fn remove(&self, page: &PageRef) {
        let mut shard = self.shard(page.block()).lock();
        if shard.get(page.block()).is_some_and(|found| Arc::ptr_eq(found, page)) {
            shard.remove(page.block());
        }
    }

    /// Number of pages here.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn insert(&self, shard: &mut Swept<PageRef>, page: PageRef) {
        shard.insert(page.block(), page);
        shard.sweep(self.share, LOOKS, |_, page| {
            Arc::strong_count(page) == 1 && !page.is_dirty() && !page.take_touch()
        });
    }
}
