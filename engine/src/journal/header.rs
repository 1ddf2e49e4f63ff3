//! The ring's header: two copies, written in turn, each whole under a checksum.
//!
//! A write goes to the copy that does not count, so a torn one leaves the other. Whether a header belongs to
//! the image at hand (UUIDs, epoch, round) is for recovery to compare with the superblock.

use zerocopy::{FromBytes, IntoBytes};

use super::ring::BLOCK_SLOTS;
use super::stream::Stream;
use super::{MIN_SLOTS, Options};
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Op, Request};
use crate::format::{
    MAX_COUNT, MAX_POSITION, Position, RING_HEADER_COPY, RING_HEADER_SPACE, RING_MAGIC, RingHeader, SLOT_SIZE,
};
use crate::planted::{self, Bug};
use crate::pmem::PersistentMemory;
use crate::{Error, Result};

/// Header blocks before the slots of a ring region.
pub(super) const HEADER_BLOCKS: u64 = 2;
/// Version of the ring's format.
const RING_VERSION: u32 = 1;

/// Bytes of a mapped ring of `slots` slots; `None` if no memory is that large.
pub fn ring_bytes(slots: u64) -> Option<usize> {
    usize::try_from(slots).ok()?.checked_mul(SLOT_SIZE)?.checked_add(RING_HEADER_SPACE)
}

/// A header of zeros with magic and version.
fn blank() -> RingHeader {
    RingHeader {
        crc: 0.into(),
        version: RING_VERSION.into(),
        magic: RING_MAGIC.into(),
        image_uuid: [0; 16],
        ring_uuid: [0; 16],
        sequence: 0.into(),
        epoch: 0.into(),
        round: 0.into(),
        head: 0.into(),
        slots: 0.into(),
    }
}

fn checksum(header: &RingHeader) -> u32 {
    crc32c::crc32c(header.as_bytes().get(4..).unwrap_or(&[]))
}

/// The header in `bytes`, if it is valid and belongs into this copy.
fn parse(bytes: &[u8], copy: u64) -> Option<RingHeader> {
    let (header, _) = RingHeader::read_from_prefix(bytes).ok()?;
    let valid = header.magic.get() == RING_MAGIC
        && header.version.get() == RING_VERSION
        && header.crc.get() == checksum(&header)
        && header.sequence.get() % 2 == copy
        // Each is counted on from.
        && [header.sequence, header.epoch, header.round].iter().all(|count| count.get() <= MAX_COUNT)
        && header.slots.get() >= MIN_SLOTS
        && header.slots.get() % BLOCK_SLOTS == 0
        && header.slots.get() <= MAX_POSITION
        // The next mount reserves from a lap beyond the head on.
        && header.head.get() <= MAX_POSITION - header.slots.get();
    valid.then_some(header)
}

/// The version of a mapped ring that is newer than this code, by its first bytes: of the copies of its header at the
/// places where every version has them. Whether they are whole cannot be known.
pub(crate) fn newer_version(start: &[u8]) -> Option<u32> {
    [0, RING_HEADER_COPY]
        .into_iter()
        .filter_map(|at| RingHeader::read_from_prefix(start.get(at..)?).ok())
        .map(|(header, _)| header)
        .filter(|header| header.magic.get() == RING_MAGIC && header.version.get() > RING_VERSION)
        .map(|header| header.version.get())
        .max()
}

/// As [`newer_version`], of a ring region: of a newer version, where no copy of its header is of one that is known.
pub(crate) fn newer_device_version(device: &dyn BlockDevice, start: u64) -> Result<Option<u32>> {
    let copies = device_copies(device, start).into_iter().collect::<Result<Vec<_>>>()?;
    Ok(copies.iter().filter_map(|copy| newer_version(copy.get(..RING_HEADER_COPY)?)).max())
}

/// The copies at the start of a ring region, each by itself: one that cannot be read may be the one that was being written.
fn device_copies(device: &dyn BlockDevice, start: u64) -> Vec<Result<IoBuf>> {
    let requests = (0..HEADER_BLOCKS)
        .map(|copy| Request::read(start + copy, IoBuf::zeroed(BLOCK_SIZE), Cause::Recovery))
        .collect();
    let done = device.wait(device.submit(requests));
    done.into_iter().map(|done| done.result.map(|()| done.buf)).collect()
}

fn newest(copies: [Option<RingHeader>; 2]) -> Option<RingHeader> {
    copies.into_iter().flatten().max_by_key(|h| h.sequence.get())
}

/// The header that counts in a mapped ring, or in the staging of an SSD ring; `None` if there is none that
/// is valid and whose slots fit the memory.
pub fn read_mapped_header(memory: &dyn PersistentMemory) -> Option<RingHeader> {
    if memory.len() < RING_HEADER_SPACE {
        return None;
    }
    let mut space = [0; RING_HEADER_SPACE];
    memory.read(0, &mut space);
    let header = header_in(&space)?;
    (ring_bytes(header.slots.get())? <= memory.len()).then_some(header)
}

/// The header that counts at the start of a mapped ring, whatever follows it.
pub(crate) fn header_in(start: &[u8]) -> Option<RingHeader> {
    newest([parse(start, 0), parse(start.get(RING_HEADER_COPY..)?, 1)])
}

/// Makes memory an image's ring, empty and never mounted: whatever it held is void.
///
/// # Errors
/// [`crate::Error::Refused`] if it is too small.
pub fn init_mapped(
    memory: &dyn PersistentMemory,
    image_uuid: &[u8; 16],
    ring_uuid: &[u8; 16],
    slots: u64,
) -> Result<()> {
    fits(memory, slots)?;
    memory.write(0, &[0; RING_HEADER_SPACE]);
    memory.persist(0, RING_HEADER_SPACE);
    let fields =
        RingHeader { image_uuid: *image_uuid, ring_uuid: *ring_uuid, slots: slots.into(), ..blank() };
    HeaderWriter::new(memory, None, fields)?.write(memory, None)
}

