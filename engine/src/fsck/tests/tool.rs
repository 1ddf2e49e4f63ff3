//! A populated image, and a tool to damage it: it finds structures, changes them, and seals what it changed.

use crate::device::Overlay;
use crate::device::{
    BLOCK_SIZE, BlockDevice, CauseCount, Completion, IoBuf, MemoryDevice, Op, Request, Ticket,
};
use crate::dir::bucket::walk;
use crate::extent::{Run, decode};
use crate::file::DataOptions;
use crate::format::{
    BLOCK_HEADER_SIZE, BLOCKS_PER_GROUP, BlockKind, EXTENT_ENTRY_SIZE, ExtentEntry, Inode, JournalKind,
    NAT_INDEX_PER_BLOCK, NatEntry, NatIndexEntry, Nid, ROOT_NID, nat_place,
};
use crate::fsck::image::{Image, word};
use crate::fsck::state::is_marked;
use crate::fsck::{Options, Report, check};
use crate::journal::ring_bytes;
use crate::lane;
use crate::mkfs::{FormatOptions, format};
use crate::pmem::HeapMemory;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, OnceLock};
use crate::vfs::{Context, OpenFlags, WriteFlags, XattrMode};
use crate::volume::{AssembleOptions, Running};
use crate::volume::{ImageOptions, Media, RingMedia, mount};
use crate::{Error, Result, superblock};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use zerocopy::FromBytes;

const BLOCKS: u64 = 3000;
const SLOTS: u64 = 1 << 14;

/// What the image holds.
#[derive(Clone)]
pub struct Made {
    pub device: Arc<dyn BlockDevice>,
    pub ring: Arc<HeapMemory>,
    /// A directory with a few hundred files.
    pub dir: Nid,
    /// A directory in it.
    pub inner: Nid,
    /// A file whose extents need a block of their own.
    pub scattered: Nid,
    /// A file of three blocks in a row.
    pub plain: Nid,
    /// A file with an attribute of many blocks, and two names.
    pub marked: Nid,
    /// A symbolic link.
    pub link: Nid,
}

fn populate(blocks: u64) -> Result<Made> {
    let device = Arc::new(MemoryDevice::new(blocks));
    let ring = Arc::new(HeapMemory::new(ring_bytes(SLOTS).expect("small")));
    let options = FormatOptions {
        journal: JournalKind::Emulated,
        journal_slots: Some(SLOTS),
        double_write_blocks: Some(20),
        sparse: true,
        ..FormatOptions::default()
    };
    format(&*device, &options)?;
    let media = Media {
        device: device.clone(),
        ring: RingMedia::Mapped(ring.clone()),
        staging_file: None,
        owner: None,
    };
    let mounted = mount(media, &ImageOptions { background: false, ..ImageOptions::default() })?;
    let data = DataOptions::with_memory(4 << 20);
    let options = AssembleOptions { data, inodes: 256, background: false, ..AssembleOptions::default() };
    let running = Running::start(mounted.checkpointer(), &options)?;
    let (fs, ctx) = (running.fs().clone(), Context::root());
    let write = |parent: Nid, name: &str, pages: &[u64]| -> Result<Nid> {
        let (entry, handle, _) = fs.create(&ctx, parent, name.as_bytes(), 0o644, OpenFlags::READ_WRITE)?;
        for page in pages {
            let bytes = [*page as u8 + 1; BLOCK_SIZE];
            fs.write(&ctx, &handle, page * BLOCK_SIZE as u64, &bytes, WriteFlags::empty())?;
        }
        fs.fsync(&handle, false)?;
        fs.release(handle, None);
        Ok(entry.nid)
    };
    let dir = fs.mkdir(&ctx, ROOT_NID, b"dir", 0o755)?.nid;
    let inner = fs.mkdir(&ctx, dir, b"inner", 0o755)?.nid;
    let scattered: Vec<u64> = (0..24).map(|n| n * 2).collect();
    let scattered = write(ROOT_NID, "scattered", &scattered)?;
    let plain = write(inner, "plain", &[0, 1, 2])?;
    let marked = write(ROOT_NID, "marked", &[0])?;
    fs.setxattr(&ctx, marked, b"user.large", &[b'x'; 6000], XattrMode::Any)?;
    fs.link(&ctx, marked, dir, b"marked too")?;
    let link = fs.symlink(&ctx, ROOT_NID, b"link", b"dir/inner/plain")?.nid;
    fs.symlink(&ctx, ROOT_NID, b"long link", &[b'a'; 400])?;
    for n in 0..300 {
        fs.mknod(&ctx, dir, format!("a file with a longer name {n}").as_bytes(), libc::S_IFREG | 0o600, 0)?;
    }
    drop(fs);
    running.stop()?;
    mounted.unmount()?;
    Ok(Made { device, ring, dir, inner, scattered, plain, marked, link })
}

/// The image, as it was made once; what is done to it is seen by nobody else.
pub fn made() -> Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        // Wherever the scheduler puts it: damage is done to numbers and slots that are known.
        lane::pin(Some(0));
        let made = populate(BLOCKS).expect("memory");
        lane::pin(None);
        made
    });
    made.over(made.device.clone())
}

