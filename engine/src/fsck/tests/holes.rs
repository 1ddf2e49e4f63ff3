//! Buckets that a directory has lost: what is theirs, and what seems to be.

use super::*;
use crate::format::Nid;
use trees::{empty, made_with_a_tree, names_in, with_leaves, with_leaves_in};

/// What lies behind it in its chain comes back with a bucket, marked or not.
#[test]
fn no_file_gets_a_block_that_a_lost_bucket_leads_to() {
    let expected = tool::names(&made(), made().dir);
    let (made, bucket, leaves) = made_with_a_tree();
    let mut further = 0;
    made.damage(|tool| {
        further = tool.first_two_free();
        let bytes = tool.image.read(bucket).expect("memory");
        tool.image.put(further, BlockKind::Bucket, bytes).expect("memory");
        tool.edit(bucket, BlockKind::Bucket, |bytes| {
            empty(bytes);
            bytes[BLOCK_HEADER_SIZE..][..8].copy_from_slice(&further.to_le_bytes());
        });
        tool.edit_inode(made.dir, |inode| inode.blocks.set(inode.blocks.get() + 1));
    });
    assert_eq!(made.repair().status(), 1);
    assert_eq!(made.check().issues, []);
    made.damage(|tool| {
        tool.smash(leaves[0], 100);
        let middle = tool.root(made.plain)[0].block + 1;
        tool.edit_run(made.marked, |run| run.block = middle);
        tool.leave_free(&[further, further + 1]);
    });
    let report = made.repair();
    assert_eq!(report.status(), 1, "{:#?}", report.issues);
    assert_eq!(made.check().issues, []);
    assert!(tool::names(&made, made.dir) == expected);
    made.damage(|tool| {
        assert_eq!(tool.buckets(made.marked), [further + 1]);
        assert!(tool.image.read(further + 1).expect("memory").iter().all(|byte| *byte == 2));
    });
}

/// Of a chain that goes from one group to another the marks of the first alone are lost; perhaps one in the second too.
#[test]
fn a_lost_bucket_keeps_its_names_where_its_marks_are_lost_and_not_those_of_what_it_leads_to() {
    let expected = tool::names(&made(), made().dir);
    for by_way in [false, true] {
        let made = tool::made_of_two_groups();
        let mut bucket = 0;
        made.damage(|tool| bucket = tool.buckets(made.dir)[0]);
        let (_, leaves) = with_leaves(&made, made.dir);
        let sb = superblock::read(&*made.device).expect("an image");
        let (second, last) = (superblock::group_start(&sb, 1), sb.blocks.get() - 1);
        assert!(bucket < second && second < leaves[0].min(last - 8));
        let chain = if by_way { vec![bucket, last - 8, last - 6] } else { vec![bucket, last - 6] };
        made.damage(|tool| {
            let names = tool.image.read(bucket).expect("memory");
            for (block, next) in chain.iter().zip(&chain[1..]) {
                let mut bytes = names.clone();
                empty(&mut bytes);
                bytes[BLOCK_HEADER_SIZE..][..8].copy_from_slice(&next.to_le_bytes());
                tool.image.put(*block, BlockKind::Bucket, bytes).expect("memory");
            }
            tool.image.put(last - 6, BlockKind::Bucket, names).expect("memory");
            let further = chain.len() as u64 - 1;
            tool.edit_inode(made.dir, |inode| inode.blocks.set(inode.blocks.get() + further));
        });
        assert_eq!(made.repair().status(), 1);
        assert_eq!(made.check().issues, []);
        made.damage(|tool| {
            tool.smash(leaves[0], 100);
            tool.smash(sb.groups_start.get(), 77);
            let at = (last - 8 - second) as usize;
            tool.edit(second, BlockKind::Bitmap, |bytes| {
                bytes[BLOCK_HEADER_SIZE + at / 8] &= !(1 << (at % 8));
            });
        });
        let report = made.repair();
        assert_eq!(report.status(), 1, "{:#?}", report.issues);
        assert_eq!(made.check().issues, [], "{by_way}");
        assert!(tool::names(&made, made.dir) == expected, "{by_way}");
    }
}

