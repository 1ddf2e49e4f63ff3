//! The data path over a real image and a real journal, both in memory and tiny.

use crate::device::MemoryDevice;
use crate::file::DataOptions;
use crate::format::{JournalKind, ROOT_NID};
use crate::fsck;
use crate::journal::ring_bytes;
use crate::mkfs::{FormatOptions, format_cramped};
use crate::pmem::HeapMemory;
use crate::sync::Arc;
use crate::vfs::{Context, FileHandle, OpenFlags, SetAttr, Vfs, VfsOptions, WriteFlags};
use crate::volume::{AssembleOptions, Running};
use crate::volume::{ImageOptions, Media, Mounted, RingMedia, mount};
use crate::{Error, Result};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

pub(super) const PAGE: usize = 4096;

/// Media that outlive a mount.
pub(super) struct Image {
    pub(super) device: Arc<MemoryDevice>,
    pub(super) memory: Arc<HeapMemory>,
}

/// A mounted image; dropped, it is left as a killed process leaves it.
pub(super) struct Live {
    running: Running,
    mounted: Mounted,
}

impl Image {
    pub(super) fn new(blocks: u64, slots: u64) -> Image {
        let device = Arc::new(MemoryDevice::new(blocks));
        let options = FormatOptions {
            journal_slots: Some(slots),
            double_write_blocks: Some(4),
            journal: JournalKind::Pmem,
            sparse: true,
            ..FormatOptions::default()
        };
        format_cramped(&*device, &options).expect("large enough");
        Image { device, memory: Arc::new(HeapMemory::new(ring_bytes(slots).expect("small"))) }
    }

    pub fn media(&self) -> Media {
        let ring = RingMedia::Mapped(Arc::clone(&self.memory) as _);
        Media::new(Arc::clone(&self.device) as _, ring)
    }

    /// A check finds nothing; `when` says where the test is.
    pub(super) fn assert_whole(&self, when: &str) {
        let report = fsck::check(&self.media(), &fsck::Options::default()).expect("memory does not fail");
        assert!(report.issues.is_empty(), "{when}{:?}", report.issues);
    }

    pub(super) fn mount(&self) -> Live {
        self.mount_with(&ImageOptions::default())
    }

    pub(super) fn mount_with(&self, options: &ImageOptions) -> Live {
        let mounted = mount(self.media(), options).expect("a good image");
        let read_only = mounted.store().failed().is_some();
        let options = AssembleOptions {
            fs: VfsOptions { read_only, ..VfsOptions::default() },
            data: DataOptions::with_memory(16 * PAGE as u64),
            ..AssembleOptions::default()
        };
        let running = Running::start(mounted.checkpointer(), &options).expect("a good image");
        Live { running, mounted }
    }
}

impl Live {
    pub(super) fn fs(&self) -> &Vfs {
        self.running.fs()
    }

    /// What recovery found damaged.
    pub(super) fn damage(&self) -> Option<String> {
        self.mounted.recovery().damage.clone()
    }

    pub fn unmount(self) {
        self.running.stop().expect("memory does not fail");
        self.mounted.unmount().expect("memory does not fail");
    }

    pub fn free(&self) -> u64 {
        self.fs().statfs().expect("counted").blocks_free
    }

    /// Opens a file, made if it is not there.
    pub fn open(&self, name: &str) -> FileHandle {
        let (root, flags) = (Context::root(), OpenFlags::READ_WRITE);
        let (entry, file, _) =
            self.fs().create(&root, ROOT_NID, name.as_bytes(), 0o644, flags).expect("room");
        self.fs().forget(entry.nid, 1);
        file
    }
}

pub(super) fn put(fs: &Vfs, file: &FileHandle, at: usize, bytes: &[u8]) -> Result<()> {
    fs.write(&Context::root(), file, at as u64, bytes, WriteFlags::empty())
        .map(|len| assert_eq!(len, bytes.len()))
}

pub(super) fn cut(fs: &Vfs, file: &FileHandle, size: usize) -> Result<()> {
    let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
    fs.setattr(&Context::root(), file.nid(), Some(file), &set).map(drop)
}

pub(super) fn content(fs: &Vfs, file: &FileHandle) -> Vec<u8> {
    let size = fs.getattr(file.nid()).expect("open").size as usize;
    let mut bytes = vec![0xAA; size + 1];
    let got = fs.read(file, 0, &mut bytes).expect("memory does not fail");
    bytes.truncate(got);
    bytes
}

