//! A store on simulated media, which say what a loss of power, or a kill, at any moment would have left.

use narufs_engine::device::BlockDevice;
use narufs_engine::file::DataOptions;
use narufs_engine::journal::{Durability, ring_bytes};
use narufs_engine::mkfs::{self, FormatOptions};
use narufs_engine::pmem::DurabilityLevel;
use narufs_engine::sim::{Event, PmemSpec, SimMedia};
use narufs_engine::store::StoreOptions;
use narufs_engine::vfs::{AtimePolicy, VfsOptions};
use narufs_engine::volume::{self, AssembleOptions, ImageOptions, Media, RingMedia, Volume};
use narufs_object_store::NarufsStore;
use std::time::Duration;

/// Of a ring that no test here fills: room is made by flushes of its own.
const SLOTS: u64 = 32_768;
const BLOCKS: u64 = 16_384;

fn spec() -> PmemSpec {
    PmemSpec { len: ring_bytes(SLOTS).expect("a ring"), durability: DurabilityLevel::Process }
}

/// Media with an empty file system.
pub fn made() -> SimMedia {
    let media = SimMedia::new(BLOCKS, &[spec()]);
    let options = FormatOptions { journal_slots: Some(SLOTS), sparse: true, ..FormatOptions::default() };
    let device = media.device();
    mkfs::format_cramped(device.as_ref() as &dyn BlockDevice, &options).expect("there is room");
    media
}

/// The store on media, recovered if need be.
pub fn store(media: &SimMedia, durability: Durability) -> NarufsStore {
    // A loss of power took the staging of the journal.
    let memory = media.pmem(0).or_else(|| media.pmem(media.add_pmem(spec()))).expect("just added");
    let options = ImageOptions {
        background: false,
        lanes: 1,
        commit_interval: Duration::MAX,
        store: StoreOptions { budget: 16 << 20, ..StoreOptions::default() },
        ..ImageOptions::default()
    };
    let mounted =
        volume::mount(Media::new(media.device(), RingMedia::Ssd(memory)), &options).expect("it mounts");
    let files = AssembleOptions {
        fs: VfsOptions { atime: AtimePolicy::Never, ..VfsOptions::default() },
        data: DataOptions::with_memory(32 << 20),
        durability,
        inodes: 64,
        background: false,
        ..AssembleOptions::default()
    };
    let volume = Volume::over(mounted, &files).expect("it starts");
    let fs = narufs::over_media(narufs_engine::Fs::over(volume)).expect("this process may");
    assert_eq!(fs.damage(), None);
    NarufsStore::new(fs, "/").expect("there is room")
}

/// How often the device was waited for to be durable among the events from one on: flushes, and writes that are durable by
/// themselves.
#[allow(dead_code, reason = "not every test counts")]
pub fn flushes(media: &SimMedia, from: usize) -> usize {
    let is_one = |event| matches!(event, Event::FlushBegan | Event::WriteEnded { durable: true, .. });
    (from..media.events()).filter(|number| is_one(media.event(*number))).count()
}
