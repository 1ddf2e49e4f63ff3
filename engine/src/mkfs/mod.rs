//! Making a file system: geometry, reserved regions, the root directory, a journal outside the image.
//!
//! The superblock is written last, so that an interrupted mkfs leaves no image that could be mounted.
//!
//! Rings on which not every operation would fit are refused; how small a ring may be follows from the bounds
//! of records ([`crate::vfs::LARGEST_RECORD`]).

mod geometry;
mod metadata;
mod ring;
#[cfg(test)]
mod tests;

use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Request, probe};
use crate::format::{JournalKind, SLOTS_PER_BLOCK, SUPERBLOCK_BLOCKS, Superblock};
use crate::journal::least_slots;
use crate::vfs::{LARGEST_RECORD, LARGEST_RESERVE_RECORD};
use crate::{Error, Result, superblock};
use geometry::geometry;
use metadata::{write_metadata, zero};
use std::io;
use std::path::Path;

/// What mkfs is asked for. `None` chooses.
#[derive(Debug, Clone)]
pub struct FormatOptions {
    /// Blocks of the file system; at most (and by default) those of the device.
    pub blocks: Option<u64>,
    /// Slots of the journal (256 bytes each); a multiple of 16, at least [`least_journal_slots`].
    pub journal_slots: Option<u64>,
    /// Blocks of the double-write area, its headers among them; at least 2.
    pub double_write_blocks: Option<u64>,
    /// Where the journal lies.
    pub journal: JournalKind,
    /// Path of a persistent-memory or emulated journal: its file is made, or taken over, too. Without a path
    /// the first mount makes the ring on the memory that it is given.
    pub journal_path: Option<String>,
    /// Name of the file system, 32 bytes of UTF-8 at the most.
    pub label: String,
    /// Leave the journal's region unwritten: the device is known to hold zeros there. Faster, but writes to
    /// the journal may then wait for the device to allocate space.
    pub sparse: bool,
    /// Make it even where there is a file system already, or another image's journal.
    pub force: bool,
    /// Identity; random by default.
    pub uuid: Option<[u8; 16]>,
    /// Identity of the ring; random by default.
    pub ring_uuid: Option<[u8; 16]>,
    /// Key of the hash of names; random by default.
    pub hash_key: Option<[u8; 16]>,
    /// Owner and group of the root directory.
    pub owner: (u32, u32),
    /// Time of making, ns since 1970.
    pub now: i64,
}

impl Default for FormatOptions {
    fn default() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        FormatOptions {
            blocks: None,
            journal_slots: None,
            double_write_blocks: None,
            journal: JournalKind::Ssd,
            journal_path: None,
            label: String::new(),
            sparse: false,
            force: false,
            uuid: None,
            ring_uuid: None,
            hash_key: None,
            owner: (0, 0),
            now: i64::try_from(now.as_nanos()).unwrap_or(i64::MAX),
        }
    }
}

/// The least number of slots of a journal: every record of every operation fits, and the reserve has room for
/// what a checkpoint waits for.
pub const fn least_journal_slots(kind: JournalKind) -> u64 {
    least_slots(LARGEST_RECORD, LARGEST_RESERVE_RECORD, matches!(kind, JournalKind::Ssd))
}

/// Makes a file system on a device and gives back its superblock.
///
/// # Errors
/// [`Error::Refused`] if the device or the journal is too small (the message says how large it must be), holds
/// a file system already, or the options contradict each other.
pub fn format(device: &dyn BlockDevice, options: &FormatOptions) -> Result<Superblock> {
    make(device, options, least_journal_slots(options.journal))
}

/// Whether a file system of so many blocks can be made: what [`format()`] would refuse, before an image is given that size.
///
/// # Errors
/// [`Error::Refused`] if not; [`Error::InUse`] and others of the journal's file.
pub fn check(blocks: u64, options: &FormatOptions) -> Result<()> {
    let sb = geometry(blocks, options, least_journal_slots(options.journal))?;
    ring::check(&sb, options)
}

/// As [`format()`], on any ring that a journal can work with at all: for tests of what happens where rings are
/// full. Large records are refused there.
#[cfg(any(test, fuzzing, feature = "sim"))]
pub fn format_cramped(device: &dyn BlockDevice, options: &FormatOptions) -> Result<Superblock> {
    make(device, options, least_slots(1, 0, options.journal == JournalKind::Ssd))
}

/// Lays out metadata that no mount is to find: there is neither journal nor superblock, and the first blocks,
/// [`SPARED_BLOCKS`] of them, stay as they are.
///
/// # Errors
/// [`Error::Refused`] if there are too few blocks.
pub(crate) fn lay_out(device: &dyn BlockDevice) -> Result<Superblock> {
    let options = FormatOptions {
        journal: JournalKind::Emulated,
        // There is no ring, and none that operations would have to make do with.
        journal_slots: Some(ANY_SLOTS),
        double_write_blocks: Some(SPARED_BLOCKS - SUPERBLOCK_BLOCKS.len() as u64),
        ..FormatOptions::default()
    };
    let sb = geometry(device.blocks(), &options, ANY_SLOTS)?;
    write_metadata(device, &sb, &options)?;
    Ok(sb)
}

/// Slots of a ring that is not there: more than any operation takes.
const ANY_SLOTS: u64 = SLOTS_PER_BLOCK << 16;
/// Blocks at the beginning that [`lay_out`] leaves alone.
pub(crate) const SPARED_BLOCKS: u64 = 4;

/// What lies at the beginning of a file or device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Zeros, or there is none: an image can be made of it unasked.
    Nothing,
    /// An image, perhaps a damaged one, or one that is cut short.
    Image,
    /// Data of somebody else.
    Other,
}

/// What a file or device holds, by its beginning.
///
/// # Errors
/// If it cannot be read.
pub fn held(image: &Path) -> io::Result<Held> {
    match probe(image) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Held::Nothing),
        start => Ok(match start? {
            start if start.iter().all(|b| *b == 0) => Held::Nothing,
            start if superblock::begins_an_image(&start) => Held::Image,
            _ => Held::Other,
        }),
    }
}

/// Refuses a device that has a file system of ours.
pub(crate) fn check_unused(device: &dyn BlockDevice) -> Result<()> {
    match superblock::identity(device) {
        None => Ok(()),
        Some(uuid) => Err(Error::Refused(format!(
            "there is a narufs file system already ({}); use --force to destroy it",
            uuid::Uuid::from_bytes(uuid)
        ))),
    }
}

fn make(device: &dyn BlockDevice, options: &FormatOptions, least_slots: u64) -> Result<Superblock> {
    if !options.force {
        check_unused(device)?;
    }
    let mut sb = geometry(device.blocks(), options, least_slots)?;
    let ring = ring::take(&sb, options)?;
    // Nothing that was here before may be mistaken for what is made now.
    for block in SUPERBLOCK_BLOCKS {
        device.run(vec![Request::write(block, IoBuf::zeroed(BLOCK_SIZE), Cause::Superblock)])?;
    }
    device.flush()?;
    // The headers at least: whatever lay here is void. Any block of the double-write area may be one.
    let ring_blocks = if options.sparse { sb.ring_blocks.get().min(2) } else { sb.ring_blocks.get() };
    zero(device, sb.ring_start.get(), ring_blocks)?;
    zero(device, sb.dw_start.get(), sb.dw_blocks.get())?;
    write_metadata(device, &sb, options)?;
    if let Some(ring) = ring {
        ring.begin(&sb)?;
    }
    for _copy in SUPERBLOCK_BLOCKS {
        superblock::write(device, &mut sb)?;
    }
    Ok(sb)
}
