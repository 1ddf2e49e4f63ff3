//! A repair that is interrupted, and whose resumption is interrupted too.

use super::*;
use crate::extent::{Run, encode};
use crate::format::{EXTENT_ENTRY_SIZE, Nid};
use std::collections::BTreeSet;
use zerocopy::IntoBytes;

/// A damaged image whose repair takes many batches: each bucket of a directory has an entry that leads nowhere.
fn damaged() -> Made {
    let made = made();
    made.damage(|tool| {
        for bucket in tool.buckets(made.dir) {
            tool.edit(bucket, BlockKind::Bucket, |bytes| {
                let at = crate::format::BUCKET_START;
                bytes[at..at + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
            });
        }
    });
    let mut sb = superblock::read(&*made.device).expect("an image");
    // One segment of three images.
    sb.dw_blocks.set(4);
    superblock::write(&*made.device, &mut sb).expect("memory");
    made
}

/// Repairs, and fails at a write; whether it came so far.
pub(super) fn interrupted(made: &Made, writes: u64) -> bool {
    let failing = Arc::new(Failing::after(made.device.clone(), writes));
    let media = Media { device: failing.clone(), ..made.media() };
    let outcome = check(&media, &repairing());
    assert!(outcome.is_err() || !failing.failed());
    failing.failed()
}

#[test]
fn a_repair_that_is_interrupted_twice_loses_nothing_more() {
    let damaged = damaged();
    let whole = damaged.over(damaged.device.clone());
    assert_eq!(whole.repair().status(), 1);
    let expected: BTreeSet<Vec<u8>> = tool::names(&whole, whole.dir);
    assert!(expected.len() > 200);
    let mut turns = 0;
    for first in 0.. {
        let once = damaged.over(damaged.device.clone());
        if !interrupted(&once, first) {
            break;
        }
        for second in 0..8 {
            let twice = once.over(once.device.clone());
            interrupted(&twice, second);
            assert!(twice.repair().status() <= 1, "writes {first}, {second}");
            assert_eq!(tool::names(&twice, twice.dir), expected, "writes {first}, {second}");
            assert_eq!(twice.check().issues, [], "writes {first}, {second}");
            turns += 1;
        }
    }
    assert!(turns > 50);
}

/// An image in which two buckets have each other's entries, and what else is done to it; each block goes home by itself.
fn exchanged(damage: impl FnOnce(&tool::Tool<'_>)) -> Made {
    let made = made();
    made.damage(|tool| {
        let (_, plant) = PLANTS.iter().find(|(kind, _)| *kind == IssueKind::DentryBucket).expect("planted");
        plant(tool);
        damage(tool);
    });
    let mut sb = superblock::read(&*made.device).expect("an image");
    // One segment of one image.
    sb.dw_blocks.set(2);
    superblock::write(&*made.device, &mut sb).expect("memory");
    made
}

/// Repairs it after an interruption at each write, and looks at what there is then; how many interruptions there were.
fn after_each_interruption(made: &Made, look: impl Fn(&Made, u64)) -> u64 {
    let mut interruptions = 0;
    for writes in 0.. {
        let made = made.over(made.device.clone());
        if !interrupted(&made, writes) {
            break;
        }
        interruptions += 1;
        assert!(made.repair().status() <= 1, "write {writes}");
        look(&made, writes);
    }
    interruptions
}

/// Two buckets have each other's entries: what one repair moves goes over several batches, and is always in one of them.
#[test]
fn names_that_move_to_their_buckets_are_lost_at_no_write() {
    let made = exchanged(|_| {});
    let whole = made.over(made.device.clone());
    assert_eq!(whole.repair().status(), 1);
    let expected: BTreeSet<Vec<u8>> = tool::names(&whole, whole.dir);
    assert_eq!(expected.len(), 302);
    assert_eq!(whole.check().issues, []);
    let interruptions = after_each_interruption(&made, |made, writes| {
        assert_eq!(made.check().issues, [], "write {writes}");
        assert!(tool::names(made, made.dir) == expected, "write {writes}");
    });
    assert!(interruptions > 10, "{interruptions}");
}

/// Two buckets have each other's entries, and a file, whose inode goes home after one of them, seems to have the block before
/// its own two: these are the first that will be free once it is given others. Perhaps the marks are lost.
struct Contested {
    damaged: Made,
    file: Nid,
}

impl Contested {
    fn new(marks_lost: bool) -> Contested {
        let (mut file, mut row) = (0, 0);
        let damaged = exchanged(|tool| {
            let dir = tool.made.dir;
            let files =
                (0..300).map(|n| tool.named(dir, format!("a file with a longer name {n}").as_bytes()));
            file = files.max_by_key(|nid| tool.place(*nid)).expect("many");
            assert!(tool.place(file).0 > tool.buckets(dir)[0]);
            row = tool.first_two_free();
            for (block, byte) in (row..).zip([8, 9]) {
                tool.image.put_raw(block, IoBuf::from_slice(&[byte; 4096])).expect("memory");
            }
            tool.mark(&[row, row + 1]);
            let run = Run { logical: 0, len: 3, block: row - 1, unwritten: false };
            tool.edit_inode(file, |inode| {
                inode.inline[..EXTENT_ENTRY_SIZE].copy_from_slice(encode(&run).as_bytes());
                (inode.extent_depth, inode.extent_count) = (0, 1);
            });
            if marks_lost {
                tool.smash(tool.image.sb.groups_start.get(), 77);
            }
        });
        let whole = damaged.over(damaged.device.clone());
        assert_eq!(whole.repair().status(), 1);
        whole.damage(|tool| {
            assert_eq!(tool.first_two_free(), row);
            assert_ne!(tool.buckets(file)[0], row - 1);
        });
        let contested = Contested { damaged, file };
        contested.assert_whole(&whole, (0, 0));
        contested
    }

    /// The file has what was in its blocks.
    fn assert_whole(&self, made: &Made, writes: (u64, u64)) {
        let sb = superblock::read(&*made.device).expect("an image");
        let image = Image::new(Arc::new(Overlay::new(made.device.clone(), 8)), sb);
        let blocks = tool::Tool { made, image: &image }.buckets(self.file);
        for (block, byte) in blocks[1..].iter().zip([8, 9]) {
            let bytes = image.read(*block).expect("memory");
            assert!(bytes.iter().all(|found| *found == byte), "writes {writes:?}, block {block}");
        }
    }
}

/// What a file's run leaves, for another has a block of it, is the file's until its inode is home: no name is put aside
/// there, not by a second repair either, which finds the marks as the first has meant them to be.
#[test]
fn names_that_move_are_put_aside_in_nothing_that_a_file_leaves() {
    let contested = Contested::new(false);
    let mut turns = 0;
    for first in 0.. {
        let once = contested.damaged.over(contested.damaged.device.clone());
        if !interrupted(&once, first) {
            break;
        }
        turns += after_each_interruption(&once, |made, second| contested.assert_whole(made, (first, second)));
    }
    assert!(turns > 100, "{turns}");
}

#[test]
fn names_that_move_are_put_aside_in_nothing_that_a_file_leaves_though_no_marks_are_left() {
    let contested = Contested::new(true);
    let interruptions =
        after_each_interruption(&contested.damaged, |made, writes| contested.assert_whole(made, (writes, 0)));
    assert!(interruptions > 10, "{interruptions}");
}