/// Of which is newer its position tells, also where a repair has written it.
#[test]
fn a_bucket_that_a_repair_has_written_is_not_taken_for_older_than_what_was_there_before() {
    let expected = tool::names(&made(), made().dir);
    let made = made();
    let (mut bucket, mut older) = (0, IoBuf::zeroed(0));
    let position = |bytes: &[u8]| image::header(bytes).expect("whole").position.get();
    made.damage(|tool| {
        bucket = tool.buckets(made.dir)[0];
        older = tool.image.read(bucket).expect("memory");
        empty(&mut older);
    });
    let (_, leaves) = with_leaves(&made, made.dir);
    made.damage(|tool| tool.edit(bucket, BlockKind::Bucket, |bytes| bytes[BLOCK_HEADER_SIZE + 12] ^= 1));
    let report = made.repair();
    assert_eq!((report.status(), report.of(IssueKind::BucketCount).count()), (1, 1));
    made.damage(|tool| {
        let written = position(&tool.image.read(bucket).expect("memory"));
        assert!(position(&older) > 0 && position(&older) < written);
        // The next mount begins there: no record of it ends so early.
        assert_eq!(written, tool.image.sb.next_position.get());
        tool.smash(leaves[0], 100);
        tool.smash(tool.image.sb.groups_start.get(), 77);
        tool.image.put(tool.image.sb.blocks.get() - 7, BlockKind::Bucket, older).expect("memory");
    });
    let report = made.repair();
    assert_eq!(report.status(), 1, "{:#?}", report.issues);
    assert_eq!(made.check().issues, []);
    assert!(tool::names(&made, made.dir) == expected);
}

/// An image with a second directory of several buckets.
fn made_with_another() -> (Made, Nid) {
    let made = made();
    // The ring is shared by all tests: this one takes its own.
    let made = Made { ring: Arc::new(HeapMemory::new(made.ring.len())), ..made };
    let nid = on_mount(made.media(), true, |fs| {
        let ctx = crate::vfs::Context::root();
        let another = fs.mkdir(&ctx, ROOT_NID, b"another", 0o755).expect("room").nid;
        for n in 0..300 {
            let name = format!("of another directory {n}");
            fs.mknod(&ctx, another, name.as_bytes(), libc::S_IFREG | 0o600, 0).expect("room");
        }
        another
    });
    (made, nid)
}

/// What one directory does not get for want of room is there for the next.
#[test]
fn a_directory_is_not_cut_off_for_want_of_what_another_could_not_use() {
    let (made, another) = made_with_another();
    let blocks = superblock::read(&*made.device).expect("an image").blocks.get();
    let both = [(made.dir, [blocks - 3, blocks - 5]), (another, [blocks - 7, blocks - 9])];
    let (mut lost, before) = (Vec::new(), tool::names(&made, another).len());
    for (dir, leaves) in both {
        made.damage(|tool| lost.push(tool.buckets(dir)[..2].to_vec()));
        let (middle, _) = with_leaves_in(&made, dir, leaves);
        assert!(middle >= 2);
    }
    let mut gone = 0;
    made.damage(|tool| {
        // Of the one two buckets are gone, of the other one, and there is a single free block.
        assert!(tool.place(made.dir) < tool.place(another));
        gone = names_in(tool, lost[1][0]);
        for block in [lost[0][0], lost[0][1], lost[1][0]] {
            tool.image.put_raw(block, IoBuf::zeroed(4096)).expect("memory");
        }
        both.iter().for_each(|(_, leaves)| tool.smash(leaves[0], 100));
        let free = tool.first_two_free();
        tool.leave_free(&[free]);
    });
    let report = made.repair();
    assert_eq!(report.of(IssueKind::DirBuckets).count(), 2, "{:#?}", report.issues);
    assert_eq!(tool::names(&made, another).len(), before - gone, "{:#?}", report.issues);
}
