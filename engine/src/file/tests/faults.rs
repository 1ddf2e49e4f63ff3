//! A failure of the device is told, once to each open file, and nothing is promised that is not down.

use super::image::{Fsync as _, MetaImage, content, path};
use crate::Error;
use crate::device::BlockDevice as _;
use crate::file::batch::StagedFile;
use crate::file::writeback::Order;
use crate::file::{At, DataPath, ErrorMark, SyncKind};
use crate::inode::{Holds, InodeObj};
use crate::sync::Arc;
use crate::sync::atomic::Ordering::SeqCst;
use crate::takeover::Takeover;
use crate::takeover::homes::homes_left;
use crate::takeover::testing::killed;

type Removal = fn(&DataPath, &Arc<InodeObj>) -> crate::Result<()>;

fn is_eio<T>(result: crate::Result<T>) -> bool {
    result.is_err_and(|e: Error| e.errno() == libc::EIO)
}

#[test]
fn a_failed_write_home_is_told_and_healed_by_the_next_fsync() {
    let image = MetaImage::new(1000, false);
    let path = path(&image, 16);
    let file = image.open(1);
    let (one, two) = (ErrorMark::of(Some(file.data())), ErrorMark::of(Some(file.data())));
    path.write(&file, At::Append, &[7; 9000]).expect("room");
    image.device.fail_writes.store(u64::MAX, SeqCst);
    assert!(is_eio(path.fsync(&file, SyncKind::All, &one)));
    assert!(is_eio(path.fsync(&file, SyncKind::All, &one)), "still not down");
    image.device.fail_writes.store(0, SeqCst);
    path.fsync(&file, SyncKind::All, &one).expect("down at last");
    assert!(is_eio(path.fsync(&file, SyncKind::All, &two)), "the other open file hears of it too");
    path.fsync(&file, SyncKind::All, &two).expect("once");
    image.crash(&mut rand::rng());
    let (path, file) = (super::image::path(&image, 16), image.open(1));
    assert_eq!(content(&path, &file), [7; 9000]);
}

