//! The superblock on its device: reading, judging and writing it, two copies in turn.
//!
//! What the fields mean for a mount (epochs, clean or not) is the assembly's; here a superblock is either
//! whole, of a version and with features that this code knows, and consistent with the device, or refused in
//! words. A mount that writes asks [`check_writable`] first, a check or repair [`check_checkable`].

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use zerocopy::{FromBytes, IntoBytes};

use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Request, io_error};
use crate::format::{
    Access, BLOCKS_PER_GROUP, FORMAT_VERSION, Features, MAX_COUNT, MAX_POSITION, SLOTS_PER_BLOCK,
    SUPERBLOCK_BLOCKS, SUPERBLOCK_MAGIC, Superblock,
};
use crate::{Error, Result};

/// Where blocks can be that belong to files and directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// First block of the first group.
    pub groups_start: u64,
    /// Blocks of the image.
    pub blocks: u64,
}

impl Bounds {
    /// Those that a superblock gives.
    pub fn of(sb: &Superblock) -> Bounds {
        Bounds { groups_start: sb.groups_start.get(), blocks: sb.blocks.get() }
    }

    /// Number of groups: a last one of a bitmap alone would hold nothing.
    pub fn groups(&self) -> u64 {
        let rest = self.blocks.saturating_sub(self.groups_start);
        rest / BLOCKS_PER_GROUP + u64::from(rest % BLOCKS_PER_GROUP > 1)
    }
}

/// Reads the superblock that counts, of an image that can be read at the least.
///
/// # Errors
/// [`Error::Refused`], saying what the device holds instead and what to do.
pub fn read(device: &dyn BlockDevice) -> Result<Superblock> {
    let sb = read_with_any_features(device)?;
    let features = Features::of(&sb);
    if features.access() == Access::Refused {
        return refused(format!(
            "the image uses features that this narufs does not know ({}); use a newer narufs",
            features.unknown()
        ));
    }
    Ok(sb)
}

/// Refuses a superblock with features that this build may read but not write.
///
/// # Errors
/// [`Error::Refused`], saying that a read-only mount is possible.
pub fn check_writable(sb: &Superblock) -> Result<()> {
    let features = Features::of(sb);
    if features.access() == Access::Write {
        return Ok(());
    }
    refused(format!(
        "the image uses features that this narufs can read but not write ({}); mount it read-only (-o ro), or use \
         a newer narufs",
        features.unknown()
    ))
}

/// Refuses a superblock with features that this build may read only: a check would take them for damage, and a
/// repair would destroy them.
///
/// # Errors
/// [`Error::Refused`].
pub fn check_checkable(sb: &Superblock) -> Result<()> {
    let features = Features::of(sb);
    if features.access() == Access::Write {
        return Ok(());
    }
    refused(format!(
        "the image uses features that this narufs can read but not check or mend ({}); use the fsck of a newer \
         narufs",
        features.unknown()
    ))
}

/// Reads the superblock that counts, whatever features it names: to show them, or to see that there is an image.
///
/// # Errors
/// As [`read`], features aside.
pub fn read_with_any_features(device: &dyn BlockDevice) -> Result<Superblock> {
    check_room(device.blocks())?;
    let requests = SUPERBLOCK_BLOCKS
        .iter()
        .map(|block| Request::read(*block, IoBuf::zeroed(BLOCK_SIZE), Cause::Superblock))
        .collect();
    let done = device.wait(device.submit(requests)).into_iter();
    judge(done.map(|done| done.result.and(Ok(done.buf))), device.blocks())
}

/// The same of a file or device that a mount may have locked: no more of it is read than the copies.
///
/// # Errors
/// As [`read_with_any_features`].
pub fn read_beside_mount(mut file: &File) -> Result<Superblock> {
    let bytes = file.seek(SeekFrom::End(0)).map_err(|e| io_error("measure the image", &e))?;
    let blocks = bytes / BLOCK_SIZE as u64;
    check_room(blocks)?;
    let copies = SUPERBLOCK_BLOCKS.iter().map(|block| {
        let mut buf = IoBuf::zeroed(BLOCK_SIZE);
        let read = file.read_exact_at(&mut buf, block * BLOCK_SIZE as u64);
        read.map(|()| buf).map_err(|e| io_error("read the superblock", &e))
    });
    judge(copies, blocks)
}

/// Whether there is room for both copies.
fn check_room(blocks: u64) -> Result<()> {
    if blocks <= SUPERBLOCK_BLOCKS[1] {
        return refused(format!("not a narufs image: {blocks} blocks of 4 KiB are too few for one"));
    }
    Ok(())
}

