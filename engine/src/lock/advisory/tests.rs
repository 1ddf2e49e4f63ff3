use super::*;
use crate::sync::Arc;
use AdvisoryKind::{Flock, Record};

const ALL: Range<u64> = 0..u64::MAX;

fn own(owner: u64) -> Owner {
    Owner::Library(owner)
}

fn read(owner: u64, range: Range<u64>) -> LockRequest {
    LockRequest { owner: own(owner), pid: owner as u32 + 1000, range, access: Access::Read }
}

fn write(owner: u64, range: Range<u64>) -> LockRequest {
    LockRequest { access: Access::Write, ..read(owner, range) }
}

/// The outcomes that a completion was called with: at most one.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Result<()>>>>);

impl Told {
    fn completion(&self) -> Completion {
        let told = self.clone();
        Box::new(move |result| {
            told.0.lock().push(result);
            true
        })
    }

    fn get(&self) -> Option<Result<()>> {
        let told = self.0.lock();
        assert!(told.len() <= 1);
        told.first().cloned()
    }
}

fn errno(n: i32) -> Option<Result<()>> {
    Some(Err(Error::Errno(n)))
}

fn lock(locks: &AdvisoryLocks, nid: u64, kind: AdvisoryKind, request: LockRequest) -> (Told, WaitId) {
    let told = Told::default();
    let wait = locks.lock(nid, kind, request, told.completion());
    (told, wait)
}

fn assert_clean(locks: &AdvisoryLocks) {
    assert!(locks.shards.iter().all(|s| s.lock().is_empty()));
    assert!(locks.graph.lock().is_empty());
    for side in [Owner::Library(0), Owner::Mount(0)] {
        assert_eq!(locks.room.held(side).load(Ordering::Relaxed), 0);
    }
}

#[test]
fn the_kinds_and_the_files_are_apart() {
    let locks = AdvisoryLocks::new();
    locks.try_lock(1, Flock, &write(1, ALL)).expect("free");
    locks.try_lock(1, Record, &write(2, ALL)).expect("another kind");
    locks.try_lock(17, Flock, &write(2, ALL)).expect("another file of the same shard");
    assert_eq!(locks.try_lock(1, Flock, &read(2, ALL)), Err(Error::Errno(libc::EAGAIN)));
    locks.release_owner(1, Flock, own(1));
    locks.release_owner(1, Record, own(2));
    locks.release_owner(17, Flock, own(2));
    assert_clean(&locks);
}

#[test]
fn getlk_names_the_first_lock_in_the_way() {
    let locks = AdvisoryLocks::new();
    locks.try_lock(1, Record, &write(1, 50..60)).expect("free");
    locks.try_lock(1, Record, &read(2, 10..20)).expect("free");
    let conflict = locks.test(1, Record, &write(3, ALL)).expect("two are in the way");
    assert_eq!(conflict, Conflict { range: 10..20, access: Access::Read, pid: 1002 });
    assert_eq!(locks.test(1, Record, &read(3, 0..50)), None);
    assert_eq!(locks.test(2, Record, &write(3, ALL)), None);
}

#[test]
fn an_empty_range_is_refused() {
    let locks = AdvisoryLocks::new();
    assert_eq!(locks.try_lock(1, Record, &write(1, 5..5)), Err(Error::Errno(libc::EINVAL)));
    assert_eq!(lock(&locks, 1, Record, write(1, 5..5)).0.get(), errno(libc::EINVAL));
    assert_clean(&locks);
}

#[test]
fn waiters_are_granted_when_what_blocks_them_goes() {
    let locks = AdvisoryLocks::new();
    assert_eq!(lock(&locks, 1, Record, write(1, 0..10)).0.get(), Some(Ok(())));
    let (second, _) = lock(&locks, 1, Record, write(2, 0..5));
    let (third, _) = lock(&locks, 1, Record, read(3, 5..10));
    let (fourth, _) = lock(&locks, 1, Record, write(4, 0..10));
    assert_eq!((second.get(), third.get(), fourth.get()), (None, None, None));
    locks.unlock(1, Record, own(1), 5..10).expect("there is room");
    assert_eq!((second.get(), third.get(), fourth.get()), (None, Some(Ok(())), None));
    locks.release_owner(1, Record, own(1));
    assert_eq!((second.get(), fourth.get()), (Some(Ok(())), None));
    locks.release_owner(1, Record, own(2));
    locks.release_owner(1, Record, own(3));
    assert_eq!(fourth.get(), Some(Ok(())));
    locks.release_owner(1, Record, own(4));
    assert_clean(&locks);
}

