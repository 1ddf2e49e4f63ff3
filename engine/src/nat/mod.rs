//! The node address table: which ids are free, where the inode of an id lies, and slots for new inodes.
//!
//! Each lane owns whole NAT blocks and fills node blocks of its own, so that creates on different cores
//! neither contend nor write the same pages. Free ids are found first-set in a summary of 254 bits; nothing
//! is scanned, and giving an id back from another lane is one atomic bit. NAT blocks and node blocks are made
//! when they are needed and found lazily after a mount: its time does not grow with the number of files.
//!
//! What this leaves to others: the content of inodes, and when records are durable ([`Nat::durable`] is told).
//!
//! # Invariants
//! - An id, and a slot, is given to one operation at a time: the bit is taken before it is staged, and given
//!   back by an abort, or after it was freed: the slot with the commit, the id once the record is durable.
//! - The generation of an id grows each time it is given out.
//! - A node block is freed by the record that frees its last inode. A thread that frees an inode while all others
//!   of its block are just being made or freed waits for them; therefore [`Nat::allocate`] and [`Nat::free`]
//!   come after the last lock that an operation takes, and a handle frees one inode at most, and makes none then.

mod claim;
mod count;
mod ids;
#[cfg(feature = "baselines")]
mod listed;
mod nodes;
#[cfg(feature = "baselines")]
mod work;

#[cfg(test)]
mod tests;

use crate::alloc::{Alloc, Extent};
use crate::error::OnDamage;
use crate::format::{
    BLOCK_HEADER_SIZE, BlockKind, INODE_SIZE, INODES_PER_BLOCK, NAT_INDEX_PER_BLOCK, NAT_PER_BLOCK, NatEntry,
    NatIndexEntry, Nid, Position, U32, U64, nat_place,
};
use crate::store::{DELTA_HEADER_SIZE, Handle, PageRef, Store};
use crate::sync::Arc;
use crate::{Error, Result};
use std::ops::Range;

use claim::Claim;
use ids::{IdBlock, Ids};
use nodes::Nodes;
#[cfg(feature = "baselines")]
pub use work::IdWork;

/// Where a new inode lies. Its slot is all zeros; the caller writes the inode into it with the same handle.
#[derive(Debug, Clone)]
pub(crate) struct NewInode {
    /// Its id.
    pub nid: Nid,
    /// The id's generation, never 0.
    pub generation: u32,
    /// The node block.
    pub node: PageRef,
    /// The slot in it.
    pub slot: u8,
}

/// NAT blocks that are read at a time.
const AT_ONCE: u64 = 16;
/// Hints that a record has at the most.
const HINTS_AT_ONCE: usize = 64;

/// The table of one image; cheap to clone.
#[derive(Clone)]
pub(crate) struct Nat {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<Store>,
    alloc: Alloc,
    ids: Ids,
    nodes: Nodes,
}

impl std::fmt::Debug for Nat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nat").finish_non_exhaustive()
    }
}

fn corrupt(nid: Nid, detail: impl Into<String>) -> Error {
    Error::Corrupt { what: "NAT entry", place: format!("nid {nid}"), detail: detail.into() }
}

/// The index block of a NAT block, counted from the first, and the offset of the pointer in it.
fn index_place(index: u64) -> (u64, usize) {
    (index / NAT_INDEX_PER_BLOCK, BLOCK_HEADER_SIZE + (index % NAT_INDEX_PER_BLOCK) as usize * 8)
}

impl Shared {
    /// Number of NAT blocks that the index has pointers for.
    fn capacity(&self) -> u64 {
        self.store.superblock().nat_index_blocks.get().saturating_mul(NAT_INDEX_PER_BLOCK)
    }

    /// The index page with the pointer to a NAT block, the pointer's offset, and the pointer.
    fn pointer(&self, index: u64) -> Result<(PageRef, usize, NatIndexEntry)> {
        let (block, offset) = index_place(index);
        let start = self.store.superblock().nat_index_start.get();
        let page = self.store.get(start.saturating_add(block), BlockKind::NatIndex)?;
        let pointer = page.read_as::<NatIndexEntry>(offset);
        if pointer.block() != 0 && !self.alloc.holds(pointer.block()) {
            return Err(corrupt(index * NAT_PER_BLOCK, "the NAT block lies outside the groups"));
        }
        Ok((page, offset, pointer))
    }