/// Of the copies as they were read from a device of `blocks` blocks the one that counts.
fn judge(copies: impl Iterator<Item = Result<IoBuf>>, blocks: u64) -> Result<Superblock> {
    let copies: Vec<_> = copies
        .map(|copy| copy.map(|buf| Superblock::read_from_prefix(&buf).map(|(sb, _)| sb).ok()))
        .collect();
    let read: Vec<Superblock> = copies.iter().flatten().flatten().copied().collect();
    let whole = read.iter().filter(|sb| sb.magic.get() == SUPERBLOCK_MAGIC && sb.crc.get() == crc(sb));
    if let Some(sb) = whole.max_by_key(|sb| sb.sequence.get()) {
        check(sb, blocks)?;
        return Ok(*sb);
    }
    if let Some(Err(e)) = copies.into_iter().find(Result::is_err) {
        return Err(e);
    }
    if let Some(sb) = read.iter().find(|sb| sb.magic.get() == SUPERBLOCK_MAGIC) {
        return refused(if sb.version.get() > FORMAT_VERSION {
            newer(sb)
        } else {
            "both copies of the superblock are damaged; run fsck --repair, or restore a backup".into()
        });
    }
    refused("this is not a narufs image; make one with mkfs, or check the path".into())
}

/// The identity of the image that lies on a device, whether this build could work with it or not.
pub(crate) fn identity(device: &dyn BlockDevice) -> Option<[u8; 16]> {
    if device.blocks() <= SUPERBLOCK_BLOCKS[1] {
        return None;
    }
    let requests = SUPERBLOCK_BLOCKS
        .iter()
        .map(|block| Request::read(*block, IoBuf::zeroed(BLOCK_SIZE), Cause::Superblock))
        .collect();
    let done = device.wait(device.submit(requests));
    let copies =
        done.iter().filter(|d| d.result.is_ok()).filter_map(|d| Superblock::read_from_prefix(&d.buf).ok());
    // What a newer version has put under its checksum is not known.
    let is_image = |sb: &Superblock| {
        sb.magic.get() == SUPERBLOCK_MAGIC && (sb.crc.get() == crc(sb) || sb.version.get() > FORMAT_VERSION)
    };
    copies.map(|(sb, _)| sb).filter(is_image).max_by_key(|sb| sb.sequence.get()).map(|sb| sb.uuid)
}

/// Whether what a file or device begins with says that it is an image, whole or not.
pub(crate) fn begins_an_image(start: &[u8]) -> bool {
    let copies = SUPERBLOCK_BLOCKS.iter().filter_map(|block| start.get(*block as usize * BLOCK_SIZE..));
    let mut copies = copies.filter_map(|bytes| Superblock::read_from_prefix(bytes).ok());
    copies.any(|(sb, _)| sb.magic.get() == SUPERBLOCK_MAGIC)
}

/// Both copies: whole, or why not.
pub(crate) fn copies(device: &dyn BlockDevice) -> Vec<std::result::Result<Superblock, String>> {
    let requests = SUPERBLOCK_BLOCKS
        .iter()
        .map(|block| Request::read(*block, IoBuf::zeroed(BLOCK_SIZE), Cause::Superblock))
        .collect();
    let judge = |bytes: &[u8]| match Superblock::read_from_prefix(bytes) {
        Ok((sb, _)) if sb.magic.get() != SUPERBLOCK_MAGIC => Err("it is no superblock".into()),
        Ok((sb, _)) if sb.crc.get() != crc(&sb) => Err("its checksum does not hold".into()),
        Ok((sb, _)) => Ok(sb),
        Err(_) => Err("it is cut short".to_string()),
    };
    let done = device.wait(device.submit(requests));
    done.iter().map(|d| d.result.clone().map_err(|e| e.to_string()).and_then(|()| judge(&d.buf))).collect()
}

/// Writes the copy that does not count, flushed before and after, with the next sequence number.
///
/// # Errors
/// Those of the device; [`Error::Refused`] where the number could not be told from an older one.
pub fn write(device: &dyn BlockDevice, sb: &mut Superblock) -> Result<()> {
    let Some(sequence) = sb.sequence.get().checked_add(1) else {
        return refused("the superblock cannot be written once more: the count of its writes is full".into());
    };
    sb.sequence.set(sequence);
    sb.crc.set(crc(sb));
    let mut buf = IoBuf::zeroed(BLOCK_SIZE);
    buf[..size_of::<Superblock>()].copy_from_slice(sb.as_bytes());
    let block = SUPERBLOCK_BLOCKS[(sb.sequence.get() % 2) as usize];
    // What the superblock promises is durable before the superblock says so.
    device.flush()?;
    device.run(vec![Request::write(block, buf, Cause::Superblock)])?;
    device.flush()
}

