//! Restoring an unfinished round from the double-write area.
//!
//! Any block of the area may be the header of a segment: where they stand follows from how many threads wrote home.
//! A segment counts if its header verifies and names the round after the ring header's. Its images were on
//! their way home when the crash came: each that verifies replaces its home, for the home may be torn. One
//! that does not verify was never followed by a home write. Why that mends everything: [`crate::checkpoint`].

use crate::checkpoint::RoundId;
use crate::device::{BLOCK_SIZE, Cause, IoBuf, Request};
use crate::format::{BlockKind, DOUBLE_WRITE_ENTRIES, DoubleWriteEntry, DoubleWriteHeader, Position};
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

/// Restores the images of `round`; their number.
///
/// # Errors
/// [`Error::Refused`] if the area is of a later round or epoch: the journal is older than the image.
pub(super) fn restore(store: &Store, end: Position, round: RoundId) -> Result<u64> {
    let mut restored = 0;
    for segment in segments(store)? {
        let found = (segment.header.epoch.get(), segment.header.round.get());
        if found > (round.epoch, round.number) {
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
        if found == (round.epoch, round.number) {
            restored += restore_segment(store, &segment, end)?;
        }
    }
    if restored > 0 {
        store.device().flush()?;
    }
    Ok(restored)
}

/// Restores the latest round that the area holds, whatever the journal said: for an image whose journal is
/// given up.
pub(crate) fn restore_last(store: &Store) -> Result<u64> {
    let segments = segments(store)?;
    let id = |segment: &Segment| (segment.header.epoch.get(), segment.header.round.get());
    let Some(last) = segments.iter().map(id).max() else { return Ok(0) };
    let mut restored = 0;
    for segment in segments.iter().filter(|segment| id(segment) == last) {
        restored += restore_segment(store, segment, Position::MAX)?;
    }
    store.device().flush()?;
    Ok(restored)
}

/// The highest round that the area names, for a ring that is made anew.
pub(crate) fn last_round(store: &Store) -> Result<u64> {
    Ok(segments(store)?.iter().map(|segment| segment.header.round.get()).max().unwrap_or(0))
}

fn segments(store: &Store) -> Result<Vec<Segment>> {
    let sb = store.superblock();
    let (start, blocks) = (sb.dw_start.get(), sb.dw_blocks.get());
    let mut segments = Vec::new();
    for first in (start..start + blocks).step_by(LOOKED_AT as usize) {
        let len = LOOKED_AT.min(start + blocks - first) as usize;
        let read = Request::read(first, IoBuf::zeroed(len * BLOCK_SIZE), Cause::Recovery);
        for bytes in store.device().run(vec![read])? {
            let found = (first..).zip(bytes.chunks_exact(BLOCK_SIZE));
            segments
                .extend(found.filter_map(|(at, bytes)| segment(store, at, start + blocks - at - 1, bytes)));
        }
    }
    Ok(segments)
}

/// The segment whose header block this is, if it is one, with room for so many images behind it.
fn segment(store: &Store, at: u64, room: u64, bytes: &[u8]) -> Option<Segment> {
    let (header, entries) = DoubleWriteHeader::find(store.seed(), at, bytes)?;
    let count = header.count.get() as usize;
    let fits = count <= DOUBLE_WRITE_ENTRIES && count as u64 <= room;
    fits.then(|| Segment { header, entries: entries.collect(), images: at + 1 })
}

fn restore_segment(store: &Store, segment: &Segment, end: Position) -> Result<u64> {
    let reads = (segment.images..).zip(&segment.entries);
    let reads = reads.map(|(at, _)| Request::read(at, IoBuf::zeroed(BLOCK_SIZE), Cause::Recovery));
    let images = store.device().run(reads.collect())?;
    let mut writes = Vec::new();
    let mut restored = 0;
    for (entry, image) in segment.entries.iter().zip(images) {
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
