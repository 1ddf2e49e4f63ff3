//! What is read is what was written, whatever happened in between.

use super::image::{MetaImage, content, path};
use crate::Error;
use crate::file::{At, ErrorMark, FallocateMode, SeekTo, SyncKind};
use crate::format::MAX_FILE_SIZE;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{Arc, thread};

const KIB4: usize = 4096;

#[test]
fn writes_are_read_back_from_the_cache_and_from_the_device() {
    let image = MetaImage::new(1000, false);
    let path = path(&image, 16);
    let file = image.open(1);
    let bytes: Vec<u8> = (0..50 * KIB4 + 77).map(|i| (i / 7) as u8).collect();
    let written = path.write(&file, At::Offset(100), &bytes).expect("room");
    assert_eq!((written.offset, written.len), (100, bytes.len()));
    let seen = content(&path, &file);
    assert!(seen[..100].iter().all(|b| *b == 0));
    assert_eq!(&seen[100..], bytes);
    let mark = ErrorMark::of(Some(file.data()));
    path.fsync(&file, SyncKind::All, &mark).expect("no faults");
    assert_eq!(image.reserved(), 0);
    assert!(image.device.reads.load(SeqCst) > 0);
}

#[test]
fn a_whole_page_is_overwritten_without_a_read_and_clean_pages_leave_without_a_write() {
    let image = MetaImage::new(1000, false);
    let path = path(&image, 16);
    let file = image.open(1);
    path.write(&file, At::Offset(0), &vec![1; 100 * KIB4]).expect("room");
    path.sync_all(|| Ok(())).expect("no faults");
    let written = path.stats().written;
    content(&path, &file);
    assert_eq!(path.stats().written, written);
    let reads = image.device.reads.load(SeqCst);
    path.write(&file, At::Offset(0), &vec![2; 100 * KIB4]).expect("room");
    assert_eq!(image.device.reads.load(SeqCst), reads);
}

#[test]
fn what_one_reader_brings_others_wait_for_and_what_it_reads_ahead_they_take_over() {
    let image = MetaImage::new(1000, false);
    let bytes: Vec<u8> = (0..40 * KIB4).map(|i| (i / KIB4) as u8).collect();
    let before = path(&image, 64);
    before.write(&image.open(1), At::Offset(0), &bytes).expect("room");
    before.sync_all(|| Ok(())).expect("no faults");
    drop(before);
    let (path, file) = (path(&image, 64), image.open(1));
    let reads = image.device.reads.load(SeqCst);
    let other = Arc::new(crate::sync::Mutex::new(None));
    *image.device.when_read.lock() = Some(Box::new({
        let (path, file, other) = (Arc::clone(&path), Arc::clone(&file), Arc::clone(&other));
        move || {
            let (tell, told) = std::sync::mpsc::channel();
            *other.lock() = Some(thread::spawn(move || {
                let mut page = vec![0; KIB4];
                let waits = tell.clone();
                crate::blocking::set_hook(Some(Box::new(move || {
                    let _ = waits.send(());
                })));
                let got = path.read(&file, 0, &mut page).expect("no faults");
                let _ = tell.send(());
                page.truncate(got);
                page
            }));
            // It waits, or, wrongly, has read the page itself.
            told.recv().expect("one of both");
        }
    }));
    let mut page = vec![9; KIB4];
    assert_eq!(path.read(&file, 0, &mut page), Ok(KIB4));
    let other = other.lock().take().expect("it was started").join().expect("no panic");
    assert_eq!((&page[..], &other[..]), (&bytes[..KIB4], &bytes[..KIB4]));
    assert_eq!(image.device.reads.load(SeqCst) - reads, 2, "the page asked for, and those behind it in one");
    let other = thread::spawn({
        let (path, file) = (Arc::clone(&path), Arc::clone(&file));
        move || {
            let mut page = vec![9; KIB4];
            path.read(&file, 2 * KIB4 as u64, &mut page).map(|_| page)
        }
    });
    assert_eq!(other.join().expect("no panic").as_deref(), Ok(&bytes[2 * KIB4..3 * KIB4]));
    assert_eq!(image.device.reads.load(SeqCst) - reads, 3, "those behind them");
}