#[test]
fn random_operations_give_what_a_vector_gives_after_each_kill() {
    // Without absorption, and with.
    for (slots, seed) in [208, 4096].into_iter().flat_map(|slots| (0..6).map(move |seed| (slots, seed))) {
        let image = Image::new(1024, slots);
        let mut rng = StdRng::seed_from_u64(seed);
        let mut model: Vec<u8> = Vec::new();
        for _ in 0..6 {
            let live = image.mount();
            let file = live.open("f");
            assert!(content(live.fs(), &file) == model, "{slots} slots, seed {seed}");
            for step in 0..40 {
                let at = rng.random_range(0..12) * PAGE;
                let bytes = vec![rng.random_range(1..=255); rng.random_range(1..2 * PAGE)];
                if rng.random_bool(0.6) {
                    put(live.fs(), &file, at, &bytes).expect("room");
                    model.resize(model.len().max(at + bytes.len()), 0);
                    model[at..at + bytes.len()].copy_from_slice(&bytes);
                } else if rng.random_bool(0.3) {
                    cut(live.fs(), &file, at).expect("always");
                    model.resize(at, 0);
                } else {
                    live.fs().fsync(&file, false).expect("memory does not fail");
                }
                assert!(content(live.fs(), &file) == model, "{slots} slots, seed {seed}, step {step}");
            }
            live.fs().fsync(&file, false).expect("memory does not fail");
            live.fs().release(file, None);
        }
    }
}

/// What is absorbed can be brought home by the file system alone: once it is dropped, no checkpoint may pass it.
#[test]
fn a_checkpoint_passes_nothing_that_a_dropped_file_system_held() {
    let image = Image::new(512, 4096);
    let live = image.mount();
    let file = live.open("f");
    put(live.fs(), &file, 0, &[1; 3 * PAGE]).expect("room");
    live.fs().fsync(&file, false).expect("memory does not fail");
    live.fs().release(file, None);
    let Live { running, mounted } = live;
    drop(running);
    assert!(matches!(mounted.checkpointer().checkpoint(), Err(Error::ReadOnly(_))));
    drop(mounted);

    let live = image.mount();
    let file = live.open("f");
    assert!(content(live.fs(), &file) == [1; 3 * PAGE]);
    live.fs().release(file, None);
    live.unmount();
}

#[test]
fn a_file_of_many_extents_is_replaced_as_a_whole_and_leaks_nothing() {
    const EXTENTS: usize = 700;
    let image = Image::new(4096, 4096);
    let live = image.mount();
    let free = live.free();
    let file = live.open("f");
    let mut old = vec![0; 2 * EXTENTS * PAGE - PAGE];
    for page in 0..EXTENTS {
        put(live.fs(), &file, 2 * page * PAGE, &[1; PAGE]).expect("room");
        old[2 * page * PAGE..(2 * page + 1) * PAGE].fill(1);
    }
    live.fs().fsync(&file, false).expect("memory does not fail");
    cut(live.fs(), &file, 0).expect("always");
    put(live.fs(), &file, 0, &[2; 3 * PAGE]).expect("room");
    live.fs().release(file, None);
    drop(live);

    let live = image.mount();
    let file = live.open("f");
    let seen = content(live.fs(), &file);
    assert!(seen == old || seen == [2; 3 * PAGE], "neither the old nor the new: {} bytes", seen.len());
    put(live.fs(), &file, 0, &[3; PAGE]).expect("room");
    cut(live.fs(), &file, 0).expect("always");
    put(live.fs(), &file, 0, &[4; PAGE]).expect("room");
    live.fs().fsync(&file, false).expect("memory does not fail");
    assert_eq!(content(live.fs(), &file), [4; PAGE]);
    live.fs().release(file, None);
    live.fs().unlink(&Context::root(), ROOT_NID, b"f").expect("there");
    live.unmount();

    let live = image.mount();
    assert!(free - live.free() < 12, "{} blocks are lost", free - live.free());
    live.unmount();
    image.assert_whole("");
}

/// What a killed mount has changed in blocks of the table that the hints of the unmount before it tell of.
#[test]
fn inodes_in_use_are_counted_after_a_crash_and_the_unmount_that_follows_it() {
    let used = |live: &Live| {
        let room = live.fs().statfs().expect("counted");
        room.files - room.files_free
    };
    for is_asked_at_once in [false, true] {
        let image = Image::new(2048, 4096);
        let live = image.mount();
        (0..600).for_each(|n| live.fs().release(live.open(&format!("{n}")), None));
        live.unmount();
        let live = image.mount();
        for n in 0..300 {
            live.fs().unlink(&Context::root(), ROOT_NID, format!("{n}").as_bytes()).expect("it is there");
        }
        let last = live.open("599");
        live.fs().fsync(&last, false).expect("memory does not fail");
        live.fs().release(last, None);
        drop(live);
        let live = image.mount();
        if is_asked_at_once {
            assert_eq!(used(&live), 301);
        }
        live.unmount();
        assert_eq!(used(&image.mount()), 301, "{is_asked_at_once}");
    }
}
