//! What can be had of a full image: what truncations hold that are not recorded yet.

use super::space::{fill, of_blocks};
use super::*;

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