#[test]
fn an_allocating_write_that_fails_once_goes_elsewhere() {
    let image = MetaImage::new(1000, false);
    let path = path(&image, 16);
    let file = image.open(1);
    path.write(&file, At::Append, &[7; 9000]).expect("room");
    image.device.fail_writes.store(1, SeqCst);
    path.fsync(&file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("written elsewhere");
}

/// A device that fails everywhere has no bad blocks: what it refused is to be had again, however often it was tried.
#[test]
fn tries_that_fail_everywhere_cost_no_blocks() {
    const BLOCKS: u64 = 20;
    let image = MetaImage::new(1000, false);
    let path = path(&image, 16);
    let file = image.open(1);
    image.leave(BLOCKS);
    let mark = ErrorMark::of(Some(file.data()));
    path.write(&file, At::Append, &[7; 9000]).expect("room");
    image.device.fail_writes.store(u64::MAX, SeqCst);
    for _ in 0..BLOCKS {
        assert!(is_eio(path.fsync(&file, SyncKind::All, &mark)));
    }
    image.device.fail_writes.store(0, SeqCst);
    path.fsync(&file, SyncKind::All, &mark).expect("it has its room");
    assert_eq!((image.leaked(), image.reserved()), (0, 0));
    image.crash(&mut rand::rng());
    let (path, file) = (super::image::path(&image, 16), image.open(1));
    assert_eq!(content(&path, &file), [7; 9000]);
}

#[test]
fn a_failed_flush_is_not_forgotten() {
    let image = MetaImage::new(1000, false);
    let path = path(&image, 16);
    let file = image.open(1);
    let mark = ErrorMark::of(Some(file.data()));
    path.write(&file, At::Append, &[7; 9000]).expect("room");
    path.fsync(&file, SyncKind::All, &mark).expect("no faults");
    path.write(&file, At::Offset(0), &[8; 9000]).expect("room");
    image.device.fail_flushes.store(true, SeqCst);
    assert!(is_eio(path.fsync(&file, SyncKind::All, &mark)));
    assert!(is_eio(path.fsync(&file, SyncKind::All, &mark)));
    image.device.fail_flushes.store(false, SeqCst);
    let written = path.stats().written;
    path.fsync(&file, SyncKind::All, &mark).expect("down at last");
    assert!(path.stats().written > written, "what the failed flush may have lost is written again");
}

#[test]
fn a_failed_read_leaves_the_file_as_it_was() {
    let image = MetaImage::new(1000, false);
    let path = path(&image, 16);
    let file = image.open(1);
    path.write(&file, At::Append, &vec![7; 100 * 4096]).expect("room");
    path.sync_all(|| Ok(())).expect("no faults");
    image.device.fail_reads.store(true, SeqCst);
    assert!(is_eio(path.read(&file, 0, &mut [0; 8192])));
    assert!(is_eio(path.read(&file, 57 * 4096, &mut [0; 100])), "a page by itself goes another way");
    assert!(is_eio(path.write(&file, At::Offset(10), &[1])), "a partial overwrite needs the page");
    image.device.fail_reads.store(false, SeqCst);
    assert_eq!(content(&path, &file), vec![7; 100 * 4096]);
}

#[test]
fn when_too_much_cannot_be_written_writes_fail_instead_of_waiting() {
    let image = MetaImage::new(1000, false);
    let path = path(&image, 16);
    let file = image.open(1);
    image.device.fail_writes.store(u64::MAX, SeqCst);
    let mut result = Ok(());
    for _ in 0..100 {
        result = result.and(path.write(&file, At::Append, &[1; 4096]).map(|_| ()));
    }
    assert!(is_eio(result));
    image.device.fail_writes.store(0, SeqCst);
    path.sync_all(|| Ok(())).expect("what was accepted goes home");
}

/// Pages that arrive and are not recorded, for no flush works, stay dirty: to write them again and again frees nothing.
#[test]
fn when_nothing_can_be_flushed_writes_fail_instead_of_waiting() {
    let image = MetaImage::new(1000, false);
    let path = path(&image, 16);
    let file = image.open(1);
    image.device.fail_flushes.store(true, SeqCst);
    let mut result = Ok(());
    for _ in 0..100 {
        result = result.and(path.write(&file, At::Append, &[1; 4096]).map(|_| ()));
    }
    assert!(is_eio(result));
    image.device.fail_flushes.store(false, SeqCst);
    path.sync_all(|| Ok(())).expect("what was accepted goes home");
}

/// The record of what is removed may take the device to be read: where that fails nothing has been removed.
#[test]
fn a_removal_that_cannot_be_recorded_leaves_what_was_synced() {
    let punch: Removal =
        |path, file| path.fallocate(file, crate::vfs::FallocateMode::PunchHole, 0, 900 * 4096);
    let cut: Removal = |path, file| path.truncate(file, 4096);
    let cut_within: Removal = |path, file| path.truncate(file, 8192 + 100);
    for remove in [punch, cut, cut_within] {
        let image = MetaImage::new(3000, true);
        let path = path(&image, 64);
        let file = image.open(1);
        for page in 0..450 {
            path.write(&file, At::Offset(page * 8192), &[1; 4096]).expect("room");
        }
        path.sync_all(|| Ok(())).expect("no faults");
        image.checkpoint();
        drop((path, file));
        image.crash(&mut rand::rng());
        let (path, file) = (super::image::path(&image, 64), image.open(1));
        let mark = ErrorMark::of(Some(file.data()));
        for offset in [0, 8192] {
            path.write(&file, At::Offset(offset), &[9; 4096]).expect("room");
        }
        path.fsync(&file, SyncKind::All, &mark).expect("absorbed");
        image.device.fail_reads.store(true, SeqCst);
        assert!(is_eio(remove(&path, &file)), "nothing that it needs is in memory");
        image.device.fail_reads.store(false, SeqCst);
        let assert_is_there = |now: &[u8]| {
            let seen = (now.len(), now[0], now[8192], now[8192 + 100], now[16_384]);
            assert_eq!(seen, (449 * 8192 + 4096, 9, 9, 9, 1));
        };
        assert_is_there(&content(&path, &file));
        image.checkpoint();
        drop((path, file));
        image.crash(&mut rand::rng());
        assert_is_there(&content(&super::image::path(&image, 64), &image.open(1)));
    }
}

/// What a killed server has answered is its successor's to know, also where a truncation has come between and failed.
#[test]
fn a_truncation_that_cannot_be_recorded_leaves_its_successor_the_size() {
    let image = MetaImage::new(3000, true);
    let path = path(&image, 64);
    let file = image.open(1);
    path.write(&file, At::Append, &[1; 4096]).expect("room");
    // Beyond its end, so that no more than its beginning is looked for again.
    let kept = crate::vfs::FallocateMode::Allocate { keep_size: true };
    for page in 1..450 {
        path.fallocate(&file, kept, page * 8192, 4096).expect("room");
    }
    path.sync_all(|| Ok(())).expect("no faults");
    image.checkpoint();
    drop((path, file));
    image.crash(&mut rand::rng());
    let memory = Takeover::create(64).expect("memory");
    let (path, file) = (super::image::path_of_server(&image, 64, &memory), image.open(1));
    assert_eq!(file.data().size(), 4096);
    path.write(&file, At::Append, &[2; 4096]).expect("room");
    let left = || memory.inodes().left().iter().map(|kept| kept.size).collect::<Vec<_>>();
    assert_eq!(left(), [8192]);
    image.device.fail_reads.store(true, SeqCst);
    assert!(is_eio(path.truncate(&file, 4096)), "nothing that it needs is in memory");
    assert_eq!(left(), [8192]);
}

/// The pages go just before the record: if the journal fails in between nobody reads what is mapped in their place.
#[test]
fn a_removal_that_the_journal_has_not_got_shows_nothing_and_stops_nobody() {
    let punch: Removal = |path, file| path.fallocate(file, crate::vfs::FallocateMode::PunchHole, 4096, 4096);
    let cut: Removal = |path, file| path.truncate(file, 100);
    for remove in [punch, cut] {
        let image = MetaImage::new(100, true);
        let path = path(&image, 16);
        let file = image.open(1);
        path.write(&file, At::Offset(0), &[9; 8192]).expect("room");
        let mark = ErrorMark::of(Some(file.data()));
        path.fsync(&file, SyncKind::All, &mark).expect("absorbed");
        let meta = image.meta();
        let store = Arc::clone(meta.store());
        let fail = move |_: &_| store.journal().expect("there is one").fail("a test".into());
        *meta.hooks.when_reachable.lock() = Some(Box::new(fail));
        assert!(remove(&path, &file).is_err());
        assert!(is_eio(path.read(&file, 4096, &mut [0; 100])), "what lies there was never the file's");
        path.pre_checkpoint(image.tail()).expect("it waits for nobody");
        drop((path, file));
        image.crash_as_it_is(&mut rand::rng());
        let now = content(&super::image::path(&image, 16), &image.open(1));
        assert!(now == [9; 8192]);
    }
}

/// A page of a batch that was not cached before goes again.
#[test]
fn a_batch_that_cannot_be_recorded_leaves_what_there_was() {
    let image = MetaImage::new(100, true);
    let path = path(&image, 16);
    let file = image.open(1);
    path.write(&file, At::Offset(0), &[1; 4096]).expect("room");
    path.write(&file, At::Offset(8192), &[1; 4096]).expect("room");
    path.sync_all(|| Ok(())).expect("no faults");
    let mut staged = StagedFile::of(&file);
    staged.stage(0, &[9; 8192]);
    let store = Arc::clone(image.meta().store());
    let fail = move || store.journal().expect("there is one").fail("a test".into());
    *image.meta().hooks.when_allocated.lock() = Some(Box::new(fail));
    assert!(path.commit_in_record(&[staged]).is_err(), "all of it is in memory by then");
    let now = content(&path, &file);
    assert_eq!((now[0], now[4095], now[4096], now[8192]), (1, 1, 0, 1));
}

/// A server of an image whose device tells its memory of flushes that fail.
fn server() -> (Arc<MetaImage>, Arc<Takeover>, Arc<DataPath>) {
    let image = MetaImage::new(1000, true);
    let memory = Takeover::create(64).expect("memory");
    let told = Arc::clone(&memory);
    image.device.when_flush_fails(Box::new(move || told.note_lost_flush()));
    let path = super::image::path_of_server(&image, 64, &memory);
    (image, memory, path)
}

/// Its flushes succeed, on a device that was opened anew: what the journal holds goes home again.
#[test]
fn what_a_failed_flush_was_to_cover_is_not_newer_for_a_successor() {
    for (noted_before, in_place) in [(true, 1), (false, 0)] {
        let (image, memory, path) = server();
        let file = image.open(1);
        path.write(&file, At::Offset(0), &[1; 4096]).expect("room");
        path.sync_all(|| Ok(())).expect("no faults");
        image.checkpoint();
        path.write(&file, At::Offset(0), &[2; 4096]).expect("room");
        path.fsync(&file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("absorbed");
        path.write(&file, At::Offset(0), &[3; 4096]).expect("room");
        let write = || path.write_back.write_pages(&file, 0..1, Order::PRESSURE);
        if noted_before {
            write().expect("no faults");
        }
        if noted_before {
            image.device.fail_flushes.store(true, SeqCst);
            assert!(is_eio(image.device.flush()));
        } else {
            memory.note_lost_flush();
            write().expect("it is written");
        }
        let epoch = image.meta().store.journal().expect("there is one").epoch();
        assert_eq!(memory.homes().left(epoch).len(), in_place);
        assert_eq!(
            (file.data().pages.summary().dirty > 0),
            !noted_before,
            "what has no note is to be written again"
        );
        let next = killed(&memory);
        assert_eq!(homes_left(Some(&next), epoch), []);
        next.heed_lost_flushes();
        assert!(!next.is_place_in_doubt() && next.has_lost_flushes());
        std::mem::forget((path, file));
    }
}

#[test]
fn a_successor_tells_once_of_what_a_flush_may_have_lost_before_it_came() {
    let (image, memory, path) = server();
    let file = image.open(1);
    path.write(&file, At::Append, &[1; 9000]).expect("room");
    path.sync_all(|| Ok(())).expect("no faults");
    memory.note_lost_flush();
    std::mem::forget((path, file));
    let next = killed(&memory);
    let path = super::image::path_of_server(&image, 64, &next);
    let (file, mark) = (image.open(1), ErrorMark::of(None));
    assert!(is_eio(path.fsync(&file, SyncKind::All, &mark)));
    path.fsync(&file, SyncKind::All, &mark).expect("told once");
    assert!(file.data().pages.is_idle(), "nothing holds it in memory");
    path.fsync(&image.open(1), SyncKind::All, &ErrorMark::of(None))
        .expect("told once, however often it is loaded");
}

/// What it has made it has not lost, whether the inode has left memory since or not: nor has what gets the nid afterwards.
#[test]
fn a_successor_tells_nothing_of_files_that_it_has_made() {
    let (image, memory, path) = server();
    memory.note_lost_flush();
    std::mem::forget(path);
    let path = super::image::path_of_server(&image, 64, &killed(&memory));
    let found = image.open(2);
    let logged = *found.lock.read();
    let made = InodeObj::new(found.place(), found.file_type(), logged, Holds::unpublished());
    let made = Arc::new(made);
    image.meta().table.insert(Arc::clone(&made));
    image.meta().table.remove(&made);
    let mark = ErrorMark::of(None);
    path.fsync(&image.open(2), SyncKind::All, &mark).expect("it comes back, and was made here");
    assert!(is_eio(path.fsync(&image.open(1), SyncKind::All, &mark)));
}

#[test]
fn a_successor_knows_how_far_a_truncation_was_to_go_before_its_record_is_there() {
    let (image, memory, path) = server();
    let file = image.open(1);
    path.write(&file, At::Append, &[1; 9000]).expect("room");
    path.sync_all(|| Ok(())).expect("no faults");
    let sizes = |memory: &Takeover| memory.inodes().left().iter().map(|kept| kept.size).collect::<Vec<_>>();
    assert_eq!(sizes(&memory), []);
    let seen = Arc::new(crate::sync::Mutex::new(None));
    let (into, of) = (Arc::clone(&seen), Arc::clone(&memory));
    let look = move |_: &_| *into.lock() = Some(sizes(&of));
    *image.meta().hooks.when_reachable.lock() = Some(Box::new(look));
    path.truncate(&file, 100).expect("always");
    assert_eq!(seen.lock().take(), Some(vec![100]));
    *image.meta().hooks.when_reachable.lock() = None;
}
