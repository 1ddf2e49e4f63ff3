//! Restoring an unfinished round from the double-write area.
//!
//! Any block of the area may be the header of a segment: where they stand follows from how many threads wrote home.
//! A segment counts if its header verifies and names the round after the ring header's. Its images were on
//! their way home when the crash came: each that verifies replaces its home, for the home may be torn. One
//! that does not verify was never followed by a home write. Why that mends everything: [`crate::checkpoint`].
//!
//! # Where the area cannot be read
//! A block that the device fails to read may have been an image of a torn home, or the header of up to as many images
//! as a segment holds; or it was left by an earlier round, and nothing needs it. Which of the two it is, redo tells:
//! - A page goes home in a round because a record has changed it since it last went home. The head stands before that
//!   record: it moves to where a round began only when the homes of that round are flushed. And the record is durable:
//!   by the order of a checkpoint it was so before the image was written. So redo meets every page whose home may be
//!   torn, and either makes it anew (the home is not read) or changes what it reads from home.
//! - What it reads verifies, or is damage. A home that is torn does not verify: the checksum is that of the whole
//!   block. In a node block it is that of each inode, which lies within a sector: torn, it holds whole inodes, older
//!   and newer ones, which redo leads to the same bytes as ever.
//! - A page that redo does not read for a later record forgets it is one that nothing needs.
//!
//! So where redo meets no damage without these blocks, no home was torn that they might have mended. Redo is tried in
//! memory for that ([`crate::volume`]), since to write home is to write to the area; if it meets no damage, the blocks
//! are written anew and recovery goes its usual way. Else nothing is written, for the device may yet read them
//! another time: the mount is read-only and says why.
//!
//! An unreadable header might also have said that the journal is older than the image, which redo cannot tell. That
//! concerns a journal that does not lie in the image: there the mount is read-only too, until `fsck --repair` is told
//! to go on.

use crate::checkpoint::RoundId;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Request};
use crate::format::{
    BlockKind, DOUBLE_WRITE_ENTRIES, DoubleWriteEntry, DoubleWriteHeader, MAX_COUNT, Position,
};
use crate::store::{Store, verify};
use crate::{Error, Result};

/// Blocks that are looked through at a time.
const LOOKED_AT: u64 = 256;

/// A segment whose header verifies.
struct Segment {
    header: DoubleWriteHeader,
    entries: Vec<DoubleWriteEntry>,
    /// Block of the first image.
    images: u64,
}

/// What the area holds.
pub(crate) struct Area {
    segments: Vec<Segment>,
    /// Blocks that the device fails to read.
    pub unreadable: Vec<u64>,
}

/// Restores the images of `round`; their number.
///
/// # Errors
/// [`Error::Refused`] if the area is of a later round or epoch: the journal is older than the image.
pub(super) fn restore(store: &Store, area: &Area, end: Position, round: RoundId) -> Result<u64> {
    area.check_none_after(round)?;
    let mut restored = 0;
    for segment in area.segments.iter().filter(|segment| segment.id() == (round.epoch, round.number)) {
        restored += restore_segment(store, area, segment, end)?;
    }
    if restored > 0 {
        store.device().flush()?;
    }
    Ok(restored)
}

impl Segment {
    fn id(&self) -> (u64, u64) {
        (self.header.epoch.get(), self.header.round.get())
    }
}

impl Area {
    /// Refuses a journal whose last round is not this or the one before.
    fn check_none_after(&self, round: RoundId) -> Result<()> {
        let last = self.segments.iter().map(Segment::id).max();
        if let Some(found) = last.filter(|last| *last > (round.epoch, round.number)) {
            return Err(Error::Refused(format!(
                "the journal is older than the image (checkpoint round {} of mount {}, the image has seen \
                 round {} of mount {}); find the right journal, or run fsck --repair --discard-journal, which \
                 gives up what was not yet checkpointed",
                round.number - 1,
                round.epoch,
                found.1,
                found.0
            )));
        }
        Ok(())
    }

    /// Restores the images of a round, those too that hold what a damaged journal does not bring back.
    ///
    /// # Errors
    /// As [`restore`].
    pub(crate) fn restore_round(&self, store: &Store, round: RoundId) -> Result<u64> {
        restore(store, self, Position::MAX, round)
    }

    /// Reads it.
    ///
    /// # Errors
    /// What is none of the device's: its own failures are told by [`Area::unreadable`].
    pub(crate) fn read(store: &Store) -> Result<Area> {
        let sb = store.superblock();
        let (start, end) = (sb.dw_start.get(), sb.dw_start.get() + sb.dw_blocks.get());
        let mut area = Area { segments: Vec::new(), unreadable: Vec::new() };
        for first in (start..end).step_by(LOOKED_AT as usize) {
            let len = LOOKED_AT.min(end - first);
            match look_at(store, first, len) {
                Ok(bytes) => area.find(store, first, &bytes),
                Err(_) => {
                    for at in first..first + len {
                        match look_at(store, at, 1) {
                            Ok(bytes) => area.find(store, at, &bytes),
                            Err(Error::Device { .. }) => area.unreadable.push(at),
                            Err(e) => return Err(e),
                        }
                    }
                }
            }
        }
        Ok(area)
    }

