//! Many small files go home at once.

use super::model::{ModelHome, ModelInode, content, path};
use crate::device::BlockDevice;
use crate::file::{At, DataInode, DataPath, ErrorMark, SyncKind};
use crate::sync::Arc;
use crate::sync::atomic::Ordering::SeqCst;

const FILES: u64 = 300;

fn bytes(nid: u64) -> Vec<u8> {
    vec![nid as u8 | 1; 1000 + 17 * nid as usize]
}

fn write_all(home: &Arc<ModelHome>, path: &DataPath<ModelHome>) -> Vec<Arc<ModelInode>> {
    let files: Vec<_> = (1..=FILES).map(|nid| home.open(nid)).collect();
    for file in &files {
        path.write(file, At::Append, &bytes(file.nid())).expect("room");
    }
    files
}

/// After a loss of power every file is as it was written.
fn assert_all_survive(home: &Arc<ModelHome>) {
    home.crash(&mut rand::rng());
    let path = path(home, 2000);
    for nid in 1..=FILES {
        assert!(content(&path, &home.open(nid)) == bytes(nid), "file {nid}");
    }
}

#[test]
fn small_files_share_requests_and_are_all_there_after_a_crash() {
    for absorbs in [false, true] {
        let home = ModelHome::new(5000, absorbs);
        let path = path(&home, 2000);
        let files = write_all(&home, &path);
        path.sync_all(|| Ok(())).expect("no faults");
        let requests = home.device.writes_completed();
        assert!(requests < FILES / 10, "{requests} requests for {FILES} files");
        assert_eq!(home.reserved(), 0);
        drop((files, path));
        assert_all_survive(&home);
    }
}

/// A small ring has credits for a few files at a time.
#[test]
fn a_batch_ends_where_credits_do_and_another_begins() {
    let home = ModelHome::new(5000, false);
    let path = path(&home, 2000);
    let files = write_all(&home, &path);
    home.scarce.store(16, SeqCst);
    path.sync_all(|| Ok(())).expect("no faults");
    let requests = home.device.writes_completed();
    assert!(requests < FILES / 5, "{requests} requests for {FILES} files");
    drop((files, path));
    assert_all_survive(&home);
}

/// What was picked and written stays dirty, and nobody is told of it.
#[test]
fn files_whose_room_has_changed_are_written_anew() {
    let home = ModelHome::new(5000, false);
    let path = path(&home, 2000);
    let files = write_all(&home, &path);
    let marks: Vec<_> = files.iter().map(|file| ErrorMark::of(Some(file.data()))).collect();
    home.rooms_changed.store(20, SeqCst);
    path.sync_all(|| Ok(())).expect("no faults");
    assert_eq!(home.rooms_changed.load(SeqCst), 0, "each was met");
    for (file, mark) in files.iter().zip(&marks) {
        path.fsync(file, SyncKind::All, mark).expect("nothing has failed");
    }
    assert_eq!(home.reserved(), 0);
    drop((files, path));
    assert_all_survive(&home);
}

/// A request that fails holds pages of many files: each goes elsewhere on its own.
#[test]
fn a_shared_request_that_fails_costs_no_file_anything() {
    let home = ModelHome::new(5000, false);
    let path = path(&home, 2000);
    let files = write_all(&home, &path);
    home.device.fail_writes.store(1, SeqCst);
    path.sync_all(|| Ok(())).expect("written elsewhere");
    for file in &files {
        path.fsync(file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("nothing was lost");
    }
    drop((files, path));
    assert_all_survive(&home);
}

/// Batches side by side, beside writers and fsyncs of the same files: the head passes nothing that is not home.
#[test]
fn what_the_journal_holds_of_many_files_goes_home_before_the_head_passes_it() {
    const MANY: u64 = 500;
    let home = ModelHome::new(5000, true);
    let path = path(&home, 3000);
    let files: Vec<_> = (1..=MANY).map(|nid| home.open(nid)).collect();
    let write = |file: &Arc<ModelInode>, turn: u64| {
        path.write(file, At::Offset(0), &vec![(file.nid() + turn) as u8 | 1; 5000]).expect("room");
        path.fsync(file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("no faults");
    };
    files.iter().for_each(|file| write(file, 0));
    let before = home.device.writes_completed();
    home.checkpoint(&path);
    let requests = home.device.writes_completed() - before;
    assert!((1..MANY / 4).contains(&requests), "{requests} requests for {MANY} files");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..5 {
                files.iter().for_each(|file| write(file, turn));
            }
        });
        (0..5).for_each(|_| home.checkpoint(&path));
    });
    drop((files, path));
    home.crash(&mut rand::rng());
    let path = super::model::path(&home, 3000);
    for nid in 1..=MANY {
        assert!(content(&path, &home.open(nid)) == vec![(nid + 4) as u8 | 1; 5000], "file {nid}");
    }
}

/// Files that somebody else has in hand are left to it, and nobody waits for another in a circle.
#[test]
fn threads_that_sync_everything_at_once_do_not_wait_for_one_another() {
    let home = ModelHome::new(5000, true);
    let path = path(&home, 2000);
    let files = write_all(&home, &path);
    std::thread::scope(|scope| {
        for turn in 0..4u64 {
            let (path, files) = (&path, &files);
            scope.spawn(move || {
                for round in 0..10 {
                    for file in files.iter().filter(|file| file.nid() % 4 == turn) {
                        path.write(file, At::Offset(round), &[round as u8]).expect("room");
                        if (file.nid() + round) % 16 == 0 {
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
    home.crash(&mut rand::rng());
    let path = super::model::path(&home, 2000);
    for nid in 1..=FILES {
        let seen = content(&path, &home.open(nid));
        assert_eq!(seen[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "file {nid}");
        assert!(seen[10..] == bytes(nid)[10..], "file {nid}");
    }
}
