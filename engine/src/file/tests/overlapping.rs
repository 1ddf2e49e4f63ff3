//! Reads and writes of the same pages, from many threads at once.

use super::image::{Fsync as _, MetaImage, path};
use crate::file::{At, ErrorMark, FallocateMode, Fit, Keep, SyncKind};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use crate::sync::thread;

const KIB4: usize = 4096;
const ROUNDS: u64 = 3000;
/// Pages of the file: more than the small cache has, and a write reaches over several segments of the lock.
const PAGES: usize = 20;

fn stamped(version: u64, pages: usize) -> Vec<u8> {
    version.to_le_bytes().repeat(pages * KIB4 / 8)
}

/// The one version that all bytes are of.
fn version(bytes: &[u8]) -> u64 {
    let first = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    let whole = bytes.chunks_exact(8).all(|word| word == first.to_le_bytes());
    assert!(whole, "a read shows a part of a write");
    first
}

/// Pages of what is longer than one step of a read or write.
const LONG: usize = 600;

/// One thread writes version after version over all pages; others read all of them, or some, and one page after
/// another. What they see is whole, and never older than what was seen, or was written, before.
fn check(frames: usize, sync: bool, direct: bool) {
    let image = MetaImage::new(1000, false);
    let path = path(&image, frames);
    let file = image.open(1);
    path.write(&file, At::Offset(0), &stamped(1, PAGES)).expect("room");
    let (done, written) = (AtomicBool::new(false), AtomicU64::new(1));
    thread::scope(|scope| {
        for reader in 0..4 {
            let (path, file, done, written) = (&path, &file, &done, &written);
            scope.spawn(move || {
                let mut seen = 1;
                let mut round = reader;
                while !done.load(SeqCst) {
                    round += 1;
                    let pages = [1, 2, 7, PAGES][round % 4];
                    let first = (round * 5) % (PAGES - pages + 1);
                    let mut bytes = vec![0; pages * KIB4];
                    let least = written.load(SeqCst).max(seen);
                    let got = if direct && round % 3 == 0 {
                        path.read_keeping(file, (first * KIB4) as u64, &mut bytes, Keep::No)
                    } else {
                        path.read(file, (first * KIB4) as u64, &mut bytes)
                    };
                    assert_eq!(got, Ok(bytes.len()));
                    seen = version(&bytes);
                    assert!(seen >= least, "version {seen} after {least}");
                }
            });
        }
        let mark = ErrorMark::of(Some(file.data()));
        for version in 2..ROUNDS {
            if direct && version % 5 == 0 {
                path.write_direct(&file, At::Offset(0), &stamped(version, PAGES), Fit::Part).expect("room");
            } else {
                path.write(&file, At::Offset(0), &stamped(version, PAGES)).expect("room");
            }
            written.store(version, SeqCst);
            if sync && version % 7 == 0 {
                path.fsync(&file, SyncKind::All, &mark).expect("no faults");
            }
        }
        done.store(true, SeqCst);
    });
}

#[test]
fn overlapping_reads_and_writes_do_not_mix_in_the_cache() {
    check(256, false, false);
}

#[test]
fn overlapping_reads_and_writes_do_not_mix_while_pages_come_and_go() {
    check(128, true, true);
}

/// A file that is cut and grown again shows zeros or what was written since, and no read goes beyond its end.
#[test]
fn reads_beside_truncations_show_nothing_of_what_was_cut() {
    let image = MetaImage::new(1000, false);
    let path = path(&image, 64);
    let (one, other) = (image.open(1), image.open(2));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut bytes = [0; 2 * KIB4];
                while !done.load(SeqCst) {
                    let got = path.read(&one, 0, &mut bytes).expect("no faults");
                    assert!(bytes[..got].iter().all(|b| *b <= 1), "bytes of another file");
                    assert!([0, 100, 2 * KIB4].contains(&got), "{got} bytes");
                }
            });
        }
        for round in 0..ROUNDS {
            path.write(&one, At::Offset(0), &[1; 2 * KIB4]).expect("room");
            path.truncate(&one, if round % 2 == 0 { 100 } else { 0 }).expect("always");
            // Takes the frames that came free.
            path.write(&other, At::Offset(0), &[7; 8 * KIB4]).expect("room");
            path.truncate(&other, 0).expect("always");
        }
        done.store(true, SeqCst);
    });
}

