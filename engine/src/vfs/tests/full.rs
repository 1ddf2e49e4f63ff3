//! What can be had of a full image: what truncations hold that are not recorded yet, and removals.

use super::space::{fill, of_blocks};
use super::*;
use crate::alloc::Class;

const FLAGS: OpenFlags = OpenFlags::READ_WRITE;

fn empty(fs: &Vfs, handle: &FileHandle) {
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    fs.setattr(&root(), handle.nid(), Some(handle), &set).expect("less is always possible");
}

/// A full image, and the file that fills it; all of it is recorded.
fn filled() -> (Arc<Vfs>, FileHandle) {
    let fs = of_blocks(2048);
    let large = fs.create(&root(), ROOT_NID, b"large", 0o644, FLAGS).expect("made").1;
    fill_all(&fs, &large);
    (fs, large)
}

fn fill_all(fs: &Vfs, large: &FileHandle) {
    let mut end = fill(fs, large, 0);
    fs.fsync(large, false).expect("memory");
    let mode = FallocateMode::Allocate { keep_size: false };
    while fs.fallocate(&root(), large, mode, end, 4096).is_ok() {
        end += 4096;
    }
}

fn available(fs: &Vfs) -> u64 {
    fs.statfs().expect("counted").blocks_available
}

#[test]
fn what_a_truncation_holds_is_had_by_files_and_directories_that_are_made() {
    let (fs, large) = filled();
    assert!(available(&fs) < 8);
    empty(&fs, &large);
    assert!(large.inode.data().pages.is_truncate_pending());
    for n in 0..100 {
        dir(&fs, &root(), ROOT_NID, &format!("d{n}"));
    }
    assert!(!large.inode.data().pages.is_truncate_pending(), "it made room");
    fs.release(large, None);
}

#[test]
fn what_truncations_hold_is_free_and_can_be_had() {
    let (fs, large) = filled();
    let mut shown = vec![available(&fs)];
    empty(&fs, &large);
    assert_eq!(fs.getattr_open(&large).blocks, 0);
    shown.push(available(&fs));
    assert!(shown[1] > shown[0] + 1000, "{shown:?}");
    // New content comes and goes again: the old blocks are what they were.
    assert_eq!(fs.write(&root(), &large, 0, &[2; 8192], WriteFlags::empty()), Ok(8192));
    empty(&fs, &large);
    assert_eq!(available(&fs), shown[1]);
    assert!(large.inode.data().pages.is_truncate_pending());
    fs.syncfs().expect("memory");
    assert!(!large.inode.data().pages.is_truncate_pending());
    shown.push(available(&fs));
    // What extents lay in comes free as well.
    assert!((shown[1]..shown[1] + 8).contains(&shown[2]), "{shown:?}");

    fill_all(&fs, &large);
    empty(&fs, &large);
    let other = fs.create(&root(), ROOT_NID, b"other", 0o644, FLAGS).expect("room").1;
    let all = available(&fs);
    assert!(all > 1000 && large.inode.data().pages.is_truncate_pending());
    let mode = FallocateMode::Allocate { keep_size: false };
    fs.fallocate(&root(), &other, mode, 0, all * 4096).expect("it was shown");
    // One that was removed holds nothing.
    empty(&fs, &other);
    assert!(available(&fs) + 8 > all);
    fs.unlink(&root(), ROOT_NID, b"other").expect("there");
    let nid = other.nid();
    fs.release(other, None);
    fs.forget(nid, 1);
    let now = available(&fs);
    // A table of orphans was made.
    assert!((all - 1..all + 8).contains(&now), "{all}, then {now}");
    assert_eq!(fs.data().held_by_truncations(), 0);
    fs.release(large, None);
}

/// Several threads find the image full; one of them records what the others look for.
#[test]
fn threads_that_look_for_room_at_the_same_time_all_find_it() {
    let (fs, large) = filled();
    empty(&fs, &large);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                let name = format!("{thread}");
                let made = fs.create(&root(), ROOT_NID, name.as_bytes(), 0o644, FLAGS).expect("room").1;
                for n in 0..4 {
                    let at = n << 18;
                    assert_eq!(fs.write(&root(), &made, at, &[7; 1 << 18], WriteFlags::empty()), Ok(1 << 18));
                }
                fs.release(made, None);
            });
        }
    });
    fs.release(large, None);
}