/// One of two groups, of which all lies in the first.
pub fn made_of_two_groups() -> Made {
    lane::pin(Some(0));
    let made = populate(BLOCKS_PER_GROUP + BLOCKS).expect("memory");
    lane::pin(None);
    made
}

impl Made {
    /// The same with changes of its own over another device.
    pub fn over(&self, device: Arc<dyn BlockDevice>) -> Made {
        Made { device: Arc::new(Overlay::new(device, 8)), ..self.clone() }
    }

    pub fn media(&self) -> Media {
        let ring = RingMedia::Mapped(self.ring.clone());
        Media { device: self.device.clone(), ring, staging_file: None, owner: None }
    }

    pub fn check(&self) -> Report {
        check(&self.media(), &Options::default()).expect("an image")
    }

    pub fn repair(&self) -> Report {
        check(&self.media(), &Options { repair: true, ..Options::default() }).expect("an image")
    }

    /// Damages it.
    pub fn damage(&self, f: impl FnOnce(&Tool<'_>)) {
        let sb = superblock::read(&*self.device).expect("an image");
        let image = Image::new(Arc::new(Overlay::new(self.device.clone(), 8)), sb);
        f(&Tool { made: self, image: &image });
        for block in image.device.blocks_written() {
            let buf = image.device.content(block).expect("it was written").expect("memory");
            self.device.run(vec![Request::write(block, buf, crate::device::Cause::Fsck)]).expect("memory");
        }
    }
}

/// Finds and changes structures.
pub struct Tool<'a> {
    pub made: &'a Made,
    pub image: &'a Image,
}

impl Tool<'_> {
    /// Changes a block with a header, and seals it.
    pub fn edit(&self, block: u64, kind: BlockKind, f: impl FnOnce(&mut [u8])) {
        let mut buf = self.image.get(block, kind).expect("sound so far");
        f(&mut buf);
        self.image.put(block, kind, buf).expect("memory");
    }

    /// Changes a byte, and does not seal the block.
    pub fn smash(&self, block: u64, at: usize) {
        let mut buf = self.image.read(block).expect("memory");
        buf[at] ^= 0x5a;
        self.image.put_raw(block, buf).expect("memory");
    }

    /// Changes the marks of blocks: there is one group.
    fn edit_marks(&self, blocks: &[u64], f: impl Fn(&mut u8, u8)) {
        let bitmap = self.image.sb.groups_start.get();
        self.edit(bitmap, BlockKind::Bitmap, |bytes| {
            for at in blocks.iter().map(|block| (block - bitmap) as usize) {
                f(&mut bytes[BLOCK_HEADER_SIZE + at / 8], 1 << (at % 8));
            }
        });
    }

    /// Marks blocks as in use.
    pub fn mark(&self, blocks: &[u64]) {
        self.edit_marks(blocks, |byte, bit| *byte |= bit);
    }

    /// Nothing is free but these blocks.
    pub fn leave_free(&self, blocks: &[u64]) {
        let bitmap = self.image.sb.groups_start.get();
        self.edit(bitmap, BlockKind::Bitmap, |bytes| bytes[BLOCK_HEADER_SIZE..].fill(0xff));
        self.edit_marks(blocks, |byte, bit| *byte &= !bit);
    }

    /// The first two free blocks in a row: there is one group.
    pub fn first_two_free(&self) -> u64 {
        let first = self.image.sb.groups_start.get();
        let bytes = self.image.get(first, BlockKind::Bitmap).expect("sound");
        let free = |block: u64| !is_marked(&bytes, block - first);
        (first + 1..self.image.sb.blocks.get()).find(|block| free(*block) && free(*block + 1)).expect("room")
    }

    /// The NAT block of a nid and the offset of its entry.
    pub fn nat(&self, nid: Nid) -> (u64, usize) {
        let (index, at) = nat_place(nid);
        let block = self.image.sb.nat_index_start.get() + index / NAT_INDEX_PER_BLOCK;
        let bytes = self.image.get(block, BlockKind::NatIndex).expect("sound so far");
        let pointer = word(&bytes, BLOCK_HEADER_SIZE + (index % NAT_INDEX_PER_BLOCK) as usize * 8);
        (NatIndexEntry(pointer.into()).block(), at)
    }

    pub fn entry(&self, nid: Nid) -> NatEntry {
        let (block, at) = self.nat(nid);
        let bytes = self.image.get(block, BlockKind::Nat).expect("sound so far");
        NatEntry::read_from_prefix(&bytes[at..]).expect("it fits").0
    }

    pub fn place(&self, nid: Nid) -> (u64, usize) {
        let entry = self.entry(nid);
        (entry.block(), entry.slot().into())
    }

    pub fn inode(&self, nid: Nid) -> Inode {
        let (block, slot) = self.place(nid);
        self.image.inode(block, slot).expect("memory")
    }

    pub fn edit_inode(&self, nid: Nid, f: impl FnOnce(&mut Inode)) {
        let (block, slot) = self.place(nid);
        let mut inode = self.inode(nid);
        f(&mut inode);
        self.image.put_inode(block, slot, &inode).expect("memory");
    }

    /// The entries of an inode's extent root.
    pub fn root(&self, nid: Nid) -> Vec<Run> {
        let inode = self.inode(nid);
        let entries = inode.inline.chunks_exact(EXTENT_ENTRY_SIZE).take(inode.extent_count.into());
        entries.map(|bytes| decode(ExtentEntry::read_from_bytes(bytes).expect("whole"))).collect()
    }

    /// Changes the first entry of an inode's extent root.
    pub fn edit_run(&self, nid: Nid, f: impl FnOnce(&mut Run)) {
        use zerocopy::IntoBytes;
        let mut run = self.root(nid)[0];
        f(&mut run);
        let entry = crate::extent::encode(&run);
        self.edit_inode(nid, |inode| inode.inline[..EXTENT_ENTRY_SIZE].copy_from_slice(entry.as_bytes()));
    }

    /// The blocks of a directory's buckets.
    pub fn buckets(&self, nid: Nid) -> Vec<u64> {
        self.root(nid).iter().flat_map(|run| run.block..run.block + u64::from(run.len)).collect()
    }

    /// The block of a name's entry and the entry's offset.
    pub fn dentry(&self, dir: Nid, name: &[u8]) -> (u64, usize) {
        for first in self.buckets(dir) {
            let mut block = first;
            while block != 0 {
                let bytes = self.image.get(block, BlockKind::Bucket).expect("sound so far");
                let found = walk(&bytes, |spot, dentry| match dentry.name == name {
                    true => ControlFlow::Break(spot.at),
                    false => ControlFlow::Continue(()),
                });
                if let Some(at) = found.expect("sound so far") {
                    return (block, at);
                }
                block = word(&bytes, BLOCK_HEADER_SIZE);
            }
        }
        panic!("{} is not there", name.escape_ascii())
    }

    /// What a name leads to.
    pub fn named(&self, dir: Nid, name: &[u8]) -> Nid {
        let (block, at) = self.dentry(dir, name);
        word(&self.image.read(block).expect("memory"), at)
    }
}