#[test]
fn a_downgrade_lets_waiting_readers_in() {
    let locks = AdvisoryLocks::new();
    locks.try_lock(1, Record, &write(1, ALL)).expect("free");
    let (reader, _) = lock(&locks, 1, Record, read(2, 0..10));
    locks.try_lock(1, Record, &read(1, ALL)).expect("one's own");
    assert_eq!(reader.get(), Some(Ok(())));
}

#[test]
fn a_cancelled_wait_ends_once_and_leaves_nothing() {
    let locks = AdvisoryLocks::new();
    locks.try_lock(1, Record, &write(1, ALL)).expect("free");
    let (told, wait) = lock(&locks, 1, Record, write(2, ALL));
    assert!(locks.cancel(wait));
    assert_eq!(told.get(), errno(libc::EINTR));
    assert!(!locks.cancel(wait));
    locks.release_owner(1, Record, own(1));
    assert!(!locks.cancel(wait));
    assert_clean(&locks);
}

#[test]
fn waiting_in_a_circle_over_two_files_is_refused() {
    let locks = AdvisoryLocks::new();
    locks.try_lock(1, Record, &write(1, ALL)).expect("free");
    locks.try_lock(2, Record, &write(2, ALL)).expect("free");
    let (first, _) = lock(&locks, 2, Record, write(1, 0..1));
    let (second, _) = lock(&locks, 1, Record, write(2, 0..1));
    assert_eq!(first.get(), None);
    assert_eq!(second.get(), errno(libc::EDEADLK));
    locks.release_owner(2, Record, own(2));
    assert_eq!(first.get(), Some(Ok(())));
}

#[test]
fn a_grant_that_closes_a_circle_refuses_who_then_waits_in_it() {
    let locks = AdvisoryLocks::new();
    locks.try_lock(1, Record, &write(9, ALL)).expect("free");
    locks.try_lock(2, Record, &write(1, ALL)).expect("free");
    // Owner 2 has two threads: one waits for file 1, the other for owner 1's file 2.
    let (on_one, _) = lock(&locks, 1, Record, write(2, ALL));
    let (behind, _) = lock(&locks, 1, Record, write(1, ALL));
    let (on_two, _) = lock(&locks, 2, Record, write(2, ALL));
    assert_eq!((on_one.get(), behind.get(), on_two.get()), (None, None, None));
    locks.release_owner(1, Record, own(9));
    assert_eq!(on_one.get(), Some(Ok(())));
    assert_eq!(behind.get(), errno(libc::EDEADLK));
}

#[test]
fn two_flock_upgrades_do_not_wait_for_each_other() {
    let locks = AdvisoryLocks::new();
    locks.try_lock(1, Flock, &read(1, ALL)).expect("free");
    locks.try_lock(1, Flock, &read(2, ALL)).expect("shared");
    assert_eq!(locks.try_lock(1, Flock, &write(1, ALL)), Err(Error::Errno(libc::EAGAIN)));
    let (first, _) = lock(&locks, 1, Flock, write(1, ALL));
    let (second, _) = lock(&locks, 1, Flock, write(2, ALL));
    assert_eq!((first.get(), second.get()), (None, Some(Ok(()))));
    locks.release_owner(1, Flock, own(2));
    assert_eq!(first.get(), Some(Ok(())));
}

#[test]
fn a_completion_may_use_the_locks() {
    let locks = Arc::new(AdvisoryLocks::new());
    locks.try_lock(1, Record, &write(1, ALL)).expect("free");
    let inner = locks.clone();
    let complete = Box::new(move |result: Result<()>| {
        result.expect("granted");
        inner.release_owner(1, Record, own(2));
        true
    });
    locks.lock(1, Record, write(2, ALL), complete);
    locks.release_owner(1, Record, own(1));
    assert_clean(&locks);
}

