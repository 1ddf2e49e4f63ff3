//! The superblock and the geometry of an image.

use super::BLOCK_SIZE;
use super::{BLOCK_HEADER_SIZE, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// [`Superblock::magic`].
pub const SUPERBLOCK_MAGIC: u64 = u64::from_le_bytes(*b"narufs\0\x01");
/// Format version that this code writes.
pub const FORMAT_VERSION: u32 = 1;
/// Blocks of the two copies; writes alternate, the valid one with the higher `sequence` counts.
pub const SUPERBLOCK_BLOCKS: [u64; 2] = [0, 1];
/// Blocks of a group: as many as a bitmap block has bits beside its header (127 MiB).
pub const BLOCKS_PER_GROUP: u64 = ((BLOCK_SIZE - BLOCK_HEADER_SIZE) * 8) as u64;

/// Where the journal lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[repr(u32)]
pub enum JournalKind {
    /// The ring region of the image, staged in shared memory.
    Ssd = 0,
    /// Persistent memory.
    Pmem = 1,
    /// A shared-memory file that stands for persistent memory.
    Emulated = 2,
}

impl JournalKind {
    /// The kind of a number from media.
    pub fn from_u32(n: u32) -> Option<JournalKind> {
        [JournalKind::Ssd, JournalKind::Pmem, JournalKind::Emulated].into_iter().find(|k| *k as u32 == n)
    }
}

/// The superblock. Bytes of its block beyond it are zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Superblock {
    /// CRC32C of the rest of the structure, seed 0.
    pub crc: U32,
    /// [`FORMAT_VERSION`].
    pub version: U32,
    /// [`SUPERBLOCK_MAGIC`].
    pub magic: U64,
    /// Identity of the image.
    pub uuid: [u8; 16],
    /// Name given by the user, UTF-8, zero-padded.
    pub label: [u8; 32],
    /// [`Compat`](super::Compat): features that a build which does not know them may ignore.
    pub compat: U64,
    /// [`RoCompat`](super::RoCompat): features that such a build may read but not write.
    pub ro_compat: U64,
    /// [`Incompat`](super::Incompat): features that such a build must refuse.
    pub incompat: U64,
    /// Counts writes of the superblock.
    pub sequence: U64,
    /// Grows with each mount that may write.
    pub epoch: U64,
    /// 1 after a clean unmount, 0 while mounted, 2 when damage was found.
    pub state: U32,
    /// [`JournalKind`].
    pub journal_kind: U32,
    /// Identity of the ring that belongs to this image.
    pub ring_uuid: [u8; 16],
    /// Blocks of the image.
    pub blocks: U64,
    /// First block of the ring region: two header blocks, then the slots.
    pub ring_start: U64,
    /// Blocks of the ring region, headers included; 0 where the ring lies elsewhere.
    pub ring_blocks: U64,
    /// First block of the double-write area: one header block, then images.
    pub dw_start: U64,
    /// Blocks of the double-write area.
    pub dw_blocks: U64,
    /// First block of the NAT index.
    pub nat_index_start: U64,
    /// Blocks of the NAT index.
    pub nat_index_blocks: U64,
    /// The orphan root.
    pub orphan_root: U64,
    /// First block of the first group; each group starts with its bitmap block, the last may be short.
    pub groups_start: U64,
    /// Number of groups.
    pub groups: U64,
    /// Key of the hash of names.
    pub hash_key: [u8; 16],
    /// When mkfs made the image, ns since 1970.
    pub created: U64,
    /// Slots of the ring, wherever it lies.
    pub ring_slots: U64,
    /// Position from which the next mount may reserve.
    pub next_position: U64,
    /// Path of an emulated or persistent-memory ring, UTF-8, zero-padded.
    pub journal_path: [u8; 256],
}
const _: () = assert!(size_of::<Superblock>() <= BLOCK_SIZE);

/// [`Superblock::state`] after a clean unmount.
pub const STATE_CLEAN: u32 = 1;
/// [`Superblock::state`] while mounted for writing.
pub const STATE_MOUNTED: u32 = 0;
/// [`Superblock::state`] when damage was found that fsck has not mended.
pub const STATE_DAMAGED: u32 = 2;