/// A write of any length is seen whole by a read of any length, whether the cache has room for it or not.
#[test]
fn reads_and_writes_of_many_steps_do_not_mix() {
    for frames in [4 * LONG, LONG / 4] {
        let image = MetaImage::new(4 * LONG as u64, false);
        let path = path(&image, frames);
        let file = image.open(1);
        path.write(&file, At::Offset(0), &stamped(1, LONG)).expect("room");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for (reader, pages) in [LONG, LONG / 2, 5].into_iter().enumerate() {
                let (path, file, done) = (&path, &file, &done);
                scope.spawn(move || {
                    let (mut seen, mut round) = (1, reader);
                    let mut bytes = vec![0; pages * KIB4];
                    while !done.load(SeqCst) {
                        round += 7;
                        let first = round % (LONG - pages + 1);
                        assert_eq!(path.read(file, (first * KIB4) as u64, &mut bytes), Ok(bytes.len()));
                        let now = version(&bytes);
                        assert!(now >= seen, "version {now} after {seen}");
                        seen = now;
                    }
                });
            }
            for version in 2..60 {
                let written = path.write(&file, At::Offset(0), &stamped(version, LONG)).expect("room");
                assert_eq!(written.len, LONG * KIB4);
            }
            done.store(true, SeqCst);
        });
    }
}

/// Appends find the end, and keep it until all is written.
#[test]
fn appends_of_many_steps_follow_one_another() {
    const THREADS: u64 = 4;
    const EACH: u64 = 6;
    let image = MetaImage::new(THREADS * EACH * LONG as u64, false);
    let path = path(&image, LONG);
    let file = image.open(1);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (path, file) = (&path, &file);
            scope.spawn(move || {
                for round in 0..EACH {
                    let stamp = stamped(1 + thread * EACH + round, LONG);
                    let written = path.write(file, At::Append, &stamp).expect("room");
                    assert_eq!(written.len, stamp.len());
                }
            });
        }
    });
    let count = THREADS * EACH;
    assert_eq!(file.data().size(), count * (LONG * KIB4) as u64);
    let mut bytes = vec![0; LONG * KIB4];
    let mut seen = vec![false; count as usize];
    for at in 0..count {
        path.read(&file, at * bytes.len() as u64, &mut bytes).expect("no faults");
        let stamp = version(&bytes);
        assert!(!std::mem::replace(&mut seen[stamp as usize - 1], true), "{stamp} twice");
    }
}

/// So few frames that those of the writers which wait for the range would be all there are.
#[test]
fn writers_that_wait_with_frames_in_hand_stop_nobody() {
    let image = MetaImage::new(1000, false);
    let path = path(&image, 16);
    let file = image.open(1);
    thread::scope(|scope| {
        for thread in 0..8 {
            let (path, file) = (&path, &file);
            scope.spawn(move || {
                for round in 0..30 {
                    let stamp = stamped(1 + thread * 100 + round, 40);
                    assert_eq!(path.write(file, At::Offset(0), &stamp).expect("room").len, stamp.len());
                }
            });
        }
    });
    let mut bytes = vec![0; 40 * KIB4];
    path.read(&file, 0, &mut bytes).expect("no faults");
    version(&bytes);
}

/// Parts of pages at both ends, whole pages in between, blocks and the size: all of it at once.
#[test]
fn what_is_cleared_is_cleared_at_once() {
    const BEGIN: usize = 104;
    const SIZE: usize = 12 * KIB4 + 800;
    const CLEARED: usize = SIZE + 2 * KIB4;
    for frames in [256, 16] {
        let image = MetaImage::new(1000, false);
        let path = path(&image, frames);
        let file = image.open(1);
        let done = AtomicBool::new(false);
        let zeros = |bytes: &[u8]| bytes.iter().all(|b| *b == 0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut bytes = vec![0; CLEARED + KIB4];
                    while !done.load(SeqCst) {
                        let got = path.read(&file, 0, &mut bytes).expect("no faults");
                        match got {
                            0 => {}
                            // Holes are punched up to here.
                            SIZE if zeros(&bytes[BEGIN..SIZE - 96]) => {
                                assert!(version(&bytes[SIZE - 96..SIZE]) == version(&bytes[..BEGIN]));
                            }
                            SIZE => drop(version(&bytes[..SIZE])),
                            CLEARED => {
                                version(&bytes[..BEGIN]);
                                assert!(zeros(&bytes[BEGIN..CLEARED]), "the size without the zeros");
                            }
                            _ => panic!("{got} bytes"),
                        }
                    }
                });
            }
            for round in 1..600u64 {
                path.truncate(&file, 0).expect("always");
                path.write(&file, At::Offset(0), &round.to_le_bytes().repeat(SIZE / 8)).expect("room");
                let (mode, end) = match round % 2 {
                    0 => (FallocateMode::PunchHole, SIZE - 96),
                    _ => (FallocateMode::ZeroRange { keep_size: false }, CLEARED),
                };
                path.fallocate(&file, mode, BEGIN as u64, (end - BEGIN) as u64).expect("room");
            }
            done.store(true, SeqCst);
        });
    }
}
