//! The inode: 256 bytes, sixteen to a node block.

use super::BLOCK_SIZE;
use super::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of an inode.
pub const INODE_SIZE: usize = 256;
/// Inodes in a node block.
pub const INODES_PER_BLOCK: usize = BLOCK_SIZE / INODE_SIZE;
/// Bytes of the area for extents, a short symlink or inline attributes.
pub const INODE_INLINE_SIZE: usize = 128;
/// Bytes of extended attributes that fit beside four extents or a symlink of 64 bytes.
pub const INODE_INLINE_XATTR_SIZE: usize = 64;

bitflags::bitflags! {
    /// What an inode's inline area holds, and what it takes part in.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct InodeFlags: u16 {
        /// The symlink's target lies in the inline area.
        const INLINE_SYMLINK = 1;
        /// The last 64 bytes of the inline area hold extended attributes.
        const INLINE_XATTR = 2;
        /// An orphan-table entry names this inode.
        const ORPHAN = 4;
        /// The directory was removed: nothing may be inserted any more.
        const DEAD = 8;
    }
}

/// An inode as it lies in its slot. A slot whose `nid` is 0 is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Inode {
    /// [`super::checksum`] of the slot, set when the image is written; 0 in a free slot.
    pub crc: U32,
    /// Type and permission bits, as `st_mode`.
    pub mode: U16,
    /// [`InodeFlags`].
    pub flags: U16,
    /// The nid that this inode answers to.
    pub nid: U64,
    /// Generation of the nid.
    pub generation: U32,
    /// Number of names (a directory counts "." and its subdirectories' "..").
    pub nlink: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Bytes.
    pub size: U64,
    /// 4 KiB blocks that belong to the inode, its extent, bucket and attribute blocks among them.
    pub blocks: U64,
    /// Last access, ns since 1970.
    pub atime: I64,
    /// Last change of content, ns since 1970.
    pub mtime: I64,
    /// Last change of the inode, ns since 1970.
    pub ctime: I64,
    /// Birth, ns since 1970.
    pub btime: I64,
    /// Device number of a device node, as `st_rdev`.
    pub rdev: U32,
    /// Height of the extent tree: 0 where the inline area holds the extents themselves.
    pub extent_depth: u8,
    /// Entries of the extent root that are in use.
    pub extent_count: u8,
    /// 0.
    pub reserved0: U16,
    /// A directory's parent; for other inodes the directory of its first name, a hint.
    pub parent: U64,
    /// Block of extended attributes; 0: none.
    pub xattr_block: U64,
    /// Number of buckets of a directory; 0 while it is empty.
    pub buckets: U32,
    /// 0.
    pub reserved1: U32,
    /// 0.
    pub reserved2: [U64; 2],
    /// Extent root, symlink target, inline extended attributes.
    pub inline: [u8; INODE_INLINE_SIZE],
}
const _: () = assert!(size_of::<Inode>() == INODE_SIZE);
