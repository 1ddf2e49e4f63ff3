//! Arbitrary images for fuzzers: bytes become changes of a small populated image, or of its journal, which is
//! then checked, repaired, or mounted and used. Nothing that media hold may panic, hang or loop.
//!
//! Each change may have the checksum that covers it made anew, so that what lies behind the checksums is reached
//! too. So are changes of the memory that a killed server leaves to the next one. The targets in `fuzz/` call these
//! functions, and so do tests here, which need no fuzzer.

mod left;
mod media;

pub use left::take_over;

use crate::Error;
use crate::device::BLOCK_SIZE;
use crate::format::{Nid, ROOT_NID};
use crate::fsck::{self, Options};
use crate::inode::FileType;
use crate::vfs::{Context, FallocateMode, OpenFlags, Vfs, WriteFlags, XattrMode};
use crate::volume::Running;
use crate::volume::{ImageOptions, Media, mount};
use media::{MANY, assemble_options, is_image, media, mount_options};

/// What an input's first byte says besides what it says of the media: the journal is given up, where that is needed.
const DISCARD: u8 = 2;
/// Repairs of one image at the most: each gives up what it has no room for, and that is room.
const REPAIRS: usize = 4;
/// Entries that are looked at.
const MOST_ENTRIES: usize = 200;

/// Checks, repairs, and checks again: after a repair nothing is left that a repair could mend, unless it says that it has left
/// something; and at last nothing is.
pub fn check_and_repair(input: &[u8]) {
    let media = media(input);
    // These images are a chunk or two: no other thread is worth its start.
    let to_check = Options { threads: 1, ..Options::default() };
    let options = Options {
        repair: true,
        discard_journal: input.first().is_some_and(|b| b & DISCARD != 0),
        ..to_check.clone()
    };
    if fsck::check(&media, &to_check).is_err() {
        return;
    }
    for _ in 0..REPAIRS {
        let left = match fsck::check(&media, &options) {
            Ok(report) => report.issues.iter().any(|issue| matches!(issue.outcome, fsck::Outcome::Left(_))),
            Err(Error::Refused(_)) => return,
            Err(e) => panic!("what can be checked can be repaired: {e}"),
        };
        let after = fsck::check(&media, &to_check).expect("it could be checked before");
        let mendable = after.issues.iter().find(|issue| matches!(issue.outcome, fsck::Outcome::Mendable));
        if mendable.is_none() {
            return;
        }
        // What a repair gives up is free for the next alone: that may have the room that this one lacked.
        assert!(left, "a repair has left what it could mend: {mendable:?}");
    }
    panic!("repairs do not come to an end");
}

/// Mounts without writing, and reads what can be read; then mounts, which recovers, and writes. What fails may
/// fail.
pub fn mount_and_use(input: &[u8]) {
    let media = media(input);
    if !is_image(&media) {
        return;
    }
    for read_only in [true, false] {
        let discard_journal = input.first().is_some_and(|b| b & DISCARD != 0);
        mount_once(media.clone(), &ImageOptions { discard_journal, ..mount_options(read_only) });
    }
}

fn mount_once(media: Media, options: &ImageOptions) {
    let read_only = options.read_only;
    let Ok(mounted) = mount(media, options) else { return };
    let read_only = read_only || mounted.store().failed().is_some();
    let Ok(running) = Running::start(mounted.checkpointer(), &assemble_options(read_only)) else { return };
    read(running.fs());
    if !read_only {
        // An error ends the writing, and that is all.
        let _ = write(running.fs());
        let _ = running.fs().trim(0..u64::MAX, BLOCK_SIZE as u64);
        let _ = running.fs().resize(None, true);
        if running.stop().is_ok() {
            let _ = mounted.unmount();
        }
    }
}

/// The entries of a directory.
fn entries(fs: &Vfs, dir: Nid) -> Vec<(Nid, Vec<u8>)> {
    let mut found = Vec::new();
    let Ok(handle) = fs.opendir(&Context::root(), dir) else { return found };
    // An error ends this directory and no other.
    let _ = fs.readdir(&handle, 2, &mut |entry| {
        found.push((entry.nid, entry.name.to_vec()));
        found.len() < MOST_ENTRIES
    });
    fs.releasedir(handle);
    found
}

