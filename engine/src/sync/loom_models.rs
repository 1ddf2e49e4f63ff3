//! Models of [`WaitQueue`](super::WaitQueue).
//!
//! Each rule was broken by hand in turn; what then failed:
//!
//! | broken | fails |
//! | --- | --- |
//! | fence in `wake`: SeqCst to AcqRel | every model here |
//! | fence in `sleep`: SeqCst to AcqRel | every model here |
//! | load of the ticket: Acquire to Relaxed | every model here |
//! | ticket read after the condition, not before | every model here |
//! | add to the ticket: Release to Relaxed | nothing: the fence before it is a release; so it *is* Relaxed |

use super::atomic::{AtomicBool, AtomicU32, Ordering};
use super::{Arc, WaitQueue, thread};

/// A change that its maker announces is seen, whatever the order: else the waiter sleeps for ever, which loom
/// reports as a deadlock. All accesses to the condition are Relaxed, so the queue alone must order them.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let shared = Arc::new((AtomicBool::new(false), WaitQueue::new()));
        let theirs = shared.clone();
        let waker = thread::spawn(move || {
            theirs.0.store(true, Ordering::Relaxed);
            theirs.1.wake_all();
        });
        shared.1.wait_until(|| shared.0.load(Ordering::Relaxed));
        waker.join().expect("a model's threads do not panic");
    });
}

/// A waiter that is woken for an earlier change goes back to sleep without missing the later one.
#[test]
fn no_later_wake_up_is_lost() {
    loom::model(|| {
        let shared = Arc::new((AtomicU32::new(0), WaitQueue::new()));
        let theirs = shared.clone();
        let waker = thread::spawn(move || {
            for step in 1..=2 {
                theirs.0.store(step, Ordering::Relaxed);
                theirs.1.wake_all();
            }
        });
        shared.1.wait_until(|| shared.0.load(Ordering::Relaxed) == 2);
        waker.join().expect("a model's threads do not panic");
    });
}

/// One change and one wake-up for two waiters.
#[test]
fn all_waiters_are_woken() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new((AtomicBool::new(false), WaitQueue::new()));
        let waiter = {
            let shared = shared.clone();
            thread::spawn(move || shared.1.wait_until(|| shared.0.load(Ordering::Relaxed)))
        };
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.0.store(true, Ordering::Relaxed);
                shared.1.wake_all();
            })
        };
        shared.1.wait_until(|| shared.0.load(Ordering::Relaxed));
        waiter.join().expect("a model's threads do not panic");
        waker.join().expect("a model's threads do not panic");
    });
}

/// Two tokens, each announced to one waiter: both waiters get one.
#[test]
fn each_of_two_single_wake_ups_reaches_a_waiter() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new((AtomicU32::new(0), WaitQueue::new()));
        let take = |shared: &(AtomicU32, WaitQueue)| {
            shared.1.wait_until(|| {
                let take = |n: u32| n.checked_sub(1);
                shared.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
            });
        };
        let waiter = {
            let shared = shared.clone();
            thread::spawn(move || take(&shared))
        };
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    shared.0.fetch_add(1, Ordering::Relaxed);
                    shared.1.wake_one();
                }
            })
        };
        take(&shared);
        waiter.join().expect("a model's threads do not panic");
        waker.join().expect("a model's threads do not panic");
    });
}
