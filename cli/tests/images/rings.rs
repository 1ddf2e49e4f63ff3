//! Journals that are missing, another image's, older, of another size: each said in its own line, at mount and
//! at fsck, and given up only when asked.

use crate::support::{
    Work, killed_after_sync, narufs, narufs_in_small_memory, overwrite, staging_of, synced, used,
};
use narufs_engine::volume::VolumeOptions;
use narufs_engine::{Error, Fs};
use std::path::Path;

/// What a mount of an image says that cannot succeed; its directory exists.
fn mount(work: &Work, image: &str) -> crate::support::Said {
    let dir = work.at("mnt");
    std::fs::create_dir_all(&dir).expect("a directory");
    narufs(&["mount", image, &dir])
}

/// What is done to the ring of an image that is mounted for the second time and killed.
type Spoil = fn(work: &Work, ring: &str);

const WRONG: &[(&str, Spoil, &str)] = &[
    ("missing", |_, ring| std::fs::remove_file(ring).expect("there"), "the journal is missing: there is no "),
    ("blank", |_, ring| overwrite(ring, 0, &vec![0; 1 << 20]), "the journal is blank"),
    ("garbage", |_, ring| overwrite(ring, 0, &[7; 4096]), "the journal has no valid ring header"),
    (
        "another's",
        |work, ring| {
            let (_, other) = work.emulated("other");
            std::fs::rename(other, ring).expect("there");
        },
        "the journal belongs to another image (",
    ),
    (
        "older",
        |work, ring| std::fs::rename(work.at("oldest"), ring).expect("there"),
        "the journal is older than the image: of mount 0, the image of mount 3",
    ),
    (
        "short",
        |_, ring| {
            let file = std::fs::OpenOptions::new().write(true).open(ring).expect("there");
            file.set_len(64 << 10).expect("shorter");
        },
        "is too short: 65536 bytes of 1052672",
    ),
];

/// An image that was mounted twice, and killed in a third mount.
fn killed(work: &Work) -> (String, String) {
    let (image, ring) = work.emulated("image");
    std::fs::copy(&ring, work.at("oldest")).expect("made by mkfs");
    used(&image, |_| {});
    used(&image, |fs| fs.create_dir_all("/dir").expect("room"));
    killed_after_sync(&image, 7);
    (image, ring)
}

#[test]
fn each_wrong_journal_of_an_unclean_image_is_told_apart_and_can_be_given_up() {
    for (name, spoil, words) in WRONG {
        let work = Work::new();
        let (image, ring) = killed(&work);
        spoil(&work, &ring);
        let before = std::fs::read(&image).expect("there");
        mount(&work, &image).refused(32, words);
        let check = narufs(&["fsck", &image, "--json"]);
        assert_eq!(check.status, 4, "{name}: {check:?}");
        assert_eq!(check.json()["issues"][0]["kind"], "ring-missing", "{name}");
        assert!(check.out.contains(words) && check.out.contains("--discard-journal"), "{name}: {check:?}");
        let repair = narufs(&["fsck", &image, "--repair"]);
        assert_eq!(repair.status, 4, "{name}: nothing is given up unasked: {repair:?}");
        assert!(std::fs::read(&image).expect("there") == before, "{name}: nothing is written");
        let give_up = ["fsck", &image, "--repair", "--discard-journal"];
        let at_path = [&give_up[..], &["--journal", &ring]].concat();
        if ["another's", "garbage"].contains(name) {
            let there = std::fs::read(&ring).expect("there");
            for words in [&give_up[..], at_path.as_slice()] {
                let refused = narufs(words);
                assert_eq!(refused.status, 4, "what is not this image's is left alone: {refused:?}");
                assert!(
                    ["move that file away", "where nothing else lies"]
                        .iter()
                        .any(|said| refused.out.contains(said))
                );
                assert!(std::fs::read(&ring).expect("there") == there, "{name}");
            }
            std::fs::remove_file(&ring).expect("there");
        }
        let is_ours = ["older", "short"].contains(name);
        if !is_ours {
            let refused = narufs(&give_up);
            assert_eq!(refused.status, 4, "{name}: an image's word makes no journal: {refused:?}");
            assert!(refused.out.contains("--journal PATH"), "{refused:?}");
        }
        let given_up = narufs(if is_ours { &give_up } else { &at_path });
        assert_eq!(given_up.status, 1, "{name}: {given_up:?}");
        narufs(&["fsck", &image]).done();
        used(&image, |fs| assert!(fs.metadata("/dir").is_ok(), "{name}: what was checkpointed is there"));
    }
}

