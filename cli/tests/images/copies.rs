//! Copies of images, and images at another place, while shared memory has the journal of one that was killed: each image
//! goes on with its own, and none with another's.

use crate::support::{Work, mounted, narufs, options, staging_of, used};
use narufs_engine::format::STAGING_OWNER;
use narufs_engine::path::OpenOptions;
use narufs_engine::volume::{Origin, VolumeOptions};
use narufs_engine::{Error, Fs};
use narufs_testing::place::require_loop_devices;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why a mount is refused.
fn refusal(image: &str, origin: Origin) -> String {
    match Fs::mount(image, &options(origin)) {
        Err(Error::Refused(why)) => why,
        mounted => panic!("{image} is not refused: {:?}", mounted.map(drop)),
    }
}

fn write(fs: &Fs, path: &str, bytes: &[u8]) {
    let options = OpenOptions { write: true, create: true, ..Default::default() };
    let file = fs.open(path, options).expect("made");
    file.write_at(bytes, 0).expect("room");
    file.sync_all().expect("it works");
}

/// So much that it goes home, and not into the journal.
const LARGE: usize = 4 << 20;

/// Copies an image while it is mounted and then kills its server: the original has more than the copy.
fn killed_behind_its_copy(work: &Work, image: &str) -> String {
    let copy = work.at("copy");
    let fs = mounted(image, Origin::Unknown);
    write(&fs, "/early", &[1; LARGE]);
    std::fs::copy(image, &copy).expect("room");
    write(&fs, "/late", &[2; LARGE]);
    // Nobody syncs it, and a killed server loses no name.
    fs.create_dir_all("/last").expect("room");
    drop(fs);
    copy
}

fn is_whole(fs: &Fs) {
    assert!(fs.read("/early").expect("synced") == [1; LARGE]);
    assert!(fs.read("/late").expect("synced") == [2; LARGE], "what was synced is lost");
    assert!(fs.metadata("/last").is_ok(), "a name that was made is lost");
}

fn is_the_copy(fs: &Fs) {
    assert!(fs.read("/early").expect("synced") == [1; LARGE]);
    assert!(fs.metadata("/late").is_err() && fs.metadata("/last").is_err(), "it has what is the original's");
}

/// All files of shared memory that are of images with the UUID of this one.
fn staged(image: &str) -> Vec<PathBuf> {
    let own = staging_of(Path::new(image)).expect("an image");
    let name = own.file_name().expect("a name").to_str().expect("plain").to_owned();
    let entries = std::fs::read_dir(own.parent().expect("a directory")).expect("there").flatten();
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains(&name)).collect();
    files.sort();
    files
}

#[test]
fn a_copy_never_takes_the_journal_of_its_dead_original() {
    let work = Work::new();
    let image = work.mkfs("image", &["--journal-size", "16M"]);
    let copy = killed_behind_its_copy(&work, &image);
    let [left] = &staged(&image)[..] else { panic!("{:?}", staged(&image)) };
    let (journal, bytes) = (std::fs::read(left).expect("there"), std::fs::read(&copy).expect("there"));
    let why = refusal(&copy, Origin::Unknown);
    assert!(
        why.contains(&left.display().to_string()) && why.contains("-o copied") && !why.contains('\n'),
        "{why}"
    );
    let mut reader = options(Origin::Unknown);
    reader.image.read_only = true;
    assert!(matches!(Fs::mount(&copy, &reader), Err(Error::Refused(_))));
    narufs(&["fsck", &copy]).refused(8, "--copied");
    narufs(&["fsck", &copy, "--repair"]).refused(8, "--moved");
    std::fs::create_dir(work.at("mnt")).expect("room");
    narufs(&["mount", &copy, &work.at("mnt")]).refused(32, "-o copied");
    let doctor = narufs(&["doctor", &copy]);
    assert!(doctor.out.contains("this image may be a copy, or moved"), "{doctor:?}");
    assert!(std::fs::read(&copy).expect("there") == bytes, "nothing is written");
    narufs(&["fsck", &copy, "--copied"]).done();
    // Beside its original's staging, and later beside the original itself.
    let second = mounted(&copy, Origin::Copied);
    is_the_copy(&second);
    assert_eq!(staged(&image).len(), 2, "it has its own");
    assert!(std::fs::read(left).expect("there") == journal, "the original's is as it was");
    let first = mounted(&image, Origin::Unknown);
    is_whole(&first);
    write(&second, "/more", &[3; LARGE]);
    first.unmount().expect("it works");
    // Killed it has its own, whatever is said.
    drop(second);
    for origin in [Origin::Unknown, Origin::Copied, Origin::Moved] {
        let second = mounted(&copy, origin);
        is_the_copy(&second);
        assert!(second.read("/more").expect("synced") == [3; LARGE]);
        drop(second);
    }
    mounted(&copy, Origin::Unknown).unmount().expect("it works");
    assert_eq!(staged(&image), [] as [PathBuf; 0]);
}

