//! Many small files go home at once.

use super::image::{MetaImage, content, path};
use crate::file::{At, DataPath, ErrorMark, SyncKind};
use crate::inode::InodeObj;
use crate::sync::Arc;
use crate::sync::atomic::Ordering::SeqCst;

const FILES: u64 = 300;

fn bytes(number: u64) -> Vec<u8> {
    vec![number as u8 | 1; 1000 + 17 * number as usize]
}

fn write_all(image: &Arc<MetaImage>, path: &DataPath) -> Vec<Arc<InodeObj>> {
    let files: Vec<_> = (1..=FILES).map(|nid| image.open(nid)).collect();
    for file in &files {
        path.write(file, At::Append, &bytes(image.number(file))).expect("room");
    }
    files
}

/// After a loss of power every file is as it was written.
fn assert_all_survive(image: &Arc<MetaImage>) {
    image.crash(&mut rand::rng());
    let path = path(image, 2000);
    for nid in 1..=FILES {
        assert!(content(&path, &image.open(nid)) == bytes(nid), "file {nid}");
    }
}

#[test]
fn small_files_share_requests_and_are_all_there_after_a_crash() {
    for absorbs in [false, true] {
        let image = MetaImage::with_files(5000, absorbs, FILES as usize);
        let path = path(&image, 2000);
        let files = write_all(&image, &path);
        path.sync_all(|| Ok(())).expect("no faults");
        let requests = image.writes();
        assert!(requests < FILES / 10, "{requests} requests for {FILES} files");
        assert_eq!(image.reserved(), 0);
        drop((files, path));
        assert_all_survive(&image);
    }
}

/// A small ring has credits for a few files at a time.
#[test]
fn a_batch_ends_where_credits_do_and_another_begins() {
    let image = MetaImage::with_files(5000, false, FILES as usize);
    let path = path(&image, 2000);
    let files = write_all(&image, &path);
    image.meta().hooks.scarce.store(16, SeqCst);
    path.sync_all(|| Ok(())).expect("no faults");
    let requests = image.writes();
    assert!(requests < FILES / 5, "{requests} requests for {FILES} files");
    drop((files, path));
    assert_all_survive(&image);
}

/// What was picked and written stays dirty, and nobody is told of it.
#[test]
fn files_whose_room_has_changed_are_written_anew() {
    let image = MetaImage::with_files(5000, false, FILES as usize);
    let path = path(&image, 2000);
    let files = write_all(&image, &path);
    let marks: Vec<_> = files.iter().map(|file| ErrorMark::of(Some(file.data()))).collect();
    image.meta().hooks.rooms_changed.store(20, SeqCst);
    path.sync_all(|| Ok(())).expect("no faults");
    assert_eq!(image.meta().hooks.rooms_changed.load(SeqCst), 0, "each was met");
    for (file, mark) in files.iter().zip(&marks) {
        path.fsync(file, SyncKind::All, mark).expect("nothing has failed");
    }
    assert_eq!(image.reserved(), 0);
    drop((files, path));
    assert_all_survive(&image);
}

/// A request that fails holds pages of many files: each goes elsewhere on its own.
#[test]
fn a_shared_request_that_fails_costs_no_file_anything() {
    let image = MetaImage::with_files(5000, false, FILES as usize);
    let path = path(&image, 2000);
    let files = write_all(&image, &path);
    image.device.fail_writes.store(1, SeqCst);
    path.sync_all(|| Ok(())).expect("written elsewhere");
    for file in &files {
        path.fsync(file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("nothing was lost");
    }
    drop((files, path));
    assert_all_survive(&image);
}

/// Batches side by side, beside writers and fsyncs of the same files: the head passes nothing that is not image.
#[test]
fn what_the_journal_holds_of_many_files_goes_home_before_the_head_passes_it() {
    const MANY: u64 = 500;
    let image = MetaImage::with_files(5000, true, MANY as usize);
    let path = path(&image, 3000);
    let files: Vec<_> = (1..=MANY).map(|nid| image.open(nid)).collect();
    let write = |file: &Arc<InodeObj>, turn: u64| {
        path.write(file, At::Offset(0), &vec![(image.number(file) + turn) as u8 | 1; 5000]).expect("room");
        path.fsync(file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("no faults");
    };
    files.iter().for_each(|file| write(file, 0));
    let before = image.writes();
    image.checkpoint();
    let requests = image.writes() - before;
    assert!((1..MANY / 4).contains(&requests), "{requests} requests for {MANY} files");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..5 {
                files.iter().for_each(|file| write(file, turn));
            }
        });
        (0..5).for_each(|_| image.checkpoint());
    });
    drop((files, path));
    image.crash(&mut rand::rng());
    let path = super::image::path(&image, 3000);
    for nid in 1..=MANY {
        assert!(content(&path, &image.open(nid)) == vec![(nid + 4) as u8 | 1; 5000], "file {nid}");
    }
}

/// Files that somebody else has in hand are left to it, and nobody waits for another in a circle.
#[test]
fn threads_that_sync_everything_at_once_do_not_wait_for_one_another() {
    let image = MetaImage::with_files(5000, true, FILES as usize);
    let path = path(&image, 2000);
    let files = write_all(&image, &path);
    std::thread::scope(|scope| {
        for turn in 0..4u64 {
            let (image, path, files) = (&image, &path, &files);
            scope.spawn(move || {
                for round in 0..10 {
                    for file in files.iter().filter(|file| image.number(file) % 4 == turn) {
                        path.write(file, At::Offset(round), &[round as u8]).expect("room");
                        if (image.number(file) + round) % 16 == 0 {
                            path.fsync(file, SyncKind::All, &ErrorMark::of(Some(file.data())))
                                .expect("no faults");
                        }
                    }
                    path.sync_all(|| Ok(())).expect("no faults");
                }
            });
        }
    });
    drop((files, path));
    image.crash(&mut rand::rng());
    let path = super::image::path(&image, 2000);
    for nid in 1..=FILES {
        let seen = content(&path, &image.open(nid));
        assert_eq!(seen[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "file {nid}");
        assert!(seen[10..] == bytes(nid)[10..], "file {nid}");
    }
}