/// The names in a directory.
pub fn names(made: &Made, dir: Nid) -> BTreeSet<Vec<u8>> {
    let mut names = BTreeSet::new();
    made.damage(|tool| {
        for first in tool.buckets(dir) {
            let mut block = first;
            while block != 0 {
                let bytes = tool.image.get(block, BlockKind::Bucket).expect("sound");
                let all = walk(&bytes, |_, dentry| {
                    names.insert(dentry.name.to_vec());
                    ControlFlow::<()>::Continue(())
                });
                all.expect("sound");
                block = word(&bytes, BLOCK_HEADER_SIZE);
            }
        }
    });
    names
}

/// A device that fails every write after the first few; the failing one goes down torn.
pub struct Failing {
    pub inner: Arc<dyn BlockDevice>,
    left: AtomicU64,
}

impl Failing {
    pub fn after(inner: Arc<dyn BlockDevice>, writes: u64) -> Failing {
        Failing { inner, left: AtomicU64::new(writes) }
    }

    /// Whether a write has failed.
    pub fn failed(&self) -> bool {
        // Relaxed: one thread.
        self.left.load(Ordering::Relaxed) == u64::MAX
    }

    fn tear(&self, request: &Request) {
        let whole = request.buf.len() / BLOCK_SIZE * BLOCK_SIZE;
        let Ok(mut old) =
            self.inner.run(vec![Request::read(request.block, IoBuf::zeroed(whole), request.cause)])
        else {
            return;
        };
        let mut torn = old.remove(0);
        torn[..512].copy_from_slice(&request.buf[..512]);
        self.inner.run(vec![Request::write(request.block, torn, request.cause)]).expect("memory");
    }
}

impl BlockDevice for Failing {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let mut through = Vec::new();
        for request in batch {
            // Relaxed: one thread.
            let left = self.left.load(Ordering::Relaxed);
            if request.op == Op::Write && (left == 0 || left == u64::MAX) {
                if left == 0 {
                    self.tear(&request);
                }
                self.left.store(u64::MAX, Ordering::Relaxed);
                // A request that the device below refuses.
                through.push(Request::read(u64::MAX, IoBuf::zeroed(BLOCK_SIZE), request.cause));
                continue;
            }
            if request.op == Op::Write {
                self.left.store(left - 1, Ordering::Relaxed);
            }
            through.push(request);
        }
        self.inner.submit(through)
    }

    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        self.inner.wait(ticket)
    }

    fn writes_completed(&self) -> u64 {
        self.inner.writes_completed()
    }

    fn flush_upto(&self, upto: u64) -> Result<()> {
        if self.failed() {
            return Err(Error::Device { context: "flush", errno: libc::EIO });
        }
        self.inner.flush_upto(upto)
    }

    fn writes_flushed(&self) -> u64 {
        self.inner.writes_flushed()
    }

    fn flushes(&self) -> u64 {
        self.inner.flushes()
    }

    fn counters(&self) -> Vec<CauseCount> {
        self.inner.counters()
    }
}
