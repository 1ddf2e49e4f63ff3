//! Sound images are clean; each kind of damage is found and mended; a repair may be interrupted anywhere; and
//! nothing that an image can hold makes the check panic or run on.

mod area;
mod beyond;
mod holes;
mod hostile;
mod journal;
mod owners;
mod plants;
mod reads;
mod resumed;
mod room;
mod tool;
mod trees;

use super::*;
use crate::device::{Cause, IoBuf, MemoryDevice, Request};
use crate::format::{BLOCK_HEADER_SIZE, BlockKind, ROOT_NID};
use crate::journal::ring_bytes;
use crate::mkfs::{FormatOptions, format_cramped};
use crate::pmem::{HeapMemory, PersistentMemory};
use crate::volume::{ImageOptions, RingMedia, mount};
use plants::{ELSEWHERE, PLANTS};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::cell::Cell;
use std::collections::HashSet;
use tool::{Failing, Made, made};

thread_local! {
    /// Nothing that threads have seen counts: all is looked at by the one that checks.
    pub static CLOSELY: Cell<bool> = const { Cell::new(false) };
    /// Blocks of which was asked whether they are free.
    pub static PROBED: Cell<u64> = const { Cell::new(0) };
}

/// Slots of the ring in a blank image: enough for a few commits without a checkpoint.
const SSD_SLOTS: u64 = 512;

fn blank_ssd() -> Media {
    let device = Arc::new(MemoryDevice::new(300));
    let options = FormatOptions {
        journal_slots: Some(SSD_SLOTS),
        double_write_blocks: Some(4),
        ..FormatOptions::default()
    };
    format_cramped(&*device, &options).expect("enough blocks");
    let ring = Arc::new(HeapMemory::new(ring_bytes(SSD_SLOTS).expect("small")));
    Media { device, ring: RingMedia::Ssd(ring), staging_file: None, owner: None }
}

/// What is done on a mount that ends with an unmount, or with the end of its process.
fn on_mount<T>(media: Media, unmount: bool, work: impl FnOnce(&crate::vfs::Vfs) -> T) -> T {
    let mounted = mount(media, &ImageOptions { background: false, ..ImageOptions::default() });
    let mounted = mounted.expect("it is sound");
    let options = crate::volume::AssembleOptions {
        data: crate::file::DataOptions::with_memory(4 << 20),
        background: false,
        ..Default::default()
    };
    let running = crate::volume::Running::start(mounted.checkpointer(), &options).expect("it is sound");
    let outcome = work(running.fs());
    if unmount {
        running.stop().expect("memory");
        mounted.unmount().expect("memory");
    }
    outcome
}

fn repairing() -> Options {
    Options { repair: true, ..Options::default() }
}

#[test]
fn sound_images_are_clean() {
    let report = check(&blank_ssd(), &Options::default()).expect("an image");
    assert_eq!(report.issues, []);
    assert_eq!((report.counts.inodes, report.counts.directories, report.counts.used), (1, 1, 3));
    let report = made().check();
    assert_eq!(report.issues, []);
    assert_eq!((report.status(), report.counts.directories), (0, 3));
    assert_eq!(report.counts.inodes, 308);
}

#[test]
fn rows_of_blocks_are_counted() {
    use crate::extent::{decode, encode};
    use crate::format::{BlockKind, EXTENT_ENTRY_SIZE, EXTENT_NODE_START, ExtentEntry};
    use zerocopy::{FromBytes, IntoBytes};
    let made = made();
    let before = made.check().counts;
    assert_eq!((before.with_data, before.rows), (3, 3));
    // What was 0, 1, 2, 3, ... is 2, 1, 0, 3, ...
    made.damage(|tool| {
        let node = tool.root(made.scattered)[0].block;
        tool.edit(node, BlockKind::Extents, |bytes| {
            let entry = |n: usize| EXTENT_NODE_START + n * EXTENT_ENTRY_SIZE;
            let run = |bytes: &[u8], n| {
                decode(ExtentEntry::read_from_bytes(&bytes[entry(n)..entry(n + 1)]).expect("whole"))
            };
            let (mut first, mut third) = (run(bytes, 0), run(bytes, 2));
            std::mem::swap(&mut first.block, &mut third.block);
            for (n, run) in [(0, first), (2, third)] {
                bytes[entry(n)..entry(n + 1)].copy_from_slice(encode(&run).as_bytes());
            }
        });
    });
    let report = made.check();
    assert_eq!(report.issues, []);
    assert_eq!((report.counts.with_data, report.counts.rows), (3, 6));
}

