//! Images of pages on their way home: copied once, to where the double-write area's requests and the home writes take
//! them from.
//!
//! A *segment* is one buffer as the area is to have it: a header block, then the images in the order of their homes. So
//! neighbours at home are neighbours in the buffer, and one request that writes them needs no copy.

use zerocopy::{FromBytes, IntoBytes};

use super::RoundId;
use crate::device::{BLOCK_SIZE, Cause, IoBuf, Request};
use crate::format::{
    BLOCK_HEADER_SIZE, BlockHeader, BlockKind, DOUBLE_WRITE_ENTRIES, DOUBLE_WRITE_MAGIC, DoubleWriteEntry,
    DoubleWriteHeader, NAT_INDEX_PER_BLOCK, NatIndexEntry, Position, U32, U64, checksum, finish_image,
};
use crate::store::{PageRef, Store};

/// Images of a segment at the most: with the header block they fill a buffer of the size that is kept for the next.
pub(super) const SEGMENT_IMAGES: usize = 63;
const _: () = assert!(SEGMENT_IMAGES <= DOUBLE_WRITE_ENTRIES);

/// Bytes of an entry in a header block.
const ENTRY_SIZE: usize = size_of::<DoubleWriteEntry>();

/// The images of a batch, in the order of their homes.
pub(super) struct Images {
    segments: Vec<Segment>,
    /// The end of the highest record that one of them holds.
    pub highest: Position,
}

struct Segment {
    buf: IoBuf,
    entries: Vec<DoubleWriteEntry>,
}

impl Images {
    /// Copies pages, which are claimed and in the order of their blocks.
    pub fn copy(store: &Store, pages: &[&PageRef]) -> Images {
        let segments: Vec<_> =
            pages.chunks(SEGMENT_IMAGES).map(|pages| Segment::copy(store, pages)).collect();
        let tags = segments.iter().flat_map(|segment| &segment.entries).map(|entry| entry.tag.get());
        Images { highest: tags.max().unwrap_or(0), segments }
    }

    /// Bytes of the images.
    pub fn bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.entries.len() * BLOCK_SIZE).sum()
    }

    /// The requests that write them to an area from block `at` on, which has room for them.
    pub fn area_writes(&mut self, mut at: u64, seed: u32, id: RoundId, sequence: u64) -> Vec<Request> {
        let area_writes = |segment: &mut Segment| {
            segment.head(at, seed, id, sequence);
            let request = Request::write(at, std::mem::take(&mut segment.buf), Cause::DoubleWrite);
            at += segment.entries.len() as u64 + 1;
            request
        };
        self.segments.iter_mut().map(area_writes).collect()
    }

    /// Gives them their buffers back, as the area has them.
    pub fn returned(&mut self, bufs: Vec<IoBuf>) {
        for (segment, buf) in self.segments.iter_mut().zip(bufs) {
            segment.buf = buf;
        }
    }

    /// The requests that write them home, each of up to `most` neighbours.
    pub fn into_home_writes(self, most: usize) -> Vec<Request> {
        self.segments.into_iter().flat_map(|segment| segment.into_home_writes(most)).collect()
    }
}

impl Segment {
    fn copy(store: &Store, pages: &[&PageRef]) -> Segment {
        let mut buf = IoBuf::unwiped((pages.len() + 1) * BLOCK_SIZE);
        let (header, places) = buf.split_at_mut(BLOCK_SIZE);
        header.fill(0);
        let entry = |(page, place): (&&PageRef, &mut [u8])| {
            let tag = copy_image(store, page, place);
            DoubleWriteEntry {
                block: U64::new(page.block()),
                tag: U64::new(tag),
                crc: U32::new(crc32c::crc32c(place)),
                kind: U32::new(page.kind() as u32),
            }
        };
        let entries: Vec<_> = pages.iter().zip(places.chunks_exact_mut(BLOCK_SIZE)).map(entry).collect();
        Segment { buf, entries }
    }

    /// Makes the header block for a place in the area.
    fn head(&mut self, at: u64, seed: u32, id: RoundId, sequence: u64) {
        let header = &mut self.buf[..BLOCK_SIZE];
        let places = header[size_of::<DoubleWriteHeader>()..].chunks_exact_mut(ENTRY_SIZE);
        for (entry, place) in self.entries.iter().zip(places) {
            place.copy_from_slice(entry.as_bytes());
        }
        let head = DoubleWriteHeader {
            crc: U32::ZERO,
            count: U32::new(self.entries.len() as u32),
            magic: U64::new(DOUBLE_WRITE_MAGIC),
            epoch: U64::new(id.epoch),
            round: U64::new(id.number),
            sequence: U64::new(sequence),
            reserved: U64::ZERO,
        };
        header[..size_of::<DoubleWriteHeader>()].copy_from_slice(head.as_bytes());
        let crc = checksum(seed, at, header);
        header[..4].copy_from_slice(&crc.to_le_bytes());
    }

    fn into_home_writes(self, most: usize) -> impl Iterator<Item = Request> {
        let neighbours = |a: &DoubleWriteEntry, b: &DoubleWriteEntry| a.block.get() + 1 == b.block.get();
        let runs = self.entries.chunk_by(neighbours).flat_map(|run| run.chunks(most));
        let (homes, lens): (Vec<u64>, Vec<usize>) =
            runs.map(|run| (run[0].block.get(), run.len() * BLOCK_SIZE)).unzip();
        let pieces = self.buf.divide(BLOCK_SIZE, &lens);
        homes.into_iter().zip(pieces).map(|(home, buf)| Request::write(home, buf, Cause::Checkpoint))
    }
}

/// Copies a page as it is to be at home; the end of the highest record that the image holds.
fn copy_image(store: &Store, page: &PageRef, image: &mut [u8]) -> Position {
    let tag = page.copy_to(image);
    if page.kind() != BlockKind::Node {
        let at = std::mem::offset_of!(BlockHeader, position);
        image[at..at + 8].copy_from_slice(&tag.to_le_bytes());
    }
    if page.kind() == BlockKind::NatIndex {
        fill_hints(store, page.block(), image);
    }
    finish_image(store.seed(), page.block(), page.kind(), image);
    tag
}

/// Puts the numbers of used nids into the image of a NAT index block.
fn fill_hints(store: &Store, block: u64, image: &mut [u8]) {
    let observers = store.observers();
    let first = block.saturating_sub(store.superblock().nat_index_start.get()) * NAT_INDEX_PER_BLOCK;
    for (index, entry) in (first..).zip(image[BLOCK_HEADER_SIZE..].chunks_exact_mut(8)) {
        if let Ok(old) = NatIndexEntry::read_from_bytes(entry)
            && old.block() != 0
            && let Some(used) = observers.iter().find_map(|observer| observer.used_nids(index))
        {
            entry.copy_from_slice(NatIndexEntry::new(old.block(), used).as_bytes());
        }
    }
}
