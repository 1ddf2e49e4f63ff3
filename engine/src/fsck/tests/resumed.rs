//! A repair that is interrupted, and whose resumption is interrupted too.

use super::*;
use std::collections::BTreeSet;

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

/// Repairs it after an interruption at each write; what there is then.
fn after_each_interruption(made: &Made, look: impl Fn(&Made, u64)) {
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
    assert!(interruptions > 10, "{interruptions}");
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
    after_each_interruption(&made, |made, writes| {
        assert_eq!(made.check().issues, [], "write {writes}");
        assert!(tool::names(made, made.dir) == expected, "write {writes}");
    });
}

/// What a file's run leaves, for another has a block of it, is the file's until its inode is home: no name is put aside
/// there.
#[test]
fn names_that_move_are_put_aside_in_nothing_that_a_file_leaves() {
    let made = exchanged(|tool| {
        let middle = tool.root(tool.made.plain)[0].block + 1;
        tool.edit_run(tool.made.marked, |run| run.block = middle);
    });
    let content = |made: &tool::Made| {
        let sb = superblock::read(&*made.device).expect("an image");
        let image = Image::new(Arc::new(Overlay::new(made.device.clone(), 8)), sb);
        let tool = tool::Tool { made, image: &image };
        let read = |block| image.read(block).expect("memory")[..8].to_vec();
        let of = |nid| {
            tool.root(nid)
                .iter()
                .flat_map(|run| run.block..run.block + u64::from(run.len))
                .map(read)
                .collect::<Vec<_>>()
        };
        [of(made.plain), of(made.marked)]
    };
    let whole = made.over(made.device.clone());
    assert_eq!(whole.repair().status(), 1);
    let expected = content(&whole);
    assert_eq!(expected[0], [vec![1; 8], vec![2; 8], vec![3; 8]]);
    after_each_interruption(&made, |made, writes| assert_eq!(content(made), expected, "write {writes}"));
}
