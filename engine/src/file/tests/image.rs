//! Files on a small image, over a device that can fail and loses what was not flushed: real metadata and a real journal,
//! and the data path without the threads and operations above it.

use super::lossy::LossyDevice;
use crate::Result;
use crate::alloc::{Alloc, Reservation};
use crate::checkpoint::Checkpointer;
use crate::file::{BegunSync, DataOptions, DataPath, ErrorMark, SyncKind};
use crate::format::{JournalKind, Nid, Position, ROOT_NID};
use crate::fsck;
use crate::inode::InodeObj;
use crate::journal::{Durability, ring_bytes};
use crate::meta::{InodeSpace, Meta};
use crate::mkfs::{FormatOptions, format_cramped};
use crate::pmem::{DurabilityLevel, HeapMemory};
use crate::store::Observer;
use crate::sync::{Arc, Mutex, Weak};
use crate::takeover::Takeover;
use crate::vfs::{Context, OpenFlags, STEP};
use crate::volume::{AssembleOptions, ImageOptions, Media, Mounted, RingMedia, Running, mount};
use rand::Rng;
use std::time::Duration;

/// Slots of the ring: room for all that a test logs between two checkpoints.
const SLOTS: u64 = 8192;
/// Blocks that are no file's.
const OVERHEAD: u64 = 1024;
/// Files of an image, if not asked otherwise.
const FILES: usize = 3;

/// What a checkpoint asks of the data path, and of the allocator.
struct Observing {
    meta: Arc<Meta>,
    path: Mutex<Option<Arc<DataPath>>>,
    /// Run once, when a round has found how far it goes.
    when_round_begins: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Observer for Observing {
    fn pre_checkpoint(&self, upto: Position) -> Result<()> {
        crate::meta::hooks::Hooks::run(&self.when_round_begins);
        let path = self.path.lock().clone();
        path.map_or(Ok(()), |path| path.pre_checkpoint(upto))
    }
    fn durable(&self, upto: Position) {
        self.meta.alloc.durable(upto);
        self.meta.space.durable(upto);
    }
    fn head_passed(&self, upto: Position) {
        self.meta.alloc.head_passed(upto);
    }
    fn used_nids(&self, nat_block: u64) -> Option<u16> {
        self.meta.space.used_nids(nat_block)
    }
}

/// A mount. Dropped, it is left as a killed process leaves it.
struct Live {
    observing: Arc<Observing>,
    mounted: Mounted,
}

/// An image with some files, mounted.
pub struct MetaImage {
    pub device: Arc<LossyDevice>,
    kind: JournalKind,
    memory: Mutex<Arc<HeapMemory>>,
    absorbs: bool,
    nids: Vec<Nid>,
    live: Mutex<Option<Live>>,
    /// What all but a few blocks are set aside for.
    ballast: Mutex<Option<Reservation>>,
    began: u64,
}

fn memory_of(kind: JournalKind) -> Arc<HeapMemory> {
    let len = ring_bytes(SLOTS).expect("small");
    Arc::new(match kind {
        JournalKind::Pmem => HeapMemory::new(len),
        _ => HeapMemory::with_durability(len, DurabilityLevel::Process),
    })
}

impl MetaImage {
    /// An image with so many blocks for files, whose journal takes data, or does not.
    pub fn new(blocks: u64, absorbs: bool) -> Arc<MetaImage> {
        MetaImage::with_files(blocks, absorbs, FILES)
    }

    /// The same with so many files.
    pub fn with_files(blocks: u64, absorbs: bool, files: usize) -> Arc<MetaImage> {
        MetaImage::on(JournalKind::Pmem, blocks, absorbs, files)
    }

    /// The same with the journal on that kind of media.
    pub fn on(kind: JournalKind, blocks: u64, absorbs: bool, files: usize) -> Arc<MetaImage> {
        let device = Arc::new(LossyDevice::new(blocks + OVERHEAD));
        let options = FormatOptions {
            journal_slots: Some(SLOTS),
            double_write_blocks: Some(8),
            journal: kind,
            ..FormatOptions::default()
        };
        format_cramped(&*device, &options).expect("large enough");
        let mut image = MetaImage {
            device,
            kind,
            memory: Mutex::new(memory_of(kind)),
            absorbs,
            nids: Vec::new(),
            live: Mutex::default(),
            ballast: Mutex::default(),
            began: 0,
        };
        image.nids = image.in_file_system(|running| {
            let fs = running.fs();
            let make = |n: usize| {
                let name = format!("{n}");
                let made =
                    fs.create(&Context::root(), ROOT_NID, name.as_bytes(), 0o644, OpenFlags::READ_WRITE);
                let (entry, file, _) = made.expect("room");
                fs.release(file, None);
                fs.forget(entry.nid, 1);
                entry.nid
            };
            (0..files).map(make).collect()
        });
        image.begin();
        image.began = image.device.data_writes();
        Arc::new(image)
    }

