//! Extent trees of several leaves that lose one of them, and go on being written.

use super::*;
use crate::format::{BLOCK_HEADER_SIZE, BlockHeader, EXTENT_NODE_ENTRIES, EXTENT_NODE_START, Nid};
use crate::vfs::{Context, OpenFlags, Vfs, WriteFlags};

const NAME: &[u8] = b"of two leaves";
/// Runs of one block: more than a leaf has, the first of them some pages in.
const PAGES: u64 = 300;
const FIRST: u64 = 4;

fn page_of(nth: u64) -> u64 {
    FIRST + 2 * nth
}

fn write(fs: &Vfs, page: u64) {
    let ctx = Context::root();
    let entry = fs.lookup(&ctx, ROOT_NID, NAME).expect("made");
    let file = fs.open(&ctx, entry.nid, OpenFlags::READ_WRITE).expect("it is there");
    let bytes = [page as u8 + 1; 4096];
    fs.write(&ctx, &file, page * 4096, &bytes, WriteFlags::empty()).expect("room");
    fs.fsync(&file, false).expect("the tree takes it");
    fs.release(file, None);
}

/// The first bytes of pages.
fn read(fs: &Vfs, pages: &[u64]) -> Vec<u8> {
    let ctx = Context::root();
    let entry = fs.lookup(&ctx, ROOT_NID, NAME).expect("made");
    let file = fs.open(&ctx, entry.nid, OpenFlags::empty()).expect("it is there");
    let first = |page: &u64| {
        let mut bytes = [0];
        assert_eq!(fs.read(&file, page * 4096, &mut bytes), Ok(1));
        bytes[0]
    };
    let found = pages.iter().map(first).collect();
    fs.release(file, None);
    found
}

/// An image with such a file, and its number.
fn made_with_leaves() -> (Made, Nid) {
    let made = made();
    // The ring is shared by all tests: this one takes its own.
    let made = Made { ring: Arc::new(HeapMemory::new(made.ring.len())), ..made };
    let nid = on_mount(made.media(), true, |fs| {
        let ctx = Context::root();
        let (entry, file, _) = fs.create(&ctx, ROOT_NID, NAME, 0o644, OpenFlags::READ_WRITE).expect("room");
        for page in (0..PAGES).map(page_of) {
            let bytes = [page as u8 + 1; 4096];
            fs.write(&ctx, &file, page * 4096, &bytes, WriteFlags::empty()).expect("room");
        }
        fs.fsync(&file, false).expect("memory");
        fs.release(file, None);
        entry.nid
    });
    made.damage(|tool| assert_eq!(tool.root(nid).len(), 2));
    (made, nid)
}

/// Repairs it, and goes on writing in front of what is left.
#[track_caller]
fn repaired_goes_on(made: &Made, lost: u64) {
    let report = made.repair();
    assert_eq!(report.status(), 1, "{:#?}", report.issues);
    assert_eq!(made.check().issues, []);
    on_mount(made.media(), true, |fs| [0, 2].into_iter().for_each(|page| write(fs, page)));
    assert_eq!(made.check().issues, []);
    let (last, kept) = (page_of(PAGES - 1), page_of(lost));
    on_mount(made.media(), true, |fs| {
        let found = read(fs, &[0, 2, FIRST, kept, last]);
        let first = if lost == 0 { FIRST as u8 + 1 } else { 0 };
        assert_eq!(found, [1, 3, first, kept as u8 + 1, last as u8 + 1]);
    });
}

#[test]
fn a_tree_that_loses_its_first_leaf_takes_what_is_written_there_again() {
    let (made, nid) = made_with_leaves();
    made.damage(|tool| tool.smash(tool.root(nid)[0].block, 100));
    repaired_goes_on(&made, EXTENT_NODE_ENTRIES as u64);
}

/// As an earlier repair has left it.
#[test]
fn a_first_key_that_a_repair_has_left_too_high_is_set_and_its_runs_are_kept() {
    let (made, nid) = made_with_leaves();
    made.damage(|tool| tool.edit_run(nid, |run| run.logical = FIRST as u32));
    let report = made.check();
    assert_eq!((report.issues.len(), report.of(IssueKind::ExtentOrder).count()), (1, 1));
    repaired_goes_on(&made, 0);
    // A run below it, as the next write has put it there.
    made.damage(|tool| {
        tool.edit_run(nid, |run| run.logical = FIRST as u32);
        let leaf = tool.root(nid)[0].block;
        tool.edit(leaf, BlockKind::Extents, |bytes| {
            assert_eq!(bytes[EXTENT_NODE_START..EXTENT_NODE_START + 4], [0; 4]);
        });
    });
    repaired_goes_on(&made, 0);
}

