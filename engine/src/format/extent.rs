//! Extents, and the nodes of the tree that holds them when there are many.

use super::BLOCK_SIZE;
use super::{BLOCK_HEADER_SIZE, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Set in [`ExtentEntry::len`] where the blocks are allocated but hold nothing: they read as zeros.
pub const EXTENT_UNWRITTEN: u32 = 1 << 31;

/// In a leaf: a run of blocks. In an inner node: a child (`block`) whose first entry starts at `logical` or
/// later (`len` is 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ExtentEntry {
    /// First block of the file that it maps.
    pub logical: U32,
    /// Number of blocks, with [`EXTENT_UNWRITTEN`].
    pub len: U32,
    /// First block on the device; or the child.
    pub block: U64,
}
const _: () = assert!(size_of::<ExtentEntry>() == EXTENT_ENTRY_SIZE);

/// Bytes of [`ExtentEntry`].
pub const EXTENT_ENTRY_SIZE: usize = 16;
/// Entries in the inode; half of them where it has inline attributes.
pub const EXTENT_ROOT_ENTRIES: usize = super::INODE_INLINE_SIZE / EXTENT_ENTRY_SIZE;
/// Follows the block header of a [`super::BlockKind::Extents`] block; then entries, sorted by `logical`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ExtentNodeHeader {
    /// Entries in use.
    pub count: U16,
    /// Height above the leaves; a leaf has 0.
    pub depth: U16,
    /// 0.
    pub reserved: [U32; 3],
}
const _: () = assert!(size_of::<ExtentNodeHeader>() == 16);
/// Offset of the first entry in an extent block.
pub const EXTENT_NODE_START: usize = BLOCK_HEADER_SIZE + 16;
/// Entries in an extent block.
pub const EXTENT_NODE_ENTRIES: usize = (BLOCK_SIZE - EXTENT_NODE_START) / EXTENT_ENTRY_SIZE;
/// Greatest height that a well-formed tree can have: 8 * 253^4 entries exceed 2^32 blocks.
pub const EXTENT_MAX_DEPTH: u8 = 4;
/// Files end at 16 TiB: block numbers within a file are 32 bits.
pub const MAX_FILE_SIZE: u64 = (1 << 32) * BLOCK_SIZE as u64;