fn read(fs: &Vfs) {
    // Who is no root is checked.
    let (ctx, other) = (Context::root(), Context::with_groups(7, 7, vec![8]));
    let mut dirs = vec![ROOT_NID];
    let mut budget = MOST_ENTRIES;
    while let Some(dir) = dirs.pop() {
        for (nid, name) in entries(fs, dir) {
            budget -= 1;
            if budget == 0 {
                return;
            }
            if let Ok(entry) = fs.lookup(&ctx, dir, &name) {
                fs.forget(entry.nid, 1);
            }
            let Ok(attr) = fs.getattr(nid) else { continue };
            for name in fs.listxattr(&ctx, nid).unwrap_or_default().split(|b| *b == 0) {
                let _ = fs.getxattr(&ctx, nid, name);
            }
            let _ = fs.access(&other, nid, 6);
            match attr.file_type {
                FileType::Directory => dirs.push(nid),
                FileType::Symlink => drop(fs.readlink(nid)),
                _ => {
                    let Ok(handle) = fs.open(&ctx, nid, OpenFlags::empty()) else { continue };
                    let _ = fs.read(&handle, 0, &mut [0; 3 * BLOCK_SIZE]);
                    let _ = fs.read(&handle, attr.size.saturating_sub(5), &mut [0; 10]);
                    let _ = fs.lseek(&handle, 0, crate::vfs::Whence::Hole);
                    fs.release(handle, None);
                }
            }
        }
    }
}