#[test]
fn a_clean_image_goes_on_with_a_new_journal_but_never_takes_another_s() {
    for (name, spoil, words) in WRONG {
        let work = Work::new();
        let (image, ring) = work.emulated("image");
        std::fs::copy(&ring, work.at("oldest")).expect("made by mkfs");
        for _ in 0..3 {
            used(&image, |_| {});
        }
        spoil(&work, &ring);
        narufs(&["fsck", &image]).done();
        assert_eq!(Path::new(&ring).exists(), *name != "missing", "a check makes nothing");
        if !["older", "short"].contains(name) {
            let before = std::fs::read(&ring).ok();
            mount(&work, &image).refused(32, words);
            assert!(std::fs::read(&ring).ok() == before, "{name}: an image's word changes nothing");
            let given = VolumeOptions { journal: Some(ring.clone().into()), ..VolumeOptions::default() };
            if ["another's", "garbage"].contains(name) {
                assert!(matches!(Fs::mount(&image, &given), Err(Error::Refused(_))), "{name}");
                assert!(std::fs::read(&ring).ok() == before, "{name}: nothing else is overwritten");
                std::fs::remove_file(&ring).expect("there");
            }
            Fs::mount(&image, &given).expect("made anew").unmount().expect("it works");
        }
        used(&image, |fs| fs.create_dir_all("/dir").expect("room"));
        narufs(&["fsck", &image]).done();
    }
}

#[test]
fn mkfs_makes_the_journal_and_overwrites_none_unasked() {
    let work = Work::new();
    let (image, ring) = work.emulated("image");
    assert_eq!(std::fs::metadata(&ring).expect("made by mkfs").len(), (1 << 20) + 4096);
    let again = |words: &[&str]| {
        let other = work.at("other");
        let image = ["mkfs", &other, "--size", "64M", "--sparse", "--journal-emulated", &ring];
        narufs(&[&image, words].concat())
    };
    again(&[]).refused(1, "is the journal of image ");
    overwrite(&ring, 0, &[1; 4096]);
    again(&[]).refused(1, "holds data already");
    again(&["--force", "--journal-size", "2M"]).done();
    assert_eq!(std::fs::metadata(&ring).expect("made anew").len(), (2 << 20) + 4096);
    // The first image was never mounted: it needs no journal, but does not take that of the second.
    mount(&work, &image).refused(32, "belongs to another image");
    let nowhere = work.at("no/such/ring");
    narufs(&["mkfs", &work.at("third"), "--size", "64M", "--sparse", "--journal-emulated", &nowhere])
        .refused(1, "no such directory");
    narufs(&["mkfs", &work.at("fourth"), "--size", "64M", "--sparse", "--journal", &work.at("plain")])
        .refused(1, "MAP_SYNC");
    assert!(!Path::new(&work.at("plain")).exists(), "nothing is left behind");
}

#[test]
fn mkfs_refuses_a_journal_on_which_something_would_not_fit() {
    let work = Work::new();
    let ring = work.at("ring");
    for words in [&["--journal-size", "64K"][..], &["--journal-size", "64K", "--journal-emulated", &ring]] {
        let image = work.at("image");
        let refused = narufs(&[&["mkfs", &image, "--size", "64M", "--sparse"], words].concat());
        refused.refused(1, "a journal of 64 KiB is too small: it takes ");
    }
    assert!(!Path::new(&ring).exists());
}

#[test]
#[ignore = "needs root and unshare"]
fn shared_memory_that_is_too_small_is_named_with_what_it_takes() {
    let work = Work::new();
    let dir = work.at("mnt");
    std::fs::create_dir(&dir).expect("a directory");
    let image = work.mkfs("image", &["--journal-size", "4M"]);
    let mount = narufs_in_small_memory(1024, &["mount", &image, &dir]);
    mount.refused(32, "it needs 4.0 MiB, /dev/shm has 1.0 MiB available");
    let other = work.at("other");
    let words = ["mkfs", &other, "--size", "64M", "--sparse", "--journal-emulated", "/dev/shm/ring"];
    let mkfs = narufs_in_small_memory(1024, &words);
    mkfs.refused(1, "it needs 4.0 MiB, /dev/shm has 1.0 MiB available");
    narufs(&["fsck", &image]).done();
}

#[test]
fn a_reader_of_an_unclean_image_sees_what_was_synced_and_writes_nothing() {
    let work = Work::new();
    let (emulated, ring) = work.emulated("emulated");
    let ssd = work.mkfs("ssd", &["--journal-size", "1M"]);
    for (image, ring) in [(&emulated, Some(&ring)), (&ssd, None)] {
        killed_after_sync(image, 9);
        let bytes =
            || (std::fs::read(image).expect("there"), ring.map(|ring| std::fs::read(ring).expect("there")));
        let before = bytes();
        for read_only in [true, true, false] {
            assert_eq!(synced(image, read_only), [9; 3000], "{image}, read only: {read_only}");
            assert!(!read_only || bytes() == before, "{image}: nothing is written");
        }
    }
}

#[test]
fn checks_leave_nothing_in_shared_memory() {
    let work = Work::new();
    let image = work.mkfs("image", &["--journal-size", "1M"]);
    let staging = staging_of(Path::new(&image)).expect("an image");
    narufs(&["fsck", &image]).done();
    narufs(&["fsck", &image, "--repair"]).done();
    assert!(!staging.exists());
    killed_after_sync(&image, 3);
    assert!(staging.exists());
    // As after a loss of power.
    std::fs::remove_file(&staging).expect("there");
    narufs(&["fsck", &image]).done();
    assert!(!staging.exists());
    narufs(&["fsck", &image, "--repair"]).done();
    assert!(!staging.exists());
    assert_eq!(synced(&image, false), [3; 3000]);
}
