//! Every image that an earlier build has left is mounted, recovered, checked, read and written by this one.

use narufs_engine::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, MemoryDevice, Request};
use narufs_engine::format::{JournalKind, SLOT_SIZE};
use narufs_engine::fsck;
use narufs_engine::path::Files;
use narufs_engine::pmem::{HeapMemory, PersistentMemory};
use narufs_engine::superblock;
use narufs_engine::volume::{AssembleOptions, ImageOptions, Media, RingMedia, Running, mount};
use narufs_testing::golden::{manifest, tree, unpack};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The sets of every version of the format and every build that has left some.
fn sets() -> Vec<PathBuf> {
    let below = |dir: PathBuf| {
        let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let mut found: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
        found.retain(|path| path.is_dir());
        found.sort();
        found
    };
    let versions = below(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden"));
    versions.into_iter().flat_map(below).flat_map(below).collect()
}

fn device(set: &Path) -> Arc<MemoryDevice> {
    let put = |device: &Arc<MemoryDevice>, block: u64, bytes: &[u8]| {
        let write = Request::write(block, IoBuf::from_slice(bytes), Cause::Fsck);
        device.run(vec![write]).expect("memory");
    };
    unpack(&set.join("image.gz"), |blocks| Arc::new(MemoryDevice::new(blocks)), put).expect("an image")
}

/// The media of a set, each time anew.
fn media(set: &Path) -> Media {
    let device = device(set);
    let sb = superblock::read(&*device).expect("an image");
    let path = set.join("ring.gz");
    let memory = if path.exists() {
        let begin = |blocks: u64| Arc::new(HeapMemory::new(blocks as usize * BLOCK_SIZE));
        let put = |memory: &Arc<HeapMemory>, block: u64, bytes: &[u8]| {
            memory.write(block as usize * BLOCK_SIZE, bytes);
        };
        unpack(&path, begin, put).expect("a ring")
    } else {
        Arc::new(HeapMemory::new(BLOCK_SIZE + sb.ring_slots.get() as usize * SLOT_SIZE))
    };
    let ring = match JournalKind::from_u32(sb.journal_kind.get()) {
        Some(JournalKind::Ssd) => RingMedia::Ssd(memory),
        _ => RingMedia::Mapped(memory),
    };
    Media { device, ring, staging_file: None }
}

fn options(read_only: bool) -> ImageOptions {
    ImageOptions { read_only, ..ImageOptions::default() }
}

/// Mounts, looks whether the tree is as the manifest says, works on it, and unmounts.
fn used(set: &Path, media: &Media, read_only: bool, expected: &[String], work: impl FnOnce(&Files)) {
    let name = set.display();
    let mounted = mount(media.clone(), &options(read_only)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(mounted.recovery().damage, None, "{name}");
    let mut assemble = AssembleOptions::default();
    assemble.fs.read_only = read_only;
    let running = Running::start(mounted.checkpointer(), &assemble).expect("threads");
    let files = Files::new(Arc::clone(running.fs()));
    let found = tree::files(&files, running.fs()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let odd = |these: &[String], those: &[String]| {
        these.iter().filter(|line| !those.contains(line)).cloned().collect::<Vec<_>>()
    };
    let (more, fewer) = (odd(&found, expected), odd(expected, &found));
    assert!(more.is_empty() && fewer.is_empty(), "{name}: found {more:#?} in the place of {fewer:#?}");
    work(&files);
    drop(files);
    running.stop().unwrap_or_else(|e| panic!("{name}: {e}"));
    mounted.unmount().unwrap_or_else(|e| panic!("{name}: {e}"));
}

fn checked(set: &Path, media: &Media) {
    let report = fsck::check(media, &fsck::Options::default()).expect("an image");
    assert_eq!(report.issues, [], "{}", set.display());
}

#[test]
fn what_every_earlier_build_has_left_is_mounted_recovered_checked_and_read() {
    let sets: Vec<_> = sets().into_iter().filter(|set| !set.ends_with("scratch-spill")).collect();
    assert!(sets.len() >= 18, "{sets:?}");
    for set in &sets {
        let expected = manifest(set).expect("a manifest");
        assert!(!expected.is_empty());
        let media = media(set);
        checked(set, &media);
        used(set, &media, true, &expected, |_| {});
        used(set, &media, false, &expected, |_| {});
        checked(set, &media);
        used(set, &media, false, &expected, |files| {
            let file = files.create("/new").expect("room");
            file.write_at(b"by a later build", 0).expect("room");
            file.sync_all().expect("memory");
        });
        checked(set, &media);
        used(set, &media, false, &with_new(&expected), |files| files.remove_file("/new").expect("there"));
        used(set, &media, false, &expected, |_| {});
        checked(set, &media);
    }
}

fn with_new(lines: &[String]) -> Vec<String> {
    let crc = crc32c::crc32c(b"by a later build");
    let new = format!("/new mode=100644 nlink=1 uid=0 gid=0 rdev=0 size=16 crc32c={crc:08x}");
    let mut lines = [lines, &[new]].concat();
    lines.sort();
    lines
}

#[test]
fn spill_space_that_a_killed_server_has_left_is_refused() {
    let sets: Vec<_> = sets().into_iter().filter(|set| set.ends_with("scratch-spill")).collect();
    assert!(sets.len() >= 2, "{sets:?}");
    for set in sets {
        let why = superblock::read(&*device(&set)).expect_err("nothing is kept there").to_string();
        assert!(why.contains("not a narufs image"), "{why}");
    }
}
