//! Carrying a plan out, so that it can be interrupted anywhere.
//!
//! 1. The superblock says "damaged": nobody mounts the image for writing until the end. What an interrupted repair has
//!    saved goes home; flush. Only then is the area free for other images: a home that was torn is whole.
//! 2. Data is copied to blocks that nothing leads to; flush.
//! 3. Batch by batch: changed blocks go to the double-write area, flush, then home, flush. A repair that
//!    begins on an image marked "damaged" takes whole images of an interrupted one for what is at home.
//! 4. The area is made blank; the superblock says what the image is now.
//!
//! Between two batches the image may be half mended; the next repair finds the rest, for every mend is one
//! that a check of the result would plan again.

use super::image::{BATCH, Image, header as header_of};
use super::{Progress, Stage};
use crate::Result;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Request};
use crate::format::{
    BlockKind, DOUBLE_WRITE_ENTRIES, DOUBLE_WRITE_MAGIC, DoubleWriteEntry, DoubleWriteHeader, STATE_DAMAGED,
    U32, U64, checksum, checksum_seed,
};
use crate::superblock;
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
    let area = segments(image);
    let capacity: usize = area.iter().map(|(_, room)| room).sum();
    for (sequence, batch) in blocks.chunks(capacity.max(1)).enumerate() {
        progress.at(Stage::Repair, (sequence * capacity) as u64, blocks.len() as u64);
        let content = |block: &u64| Some(image.device.content(*block)?.map(|buf| (*block, buf)));
        let contents: Vec<(u64, IoBuf)> = batch.iter().filter_map(content).collect::<Result<_>>()?;
        save(device, image, &area, sequence as u64, &contents)?;
        let home = contents.into_iter().map(|(block, buf)| Request::write(block, buf, Cause::Fsck));
        device.run(home.collect())?;
        device.flush()?;
    }
    let blank = |at: u64| Request::write(at, IoBuf::zeroed(BLOCK_SIZE), Cause::Fsck);
    device.run(area.iter().map(|(at, _)| *at).chain(blanked).map(blank).collect())?;
    sb.state.set(state);
    // `write` flushes what came before it first.
    superblock::write(device, &mut sb)
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