    fn media(&self) -> Media {
        let memory = Arc::clone(&*self.memory.lock()) as _;
        let ring = match self.kind {
            JournalKind::Pmem => RingMedia::Mapped(memory),
            _ => RingMedia::Ssd(memory),
        };
        Media::new(Arc::clone(&self.device) as _, ring)
    }

    fn mount(&self) -> Mounted {
        let options = ImageOptions { background: false, lanes: 1, ..ImageOptions::default() };
        let mounted = mount(self.media(), &options).expect("a good image");
        assert_eq!(mounted.store().failed(), None);
        mounted
    }

    /// What a whole file system makes of the image; it is clean afterwards.
    fn in_file_system<T>(&self, run: impl FnOnce(&Running) -> T) -> T {
        let mounted = self.mount();
        let data = DataOptions::with_memory(1 << 20);
        let options = AssembleOptions { data, inodes: 1024, background: false, ..AssembleOptions::default() };
        let running = Running::start(mounted.checkpointer(), &options).expect("a good image");
        let result = run(&running);
        running.stop().expect("no faults now");
        mounted.unmount().expect("no faults now");
        result
    }

    /// Mounts the clean image, for data paths.
    fn begin(&self) {
        let mounted = self.mount();
        let store = Arc::clone(mounted.store());
        let alloc = Alloc::load(&store).expect("whole");
        let space = Arc::new(InodeSpace::load(&store, &alloc).expect("whole"));
        let room: Weak<Checkpointer> = Arc::downgrade(mounted.checkpointer());
        alloc.set_make_room(Box::new(move || match room.upgrade() {
            Some(checkpointer) => {
                let store = checkpointer.store();
                store.commit_upto(store.tail(), Durability::Power)?;
                checkpointer.checkpoint()
            }
            None => Ok(()),
        }));
        let meta = Arc::new(Meta::new(store, alloc, space, false, Durability::Power, 256, STEP));
        let device = Arc::clone(&self.device);
        let down = move |blocks: &_| assert!(device.all_down(blocks), "reachable before it is down");
        *meta.hooks.when_reachable.lock() = Some(Box::new(down));
        let observing =
            Arc::new(Observing { meta, path: Mutex::default(), when_round_begins: Mutex::default() });
        mounted.store().observe(&observing);
        *self.live.lock() = Some(Live { observing, mounted });
    }

    fn observing(&self) -> Arc<Observing> {
        Arc::clone(&self.live.lock().as_ref().expect("it is mounted").observing)
    }

    /// The metadata of the present mount.
    pub fn meta(&self) -> Arc<Meta> {
        Arc::clone(&self.observing().meta)
    }

    /// A file, the first being 1, as the newest record describes it, with nothing of it in memory.
    pub fn open(&self, number: u64) -> Arc<InodeObj> {
        let nid = self.nids[number as usize - 1];
        Arc::new(self.meta().load(nid).expect("no faults now").expect("it was made"))
    }

    /// Which file it is.
    pub fn number(&self, file: &InodeObj) -> u64 {
        self.nids.iter().position(|nid| *nid == file.nid()).expect("a file of this image") as u64 + 1
    }

    /// Blocks that are promised or taken in memory, and to nothing on media: leaked. Everything is synced.
    pub fn leaked(&self) -> u64 {
        let meta = self.meta();
        self.checkpoint_again();
        self.checkpoint_again();
        let on_media = Alloc::load(&meta.store).expect("whole");
        on_media.unused() - meta.alloc.unused()
    }

    /// Blocks set aside for dirty pages.
    pub fn reserved(&self) -> u64 {
        self.meta().reserved.lock().blocks()
    }

    /// Leaves so many blocks, about, to be had.
    pub fn leave(&self, blocks: u64) {
        let meta = self.meta();
        let mut taken = meta.alloc.statfs_available() - blocks;
        // Extent blocks are promised besides.
        let ballast = loop {
            match meta.alloc.reserve_delayed(taken, 0) {
                Ok(ballast) if meta.alloc.statfs_available() >= blocks => break ballast,
                _ => taken -= 1,
            }
        };
        *self.ballast.lock() = Some(ballast);
    }

    /// Requests that have written data in place.
    pub fn writes(&self) -> u64 {
        self.device.data_writes() - self.began
    }

    /// The next position of the journal.
    pub fn tail(&self) -> Position {
        self.meta().store.tail()
    }