#[test]
fn every_kind_is_planted() {
    let planted: HashSet<_> = PLANTS.iter().map(|(kind, _)| kind).chain(ELSEWHERE).collect();
    let missing: Vec<_> = IssueKind::ALL.iter().filter(|kind| !planted.contains(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// What is not as it should be with one plant.
fn complaint(kind: IssueKind, plant: plants::Plant) -> Option<String> {
    let made = made();
    made.damage(plant);
    let found = made.check();
    if found.of(kind).count() == 0 || found.status() != 4 {
        return Some(format!("not found; found: {:#?}", found.issues));
    }
    if made.check().issues != found.issues {
        return Some("a check has changed something".into());
    }
    let mended = made.repair();
    if mended.status() != 1 {
        return Some(format!("not mended: {:#?}", mended.issues));
    }
    let after = made.check();
    (after.status() != 0).then(|| format!("{:#?}\nwas mended, then {:#?}", found.issues, after.issues))
}

#[test]
fn each_kind_is_found_and_mended() {
    let complaints = PLANTS.iter().enumerate().filter_map(|(number, (kind, plant))| {
        complaint(*kind, *plant).map(|what| format!("plant {number}, {}: {what}", kind.name()))
    });
    let complaints: Vec<_> = complaints.collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

#[test]
fn a_repair_may_be_interrupted_at_any_write() {
    let mut interruptions = 0;
    for (number, (kind, plant)) in PLANTS.iter().enumerate() {
        let damaged = made();
        damaged.damage(plant);
        for writes in 0.. {
            let made = damaged.over(damaged.device.clone());
            let failing = Arc::new(Failing::after(made.device.clone(), writes));
            let media = Media { device: failing.clone(), ..made.media() };
            let outcome = check(&media, &repairing());
            if !failing.failed() {
                assert_eq!(outcome.map(|report| report.status()), Ok(1));
                break;
            }
            interruptions += 1;
            assert!(outcome.is_err(), "plant {number}, {kind:?}, write {writes}");
            let again = made.repair();
            assert!(again.status() <= 1, "plant {number}, {kind:?}, write {writes}: {:#?}", again.issues);
            let after = made.check();
            assert_eq!(after.issues, [], "plant {number}, {kind:?}, write {writes}");
        }
    }
    assert!(interruptions > PLANTS.len() * 3);
}

#[test]
fn what_lost_its_name_is_in_lost_and_found_with_its_content() {
    let made = made();
    made.damage(|tool| {
        let buckets = tool.buckets(tool.made.inner);
        tool.smash(buckets[0], 60);
        let mut bytes = tool.image.read(buckets[0]).expect("memory");
        bytes[100..].fill(0xee);
        tool.image.put_raw(buckets[0], bytes).expect("memory");
    });
    made.repair();
    on_mount(made.media(), false, |fs| {
        let ctx = crate::vfs::Context::root();
        let found = fs.lookup(&ctx, ROOT_NID, b"lost+found").expect("made");
        let file = fs.lookup(&ctx, found.nid, format!("#{}", made.plain).as_bytes()).expect("rescued");
        assert_eq!((file.nid, file.attr.size), (made.plain, 3 * 4096));
        let handle = fs.open(&ctx, file.nid, crate::vfs::OpenFlags::empty()).expect("it is there");
        let mut bytes = [0; 3 * 4096];
        assert_eq!(fs.read(&handle, 0, &mut bytes).expect("memory"), bytes.len());
        assert!(bytes.iter().zip(0..).all(|(byte, at)| *byte == (at / 4096) as u8 + 1));
        fs.release(handle, None);
    });
}

#[test]
fn a_bad_ring_header_of_a_clean_image_is_made_blank() {
    let media = blank_ssd();
    let start = superblock::read(&*media.device).expect("an image").ring_start.get();
    let junk = Request::write(start, IoBuf::from_slice(&[9; 4096]), Cause::Fsck);
    media.device.run(vec![junk]).expect("memory");
    let report = check(&media, &repairing()).expect("an image");
    assert_eq!((report.status(), report.of(IssueKind::RingHeader).count()), (1, 1));
    assert_eq!(check(&media, &Options::default()).expect("an image").issues, []);
}

#[test]
fn regions_that_overlap_are_beyond_repair() {
    let media = blank_ssd();
    let mut sb = superblock::read(&*media.device).expect("an image");
    sb.orphan_root = sb.nat_index_start;
    superblock::write(&*media.device, &mut sb).expect("memory");
    let report = check(&media, &repairing()).expect("an image");
    assert_eq!((report.status(), report.of(IssueKind::Layout).count()), (4, 1));
}

#[test]
fn a_repair_keeps_the_features_that_it_may_ignore() {
    for one_copy in [false, true] {
        let made = made();
        let mut sb = superblock::read(&*made.device).expect("an image");
        sb.compat.set(1 << 63);
        sb.state.set(STATE_DAMAGED);
        superblock::write(&*made.device, &mut sb).expect("memory");
        if one_copy {
            let other = (sb.sequence.get() + 1) % 2;
            let smash = Request::write(other, IoBuf::from_slice(&[9; 4096]), Cause::Fsck);
            made.device.run(vec![smash]).expect("memory");
        }
        assert_eq!(made.repair().status(), 1);
        for copy in superblock::copies(&*made.device) {
            assert_eq!(copy.expect("whole").compat.get(), 1 << 63);
        }
        assert_eq!(made.check().issues, []);
    }
}

/// Changes random bytes of metadata, sealed or not.
fn mutate(made: &Made, random: &mut StdRng) {
    made.damage(|tool| {
        let sb = tool.image.sb;
        let last = sb.groups_start.get() + 500;
        for _ in 0..random.random_range(1..6) {
            let block = random.random_range(sb.nat_index_start.get()..last);
            let mut bytes = tool.image.read(block).expect("memory");
            let kind = image::header(&bytes).and_then(|header| header.kind());
            for _ in 0..random.random_range(1..9) {
                let from = if kind.is_some() && random.random_bool(0.9) { BLOCK_HEADER_SIZE } else { 0 };
                let near = random.random_bool(0.5);
                let at = random.random_range(from..if near { from + 200 } else { 4096 });
                bytes[at] = if random.random_bool(0.5) { random.random() } else { bytes[at] ^ 1 };
            }
            match kind {
                Some(kind) if random.random_bool(0.8) => tool.image.put(block, kind, bytes),
                None if random.random_bool(0.8) => {
                    (0..16).for_each(|slot| {
                        let Some(inode) = image::slot_of(&bytes, slot) else { return };
                        tool.image.put_raw(block, bytes.clone()).expect("memory");
                        tool.image.put_inode(block, slot, &inode).expect("memory");
                        bytes = tool.image.read(block).expect("memory");
                    });
                    Ok(())
                }
                _ => tool.image.put_raw(block, bytes),
            }
            .expect("memory");
        }
    });
}

#[test]
fn random_damage_never_stops_the_check_and_settles_in_one_repair() {
    let seed = std::env::var("NARUFS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    for round in 0..150 {
        let mut random = StdRng::seed_from_u64(seed << 32 | round);
        let made = made();
        mutate(&made, &mut random);
        let first = made.repair();
        let second = made.check();
        let left: Vec<_> = second.issues.iter().filter(|i| !matches!(i.outcome, Outcome::Left(_))).collect();
        let what = || format!("seed {seed}, round {round}: {:#?}\nthen {:#?}", first.issues, second.issues);
        assert!(left.is_empty(), "{}", what());
        assert!(matches!(second.status(), 0 | 4), "{}", what());
    }
}

#[test]
fn what_is_found_does_not_depend_on_the_threads() {
    let seed = std::env::var("NARUFS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    for round in 0..100 {
        let report = |threads, closely, repair| {
            let made = made();
            mutate(&made, &mut StdRng::seed_from_u64(seed << 32 | round));
            CLOSELY.set(closely);
            let report = check(&made.media(), &Options { repair, threads, ..Options::default() });
            CLOSELY.set(false);
            let report = report.expect("an image");
            (report.issues, report.counts)
        };
        for repair in [false, true] {
            let closely = report(1, true, repair);
            assert_eq!(report(1, false, repair), closely, "seed {seed}, round {round}");
            assert_eq!(report(5, false, repair), closely, "seed {seed}, round {round}");
        }
    }
}
