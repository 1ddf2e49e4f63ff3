//! A journal that is damaged in the middle and given up: what becomes of file data that it holds before the damage.

use super::*;
use crate::file::FallocateMode;
use crate::format::{Nid, SLOTS_PER_BLOCK};
use crate::mkfs::format;
use crate::vfs::{Context, FileHandle, OpenFlags, SetAttr, Vfs, VfsOptions, WriteFlags};
use crate::volume::{AssembleOptions, Mounted, Running};
use std::ops::Range;

const SLOTS: u64 = 1 << 14;
/// More than an fsync absorbs.
const LONG: usize = 32 * BLOCK_SIZE;
/// What it absorbs.
const SHORT: usize = BLOCK_SIZE;
const APART: [u64; 2] = [256 << 10, 512 << 10];

fn blank() -> Media {
    let device = Arc::new(MemoryDevice::new(4000));
    let options = FormatOptions {
        journal_slots: Some(SLOTS),
        double_write_blocks: Some(20),
        ..FormatOptions::default()
    };
    format(&*device, &options).expect("large enough");
    without_staging(Media {
        device,
        ring: RingMedia::Ssd(Arc::new(HeapMemory::new(0))),
        staging_file: None,
        owner: None,
    })
}

/// As a loss of power leaves it.
fn without_staging(media: Media) -> Media {
    Media { ring: RingMedia::Ssd(Arc::new(HeapMemory::new(ring_bytes(SLOTS).expect("small")))), ..media }
}

fn mounted(media: &Media, read_only: bool) -> (Mounted, Running) {
    let options = ImageOptions { background: false, read_only, ..ImageOptions::default() };
    let mounted = mount(media.clone(), &options).expect("an image");
    let options = AssembleOptions {
        fs: VfsOptions { read_only, ..VfsOptions::default() },
        data: crate::file::DataOptions::with_memory(4 << 20),
        background: false,
        step: 1,
        ..AssembleOptions::default()
    };
    let running = Running::start(mounted.checkpointer(), &options).expect("it is sound");
    (mounted, running)
}

/// What of the file is written and synced, or done to it.
#[derive(Clone, Copy)]
enum Step {
    Write(u8, usize),
    Truncate(u64),
    Punch,
    PunchAll,
    /// Two extents far behind.
    Apart,
    Unlink,
}

fn step(fs: &Vfs, file: &FileHandle, step: Step) {
    let ctx = Context::root();
    match step {
        Step::Write(byte, len) => {
            fs.write(&ctx, file, 0, &vec![byte; len], WriteFlags::empty()).expect("room");
        }
        Step::Truncate(size) => {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            fs.setattr_open(&ctx, file, &set).expect("memory");
        }
        Step::Punch => {
            fs.fallocate(&ctx, file, FallocateMode::PunchHole, 0, SHORT as u64).expect("memory");
        }
        Step::PunchAll => {
            fs.fallocate(&ctx, file, FallocateMode::PunchHole, 0, 1 << 20).expect("memory");
        }
        Step::Apart => {
            for place in APART {
                fs.write(&ctx, file, place, &[b'z'; LONG], WriteFlags::empty()).expect("room");
            }
        }
        Step::Unlink => fs.unlink(&ctx, ROOT_NID, b"file").expect("it is there"),
    }
    fs.fsync(file, false).expect("memory");
}

/// Makes a file by the first steps, loses the records of the second, and goes on with the third; the file's number.
fn damaged_between(before: &[Step], lost: &[Step], after: &[Step]) -> (Media, Nid) {
    let media = blank();
    let (image, running) = mounted(&media, false);
    let (fs, ctx, store) = (running.fs(), Context::root(), image.store());
    let commit = || store.commit_upto(store.tail(), crate::journal::Durability::Power).expect("memory");
    let make = |name: &[u8]| {
        fs.mkdir(&ctx, ROOT_NID, name, 0o755).expect("room");
        commit();
    };
    let (entry, file, _) = fs.create(&ctx, ROOT_NID, b"file", 0o644, OpenFlags::READ_WRITE).expect("room");
    before.iter().for_each(|done| step(fs, &file, *done));
    make(b"before");
    let from = store.tail();
    make(b"lost");
    lost.iter().for_each(|done| step(fs, &file, *done));
    let upto = store.tail();
    after.iter().for_each(|done| step(fs, &file, *done));
    // What is promised is known from a later commit.
    make(b"after");
    make(b"at the end");
    drop((file, running, image));
    smash(&media, from..upto);
    (without_staging(media), entry.nid)
}

/// Makes what the ring in the image has of these positions unusable.
fn smash(media: &Media, positions: Range<u64>) {
    let sb = superblock::read(&*media.device).expect("an image");
    assert!(positions.start.is_multiple_of(SLOTS_PER_BLOCK) && !positions.is_empty());
    for position in positions.step_by(SLOTS_PER_BLOCK as usize) {
        let at = sb.ring_start.get() + 2 + position % sb.ring_slots.get() / SLOTS_PER_BLOCK;
        let junk = Request::write(at, IoBuf::from_slice(&[7; BLOCK_SIZE]), Cause::Fsck);
        media.device.run(vec![junk]).expect("memory");
    }
}

