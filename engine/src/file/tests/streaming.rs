//! Long files that are read and written from one end to the other, by the counters of what is read ahead.

use super::image::{Fsync as _, MetaImage, path};
use crate::file::{At, DataPath, ErrorMark, FallocateMode, Fit, SyncKind};
use crate::inode::InodeObj;
use crate::sync::Arc;
use crate::sync::atomic::Ordering::SeqCst;

const PAGE: usize = 4096;
const PAGES: usize = 2000;
/// Of the cache: a small part of the file.
const FRAMES: usize = 512;

fn page(number: usize, version: u8) -> Vec<u8> {
    let mut bytes = vec![version; PAGE];
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    bytes
}

/// A file that is on the device, and nowhere else.
fn cold(image: &MetaImage) -> (Arc<DataPath>, Arc<InodeObj>) {
    let (writing, file) = (path(image, 2 * PAGES), image.open(1));
    let bytes: Vec<u8> = (0..PAGES).flat_map(|number| page(number, 1)).collect();
    writing.write(&file, At::Offset(0), &bytes).expect("room");
    writing.fsync(&file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("no faults");
    (path(image, FRAMES), image.open(1))
}

fn check(path: &DataPath, file: &Arc<InodeObj>, pages: std::ops::Range<usize>, version: u8) {
    let mut bytes = vec![0; pages.len() * PAGE];
    assert_eq!(path.read(file, (pages.start * PAGE) as u64, &mut bytes), Ok(bytes.len()));
    for (number, found) in pages.zip(bytes.chunks_exact(PAGE)) {
        assert!(found == page(number, version), "page {number}");
    }
}

#[test]
fn a_sequential_reader_finds_nearly_all_of_it_read_ahead() {
    for step in [1, 3, 32, 250] {
        let image = MetaImage::new(4000, false);
        let (path, file) = cold(&image);
        for first in (0..PAGES).step_by(step) {
            check(&path, &file, first..(first + step).min(PAGES), 1);
        }
        let stats = path.stats();
        assert_eq!(stats.ahead, stats.ahead_used, "step {step}");
        // A window is no more than a part of what may be ahead of all readers, here few pages.
        let most = if step > 32 { PAGES * 32 / step * 3 / 4 } else { PAGES * 3 / 4 };
        assert!(stats.ahead as usize > most, "{} pages, step {step}", stats.ahead);
    }
}

#[test]
fn readers_in_several_places_of_a_file_are_each_followed() {
    let image = MetaImage::new(4000, false);
    let (path, file) = cold(&image);
    for at in 0..PAGES / 5 {
        for reader in 0..5 {
            let first = reader * (PAGES / 5) + at;
            check(&path, &file, first..first + 1, 1);
        }
    }
    let stats = path.stats();
    assert!(stats.ahead_used as usize > PAGES * 3 / 4, "{stats:?}");
    // Each stops where the next has begun, where little is left to drop.
    assert!(stats.ahead - stats.ahead_used <= FRAMES as u64 / 8, "{stats:?}");
}

#[test]
fn random_readers_get_what_they_ask_for() {
    let image = MetaImage::new(4000, false);
    let (path, file) = cold(&image);
    let mut at = 7;
    for _ in 0..3 * PAGES {
        at = (at * 5 + 3271) % PAGES;
        check(&path, &file, at..at + 1, 1);
    }
    let stats = path.stats();
    assert!(stats.ahead * 100 <= 3 * stats.misses, "{stats:?}");
}

/// What changes the file between the request and the reader is what the reader sees.
#[test]
fn what_is_overwritten_cut_or_punched_is_not_taken_from_what_was_read_ahead() {
    type Change = fn(&DataPath, &Arc<InodeObj>) -> Vec<u8>;
    let changes: [Change; 4] = [
        |path, file| {
            path.write(file, At::Offset(40 * PAGE as u64), &page(40, 2)).expect("room");
            page(40, 2)
        },
        |path, file| {
            path.write_direct(file, At::Offset(40 * PAGE as u64), &page(40, 3), Fit::Part).expect("room");
            page(40, 3)
        },
        |path, file| {
            path.truncate(file, 39 * PAGE as u64 + 5).expect("always");
            path.truncate(file, 100 * PAGE as u64).expect("always");
            vec![0; PAGE]
        },
        |path, file| {
            let (offset, len) = (40 * PAGE as u64, PAGE as u64);
            path.fallocate(file, FallocateMode::PunchHole, offset, len).expect("always");
            vec![0; PAGE]
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let image = MetaImage::new(4000, false);
        let (path, file) = cold(&image);
        let mut first = 0;
        while path.stats().ahead <= 40 {
            check(&path, &file, first..first + 1, 1);
            first += 1;
        }
        assert!(first < 39, "page 40 is ahead");
        let expected = change(&path, &file);
        let mut found = vec![9; PAGE];
        assert_eq!(path.read(&file, 40 * PAGE as u64, &mut found), Ok(PAGE));
        assert!(found == expected, "change {number}");
    }
}

#[test]
fn what_could_not_be_read_ahead_is_read_by_who_needs_it() {
    let image = MetaImage::new(4000, false);
    let (path, file) = cold(&image);
    check(&path, &file, 0..1, 1);
    // Page 1 has been read ahead; coming to it has others asked for.
    image.device.fail_reads.store(true, SeqCst);
    check(&path, &file, 1..2, 1);
    assert!(path.stats().ahead > 4);
    image.device.fail_reads.store(false, SeqCst);
    check(&path, &file, 2..PAGES, 1);
}

/// Streams that were left in the middle give their room to others.
#[test]
fn what_is_never_come_for_is_given_up() {
    let image = MetaImage::new(4000, false);
    let (path, file) = cold(&image);
    let files: Vec<_> = (0..60).map(|_| image.open(1)).collect();
    for left in &files {
        (0..8).for_each(|number| check(&path, left, number..number + 1, 1));
    }
    for number in 0..PAGES {
        check(&path, &file, number..number + 1, 1);
    }
    drop(files);
    let stats = path.stats();
    assert!(stats.ahead_dropped > 0, "{stats:?}");
    assert!(stats.ahead - stats.ahead_used - stats.ahead_dropped <= FRAMES as u64 / 8, "{stats:?}");
}

/// The extents of the file are shorter than a large buffer.
#[test]
fn what_is_read_ahead_of_a_file_of_many_extents_holds_no_more_than_it_may() {
    let image = MetaImage::new(2 * PAGES as u64, false);
    let (writing, file, between) = (path(&image, 2 * PAGES), image.open(1), image.open(2));
    let fsync = |file: &Arc<InodeObj>| {
        let mark = ErrorMark::of(Some(file.data()));
        writing.fsync(file, SyncKind::All, &mark).expect("no faults");
    };
    for first in (0..PAGES).step_by(20) {
        let bytes: Vec<u8> = (first..first + 20).flat_map(|number| page(number, 1)).collect();
        writing.write(&file, At::Offset((first * PAGE) as u64), &bytes).expect("room");
        fsync(&file);
        writing.write(&between, At::Append, &page(0, 1)).expect("room");
        fsync(&between);
    }
    for frames in [FRAMES, 8 * FRAMES] {
        let (path, file) = (path(&image, frames), image.open(1));
        let mut most = 0;
        for number in 0..PAGES {
            check(&path, &file, number..number + 1, 1);
            most = most.max(image.device.held());
        }
        let stats = path.stats();
        assert!((frames / 32..=frames / 8).contains(&most), "{most} pages of {frames}");
        assert!(stats.ahead as usize > PAGES * 3 / 4, "{stats:?}");
    }
}

#[test]
fn what_was_cancelled_is_given_back_before_anybody_reads_again() {
    let image = MetaImage::new(4000, false);
    let (path, file) = cold(&image);
    (0..20).for_each(|number| check(&path, &file, number..number + 1, 1));
    assert!(image.device.held() > 0 && path.readahead.held() > 0);
    std::thread::scope(|scope| {
        scope.spawn(|| path.run_settling());
        path.truncate(&file, 0).expect("always");
        while path.readahead.held() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(image.device.held(), 0);
        path.stop();
    });
}

#[test]
fn writing_back_keeps_many_requests_submitted() {
    let image = MetaImage::new(4 * PAGES as u64, false);
    let (path, file) = (path(&image, 40 * PAGES), image.open(1));
    let bytes = vec![1; 3 * PAGES * PAGE];
    path.write(&file, At::Offset(0), &bytes).expect("room");
    image.device.most_submitted.store(0, SeqCst);
    path.fsync(&file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("no faults");
    let most = image.device.most_submitted.load(SeqCst);
    assert!((32..=40).contains(&most), "{most} requests");
}