    /// The page of a NAT block.
    fn nat_page(&self, index: u64, block: u64) -> Result<PageRef> {
        let page = self.store.get(block, BlockKind::Nat)?;
        if page.header().owner.get() != index {
            return Err(corrupt(index * NAT_PER_BLOCK, format!("block {block} is another part of the NAT")));
        }
        Ok(page)
    }

    /// What is known of the NAT block of an id, the block's page, and the offset of the id's entry.
    fn known_entry(&self, nid: Nid) -> Result<Option<(Arc<IdBlock>, PageRef, usize)>> {
        let (index, offset) = nat_place(nid);
        if nid == 0 || index >= self.capacity() {
            return Ok(None);
        }
        let Some(known) = self.id_block(index)? else { return Ok(None) };
        let page = self.nat_page(index, known.block)?;
        Ok(Some((known, page, offset)))
    }

    /// The page of an id's entry and the entry's offset, if its NAT block is there.
    fn entry(&self, nid: Nid) -> Result<Option<(PageRef, usize)>> {
        let (index, offset) = nat_place(nid);
        if nid == 0 || index >= self.capacity() {
            return Ok(None);
        }
        match self.pointer(index)?.2.block() {
            0 => Ok(None),
            block => Ok(Some((self.nat_page(index, block)?, offset))),
        }
    }

    /// What is known of a NAT block; read if need be. None if the block is not there.
    fn id_block(&self, index: u64) -> Result<Option<Arc<IdBlock>>> {
        if let Some(known) = self.ids.find(index) {
            return Ok(Some(known));
        }
        let pointer = self.pointer(index)?.2;
        match pointer.block() {
            0 => Ok(None),
            block => {
                let page = self.nat_page(index, block)?;
                Ok(Some(self.ids.insert_loaded(index, &page, pointer.used_hint())))
            }
        }
    }

    /// Has the lane look for free ids where nobody has; false if there is nothing left to look at.
    fn look_further(&self, lane: usize) -> Result<bool> {
        #[cfg(feature = "baselines")]
        if let Some(listed) = &self.ids.listed
            && let Some(found) = listed.search(self)?
        {
            return Ok(found);
        }
        match self.ids.next_unknown(AT_ONCE) {
            Some(indexes) => self.look_into(indexes, lane).map(|()| true),
            None => Ok(false),
        }
    }

    /// Gives the lane those of these NAT blocks that nobody owns and that may have free ids. Their pages come into
    /// memory together.
    fn look_into(&self, indexes: Range<u64>, lane: usize) -> Result<()> {
        #[cfg(feature = "baselines")]
        self.ids.work.add(|done| &done.passed, indexes.end - indexes.start);
        let mut wanted = Vec::new();
        for index in indexes {
            let pointer = self.pointer(index)?.2;
            if pointer.block() != 0 && u64::from(pointer.used_hint()) < NAT_PER_BLOCK {
                wanted.push((index, pointer.block()));
            }
        }
        #[cfg(feature = "baselines")]
        self.ids.work.add(|done| &done.read, wanted.len() as u64);
        let pages: Vec<_> = wanted.iter().map(|(_, block)| (*block, BlockKind::Nat)).collect();
        if pages.len() > 1 {
            // A failure is met again below, with the one block that it is about.
            let _ = self.store.get_many(&pages);
        }
        let mut outcome = Ok(());
        // The lane draws from what it got last: from the lowest then.
        for (index, _) in wanted.into_iter().rev() {
            match self.id_block(index) {
                Ok(Some(block)) => self.ids.adopt(&block, lane),
                Ok(None) => {}
                Err(e) => outcome = outcome.and(Err(e)),
            }
        }
        outcome
    }
}

