//! Tests run beside each other, and handles tell each other's tables apart by kind alone: each test has kinds of its own.

use super::*;
use crate::sync::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Barrier};

/// Says when it is dropped, and shows whether somebody still looks at it.
struct Counted {
    alive: AtomicBool,
    dropped: Arc<AtomicUsize>,
}

impl Counted {
    fn new(dropped: &Arc<AtomicUsize>) -> Counted {
        Counted { alive: AtomicBool::new(true), dropped: Arc::clone(dropped) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert!(self.alive.swap(false, Ordering::SeqCst), "dropped twice");
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

fn refused<T>(outcome: Result<T, Refused>) -> Option<Refused> {
    outcome.err()
}

#[test]
fn what_was_closed_or_never_given_out_is_known_no_more() {
    let (table, other) = (Table::new(5), Table::<u8>::new(6));
    let first = table.insert(7_u8).expect("room");
    assert_eq!(table.with(first, |n| *n).ok(), Some(7));
    assert!(matches!(table.close(first), Ok(Closed::Taken(7))));
    let second = table.insert(8).expect("room");
    assert_ne!(first, second, "the slot is used again, the handle is not");
    for wrong in [first, 0, 1, u64::MAX, second ^ 1, second | CLOSED, first | CLOSED, 5 << INDEX_BITS | 99] {
        assert_eq!(refused(table.with(wrong, |_| ())), Some(Refused::Bad), "{wrong:x}");
        assert_eq!(refused(table.close(wrong)), Some(Refused::Bad), "{wrong:x}");
    }
    assert_eq!(refused(other.with(second, |_| ())), Some(Refused::Bad), "it is of another kind");
    assert!(matches!(table.close(second), Ok(Closed::Taken(8))));
}

#[test]
fn what_is_closed_in_use_is_dropped_by_the_last_who_leaves_it() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let table = Table::new(7);
    let id = table.insert(Counted::new(&dropped)).expect("room");
    let outcome = table.with(id, |value| {
        assert!(matches!(table.close(id), Ok(Closed::InUse)));
        assert_eq!(refused(table.close(id)), Some(Refused::Bad));
        assert_eq!(refused(table.with(id, |_| ())), Some(Refused::Bad));
        assert!(value.alive.load(Ordering::SeqCst));
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
    });
    assert!(outcome.is_ok());
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[test]
fn calls_within_calls_end_in_an_error() {
    let table = Table::new(1);
    let id = table.insert(0_u8).expect("room");
    fn nest(table: &Table<u8>, id: u64, depth: usize) -> Result<usize, Refused> {
        table.with(id, |_| match nest(table, id, depth + 1) {
            Err(Refused::Nested) => Ok(depth),
            other => other,
        })?
    }
    assert!(nest(&table, id, 1).is_ok_and(|depth| depth > 2));
    assert_eq!(nest(&table, id, 1).ok(), nest(&table, id, 1).ok(), "all are left again");
}

/// Many threads use handles that others close at the same time: none sees what is dropped, and each is dropped once.
#[test]
fn handles_are_closed_under_those_who_use_them() {
    const ROUNDS: usize = 500;
    const THREADS: usize = 4;
    let dropped = Arc::new(AtomicUsize::new(0));
    let table = Table::new(2);
    let current = AtomicU64::new(0);
    let ended = AtomicBool::new(false);
    let used = AtomicUsize::new(0);
    let begin = Barrier::new(THREADS + 1);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                begin.wait();
                while !ended.load(Ordering::Relaxed) {
                    let id = current.load(Ordering::Relaxed);
                    let outcome = table.with(id, |value: &Counted| {
                        assert!(value.alive.load(Ordering::SeqCst), "dropped while in use");
                        std::hint::spin_loop();
                        assert!(value.alive.load(Ordering::SeqCst), "dropped while in use");
                    });
                    match outcome {
                        Ok(()) => drop(used.fetch_add(1, Ordering::Relaxed)),
                        Err(_) => std::thread::yield_now(),
                    }
                }
            });
        }
        begin.wait();
        for _ in 0..ROUNDS {
            let id = table.insert(Counted::new(&dropped)).expect("room");
            let before = used.load(Ordering::Relaxed);
            current.store(id, Ordering::Relaxed);
            while used.load(Ordering::Relaxed) == before {
                std::thread::yield_now();
            }
            assert!(table.close(id).is_ok());
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert_eq!(dropped.load(Ordering::SeqCst), ROUNDS, "each was dropped once");
}

#[test]
fn many_threads_open_and_close_handles_of_their_own() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let table = Table::new(3);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..200 {
                    let ids: Vec<u64> =
                        (0..round).map(|_| table.insert(Counted::new(&dropped)).expect("room")).collect();
                    for id in ids {
                        assert!(table.with(id, |_| ()).is_ok());
                        assert!(matches!(table.close(id), Ok(Closed::Taken(_))));
                    }
                }
            });
        }
    });
    assert_eq!(dropped.load(Ordering::SeqCst), 4 * 199 * 200 / 2);
    assert!(table.begun.load(Ordering::Relaxed) <= 4 * 199, "slots are used again");
}
