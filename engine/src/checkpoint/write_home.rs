//! Steps 3 to 6 of a round: images, the double-write area, the homes.

use zerocopy::{FromBytes, IntoBytes};

use super::RoundId;
use crate::Result;
use crate::crew;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Op, Request};
use crate::format::{
    BLOCK_HEADER_SIZE, BlockHeader, BlockKind, DOUBLE_WRITE_ENTRIES, DOUBLE_WRITE_MAGIC, DoubleWriteEntry,
    DoubleWriteHeader, NAT_INDEX_PER_BLOCK, NatIndexEntry, Position, U32, U64, checksum,
};
use crate::journal::Wanted;
use crate::mkfs::finish_image;
use crate::planted::{self, Bug};
use crate::store::{PageRef, Store};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex};

/// Threads that claim and copy, the caller among them.
const THREADS: usize = 4;
/// Pages that make another thread worth its start.
const PAGES_PER_THREAD: usize = 64;
/// Pages a thread takes at a time.
const STRIDE: usize = 16;
/// Tries of a request that fails.
const TRIES: usize = 3;
/// Blocks of one home write at the most.
const RUN: usize = 64;
/// Pages of a batch that goes to spill space.
const SPILLED: usize = 512;

/// Bytes of an entry in a header block.
const ENTRY_SIZE: usize = size_of::<DoubleWriteEntry>();

/// A page's image on its way.
struct Image {
    page: PageRef,
    tag: Position,
    bytes: IoBuf,
}

/// What the double-write area and the homes get.
struct Entry<'i> {
    home: u64,
    tag: Position,
    kind: BlockKind,
    image: &'i [u8],
}

impl Image {
    fn entry(&self) -> Entry<'_> {
        Entry { home: self.page.block(), tag: self.tag, kind: self.page.kind(), image: &self.bytes }
    }
}

impl Store {
    /// Writes home every page that was dirty when the call began.
    pub(crate) fn write_all(&self, round: RoundId) -> Result<()> {
        let mut pages = self.dirty.drain();
        pages.sort_unstable_by_key(|page| page.block());
        let area = Area::new(self, round);
        let most = if self.profile().keeps() { area.capacity() } else { SPILLED };
        let mut batches = pages.chunks(most).enumerate();
        let outcome = batches.try_for_each(|(sequence, batch)| self.write_batch(&area, sequence, batch));
        if planted::is(Bug::AreaReusedEarly) {
            self.device().flush()?;
        }
        // What was not reached stays dirty.
        for page in batches.flat_map(|(_, batch)| batch) {
            if self.dirty.claim(page) {
                self.dirty.note(page, page.finish(true));
            }
        }
        outcome
    }

    fn write_batch(&self, area: &Area<'_>, sequence: usize, batch: &[PageRef]) -> Result<()> {
        let mut images = self.take_images(batch);
        images.sort_unstable_by_key(|image| image.page.block());
        let outcome = self.write_images(area, sequence as u64, &images);
        for image in &images {
            self.dirty.note(&image.page, image.page.finish(outcome.is_err()));
        }
        outcome
    }

    fn write_images(&self, area: &Area<'_>, sequence: u64, images: &[Image]) -> Result<()> {
        let Some(highest) = images.iter().map(|image| image.tag).max() else { return Ok(()) };
        let entries: Vec<_> = images.iter().map(Image::entry).collect();
        if self.profile().keeps() {
            if !planted::is(Bug::HomeBeforeLog) {
                let far = if planted::is(Bug::RoundInWindow) { Wanted::Process } else { Wanted::Power };
                self.commit_upto(highest, far)?;
            }
            area.write(sequence, &entries)?;
        }
        area.write_home(&entries)
    }

    /// Claims pages and copies their images, by several threads if there are many.
    fn take_images(&self, pages: &[PageRef]) -> Vec<Image> {
        let next = AtomicUsize::new(0);
        let images = Mutex::new(Vec::with_capacity(pages.len()));
        let work = || {
            let mut own = Vec::new();
            loop {
                // Relaxed: it only gives out numbers.
                let from = next.fetch_add(STRIDE, Ordering::Relaxed);
                let Some(stride) = pages.get(from..pages.len().min(from + STRIDE)) else { break };
                if stride.is_empty() {
                    break;
                }
                own.extend(stride.iter().filter(|page| self.dirty.claim(page)).map(|page| self.image(page)));
            }
            images.lock().append(&mut own);
        };
        crew::share((pages.len() / PAGES_PER_THREAD).clamp(1, THREADS), work);
        images.into_inner()
    }

    fn image(&self, page: &PageRef) -> Image {
        let mut bytes = IoBuf::zeroed(BLOCK_SIZE);
        let tag = page.copy_to(&mut bytes);
        if page.kind() != BlockKind::Node {
            let at = std::mem::offset_of!(BlockHeader, position);
            bytes[at..at + 8].copy_from_slice(&tag.to_le_bytes());
        }
        if page.kind() == BlockKind::NatIndex {
            self.fill_hints(page.block(), &mut bytes);
        }
        finish_image(self.seed(), page.block(), page.kind(), &mut bytes);
        Image { page: Arc::clone(page), tag, bytes }
    }

