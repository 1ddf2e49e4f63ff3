//! Images of strangers, which name for their journal what is somebody else's: it stays as it is.

use crate::support::{Work, killed_after_sync, narufs, overwrite, used};
use narufs_engine::volume::VolumeOptions;
use narufs_engine::{Error, Fs};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

/// What an image's journal is replaced by, and what is said then.
type Victim = (&'static str, fn(&Path), &'static str);

const VICTIMS: &[Victim] = &[
    ("text", |at| std::fs::write(at, "a line\n").expect("room"), "no valid ring header"),
    ("pages of data", |at| std::fs::write(at, vec![7; 2 << 20]).expect("room"), "no valid ring header"),
    ("too short", |at| std::fs::write(at, vec![7; 4096]).expect("room"), "no valid ring header"),
    ("nothing", |at| std::fs::write(at, "").expect("room"), "is blank"),
    (
        "holes",
        |at| std::fs::File::create(at).and_then(|file| file.set_len(2 << 20)).expect("room"),
        "is blank",
    ),
    ("a link", |at| symlink("/etc/hostname", at).expect("room"), "is a symbolic link"),
    ("a link to a device", |at| symlink("/dev/null", at).expect("room"), "is a symbolic link"),
    (
        "a pipe",
        |at| {
            let mode = rustix::fs::Mode::RWXU;
            rustix::fs::mknodat(rustix::fs::CWD, at, rustix::fs::FileType::Fifo, mode, 0).expect("room");
        },
        "is no regular file",
    ),
    ("a directory", |at| std::fs::create_dir(at).expect("room"), "is no regular file"),
];

/// Kind, size, room and content.
fn state(at: &Path) -> (u32, u64, u64, Vec<u8>) {
    let found = at.symlink_metadata().expect("there");
    let content = if found.is_file() { std::fs::read(at).expect("readable") } else { Vec::new() };
    (found.mode(), found.size(), found.blocks(), content)
}

#[test]
fn what_an_image_names_for_its_journal_stays_as_it_is_unless_it_is_that() {
    for unclean in [false, true] {
        for (name, make, words) in VICTIMS {
            let work = Work::new();
            // Not beside the image, where each file is opened in the end.
            std::fs::create_dir(work.at("rings")).expect("room");
            let ring = work.at("rings/ring");
            let image = work.mkfs("image", &["--journal-emulated", &ring, "--journal-size", "1M"]);
            used(&image, |_| {});
            if unclean {
                killed_after_sync(&image, 3);
            }
            let ring = Path::new(&ring);
            std::fs::remove_file(ring).expect("there");
            make(ring);
            let before = state(ring);
            let dir = work.at("mnt");
            std::fs::create_dir(&dir).expect("room");
            narufs(&["mount", &image, &dir]).refused(32, words);
            narufs(&["mount", &image, &dir, "-o", "harden=no,supervise=no"]).refused(32, words);
            for words in [&["--repair"][..], &["--repair", "--discard-journal"]] {
                narufs(&[&["fsck", &image], words].concat());
            }
            assert!(state(ring) == before, "{name}, unclean: {unclean}");
        }
    }
}

#[test]
fn a_journal_that_is_gone_is_made_unasked_in_shared_memory_alone() {
    let work = Work::new();
    let name = format!("narufs-test-{}", std::process::id());
    let shared = format!("/dev/shm/{name}");
    let _removed = Removed(&shared);
    let elsewhere = format!("/dev/shm/../..{}", work.at("ring"));
    let dir = tempfile::Builder::new().prefix("narufs-test-").tempdir_in("/dev/shm").expect("shared memory");
    let below = dir.path().join("ring").display().to_string();
    for (image, ring, is_made) in
        [("one", shared.as_str(), true), ("two", elsewhere.as_str(), false), ("three", below.as_str(), false)]
    {
        let image = work.mkfs(image, &["--journal-emulated", ring, "--journal-size", "1M"]);
        used(&image, |_| {});
        std::fs::remove_file(ring).expect("there");
        let mounted = Fs::mount(&image, &VolumeOptions::default());
        assert_eq!(mounted.is_ok(), is_made, "{ring}");
        match mounted {
            Ok(mounted) => mounted.unmount().expect("it works"),
            Err(Error::Refused(why)) => assert!(why.contains("-o journal=PATH"), "{why}"),
            Err(e) => panic!("{ring}: {e}"),
        }
        assert_eq!(Path::new(ring).exists(), is_made, "{ring}");
    }
}

#[test]
fn an_image_that_carries_another_s_uuid_has_no_use_of_its_journal() {
    let work = Work::new();
    let (image, ring) = work.emulated("image");
    used(&image, |_| {});
    // All but what only the image and its journal know: a stranger can see the UUID.
    let copy = work.at("copy");
    std::fs::copy(&image, &copy).expect("room");
    std::fs::remove_file(&ring).expect("there");
    let given = VolumeOptions { journal: Some(ring.clone().into()), ..VolumeOptions::default() };
    Fs::mount(&image, &given).expect("made anew").unmount().expect("it works");
    killed_after_sync(&image, 5);
    let before = std::fs::read(&ring).expect("there");
    let Err(Error::Refused(why)) = Fs::mount(&copy, &VolumeOptions::default()).map(drop) else {
        panic!("not refused")
    };
    assert!(why.contains("another has replaced it"), "{why}");
    assert!(std::fs::read(&ring).expect("there") == before);
    used(&image, |fs| assert_eq!(fs.read("/synced").expect("it is there"), [5; 3000]));
}

#[test]
fn a_journal_s_path_is_heeded_and_holds_nothing_else() {
    let work = Work::new();
    let (image, ring) = work.emulated("image");
    used(&image, |_| {});
    let moved = work.at("moved");
    std::fs::rename(&ring, &moved).expect("there");
    let dir = work.at("mnt");
    std::fs::create_dir(&dir).expect("room");
    narufs(&["mount", &image, &dir, "-o", "journal=moved"]).refused(1, "from the root");
    let other = work.at("other");
    std::fs::write(&other, vec![9; 2 << 20]).expect("room");
    narufs(&["mount", &image, &dir, "-o", &format!("journal={other}")]).refused(32, "no valid ring header");
    assert!(std::fs::read(&other).expect("there") == vec![9; 2 << 20]);
    let given = VolumeOptions { journal: Some(moved.clone().into()), ..VolumeOptions::default() };
    Fs::mount(&image, &given).expect("its own").unmount().expect("it works");
    assert!(!Path::new(&ring).exists());
    overwrite(&moved, 0, &vec![0; 1 << 20]);
    Fs::mount(&image, &given).expect("made over zeros").unmount().expect("it works");
}

/// Goes with the test.
struct Removed<'p>(&'p str);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}
