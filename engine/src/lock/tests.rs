//! Locks of inodes and buckets, alone and in sets, under more threads than cores.

use super::*;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, thread};

const THREADS: u64 = 24;

/// Small numbers that look random, the same in each run.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % below
    }
}

fn in_threads(run: impl Fn(u64) + Sync) {
    thread::scope(|scope| {
        for seed in 1..=THREADS {
            let run = &run;
            scope.spawn(move || run(seed));
        }
    });
}

/// Counts a writer or a reader in, checks who is there, and counts it out.
fn visit(cell: &AtomicU64, access: Access) {
    const WRITER: u64 = 1 << 32;
    let mine = if access == Access::Write { WRITER } else { 1 };
    let others = cell.fetch_add(mine, Ordering::Relaxed);
    assert!(others < WRITER && (access == Access::Read || others == 0), "the lock let two in");
    cell.fetch_sub(mine, Ordering::Relaxed);
}

#[test]
fn buckets_exclude_stripe_by_stripe() {
    let locks = BucketLocks::new(1);
    let held = locks.lock(StripeSet::of(3), Access::Write);
    assert!(locks.try_lock(StripeSet::of(4), Access::Write).is_none(), "the word stands for all");
    drop(held);
    let three = locks.try_lock(StripeSet::of(3), Access::Write).expect("free");
    let four = locks.try_lock(StripeSet::of(4).and(5), Access::Write).expect("another stripe");
    assert!(locks.try_lock(StripeSet::of(3 + 64), Access::Read).is_none());
    assert!(locks.try_lock(StripeSet::ALL, Access::Read).is_none());
    drop((three, four));
    let all = locks.try_lock(StripeSet::ALL, Access::Read).expect("all was given back");
    assert!(locks.try_lock(StripeSet::of(63), Access::Read).is_some());
    assert!(locks.try_lock(StripeSet::of(63), Access::Write).is_none());
    drop(all);
    assert!(locks.try_lock(StripeSet::ALL, Access::Write).is_some());
}

#[test]
fn threads_in_the_buckets_of_one_directory_exclude_each_other() {
    let locks = BucketLocks::new(1);
    let cells: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
    in_threads(|seed| {
        let mut number = numbers(seed);
        for _ in 0..500 {
            let access = if number(3) == 0 { Access::Write } else { Access::Read };
            let (a, b) = (number(64), number(64));
            let (set, members) = match number(20) {
                0 => (StripeSet::ALL, (0..64).collect()),
                1..6 => (StripeSet::of(a).and(b), if a == b { vec![a] } else { vec![a, b] }),
                _ => (StripeSet::of(a), vec![a]),
            };
            let guard = match number(4) {
                0 => locks.try_lock(set, access),
                _ => Some(locks.lock(set, access)),
            };
            if guard.is_some() {
                members.iter().for_each(|m| visit(&cells[*m as usize], access));
            }
        }
    });
    assert!(locks.try_lock(StripeSet::ALL, Access::Write).is_some());
}

#[test]
fn a_set_joins_wishes_and_tells_what_it_holds() {
    let one = InodeLock::new(1, 10);
    let two = InodeLock::new(2, 20);
    let buckets = BucketLocks::new(1);
    let mut set = LockSet::acquire([
        Want::Inode(&two, Access::Read),
        Want::Buckets(&buckets, StripeSet::of(1), Access::Write),
        Want::Inode(&one, Access::Read),
        Want::Buckets(&buckets, StripeSet::of(2), Access::Write),
        Want::Inode(&one, Access::Write),
    ]);
    *set.inode_mut(1).expect("the stronger wish counts") += 1;
    assert_eq!(set.inode(1), Some(&11));
    assert_eq!(set.inode(2), Some(&20));
    assert_eq!(set.inode_mut(2), None);
    assert_eq!(set.inode(3), None);
    assert!(two.try_read().is_some() && two.try_write().is_none());
    assert!(LockSet::try_acquire([Want::Inode(&one, Access::Read)]).is_none());
    drop(set);
    assert!(LockSet::try_acquire([Want::Inode(&one, Access::Write)]).is_some());
    assert!(buckets.try_lock(StripeSet::ALL, Access::Write).is_some());
}

#[test]
fn a_failed_try_of_a_set_gives_everything_back() {
    let inodes = [InodeLock::new(1, ()), InodeLock::new(2, ()), InodeLock::new(3, ())];
    let held = inodes[2].write();
    let wants = [0, 1, 2].map(|i| Want::Inode(&inodes[i], Access::Write));
    assert!(LockSet::try_acquire(wants).is_none());
    assert!(inodes[0].try_write().is_some() && inodes[1].try_write().is_some());
    drop(held);
    assert!(LockSet::try_acquire(wants).is_some());
}