/// The header that counts in the ring region of `blocks` blocks from block `start` on; `None` if there is
/// none that is valid and whose slots fit the region.
///
/// # Errors
/// Those of the device: a copy that cannot be read may be the newer one, and what the older one says is not what was
/// promised since.
pub fn read_device_header(device: &dyn BlockDevice, start: u64, blocks: u64) -> Result<Option<RingHeader>> {
    let (header, failed) = newest_on_device(device, start, blocks);
    failed.map_or(Ok(header), Err)
}

/// The same, or an older header, for who needs none.
///
/// # Errors
/// Those of the device, where no copy is valid and one cannot be read.
pub(crate) fn any_device_header(
    device: &dyn BlockDevice,
    start: u64,
    blocks: u64,
) -> Result<Option<RingHeader>> {
    match newest_on_device(device, start, blocks) {
        (None, Some(e)) => Err(e),
        (header, _) => Ok(header),
    }
}

/// The newest header that can be read, and why one cannot.
fn newest_on_device(
    device: &dyn BlockDevice,
    start: u64,
    blocks: u64,
) -> (Option<RingHeader>, Option<Error>) {
    let mut copies = [None; HEADER_BLOCKS as usize];
    let mut failed = None;
    for (copy, read) in device_copies(device, start).into_iter().enumerate().take(copies.len()) {
        match read {
            Ok(buf) => copies[copy] = parse(&buf, copy as u64),
            Err(e) => failed = Some(e),
        }
    }
    let header = newest(copies).filter(|h| h.slots.get() / BLOCK_SLOTS + HEADER_BLOCKS <= blocks);
    (header, failed)
}

/// [`crate::Error::Refused`] if so many slots have no room in memory.
fn fits(memory: &dyn PersistentMemory, slots: u64) -> Result<()> {
    if ring_bytes(slots).is_none_or(|needed| memory.len() < needed) {
        let why = format!("the journal's memory has {} bytes, too few for {slots} slots", memory.len());
        return Err(crate::Error::Refused(why));
    }
    Ok(())
}

/// Makes both copies in the image blank, durably.
fn make_blank(stream: &Stream) -> Result<()> {
    let blank = |copy| Request::write(stream.start + copy, IoBuf::zeroed(BLOCK_SIZE), Cause::Journal);
    crate::blocking::about_to_block();
    stream.device.run((0..HEADER_BLOCKS).map(blank).collect())?;
    stream.device.flush()
}

/// Writes headers in turn.
pub(super) struct HeaderWriter {
    current: RingHeader,
}

impl HeaderWriter {
    /// Begins an empty ring, durably.
    ///
    /// # Errors
    /// [`crate::Error::Refused`] if its memory is too small; those of the device.
    pub(super) fn begin(
        memory: &dyn PersistentMemory,
        stream: Option<&Stream>,
        options: &Options,
    ) -> Result<Self> {
        fits(memory, options.slots)?;
        let fields = RingHeader {
            image_uuid: options.image_uuid,
            ring_uuid: options.ring_uuid,
            epoch: options.epoch.into(),
            round: options.round.into(),
            head: options.start.into(),
            slots: options.slots.into(),
            ..blank()
        };
        let mut header = HeaderWriter::new(memory, stream, fields)?;
        header.write(memory, stream)?;
        Ok(header)
    }

    /// Continues the sequence of the headers that the media hold.
    pub(super) fn new(
        memory: &dyn PersistentMemory,
        stream: Option<&Stream>,
        mut fields: RingHeader,
    ) -> Result<Self> {
        let mut sequence = read_mapped_header(memory).map_or(0, |h| h.sequence.get());
        if let Some(stream) = stream {
            let region = fields.slots.get() / BLOCK_SLOTS + HEADER_BLOCKS;
            match any_device_header(stream.device.as_ref(), stream.start, region) {
                Ok(on_device) => sequence = sequence.max(on_device.map_or(0, |h| h.sequence.get())),
                // Neither counts, whatever one says that can be read another time.
                Err(_) => make_blank(stream)?,
            }
        }
        fields.sequence = sequence.into();
        Ok(HeaderWriter { current: fields })
    }

    /// Sets what the next write says.
    pub(super) fn advance(&mut self, head: Position, round: u64) {
        self.current.head = head.into();
        self.current.round = round.into();
    }

    /// Writes the next copy durably: to the image first, for staging that is behind is only longer.
    pub(super) fn write(&mut self, memory: &dyn PersistentMemory, stream: Option<&Stream>) -> Result<()> {
        let sequence = self.current.sequence.get() + 1;
        self.current.sequence = sequence.into();
        self.current.crc = checksum(&self.current).into();
        if let Some(Stream { device, start, .. }) = stream {
            let mut buf = IoBuf::zeroed(BLOCK_SIZE);
            buf[..size_of::<RingHeader>()].copy_from_slice(self.current.as_bytes());
            let block = start + sequence % HEADER_BLOCKS;
            crate::blocking::about_to_block();
            device.run(vec![Request { op: Op::Write, block, buf, cause: Cause::Journal }])?;
            if !planted::is(Bug::HeadNotFlushed) {
                device.flush()?;
            }
        }
        let offset = if sequence.is_multiple_of(2) { 0 } else { RING_HEADER_COPY };
        memory.write(offset, self.current.as_bytes());
        if !planted::is(Bug::HeadNotFlushed) {
            memory.persist(offset, size_of::<RingHeader>());
        }
        Ok(())
    }
}
