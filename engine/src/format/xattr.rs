//! Blocks of extended attributes.

use super::BLOCK_SIZE;
use super::{BLOCK_HEADER_SIZE, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Follows the block header of a [`super::BlockKind::Xattr`] block; then the bytes. The bytes of a chain of
/// blocks, one after the other, are a list of [`XattrEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct XattrHeader {
    /// The block that follows; 0: none.
    pub next: U64,
    /// Bytes in use in this block.
    pub len: U32,
    /// 0.
    pub reserved: U32,
}
const _: () = assert!(size_of::<XattrHeader>() == 16);

/// Offset of the first byte in an attribute block.
pub const XATTR_START: usize = BLOCK_HEADER_SIZE + 16;
/// Bytes of an attribute block.
pub const XATTR_ROOM: usize = BLOCK_SIZE - XATTR_START;
/// Most blocks of one inode's attributes: one value of 64 KiB and what goes with it.
pub const XATTR_MAX_BLOCKS: usize = 18;

/// The head of an attribute; its name follows, then its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct XattrEntry {
    /// Bytes of the value, at most 65,536.
    pub value_len: U32,
    /// Bytes of the name with its name space, 1 to 255.
    pub name_len: U16,
    /// 0.
    pub reserved: U16,
}
const _: () = assert!(size_of::<XattrEntry>() == 8);

/// Name of the attribute that holds the target of a symlink too long for the inode; never shown.
pub const XATTR_SYMLINK: &[u8] = b"narufs.symlink";