/// Renames between random directories: with any order but one, some would wait in a circle.
#[test]
fn threads_that_take_sets_in_any_order_all_come_through() {
    const INODES: u64 = 6;
    let inodes: Vec<_> = (0..INODES).map(|nid| InodeLock::new(nid, 0u64)).collect();
    let buckets: Vec<_> = (0..INODES).map(BucketLocks::new).collect();
    in_threads(|seed| {
        let mut number = numbers(seed);
        for _ in 0..300 {
            let (a, b, c) = (number(INODES), number(INODES), number(INODES));
            let mut set = LockSet::acquire([
                Want::Buckets(&buckets[a as usize], StripeSet::of(number(64)), Access::Write),
                Want::Inode(&inodes[b as usize], Access::Write),
                Want::Buckets(&buckets[b as usize], StripeSet::of(number(64)), Access::Write),
                Want::Inode(&inodes[c as usize], Access::Write),
            ]);
            *set.inode_mut(b).expect("asked for") += 1;
            *set.inode_mut(c).expect("asked for") += 1;
        }
    });
    let sum: u64 = inodes.iter().map(|inode| *inode.read()).sum();
    assert_eq!(sum, THREADS * 300 * 2);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "lock order")]
fn a_second_range_of_one_file_is_refused() {
    let lock = RangeLock::for_file(1);
    let _one = lock.read(0..10);
    let _two = lock.read(20..30);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "lock order")]
fn a_range_after_an_inode_is_refused() {
    let inode = InodeLock::new(1, ());
    let lock = RangeLock::for_file(1);
    let _inode = inode.read();
    let _range = lock.read(0..10);
}

#[test]
fn ranked_locks_exclude_and_keep_their_place() {
    let mutex = RankedMutex::new(Rank::new(LockClass::DirectoryMove, 0), 1);
    let latch = RankedRwLock::new(Rank::new(LockClass::Page, 7), 1);
    in_threads(|seed| {
        for _ in 0..200 {
            let mut outer = mutex.lock();
            if seed.is_multiple_of(2) {
                *outer += 1;
                *latch.write() += 1;
            } else {
                assert_eq!(*latch.read(), *outer);
            }
        }
    });
    assert_eq!(*mutex.lock(), 1 + THREADS / 2 * 200);
    let held = mutex.lock();
    assert!(mutex.try_lock().is_none());
    drop(held);
    let shared = latch.try_read().expect("free");
    assert!(latch.try_write().is_none());
    drop(shared);
    assert!(latch.try_write().is_some());
}

#[test]
fn waits_for_ranges_and_inodes_are_accounted() {
    let waits = |class: LockClass| lock_waits()[class as usize].waits;
    let before = (waits(LockClass::Range), waits(LockClass::Inode));
    let range = Arc::new(RangeLock::for_file(1));
    let inode = Arc::new(InodeLock::new(1, ()));
    let ready = Arc::new(AtomicU64::new(0));
    let held = (range.write(0..10), inode.write());
    let waiters: Vec<_> = [true, false]
        .into_iter()
        .map(|on_range| {
            let (range, inode, ready) = (range.clone(), inode.clone(), ready.clone());
            thread::spawn(move || {
                // The thread is about to sleep, and so is past the point where it counts its wait.
                let announce = ready.clone();
                let hook: crate::blocking::Hook = Box::new(move || {
                    announce.fetch_add(1, Ordering::Relaxed);
                });
                crate::blocking::set_hook(Some(hook));
                if on_range {
                    drop(range.write(5..6));
                } else {
                    drop(inode.write());
                }
            })
        })
        .collect();
    while ready.load(Ordering::Relaxed) < 2 {
        thread::yield_now();
    }
    drop(held);
    for waiter in waiters {
        waiter.join().expect("both come through");
    }
    assert!(waits(LockClass::Range) > before.0);
    assert!(waits(LockClass::Inode) > before.1);
}

/// Threads that take pages of a file again and again, more of them than cores, until the patient ones, who want the
/// whole file, have had their turns.
#[test]
fn who_wants_all_of_a_file_is_not_starved_by_those_who_want_a_page() {
    const TURNS: usize = 50;
    let lock = RangeLock::for_file(1);
    let patient = AtomicU64::new(2);
    thread::scope(|scope| {
        for greedy in 0..8_u64 {
            let (lock, patient) = (&lock, &patient);
            scope.spawn(move || {
                let page = (greedy / 2) * 4096..(greedy / 2 + 1) * 4096;
                while patient.load(Ordering::Relaxed) > 0 {
                    if greedy % 2 == 0 {
                        drop(lock.write(page.clone()));
                    } else {
                        drop(lock.read(page.clone()));
                    }
                }
            });
        }
        for access in [Access::Read, Access::Write] {
            let (lock, patient) = (&lock, &patient);
            scope.spawn(move || {
                for _ in 0..TURNS {
                    match access {
                        Access::Read => drop(lock.read(0..u64::MAX)),
                        Access::Write => drop(lock.write(0..u64::MAX)),
                    }
                }
                patient.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
}
