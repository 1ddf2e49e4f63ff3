use super::atomic::{AtomicU64, Ordering};
use super::*;
use std::time::Duration;

/// Tokens passed round among more threads than cores: a lost wake-up would stop it for ever.
#[test]
fn a_token_goes_round_many_threads() {
    const THREADS: u64 = 24;
    const ROUNDS: u64 = 40;
    let (turn, queue) = (AtomicU64::new(0), WaitQueue::new());
    thread::scope(|scope| {
        for me in 0..THREADS {
            let (turn, queue) = (&turn, &queue);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    queue.wait_until(|| turn.load(Ordering::Relaxed) == round * THREADS + me);
                    turn.fetch_add(1, Ordering::Relaxed);
                    queue.wake_all();
                }
            });
        }
    });
    assert_eq!(turn.into_inner(), THREADS * ROUNDS);
    assert!(!queue.has_waiters());
}

#[test]
fn single_wake_ups_serve_all_takers() {
    const TAKERS: u64 = 16;
    const EACH: u64 = 200;
    let (tokens, queue) = (AtomicU64::new(0), WaitQueue::new());
    let take = || tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).ok();
    thread::scope(|scope| {
        for _ in 0..TAKERS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    queue.wait_for(take);
                }
            });
        }
        for _ in 0..TAKERS * EACH {
            tokens.fetch_add(1, Ordering::Relaxed);
            queue.wake_one();
        }
    });
    assert_eq!(tokens.into_inner(), 0);
}

#[test]
fn a_wait_with_a_time_limit_says_how_it_ended() {
    let queue = WaitQueue::new();
    assert!(queue.wait_timeout(|| true, Duration::ZERO));
    assert!(!queue.wait_timeout(|| false, Duration::from_micros(50)));
    assert!(!queue.has_waiters());
}

#[test]
fn a_contended_lock_announces_its_sleep() {
    let lock = Mutex::new(0);
    let (send, announced) = std::sync::mpsc::channel();
    let held = lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| {
            let hook = move || send.send(()).expect("the holder waits for this");
            crate::blocking::set_hook(Some(Box::new(hook)));
            *lock.lock() += 1;
            crate::blocking::set_hook(None);
        });
        announced.recv().expect("the waiter announces its sleep");
        drop(held);
    });
    assert_eq!(lock.into_inner(), 1);
}

#[test]
fn counters_add_up_over_threads() {
    static SUM: LaneCounter = LaneCounter::new();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..1000).for_each(|_| SUM.add(2)));
        }
    });
    assert_eq!(SUM.get(), 16000);
}