impl Nat {
    /// Finds the end of the table; nothing else is read now.
    pub(crate) fn load(store: &Arc<Store>, alloc: &Alloc, on_damage: &mut OnDamage) -> Result<Nat> {
        let mut shared =
            Shared { store: Arc::clone(store), alloc: alloc.clone(), ids: Ids::new(0), nodes: Nodes::new() };
        // NAT blocks are made in order and never freed; a hole that a crash has left only ends the search
        // early, and what lies behind it is found when the table grows.
        let (mut low, mut high) = (0, shared.capacity());
        while low < high {
            let middle = low.midpoint(high);
            let is_there = match shared.pointer(middle) {
                Ok((_, _, pointer)) => pointer.block() != 0,
                // The search is for who makes files.
                Err(e) => on_damage.bear(e).map(|()| false)?,
            };
            if is_there {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        shared.ids = Ids::new(low);
        #[cfg(feature = "baselines")]
        {
            shared.ids.listed = listed::Listed::chosen(store.baselines().ids, shared.capacity());
        }
        let shared = Arc::new(shared);
        let weak = Arc::downgrade(&shared);
        alloc.set_also_waits(Box::new(move || weak.upgrade().is_some_and(|shared| shared.ids.are_waiting())));
        Ok(Nat { shared })
    }

    /// Where the inode of an id lies; none if the id is free. What it gives lies within the image.
    pub(crate) fn lookup(&self, nid: Nid) -> Result<Option<NatEntry>> {
        let Some((page, offset)) = self.shared.entry(nid)? else { return Ok(None) };
        #[cfg(feature = "baselines")]
        let _table = self.shared.ids.listed.as_ref().map(|listed| listed.reading());
        let entry = page.read_as::<NatEntry>(offset);
        if entry.is_free() {
            return Ok(None);
        }
        if usize::from(entry.slot()) >= INODES_PER_BLOCK || !self.shared.alloc.holds(entry.block()) {
            return Err(corrupt(nid, format!("block {} slot {}", entry.block(), entry.slot())));
        }
        Ok(Some(entry))
    }

    /// A free id and a free slot of this lane, staged on the handle; given back if it aborts.
    ///
    /// # Errors
    /// ENOSPC (see [`Alloc::with_room`]), and whatever reading the table may meet.
    pub(crate) fn allocate<'s>(&'s self, h: &mut Handle<'s>) -> Result<NewInode> {
        let mut claim = Claim::new(&self.shared);
        #[cfg(feature = "baselines")]
        let begun = self.balance();
        let (nid, page) = claim.take_id(h)?;
        #[cfg(feature = "baselines")]
        {
            self.shared.ids.work.add_since(|done| &done.taken_ns, begun);
            self.shared.ids.work.add(|done| &done.taken, 1);
        }
        let (node, slot) = claim.take_slot(h)?;
        #[cfg(feature = "baselines")]
        let _table = self.shared.ids.listed.as_ref().map(|listed| listed.writing(nid));
        let entry: &mut NatEntry = h.edit_as(&page, nat_place(nid).1);
        if !entry.is_free() {
            return Err(corrupt(nid, "it is in use, though its bit says that it is free"));
        }
        let generation = entry.generation.get().wrapping_add(1).max(1);
        *entry = NatEntry::new(node.block(), slot, generation);
        h.at_end(move |end| claim.end(end.is_some()));
        Ok(NewInode { nid, generation, node, slot })
    }

    /// Frees an inode whose blocks are freed already: its id, its slot, and the node block if it was the last
    /// in it. It may wait for others that make or free inodes of the same block: see the invariants.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the id does not lead to this slot.
    pub(crate) fn free<'s>(&'s self, h: &mut Handle<'s>, nid: Nid, node: &PageRef, slot: u8) -> Result<()> {
        let shared = &*self.shared;
        #[cfg(feature = "baselines")]
        {
            let begun = self.balance();
            shared.ids.work.add_since(|done| &done.freed_ns, begun);
            shared.ids.work.add(|done| &done.freed, 1);
        }
        let Some((ids, page, offset)) = shared.known_entry(nid)? else {
            return Err(corrupt(nid, "it is to be freed, but there is no such entry"));
        };
        #[cfg(feature = "baselines")]
        let table = shared.ids.listed.as_ref().map(|listed| listed.writing(nid));
        let entry: &mut NatEntry = h.edit_as(&page, offset);
        if entry.is_free() || entry.block() != node.block() || entry.slot() != slot {
            return Err(corrupt(nid, format!("it does not lead to block {} slot {slot}", node.block())));
        }
        *entry = NatEntry { place: U64::ZERO, generation: entry.generation, reserved: U32::ZERO };
        // What follows may wait for others.
        #[cfg(feature = "baselines")]
        drop(table);
        let (block, last) = (node.block(), shared.nodes.leave(node, slot)?);
        h.at_end(move |end| {
            shared.nodes.left(block, slot, end.is_some(), last);
            if let Some(end) = end {
                shared.ids.counts.freed();
                #[cfg(feature = "baselines")]
                let begun = shared.ids.work.now();
                shared.ids.quarantine(end, ids, (nid % NAT_PER_BLOCK) as u32);
                #[cfg(feature = "baselines")]
                shared.ids.work.add_since(|done| &done.freed_ns, begun);
            }
        });
        if last {
            h.forget(node);
            return shared.alloc.free(h, Extent { start: block, len: 1 }, true);
        }
        let start = usize::from(slot) * INODE_SIZE;
        h.edit(node, start..start + INODE_SIZE).fill(0);
        Ok(())
    }

