//! Random schedules of the locks: more threads and more steps than loom can enumerate.
//!
//! A lock that sleeps for ever is reported as a deadlock, one that lets two in by the cells.

use super::*;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, WaitQueue, thread};

const SCHEDULES: usize = 2000;
const THREADS: u64 = 4;
const WRITER: u64 = 1 << 32;

fn check(run: impl Fn(u64) + Send + Sync + 'static, done: impl Fn() + Send + Sync + 'static) {
    let threads: Vec<_> = {
        let run = Arc::new(run);
        (0..THREADS)
            .map(|me| {
                let run = run.clone();
                thread::spawn(move || run(me))
            })
            .collect()
    };
    for thread in threads {
        thread.join().expect("a model's threads do not panic");
    }
    done();
}

fn enter(cell: &AtomicU64, access: Access) {
    let others = cell.fetch_add(if access == Access::Write { WRITER } else { 1 }, Ordering::Relaxed);
    assert!(others < WRITER && (access == Access::Read || others == 0), "the lock let two in");
}

fn leave(cell: &AtomicU64, access: Access) {
    cell.fetch_sub(if access == Access::Write { WRITER } else { 1 }, Ordering::Relaxed);
}

fn cells() -> Arc<[AtomicU64; 4]> {
    Arc::default()
}

/// Runs of cells of one segment each, from single ones to infinity, read and written, waited for and tried.
#[test]
fn ranges_exclude_each_other() {
    shuttle::check_random(
        || {
            let lock = Arc::new(RangeLock::for_file(1));
            let (inner, cells) = (lock.clone(), cells());
            check(
                move |me| {
                    for step in 0..3 {
                        let first = (me * 7 + step * 3) % 4;
                        let last = first + (me + step) % (4 - first);
                        let end = if last == 3 { u64::MAX } else { (last + 1) << 14 };
                        let access = if (me + step) % 3 == 0 { Access::Read } else { Access::Write };
                        let range = first << 14..end;
                        let guard = match (access, step) {
                            (Access::Read, 2) => inner.try_read(range),
                            (Access::Write, 2) => inner.try_write(range),
                            (Access::Read, _) => Some(inner.read(range)),
                            (Access::Write, _) => Some(inner.write(range)),
                        };
                        if guard.is_some() {
                            (first..=last).for_each(|i| enter(&cells[i as usize], access));
                            thread::yield_now();
                            (first..=last).for_each(|i| leave(&cells[i as usize], access));
                        }
                    }
                },
                move || assert!(lock.try_write(0..u64::MAX).is_some(), "everything was given back"),
            );
        },
        SCHEDULES,
    );
}

/// A writer among readers that never all go away ends, under schedules that are fair on the whole.
#[test]
fn a_writer_gets_in_among_readers() {
    shuttle::check_random(
        || {
            let lock = Arc::new(RangeLock::for_file(1));
            let written = AtomicBool::new(false);
            check(
                move |me| {
                    if me == 0 {
                        drop(lock.write(3..8));
                        written.store(true, Ordering::Relaxed);
                    }
                    while !written.load(Ordering::Relaxed) {
                        let _range = lock.read(me..10);
                        thread::yield_now();
                    }
                },
                || {},
            );
        },
        SCHEDULES,
    );
}

#[test]
fn sets_of_inodes_and_buckets_do_not_wait_in_a_circle() {
    shuttle::check_random(
        || {
            let inodes: [_; 3] = std::array::from_fn(|nid| InodeLock::new(nid as u64, 0));
            let buckets: [_; 3] = std::array::from_fn(|nid| BucketLocks::new(nid as u64));
            let cells = cells();
            check(
                move |me| {
                    for step in 0..2 {
                        let (a, b) = ((me + step) as usize % 3, (2 * me + 1) as usize % 3);
                        let mut set = LockSet::acquire([
                            Want::Buckets(&buckets[a], StripeSet::of(me), Access::Read),
                            Want::Buckets(&buckets[b], StripeSet::of(1), Access::Write),
                            Want::Inode(&inodes[a], Access::Write),
                        ]);
                        *set.inode_mut(a as u64).expect("asked for") += 1;
                        enter(&cells[b], Access::Write);
                        thread::yield_now();
                        leave(&cells[b], Access::Write);
                    }
                },
                || {},
            );
        },
        SCHEDULES,
    );
}

/// A pool of two among four: a thread that gives back wakes one.
#[test]
fn a_pool_wakes_who_waits_for_it() {
    shuttle::check_random(
        || {
            let pool = Arc::new((AtomicU64::new(2), WaitQueue::new()));
            let inner = pool.clone();
            check(
                move |_| {
                    let (free, queue) = &*inner;
                    for _ in 0..3 {
                        queue.wait_for(|| {
                            let take = |n: u64| n.checked_sub(1);
                            free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()
                        });
                        thread::yield_now();
                        free.fetch_add(1, Ordering::Relaxed);
                        queue.wake_one();
                    }
                },
                move || assert_eq!(pool.0.load(Ordering::Relaxed), 2),
            );
        },
        SCHEDULES,
    );
}

/// Record locks on two files, taken in opposite orders: each wait ends, by grant or by refusal.
#[test]
fn advisory_waits_all_end() {
    shuttle::check_random(
        || {
            let locks = Arc::new(AdvisoryLocks::new());
            let cells = cells();
            let inner = locks.clone();
            check(
                move |me| {
                    let wait = |nid: u64| {
                        let told = Arc::new((AtomicU64::new(0), WaitQueue::new()));
                        let tell = told.clone();
                        let request = LockRequest {
                            owner: Owner::Library(me),
                            pid: 0,
                            range: 0..1,
                            access: Access::Write,
                        };
                        let complete: Completion = Box::new(move |result| {
                            tell.0.store(1 + result.is_ok() as u64, Ordering::Release);
                            tell.1.wake_all();
                            true
                        });
                        inner.lock(nid, AdvisoryKind::Record, request, complete);
                        told.1.wait_until(|| told.0.load(Ordering::Acquire) != 0);
                        told.0.load(Ordering::Relaxed) == 2
                    };
                    let (first, second) = (me % 2, 1 - me % 2);
                    assert!(wait(first), "who holds nothing closes no circle");
                    enter(&cells[first as usize], Access::Write);
                    if wait(second) {
                        enter(&cells[second as usize], Access::Write);
                        leave(&cells[second as usize], Access::Write);
                        inner.release_owner(second, AdvisoryKind::Record, Owner::Library(me));
                    }
                    leave(&cells[first as usize], Access::Write);
                    inner.release_owner(first, AdvisoryKind::Record, Owner::Library(me));
                },
                move || {
                    let all = LockRequest {
                        owner: Owner::Library(9),
                        pid: 0,
                        range: 0..u64::MAX,
                        access: Access::Write,
                    };
                    assert!((0..2).all(|nid| locks.test(nid, AdvisoryKind::Record, &all).is_none()));
                },
            );
        },
        SCHEDULES,
    );
}
