//! A small populated image, and what a fuzzer's bytes make of it.

use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, MemoryDevice, Overlay, Request};
use crate::file::{DataOptions, encode_manifest};
use crate::format::{
    BLOCK_HEADER_SIZE, BatchRun, BlockHeader, BlockKind, INODE_SIZE, JournalKind, RING_HEADER_COPY,
    RING_HEADER_SPACE, ROOT_NID, RingHeader, SLOT_SIZE, SUPERBLOCK_BLOCKS, SlotHeader, Superblock, U32, U64,
    checksum_seed, finish_image,
};
use crate::journal::ring_bytes;
use crate::mkfs::{FormatOptions, format_cramped};
use crate::pmem::{HeapMemory, PersistentMemory};
use crate::sync::{Arc, OnceLock};
use crate::vfs::{Context, OpenFlags, Vfs, VfsOptions, WriteFlags, XattrMode};
use crate::volume::{AssembleOptions, Running};
use crate::volume::{ImageOptions, Media, RingMedia, mount};
use crate::{Error, Result, superblock};
use std::collections::BTreeMap;
use std::mem::offset_of;
use zerocopy::FromBytes;

const BLOCKS: u64 = 320;
/// Of an image that has its ring inside, which takes the first of them.
const BLOCKS_WITH_RING: u64 = 416;
/// Of the device behind the image, for it to grow.
const BLOCKS_BEHIND: u64 = 8;
/// Where that ring begins.
const RING_START: usize = 2;
const SLOTS: u64 = 512;
/// The directory that has several buckets.
pub(super) const MANY: &[u8] = b"many";
/// Changes of one input at the most.
pub(super) const MOST_CHANGES: usize = 64;
/// Bytes of one change: place (2), offset (2), value (2), flags.
pub(super) const CHANGE: usize = 7;

/// What a change does besides: the checksum that covers it is made to hold.
const SEAL: u8 = 1;
/// It concerns the ring, not the image.
const RING: u8 = 2;
/// It concerns the head of the ring, or the superblock.
const HEAD: u8 = 4;
/// It concerns the ring inside the image, where that has one, not the memory that stages it.
const INSIDE: u8 = 8;

/// What an input's first byte says: it was left by a process that was killed, with a batch that is pending; it has its ring
/// inside; what stages that is gone.
const UNCLEAN: u8 = 1;
const BATCH: u8 = 4;
const WITH_RING: u8 = 8;
const UNSTAGED: u8 = 16;

/// An image and its ring, which inputs change copies of.
pub(super) struct Base {
    /// Nobody writes to it: each input has what it changes in an overlay.
    device: Arc<MemoryDevice>,
    image: Vec<u8>,
    ring: Vec<u8>,
    kind: JournalKind,
    /// With what blocks, and slots of the ring as it was, are sealed.
    seed: u32,
    slot_seed: u32,
}

/// Defaults ask the system for its memory and cores, which takes longer than a small mount: once is enough.
pub(super) fn assemble_options(read_only: bool) -> AssembleOptions {
    static OPTIONS: OnceLock<AssembleOptions> = OnceLock::new();
    let options = OPTIONS.get_or_init(|| AssembleOptions {
        data: DataOptions::with_memory(1 << 20),
        inodes: 64,
        background: false,
        ..AssembleOptions::default()
    });
    AssembleOptions { fs: VfsOptions { read_only, ..options.fs }, ..options.clone() }
}

pub(super) fn mount_options(read_only: bool) -> ImageOptions {
    static OPTIONS: OnceLock<ImageOptions> = OnceLock::new();
    let options =
        OPTIONS.get_or_init(|| ImageOptions { background: false, lanes: 1, ..ImageOptions::default() });
    ImageOptions { read_only, ..options.clone() }
}

/// Files, directories and the like; `number` tells those of one call from those of another.
pub(super) fn populate(fs: &Vfs, number: u8) -> Result<()> {
    let ctx = Context::root();
    let dir = fs.mkdir(&ctx, ROOT_NID, &[b'd', b'0' + number], 0o755)?.nid;
    fs.mkdir(&ctx, dir, b"empty", 0o700)?;
    for n in 0..24u64 {
        let name = format!("a file with a name {n}");
        let (made, handle, _) = fs.create(&ctx, dir, name.as_bytes(), 0o644, OpenFlags::READ_WRITE)?;
        for page in 0..n % 10 {
            fs.write(&ctx, &handle, page * 2 * BLOCK_SIZE as u64, &[n as u8; 100], WriteFlags::empty())?;
        }
        if n % 8 == 0 {
            fs.setxattr(&ctx, made.nid, b"user.note", &[number; 6000], XattrMode::Any)?;
            fs.fsync(&handle, false)?;
            fs.write(&ctx, &handle, 50, b"absorbed", WriteFlags::empty())?;
            fs.fsync(&handle, false)?;
        }
        fs.release(handle, None);
    }
    fs.symlink(&ctx, dir, b"link", b"empty")?;
    fs.symlink(&ctx, dir, b"long link", &[b'x'; 1000])?;
    Ok(())
}