    /// What a baseline does before a file is made or removed; when that began, if times are asked for.
    #[cfg(feature = "baselines")]
    fn balance(&self) -> Option<std::time::Instant> {
        let begun = self.shared.ids.work.now();
        if let Some(listed) = &self.shared.ids.listed {
            listed.balance(&self.shared);
        }
        begun
    }

    /// Every record that ends at or below `upto` is durable against a loss of power: the ids that they have
    /// freed may be given out again.
    pub(crate) fn durable(&self, upto: Position) {
        self.shared.ids.durable(upto);
    }

    /// How many ids of a NAT block are in use, if this mount has looked into it.
    pub(crate) fn used(&self, index: u64) -> Option<u16> {
        self.shared.ids.find(index).map(|block| block.used())
    }

    /// The ids of this NAT block, which may be in use if it is there: whether it is may not be to be known. `None`: no table
    /// has as many blocks.
    pub(crate) fn possible(&self, index: u64) -> Option<Range<Nid>> {
        let ids = (index < self.shared.capacity()).then(|| index.saturating_mul(NAT_PER_BLOCK))?;
        let is_there = self.shared.pointer(index).map_or(true, |(_, _, pointer)| pointer.block() != 0);
        Some(ids..if is_there { ids.saturating_add(NAT_PER_BLOCK) } else { ids })
    }

    /// Writes into the index how full the NAT blocks of this mount are, as hints for the next: a record for so many
    /// pointers of an index block, each of which may be a change of its own. To be called at a clean unmount, once
    /// everything is durable: ids in quarantine count as used.
    pub(crate) fn save_hints(&self) -> Result<()> {
        self.renew_old_hints();
        let shared = &self.shared;
        let mut known = shared.ids.known();
        known.sort_by_key(|block| block.index);
        for group in known.chunk_by(|a, b| index_place(a.index).0 == index_place(b.index).0) {
            for some in group.chunks(HINTS_AT_ONCE) {
                let bytes = some.len() * (DELTA_HEADER_SIZE + 8);
                let slots = bytes.div_ceil(crate::format::SLOT_PAYLOAD) as u32;
                let mut h = shared.store.begin(slots)?;
                for block in some {
                    let (page, offset, _) = shared.pointer(block.index)?;
                    *h.edit_as(&page, offset) = NatIndexEntry::new(block.block, block.used());
                }
                debug_assert!(h.slots_needed() <= slots);
                h.commit()?;
            }
        }
        Ok(())
    }
}
