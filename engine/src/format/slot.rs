//! The ring: its headers, slots, and the deltas that a record consists of.

use super::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a slot.
pub const SLOT_SIZE: usize = 256;
/// Bytes of a record that one slot carries.
pub const SLOT_PAYLOAD: usize = SLOT_SIZE - SLOT_HEADER_SIZE;
/// Slots in a 4 KiB block of the ring region.
pub const SLOTS_PER_BLOCK: u64 = (super::BLOCK_SIZE / SLOT_SIZE) as u64;
/// Bytes of [`SlotHeader`].
pub const SLOT_HEADER_SIZE: usize = 24;

/// What a slot belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SlotKind {
    /// A record of deltas.
    Operation = 1,
    /// A commit: [`CommitPayload`] in its first slot, nothing in the padding that follows on an SSD ring.
    Commit = 2,
    /// An abandoned reservation: nothing to do.
    Void = 3,
}

/// The head of every slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SlotHeader {
    /// Position of this slot.
    pub position: U64,
    /// CRC32C of the slot with this field zero, seeded with the image's seed and the mount epoch.
    pub crc: U32,
    /// Low half of the mount epoch.
    pub epoch: U32,
    /// Place of this slot in its record, from 0.
    pub index: U16,
    /// Slots of the record.
    pub count: U16,
    /// [`SlotKind`].
    pub kind: u8,
    /// 0.
    pub reserved: u8,
    /// Payload bytes in use in this slot.
    pub len: U16,
}
const _: () = assert!(size_of::<SlotHeader>() == SLOT_HEADER_SIZE);

/// What a commit says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CommitPayload {
    /// Position after the previous commit's last slot: where the range of this one starts.
    pub range_start: U64,
    /// Highest position (exclusive) known to be on durable media when this commit was submitted.
    pub durable_upto: U64,
    /// CRC32C over the slot checksums of the range, in order.
    pub range_crc: U32,
    /// 0.
    pub reserved: U32,
}

/// The ring's own state; two copies written in turn, the valid one with the higher `sequence` counts.
/// On persistent memory at bytes 0 and 512 of the mapping, slots from 4096; on the image one block each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RingHeader {
    /// CRC32C of the rest.
    pub crc: U32,
    /// Format version of the ring.
    pub version: U32,
    /// [`RING_MAGIC`].
    pub magic: U64,
    /// UUID of the image.
    pub image_uuid: [u8; 16],
    /// UUID of this ring.
    pub ring_uuid: [u8; 16],
    /// Counts writes of this header; even ones go to copy 0, odd ones to copy 1.
    pub sequence: U64,
    /// Mount epoch that the slots from `head` on belong to.
    pub epoch: U64,
    /// Checkpoint round that set this head.
    pub round: U64,
    /// First position that recovery needs.
    pub head: U64,
    /// Slots of the ring.
    pub slots: U64,
}

/// [`RingHeader::magic`].
pub const RING_MAGIC: u64 = u64::from_le_bytes(*b"NARURING");
/// Bytes before the first slot in a mapped ring.
pub const RING_HEADER_SPACE: usize = 4096;
/// Offset of the second copy of the header in a mapped ring.
pub const RING_HEADER_COPY: usize = 512;

/// Whose staging a mapping is: the file or device of the image, as the machine that runs knows it. Of another kind of
/// mapping, and of an older build's, zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct StagingOwner {
    /// CRC32C of the rest.
    pub crc: U32,
    /// 1: a file; 2: a block device.
    pub kind: U32,
    /// [`OWNER_MAGIC`].
    pub magic: U64,
    /// Number of the device, or of the one that the file is on.
    pub device: U64,
    /// Inode of the file, or sequence number of the device.
    pub number: U64,
    /// When the file was made, in nanoseconds; 0: unknown.
    pub born: U64,
}

/// [`StagingOwner::magic`].
pub const OWNER_MAGIC: u64 = u64::from_le_bytes(*b"NARUSTAG");
/// Offset of [`StagingOwner`] in the staging of a ring.
pub const STAGING_OWNER: usize = 1024;

/// What a delta does. Each is absolute: redoing it, in position order, gives the same bytes however often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DeltaKind {
    /// `len` bytes at `offset` of metadata block `block` become what follows.
    Write = 1,
    /// The block becomes zeros with a fresh header (`aux` is its [`super::BlockKind`]; 16 bytes follow:
    /// owner, generation). A node block becomes zeros.
    Init = 2,
    /// `count` bits from `offset` on of the bitmap block become 1 (4 bytes follow: count).
    SetBits = 3,
    /// The same, 0.
    ClearBits = 4,
    /// The block holds metadata no longer: earlier deltas to it need not be redone.
    Forget = 5,
    /// File data: [`DataKey`] follows, then its bytes.
    Data = 6,
    /// Earlier data records within the range of the [`DataKey`] that follows count no more.
    Supersede = 7,
}

/// The head of a delta; its bytes follow, padded to 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DeltaHeader {
    /// The block; for data 0.
    pub block: U64,
    /// Byte offset in the block, or first bit.
    pub offset: U16,
    /// Bytes that follow, without padding.
    pub len: U16,
    /// [`DeltaKind`].
    pub kind: u8,
    /// See [`DeltaKind::Init`]; for a write the block's kind.
    pub aux: u8,
    /// Of a write: how often its bytes follow one another in the block, beyond the first time. Else 0.
    pub again: U16,
}
const _: () = assert!(size_of::<DeltaHeader>() == 16);

/// The head of a write to the block of the write before it in the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FurtherHeader {
    /// Byte offset in the block.
    pub offset: U16,
    /// Bytes that follow, without padding.
    pub len: U16,
    /// As [`DeltaHeader::again`].
    pub again: U16,
    /// 0.
    pub reserved: u8,
    /// [`FURTHER`], where the number of a block has its highest byte, which is 0.
    pub mark: u8,
}
const _: () = assert!(size_of::<FurtherHeader>() == 8);

/// What tells a [`FurtherHeader`] from a [`DeltaHeader`].
pub const FURTHER: u8 = 0xff;

/// What a data record or a supersede covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DataKey {
    /// The file.
    pub nid: U64,
    /// First byte.
    pub offset: U64,
    /// Bytes (for a supersede perhaps far more than the file has).
    pub len: U64,
    /// Generation of the file.
    pub generation: U32,
    /// 0.
    pub reserved: U32,
}
const _: () = assert!(size_of::<DataKey>() == 32);
