//! What an fsync makes of pages that are under another's write-back.

use super::image::{Fsync as _, MetaImage, content, path};
use crate::device::BlockDevice;
use crate::file::writeback::Order;
use crate::file::{At, ErrorMark, SyncKind};
use crate::pages::PAGES_END;
use crate::sync::{Arc, Mutex, thread};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// More runs than a record holds: some pages come back, and are nobody's failure.
#[test]
fn an_fsync_writes_what_another_write_back_could_not_record() {
    const RUNS: u64 = 40;
    let image = MetaImage::new(100, false);
    let path = path(&image, 64);
    let file = image.open(1);
    for run in 0..RUNS {
        path.write(&file, At::Offset(run * 8192), &[7; 4096]).expect("room");
    }
    let syncing = Arc::new(Mutex::new(None));
    let begin = {
        let (path, file, syncing) = (path.clone(), file.clone(), syncing.clone());
        move || {
            let began =
                thread::spawn(move || path.fsync(&file, SyncKind::All, &ErrorMark::of(Some(file.data()))));
            // Enough for it to look for dirty pages. If it comes later it is none the worse for it.
            for _ in 0..10_000 {
                thread::yield_now();
            }
            *syncing.lock() = Some(began);
        }
    };
    *image.meta().hooks.when_allocated.lock() = Some(Box::new(begin));
    path.write_back.write_under_pressure(&file).expect("no faults");
    let syncing = syncing.lock().take().expect("blocks were asked for");
    syncing.join().expect("no panic").expect("no faults");
    drop((path, file));
    image.crash(&mut StdRng::seed_from_u64(1));
    let seen = content(&super::image::path(&image, 64), &image.open(1));
    for run in 0..RUNS as usize {
        assert!(seen[run * 8192..][..4096] == [7; 4096], "run {run}");
    }
}

/// A page is copied with what a writer has just appended: the size that shows it waits for that write's flush.
#[test]
fn a_size_is_recorded_only_when_what_it_shows_is_down() {
    let image = MetaImage::new(100, false);
    let path = path(&image, 16);
    let file = image.open(1);
    path.write(&file, At::Append, &[1; 4096]).expect("room");
    path.sync_all(|| Ok(())).expect("no faults");
    path.truncate(&file, 100).expect("room");
    {
        let room = path.write_back.room(&file, true).expect("room");
        let _guard = file.data().write_back.lock();
        let mut prepared = path
            .write_back
            .prepare(&file, 0..PAGES_END, Order::PRESSURE, room, None)
            .expect("no truncation meanwhile");
        path.write(&file, At::Append, &[2; 100]).expect("room");
        path.write_back.submit(
            &mut prepared.extents.iter_mut().collect::<Vec<_>>(),
            0,
            Order::PRESSURE.cause,
        );
        path.write_back.record(prepared, image.device.writes_completed()).expect("no faults");
    }
    path.record_rest(&file, SyncKind::Data).expect("no faults");
    assert_eq!(file.data().logged_size(), 200);
    assert_eq!(image.device.writes_flushed(), image.device.writes_completed());
}
