//! The path of an image leads elsewhere while it is mounted: servers that follow serve the image that was mounted.

use crate::support::Mounted;
use narufs_testing::lab::Ring;
use narufs_testing::place::Place;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const IMAGE_BYTES: u64 = 64 << 20;
const SLOTS: u64 = 8192;

fn place() -> Place {
    Place::make(Path::new(env!("CARGO_TARGET_TMPDIR")), Ring::Ssd, IMAGE_BYTES, SLOTS).expect("room")
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn what_is_dirty_goes_to_no_other_image_that_has_the_name() {
    let mounted = Mounted::new("noatime");
    let (other, mut contents) = (place(), Vec::new());
    contents.push(fs::read(other.image()).expect("readable"));
    let (name, kept) = (mounted.place.image(), mounted.place.image().with_extension("kept"));
    fs::rename(&name, &kept).and_then(|()| fs::rename(other.image(), &name)).expect("room");
    for (number, how) in
        [Mounted::restart as fn(&Mounted), Mounted::upgrade, Mounted::restart].into_iter().enumerate()
    {
        fs::write(mounted.at(&number.to_string()), [number as u8 + 1; 30_000]).expect("room");
        how(&mounted);
        for earlier in 0..=number {
            let read = fs::read(mounted.at(&earlier.to_string())).expect("it is there");
            assert!(read == [earlier as u8 + 1; 30_000]);
        }
    }
    mounted.unmount();
    contents.push(fs::read(&name).expect("readable"));
    assert!(contents[0] == contents[1], "another image was written to");
    fs::rename(&name, other.image()).and_then(|()| fs::rename(&kept, &name)).expect("room");
    mounted.place.check().expect("nothing is wrong with the image");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn an_image_that_was_renamed_or_removed_is_served_on() {
    let mounted = Mounted::new("noatime");
    let (name, kept) = (mounted.place.image(), mounted.place.image().with_extension("kept"));
    fs::write(mounted.at("file"), "content").expect("room");
    fs::hard_link(&name, &kept).and_then(|()| fs::remove_file(&name)).expect("room");
    mounted.restart();
    mounted.upgrade();
    assert_eq!(fs::read_to_string(mounted.at("file")).expect("it is there"), "content");
    fs::rename(&kept, &name).expect("it is there");
    mounted.end();
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn an_image_below_its_own_mount_is_served_on() {
    let place = place();
    let below = place.point().join("image");
    fs::rename(place.image(), &below).and_then(|()| symlink(&below, place.image())).expect("room");
    let mounted = Mounted::of_place(place, "noatime");
    fs::write(mounted.at("file"), "content").expect("room");
    assert!(!below.exists());
    mounted.restart();
    mounted.upgrade();
    assert_eq!(fs::read_to_string(mounted.at("file")).expect("it is there"), "content");
    mounted.end();
}