/// Gives a directory a tree of two leaves; the first bucket of the second, and the blocks of the leaves.
pub(super) fn with_leaves(made: &Made, dir: Nid) -> (u32, [u64; 2]) {
    let blocks = superblock::read(&*made.device).expect("an image").blocks.get();
    with_leaves_in(made, dir, [blocks - 3, blocks - 5])
}

/// An image whose directory has such a tree; the block of its first bucket, and those of the leaves.
pub(super) fn made_with_a_tree() -> (Made, u64, [u64; 2]) {
    let made = made();
    let mut bucket = 0;
    made.damage(|tool| bucket = tool.buckets(made.dir)[0]);
    let (_, leaves) = with_leaves(&made, made.dir);
    (made, bucket, leaves)
}

/// Puts the leaves into free blocks.
pub(super) fn with_leaves_in(made: &Made, dir: Nid, leaves: [u64; 2]) -> (u32, [u64; 2]) {
    use crate::extent::{Run, encode};
    use crate::format::EXTENT_ENTRY_SIZE;
    use zerocopy::IntoBytes;
    let mut middle = 0;
    made.damage(|tool| {
        let buckets = tool.buckets(dir);
        middle = buckets.len() as u32 / 2;
        let (first, second) = buckets.split_at(middle as usize);
        let mut root = Vec::new();
        for ((buckets, logical), leaf) in [(first, 0), (second, middle)].into_iter().zip(leaves) {
            let inode = tool.inode(dir);
            let mut bytes = image::fresh(BlockKind::Extents, dir, inode.generation.get());
            bytes[BLOCK_HEADER_SIZE] = buckets.len() as u8;
            let entries = bytes[EXTENT_NODE_START..].chunks_exact_mut(EXTENT_ENTRY_SIZE);
            for ((entry, block), logical) in entries.zip(buckets).zip(logical..) {
                let run = Run { logical, len: 1, block: *block, unwritten: false };
                entry.copy_from_slice(encode(&run).as_bytes());
            }
            tool.image.put(leaf, BlockKind::Extents, bytes).expect("memory");
            root.extend_from_slice(
                encode(&Run { logical, len: 0, block: leaf, unwritten: false }).as_bytes(),
            );
        }
        tool.edit_inode(dir, |inode| {
            inode.inline[..root.len()].copy_from_slice(&root);
            (inode.extent_depth, inode.extent_count) = (1, 2);
            inode.blocks.set(inode.blocks.get() + 2);
        });
    });
    // The bitmap knows nothing of them yet.
    assert_eq!(made.repair().status(), 1);
    assert_eq!(made.check().issues, []);
    (middle, leaves)
}

#[test]
fn a_directory_that_loses_a_block_of_its_extents_keeps_the_names_in_all_buckets() {
    let expected = tool::names(&made(), made().dir);
    for leaf in 0..2 {
        for lost in [0, 2] {
            let made = made();
            let mut buckets = Vec::new();
            made.damage(|tool| buckets = tool.buckets(made.dir));
            let (middle, leaves) = with_leaves(&made, made.dir);
            let range = if leaf == 0 { 0..middle as usize } else { middle as usize..buckets.len() };
            let mut gone = 0;
            made.damage(|tool| {
                tool.smash(leaves[leaf], 100);
                // Of these buckets nothing is left either.
                for block in &buckets[range.clone()][..lost] {
                    gone += names_in(tool, *block);
                    tool.image.put_raw(*block, IoBuf::zeroed(4096)).expect("memory");
                }
            });
            let report = made.repair();
            assert_eq!(report.status(), 1, "{:#?}", report.issues);
            assert_eq!(report.of(IssueKind::DirBuckets).count(), 1, "{:#?}", report.issues);
            assert_eq!(made.check().issues, [], "leaf {leaf}, {lost} lost");
            let found = tool::names(&made, made.dir);
            assert!(
                found.is_subset(&expected) && found.len() + gone == expected.len(),
                "leaf {leaf}, {lost} lost"
            );
        }
    }
}

