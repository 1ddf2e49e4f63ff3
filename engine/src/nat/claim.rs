//! What an operation takes for a new inode, and what becomes of it with the operation.

use super::ids::IdBlock;
use super::{Shared, corrupt};
use crate::alloc::Class;
use crate::format::{BlockKind, NAT_PER_BLOCK, NatIndexEntry, Nid};
use crate::lane;
use crate::store::{Handle, PageRef};
use crate::sync::Arc;
use crate::{Error, Result};

/// How often one allocation looks into NAT blocks before it makes a new one.
const LOOKS: usize = 4;

/// An id and a slot, taken. Dropped so, they are given back.
pub(super) struct Claim<'n> {
    shared: &'n Shared,
    lane: usize,
    id: Option<(Arc<IdBlock>, u32)>,
    /// The place of the NAT block of the id, which the same operation makes.
    place: Option<u64>,
    slot: Option<Slot>,
}

/// A slot of a node block.
enum Slot {
    /// The first of a block that the same operation makes.
    New { block: u64 },
    /// One of a known block.
    Picked { block: u64, slot: u8 },
}

impl<'n> Claim<'n> {
    /// Nothing yet, for the lane of this thread.
    pub(super) fn new(shared: &'n Shared) -> Claim<'n> {
        Claim { shared, lane: lane::current(), id: None, place: None, slot: None }
    }

    /// Takes a free id of the lane; the page of its NAT block.
    pub(super) fn take_id(&mut self, h: &mut Handle<'_>) -> Result<(Nid, PageRef)> {
        let shared = self.shared;
        for _ in 0..LOOKS {
            if let Some(found) = self.free_id() {
                return found;
            }
            // A block that a look finds full is not looked at again.
            if !shared.look_further(self.lane)? {
                break;
            }
        }
        if let Some(found) = self.free_id() {
            return found;
        }
        while shared.ids.take_over(self.lane, 1) {
            if let Some(found) = self.free_id() {
                return found;
            }
        }
        loop {
            let Some(index) = shared.ids.next_new(shared.capacity()) else {
                return self.last_id().unwrap_or(Err(Error::Errno(libc::ENOSPC)));
            };
            self.place = Some(index);
            let (pointer_page, offset, pointer) = shared.pointer(index)?;
            if pointer.block() == 0 {
                match self.make_block(h, index, &pointer_page, offset) {
                    Err(Error::Errno(libc::ENOSPC)) => {}
                    made => return made,
                }
                shared.ids.not_new(index);
                self.place = None;
                return self.last_id().unwrap_or(Err(Error::Errno(libc::ENOSPC)));
            }
            // A crash can leave a hole before it.
            self.place = None;
            shared.look_into(index..index + 1, self.lane)?;
            if let Some(found) = self.free_id() {
                return found;
            }
        }
    }

    /// One of the last ids that other lanes have, where there can be no more.
    fn last_id(&mut self) -> Option<Result<(Nid, PageRef)>> {
        while self.shared.ids.take_over(self.lane, 0) {
            if let Some(found) = self.free_id() {
                return Some(found);
            }
        }
        None
    }

    /// A free id of a block that is known.
    fn free_id(&mut self) -> Option<Result<(Nid, PageRef)>> {
        let (block, id) = self.id.insert(self.shared.ids.take(self.lane)?);
        let nid = block.index * NAT_PER_BLOCK + u64::from(*id);
        Some(self.shared.nat_page(block.index, block.block).map(|page| (nid, page)))
    }

    /// A new NAT block for the lane, and its first free id.
    fn make_block(
        &mut self,
        h: &mut Handle<'_>,
        index: u64,
        pointer_page: &PageRef,
        offset: usize,
    ) -> Result<(Nid, PageRef)> {
        let block = self.shared.alloc.allocate(h, 1, None, Class::Metadata, None)?.start;
        let page = h.init(block, BlockKind::Nat, index, 0)?;
        *h.edit_as(pointer_page, offset) = NatIndexEntry::new(block, 0);
        let ids = Arc::new(IdBlock::load(index, &page));
        let nid = index * NAT_PER_BLOCK;
        let Some(id) = ids.take() else { return Err(corrupt(nid, "a new NAT block has no free id")) };
        self.id = Some((ids, id));
        Ok((nid + u64::from(id), page))
    }

    /// Takes a free slot of the lane, or of what another lane has and does not fill; else a new block.
    pub(super) fn take_slot(&mut self, h: &mut Handle<'_>) -> Result<(PageRef, u8)> {
        let nodes = &self.shared.nodes;
        if let Some(picked) = nodes.pick(self.lane).or_else(|| nodes.take_over(self.lane)) {
            return self.slot_of(picked);
        }
        let block = match self.shared.alloc.allocate(h, 1, None, Class::Metadata, None) {
            Ok(extent) => extent.start,
            // A full image has slots as long as any lane has.
            Err(Error::Errno(libc::ENOSPC)) => {
                let picked = self.shared.nodes.pick_any();
                return self.slot_of(picked.ok_or(Error::Errno(libc::ENOSPC))?);
            }
            Err(e) => return Err(e),
        };
        let page = h.init(block, BlockKind::Node, 0, 0)?;
        self.slot = Some(Slot::New { block });
        Ok((page, 0))
    }

    /// A slot that was picked in a known block.
    fn slot_of(&mut self, (block, slot): (u64, u8)) -> Result<(PageRef, u8)> {
        self.slot = Some(Slot::Picked { block, slot });
        Ok((self.shared.store.get(block, BlockKind::Node)?, slot))
    }

    /// The operation is over: what was taken is in use, or free again.
    pub(super) fn end(&mut self, committed: bool) {
        let Shared { ids, nodes, .. } = self.shared;
        if committed && self.id.is_some() {
            ids.counts.made();
        }
        match (self.place.take(), self.id.take()) {
            (Some(_), Some((block, _))) if committed => ids.insert_new(&block, self.lane),
            (Some(index), _) => ids.not_new(index),
            (None, Some((block, id))) if !committed => ids.give(&block, id),
            (None, _) => {}
        }
        match self.slot.take() {
            Some(Slot::New { block }) if committed => nodes.insert_new(self.lane, block),
            Some(Slot::Picked { block, slot }) => nodes.arrived(block, slot, committed),
            _ => {}
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.end(false);
    }
}
