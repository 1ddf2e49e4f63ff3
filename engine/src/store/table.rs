//! The table that finds metadata pages by block number, within a budget.
//!
//! It decides what stays in memory; it does not read, write or change pages. Shards keep cores apart; each
//! evicts within its own share of the budget, second chance in order of arrival.
//!
//! Invariants: at most one page of a block is in the table; a page is dropped only while the table holds the
//! only reference to it and it is clean: dirty lists hold references, so what is dirty stays. Finding one takes no
//! lock ([`crate::rcu_table`]).

use super::page::PageRef;
use crate::device::BLOCK_SIZE;
use crate::rcu_table::{Locked, RcuTable};
use crate::sync::Arc;

const SHARDS: usize = 64;
/// Pages looked at for each page that comes in over the budget: bounded work, and it catches up.
const LOOKS: usize = 16;

pub(super) struct PageTable {
    pages: RcuTable<PageRef>,
    /// Pages of a shard.
    share: usize,
}

impl PageTable {
    /// A table for so many bytes of pages (at least a few).
    pub fn new(budget: usize) -> PageTable {
        PageTable { pages: RcuTable::new(SHARDS), share: (budget / BLOCK_SIZE / SHARDS).max(1) }
    }

    /// The page of a block, if it is here.
    pub fn find(&self, block: u64) -> Option<PageRef> {
        self.pages.get(block).inspect(|page| page.touch())
    }

    /// The page of the block of `unloaded`, if there is one; otherwise `unloaded` itself comes in, and the
    /// caller, who holds its exclusive latch, loads it.
    pub fn find_or_insert(&self, unloaded: &PageRef) -> Option<PageRef> {
        let mut shard = self.pages.lock(unloaded.block());
        if let Some(page) = shard.get(unloaded.block()) {
            page.touch();
            return Some(page);
        }
        self.insert(&mut shard, Arc::clone(unloaded));
        None
    }

    /// Puts a fresh page in the place of whatever the block had.
    pub fn replace(&self, page: PageRef) {
        let mut shard = self.pages.lock(page.block());
        self.insert(&mut shard, page);
    }

    /// Drops a page whose block was freed, or whose load failed; not another page of the same block.
    pub fn remove(&self, page: &PageRef) {
        self.pages.lock(page.block()).remove_if(page.block(), |found| Arc::ptr_eq(found, page));
    }

    /// Number of pages here.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    fn insert(&self, shard: &mut Locked<'_, PageRef, ()>, page: PageRef) {
        shard.insert(page.block(), page);
        shard.sweep(self.share, LOOKS, |page| !page.is_dirty() && !page.take_touch(), |(), _, _| {});
    }
}