    /// Puts the numbers of used nids into the image of a NAT index block.
    fn fill_hints(&self, block: u64, image: &mut [u8]) {
        let observers = self.observers();
        let first = block.saturating_sub(self.superblock().nat_index_start.get()) * NAT_INDEX_PER_BLOCK;
        for (index, entry) in (first..).zip(image[BLOCK_HEADER_SIZE..].chunks_exact_mut(8)) {
            if let Ok(old) = NatIndexEntry::read_from_bytes(entry)
                && old.block() != 0
                && let Some(used) = observers.iter().find_map(|observer| observer.used_nids(index))
            {
                entry.copy_from_slice(NatIndexEntry::new(old.block(), used).as_bytes());
            }
        }
    }
}

/// The double-write area of an image, and the way home through it.
struct Area<'s> {
    device: &'s dyn BlockDevice,
    seed: u32,
    start: u64,
    blocks: u64,
    id: RoundId,
}

impl<'s> Area<'s> {
    fn new(store: &'s Store, id: RoundId) -> Area<'s> {
        let sb = store.superblock();
        let (start, blocks) = (sb.dw_start.get(), sb.dw_blocks.get());
        Area { device: store.device().as_ref(), seed: store.seed(), start, blocks, id }
    }

    /// Images that fit.
    fn capacity(&self) -> usize {
        let segment = DOUBLE_WRITE_ENTRIES as u64 + 1;
        let last = (self.blocks % segment).saturating_sub(1);
        (self.blocks / segment * (segment - 1) + last) as usize
    }

    /// Step 5: `images`, as many as fit, lie in the area durably on return.
    fn write(&self, sequence: u64, images: &[Entry<'_>]) -> Result<()> {
        let mut requests = Vec::new();
        let mut at = self.start;
        for segment in images.chunks(DOUBLE_WRITE_ENTRIES) {
            let mut buf = IoBuf::zeroed((segment.len() + 1) * BLOCK_SIZE);
            let (header, bytes) = buf.split_at_mut(BLOCK_SIZE);
            let places = header[size_of::<DoubleWriteHeader>()..].chunks_exact_mut(ENTRY_SIZE);
            let places = places.zip(bytes.chunks_exact_mut(BLOCK_SIZE));
            for (Entry { home, tag, kind, image }, (entry, place)) in segment.iter().zip(places) {
                place.copy_from_slice(image);
                let fields = DoubleWriteEntry {
                    block: U64::new(*home),
                    tag: U64::new(*tag),
                    crc: U32::new(crc32c::crc32c(image)),
                    kind: U32::new(*kind as u32),
                };
                entry.copy_from_slice(fields.as_bytes());
            }
            let head = DoubleWriteHeader {
                crc: U32::ZERO,
                count: U32::new(segment.len() as u32),
                magic: U64::new(DOUBLE_WRITE_MAGIC),
                epoch: U64::new(self.id.epoch),
                round: U64::new(self.id.number),
                sequence: U64::new(sequence),
                reserved: U64::ZERO,
            };
            header[..size_of::<DoubleWriteHeader>()].copy_from_slice(head.as_bytes());
            let crc = checksum(self.seed, at, header);
            header[..4].copy_from_slice(&crc.to_le_bytes());
            requests.push(Request::write(at, buf, Cause::DoubleWrite));
            at += segment.len() as u64 + 1;
        }
        run_tried(self.device, requests)?;
        if planted::is(Bug::NoDoubleWriteFlush) { Ok(()) } else { self.device.flush() }
    }

    /// Step 6: the images, in the order of their homes, are durable there on return.
    fn write_home(&self, images: &[Entry<'_>]) -> Result<()> {
        let mut requests = Vec::new();
        let mut run: Vec<&[u8]> = Vec::new();
        for (index, Entry { home, image, .. }) in images.iter().enumerate() {
            run.push(image);
            let goes_on = images.get(index + 1).is_some_and(|next| next.home == home + 1) && run.len() < RUN;
            if !goes_on {
                let first = home + 1 - run.len() as u64;
                requests.push(Request::write(first, IoBuf::from_slice(&run.concat()), Cause::Checkpoint));
                run.clear();
            }
        }
        run_tried(self.device, requests)?;
        if planted::is(Bug::HeadMovedBeforeFlush) || planted::is(Bug::AreaReusedEarly) {
            return Ok(());
        }
        self.device.flush()
    }
}

/// Runs a batch; what fails is tried again, alone, before the error counts.
fn run_tried(device: &dyn BlockDevice, mut batch: Vec<Request>) -> Result<()> {
    let mut outcome = Ok(());
    for _ in 0..TRIES {
        let places: Vec<_> = batch.iter().map(|request| (request.block, request.cause)).collect();
        outcome = Ok(());
        batch = device
            .wait(device.submit(batch))
            .into_iter()
            .zip(places)
            .filter_map(|(done, (block, cause))| {
                let e = done.result.err()?;
                outcome = Err(e);
                Some(Request { op: Op::Write, block, buf: done.buf, cause })
            })
            .collect();
        if batch.is_empty() {
            break;
        }
    }
    outcome
}
