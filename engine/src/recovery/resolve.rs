//! Where recovered metadata say that file data belong.

use super::absorbed::Resolve;
use crate::Result;
use crate::extent::{self, Mapping, Root};
use crate::format::{
    BLOCK_HEADER_SIZE, BlockKind, INODE_SIZE, INODES_PER_BLOCK, Inode, NAT_INDEX_PER_BLOCK, NatEntry,
    NatIndexEntry, Nid, nat_place,
};
use crate::store::Store;

/// The metadata after redo.
pub(super) struct Recovered<'s> {
    pub store: &'s Store,
}

impl Recovered<'_> {
    fn inode(&self, nid: Nid) -> Result<Option<Inode>> {
        let (index, at) = nat_place(nid);
        let sb = self.store.superblock();
        let (page, entry) = (index / NAT_INDEX_PER_BLOCK, (index % NAT_INDEX_PER_BLOCK) as usize);
        if page >= sb.nat_index_blocks.get() {
            return Ok(None);
        }
        let pointers = self.store.get(sb.nat_index_start.get() + page, BlockKind::NatIndex)?;
        let pointer: NatIndexEntry = pointers.read_as(BLOCK_HEADER_SIZE + entry * 8);
        if pointer.block() == 0 {
            return Ok(None);
        }
        let entry: NatEntry = self.store.get(pointer.block(), BlockKind::Nat)?.read_as(at);
        if entry.is_free() || usize::from(entry.slot()) >= INODES_PER_BLOCK {
            return Ok(None);
        }
        let node = self.store.get(entry.block(), BlockKind::Node)?;
        let inode: Inode = node.read_as(usize::from(entry.slot()) * INODE_SIZE);
        Ok((inode.nid.get() == nid).then_some(inode))
    }
}

impl Resolve for Recovered<'_> {
    fn size(&self, nid: Nid, generation: u32) -> Result<Option<u64>> {
        let inode = self.inode(nid)?.filter(|inode| {
            inode.generation.get() == generation
                && u32::from(inode.mode.get()) & libc::S_IFMT == libc::S_IFREG
        });
        Ok(inode.map(|inode| inode.size.get()))
    }

    fn block(&self, nid: Nid, page: u64) -> Result<Option<u64>> {
        let (Some(inode), Ok(page)) = (self.inode(nid)?, u32::try_from(page)) else { return Ok(None) };
        Ok(match extent::lookup(self.store, &Root::load(&inode)?, page)? {
            Mapping::Mapped { block, unwritten: false, .. } => Some(block),
            Mapping::Mapped { .. } | Mapping::Hole { .. } => None,
        })
    }
}
