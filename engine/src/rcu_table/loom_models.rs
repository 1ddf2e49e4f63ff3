//! Models of the table. An entry says when it is used after it was freed, and so do nodes ([`super::own`]).
//!
//! Each rule was broken by hand in turn; what then failed:
//!
//! | broken | fails |
//! | --- | --- |
//! | `look` or `show` of a place: Relaxed | `what_is_removed_stays_for_who_finds_it` |
//! | `find` or `put` of a leaf: Relaxed | `a_leaf_that_is_freed_is_not_read` |
//! | the directory is shown or loaded: Relaxed | most |
//! | a leaf that goes leaves an empty place | `what_is_there_is_found_while_others_go` |
//! | entries are freed at once, not from limbo | `what_is_removed_stays_for_who_finds_it` |
//! | leaves likewise | `a_leaf_that_is_freed_is_not_read` |
//! | directories likewise | `what_is_there_is_found_while_the_directory_grows` |
//! | what is marked goes without a period | `what_a_finder_has_is_not_evicted` |
//! | the period begins before the marks | `a_period_begins_with_the_marks` |
//! | a reader takes what is marked | `what_a_finder_has_is_not_evicted` |
//! | what is marked goes though it is used by now | `what_a_finder_has_is_not_evicted` |
//! | more is marked while marks wait, for the period of the first | `a_mark_that_was_taken_away_lends_no_period` |
//! | `is_alone`: no fence | `what_a_finder_has_is_not_evicted` |
//! | a mark stays on what is found with the lock held | `tests::what_is_marked_waits_for_readers_and_stays_if_it_is_wanted` |

#![allow(unsafe_code, reason = "models of entries that are freed behind readers, which loom checks")]

use super::*;
use crate::sync::atomic::{AtomicUsize, Ordering, fence};
use crate::sync::{Arc, thread};
use loom::cell::UnsafeCell;

/// An entry: its count is loom's, and its memory stays, so that what goes wrong is seen.
struct Thing {
    count: AtomicUsize,
    key: u64,
    there: UnsafeCell<bool>,
    /// Changed by one that refers to it, and looked at when it goes.
    note: UnsafeCell<u32>,
}

struct Reference(*mut Thing);

// SAFETY: the count is atomic, and `there` is compared by loom.
unsafe impl Send for Reference {}
// SAFETY: as above.
unsafe impl Sync for Reference {}

fn thing(key: u64) -> Reference {
    let (count, there) = (AtomicUsize::new(1), UnsafeCell::new(true));
    let thing = Thing { count, key, there, note: UnsafeCell::new(0) };
    Reference(Box::into_raw(Box::new(thing)))
}

impl Reference {
    fn thing(&self) -> &Thing {
        // SAFETY: the memory stays.
        unsafe { &*self.0 }
    }

    fn note(&self) {
        // SAFETY: one alone does; that is what loom checks here.
        self.thing().note.with_mut(|note| unsafe { *note += 1 });
    }

    /// Uses it; loom notices if it is or was freed.
    fn key(&self) -> u64 {
        // SAFETY: changed by a thread that frees it alone.
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

type Table = RcuTable<Reference, usize>;

fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn with_entries(keys: &[u64]) -> Arc<Table> {
    let table = RcuTable::new(1);
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
    let left = |went: &mut usize, _, entry: &Reference| {
        // SAFETY: nobody else refers to it; that is what loom checks here.
        entry.thing().note.with(|note| assert!(unsafe { *note } < 2));
        *went += 1;
    };
    table.lock(0).sweep(0, 4, |_| true, left);
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
        let table = with_entries(&[0, 1]);
        let finder = spawn(&table, |table| {
            let found = table.get(0);
            let still = finds(table, 0);
            if let Some(found) = found {
                found.note();
                assert!(still, "what somebody holds is in the table");
            }
        });
        evict(&table);
        join(finder);
        evict(&table);
        assert_eq!((went(&table), table.len()), (2, 0));
    });
}

/// A mark is taken away one step before its period ends, and the entry would be marked anew: that step says nothing of
/// that has found it in between.
#[test]
fn a_mark_that_was_taken_away_lends_no_period() {
    bounded(3, || {
        let table = with_entries(&[0]);
        let first = table.readers.enter();
        evict(&table);
        let mut second = Some(table.readers.enter());
        drop(first);
        evict(&table);
        assert!(finds(&table, 0), "with the lock, which takes the mark away");
        let finder = spawn(&table, |table| finds(table, 0));
        let may_go = |_: &Reference| {
            // The last that held the period up.
            second = None;
            true
        };
        table.lock(0).sweep(0, 4, may_go, |went, _, _| *went += 1);
        drop(second);
        join(finder);
        evict(&table);
        evict(&table);
        assert_eq!(table.len(), 0);
    });
}

/// Another moves the epoch on: only what it has moved since the marks counts.
#[test]
fn a_period_begins_with_the_marks() {
    bounded(2, || {
        let table = with_entries(&[0]);
        let other = spawn(&table, |table| table.readers.poll(table.readers.now()));
        let finder = spawn(&table, |table| finds(table, 0));
        evict(&table);
        join(other);
        join(finder);
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

/// The leaf before it on its way goes: it is found behind that.
#[test]
fn what_is_there_is_found_while_others_go() {
    let same_way = |number: &u64| leaf::spread(*number) % 16 == leaf::spread(0) % 16;
    let behind = (1..).find(same_way).expect("there are many") << leaf::BITS;
    bounded(3, move || {
        let table = with_entries(&[0, behind]);
        let finder = spawn(&table, move |table| finds(table, behind));
        remove(&table, 0);
        assert!(join(finder));
        assert!(finds(&table, behind));
    });
}

/// A leaf that is emptied, and one that is made, beside a thread that evicts the first.
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