/// Takes all blocks that there are, also those that are kept back for operations which make room.
fn exhaust(fs: &Vfs) {
    let alloc = &fs.meta().alloc;
    loop {
        let mut h = fs.meta().begin(16).expect("memory");
        let taken = alloc.allocate(&mut h, 1 << 12, None, Class::MakingRoom, None);
        match taken.or_else(|_| alloc.allocate(&mut h, 1, None, Class::MakingRoom, None)) {
            Ok(_) => h.commit().expect("memory"),
            Err(e) => return assert_eq!(e, Error::Errno(libc::ENOSPC)),
        };
    }
}

/// Nothing is kept back any more for a removal that needs a block itself.
#[test]
fn a_removal_makes_the_room_that_it_needs() {
    type Removal = fn(&Vfs, &FileHandle) -> Result<()>;
    let removals: [(&str, Removal); 4] = [
        ("unlink", |fs, _| fs.unlink(&root(), ROOT_NID, b"f")),
        ("rmdir", |fs, _| fs.rmdir(&root(), ROOT_NID, b"d")),
        ("punch", |fs, f| fs.fallocate(&root(), f, FallocateMode::PunchHole, 0, 1 << 30)),
        ("cut", |fs, f| {
            let set = SetAttr { size: Some(4096), ..SetAttr::default() };
            fs.setattr(&root(), f.nid(), Some(f), &set).map(drop)
        }),
    ];
    for (what, remove) in removals {
        let fs = of_blocks(2048);
        dir(&fs, &root(), ROOT_NID, "d");
        let gone = fs.create(&root(), ROOT_NID, b"gone", 0o644, FLAGS).expect("made");
        let f = fs.create(&root(), ROOT_NID, b"f", 0o644, FLAGS).expect("made").1;
        for page in 0..400 {
            fs.write(&root(), &f, page * 8192, &[1; 4096], WriteFlags::empty()).expect("room");
        }
        fs.write(&root(), &gone.1, 0, &[1; 1 << 18], WriteFlags::empty()).expect("room");
        fs.syncfs().expect("memory");
        exhaust(&fs);
        // Its blocks wait for a commit.
        fs.release(gone.1, None);
        fs.forget(gone.0.nid, 1);
        fs.unlink(&root(), ROOT_NID, b"gone").expect("it needs no block");
        remove(&fs, &f).expect(what);
        fs.release(f, None);
    }
}

/// What `df -i` shows.
#[test]
fn files_in_use_and_possible_are_a_sum_that_only_blocks_change() {
    let fs = of_blocks(2048);
    let room = || fs.statfs().expect("counted");
    let before = room();
    let in_use = |room: StatFs| room.files - room.files_free;
    assert_eq!(in_use(before), 1, "the root");
    let mut last = before;
    for n in 0..300 {
        let made = file(&fs, &root(), ROOT_NID, &format!("f{n}"));
        fs.forget(made.nid, 1);
        let now = room();
        assert_eq!(in_use(now), n + 2);
        // Nothing but the file, or blocks for names besides.
        let names = last.files_free - now.files_free - 1;
        let blocks = last.blocks_free - now.blocks_free;
        assert!(names <= blocks * 16, "{last:?}, then {now:?}");
        last = now;
    }
    assert!(before.files - last.files < 16 * 16, "{before:?}, then {last:?}");
    let large = fs.create(&root(), ROOT_NID, b"large", 0o644, FLAGS).expect("made").1;
    let end = (last.blocks_available - 40) * 4096;
    fs.fallocate(&root(), &large, FallocateMode::Allocate { keep_size: false }, 0, end).expect("room");
    let few = room();
    assert_eq!(in_use(few), 302);
    let mut made = 0;
    let refused = loop {
        match fs.mknod(&root(), ROOT_NID, format!("m{made}").as_bytes(), libc::S_IFREG | 0o644, 0) {
            Ok(entry) => fs.forget(entry.nid, 1),
            Err(e) => break e,
        }
        made += 1;
    };
    assert_eq!(refused, Error::Errno(libc::ENOSPC));
    let now = room();
    assert!(made <= few.files_free && made > few.files_free / 2, "{made} of {few:?}");
    assert_eq!(in_use(now), 302 + made);
    fs.unlink(&root(), ROOT_NID, b"m0").expect("there");
    assert_eq!(in_use(room()), 301 + made);
    fs.release(large, None);
}