#[test]
fn an_image_that_was_moved_goes_on_with_its_own() {
    let work = Work::new();
    let image = work.mkfs("image", &["--journal-size", "16M"]);
    killed_behind_its_copy(&work, &image);
    // By its name alone.
    let renamed = work.at("renamed");
    std::fs::rename(&image, &renamed).expect("there");
    let fs = mounted(&renamed, Origin::Unknown);
    is_whole(&fs);
    drop(fs);
    // As between file systems. What comes to lie at the old place is not it, whichever inode it gets.
    std::fs::copy(&renamed, &image).expect("room");
    std::fs::remove_file(&renamed).expect("there");
    std::fs::copy(&image, &renamed).expect("room");
    for place in [&image, &renamed] {
        assert!(refusal(place, Origin::Unknown).contains("-o moved"));
    }
    narufs(&["fsck", &image, "--moved"]).done();
    let fs = mounted(&image, Origin::Moved);
    is_whole(&fs);
    // Whoever says the same of another comes too late.
    let other = mounted(&renamed, Origin::Moved);
    assert_eq!(staged(&image).len(), 2, "each has its own");
    other.unmount().expect("it works");
    drop(fs);
    // It need not be said again.
    let fs = mounted(&image, Origin::Unknown);
    is_whole(&fs);
    fs.unmount().expect("it works");
    assert_eq!(staged(&image), [] as [PathBuf; 0]);
}

#[test]
fn a_clean_copy_is_used_beside_its_original() {
    let work = Work::new();
    let image = work.mkfs("image", &["--journal-size", "16M"]);
    used(&image, |fs| write(fs, "/early", &[1; LARGE]));
    let copy = work.at("copy");
    std::fs::copy(&image, &copy).expect("room");
    let first = mounted(&image, Origin::Unknown);
    let second = mounted(&copy, Origin::Unknown);
    assert!(matches!(Fs::mount(&image, &VolumeOptions::default()), Err(Error::InUse(_))));
    is_the_copy(&second);
    write(&first, "/late", &[2; LARGE]);
    first.create_dir_all("/last").expect("room");
    drop(first);
    write(&second, "/more", &[3; LARGE]);
    drop(second);
    // An image of an earlier mount needs nothing of what lies there, and harms none of it.
    for (image, is_first) in [(&copy, false), (&image, true)] {
        let fs = mounted(image, Origin::Unknown);
        match is_first {
            true => is_whole(&fs),
            false => is_the_copy(&fs),
        }
        fs.unmount().expect("it works");
    }
    assert_eq!(staged(&image), [] as [PathBuf; 0]);
}

#[test]
fn a_journal_that_an_older_build_has_left_is_of_the_image_that_it_fits() {
    let work = Work::new();
    let image = work.mkfs("image", &["--journal-size", "16M"]);
    let early = work.at("early");
    std::fs::copy(&image, &early).expect("room");
    let copy = killed_behind_its_copy(&work, &image);
    let left = staging_of(Path::new(&image)).expect("an image").display().to_string();
    crate::support::overwrite(&left, STAGING_OWNER as u64, &[0; 64]);
    // Not of one that was unmounted since, and not of one that is said to be a copy.
    used(&early, |_| {});
    let fs = mounted(&copy, Origin::Copied);
    is_the_copy(&fs);
    fs.unmount().expect("it works");
    let fs = mounted(&image, Origin::Unknown);
    is_whole(&fs);
    drop(fs);
    let owner = &std::fs::read(&left).expect("there")[STAGING_OWNER..][..64];
    assert!(owner.iter().any(|byte| *byte != 0), "from now on it is this image's");
    mounted(&image, Origin::Unknown).unmount().expect("it works");
    assert_eq!(staged(&image), [] as [PathBuf; 0]);
}

/// A loop device over a file.
struct Loop(String);

impl Loop {
    fn over(file: &str) -> Loop {
        let out = Command::new("losetup").args(["--find", "--show", file]).output().expect("losetup");
        assert!(out.status.success(), "{out:?}");
        Loop(String::from_utf8(out.stdout).expect("a path").trim_end().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
#[ignore = "needs root and loop devices"]
fn a_loop_device_over_an_image_is_that_image() {
    require_loop_devices();
    let work = Work::new();
    let image = work.mkfs("image", &["--journal-size", "16M"]);
    let copy = killed_behind_its_copy(&work, &image);
    let (original, other) = (Loop::over(&image), Loop::over(&copy));
    assert!(refusal(&other.0, Origin::Unknown).contains("-o copied"));
    let fs = mounted(&original.0, Origin::Unknown);
    is_whole(&fs);
    // The locks of file and device are two: who takes one looks at the other.
    let in_use = |place: &str| {
        assert!(matches!(Fs::mount(place, &VolumeOptions::default()), Err(Error::InUse(_))));
        narufs(&["mkfs", "--force", place]).refused(1, "in use");
        narufs(&["fsck", place]).refused(8, "in use");
    };
    in_use(&image);
    drop(fs);
    let fs = mounted(&image, Origin::Unknown);
    is_whole(&fs);
    in_use(&original.0);
    fs.unmount().expect("it works");
}
