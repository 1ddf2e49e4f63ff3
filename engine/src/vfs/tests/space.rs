//! A full image, and what has gone but is not free yet.

use super::crash::{begin, content, media, scattered};
use super::*;
use crate::format::JournalKind;
use crate::fsck;
use crate::sim::{Crash, Fault};

const FLAGS: OpenFlags = OpenFlags::READ_WRITE;

/// Writes until there is no more room; the number of bytes.
pub(super) fn fill(fs: &Vfs, handle: &FileHandle, mut at: u64) -> u64 {
    loop {
        match fs.write(&root(), handle, at, &[3; 64 << 10], WriteFlags::empty()) {
            Ok(written) => at += written as u64,
            Err(e) => {
                assert_eq!(e, Error::Errno(libc::ENOSPC));
                return at;
            }
        }
    }
}

/// The kernel tells of the close of a file, and of the end of its inode, when both calls have returned long ago.
#[test]
fn room_that_is_about_to_come_free_is_waited_for() {
    let fs = fs();
    let (entry, handle, _) = fs.create(&root(), ROOT_NID, b"large", 0o644, FLAGS).expect("made");
    fill(&fs, &handle, 0);
    let full = fs.statfs().expect("counted").blocks_available;
    fs.unlink(&root(), ROOT_NID, b"large").expect("there");
    std::thread::scope(|scope| {
        let (fs, nid) = (&fs, entry.nid);
        scope.spawn(move || {
            fs.release(handle, None);
            fs.forget(nid, 1);
        });
        let small = fs.create(&root(), ROOT_NID, b"small", 0o644, FLAGS).expect("room").1;
        assert_eq!(fs.write(&root(), &small, 0, &[4; 1 << 20], WriteFlags::empty()), Ok(1 << 20));
        assert!(fs.statfs().expect("counted").blocks_available > full + 1000);
        fs.release(small, None);
    });
}

#[test]
fn a_full_image_still_deletes_truncates_and_renames() {
    let fs = fs();
    let made: Vec<_> = (0..40).map(|n| file(&fs, &root(), ROOT_NID, &format!("{n}")).nid).collect();
    let (_, large, _) = fs.create(&root(), ROOT_NID, b"large", 0o644, FLAGS).expect("made");
    // Every second page: many extents.
    for page in 0..600 {
        fs.write(&root(), &large, page * 8192, &[1; 4096], WriteFlags::empty()).expect("room");
    }
    fs.fsync(&large, false).expect("memory");
    let end = fill(&fs, &large, 600 * 8192);
    fs.fsync(&large, false).expect("what was accepted is kept");
    while fs
        .mknod(&root(), ROOT_NID, format!("filler-{}", names(&fs, ROOT_NID).len()).as_bytes(), 0o644, 0)
        .is_ok()
    {}
    assert_eq!(fs.statfs().expect("counted").blocks_available, 0);
    let cut = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    for n in 0..40 {
        let (name, new) = (format!("{n}"), format!("r{n}"));
        fs.rename(&root(), ROOT_NID, name.as_bytes(), ROOT_NID, new.as_bytes(), RenameFlags::empty())
            .expect("the same length of name, where it was");
    }
    fs.setattr(&root(), large.nid(), Some(&large), &cut(end - 4096 * 7)).expect("less is always possible");
    fs.setattr(&root(), large.nid(), Some(&large), &cut(8192 + 5)).expect("less is always possible");
    for (n, nid) in made.into_iter().enumerate() {
        fs.unlink(&root(), ROOT_NID, format!("r{n}").as_bytes()).expect("there");
        fs.forget(nid, 1);
    }
    assert_eq!(fs.write(&root(), &large, 0, &[2; 1 << 20], WriteFlags::empty()), Ok(1 << 20));
    fs.fsync(&large, false).expect("room");
    fs.release(large, None);
}