#[test]
fn a_full_image_answers_at_the_write() {
    let image = MetaImage::new(1000, false);
    let path = path(&image, 64);
    let file = image.open(1);
    image.leave(6);
    let append = |pages: usize| path.write(&file, At::Append, &vec![1; pages * KIB4]);
    let pages = (1..).take_while(|_| append(1).is_ok()).last().expect("room for some");
    assert!((3..=6).contains(&pages), "{pages} pages");
    assert_eq!(append(1), Err(Error::Errno(libc::ENOSPC)));
    path.sync_all(|| Ok(())).expect("what was accepted goes home");
    path.truncate(&file, 0).expect("always");
    path.write(&file, At::Append, &vec![2; pages * KIB4]).expect("the old blocks come free");
    assert_eq!(content(&path, &file), vec![2; pages * KIB4]);
}

#[test]
fn holes_and_data_are_told_apart() {
    let image = MetaImage::new(1000, false);
    let path = path(&image, 16);
    let file = image.open(1);
    path.write(&file, At::Offset(3 * KIB4 as u64), &[1; KIB4]).expect("room");
    let check = || {
        assert_eq!(path.seek(&file, SeekTo::Data, 5), Ok(3 * KIB4 as u64));
        assert_eq!(path.seek(&file, SeekTo::Hole, 5), Ok(5));
        assert_eq!(path.seek(&file, SeekTo::Hole, 3 * KIB4 as u64 + 5), Ok(4 * KIB4 as u64));
        assert_eq!(path.seek(&file, SeekTo::Data, 4 * KIB4 as u64), Err(Error::Errno(libc::ENXIO)));
    };
    check();
    path.sync_all(|| Ok(())).expect("no faults");
    check();
    let keep = FallocateMode::Allocate { keep_size: true };
    path.fallocate(&file, keep, 0, 20 * KIB4 as u64).expect("room");
    check();
    assert_eq!(file.data().size(), 4 * KIB4 as u64);
    let other = image.open(2);
    assert_eq!(path.copy_range(&file, 0, &other, 0, 1 << 20), Ok(4 * KIB4 as u64));
    assert_eq!(content(&path, &other), content(&path, &file));
}

#[test]
fn overlapping_writes_are_seen_whole() {
    let image = MetaImage::new(1000, false);
    let path = path(&image, 64);
    let file = image.open(1);
    path.write(&file, At::Offset(0), &[0; 3 * KIB4]).expect("room");
    let threads: Vec<_> = (0..4u8)
        .map(|me| {
            let (path, file) = (Arc::clone(&path), Arc::clone(&file));
            thread::spawn(move || {
                let mut seen = vec![0; 3 * KIB4];
                for round in 0..200u8 {
                    if me % 2 == 0 {
                        path.write(&file, At::Offset(0), &[me.wrapping_add(round); 3 * KIB4]).expect("room");
                    } else {
                        path.read(&file, 0, &mut seen).expect("no faults");
                        assert!(seen.iter().all(|b| *b == seen[0]), "a torn write");
                    }
                    if round % 50 == 0 {
                        path.sync_all(|| Ok(())).expect("no faults");
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().expect("no torn write"));
}

#[test]
fn appends_of_many_threads_neither_overlap_nor_leave_gaps() {
    let image = MetaImage::new(1000, true);
    let path = path(&image, 32);
    let file = image.open(1);
    let threads: Vec<_> = (1..5u8)
        .map(|me| {
            let (path, file) = (Arc::clone(&path), Arc::clone(&file));
            thread::spawn(move || {
                let mark = ErrorMark::of(Some(file.data()));
                for round in 0..100 {
                    path.write(&file, At::Append, &[me; 700]).expect("room");
                    if round % 10 == 0 {
                        path.fsync(&file, SyncKind::Data, &mark).expect("no faults");
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().expect("appends succeed"));
    let seen = content(&path, &file);
    assert_eq!(seen.len(), 4 * 100 * 700);
    for piece in seen.chunks(700) {
        assert!(piece[0] != 0 && piece.iter().all(|b| *b == piece[0]));
    }
}

#[test]
fn beyond_what_a_file_can_have_nothing_is_read() {
    let image = MetaImage::new(10, false);
    let path = path(&image, 16);
    let file = image.open(1);
    path.write(&file, At::Offset(0), &[1; 100]).expect("room");
    for offset in [MAX_FILE_SIZE, i64::MAX as u64, u64::MAX - 20] {
        assert_eq!(path.read(&file, offset, &mut [0; 10]).expect("no faults"), 0);
    }
}