/// Access lists.
fn populate_lists(fs: &Vfs) -> Result<()> {
    let ctx = Context::root();
    let dir = fs.mkdir(&ctx, ROOT_NID, b"lists", 0o775)?.nid;
    // Version 2; the owner, a user, the group, the mask, others.
    let entries = [(1u16, 7u16, u32::MAX), (2, 5, 7), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let entry = |(tag, perm, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let list = [2u32.to_le_bytes().to_vec(), entries.map(entry).concat()].concat();
    fs.setxattr(&ctx, dir, b"system.posix_acl_default", &list, XattrMode::Any)?;
    let (made, handle, _) = fs.create(&ctx, dir, b"listed", 0o664, OpenFlags::READ_WRITE)?;
    fs.setxattr(&ctx, made.nid, b"system.posix_acl_access", &list, XattrMode::Any)?;
    fs.fsync(&handle, false)?;
    fs.release(handle, None);
    Ok(())
}

/// A directory of several buckets, or as many as so small a ring has room to divide, whose names lead to one file.
fn populate_many(fs: &Vfs) -> Result<()> {
    let ctx = Context::root();
    let dir = fs.mkdir(&ctx, ROOT_NID, MANY, 0o755)?.nid;
    let (made, handle, _) = fs.create(&ctx, dir, b"first", 0o644, OpenFlags::READ_WRITE)?;
    fs.release(handle, None);
    let names = (0..45).map(|n| format!("{n:0>180}"));
    match names.map(|name| fs.link(&ctx, made.nid, dir, name.as_bytes())).find_map(Result::err) {
        Some(Error::Errno(libc::ENOSPC)) | None => Ok(()),
        Some(e) => Err(e),
    }
}

/// A large batch that is committed, and of which nothing is moved yet: for two files, one of which gets longer by it.
fn leave_batch(fs: &Vfs) -> Result<()> {
    let (ctx, page) = (Context::root(), BLOCK_SIZE as u64);
    fs.meta().note_batches()?;
    let mut runs = Vec::new();
    for (n, name) in [b"first".as_slice(), b"second"].into_iter().enumerate() {
        let (_, handle, _) = fs.create(&ctx, ROOT_NID, name, 0o644, OpenFlags::READ_WRITE)?;
        fs.write(&ctx, &handle, 0, &[1; 2 * BLOCK_SIZE], WriteFlags::empty())?;
        fs.fsync(&handle, false)?;
        let (nid, generation) = (handle.nid(), fs.meta().inode(handle.nid())?.generation());
        for target in [n as u64, 9] {
            runs.push(BatchRun {
                nid: U64::new(nid),
                generation: U32::new(generation),
                pages: U32::new(1),
                target: U64::new(target),
                source: U64::new(runs.len() as u64),
                size: U64::new((target + 1) * page),
            });
        }
        fs.release(handle, None);
    }
    let (entry, handle) = fs.tmpfile(&ctx, ROOT_NID, 0, OpenFlags::READ_WRITE)?;
    let manifest = encode_manifest(&runs);
    let place = [runs.len() as u64 * page, manifest.len() as u64];
    fs.write(&ctx, &handle, 0, &vec![3; place[0] as usize], WriteFlags::empty())?;
    fs.write(&ctx, &handle, place[0], &manifest, WriteFlags::empty())?;
    fs.fsync(&handle, false)?;
    let staging = fs.meta().inode(entry.nid)?;
    // Its handle is left open: the process is killed.
    std::mem::forget(handle);
    fs.meta().log_batch(&staging, place).map(drop)
}

/// Memory with an empty image, and its ring.
#[derive(Clone)]
pub(super) struct Fresh {
    device: Arc<MemoryDevice>,
    ring: Arc<HeapMemory>,
    kind: JournalKind,
}

impl Fresh {
    pub(super) fn make(kind: JournalKind) -> Result<Fresh> {
        let is_inside = kind == JournalKind::Ssd;
        let device = Arc::new(MemoryDevice::new(if is_inside { BLOCKS_WITH_RING } else { BLOCKS }));
        let ring = Arc::new(HeapMemory::new(ring_bytes(SLOTS).expect("small")));
        let options = FormatOptions {
            journal: kind,
            journal_slots: Some(SLOTS),
            double_write_blocks: Some(8),
            // An input must mean the same tomorrow.
            uuid: Some([1; 16]),
            ring_uuid: Some([2; 16]),
            hash_key: Some([3; 16]),
            now: 0,
            ..FormatOptions::default()
        };
        let sb = format_cramped(&*device, &options)?;
        if !is_inside {
            crate::journal::init_mapped(&*ring, &sb.uuid, &sb.ring_uuid, SLOTS)?;
        }
        Ok(Fresh { device, ring, kind })
    }

    pub(super) fn media(&self) -> Media {
        Media::new(self.device.clone(), media_of(self.kind, self.ring.clone()))
    }

    /// What lies there now.
    pub(super) fn bytes(&self) -> Result<Base> {
        let bytes = self.device.blocks() as usize * BLOCK_SIZE;
        let whole = Request::read(0, IoBuf::zeroed(bytes), Cause::Fsck);
        let image = self.device.run(vec![whole])?.iter().flat_map(|buf| buf.to_vec()).collect();
        let mut ring = vec![0; self.ring.len()];
        self.ring.read(0, &mut ring);
        Base::new(image, ring, self.kind)
    }
}

fn media_of(kind: JournalKind, ring: Arc<HeapMemory>) -> RingMedia {
    if kind == JournalKind::Ssd { RingMedia::Ssd(ring) } else { RingMedia::Mapped(ring) }
}

/// An image that was unmounted, or left by a process that was killed with work in the journal.
fn make(choice: u8) -> Result<Base> {
    let kind = if choice & WITH_RING != 0 { JournalKind::Ssd } else { JournalKind::Emulated };
    let fresh = Fresh::make(kind)?;
    for killed in [false, true] {
        if killed && choice & UNCLEAN == 0 {
            break;
        }
        let mounted = mount(fresh.media(), &mount_options(false))?;
        let running = Running::start(mounted.checkpointer(), &assemble_options(false))?;
        populate(running.fs(), u8::from(killed))?;
        if kind == JournalKind::Ssd && !killed {
            populate_lists(running.fs())?;
            // What is written is promised more than it takes until it goes home.
            running.fs().syncfs()?;
            populate_many(running.fs())?;
        }
        if killed && choice & BATCH != 0 {
            leave_batch(running.fs())?;
        }
        if !killed {
            running.stop()?;
            mounted.unmount()?;
        }
    }
    fresh.bytes()
}

fn base(choice: u8) -> &'static Base {
    static BASES: [OnceLock<Base>; 16] = [const { OnceLock::new() }; 16];
    let choice = choice & (UNCLEAN | BATCH | WITH_RING);
    BASES[usize::from(choice)].get_or_init(|| make(choice).expect("memory"))
}

/// The media that an input describes: its first byte chooses the image, the rest are changes.
pub(super) fn media(input: &[u8]) -> Media {
    let (first, changes) = input.split_first().unwrap_or((&0, &[]));
    let base = base(*first);
    let mut media = base.changed(changes.chunks_exact(CHANGE).take(MOST_CHANGES));
    if first & UNSTAGED != 0 && base.kind == JournalKind::Ssd {
        media.ring = RingMedia::Ssd(Arc::new(HeapMemory::new(base.ring.len())));
    }
    media
}

impl Base {
    fn new(image: Vec<u8>, ring: Vec<u8>, kind: JournalKind) -> Result<Base> {
        let device = Arc::new(MemoryDevice::new((image.len() / BLOCK_SIZE) as u64 + BLOCKS_BEHIND));
        device.run(vec![Request::write(0, IoBuf::from_slice(&image), Cause::Fsck)])?;
        let uuid = &image[offset_of!(Superblock, uuid)..][..16];
        let seed = checksum_seed(uuid.try_into().expect("sixteen bytes"));
        let epoch_at =
            |bytes: &[u8]| RingHeader::read_from_prefix(bytes).map_or(0, |(header, _)| header.epoch.get());
        let epochs = match kind {
            JournalKind::Ssd => {
                [RING_START, RING_START + 1].map(|block| epoch_at(&image[block * BLOCK_SIZE..]))
            }
            _ => [0, RING_HEADER_COPY].map(|at| epoch_at(&ring[at..])),
        };
        let slot_seed = crc32c::crc32c_append(seed, &epochs[0].max(epochs[1]).to_le_bytes());
        Ok(Base { device, image, ring, kind, seed, slot_seed })
    }

    /// Media with these bytes, but for changes.
    pub(super) fn changed<'a>(&self, changes: impl Iterator<Item = &'a [u8]>) -> Media {
        let memory = HeapMemory::new(self.ring.len());
        memory.write(0, &self.ring);
        let mut changed = Changed { base: self, blocks: BTreeMap::new(), ring: memory };
        changes.for_each(|change| changed.apply(change));
        let Changed { blocks, ring, .. } = changed;
        let device = Overlay::new(self.device.clone(), usize::MAX);
        let write = |(block, buf)| Request::write(block as u64, buf, Cause::Fsck);
        device.run(blocks.into_iter().map(write).collect()).expect("memory");
        Media::new(Arc::new(device), media_of(self.kind, Arc::new(ring)))
    }
}