#[test]
fn what_gives_a_directory_its_buckets_back_may_be_interrupted_at_any_write() {
    let expected = tool::names(&made(), made().dir);
    let damaged = made();
    let (_, leaves) = with_leaves(&damaged, damaged.dir);
    damaged.damage(|tool| tool.smash(leaves[0], 100));
    let mut sb = superblock::read(&*damaged.device).expect("an image");
    // One segment of one image.
    sb.dw_blocks.set(2);
    superblock::write(&*damaged.device, &mut sb).expect("memory");
    let mut interruptions = 0;
    for writes in 0.. {
        let made = damaged.over(damaged.device.clone());
        if !resumed::interrupted(&made, writes) {
            break;
        }
        interruptions += 1;
        assert!(made.repair().status() <= 1, "write {writes}");
        assert_eq!(made.check().issues, [], "write {writes}");
        assert!(tool::names(&made, made.dir) == expected, "write {writes}");
    }
    assert!(interruptions > 5, "{interruptions}");
}

/// Of which buckets nothing leads to any more is then told by themselves alone: what is free may hold some as they were.
#[test]
fn a_directory_keeps_the_names_in_all_buckets_where_the_marks_are_lost_too() {
    let expected = tool::names(&made(), made().dir);
    for old in [false, true] {
        let (made, bucket, leaves) = made_with_a_tree();
        made.damage(|tool| {
            tool.smash(leaves[0], 100);
            tool.smash(tool.image.sb.groups_start.get(), 77);
            if old {
                // The bucket lies further on, and where it was is what it once held.
                let bytes = tool.image.read(bucket).expect("memory");
                tool.image.put(tool.image.sb.blocks.get() - 7, BlockKind::Bucket, bytes).expect("memory");
                tool.edit(bucket, BlockKind::Bucket, |bytes| {
                    let at = std::mem::offset_of!(BlockHeader, position);
                    let position = image::word(bytes, at);
                    assert!(position > 0);
                    bytes[at..at + 8].copy_from_slice(&(position - 1).to_le_bytes());
                    empty(bytes);
                });
            }
        });
        let report = made.repair();
        assert_eq!(report.status(), 1, "{:#?}", report.issues);
        assert_eq!(report.of(IssueKind::BitmapBlock).count(), 1, "{:#?}", report.issues);
        assert_eq!(made.check().issues, [], "{old}");
        assert!(tool::names(&made, made.dir) == expected, "{old}");
    }
}

/// Takes the names out of a bucket's block.
pub(super) fn empty(bytes: &mut [u8]) {
    let bucket = crate::dir::bucket::header(bytes).expect("whole").bucket.get();
    let packed = &crate::dir::bucket::pack(bucket, &[])[0];
    bytes[BLOCK_HEADER_SIZE..].fill(0);
    bytes[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + packed.len()].copy_from_slice(packed);
}

/// As an interrupted repair leaves them that was about to lead from the one to the other.
#[test]
fn of_two_blocks_of_a_bucket_that_was_lost_each_keeps_its_names() {
    let expected = tool::names(&made(), made().dir);
    let (made, bucket, leaves) = made_with_a_tree();
    made.damage(|tool| {
        tool.smash(leaves[0], 100);
        let further = tool.image.sb.blocks.get() - 7;
        let bytes = tool.image.read(bucket).expect("memory");
        tool.image.put(further, BlockKind::Bucket, bytes).expect("memory");
        tool.edit(bucket, BlockKind::Bucket, empty);
        tool.mark(&[further]);
    });
    let report = made.repair();
    assert_eq!(report.status(), 1, "{:#?}", report.issues);
    assert_eq!(made.check().issues, []);
    assert!(tool::names(&made, made.dir) == expected);
}

pub(super) fn names_in(tool: &tool::Tool<'_>, block: u64) -> usize {
    let bytes = tool.image.get(block, BlockKind::Bucket).expect("sound");
    let mut names = 0;
    let all = crate::dir::bucket::walk(&bytes, |_, _| {
        names += 1;
        std::ops::ControlFlow::<()>::Continue(())
    });
    all.expect("sound");
    names
}