    fn find(&mut self, store: &Store, first: u64, bytes: &[u8]) {
        let sb = store.superblock();
        let end = sb.dw_start.get() + sb.dw_blocks.get();
        let found = (first..).zip(bytes.chunks_exact(BLOCK_SIZE));
        self.segments.extend(found.filter_map(|(at, bytes)| segment(store, at, end - at - 1, bytes)));
    }

    /// Restores the latest round that the area holds, whatever the journal said: for an image whose journal is
    /// given up. Where some of it cannot be read, what seems the latest may be one that is home, in blocks that are
    /// another's by now; then only `unfinished` counts, the round that a journal which is not older says.
    pub(crate) fn restore_last(&self, store: &Store, unfinished: Option<RoundId>) -> Result<u64> {
        let Some(last) = self.segments.iter().map(Segment::id).max() else { return Ok(0) };
        if !self.unreadable.is_empty() && Some(last) != unfinished.map(|id| (id.epoch, id.number)) {
            return Ok(0);
        }
        let mut restored = 0;
        for segment in self.segments.iter().filter(|segment| segment.id() == last) {
            restored += restore_segment(store, self, segment, Position::MAX)?;
        }
        store.device().flush()?;
        Ok(restored)
    }

    /// The highest round that the area names, for a ring that is made anew. Each mount has an epoch above all that
    /// the area names, so one that cannot be read does no harm; nor does the round of a repair, which is none.
    pub(crate) fn last_round(&self) -> u64 {
        let rounds = self.segments.iter().map(|segment| segment.header.round.get());
        rounds.filter(|round| *round <= MAX_COUNT).max().unwrap_or(0)
    }
}

/// Says of blocks of the area that they cannot be read.
pub(crate) fn unreadable(blocks: &[u64]) -> String {
    let first = blocks.first().copied().unwrap_or_default();
    match blocks.len() {
        0 | 1 => format!("block {first} of the double-write area cannot be read"),
        n => format!("block {first} and {} more of the double-write area cannot be read", n - 1),
    }
}

/// Writes blocks of the area anew, blank, which are not needed and cannot be read; durably, and so that they can be.
pub(crate) fn make_blank(device: &dyn BlockDevice, blocks: &[u64]) -> Result<()> {
    let blank = |at: &u64| Request::write(*at, IoBuf::zeroed(BLOCK_SIZE), Cause::Recovery);
    device.run(blocks.iter().map(blank).collect())?;
    device.flush()?;
    let read = |at: &u64| Request::read(*at, IoBuf::zeroed(BLOCK_SIZE), Cause::Recovery);
    device.run(blocks.iter().map(read).collect()).map(drop)
}

fn look_at(store: &Store, first: u64, blocks: u64) -> Result<IoBuf> {
    let buf = IoBuf::zeroed(blocks as usize * BLOCK_SIZE);
    let read = store.device().run(vec![Request::read(first, buf, Cause::Recovery)])?;
    read.into_iter().next().ok_or(Error::Errno(libc::EIO))
}

/// The segment whose header block this is, if it is one, with room for so many images behind it.
fn segment(store: &Store, at: u64, room: u64, bytes: &[u8]) -> Option<Segment> {
    let (header, entries) = DoubleWriteHeader::find(store.seed(), at, bytes)?;
    let count = header.count.get() as usize;
    let fits = count <= DOUBLE_WRITE_ENTRIES && count as u64 <= room;
    fits.then(|| Segment { header, entries: entries.collect(), images: at + 1 })
}

fn restore_segment(store: &Store, area: &Area, segment: &Segment, end: Position) -> Result<u64> {
    let (places, entries): (Vec<u64>, Vec<&DoubleWriteEntry>) = (segment.images..)
        .zip(&segment.entries)
        .filter(|(at, _)| area.unreadable.binary_search(at).is_err())
        .unzip();
    let read = |at: u64| Request::read(at, IoBuf::zeroed(BLOCK_SIZE), Cause::Recovery);
    let images = store.device().run(places.into_iter().map(read).collect())?;
    let mut writes = Vec::new();
    let mut restored = 0;
    for (entry, image) in entries.into_iter().zip(images) {
        let block = entry.block.get();
        let kind = u8::try_from(entry.kind.get()).ok().and_then(BlockKind::from_byte);
        let Some(kind) = kind.filter(|_| entry.crc.get() == crc32c::crc32c(&image)) else { continue };
        // An image beyond the end holds what recovery does not bring back.
        if entry.tag.get() > end
            || !store.holds_metadata(block)
            || verify(store.seed(), block, kind, &image).is_err()
        {
            continue;
        }
        restored += 1;
        writes.push(Request::write(block, image, Cause::Recovery));
    }
    store.device().run(writes)?;
    Ok(restored)
}