/// A little of everything, mostly on what is there.
fn write(fs: &Vfs) -> crate::Result<()> {
    let (ctx, page) = (Context::root(), BLOCK_SIZE as u64);
    for (dir, name) in entries(fs, ROOT_NID) {
        if name == MANY {
            // Its buckets are given back.
            let names = entries(fs, dir);
            let _ = names.iter().try_for_each(|(_, name)| fs.unlink(&ctx, dir, name));
            let _ = fs.rmdir(&ctx, ROOT_NID, MANY);
            continue;
        }
        for (n, (nid, name)) in entries(fs, dir).into_iter().enumerate() {
            let open = fs.open(&ctx, nid, OpenFlags::READ_WRITE);
            if let Ok(handle) = &open {
                let _ = match n % 6 {
                    0 => fs.fallocate(&ctx, handle, FallocateMode::PunchHole, page, 3 * page),
                    1 => fs.fallocate(&ctx, handle, FallocateMode::Insert, page, page),
                    2 => fs.fallocate(&ctx, handle, FallocateMode::Collapse, page, page),
                    3 => fs.setxattr(&ctx, nid, b"user.new", &[1; 5000], XattrMode::Any),
                    _ => fs.write(&ctx, handle, 70 * page + 9, &[5; 9000], WriteFlags::empty()).map(drop),
                };
                // Most of the time would go into these, and what is not synced goes home another way.
                if n % 5 == 0 {
                    let _ = fs.fsync(handle, false);
                }
            }
            if let Ok(handle) = open {
                fs.release(handle, None);
            }
            let _ = match n % 4 {
                0 => fs.unlink(&ctx, dir, &name).or_else(|_| fs.rmdir(&ctx, dir, &name)),
                1 => fs.rename(&ctx, dir, &name, ROOT_NID, b"moved", Default::default()),
                _ => fs.link(&ctx, nid, ROOT_NID, &name).map(|entry| fs.forget(entry.nid, 1)),
            };
        }
    }
    for n in 0..20 {
        let (_, handle, _) =
            fs.create(&ctx, ROOT_NID, format!("new {n:0>150}").as_bytes(), 0o644, OpenFlags::READ_WRITE)?;
        let written =
            if n % 5 == 0 { fs.write(&ctx, &handle, 0, &[7; 5000], WriteFlags::empty()) } else { Ok(0) };
        fs.release(handle, None);
        written?;
    }
    fs.syncfs()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    /// Changes that mostly hit metadata, and what the journal holds.
    fn input(seed: u64) -> Vec<u8> {
        let mut random = StdRng::seed_from_u64(seed);
        let count = random.random_range(1..12);
        let change = |random: &mut StdRng| {
            let place: u16 = random.random_range(0..120);
            let at: u16 = if random.random_bool(0.7) { random.random_range(0..700) } else { random.random() };
            let value: u16 =
                if random.random_bool(0.5) { random.random_range(0..300) } else { random.random() };
            let flags = u8::from(random.random_bool(0.8))
                | if random.random_bool(0.25) { 2 } else { 0 }
                | if random.random_bool(0.1) { 4 } else { 0 };
            [&place.to_le_bytes()[..], &at.to_le_bytes(), &value.to_le_bytes(), &[flags]].concat()
        };
        let first: u8 = random.random();
        std::iter::once(first).chain((0..count).flat_map(|_| change(&mut random))).collect()
    }

    fn each(f: impl Fn(&[u8])) {
        for seed in 0..150 {
            let input = input(seed);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(&input)));
            assert!(outcome.is_ok(), "seed {seed}");
        }
    }

    #[test]
    fn the_images_themselves_are_sound() {
        // With a batch that is pending, too; with the ring inside, and what stages it gone.
        for first in [0, 1, 5, 8, 9, 13, 24, 25, 29] {
            let report = fsck::check(&media(&[first]), &Options::default()).expect("an image");
            assert_eq!(report.issues, []);
            mount_and_use(&[first]);
        }
    }

    /// What the first repair gives up is the room in which the second puts what has no name.
    #[test]
    fn what_a_repair_leaves_for_want_of_room_the_next_mends() {
        check_and_repair(&[
            0x1f, 0x3b, 0, 0x2d, 1, 0x70, 0xa9, 3, 0xa3, 0, 0x77, 2, 0x4b, 0, 5, 0xeb, 0, 0x8b, 0, 4, 7, 9,
            0xdf, 0, 0xbb, 0xb, 0xfd, 0x3f, 9, 0x3c, 1, 0xe0, 1, 0x25, 0, 9, 0x5d, 1, 0x50, 0xb, 0xab, 0xbd,
            1, 0x67, 0, 0x1a, 0, 0x82, 0, 1, 0x34, 0, 0x78, 8, 0x4d, 0, 0xb,
        ]);
    }

    /// The ring in the image cannot hold what its staging has: as refused for a check as for a mount.
    #[test]
    fn what_no_ring_can_hold_is_found_by_a_check_too() {
        check_and_repair(&[
            0xd, 0xe4, 0xd, 0x5b, 0xc0, 0xc0, 0xc0, 0xc0, 0xf1, 0, 0xc7, 8, 0x18, 1, 7, 0x1f, 0, 0x45, 5,
            0xf6, 0x3f, 3, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0x7a, 0xc0, 0xc0, 0xc0,
            0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc2, 0, 0x54, 6, 0x10, 0, 5,
        ]);
    }

    #[test]
    fn arbitrary_images_are_checked_and_repaired_without_harm() {
        each(check_and_repair);
    }

    /// A superblock whose next position no ring can begin at: as damaged for a check as for a repair.
    #[test]
    fn an_impossible_position_is_found_by_a_check_too() {
        let at = std::mem::offset_of!(crate::format::Superblock, next_position) as u16 + 5;
        for copy in [0u16, 1] {
            let change = [&copy.to_le_bytes()[..], &at.to_le_bytes(), &[0, 0x32], &[4 | 1]].concat();
            check_and_repair(&[&[1][..], &change, &[0x11, 0, 0x2f, 0, 0, 0, 1]].concat());
        }
        let both = [0u16, 1].map(|copy| [&copy.to_le_bytes()[..], &at.to_le_bytes(), &[0, 0x32, 5]].concat());
        let input = [&[1][..], &both.concat(), &[0x11, 0, 0x2f, 0, 0, 0, 1]].concat();
        check_and_repair(&input);
        assert!(!is_image(&media(&input)), "no copy of the superblock can be used");
    }

    /// A journal in the image that is given up, for what stages it is gone and its header is spoilt, is made blank at once.
    #[test]
    fn a_journal_that_is_given_up_is_made_blank() {
        check_and_repair(&[0x1b, 0, 0x1f, 0x7f, 9, 0, 0x1f, 0x7f]);
    }

    /// An extent tree that is damaged where a new page is to go: what was allocated for the page is had back.
    #[test]
    fn a_page_that_has_no_place_in_a_damaged_tree_keeps_what_is_set_aside() {
        mount_and_use(&[1, 0x25, 0, 0x7c, 0x0d, 0x32, 1, 0, 0x10, 0, 0x9f, 6, 0x3c, 0, 1]);
    }

    /// A bitmap that has blocks of metadata as free, with its checksum made anew: they are not given back.
    #[test]
    fn metadata_that_the_bitmap_has_as_free_is_not_given_back() {
        mount_and_use(&[
            0x0a, 0xf9, 0xf9, 0xf9, 0xf9, 0xf9, 0xf9, 0xf9, 0x45, 0, 1, 0, 0xc9, 0, 9, 0x2e, 0, 0x21, 0,
            0x77, 0, 9, 0x4d, 1, 0x11, 1, 0x78, 0, 3,
        ]);
    }

    #[test]
    fn arbitrary_images_are_mounted_and_used_without_harm() {
        each(mount_and_use);
    }
}
