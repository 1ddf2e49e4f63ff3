//! What programs hold when the server is killed under them.

use crate::support::Mounted;
use rustix::fs::{Advice, AtFlags, CWD, FlockOperation, Mode, OFlags, fadvise, flock, openat, statat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

const KILLS: usize = 5;

fn open_files_go_on(options: &str) {
    let mounted = Mounted::new(options);
    let open = |name: &str| {
        File::options().create(true).read(true).write(true).truncate(false).open(mounted.at(name))
    };
    let mut kept = open("kept").expect("made");
    let unlinked = open("unlinked").expect("made");
    unlinked.write_all_at(b"what has no name", 0).expect("room");
    unlinked.sync_all().expect("durable");
    fs::remove_file(mounted.at("unlinked")).expect("it is there");
    let nameless = openat(
        CWD,
        mounted.place.point(),
        OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    );
    let nameless = File::from(nameless.expect("made"));
    nameless.write_all_at(b"never had one", 0).expect("room");
    nameless.sync_all().expect("durable");
    let mut appended = File::options().create(true).append(true).open(mounted.at("log")).expect("made");
    for kill in 0..KILLS {
        kept.write_all(format!("line {kill}\n").as_bytes()).expect("room");
        appended.write_all(format!("{kill}\n").as_bytes()).expect("room");
        kept.sync_all().expect("durable");
        appended.sync_data().expect("durable");
        mounted.restart();
        assert_eq!(
            (unlinked.metadata().expect("it is there").nlink(), nameless.metadata().expect("too").nlink()),
            (0, 0)
        );
        let mut text = String::new();
        (&unlinked).seek(SeekFrom::Start(0)).expect("a file");
        (&unlinked).read_to_string(&mut text).expect("readable");
        assert_eq!(text, "what has no name");
        let mut bytes = [0; 13];
        nameless.read_exact_at(&mut bytes, 0).expect("readable");
        assert_eq!(&bytes, b"never had one");
    }
    let lines = |prefix: &str| (0..KILLS).map(|kill| format!("{prefix}{kill}\n")).collect::<String>();
    assert_eq!(fs::read_to_string(mounted.at("kept")).expect("readable"), lines("line "));
    assert_eq!(fs::read_to_string(mounted.at("log")).expect("readable"), lines(""));
    kept.set_len(4).expect("a file open for writing");
    assert_eq!(fs::read_to_string(mounted.at("kept")).expect("readable"), "line");
    drop((kept, unlinked, nameless, appended));
    mounted.end();
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn open_files_go_on_where_the_kernel_keeps_them() {
    open_files_go_on("noatime");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn open_files_go_on_where_the_server_keeps_them() {
    open_files_go_on("noatime,io=direct");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn open_files_go_on_where_the_server_checks_permissions() {
    open_files_go_on("noatime,permissions=server");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn open_files_go_on_where_the_kernel_writes_back() {
    open_files_go_on("noatime,io=cached");
}

fn what_was_written_is_there(options: &str) {
    const PIECE: usize = 100_000;
    let mounted = Mounted::new(options);
    let file =
        File::options().create_new(true).read(true).write(true).open(mounted.at("file")).expect("made");
    let piece = |number: usize| vec![number as u8 + 1; PIECE];
    for kill in 0..KILLS {
        file.write_all_at(&piece(kill), (kill * PIECE) as u64).expect("room");
        // Nobody has synced it, and the kernel's copy goes, if it has written it.
        mounted.restart();
        fadvise(&file, 0, None, Advice::DontNeed).expect("a file");
        assert_eq!(file.metadata().expect("it is there").len(), ((kill + 1) * PIECE) as u64);
        let mut bytes = vec![0; PIECE];
        for before in 0..=kill {
            file.read_exact_at(&mut bytes, (before * PIECE) as u64).expect("readable");
            assert!(bytes == piece(before), "kill {kill}, piece {before}");
        }
    }
    file.set_len(PIECE as u64 / 2).expect("it is there");
    mounted.restart();
    assert_eq!(file.metadata().expect("it is there").len(), PIECE as u64 / 2);
    drop(file);
    mounted.end();
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn what_was_written_and_not_synced_is_there() {
    what_was_written_is_there("noatime,commit=3600");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn what_was_written_past_the_kernel_s_cache_is_there() {
    what_was_written_is_there("noatime,commit=3600,io=direct");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn directories_go_on_also_those_that_were_removed() {
    let mounted = Mounted::new("noatime");
    let [here, gone] = ["here", "gone"].map(|name| {
        fs::create_dir(mounted.at(name)).expect("made");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, mounted.at(name), flags, Mode::empty()).expect("it is there")
    });
    fs::write(mounted.at("here/file"), b"").expect("room");
    fs::remove_dir(mounted.at("gone")).expect("it is empty");
    for _ in 0..KILLS {
        mounted.restart();
        statat(&here, "file", AtFlags::empty()).expect("it is there");
        assert_eq!(statat(&gone, "file", AtFlags::empty()).expect_err("it is empty"), Errno::NOENT);
        assert_eq!(statat(&gone, "", AtFlags::EMPTY_PATH).expect("it is open").st_nlink, 0);
        let made = openat(&gone, "file", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR);
        assert_eq!(made.expect_err("nothing is made there"), Errno::NOENT);
    }
    drop((here, gone));
    mounted.end();
}

fn a_listing_goes_on(options: &str) {
    const NAMES: usize = 5000;
    let mounted = Mounted::new(options);
    for number in 0..NAMES {
        fs::write(mounted.at(&format!("name-{number}")), b"").expect("room");
    }
    let mut seen = BTreeSet::new();
    let mut listing = fs::read_dir(mounted.place.point()).expect("a directory");
    for kill in 0.. {
        let some: Vec<_> = listing.by_ref().take(NAMES / KILLS).collect();
        if some.is_empty() {
            break;
        }
        for entry in some {
            assert!(seen.insert(entry.expect("a name").file_name()), "each name comes once");
        }
        if kill < KILLS {
            mounted.restart();
        }
    }
    assert_eq!(seen.len(), NAMES);
    drop(listing);
    mounted.end();
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_listing_goes_on_where_it_was() {
    a_listing_goes_on("noatime");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_listing_goes_on_where_the_server_keeps_directories() {
    a_listing_goes_on("noatime,io=direct");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn locks_stay_with_who_has_them_and_who_waits_gets_them() {
    let mounted = Mounted::new("noatime");
    fs::write(mounted.at("locked"), b"").expect("room");
    let open = || File::open(mounted.at("locked")).expect("it is there");
    let (holder, other) = (open(), open());
    flock(&holder, FlockOperation::LockExclusive).expect("nobody has it");
    for _ in 0..KILLS {
        mounted.restart();
        let refused = flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(refused.expect_err("it is held"), Errno::WOULDBLOCK);
    }
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| flock(&other, FlockOperation::LockExclusive));
        mounted.restart();
        flock(&holder, FlockOperation::Unlock).expect("it is held");
        waits.join().expect("no panic").expect("it is free");
    });
    drop((holder, other));
    mounted.end();
}
