//! A child of the process that has opened a file system can do nothing with it, and does no harm.
//!
//! The only test of its program: a child has the thread alone that forked it.

#![allow(unsafe_code, reason = "forks, and leaves the child without a word")]

use narufs::*;
use std::io::{Read, Seek, Write};
use std::path::Path;

fn refused<T>(result: Result<T>) {
    match result {
        Ok(_) => panic!("a child may do nothing"),
        Err(e) => {
            assert!(matches!(e.cause(), Cause::Forked), "{e}");
            assert_eq!((e.errno(), e.kind()), (libc::ECHILD, std::io::ErrorKind::Unsupported));
        }
    }
}

/// What a parent has open.
struct Open {
    fs: Fs,
    user: Fs,
    file: File,
    dir: Dir,
    entries: ReadDir,
}

/// Calls everything, each of which fails, and drops what was open.
fn in_the_child(open: Open, image: &Path) {
    let Open { fs, user, mut file, dir, mut entries } = open;
    for at in [&*fs, &*user, &dir] {
        refused(at.create("new"));
        refused(at.open("f"));
        refused(at.open_dir("."));
        refused(at.open_temporary(".", OpenOptions::new().write(true)));
        refused(at.read_dir("."));
        refused(at.metadata("f"));
        refused(at.set_times("f", FileTimes::new()));
        refused(at.create_dir_all("x/y"));
        refused(at.create_dir_all(""));
        refused(at.remove_file("f"));
        refused(at.remove_dir_all("d"));
        refused(at.rename("f", "g"));
        refused(at.hard_link("f", "g"));
        refused(at.link_file(&file, "g"));
        refused(at.symlink("f", "g"));
        refused(at.read_link("g"));
        refused(at.try_exists("f"));
        refused(at.access("f", 0));
        refused(at.xattr("f", "user.a"));
        refused(at.set_xattr("f", "user.a", b"", XattrMode::Any));
        refused(at.remove_xattr("f", "user.a"));
        refused(at.xattrs("f"));
        refused(at.sync_all());
    }
    refused(fs.sync());
    refused(fs.sync_power());
    refused(fs.space());
    refused(fs.resize(Some(32 << 20)));
    refused(fs.trim(0));
    refused(file.read_at(&mut [0; 4], 0));
    refused(file.write_at(b"child", 0));
    refused(file.append(b"child"));
    refused(file.metadata());
    refused(file.set_len(0));
    refused(file.sync_all());
    refused(file.sync_data());
    refused(file.punch_hole(0, 4096));
    refused(file.seek_data(0));
    refused(file.copy_range(0, &file, 4096, 1));
    refused(file.lock());
    refused(file.unlock());
    refused(file.unlock_range(file.lock_owner(), 0..1));
    refused(file.xattrs());
    assert!(file.try_lock_shared().is_err());
    assert!(file.write(b"child").is_err() && file.read(&mut [0; 4]).is_err());
    assert!(file.seek(std::io::SeekFrom::End(0)).is_err());
    // What was fetched before the fork may be shown; nothing more is.
    assert!(entries.by_ref().any(|entry| entry.is_err()));
    drop((file, dir, entries, user));
    refused(fs.close());
    // Nor can it have one of its own, now that nothing is open.
    refused(Fs::scratch(&ScratchOptions::new(64 << 20)));
    refused(Fs::open(image, &MountOptions::new()));
    refused(Fs::format(image.with_extension("new"), &FormatOptions::new().size(16 << 20)));
}

#[test]
fn a_child_can_do_nothing_and_the_image_stays_whole() {
    let place = tempfile::tempdir().expect("a place");
    let image = place.path().join("image");
    Fs::format(&image, &FormatOptions::new().size(16 << 20)).expect("room");
    let fs = Fs::open(&image, &MountOptions::new()).expect("a good image");
    fs.create_dir("d").expect("room");
    fs.write("d/e", "").expect("room");
    let file = fs.open_with("f", OpenOptions::new().read(true).write(true).create(true)).expect("room");
    file.write_all_at(b"parent", 0).expect("room");
    file.lock().expect("nobody else has it");
    let other = fs.open("f").expect("there");
    let dir = fs.open_dir("d").expect("there");
    let (user, entries) = (fs.as_user(1, 1, &[]), fs.read_dir("d").expect("there"));
    let mut open = Some(Open { fs, user, file, dir, entries });

    // SAFETY: the child ends by _exit, and uses nothing of the parent's other threads: no lock that they may hold.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let open = open.take().expect("just put there");
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            in_the_child(open, &image);
            drop(other);
        }));
        // SAFETY: ends the process at once; its memory is a copy.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's, and the status lies on the stack.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child has met something else than refusals");

    let Open { fs, file, .. } = open.take().expect("the parent keeps it");
    assert!(other.try_lock().is_err(), "the child has given the parent's lock back");
    file.write_all_at(b"s go on", 6).expect("room");
    file.sync_all().expect("a file");
    assert!(matches!(
        Fs::open(&image, &MountOptions::new()).expect_err("it is the parent's").cause(),
        Cause::InUse(_)
    ));
    drop((file, other));
    fs.close().expect("nothing is open");

    let media =
        narufs_engine::volume::open_for_check(&image, None, false, narufs_engine::volume::Origin::Unknown)
            .expect("an image");
    let report = narufs_engine::fsck::check(&media, &narufs_engine::fsck::Options::default());
    let report = report.expect("it can be read");
    assert!(report.issues.is_empty(), "{:?}", report.issues);
    drop(media);
    let fs = Fs::open(&image, &MountOptions::new()).expect("a good image");
    assert_eq!(fs.recovery().records, 0);
    assert_eq!(fs.read("f").expect("there"), b"parents go on");
    assert!(!fs.try_exists("new").expect("asked"));
}