    /// Makes everything logged durable.
    pub fn commit(&self) {
        self.meta().store.commit_upto(self.tail(), Durability::Power).expect("no faults now");
    }

    /// A checkpoint round.
    pub fn checkpoint(&self) {
        let live = self.live.lock();
        let checkpointer = Arc::clone(live.as_ref().expect("it is mounted").mounted.checkpointer());
        drop(live);
        checkpointer.checkpoint().expect("no faults now");
    }

    /// A round with a record to pass, whatever rounds were before.
    pub fn checkpoint_again(&self) {
        let meta = self.meta();
        let other = meta.load(self.nids[0]).expect("no faults now").expect("it was made");
        other.touch_access();
        meta.log_times(&other).expect("no faults now");
        self.checkpoint();
    }

    /// A round that has found how far it goes when `then` runs.
    pub fn checkpoint_before(&self, then: impl FnOnce() + Send + 'static) {
        *self.observing().when_round_begins.lock() = Some(Box::new(then));
        self.checkpoint();
    }

    /// Loses power, recovers, and finishes what was begun. On an SSD some prefix of the records beyond the last commit
    /// survives: power may be lost in the midst of another.
    pub fn crash(&self, rng: &mut impl Rng) {
        if self.kind != JournalKind::Pmem {
            self.device.hold_flushes(true);
            self.commit();
            self.device.hold_flushes(false);
        }
        self.crash_as_it_is(rng);
    }

    /// The same where the journal may have failed, or nothing else is to survive.
    pub fn crash_as_it_is(&self, rng: &mut impl Rng) {
        self.ballast.lock().take();
        *self.live.lock() = None;
        self.device.crash(rng);
        if self.kind != JournalKind::Pmem {
            *self.memory.lock() = memory_of(self.kind);
        }
        self.in_file_system(|_| ());
        let report = fsck::check(&self.media(), &fsck::Options::default()).expect("no faults now");
        assert!(report.issues.is_empty(), "{:?}", report.issues);
        self.begin();
    }
}

/// A data path of `frames` frames over an image, which its checkpoints know from now on.
pub fn path(image: &MetaImage, frames: usize) -> Arc<DataPath> {
    path_with(
        image,
        DataOptions {
            absorb_limit: if image.absorbs { DataOptions::with_memory(0).absorb_limit } else { 0 },
            ..options(frames)
        },
    )
}

/// The same for which the journal takes no data.
pub fn path_without_absorption(image: &MetaImage, frames: usize) -> Arc<DataPath> {
    path_with(image, DataOptions { absorb_limit: 0, ..options(frames) })
}

fn options(frames: usize) -> DataOptions {
    DataOptions {
        frames,
        bounce: frames / 8,
        ahead: frames / 8,
        expire: Duration::from_secs(30),
        ..DataOptions::with_memory(0)
    }
}

/// The same that leaves to a successor what runs ahead of the journal.
pub fn path_of_server(image: &MetaImage, frames: usize, memory: &Arc<Takeover>) -> Arc<DataPath> {
    path_that(image, options(frames), Some(Arc::clone(memory)))
}

fn path_with(image: &MetaImage, options: DataOptions) -> Arc<DataPath> {
    path_that(image, options, None)
}

fn path_that(image: &MetaImage, options: DataOptions, takeover: Option<Arc<Takeover>>) -> Arc<DataPath> {
    let observing = image.observing();
    let path = Arc::new(DataPath::new(Arc::clone(&observing.meta), options, takeover).expect("a few frames"));
    *observing.path.lock() = Some(Arc::clone(&path));
    path
}

/// An fsync that waits, without an open file.
pub trait Fsync {
    /// Returns when the data, as of the call, and the size are durable. A failure since `mark` was last told is told.
    fn fsync(&self, inode: &Arc<InodeObj>, kind: SyncKind, mark: &ErrorMark) -> Result<()>;
}

impl Fsync for DataPath {
    fn fsync(&self, inode: &Arc<InodeObj>, kind: SyncKind, mark: &ErrorMark) -> Result<()> {
        let begun = self.begin_fsync(inode, kind);
        let settle = |begun: &BegunSync| self.meta.store().settle_upto(begun.upto(), self.meta.durability());
        let committed = begun.as_ref().map_or(Ok(()), settle);
        self.end_fsync(inode, begun, committed, mark)
    }
}

/// The whole content.
pub fn content(path: &DataPath, inode: &Arc<InodeObj>) -> Vec<u8> {
    let mut bytes = vec![0xAA; inode.data().size() as usize + 10];
    let len = path.read(inode, 0, &mut bytes).expect("no faults now");
    bytes.truncate(len);
    bytes
}