/// A base, and what an input has made of it.
struct Changed<'b> {
    base: &'b Base,
    blocks: BTreeMap<usize, IoBuf>,
    ring: HeapMemory,
}

impl Changed<'_> {
    fn block(&mut self, block: usize) -> &mut [u8] {
        let image = &self.base.image;
        self.blocks
            .entry(block)
            .or_insert_with(|| IoBuf::from_slice(&image[block * BLOCK_SIZE..][..BLOCK_SIZE]))
    }

    fn apply(&mut self, change: &[u8]) {
        let word = |at: usize| usize::from(u16::from_le_bytes([change[at], change[at + 1]]));
        let (place, offset, value, flags) = (word(0), word(2), &change[4..6], change[6]);
        let seal = flags & SEAL != 0;
        let put = |bytes: &mut [u8]| {
            let at = offset % (bytes.len() - 1);
            bytes[at..at + 2].copy_from_slice(value);
        };
        let put_whole = |bytes: &mut [u8]| {
            put(bytes);
            if seal {
                let crc = crc32c::crc32c(&bytes[4..]);
                bytes[..4].copy_from_slice(&crc.to_le_bytes());
            }
        };
        let seed = self.base.slot_seed;
        let put_slot = |bytes: &mut [u8]| {
            put(bytes);
            if seal {
                seal_slot(seed, bytes);
            }
        };
        let is_inside = flags & INSIDE != 0 && self.base.kind == JournalKind::Ssd;
        match (flags & RING != 0, flags & HEAD != 0) {
            (false, true) => {
                let block = SUPERBLOCK_BLOCKS[place % 2] as usize;
                put_whole(&mut self.block(block)[..size_of::<Superblock>()]);
            }
            (true, true) if is_inside => {
                put_whole(&mut self.block(RING_START + place % 2)[..size_of::<RingHeader>()]);
            }
            (true, true) => self.in_ring(place % 2 * RING_HEADER_COPY, size_of::<RingHeader>(), put_whole),
            (true, false) => {
                let at = place % SLOTS as usize * SLOT_SIZE;
                if is_inside {
                    let block = RING_START + 2 + at / BLOCK_SIZE;
                    put_slot(&mut self.block(block)[at % BLOCK_SIZE..][..SLOT_SIZE]);
                } else {
                    self.in_ring(RING_HEADER_SPACE + at, SLOT_SIZE, put_slot);
                }
            }
            (false, false) => {
                let (seed, block) = (self.base.seed, place % (self.base.image.len() / BLOCK_SIZE));
                let page = self.block(block);
                put(page);
                // A block of data is no node block, but sealing it as one harms nobody here.
                if seal && block > 1 && page[..INODE_SIZE.max(BLOCK_HEADER_SIZE)].iter().any(|b| *b != 0) {
                    let kind =
                        BlockHeader::read_from_prefix(&*page).ok().and_then(|(header, _)| header.kind());
                    finish_image(seed, block as u64, kind.unwrap_or(BlockKind::Node), page);
                }
            }
        }
    }

    fn in_ring(&self, at: usize, len: usize, change: impl Fn(&mut [u8])) {
        let mut bytes = vec![0; len];
        self.ring.read(at, &mut bytes);
        change(&mut bytes);
        self.ring.write(at, &bytes);
    }
}

/// Makes the checksum of a slot hold.
fn seal_slot(seed: u32, slot: &mut [u8]) {
    let at = offset_of!(SlotHeader, crc);
    slot[at..at + 4].fill(0);
    let crc = crc32c::crc32c_append(seed, slot);
    slot[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Whether there is something to mount or check.
pub(super) fn is_image(media: &Media) -> bool {
    superblock::read(&*media.device).is_ok()
}
