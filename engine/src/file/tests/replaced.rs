//! What replaces other content, and the old content until then: in the journal, or home.

use super::model::{ModelHome, ModelInode, content, path};
use super::mounted::{Image, Live, put};
use crate::device::BlockDevice;
use crate::file::{At, DataInode, DataPath, ErrorMark, Home, SyncKind};
use crate::format::ROOT_NID;
use crate::sync::Arc;
use crate::sync::atomic::Ordering::SeqCst;
use crate::vfs::{Context, FileHandle, OpenFlags, RenameFlags, SetAttr, SetTime, XattrMode};
use rand::SeedableRng;
use rand::rngs::StdRng;

const OLD: [u8; 9000] = [1; 9000];
const NEW: [u8; 5000] = [2; 5000];

type Path = Arc<DataPath<ModelHome>>;

/// A file whose content is in the journal alone.
fn absorbed() -> (Arc<ModelHome>, Path, Arc<ModelInode>) {
    let home = ModelHome::new(200, true);
    let path = path(&home, 16);
    let file = home.open(1);
    path.write(&file, At::Append, &OLD).expect("room");
    path.fsync(&file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("absorbed");
    (home, path, file)
}

fn begin_rewriting(path: &Path, file: &Arc<ModelInode>) {
    path.opened(file);
    path.truncate(file, 0).expect("always");
}

fn writes(home: &ModelHome) -> u64 {
    home.device.writes_completed()
}

/// What is there after a crash that takes nothing along which was committed.
fn after_a_crash(home: &Arc<ModelHome>) -> Vec<u8> {
    home.commit_upto(home.tail()).expect("the model's journal does not fail");
    home.crash(&mut StdRng::seed_from_u64(1));
    content(&path(home, 16), &home.open(1))
}

#[test]
fn a_rewriting_is_recorded_with_its_content_at_the_close_and_nothing_is_written() {
    let (home, path, file) = absorbed();
    begin_rewriting(&path, &file);
    path.write(&file, At::Append, &NEW).expect("room");
    path.closed(&file);
    assert_eq!((file.data().logged_size(), writes(&home)), (5000, 0));
    assert_eq!(path.stats().replaced_absorbed, 1);
    assert_eq!(after_a_crash(&home), NEW);
}

#[test]
fn a_file_that_is_to_take_anothers_place_is_absorbed_without_a_write() {
    let home = ModelHome::new(200, true);
    let path = path(&home, 16);
    let file = home.open(1);
    path.write(&file, At::Append, &NEW).expect("room");
    path.settle_for_rename(&file).expect("absorbed");
    assert_eq!((file.data().logged_size(), writes(&home)), (5000, 0));
    // Nothing is left to do: no second record, and no flush of what was never written.
    let tail = home.tail();
    path.settle_for_rename(&file).expect("absorbed");
    assert_eq!(home.tail(), tail);
    assert_eq!(after_a_crash(&home), NEW);
}

#[test]
fn what_the_ring_has_no_room_for_goes_home_before_it_replaces_anything() {
    let (home, path, file) = absorbed();
    home.ample.store(false, SeqCst);
    path.settle_for_rename(&file).expect("nothing to do");
    assert_eq!(writes(&home), 0, "it is in the journal already");
    path.write(&file, At::Offset(0), &NEW).expect("room");
    path.settle_for_rename(&file).expect("no faults");
    assert!(writes(&home) > 0 && path.stats().replaced_absorbed == 0);
    assert_eq!(after_a_crash(&home)[..5000], NEW);
}

#[test]
fn more_than_may_be_absorbed_goes_home_before_it_replaces_anything() {
    let home = ModelHome::new(200, true);
    let path = path(&home, 64);
    let file = home.open(1);
    let large = vec![3; 80_000];
    path.write(&file, At::Append, &large).expect("room");
    path.settle_for_rename(&file).expect("no faults");
    assert_eq!((path.stats().replaced_absorbed, path.stats().written), (0, 20));
    begin_rewriting(&path, &file);
    path.write(&file, At::Append, &large).expect("room");
    path.closed(&file);
    assert_eq!(file.data().logged_size(), 80_000, "the old size: it waits for the background");
    path.settle_deferred().expect("no faults");
    assert_eq!((path.stats().replaced_absorbed, path.stats().written), (0, 40));
    assert!(after_a_crash(&home) == large);
}

/// The old content lies in records, and in pages that are gone; the head passes those records.
#[test]
fn old_content_that_the_journal_holds_outlives_the_head_s_way_past_it() {
    for old_is_changed in [false, true] {
        let (home, path, file) = absorbed();
        if old_is_changed {
            path.write(&file, At::Offset(0), &[7; 4096]).expect("room");
        }
        begin_rewriting(&path, &file);
        assert_eq!(writes(&home), 0, "nothing is brought home for a truncation");
        home.checkpoint(&path);
        assert!(writes(&home) > 0);
        path.write(&file, At::Append, &NEW).expect("room");
        let seen = after_a_crash(&home);
        assert_eq!((seen.len(), &seen[4096..]), (9000, &OLD[4096..]));
        assert!(seen[..4096] == [1; 4096] || seen[..4096] == [7; 4096]);
    }
}

#[test]
fn old_content_that_was_kept_is_dropped_with_the_record_of_the_new() {
    let (home, path, file) = absorbed();
    begin_rewriting(&path, &file);
    path.write(&file, At::Append, &NEW).expect("room");
    path.closed(&file);
    // The new content goes home; the old one's blocks are another's by now.
    home.checkpoint(&path);
    assert_eq!(path.stats().written, 2);
    assert!(!file.data().pages.has_old());
    assert_eq!(after_a_crash(&home), NEW);
}

/// Emptied more than once before anything is recorded: what is durable is what was there first.
#[test]
fn the_first_old_content_stays_until_a_record_replaces_it() {
    let (home, path, file) = absorbed();
    begin_rewriting(&path, &file);
    path.write(&file, At::Append, &[5; 100]).expect("room");
    begin_rewriting(&path, &file);
    home.checkpoint(&path);
    assert_eq!(after_a_crash(&home), OLD);
}

#[test]
fn more_than_may_be_kept_goes_home_before_the_file_is_emptied() {
    let home = ModelHome::new(400, true);
    let path = path(&home, 128);
    let file = home.open(1);
    let mark = ErrorMark::of(Some(file.data()));
    for part in 0..5 {
        path.write(&file, At::Append, &[part + 1; 10 * 4096]).expect("room");
        path.fsync(&file, SyncKind::All, &mark).expect("absorbed");
    }
    assert_eq!(writes(&home), 0);
    let old = content(&path, &file);
    begin_rewriting(&path, &file);
    assert_eq!(path.stats().written, 50);
    home.checkpoint(&path);
    assert!(after_a_crash(&home) == old);
}

/// A close is heard of late: a later rewriting has begun, and its end nobody has told of.
#[test]
fn a_close_records_no_later_rewriting() {
    let (home, path, file) = absorbed();
    begin_rewriting(&path, &file);
    begin_rewriting(&path, &file);
    path.closed(&file);
    assert_eq!(file.data().logged_size(), 9000);
    assert_eq!(after_a_crash(&home), OLD);
}

fn bytes_of(live: &Live, file: &FileHandle) -> Vec<u8> {
    let mut bytes = vec![0; 20_000];
    let len = live.fs().read(file, 0, &mut bytes).expect("memory does not fail");
    bytes.truncate(len);
    bytes
}

/// The target has another name, and somebody has it open.
#[test]
fn a_file_system_that_replaces_files_writes_nothing_home_for_it() {
    let (image, root) = (Image::new(2048, 2048), Context::root());
    let live = image.mount();
    let fs = live.fs();
    let old = live.open("f");
    put(fs, &old, 0, &OLD).expect("room");
    let link = fs.link(&root, old.nid(), ROOT_NID, b"link").expect("room");
    fs.forget(link.nid, 1);
    fs.syncfs().expect("memory does not fail");
    let before = crate::stats::Stats::of(fs).expect("counted");
    for fill in 3..6 {
        let new = live.open("new");
        put(fs, &new, 0, &[fill; 5000]).expect("room");
        fs.release(new, None);
        fs.rename(&root, ROOT_NID, b"new", ROOT_NID, b"f", RenameFlags::empty()).expect("both are there");
        assert_eq!(bytes_of(&live, &old), OLD);
    }
    let rewritten = fs.open(&root, old.nid(), OpenFlags::READ_WRITE | OpenFlags::TRUNCATE).expect("there");
    put(fs, &rewritten, 0, &NEW).expect("room");
    for handle in [rewritten, old] {
        fs.release(handle, None);
    }
    let after = crate::stats::Stats::of(fs).expect("counted");
    assert_eq!(after.data.written, before.data.written);
    assert_eq!((after.flushes, after.data.replaced_absorbed), (before.flushes, 4));
    let shows = |live: &Live| {
        for (name, content) in [("f", vec![5; 5000]), ("link", NEW.to_vec())] {
            let file = live.open(name);
            assert!(bytes_of(live, &file) == content, "{name}");
            live.fs().release(file, None);
        }
    };
    // Killed, and then unmounted.
    drop(live);
    let live = image.mount();
    shows(&live);
    live.unmount();
    image.assert_whole("");
    let live = image.mount();
    shows(&live);
    live.unmount();
}

/// What `cp -a` does.
#[test]
fn attributes_that_are_set_after_a_copy_bring_no_data_home() {
    let (image, root) = (Image::new(2048, 2048), Context::root());
    let live = image.mount();
    let fs = live.fs();
    let (from, to) = (live.open("from"), live.open("to"));
    put(fs, &from, 0, &OLD).expect("room");
    fs.syncfs().expect("memory does not fail");
    let before = crate::stats::Stats::of(fs).expect("counted");
    assert_eq!(fs.copy_file_range(&root, &from, 0, &to, 0, 9000), Ok(9000));
    fs.setxattr(&root, to.nid(), b"user.a", &[1; 300], XattrMode::Any).expect("room");
    let set = SetAttr { mode: Some(0o640), mtime: SetTime::At(7), ..SetAttr::default() };
    fs.setattr(&root, to.nid(), Some(&to), &set).expect("its owner");
    assert_eq!(bytes_of(&live, &to), OLD);
    let after = crate::stats::Stats::of(fs).expect("counted");
    assert_eq!((after.data.written, after.flushes), (before.data.written, before.flushes));
    assert_eq!(after.data.absorbed, before.data.absorbed);
    for handle in [from, to] {
        fs.release(handle, None);
    }
    live.unmount();
}
