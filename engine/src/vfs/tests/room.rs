//! Room for names in a directory, and the credits for it.

use super::*;
use crate::dir::PATIENCE;

/// All of them have found the same bucket full: it gets room once, and no chain becomes too long to be split.
#[test]
fn many_threads_give_a_bucket_room_once() {
    let fs = fs();
    let made = dir(&fs, &root(), ROOT_NID, "d");
    let d = fs.meta.inode(made.nid).expect("there");
    let shape = || {
        let (image, entries) = (d.lock.read(), fs.meta.dir(&d));
        let length = |bucket| entries.chain(None, &image, bucket).expect("sound").len();
        (0..image.buckets.get()).map(length).collect::<Vec<_>>()
    };
    for n in 0..400 {
        let name = format!("{n:0>250}");
        let full = fs.meta.dir(&d).vacancy(None, &d.lock.read(), name.as_bytes()).expect("sound");
        let before = shape();
        if full.expect("no such name").grows() {
            std::thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| fs.grow(&d, name.as_bytes()).expect("room"));
                }
            });
            let after = shape();
            let (before, blocks) = (before.iter().sum::<usize>(), after.iter().sum::<usize>());
            let most = before + PATIENCE as usize;
            assert!(after.len() <= most && blocks <= most + 1, "{before} blocks, then {after:?}");
            assert!(after.iter().all(|len| *len <= 3), "{after:?}");
        }
        file(&fs, &root(), made.nid, &name);
    }
    assert!(shape().len() > 20);
}

/// It waits for as many splits as it may: with credits for fewer it would get an overflow block too soon.
#[test]
fn a_full_bucket_of_a_small_directory_waits_for_its_turn() {
    let fs = fs();
    let made = dir(&fs, &root(), ROOT_NID, "d");
    let d = fs.meta.inode(made.nid).expect("there");
    let buckets = || d.lock.read().buckets.get();
    let mut most = 0;
    for n in 0..400 {
        let name = format!("{n:0>250}");
        let full = fs.meta.dir(&d).vacancy(None, &d.lock.read(), name.as_bytes()).expect("sound");
        if full.expect("no such name").grows() {
            let before = buckets();
            fs.grow(&d, name.as_bytes()).expect("room");
            most = most.max(buckets() - before);
        }
        file(&fs, &root(), made.nid, &name);
    }
    assert!(buckets() < 64, "it is small");
    assert_eq!(most, PATIENCE);
}

/// The move gives back the lock over moves first: a thread that waits for credits holds nothing that others with
/// credits wait for.
#[test]
fn a_directory_moves_to_where_room_must_be_made() {
    let fs = fs();
    let made = dir(&fs, &root(), ROOT_NID, "d");
    let d = fs.meta.inode(made.nid).expect("there");
    let mut moved = 0;
    for n in 0..200 {
        let name = format!("{n:0>250}");
        let full = fs.meta.dir(&d).vacancy(None, &d.lock.read(), name.as_bytes()).expect("sound");
        if full.expect("no such name").grows() {
            let inner = dir(&fs, &root(), ROOT_NID, "moving");
            let flags = RenameFlags::empty();
            fs.rename(&root(), ROOT_NID, b"moving", made.nid, name.as_bytes(), flags).expect("room");
            assert_eq!(fs.lookup(&root(), made.nid, name.as_bytes()).expect("there").nid, inner.nid);
            moved += 1;
        } else {
            file(&fs, &root(), made.nid, &name);
        }
    }
    assert!(moved > 5);
}

/// A large directory splits several buckets at a time where it can, and one where there are blocks for no more.
#[test]
fn the_last_blocks_of_an_image_are_for_splits_too() {
    let fs = fs();
    let made = dir(&fs, &root(), ROOT_NID, "d");
    let d = fs.meta.inode(made.nid).expect("there");
    let buckets = || d.lock.read().buckets.get();
    let one = file(&fs, &root(), ROOT_NID, "one").nid;
    let (mut n, mut seen) = (0, 0);
    while seen < 20 {
        let name = format!("{n:0>250}");
        let full = fs.meta.dir(&d).vacancy(None, &d.lock.read(), name.as_bytes()).expect("sound");
        let before = buckets();
        if before >= 256 && full.expect("no such name").grows() {
            let all = std::iter::from_fn(|| fs.meta.alloc.reserve_delayed(1, 0).ok());
            let mut taken: Vec<_> = all.collect();
            taken.truncate(taken.len() - 2);
            fs.grow(&d, name.as_bytes()).expect("room");
            assert!(buckets() > before, "an overflow block instead");
            drop(taken);
            seen += 1;
        }
        fs.link(&root(), one, made.nid, name.as_bytes()).expect("room");
        n += 1;
    }
}
