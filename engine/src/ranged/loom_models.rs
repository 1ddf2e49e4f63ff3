//! Models of the table. An entry says when it is used after it was freed, and so do nodes ([`super::own`]).

use super::*;
use crate::sync::atomic::{AtomicUsize, Ordering, fence};
use crate::sync::{Arc, thread};
use loom::cell::UnsafeCell;

/// An entry: its count is loom's, and its memory stays, so that what goes wrong is seen.
struct Thing {
    count: AtomicUsize,
    key: u64,
    there: UnsafeCell<bool>,
}

struct Reference(*mut Thing);

// SAFETY: the count is atomic, and `there` is compared by loom.
unsafe impl Send for Reference {}
// SAFETY: as above.
unsafe impl Sync for Reference {}

fn thing(key: u64) -> Reference {
    let thing = Thing { count: AtomicUsize::new(1), key, there: UnsafeCell::new(true) };
    Reference(Box::into_raw(Box::new(thing)))
}

impl Reference {
    fn thing(&self) -> &Thing {
        // SAFETY: the memory stays.
        unsafe { &*self.0 }
    }

    /// Uses it; loom notices if it is or was freed.
    fn key(&self) -> u64 {
        // SAFETY: changed by who frees it alone.
        self.thing().there.with(|there| assert!(unsafe { *there }, "used after it was freed"));
        self.thing().key
    }
}

// SAFETY: the pointer is a box's.
unsafe impl Counted for Reference {
    fn into_ptr(self) -> *mut () {
        std::mem::ManuallyDrop::new(self).0.cast()
    }
    unsafe fn from_ptr(pointer: *mut ()) -> Self {
        Reference(pointer.cast())
    }
    unsafe fn another(pointer: *mut ()) -> Self {
        let another = Reference(pointer.cast());
        another.key();
        // Relaxed: as in `Arc`.
        another.thing().count.fetch_add(1, Ordering::Relaxed);
        another
    }
    fn is_alone(&self) -> bool {
        let alone = self.thing().count.load(Ordering::Relaxed) == 1;
        fence(Ordering::Acquire);
        alone
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        // Release: pairs with the fence.
        if self.thing().count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: the last; loom compares it with all uses.
            self.thing().there.with_mut(|there| unsafe { *there = false });
        }
    }
}

type Table = Ranged<Reference, usize>;

fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn with_entries(keys: &[u64]) -> Arc<Table> {
    let table = Ranged::new(1);
    keys.iter().for_each(|key| table.lock(*key).insert(*key, thing(*key)));
    Arc::new(table)
}

fn spawn<T: 'static>(table: &Arc<Table>, run: impl FnOnce(&Table) -> T + 'static) -> thread::JoinHandle<T> {
    let table = Arc::clone(table);
    thread::spawn(move || run(&table))
}

/// Whether a key is found; what is found must be alive.
fn finds(table: &Table, key: u64) -> bool {
    table.get(key).inspect(|found| assert_eq!(found.key(), key)).is_some()
}

/// Lets all go that nobody uses; the number of those that went is kept beside.
fn evict(table: &Table) {
    table.lock(0).sweep(0, 4, |_| true, |went, _, _| *went += 1);
}

fn went(table: &Table) -> usize {
    *table.lock(0).beside()
}

fn remove(table: &Table, key: u64) {
    table.lock(key).remove_if(key, |_| true);
}

fn join<T>(thread: thread::JoinHandle<T>) -> T {
    thread.join().expect("no panic")
}

#[test]
fn what_is_found_was_put_there_whole() {
    bounded(3, || {
        let table = with_entries(&[]);
        let finder = spawn(&table, |table| finds(table, 0) && !finds(table, 0));
        table.lock(0).insert(0, thing(0));
        assert!(!join(finder), "what is there stays");
        assert!(finds(&table, 0));
    });
}

#[test]
fn what_a_finder_has_is_not_evicted() {
    bounded(3, || {
        let table = with_entries(&[0]);
        let finder = spawn(&table, |table| {
            let found = table.get(0);
            let still = finds(table, 0);
            if let Some(found) = found {
                assert_eq!(found.key(), 0);
                assert!(still, "what somebody holds is in the table");
            }
        });
        evict(&table);
        join(finder);
        evict(&table);
        assert_eq!((went(&table), table.len()), (1, 0));
    });
}

/// It is marked, wanted, and marked anew: the period is that of the second mark.
#[test]
fn a_mark_that_was_taken_away_does_not_count() {
    bounded(2, || {
        let table = with_entries(&[0]);
        let finder = spawn(&table, |table| {
            finds(table, 0);
            finds(table, 0);
        });
        let locked = spawn(&table, |table| drop(table.lock(0).get(0)));
        evict(&table);
        evict(&table);
        join(finder);
        join(locked);
    });
}

#[test]
fn two_that_evict_let_each_go_once() {
    bounded(3, || {
        let table = with_entries(&[0, 2]);
        let other = spawn(&table, evict);
        evict(&table);
        join(other);
        evict(&table);
        assert_eq!((went(&table), table.len()), (2, 0));
    });
}

#[test]
fn what_is_removed_stays_for_who_finds_it() {
    bounded(3, || {
        let table = with_entries(&[0, 1]);
        let finder = spawn(&table, |table| {
            finds(table, 0);
        });
        remove(&table, 0);
        table.lock(0).insert(0, thing(0));
        join(finder);
        assert!(finds(&table, 0) && finds(&table, 1));
    });
}

/// The leaf goes and another comes in its place.
#[test]
fn a_leaf_that_is_freed_is_not_read() {
    bounded(3, || {
        let table = with_entries(&[0]);
        let finder = spawn(&table, |table| finds(table, 1));
        remove(&table, 0);
        table.lock(0).insert(0, thing(0));
        assert!(!join(finder));
        assert!(finds(&table, 0));
    });
}

/// The directory grows while another leaf is looked for.
#[test]
fn what_is_there_is_found_while_the_directory_grows() {
    bounded(3, || {
        let table = with_entries(&[0]);
        let finder = spawn(&table, |table| finds(table, 0));
        for key in [2, 4, 6] {
            table.lock(0).insert(key, thing(key));
        }
        assert!(join(finder));
    });
}

/// Leaves before it on its way go: it is found behind them.
#[test]
fn what_is_there_is_found_while_others_go() {
    bounded(3, || {
        let table = with_entries(&[0, 2, 4, 6]);
        let finder = spawn(&table, |table| finds(table, 6));
        for key in [0, 2, 4] {
            remove(&table, key);
        }
        assert!(join(finder));
    });
}

/// A leaf that is emptied, and one that is made, beside who evicts the first.
#[test]
fn what_oneself_has_put_there_is_found_beside_a_sweep() {
    bounded(3, || {
        let table = with_entries(&[2]);
        let other = spawn(&table, |table| {
            remove(table, 2);
            table.lock(0).insert(0, thing(0));
            assert!(finds(table, 0));
        });
        table.lock(0).sweep(0, 4, |entry| entry.key() == 2, |went, _, _| *went += 1);
        join(other);
        assert_eq!((went(&table) <= 1, table.len()), (true, 1));
    });
}

#[test]
fn what_two_find_is_evicted_by_neither() {
    bounded(2, || {
        let table = with_entries(&[0]);
        let finders = [0, 1].map(|_| spawn(&table, |table| table.get(0)));
        evict(&table);
        let found = finders.map(join);
        assert!(found.iter().flatten().all(|found| found.key() == 0));
        let kept = found.iter().flatten().count() > 0;
        evict(&table);
        assert_eq!(went(&table), usize::from(!kept));
    });
}
