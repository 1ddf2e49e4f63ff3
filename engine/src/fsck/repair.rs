//! Carrying a plan out, so that it can be interrupted anywhere.
//!
//! 1. The superblock says "damaged": nobody mounts the image for writing until the end. What an interrupted repair has
//!    saved goes home; flush. Only then is the area free for other images: a home that was torn is whole.
//! 2. Data is copied, and new metadata written, to blocks that nothing leads to; flush.
//! 3. Names that leave a block of a directory go to a free one; flush. Batch by batch: changed blocks go to the double-write
//!    area, flush, then home, flush; those that names leave lead to the block that has these. A repair that
//!    begins on an image marked "damaged" takes whole images of an interrupted one for what is at home. Once all is home
//!    the blocks that names have left follow as they are to be.
//! 4. The area is made blank, with what checkpoint rounds have left in it: where the journal were given up later, the images
//!    of the last would go over what is mended. The superblock says what the image is now.
//!
//! Between two batches the image may be half mended; the next repair finds the rest, for every mend is one
//! that a check of the result would plan again.

use super::image::{BATCH, Image, header as header_of};
use super::{Progress, Stage, dirs};
use crate::Result;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Request};
use crate::format::{
    BlockKind, DOUBLE_WRITE_ENTRIES, DOUBLE_WRITE_MAGIC, DoubleWriteEntry, DoubleWriteHeader, STATE_DAMAGED,
    U32, U64, checksum, checksum_seed,
};
use crate::superblock;
use std::ops::Range;
use zerocopy::IntoBytes;

/// The round of a repair's images: none of a checkpoint's.
pub(super) const REPAIR_ROUND: u64 = u64::MAX;
/// Blocks of a segment with its header.
const SEGMENT: u64 = DOUBLE_WRITE_ENTRIES as u64 + 1;
/// Where entries begin in a header block.
const ENTRIES: usize = size_of::<DoubleWriteHeader>();

/// Says in the superblock that damage is left; nothing else is written.
pub(super) fn mark(device: &dyn BlockDevice, image: &Image) -> Result<()> {
    let mut sb = image.sb;
    if sb.state.get() == STATE_DAMAGED {
        return Ok(());
    }
    sb.state.set(STATE_DAMAGED);
    superblock::write_both(device, &mut sb)
}

/// Writes the plan. `saved`: what [`resume`] has found; `state` is what the superblock says afterwards.
pub(super) fn carry_out(
    device: &dyn BlockDevice,
    image: &Image,
    saved: &[(u64, IoBuf)],
    state: u32,
    progress: &mut Progress,
) -> Result<()> {
    let mut sb = image.sb;
    // What is blanked in the double-write area waits until its images are needed no more.
    let area_blocks = image.sb.dw_start.get()..image.sb.dw_start.get() + image.sb.dw_blocks.get();
    let (blanked, blocks): (Vec<u64>, Vec<u64>) =
        image.device.blocks_written().into_iter().partition(|block| area_blocks.contains(block));
    sb.state.set(STATE_DAMAGED);
    // Both, so that no copy that is left says that it is whole.
    superblock::write_both(device, &mut sb)?;
    let torn = saved.iter().map(|(block, buf)| Request::write(*block, buf.clone(), Cause::Fsck));
    device.run(torn.collect())?;
    device.flush()?;
    copy_data(device, image, progress)?;
    let (new, blocks): (Vec<u64>, Vec<u64>) =
        blocks.into_iter().partition(|block| image.fresh.contains(block));
    for batch in new.chunks(BATCH) {
        write_home(device, contents(image, batch)?)?;
    }
    let area = segments(image);
    let (mut batches, mut left) = (Batches { device, image, area: &area, sequence: 0 }, Vec::new());
    let total = blocks.len() as u64;
    for batch in blocks.chunks(batches.room()) {
        progress.at(Stage::Repair, batches.sequence * batches.room() as u64, total);
        let mut contents = contents(image, batch)?;
        let mut leaving = Vec::new();
        for (block, buf) in &mut contents {
            let Some((first, names)) = dirs::with_leaving(image, *block, buf) else { continue };
            *buf = first;
            leaving.push(names);
            left.push(*block);
        }
        if !leaving.is_empty() {
            write_home(device, leaving)?;
        }
        batches.carry(contents)?;
    }
    for batch in left.chunks(batches.room()) {
        batches.carry(contents(image, batch)?)?;
    }
    let blank = |at: u64| Request::write(at, IoBuf::zeroed(BLOCK_SIZE), Cause::Fsck);
    device.run(heads(image, area_blocks).into_iter().chain(blanked).map(blank).collect())?;
    sb.state.set(state);
    // `write` flushes what came before it first.
    superblock::write(device, &mut sb)
}

/// What the plan has for blocks that it changes.
fn contents(image: &Image, blocks: &[u64]) -> Result<Vec<(u64, IoBuf)>> {
    let content = |block: &u64| Some(image.device.content(*block)?.map(|buf| (*block, buf)));
    blocks.iter().filter_map(content).collect()
}

/// Writes blocks to their places, durably on return.
fn write_home(device: &dyn BlockDevice, contents: Vec<(u64, IoBuf)>) -> Result<()> {
    let home = contents.into_iter().map(|(block, buf)| Request::write(block, buf, Cause::Fsck));
    device.run(home.collect())?;
    device.flush()
}

/// Brings blocks home by way of the area.
struct Batches<'b> {
    device: &'b dyn BlockDevice,
    image: &'b Image,
    area: &'b [(u64, usize)],
    /// The number of the next one.
    sequence: u64,
}