/// Inodes that share node blocks come and go on two threads; whatever of it a crash leaves, no block is lost.
#[test]
fn node_blocks_that_several_threads_use_are_never_lost_in_a_crash() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let from = sim.events();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let fs = run.fs();
                scope.spawn(move || {
                    crate::lane::pin(Some(0));
                    for n in 0..20 {
                        let name = format!("{thread}-{n}");
                        let made = file(fs, &root(), ROOT_NID, &name);
                        fs.forget(made.nid, 1);
                        fs.unlink(&root(), ROOT_NID, name.as_bytes()).expect("there");
                    }
                });
            }
        });
        super::crash::after(&sim, from, 7, 2, |state, _: Crash| {
            let again = state.restart();
            let run = begin(kind, &again);
            run.end();
            let report = fsck::check(&super::crash::idle(kind, &again), &fsck::Options::default());
            let issues = report.expect("memory does not fail").issues;
            assert!(issues.is_empty(), "{kind:?}: {state}: {issues:?}");
        });
    }
}

/// A removal in several records that cannot go on: the file is of no use, nothing else suffers, and the next mount
/// finishes it.
#[test]
fn a_removal_that_fails_half_way_is_finished_by_the_next_mount() {
    let kind = JournalKind::Pmem;
    let sim = media(kind, 1024);
    let first = begin(kind, &sim);
    first.fs().release(scattered(first.fs(), "f", 400), None);
    first.end();
    let run = begin(kind, &sim);
    let fs = run.fs();
    let nid = fs.lookup(&root(), ROOT_NID, b"f").expect("there").nid;
    let handle = fs.open(&root(), nid, FLAGS).expect("there");
    // The last leaf of its extents is in memory, the first is not.
    fs.read(&handle, 399 * 4096, &mut [0; 4096]).expect("there");
    sim.set_fault(Some(Box::new(|fault| matches!(fault, Fault::Read { .. }).then_some(libc::EIO))));
    let punched = fs.fallocate(&root(), &handle, FallocateMode::PunchHole, 0, 398 * 4096);
    assert_eq!(errno(punched), libc::EIO);
    sim.set_fault(None);
    let write = |at| fs.write(&root(), &handle, at, &[9; 4096], WriteFlags::empty());
    assert_eq!(errno(fs.read(&handle, 0, &mut [0; 4096])), libc::EIO);
    assert_eq!(errno(write(0)), libc::EIO, "the next mount would free it");
    assert_eq!(fs.meta().space.entries().len(), 1);
    let other = fs.create(&root(), ROOT_NID, b"new", 0o644, FLAGS).expect("made").1;
    fs.write(&root(), &other, 0, &[7; 4096], WriteFlags::empty()).expect("room");
    fs.release(other, None);
    fs.release(handle, None);
    run.end();

    let run = begin(kind, &sim);
    let fs = run.fs();
    assert!(fs.meta().space.entries().is_empty());
    let left = content(fs, nid);
    assert!(left[..398 * 4096].iter().all(|byte| *byte == 0));
    assert_eq!((left[398 * 4096], left[399 * 4096]), (149, 150));
    run.end();
    let report = fsck::check(&super::crash::idle(kind, &sim), &fsck::Options::default());
    assert!(report.expect("memory does not fail").issues.is_empty());
}

#[test]
fn nothing_is_lost_of_the_space_of_what_was_removed() {
    let fs = fs();
    let free = || fs.statfs().expect("counted").blocks_free;
    let warm = dir(&fs, &root(), ROOT_NID, "warm");
    fs.rmdir(&root(), ROOT_NID, b"warm").expect("empty");
    fs.forget(warm.nid, 1);
    let before = free();
    let d = dir(&fs, &root(), ROOT_NID, "d");
    for i in 0..2000 {
        let made = file(&fs, &root(), d.nid, &format!("a name of some length {i}"));
        fs.forget(made.nid, 1);
    }
    assert_eq!(names(&fs, d.nid).len(), 2000);
    assert!(fs.meta().table.len() < 1000);
    for i in 0..2000 {
        fs.unlink(&root(), d.nid, format!("a name of some length {i}").as_bytes()).expect("there");
    }
    assert!(names(&fs, d.nid).is_empty());
    fs.rmdir(&root(), ROOT_NID, b"d").expect("empty");
    fs.forget(d.nid, 1);
    // Blocks of the NAT stay: eight for 2000 ids, and what each lane has begun.
    assert!(before - free() <= 24, "{} blocks are missing", before - free());
    assert!(fs.meta().space.entries().is_empty());
}

