//! A server finds damage where the one before it has left none: what can be read is served, and nothing is written.

use crate::support::{Mounted, mount, said, unmount};
use narufs_engine::device::{ImageFile, open_device};
use narufs_engine::format::{BLOCK_SIZE, Superblock};
use narufs_engine::superblock;
use narufs_testing::lab::Ring;
use narufs_testing::place::Place;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

fn superblock_of(place: &Place) -> Superblock {
    let image = ImageFile::open(&place.image()).expect("nobody has it");
    superblock::read(open_device(image).as_ref()).expect("readable")
}

/// Nothing of a block is as it was; how it was.
fn spoil(place: &Place, block: u64) -> Vec<u8> {
    replace(place, block, &[0x5a; BLOCK_SIZE])
}

fn replace(place: &Place, block: u64, by: &[u8]) -> Vec<u8> {
    let image = File::options().read(true).write(true).open(place.image()).expect("it is there");
    let mut old = vec![0; BLOCK_SIZE];
    image.read_exact_at(&mut old, block * BLOCK_SIZE as u64).expect("readable");
    image.write_all_at(by, block * BLOCK_SIZE as u64).expect("room");
    image.sync_all().expect("durable");
    old
}

/// An image with a directory in its place, and what else is made there.
fn made(fill: impl Fn(&Path)) -> Place {
    let under = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = Place::make(under, Ring::Ssd, 256 << 20, 8192).expect("room");
    let out = mount(&place, "noatime,supervise=no");
    assert!(out.status.success(), "{}", said(&out));
    fs::create_dir(place.point().join("dir")).expect("room");
    fill(&place.point());
    unmount(&place);
    place
}

fn is_survived(block: impl Fn(&Superblock) -> u64) {
    is_survived_by(|_| {}, block);
}

fn is_survived_by(prepare: impl Fn(&Place), block: impl Fn(&Superblock) -> u64) {
    let at = tempfile::tempdir().expect("room");
    let log = at.path().join("log");
    // It is in its place in the image: what the journal alone has could not be redone on what is damaged.
    let place = made(|point| fs::write(point.join("dir/file"), b"content").expect("room"));
    prepare(&place);
    let mounted = Mounted::heard_at(place, "noatime,commit=3600", &log);
    let mut file = File::options().append(true).open(mounted.at("dir/file")).expect("it is there");
    let reader = File::open(mounted.at("dir/file")).expect("it is there");
    mounted.stay_down();
    spoil(&mounted.place, block(&superblock_of(&mounted.place)));
    mounted.go_on();
    let mut bytes = [0; 7];
    reader.read_exact_at(&mut bytes, 0).expect("readable");
    assert_eq!(&bytes, b"content");
    assert_eq!(fs::read(mounted.at("dir/file")).expect("readable"), b"content");
    for refused in [
        fs::create_dir(mounted.at("other")).expect_err("it is read-only"),
        file.write_all(b"more").expect_err("it is read-only"),
        fs::remove_file(mounted.at("dir/file")).expect_err("it is read-only"),
    ] {
        assert_eq!(refused.raw_os_error(), Some(libc::EROFS), "{refused}");
    }
    let stats = mounted.stats();
    let why = stats["read_only"].as_str().unwrap_or_else(|| panic!("{stats}"));
    assert!(why.contains("damaged") && why.contains("run fsck"), "{why}");
    // And so does the next one.
    mounted.restart();
    assert_eq!(fs::read(mounted.at("dir/file")).expect("readable"), b"content");
    drop((file, reader));
    mounted.unmount();
    let said = fs::read_to_string(&log).expect("it has said something");
    assert!(said.contains("mounted read-only"), "{said}");
    let issues = mounted.place.check().expect_err("the image is damaged still");
    assert!(!issues.is_empty());
}

/// It has given up by then what would let it open the image once more.
#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_server_that_finds_damage_in_another_user_s_image_serves_what_can_be_read() {
    let give = |place: &Place| {
        let image = place.image();
        std::os::unix::fs::chown(&image, Some(65534), Some(65534)).expect("root may");
        fs::set_permissions(&image, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("root may");
    };
    is_survived_by(give, |superblock| superblock.groups_start.get());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_server_that_finds_damage_serves_what_can_be_read() {
    // A bitmap, without which nobody knows what is free; the table of what is unfinished.
    is_survived(|superblock| superblock.groups_start.get());
    is_survived(|superblock| superblock.orphan_root.get());
}

/// A page is damaged that the journal has changes for, before anything else that it has: the next server says so, shows
/// what was synced behind that, and takes nothing from who can read the page again.
#[test]
#[ignore = "needs root and /dev/fuse"]
fn damage_in_front_of_what_a_killed_server_has_promised_takes_none_of_it() {
    let at = tempfile::tempdir().expect("room");
    let log = at.path().join("log");
    let place = made(|_| ());
    let mounted = Mounted::heard_at(place, "noatime,commit=3600", &log);
    // Each takes blocks, which the bitmap tells of.
    let names: Vec<String> = (0..20).map(|n| format!("dir/{n}")).collect();
    let content = |name: &str| name.repeat(4000).into_bytes();
    for name in &names {
        let mut file = File::create(mounted.at(name)).expect("room");
        file.write_all(&content(name)).expect("room");
        file.sync_all().expect("it works");
    }
    let are_there = |mounted: &Mounted| {
        for name in &names {
            assert!(fs::read(mounted.at(name)).expect("synced") == content(name), "{name}");
        }
    };
    mounted.stay_down();
    let block = superblock_of(&mounted.place).groups_start.get();
    let old = spoil(&mounted.place, block);
    mounted.go_on();
    for _ in 0..3 {
        are_there(&mounted);
        let refused = fs::create_dir(mounted.at("other")).expect_err("it is read-only");
        assert_eq!(refused.raw_os_error(), Some(libc::EROFS), "{refused}");
        let stats = mounted.stats();
        let why = stats["read_only"].as_str().unwrap_or_else(|| panic!("{stats}"));
        // Where a checkpoint came before the kill the journal has nothing for it, and it is found when it is read.
        let is_found = why.contains("cannot be redone") || why.contains("has no magic");
        assert!(is_found && why.contains("run fsck"), "{why}");
        mounted.restart();
    }
    mounted.unmount();
    replace(&mounted.place, block, &old);
    let out = mount(&mounted.place, "noatime,supervise=no");
    assert!(out.status.success(), "{}", said(&out));
    are_there(&mounted);
    fs::create_dir(mounted.at("other")).expect("it is whole again");
    mounted.unmount();
    mounted.place.check().expect("nothing is damaged");
}
