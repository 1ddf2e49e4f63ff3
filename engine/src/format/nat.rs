//! The node address table: where the inode of a nid lies.

use super::BLOCK_SIZE;
use super::{BLOCK_HEADER_SIZE, Nid, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Where one inode lies. All zero but `generation` where the nid is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NatEntry {
    /// Node block (low 56 bits) and slot (high byte); 0 where the nid is free.
    pub place: U64,
    /// Grows each time the nid is given out; kept while it is free.
    pub generation: U32,
    /// 0.
    pub reserved: U32,
}
const _: () = assert!(size_of::<NatEntry>() == NAT_ENTRY_SIZE);

/// Bytes of [`NatEntry`].
pub const NAT_ENTRY_SIZE: usize = 16;
/// NAT entries in a block.
pub const NAT_PER_BLOCK: u64 = ((BLOCK_SIZE - BLOCK_HEADER_SIZE) / NAT_ENTRY_SIZE) as u64;
/// Pointers in a block of the NAT index.
pub const NAT_INDEX_PER_BLOCK: u64 = ((BLOCK_SIZE - BLOCK_HEADER_SIZE) / 8) as u64;

impl NatEntry {
    /// An entry in use.
    pub fn new(block: u64, slot: u8, generation: u32) -> NatEntry {
        NatEntry {
            place: U64::new(block | u64::from(slot) << 56),
            generation: U32::new(generation),
            reserved: U32::ZERO,
        }
    }
    /// Whether the nid is free.
    pub fn is_free(&self) -> bool {
        self.place.get() == 0
    }
    /// The node block.
    pub fn block(&self) -> u64 {
        self.place.get() & 0x00ff_ffff_ffff_ffff
    }
    /// The slot in the node block; media may hold any byte.
    pub fn slot(&self) -> u8 {
        (self.place.get() >> 56) as u8
    }
}

/// The NAT block of a nid, and the byte offset of its entry in it. Nid 0 has an entry that is never used.
pub fn nat_place(nid: Nid) -> (u64, usize) {
    (nid / NAT_PER_BLOCK, BLOCK_HEADER_SIZE + (nid % NAT_PER_BLOCK) as usize * NAT_ENTRY_SIZE)
}

/// A pointer to a NAT block (low 48 bits; 0: none yet) with, in the high 16 bits, how many of its nids were
/// in use when the index block was last written: a hint for choosing, never a truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NatIndexEntry(pub U64);

impl NatIndexEntry {
    /// A pointer with its hint.
    pub fn new(block: u64, used: u16) -> NatIndexEntry {
        NatIndexEntry(U64::new(block | u64::from(used) << 48))
    }
    /// The NAT block; 0 if there is none.
    pub fn block(&self) -> u64 {
        self.0.get() & 0xffff_ffff_ffff
    }
    /// The hint.
    pub fn used_hint(&self) -> u16 {
        (self.0.get() >> 48) as u16
    }
}
