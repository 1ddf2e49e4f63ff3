//! The double-write area: where images lie on their way home, so that a torn home write can be mended.
//!
//! A segment is a header block, then up to [`DOUBLE_WRITE_ENTRIES`] images; it may begin at any block of the area. A
//! batch of a checkpoint round fills one or more segments, and several batches may be under way, each in a part of the
//! area of its own. Segments of the round after that of the ring header belong to a round that did not finish; all
//! others are void.

use super::BLOCK_SIZE;
use super::{U32, U64, checksum};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The head of a segment's header block; entries follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DoubleWriteHeader {
    /// [`super::checksum`] of the header block, at its own address.
    pub crc: U32,
    /// Entries, and images that follow the header block.
    pub count: U32,
    /// [`DOUBLE_WRITE_MAGIC`].
    pub magic: U64,
    /// Mount epoch.
    pub epoch: U64,
    /// Checkpoint round.
    pub round: U64,
    /// Batch within the round, from 0.
    pub sequence: U64,
    /// 0.
    pub reserved: U64,
}
const _: () = assert!(size_of::<DoubleWriteHeader>() == 48);

impl DoubleWriteHeader {
    /// The header that a block of the area holds, and its entries, if it was written for that block of this image. The
    /// count is as it stands there: it may name more entries than there are, and more images than have room.
    pub fn find(seed: u32, at: u64, bytes: &[u8]) -> Option<(Self, impl Iterator<Item = DoubleWriteEntry>)> {
        let (header, rest) = Self::read_from_prefix(bytes).ok()?;
        let valid = header.magic.get() == DOUBLE_WRITE_MAGIC && header.crc.get() == checksum(seed, at, bytes);
        let entries = rest.chunks_exact(size_of::<DoubleWriteEntry>()).take(header.count.get() as usize);
        let entries = entries.filter_map(|entry| DoubleWriteEntry::read_from_bytes(entry).ok());
        valid.then_some((header, entries))
    }
}

/// One image of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DoubleWriteEntry {
    /// Home of the image.
    pub block: U64,
    /// End (exclusive) of the highest record that the image holds.
    pub tag: U64,
    /// CRC32C of the whole image.
    pub crc: U32,
    /// [`super::BlockKind`] of the image.
    pub kind: U32,
}
const _: () = assert!(size_of::<DoubleWriteEntry>() == 24);

/// [`DoubleWriteHeader::magic`].
pub const DOUBLE_WRITE_MAGIC: u64 = u64::from_le_bytes(*b"NARUDBLW");
/// Images of a segment at the most.
pub const DOUBLE_WRITE_ENTRIES: usize =
    (BLOCK_SIZE - size_of::<DoubleWriteHeader>()) / size_of::<DoubleWriteEntry>();
