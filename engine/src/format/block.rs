//! The header that every metadata block but a node block carries, and the checksum rule.

use super::{INODE_SIZE, INODES_PER_BLOCK, Nid, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a metadata block holds. Data blocks have no kind and no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BlockKind {
    /// Pointers to NAT blocks; a fixed region, see [`super::NatIndexEntry`].
    NatIndex = 1,
    /// NAT entries.
    Nat = 2,
    /// Sixteen inodes, each with a checksum of its own; no block header.
    Node = 3,
    /// The allocation bits of one group.
    Bitmap = 4,
    /// A bucket of a directory, or its overflow.
    Bucket = 5,
    /// A node of an extent tree.
    Extents = 6,
    /// Extended attributes that do not fit the inode.
    Xattr = 7,
    /// Pointers to orphan tables; one fixed block.
    OrphanRoot = 8,
    /// Orphans and intents.
    Orphans = 9,
}

impl BlockKind {
    /// The kind of a byte from media.
    pub fn from_byte(b: u8) -> Option<BlockKind> {
        use BlockKind::*;
        [NatIndex, Nat, Node, Bitmap, Bucket, Extents, Xattr, OrphanRoot, Orphans]
            .into_iter()
            .find(|k| *k as u8 == b)
    }
}

/// The first 32 bytes of every metadata block except node blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct BlockHeader {
    /// CRC32C of the block with this field zero, seeded with [`checksum_seed`] and the block's own address.
    pub crc: U32,
    /// [`BLOCK_MAGIC`] with the kind in the low byte.
    pub magic: U32,
    /// The inode that owns the block (directory, file), or the index of a NAT, bitmap or orphan block.
    pub owner: U64,
    /// Generation of the owner.
    pub generation: U32,
    /// 0.
    pub reserved: U32,
    /// The journal position that this image holds at the least; set when the image is written.
    pub position: U64,
}
const _: () = assert!(size_of::<BlockHeader>() == BLOCK_HEADER_SIZE);

/// Bytes of [`BlockHeader`].
pub const BLOCK_HEADER_SIZE: usize = 32;

/// High three bytes of [`BlockHeader::magic`]: "NRU" in memory order, after the kind byte.
pub const BLOCK_MAGIC: u32 = 0x5552_4e00;

impl BlockHeader {
    /// The header of a fresh block.
    pub fn new(kind: BlockKind, owner: Nid, generation: u32) -> BlockHeader {
        BlockHeader {
            crc: U32::ZERO,
            magic: U32::new(BLOCK_MAGIC | kind as u32),
            owner: U64::new(owner),
            generation: U32::new(generation),
            reserved: U32::ZERO,
            position: U64::ZERO,
        }
    }

    /// The kind, if magic and kind are known.
    pub fn kind(&self) -> Option<BlockKind> {
        let magic = self.magic.get();
        if magic & 0xffff_ff00 == BLOCK_MAGIC { BlockKind::from_byte(magic as u8) } else { None }
    }
}

/// The seed of all checksums of one image: whatever belongs to another image does not verify.
pub fn checksum_seed(uuid: &[u8; 16]) -> u32 {
    crc32c::crc32c(uuid)
}

/// The checksum of a block (or of an inode in its slot) whose checksum field is the first four bytes.
/// `address` is the block number, for an inode `block * 16 + slot`.
pub fn checksum(seed: u32, address: u64, bytes: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(seed, &address.to_le_bytes());
    crc32c::crc32c_append(crc, bytes.get(4..).unwrap_or(&[]))
}

/// Puts the checksums into the image of a metadata block: of the block, or of each inode in use.
pub(crate) fn finish_image(seed: u32, block: u64, kind: BlockKind, page: &mut [u8]) {
    if kind != BlockKind::Node {
        let crc = checksum(seed, block, page);
        page[..4].copy_from_slice(&crc.to_le_bytes());
        return;
    }
    for (slot, inode) in page.chunks_exact_mut(INODE_SIZE).enumerate() {
        let in_use = inode[8..16].iter().any(|b| *b != 0);
        let address = block.wrapping_mul(INODES_PER_BLOCK as u64).wrapping_add(slot as u64);
        let crc = if in_use { checksum(seed, address, inode) } else { 0 };
        inode[..4].copy_from_slice(&crc.to_le_bytes());
    }
}