impl Batches<'_> {
    /// Blocks of a batch.
    fn room(&self) -> usize {
        self.area.iter().map(|(_, room)| room).sum::<usize>().max(1)
    }

    fn carry(&mut self, contents: Vec<(u64, IoBuf)>) -> Result<()> {
        save(self.device, self.image, self.area, self.sequence, &contents)?;
        self.sequence += 1;
        write_home(self.device, contents)
    }
}

fn copy_data(device: &dyn BlockDevice, image: &Image, progress: &mut Progress) -> Result<()> {
    let total = image.copies.iter().map(|copy| u64::from(copy.len)).sum();
    let mut done = 0;
    for copy in &image.copies {
        let mut at = 0;
        while at < u64::from(copy.len) {
            progress.at(Stage::Repair, done + at, total);
            let len = (u64::from(copy.len) - at).min(BATCH as u64);
            let mut buf = IoBuf::zeroed(len as usize * BLOCK_SIZE);
            if let Some(from) = copy.from {
                let read = device.run(vec![Request::read(from + at, buf, Cause::Fsck)])?;
                buf = read.into_iter().next().unwrap_or_else(|| IoBuf::zeroed(len as usize * BLOCK_SIZE));
            }
            device.run(vec![Request::write(copy.to + at, buf, Cause::Fsck)])?;
            at += len;
        }
        done += u64::from(copy.len);
    }
    device.flush()
}

/// The places of headers in the double-write area, each with the images that follow.
fn segments(image: &Image) -> Vec<(u64, usize)> {
    let (start, blocks) = (image.sb.dw_start.get(), image.sb.dw_blocks.get());
    let first = (0..blocks).step_by(SEGMENT as usize);
    first
        .map(|at| (start + at, (blocks - at).min(SEGMENT) as usize - 1))
        .filter(|(_, room)| *room > 0)
        .collect()
}

/// Blocks of the area that are headers of segments, whoever has written those; or that cannot be read.
fn heads(image: &Image, area: Range<u64>) -> Vec<u64> {
    let seed = checksum_seed(&image.sb.uuid);
    let is_head = |at: u64, bytes: &[u8]| DoubleWriteHeader::find(seed, at, bytes).is_some();
    let mut heads = Vec::new();
    for first in area.clone().step_by(BATCH) {
        let blocks: Vec<u64> = (first..area.end.min(first + BATCH as u64)).collect();
        let read = image.read_many(&blocks);
        let found = blocks.into_iter().zip(read);
        let heads_here = found.filter(|(at, read)| read.as_ref().map_or(true, |bytes| is_head(*at, bytes)));
        heads.extend(heads_here.map(|(at, _)| at));
    }
    heads
}

/// Writes images to the area, durably on return.
fn save(
    device: &dyn BlockDevice,
    image: &Image,
    area: &[(u64, usize)],
    sequence: u64,
    mut contents: &[(u64, IoBuf)],
) -> Result<()> {
    let seed = checksum_seed(&image.sb.uuid);
    let mut requests = Vec::new();
    for (at, room) in area {
        let (now, later) = contents.split_at(contents.len().min(*room));
        contents = later;
        let mut buf = IoBuf::zeroed((now.len() + 1) * BLOCK_SIZE);
        let (header, images) = buf.split_at_mut(BLOCK_SIZE);
        let entries = header[ENTRIES..].chunks_exact_mut(size_of::<DoubleWriteEntry>());
        for (((home, bytes), entry), place) in
            now.iter().zip(entries).zip(images.chunks_exact_mut(BLOCK_SIZE))
        {
            place.copy_from_slice(bytes);
            let fields = DoubleWriteEntry {
                block: U64::new(*home),
                tag: U64::ZERO,
                crc: U32::new(crc32c::crc32c(bytes)),
                kind: U32::new(header_of(bytes).and_then(|h| h.kind()).unwrap_or(BlockKind::Node) as u32),
            };
            entry.copy_from_slice(fields.as_bytes());
        }
        let fields = DoubleWriteHeader {
            crc: U32::ZERO,
            count: U32::new(now.len() as u32),
            magic: U64::new(DOUBLE_WRITE_MAGIC),
            epoch: image.sb.epoch,
            round: U64::new(REPAIR_ROUND),
            sequence: U64::new(sequence),
            reserved: U64::ZERO,
        };
        header[..ENTRIES].copy_from_slice(fields.as_bytes());
        let crc = checksum(seed, *at, header);
        header[..4].copy_from_slice(&crc.to_le_bytes());
        requests.push(Request::write(*at, buf, Cause::Fsck));
    }
    device.run(requests)?;
    device.flush()
}

/// Puts what an interrupted repair has saved onto the overlay; what that is, by its home.
pub(super) fn resume(image: &Image) -> Result<Vec<(u64, IoBuf)>> {
    let mut saved = Vec::new();
    let seed = checksum_seed(&image.sb.uuid);
    for (at, room) in segments(image) {
        let Ok(header) = image.read(at) else { continue };
        let Some((fields, entries)) = DoubleWriteHeader::find(seed, at, &header) else { continue };
        if fields.round.get() != REPAIR_ROUND || fields.epoch != image.sb.epoch {
            continue;
        }
        for (place, entry) in (at + 1..).zip(entries.take(room)) {
            let Ok(bytes) = image.read(place) else { continue };
            let home = entry.block.get();
            if entry.crc.get() == crc32c::crc32c(&bytes) && home < image.sb.blocks.get() {
                image.put_raw(home, bytes.clone())?;
                saved.push((home, bytes));
            }
        }
    }
    Ok(saved)
}