/// Writes both copies, one after the other: whichever is lost later, the other says the same.
///
/// # Errors
/// As [`write()`].
pub fn write_both(device: &dyn BlockDevice, sb: &mut Superblock) -> Result<()> {
    write(device, sb)?;
    write(device, sb)
}

fn crc(sb: &Superblock) -> u32 {
    crc32c::crc32c(sb.as_bytes().get(4..).unwrap_or(&[]))
}

fn refused<T>(why: String) -> Result<T> {
    Err(Error::Refused(why))
}

fn newer(sb: &Superblock) -> String {
    format!(
        "the image has format version {}, this narufs knows versions up to {FORMAT_VERSION}; use a newer narufs",
        sb.version.get()
    )
}

/// Whether a superblock that is whole is of a known version and consistent with its device.
fn check(sb: &Superblock, device_blocks: u64) -> Result<()> {
    if sb.version.get() > FORMAT_VERSION {
        return refused(newer(sb));
    }
    if sb.blocks.get() > device_blocks {
        return refused(format!(
            "the image is truncated: it has {device_blocks} blocks of 4 KiB, its file system {}; restore its \
             full length",
            sb.blocks.get()
        ));
    }
    match inconsistency(sb) {
        Some(what) => refused(format!(
            "the superblock contradicts itself ({what}) though its checksum holds; restore a backup"
        )),
        None => Ok(()),
    }
}

/// The first thing in the geometry that cannot be.
fn inconsistency(sb: &Superblock) -> Option<&'static str> {
    let blocks = sb.blocks.get();
    let region = |start: u64, len: u64| {
        start > SUPERBLOCK_BLOCKS[1] && start.checked_add(len).is_some_and(|end| end <= blocks)
    };
    let ring_blocks = sb.ring_blocks.get();
    let ring_fits = match sb.ring_slots.get().div_ceil(SLOTS_PER_BLOCK).checked_add(2) {
        Some(needed) => ring_blocks == 0 || ring_blocks >= needed,
        None => false,
    };
    // What goes through groups takes their number from here or from the blocks.
    let groups = sb.groups.get() == Bounds::of(sb).groups();
    [
        (sb.version.get() > 0, "the format version"),
        (ring_blocks == 0 || region(sb.ring_start.get(), ring_blocks), "the ring region"),
        (ring_fits, "the number of ring slots"),
        (region(sb.dw_start.get(), sb.dw_blocks.get()) && sb.dw_blocks.get() >= 2, "the double-write area"),
        (region(sb.nat_index_start.get(), sb.nat_index_blocks.get().max(1)), "the NAT index"),
        (region(sb.orphan_root.get(), 1), "the orphan root"),
        (groups && region(sb.groups_start.get(), 2), "the groups"),
        (sb.next_position.get() <= MAX_POSITION, "the next position"),
        (sb.sequence.get() <= MAX_COUNT, "the number of its writes"),
        (sb.epoch.get() <= MAX_COUNT, "the number of mounts"),
    ]
    .into_iter()
    .find_map(|(holds, what)| (!holds).then_some(what))
}

/// Blocks of a group: all groups but the last are full.
pub fn group_blocks(sb: &Superblock, group: u64) -> u64 {
    sb.blocks.get().saturating_sub(group_start(sb, group)).min(BLOCKS_PER_GROUP)
}

/// First block of a group: its bitmap.
pub fn group_start(sb: &Superblock, group: u64) -> u64 {
    sb.groups_start.get() + group * BLOCKS_PER_GROUP
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;
    use crate::mkfs::{FormatOptions, format_cramped};

    #[test]
    fn groups_that_are_not_those_of_the_blocks_are_a_contradiction() {
        let device = MemoryDevice::new(300);
        let options = FormatOptions {
            journal_slots: Some(512),
            double_write_blocks: Some(4),
            ..FormatOptions::default()
        };
        format_cramped(&device, &options).expect("large enough");
        let mut sb = read(&device).expect("an image");
        sb.blocks.set(sb.groups_start.get() + 2 * BLOCKS_PER_GROUP + 2);
        for groups in 0..5 {
            sb.groups.set(groups);
            assert_eq!(inconsistency(&sb), (groups != 3).then_some("the groups"), "{groups}");
        }
    }
}
