//! Names that several threads change at once.

use super::*;

/// The locks of a name and of what it leads to come in one order: a thread that finds the inode taken, which comes
/// first, lets the directory go meanwhile.
#[test]
fn who_unlinks_holds_no_directory_while_waiting_for_an_inode_that_comes_before_it() {
    let fs = fs();
    let before = file(&fs, &root(), ROOT_NID, "before");
    let parent = dir(&fs, &root(), ROOT_NID, "dir");
    let after = file(&fs, &root(), parent.nid, "after");
    assert!(before.nid < parent.nid && parent.nid < after.nid);
    fs.link(&root(), before.nid, parent.nid, b"linked").expect("there");
    let inode = |nid| fs.meta().inode(nid).expect("there");
    let directory = inode(parent.nid);
    for (name, nid) in [("linked", before.nid), ("after", after.nid)] {
        let taken = inode(nid);
        let lock = taken.lock.write();
        std::thread::scope(|scope| {
            let unlinks = scope.spawn(|| fs.unlink(&root(), parent.nid, name.as_bytes()));
            if nid < parent.nid {
                for _ in 0..1000 {
                    drop(directory.lock.write());
                    std::thread::yield_now();
                }
            }
            drop(lock);
            unlinks.join().expect("no panic").expect("it is taken away");
        });
        assert_eq!(errno(fs.lookup(&root(), parent.nid, name.as_bytes())), libc::ENOENT);
    }
    assert_eq!(nlink(&fs, before.nid), 1);
    assert_eq!(errno(fs.unlink(&root(), ROOT_NID, b"dir")), libc::EISDIR);
}

/// Threads move files to and fro, in a directory and between two, while others make and take away names there.
#[test]
fn files_that_are_renamed_keep_one_name_each() {
    const FILES: u64 = 8;
    const ROUNDS: u64 = 60;
    let fs = fs();
    let (one, two) = (dir(&fs, &root(), ROOT_NID, "one"), dir(&fs, &root(), ROOT_NID, "two"));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (fs, dirs) = (&fs, [one.nid, two.nid]);
            scope.spawn(move || {
                let name = |n, round| format!("{thread}-{n}-{}", round % 3).into_bytes();
                let place = |round: u64| dirs[(round / 2 % 2) as usize];
                for n in 0..FILES {
                    file(fs, &root(), place(0), std::str::from_utf8(&name(n, 0)).expect("ASCII"));
                }
                for (round, n) in (0..ROUNDS).flat_map(|round| (0..FILES).map(move |n| (round, n))) {
                    let (from, to) = (place(round), place(round + 1));
                    let none = RenameFlags::empty();
                    fs.rename(&root(), from, &name(n, round), to, &name(n, round + 1), none)
                        .expect("it is there");
                    assert_eq!(errno(fs.lookup(&root(), from, &name(n, round))), libc::ENOENT);
                    fs.lookup(&root(), to, &name(n, round + 1)).expect("it was moved");
                    let other = format!("{thread}-other-{n}");
                    if (round + n) % 2 == 0 {
                        file(fs, &root(), to, &other);
                        fs.unlink(&root(), to, other.as_bytes()).expect("it was made");
                    }
                }
            });
        }
    });
    let (one, two) = (names(&fs, one.nid), names(&fs, two.nid));
    assert_eq!((one.len() as u64, two.len()), (3 * FILES, 0));
    let nids: std::collections::BTreeSet<_> = one.values().collect();
    assert_eq!(nids.len() as u64, 3 * FILES);
    assert!(one.keys().all(|name| name.ends_with(b"-0")));
}

/// A name that takes the room of the old one, in the same block, and one for which there is no room.
#[test]
fn a_file_is_renamed_into_the_room_that_it_leaves() {
    let fs = fs();
    let parent = dir(&fs, &root(), ROOT_NID, "dir");
    let long = |n: u64| format!("{n:0>255}");
    for n in 0..40 {
        file(&fs, &root(), parent.nid, &long(n));
    }
    for round in 0..3 {
        for n in 0..40 {
            let (from, to) = (long(round * 100 + n), long(round * 100 + 100 + n));
            let none = RenameFlags::NO_REPLACE;
            fs.rename(&root(), parent.nid, from.as_bytes(), parent.nid, to.as_bytes(), none)
                .expect("nothing has the name");
        }
    }
    let left: Vec<_> = names(&fs, parent.nid).into_keys().collect();
    assert_eq!(left, (300..340).map(|n| long(n).into_bytes()).collect::<Vec<_>>());
    let again = fs.rename(
        &root(),
        parent.nid,
        long(300).as_bytes(),
        parent.nid,
        long(301).as_bytes(),
        RenameFlags::NO_REPLACE,
    );
    assert_eq!(errno(again), libc::EEXIST);
    let same = long(300);
    fs.rename(&root(), parent.nid, same.as_bytes(), parent.nid, same.as_bytes(), RenameFlags::empty())
        .expect("nothing changes");
    assert_eq!(names(&fs, parent.nid).len(), 40);
}
