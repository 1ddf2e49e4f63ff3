//! Extent trees of several leaves that lose one of them, and go on being written.

use super::*;
use crate::format::{EXTENT_NODE_ENTRIES, EXTENT_NODE_START, Nid};
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
