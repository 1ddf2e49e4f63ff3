//! What every implementation of [`FileLock`] must do.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::lock::FileLock;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Far more threads than the cores of a small machine.
const THREADS: u64 = 24;

/// Cells of the file under test, some kilobytes each so that they fall into several segments.
const CELLS: usize = 16;
const CELL: u64 = 6 << 10;

/// Runs every check on locks of type `L`.
///
/// # Panics
/// If the lock does not keep a promise.
pub fn check<L: FileLock>() {
    a_free_lock_can_be_tried::<L>();
    a_held_range_excludes::<L>();
    overlapping_holders_exclude_each_other::<L>();
    increments_under_the_lock_are_not_lost::<L>();
    a_writer_is_not_starved_by_readers::<L>();
    a_wide_request_is_not_starved_by_narrow_ones::<L>();
    a_panic_releases::<L>();
}

fn a_free_lock_can_be_tried<L: FileLock>() {
    let lock = L::for_file(1);
    for range in [0..1, 0..u64::MAX, 7..7, u64::MAX - 1..u64::MAX, u64::MAX..u64::MAX] {
        assert!(lock.try_read(range.clone()).is_some());
        assert!(lock.try_write(range.clone()).is_some());
        drop(lock.read(range.clone()));
        drop(lock.write(range));
    }
}

fn a_held_range_excludes<L: FileLock>() {
    let lock = L::for_file(1);
    for held in [0..1, 100..200, 1 << 40..u64::MAX, 0..u64::MAX] {
        let overlaps = [held.clone(), held.start..held.start + 1, held.end - 1..held.end, 0..u64::MAX];
        let guard = lock.write(held.clone());
        for range in overlaps.clone() {
            assert!(lock.try_read(range.clone()).is_none(), "{range:?} while {held:?} is written");
            assert!(lock.try_write(range).is_none());
        }
        drop(guard);
        let guard = lock.read(held.clone());
        for range in overlaps {
            assert!(lock.try_write(range.clone()).is_none(), "{range:?} while {held:?} is read");
        }
        drop(guard);
        assert!(lock.try_write(0..u64::MAX).is_some());
    }
}

/// A random run of cells, now and then up to infinity: its indices and its bytes, which need not be whole
/// cells.
fn random_cells(rng: &mut SmallRng) -> (Range<usize>, Range<u64>) {
    let first = rng.random_range(0..CELLS);
    let last = rng.random_range(first..CELLS);
    let start = first as u64 * CELL + rng.random_range(0..CELL);
    let end = if last == CELLS - 1 && rng.random() {
        u64::MAX
    } else {
        (last as u64 * CELL + rng.random_range(1..=CELL)).max(start + 1)
    };
    // Only the cells that are locked whole are the holder's.
    let whole = start.div_ceil(CELL) as usize..CELLS.min((end / CELL) as usize);
    (whole, start..end)
}

fn overlapping_holders_exclude_each_other<L: FileLock>() {
    const WRITER: u64 = 1 << 32;
    let lock = L::for_file(1);
    let cells: [AtomicU64; CELLS] = Default::default();
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let (lock, cells) = (&lock, &cells);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed);
                for _ in 0..400 {
                    let (whole, range) = random_cells(&mut rng);
                    let write = rng.random_ratio(1, 3);
                    let guard = match (write, rng.random_ratio(1, 4)) {
                        (true, false) => Some(lock.write(range)),
                        (false, false) => Some(lock.read(range)),
                        (true, true) => lock.try_write(range),
                        (false, true) => lock.try_read(range),
                    };
                    if guard.is_none() {
                        continue;
                    }
                    let mine = if write { WRITER } else { 1 };
                    for cell in whole.clone().map(|i| &cells[i]) {
                        let others = cell.fetch_add(mine, Ordering::Relaxed);
                        assert!(others < WRITER && (!write || others == 0), "seed {seed}");
                    }
                    if rng.random_ratio(1, 8) {
                        thread::yield_now();
                    }
                    for cell in whole.map(|i| &cells[i]) {
                        cell.fetch_sub(mine, Ordering::Relaxed);
                    }
                    drop(guard);
                }
            });
        }
    });
    assert!(lock.try_write(0..u64::MAX).is_some(), "everything was given back");
}

fn increments_under_the_lock_are_not_lost<L: FileLock>() {
    const EACH: u64 = 2000;
    let lock = L::for_file(1);
    let sum = AtomicU64::new(0);
    thread::scope(|scope| {
        for start in 0..THREADS {
            let (lock, sum) = (&lock, &sum);
            scope.spawn(move || {
                for _ in 0..EACH {
                    // All ranges share the byte after the last start.
                    let _guard = lock.write(start..THREADS + 1);
                    let seen = sum.load(Ordering::Relaxed);
                    sum.store(seen + 1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), THREADS * EACH);
}

/// Ends only if the writer gets in while readers keep coming.
fn a_writer_is_not_starved_by_readers<L: FileLock>() {
    let lock = L::for_file(1);
    let written = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !written.load(Ordering::Relaxed) {
                    let _guard = lock.read(0..100);
                    thread::yield_now();
                }
            });
        }
        for _ in 0..50 {
            drop(lock.write(50..60));
        }
        written.store(true, Ordering::Relaxed);
    });
}

/// Ends only if a truncation gets in while writers of single blocks keep coming.
fn a_wide_request_is_not_starved_by_narrow_ones<L: FileLock>() {
    let lock = L::for_file(1);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for block in 0..4 {
            let (lock, done) = (&lock, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let _guard = lock.write(block << 16..(block + 1) << 16);
                    thread::yield_now();
                }
            });
        }
        for _ in 0..50 {
            drop(lock.write(0..u64::MAX));
        }
        done.store(true, Ordering::Relaxed);
    });
}

fn a_panic_releases<L: FileLock>() {
    let lock = L::for_file(1);
    thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _guard = lock.write(0..10);
            std::panic::resume_unwind(Box::new("as an operation that panics would"));
        });
        assert!(holder.join().is_err());
    });
    assert!(lock.try_write(0..u64::MAX).is_some());
}
