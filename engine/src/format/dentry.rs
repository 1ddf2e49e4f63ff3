//! Directory buckets and their entries.

use super::{BLOCK_HEADER_SIZE, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Follows the block header of a [`super::BlockKind::Bucket`] block; then dentries to the block's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct BucketHeader {
    /// Overflow block of this bucket; 0: none.
    pub next: U64,
    /// Index of the bucket in its directory, the same in its overflow blocks.
    pub bucket: U32,
    /// Entries in use in this block.
    pub count: U16,
    /// 0.
    pub reserved: U16,
}
const _: () = assert!(size_of::<BucketHeader>() == 16);

/// Offset of the first dentry in a bucket block.
pub const BUCKET_START: usize = BLOCK_HEADER_SIZE + 16;

/// The fixed part of a dentry; the name follows, padded to 8 bytes. The dentries of a block lie end to end:
/// `rec_len` leads to the next, the last ends with the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DentryHeader {
    /// The inode; 0 where the space is free.
    pub nid: U64,
    /// Place in the directory's order: 55 bits of the name's hash, then 8 bits that tell equal hashes apart.
    /// Positive as i64, at least [`FIRST_COOKIE`], unique in the directory, fixed for the entry's life.
    pub cookie: U64,
    /// Bytes from here to the next dentry, a multiple of 8.
    pub rec_len: U16,
    /// Bytes of the name, 1 to 255.
    pub name_len: u8,
    /// File type, as the kernel's `DT_*`.
    pub file_type: u8,
    /// 0.
    pub reserved: U32,
}
const _: () = assert!(size_of::<DentryHeader>() == DENTRY_HEADER_SIZE);

/// Bytes of [`DentryHeader`].
pub const DENTRY_HEADER_SIZE: usize = 24;
/// Cookies below are those of "." (1), ".." (2) and the start (0).
pub const FIRST_COOKIE: u64 = 256;
/// Longest name in bytes.
pub const MAX_NAME: usize = 255;
