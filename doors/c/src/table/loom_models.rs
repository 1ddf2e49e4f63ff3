//! Models of handles: what one thread closes is there as long as others use it, and is dropped once.
//!
//! Each rule was broken by hand in turn; what then failed:
//!
//! | broken | fails |
//! | --- | --- |
//! | `enter` or `leave`: no fence | several |
//! | `heavy`: no fence | `..closed_under_its_user..`, `..last_of_two_users..`, `..used_again..` |
//! | who leaves, or finds it closed, does not drop it; it is dropped in use, or without the exchange | several |
//! | `insert` or `with`: the state Relaxed | `..comes_without_order..` |
//! | `pop` or `push`: Relaxed | `..used_again..` |
//! | the head of the free list without a count | `..slots_of_their_own` |
//! | a record that is taken again: Relaxed | several |
//! | what a thread says that it uses, or the look at it: Relaxed | nothing: the fences of a model order it; membarrier(2) in their place does not |

#![allow(unsafe_code, reason = "models of values that are dropped behind their users, which loom checks")]

use super::{Closed, Refused, Table};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use loom::thread;

fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Something of which loom sees who reads it, and when it goes.
struct Thing {
    name: UnsafeCell<u8>,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Thing {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more; that is what loom checks here.
        self.name.with_mut(|name| unsafe { *name = 0 });
        // Relaxed: it is looked at when the threads have ended.
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

struct Things {
    table: Table<Thing>,
    dropped: Arc<AtomicUsize>,
}

impl Things {
    fn new() -> Arc<Things> {
        Arc::new(Things { table: Table::new(1), dropped: Arc::new(AtomicUsize::new(0)) })
    }

    fn open(&self, name: u8) -> u64 {
        let thing = Thing { name: UnsafeCell::new(name), dropped: Arc::clone(&self.dropped) };
        self.table.insert(thing).expect("room")
    }

    fn read(&self, id: u64) -> Result<u8, Refused> {
        // SAFETY: a handle is in use, so that what it stands for is there; that is what loom checks here.
        self.table.with(id, |thing| thing.name.with(|name| unsafe { *name }))
    }

    /// Drops what is nobody's any more.
    fn close(&self, id: u64) -> bool {
        match self.table.close(id) {
            Ok(Closed::Taken(thing)) => {
                drop(thing);
                true
            }
            Ok(Closed::InUse) => true,
            Ok(Closed::Forked) => unreachable!("no process is forked here"),
            Err(refused) => {
                assert_eq!(refused, Refused::Bad);
                false
            }
        }
    }

    fn dropped(&self) -> usize {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[test]
fn loom_what_is_closed_under_its_user_is_dropped_once_and_behind_it() {
    bounded(3, || {
        let things = Things::new();
        let id = things.open(7);
        let user = {
            let things = Arc::clone(&things);
            thread::spawn(move || things.read(id))
        };
        assert!(things.close(id));
        let read = user.join().expect("no panic");
        assert!(matches!(read, Ok(7) | Err(Refused::Bad)), "{read:?}");
        assert_eq!(things.dropped(), 1);
        assert_eq!(things.read(id), Err(Refused::Bad));
    });
}

#[test]
fn loom_the_last_of_two_users_drops_it() {
    bounded(2, || {
        let things = Things::new();
        let id = things.open(7);
        let users = [(); 2].map(|()| {
            let things = Arc::clone(&things);
            thread::spawn(move || _ = things.read(id))
        });
        assert!(things.close(id));
        for user in users {
            user.join().expect("no panic");
        }
        assert_eq!(things.dropped(), 1);
    });
}

#[test]
fn loom_of_two_who_close_one_does() {
    bounded(3, || {
        let things = Things::new();
        let id = things.open(7);
        let other = {
            let things = Arc::clone(&things);
            thread::spawn(move || things.close(id))
        };
        let own = things.close(id);
        assert!(own != other.join().expect("no panic"));
        assert_eq!(things.dropped(), 1);
    });
}

#[test]
fn loom_a_slot_that_is_used_again_is_not_taken_for_what_it_was() {
    bounded(3, || {
        let things = Things::new();
        let first = things.open(1);
        let user = {
            let things = Arc::clone(&things);
            thread::spawn(move || things.read(first))
        };
        assert!(things.close(first));
        let second = things.open(2);
        assert_ne!(first, second);
        assert_eq!(things.read(second), Ok(2));
        let read = user.join().expect("no panic");
        assert!(matches!(read, Ok(1) | Err(Refused::Bad)), "{read:?}");
        assert!(things.close(second));
        assert_eq!(things.dropped(), 2);
    });
}

/// Both take from the list of free slots and give back to it; the one gives back what the other has seen first on it.
#[test]
fn loom_two_who_open_and_close_have_slots_of_their_own() {
    bounded(3, || {
        let things = Things::new();
        let (a, b) = (things.open(1), things.open(2));
        assert!(things.close(a) && things.close(b));
        let other = {
            let things = Arc::clone(&things);
            thread::spawn(move || {
                let (first, second) = (things.open(3), things.open(4));
                assert!(things.close(first));
                assert_eq!(things.read(second), Ok(4));
                assert!(things.close(second));
            })
        };
        let ids = [5, 6].map(|name| things.open(name));
        assert_eq!(ids.map(|id| things.read(id)), [Ok(5), Ok(6)]);
        assert!(ids.into_iter().all(|id| things.close(id)));
        other.join().expect("no panic");
        assert_eq!(things.dropped(), 6);
    });
}

/// What hands a handle on need not order anything.
#[test]
fn loom_a_handle_that_comes_without_order_stands_for_all_of_its_thing() {
    bounded(3, || {
        let things = Things::new();
        let passed = Arc::new(AtomicU64::new(0));
        let user = {
            let (things, passed) = (Arc::clone(&things), Arc::clone(&passed));
            thread::spawn(move || match passed.load(Ordering::Relaxed) {
                0 => Ok(7),
                id => things.read(id),
            })
        };
        let id = things.open(7);
        passed.store(id, Ordering::Relaxed);
        // It may not be seen yet.
        let read = user.join().expect("no panic");
        assert!(matches!(read, Ok(7) | Err(Refused::Bad)), "{read:?}");
        assert!(things.close(id));
        assert_eq!(things.dropped(), 1);
    });
}