#[test]
fn what_is_granted_to_those_who_are_gone_goes_on_to_the_next() {
    const GONE: u64 = 10_000;
    let handed_over = || {
        let locks = AdvisoryLocks::new();
        locks.try_lock(1, Flock, &write(0, ALL)).expect("free");
        let called = Arc::new(AtomicU64::new(0));
        for owner in 1..=GONE {
            let called = called.clone();
            let complete = Box::new(move |result: Result<()>| {
                result.expect("granted");
                called.fetch_add(1, Ordering::Relaxed);
                false
            });
            locks.lock(1, Flock, write(owner, ALL), complete);
        }
        let (last, _) = lock(&locks, 1, Flock, write(GONE + 1, ALL));
        locks.release_owner(1, Flock, own(0));
        assert_eq!((called.load(Ordering::Relaxed), last.get()), (GONE, Some(Ok(()))));
        locks.release_owner(1, Flock, own(GONE + 1));
        assert_clean(&locks);
    };
    // A thread that serves a mount has this much of a stack.
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(handed_over).expect("a thread");
    thread.join().expect("it came through");
}

#[test]
fn one_side_s_locks_leave_the_other_side_its_room() {
    let locks = AdvisoryLocks::new();
    let mounted = |owner| LockRequest { owner: Owner::Mount(1), ..write(owner, 0..100) };
    let full = Err(Error::Errno(libc::ENOLCK));
    for nid in 0..room::MOST {
        locks.try_lock(nid, Record, &mounted(1)).expect("there is room");
    }
    // For no further range, of whatever file and kind, and for no piece of one that is there.
    let other = LockRequest { owner: Owner::Mount(2), ..write(2, 0..1) };
    assert_eq!(locks.try_lock(room::MOST, Record, &other), full);
    assert_eq!(locks.try_lock(0, Flock, &other), full);
    assert_eq!(lock(&locks, room::MOST, Record, other.clone()).0.get(), errno(libc::ENOLCK));
    assert_eq!(locks.unlock(0, Record, Owner::Mount(1), 40..60), full);
    let reads = LockRequest { range: 40..60, access: Access::Read, ..mounted(1) };
    assert_eq!(locks.try_lock(0, Record, &reads), full);
    // What takes no more goes on.
    locks.try_lock(0, Record, &mounted(1)).expect("it has that");
    locks.unlock(0, Record, Owner::Mount(1), 60..100).expect("it ends earlier");
    locks.unlock(0, Record, Owner::Mount(1), 0..60).expect("nothing is left");
    // The other side has its own, and the same number there is another owner.
    assert_eq!(locks.try_lock(1, Record, &write(1, 0..1)), Err(Error::Errno(libc::EAGAIN)));
    locks.try_lock(0, Record, &write(1, 0..100)).expect("there is room");
    locks.unlock(0, Record, own(1), 40..60).expect("for both pieces");
    // One that waits is told when its turn comes.
    let (told, _) = lock(&locks, 0, Record, mounted(1));
    locks.try_lock(room::MOST, Record, &other).expect("there is room for one");
    assert_eq!(told.get(), None);
    locks.release_owner(0, Record, own(1));
    assert_eq!(told.get(), errno(libc::ENOLCK));
    locks.release_owner(room::MOST, Record, Owner::Mount(2));
    for nid in 1..room::MOST {
        locks.release_owner(nid, Record, Owner::Mount(1));
    }
    assert_clean(&locks);
}

#[test]
fn threads_that_take_two_files_in_any_order_all_come_through() {
    let locks = Arc::new(AdvisoryLocks::new());
    let inside = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let threads: Vec<_> = (0..16u64)
        .map(|owner| {
            let (locks, inside) = (locks.clone(), inside.clone());
            crate::sync::thread::spawn(move || {
                let wait = |nid| {
                    let (send, receive) = std::sync::mpsc::channel();
                    let complete = Box::new(move |r| send.send(r).is_ok());
                    locks.lock(nid, Record, write(owner, 0..1), complete);
                    receive.recv().expect("a completion is always called")
                };
                let mut done = 0;
                while done < 200 {
                    let (a, b) = if (owner + done).is_multiple_of(2) { (0, 1) } else { (1, 0) };
                    wait(a).expect("nothing is held: no circle");
                    assert_eq!(inside[a as usize].fetch_add(1, Ordering::SeqCst), 0);
                    if wait(b).is_ok() {
                        assert_eq!(inside[b as usize].fetch_add(1, Ordering::SeqCst), 0);
                        inside[b as usize].fetch_sub(1, Ordering::SeqCst);
                        locks.release_owner(b, Record, own(owner));
                        done += 1;
                    }
                    inside[a as usize].fetch_sub(1, Ordering::SeqCst);
                    locks.release_owner(a, Record, own(owner));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("exclusion held");
    }
    assert_clean(&locks);
}