/// What a reader finds in the file.
fn content(media: &Media, read_only: bool) -> Vec<u8> {
    let (image, running) = mounted(media, read_only);
    let (fs, ctx) = (running.fs(), Context::root());
    let entry = fs.lookup(&ctx, ROOT_NID, b"file").expect("made before the damage");
    assert!(fs.lookup(&ctx, ROOT_NID, b"before").is_ok() && fs.lookup(&ctx, ROOT_NID, b"after").is_err());
    let file = fs.open(&ctx, entry.nid, OpenFlags::empty()).expect("it is there");
    let mut bytes = vec![0; entry.attr.size as usize];
    assert_eq!(fs.read(&file, 0, &mut bytes).expect("memory"), bytes.len());
    fs.release(file, None);
    drop((running, image));
    bytes
}

/// Repairs; what the file is made of then, and whether it is said to have lost something. A reader before has seen the same.
#[track_caller]
fn repaired((media, nid): &(Media, Nid)) -> (Vec<(u8, usize)>, bool) {
    assert_eq!(check(media, &repairing()).expect("an image").status(), 4);
    let seen = content(media, true);
    let options = Options { discard_journal: true, ..repairing() };
    let report = check(media, &options).expect("an image");
    assert_eq!(report.of(IssueKind::JournalDamaged).count(), 1, "{:#?}", report.issues);
    assert_eq!(report.status(), 1, "{:#?}", report.issues);
    assert_eq!(check(media, &Options::default()).expect("an image").issues, []);
    let bytes = content(media, false);
    assert!(bytes == seen, "a reader of the damaged image has seen something else");
    let runs = bytes.chunk_by(|one, next| one == next).map(|run| (run[0], run.len())).collect();
    let told: Vec<_> = report.of(IssueKind::ContentOlder).map(|issue| issue.place).collect();
    assert!(told.is_empty() || told == [Location::nid(*nid)], "{told:?}");
    (runs, !told.is_empty())
}

use Step::{Apart, Punch, PunchAll, Truncate, Unlink, Write};

/// A file that lies in place, of which a page was absorbed later.
const IN_PLACE: [Step; 2] = [Write(b'z', LONG), Write(b'a', SHORT)];
/// A file that the journal alone has.
const ABSORBED: [Step; 1] = [Write(b'a', SHORT)];

#[test]
fn what_lies_in_place_is_not_made_older_where_the_journal_is_given_up() {
    let newer = damaged_between(&IN_PLACE, &[], &[Write(b'b', LONG)]);
    assert_eq!(repaired(&newer), (vec![(b'b', LONG)], false));
}

#[test]
fn files_are_named_whose_content_may_have_become_older_with_the_journal() {
    // What would have told that the page lies in place in a newer form is lost itself.
    let lost = damaged_between(&IN_PLACE, &[Write(b'b', LONG)], &[]);
    assert_eq!(repaired(&lost), (vec![(b'a', SHORT), (b'b', LONG - SHORT)], true));
    // What the journal alone had ends at the damage.
    let absorbed = damaged_between(&IN_PLACE, &[], &[Write(b'c', SHORT)]);
    assert_eq!(repaired(&absorbed), (vec![(b'a', SHORT), (b'z', LONG - SHORT)], true));
    let absorbed = damaged_between(&[Write(b'z', LONG)], &[], &[Write(b'c', SHORT)]);
    assert_eq!(repaired(&absorbed), (vec![(b'z', LONG)], true));
    let neither = damaged_between(&[Write(b'z', LONG)], &[], &[Write(b'b', LONG)]);
    assert_eq!(repaired(&neither), (vec![(b'b', LONG)], false));
}

/// In place lies what the page's block held before.
#[test]
fn what_was_removed_beyond_the_damage_is_what_the_journal_has_of_it() {
    let removals: [&[Step]; 6] = [
        &[Truncate(0)],
        &[Truncate(100)],
        &[Punch],
        &[Unlink],
        &[Truncate(0), Write(b'd', SHORT)],
        &[Truncate(0), Write(b'd', LONG)],
    ];
    for (nth, removal) in removals.into_iter().enumerate() {
        let absorbed = damaged_between(&ABSORBED, &[], removal);
        assert_eq!(repaired(&absorbed), (vec![(b'a', SHORT)], true), "removal {nth}");
        let in_place = damaged_between(&IN_PLACE, &[], removal);
        let expected = vec![(b'a', SHORT), (b'z', LONG - SHORT)];
        assert_eq!(repaired(&in_place), (expected, true), "removal {nth}");
    }
}

/// The record that begins it names the whole range, and has freed the end of it alone.
#[test]
fn a_removal_in_several_records_beyond_the_damage_takes_nothing_either() {
    let file = [Apart, Write(b'a', SHORT)];
    let [first, second] = APART.map(|place| place as usize);
    let expected =
        vec![(b'a', SHORT), (0, first - SHORT), (b'z', LONG), (0, second - first - LONG), (b'z', LONG)];
    let punched = damaged_between(&file, &[], &[PunchAll]);
    assert_eq!(repaired(&punched), (expected, true));
}