#[test]
fn the_last_name_of_a_small_unused_file_goes_with_all_that_is_behind_it() {
    let fs = fs();
    let (store, unused) = (&fs.meta().store, || fs.meta().alloc.unused());
    file(&fs, &root(), ROOT_NID, "neighbour");
    store.commit_upto(store.tail(), Durability::Power).expect("memory");
    let before = unused();
    for data in [0, 10_000, 60_000] {
        for synced in [false, true] {
            let (entry, handle, _) =
                fs.create(&root(), ROOT_NID, b"f", 0o644, OpenFlags::READ_WRITE).expect("made");
            fs.write(&root(), &handle, 0, &vec![7; data], WriteFlags::empty()).expect("room");
            if synced {
                fs.fsync(&handle, false).expect("memory");
            }
            fs.release(handle, None);
            fs.forget(entry.nid, 1);
            let from = store.tail();
            fs.unlink(&root(), ROOT_NID, b"f").expect("there");
            assert!(store.tail() - from <= 4, "{} slots", store.tail() - from);
            assert!(fs.meta().space.entries().is_empty());
            assert_eq!(errno(fs.getattr(entry.nid)), libc::ESTALE);
        }
    }
    fs.symlink(&root(), ROOT_NID, b"l", b"target").map(|l| fs.forget(l.nid, 1)).expect("made");
    fs.unlink(&root(), ROOT_NID, b"l").expect("there");
    store.commit_upto(store.tail(), Durability::Power).expect("memory");
    fs.meta().alloc.durable(store.tail());
    assert!(unused() + 1 >= before, "{before} blocks, now {}", unused());
}

#[test]
fn small_writes_fill_the_image() {
    let fs = fs();
    let handle = fs.create(&root(), ROOT_NID, b"f", 0o644, OpenFlags::READ_WRITE).expect("made").1;
    let room = fs.statfs().expect("counted").blocks_available;
    let mut size = 0;
    while let Ok(written) = fs.write(&root(), &handle, size, &[1; 4096], WriteFlags::empty()) {
        size += written as u64;
    }
    assert!(size / 4096 >= room - room / 32, "{} of {room} blocks", size / 4096);
    fs.fsync(&handle, false).expect("memory");
    fs.release(handle, None);
}

/// Nothing else says how much fits: what asks for more gets a part, and who goes on is told that no block is left.
#[test]
fn a_write_that_does_not_wholly_fit_writes_what_fits() {
    let fs = of_blocks(4096);
    let made = |name: &[u8]| fs.create(&root(), ROOT_NID, name, 0o644, FLAGS).expect("room").1;
    let (all, part) = (made(b"all"), made(b"part"));
    let left = || fs.statfs().expect("counted").blocks_available;
    let mode = FallocateMode::Allocate { keep_size: false };
    fs.fallocate(&root(), &all, mode, 0, (left() - 40) * 4096).expect("room");
    assert!((30..=40).contains(&left()), "{} blocks are left", left());
    // Not from a page's beginning: only its last byte ends with a page.
    let written = fs.write(&root(), &part, 100, &[7; 1 << 20], WriteFlags::empty()).expect("some fits");
    assert!((written + 100).is_multiple_of(4096) && written > 20 * 4096, "{written} bytes");
    assert!(written < 1 << 20);
    assert_eq!(fs.getattr_open(&part).size, written as u64 + 100);
    let end = written as u64 + 100;
    for at in [end, end + 10 * 4096] {
        let more = fs.write(&root(), &part, at, &[8; 1 << 20], WriteFlags::empty());
        assert_eq!(errno(more), libc::ENOSPC);
    }
    assert_eq!(fs.getattr_open(&part).size, end);
    // What has its blocks needs none.
    let rest = end as usize - 4096;
    assert_eq!(fs.write(&root(), &part, 4096, &[9; 1 << 20], WriteFlags::empty()), Ok(rest));
    fs.fsync(&part, false).expect("what was accepted is kept");
    let mut bytes = vec![0; end as usize];
    fs.read(&part, 0, &mut bytes).expect("there");
    assert!(bytes[100..4096].iter().all(|b| *b == 7) && bytes[4096..].iter().all(|b| *b == 9));
    fs.release(part, None);
    fs.release(all, None);
}

