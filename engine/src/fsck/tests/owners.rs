//! Damage that makes one thing look like the owner of another's blocks takes nothing from the other.

use super::*;
use crate::format::{INODE_SIZE, Nid};
use std::collections::BTreeSet;
use tool::names;

/// The data of the file of three blocks, each full of its number, as they are on the device.
fn assert_plain_is_whole(made: &Made) {
    made.damage(|tool| {
        for (at, block) in (1..).zip(tool.buckets(made.plain)) {
            let bytes = tool.image.read(block).expect("memory");
            assert!(bytes.iter().all(|byte| *byte == at), "block {at} of the file");
        }
    });
}

#[test]
fn a_directory_that_seems_to_have_a_file_s_blocks_gets_none_of_them() {
    let made = made();
    made.damage(|tool| {
        let data = tool.root(made.plain)[0].block;
        tool.edit_run(made.inner, |run| run.block = data);
    });
    let report = made.repair();
    assert_eq!(report.status(), 1, "{:#?}", report.issues);
    assert_eq!(made.check().issues, []);
    assert_plain_is_whole(&made);
}

/// A run that seems longer than it is: the buckets that are its own stay.
#[test]
fn a_directory_keeps_its_own_buckets_where_it_seems_to_have_others_blocks_behind_them() {
    let made = made();
    let before = names(&made, made.inner);
    made.damage(|tool| {
        let data = tool.root(made.plain)[0].block;
        let own = tool.root(made.inner)[0];
        // The one bucket moves to just before the file's data, which then seems to be more of them.
        let bytes = tool.image.read(own.block).expect("memory");
        assert_eq!((own.len, tool.root(made.plain)[0].len), (1, 3));
        let third = data + 2;
        let copy = tool.image.sb.blocks.get() - 5;
        let content = tool.image.read(third).expect("memory");
        tool.image.put_raw(copy + 1, content).expect("memory");
        tool.image.put(copy, BlockKind::Bucket, bytes).expect("memory");
        tool.edit_run(made.inner, |run| (run.block, run.len) = (copy, 2));
        tool.edit_run(made.plain, |run| run.len = 2);
        // Of the file the third block lies behind the bucket.
        tool.edit_inode(made.plain, |inode| {
            use zerocopy::IntoBytes;
            let run = crate::extent::Run { logical: 2, len: 1, block: copy + 1, unwritten: false };
            inode.inline[16..32].copy_from_slice(crate::extent::encode(&run).as_bytes());
            inode.extent_count = 2;
        });
    });
    let report = made.repair();
    assert_eq!(report.status(), 1, "{:#?}", report.issues);
    assert_eq!(made.check().issues, []);
    assert_eq!(names(&made, made.inner), before);
    assert_plain_is_whole(&made);
}

#[test]
fn a_directory_that_seems_to_have_another_s_buckets_takes_none_of_its_names() {
    let made = made();
    let before: BTreeSet<Vec<u8>> = names(&made, made.inner);
    let owns = |dir: Nid| names(&made, dir).len();
    assert!(owns(made.inner) == 1 && owns(made.dir) > 300);
    made.damage(|tool| {
        // The directory whose inode comes first claims first.
        let bucket = tool.root(made.inner)[0].block;
        tool.edit_run(made.dir, |run| (run.block, run.len) = (bucket, 1));
    });
    let report = made.repair();
    assert_eq!(report.status(), 1, "{:#?}", report.issues);
    assert_eq!(made.check().issues, []);
    assert_eq!(names(&made, made.inner), before);
    assert_plain_is_whole(&made);
}

/// What a chain leads to is claimed after all buckets.
#[test]
fn a_directory_that_seems_to_have_what_another_s_chain_leads_to_leaves_it_alone() {
    let made = made();
    let before = names(&made, made.inner);
    made.damage(|tool| {
        let bucket = tool.buckets(made.inner)[0];
        let further = tool.image.sb.blocks.get() - 5;
        let mut end = tool.image.read(bucket).expect("memory");
        end[BLOCK_HEADER_SIZE..].fill(0);
        tool.image.put(further, BlockKind::Bucket, end).expect("memory");
        tool.edit(bucket, BlockKind::Bucket, |bytes| {
            bytes[BLOCK_HEADER_SIZE..][..8].copy_from_slice(&further.to_le_bytes());
        });
        tool.edit_run(made.dir, |run| (run.block, run.len) = (further, 1));
    });
    let report = made.repair();
    assert_eq!(report.status(), 1, "{:#?}", report.issues);
    assert!(report.issues.iter().all(|issue| issue.kind != IssueKind::BucketChain), "{:#?}", report.issues);
    assert_eq!(made.check().issues, []);
    assert_eq!(names(&made, made.inner), before);
    assert_plain_is_whole(&made);
}

/// A block of inodes that turns out to be nobody's is written over all the same: no copy goes there.
#[test]
fn what_a_file_gets_a_copy_of_is_put_into_no_block_that_the_repair_writes() {
    let made = made();
    let (mut garbage, mut free) = (0, 0);
    made.damage(|tool| {
        garbage = tool.place(tool.named(made.dir, b"a file with a longer name 150")).0;
        free = tool.image.sb.blocks.get() - 5;
        for nid in [ROOT_NID, made.dir, made.inner, made.plain, made.marked] {
            assert_ne!(tool.place(nid).0, garbage);
        }
        let mut bytes = tool.image.read(garbage).expect("memory");
        bytes.chunks_exact_mut(INODE_SIZE).for_each(|slot| slot[8..16].fill(0xaa));
        tool.image.put_raw(garbage, bytes).expect("memory");
        let middle = tool.root(made.plain)[0].block + 1;
        tool.edit_run(made.marked, |run| run.block = middle);
        // Nothing is free but that block, and one more.
        tool.leave_free(&[garbage, free]);
    });
    let report = made.repair();
    assert_eq!(report.status(), 1, "{:#?}", report.issues);
    assert!(report.of(IssueKind::InodeStray).any(|issue| issue.place.block == Some(garbage)));
    assert_eq!(made.check().issues, []);
    assert_plain_is_whole(&made);
    made.damage(|tool| {
        assert_eq!(tool.buckets(made.marked), [free]);
        assert!(tool.image.read(free).expect("memory").iter().all(|byte| *byte == 2));
    });
}
