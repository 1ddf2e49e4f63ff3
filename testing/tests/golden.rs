//! Every image that an earlier build has left is mounted, recovered, checked, read and written by this one.

use narufs_engine::fsck;
use narufs_engine::path::Files;
use narufs_engine::superblock;
use narufs_engine::volume::{ImageOptions, Media};
use narufs_testing::golden::manifest;
use narufs_testing::golden::media::{device, differences, media, mounted};
use std::path::{Path, PathBuf};

/// The sets of every version of the format and every build that has left some.
fn sets() -> Vec<PathBuf> {
    let below = |dir: PathBuf| {
        let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let mut found: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
        found.retain(|path| path.is_dir());
        found.sort();
        found
    };
    let versions = below(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden"));
    versions.into_iter().flat_map(below).flat_map(below).collect()
}

fn options(read_only: bool) -> ImageOptions {
    ImageOptions { read_only, ..ImageOptions::default() }
}

/// Mounts, looks whether the tree is as the manifest says, works on it, and unmounts.
fn used(set: &Path, media: &Media, read_only: bool, expected: &[String], work: impl FnOnce(&Files)) {
    let name = set.display();
    let done = mounted(media, &options(read_only), |found, files| {
        let (more, fewer) = differences(&found, expected);
        assert!(more.is_empty() && fewer.is_empty(), "{name}: found {more:#?} in the place of {fewer:#?}");
        work(files);
    });
    done.unwrap_or_else(|e| panic!("{name}: {e}"));
}

fn checked(set: &Path, media: &Media) {
    let report = fsck::check(media, &fsck::Options::default()).expect("an image");
    assert_eq!(report.issues, [], "{}", set.display());
}

#[test]
fn what_every_earlier_build_has_left_is_mounted_recovered_checked_and_read() {
    let sets: Vec<_> = sets().into_iter().filter(|set| !set.ends_with("scratch-spill")).collect();
    assert!(sets.len() >= 20, "{sets:?}");
    for set in &sets {
        let expected = manifest(set).expect("a manifest");
        assert!(!expected.is_empty());
        let media = media(set).expect("an image");
        checked(set, &media);
        used(set, &media, true, &expected, |_| {});
        used(set, &media, false, &expected, |_| {});
        checked(set, &media);
        used(set, &media, false, &expected, |files| {
            let file = files.create("/new").expect("room");
            file.write_at(b"by a later build", 0).expect("room");
            file.sync_all().expect("memory");
        });
        checked(set, &media);
        used(set, &media, false, &with_new(&expected), |files| files.remove_file("/new").expect("there"));
        used(set, &media, false, &expected, |_| {});
        checked(set, &media);
    }
}

fn with_new(lines: &[String]) -> Vec<String> {
    let crc = crc32c::crc32c(b"by a later build");
    let new = format!("/new mode=100644 nlink=1 uid=0 gid=0 rdev=0 size=16 crc32c={crc:08x}");
    let mut lines = [lines, &[new]].concat();
    lines.sort();
    lines
}

#[test]
fn spill_space_that_a_killed_server_has_left_is_refused() {
    let sets: Vec<_> = sets().into_iter().filter(|set| set.ends_with("scratch-spill")).collect();
    assert!(sets.len() >= 2, "{sets:?}");
    for set in sets {
        let why =
            superblock::read(&*device(&set).expect("blocks")).expect_err("nothing is kept there").to_string();
        assert!(why.contains("not a narufs image"), "{why}");
    }
}

/// What was never synced is in the ring, or in the memory that it is staged in, and nowhere else.
#[test]
fn where_nothing_was_synced_the_journal_alone_holds_everything() {
    let sets: Vec<_> =
        sets().into_iter().filter(|set| set.to_string_lossy().ends_with("-killed-unsynced")).collect();
    assert!(sets.len() >= 2, "{sets:?}");
    for set in &sets {
        let name = set.display();
        assert!(set.join("ring.gz").exists() && manifest(set).expect("a manifest").len() > 40, "{name}");
        let media = media(set).expect("an image");
        let given_up = ImageOptions { discard_journal: true, ..options(true) };
        let left = mounted(&media, &given_up, |found, _| found).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(left.is_empty(), "{name}: {left:#?}");
    }
}