#[test]
fn an_emptied_file_has_the_blocks_of_its_attributes_before_the_record_and_after() {
    let fs = fs();
    let (entry, handle, _) = fs.create(&root(), ROOT_NID, b"f", 0o644, FLAGS).expect("made");
    let blocks = || fs.getattr_open(&handle).blocks;
    for (len, expected) in [(10, 8), (5000, 16)] {
        fs.setxattr(&root(), entry.nid, b"user.a", &vec![1; len], XattrMode::Any).expect("room");
        fs.write(&root(), &handle, 0, &[7; 100_000], WriteFlags::empty()).expect("room");
        fs.syncfs().expect("memory");
        assert_eq!(blocks(), 25 * 8 + expected);
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        fs.setattr_open(&root(), &handle, &cut).expect("less is always possible");
        assert!(handle.inode.data().pages.is_truncate_pending());
        assert_eq!(blocks(), expected);
        fs.syncfs().expect("memory");
        assert!(!handle.inode.data().pages.is_truncate_pending());
        assert_eq!(blocks(), expected);
    }
    fs.release(handle, None);
}

pub(super) fn of_blocks(blocks: u64) -> Arc<Vfs> {
    let device = Arc::new(MemoryDevice::new(blocks));
    let options = FormatOptions { sparse: true, ..FormatOptions::default() };
    let superblock = format(&*device, &options).expect("large enough");
    start(&Arc::new(Store::new(device, superblock, Log::default(), &StoreOptions::default())))
}

/// Whatever statfs says is free one file can have, also where it lies in many pieces; afterwards files can be removed,
/// and all is there again.
#[test]
fn all_that_is_free_can_be_had() {
    let mode = FallocateMode::Allocate { keep_size: false };
    for (blocks, pieces) in
        [(2048, 0), (4096, 300), (20_000, 2000), (33_000, 0), (70_000, 5000), (150_000, 1)]
    {
        let fs = of_blocks(blocks);
        let made = |name: &[u8]| fs.create(&root(), ROOT_NID, name, 0o644, FLAGS).expect("room").1;
        let free = || {
            let room = fs.statfs().expect("counted");
            assert_eq!(room.blocks_free, room.blocks_available, "nothing is free that cannot be had");
            room.blocks_free
        };
        let (torn, all) = (made(b"torn"), made(b"all"));
        if pieces > 0 {
            fs.fallocate(&root(), &torn, mode, 0, pieces * 2 * 4096).expect("room");
        }
        for piece in 0..pieces {
            fs.fallocate(&root(), &torn, FallocateMode::PunchHole, piece * 8192, 4096).expect("there");
        }
        for round in 0..2 {
            let before = free();
            let about = format!("{blocks} blocks in {pieces} pieces, round {round}: {before} free");
            assert!(before > blocks / 2, "{about}");
            fs.fallocate(&root(), &all, mode, 0, before * 4096).expect(&about);
            assert_eq!(
                errno(fs.fallocate(&root(), &all, mode, before * 4096, 1 << 30)),
                libc::ENOSPC,
                "{about}"
            );
            assert!(free() < 8, "{about}: {} left", free());
            fs.fallocate(&root(), &all, FallocateMode::PunchHole, 0, u64::MAX >> 1).expect("it makes room");
            assert!(free() + 40 >= before, "{about}: now {}", free());
        }
        fs.release(all, None);
        fs.release(torn, None);
    }
}
