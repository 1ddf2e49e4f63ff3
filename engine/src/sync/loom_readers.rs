//! Models of [`Readers`]: what is unlinked is not freed while somebody reads it.
//!
//! Each rule was broken by hand in turn; what then failed:
//!
//! | broken | fails |
//! | --- | --- |
//! | `enter`: no fence | four models here |
//! | `now` or `advance`: no fence | `a_step_that_began_before_says_nothing` |
//! | two steps are a period, not three | `a_step_that_began_before_says_nothing` |
//! | a reader leaves: Relaxed | three models here |
//! | the counters are looked at, or the epoch is, or moves: Relaxed | `a_step_that_began_before_says_nothing` |
//! | one core's counters are looked at | `what_a_reader_has_found_is_not_freed` |
//! | the wrong parity is waited for | none: `readers_that_overlap_for_ever_hold_nothing_up` |
//! | `advance` reads the epoch: Acquire to Relaxed | nothing: each step is an exchange; so it *is* Relaxed |

#![allow(unsafe_code, reason = "models of memory that is freed behind readers, which loom checks")]

use super::atomic::{AtomicUsize, Ordering};
use super::readers::Readers;
use super::{Arc, thread};
use loom::cell::UnsafeCell;

fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Two things, and which of them is to be found.
struct Shelf {
    readers: Readers,
    shown: AtomicUsize,
    there: [UnsafeCell<bool>; 3],
}

impl Shelf {
    fn new(cores: usize) -> Arc<Shelf> {
        Arc::new(Shelf {
            readers: Readers::with_cores(cores),
            shown: AtomicUsize::new(0),
            there: std::array::from_fn(|_| UnsafeCell::new(true)),
        })
    }

    fn read(&self, core: usize) {
        let _reading = self.readers.enter_at(core);
        let shown = self.shown.load(Ordering::Acquire);
        // SAFETY: the reader is inside, so it is not freed; that is what loom checks here.
        self.there[shown].with(|there| assert!(unsafe { *there }));
    }

    /// Shows the next in its place, and frees the one before if the readers permit.
    fn replace(&self, next: usize, looks: usize) -> bool {
        self.shown.store(next, Ordering::Release);
        let since = self.readers.now();
        let has_passed = (0..looks).any(|_| self.readers.poll(since));
        if has_passed {
            // SAFETY: nobody reads it any more; that is what loom checks here.
            self.there[next - 1].with_mut(|there| unsafe { *there = false });
        }
        has_passed
    }
}

fn spawn(shelf: &Arc<Shelf>, run: impl FnOnce(&Shelf) + 'static) -> thread::JoinHandle<()> {
    let shelf = Arc::clone(shelf);
    thread::spawn(move || run(&shelf))
}

#[test]
fn what_a_reader_has_found_is_not_freed() {
    bounded(4, || {
        let shelf = Shelf::new(2);
        let reader = spawn(&shelf, |shelf| shelf.read(1));
        shelf.replace(1, 1);
        reader.join().expect("no panic");
        assert!(shelf.readers.poll(shelf.readers.now()), "nobody is inside");
    });
}

#[test]
fn a_reader_that_comes_twice_finds_what_is_there() {
    bounded(3, || {
        let shelf = Shelf::new(1);
        let reader = spawn(&shelf, |shelf| {
            shelf.read(0);
            shelf.read(0);
        });
        shelf.replace(1, 1);
        shelf.replace(2, 1);
        reader.join().expect("no panic");
    });
}

/// One has begun to move the epoch before another unlinks: its step does not count.
#[test]
fn a_step_that_began_before_says_nothing() {
    bounded(3, || {
        let shelf = Shelf::new(1);
        let other = spawn(&shelf, |shelf| {
            shelf.readers.poll(shelf.readers.now());
        });
        let reader = spawn(&shelf, |shelf| shelf.read(0));
        shelf.replace(1, 1);
        other.join().expect("no panic");
        reader.join().expect("no panic");
    });
}

/// Another than the one that unlinked frees it.
#[test]
fn what_one_has_seen_of_readers_is_handed_on() {
    bounded(3, || {
        let shelf = Shelf::new(1);
        let reader = spawn(&shelf, |shelf| shelf.read(0));
        shelf.shown.store(1, Ordering::Release);
        let since = shelf.readers.now();
        let other = spawn(&shelf, move |shelf| {
            shelf.readers.poll(since);
        });
        if shelf.readers.passed(since) {
            // SAFETY: as in `replace`.
            shelf.there[0].with_mut(|there| unsafe { *there = false });
        }
        reader.join().expect("no panic");
        other.join().expect("no panic");
    });
}

/// It enters on one core and leaves on another, where somebody else reads too.
#[test]
fn a_reader_may_move_to_another_core() {
    bounded(3, || {
        let shelf = Shelf::new(2);
        let reading = spawn(&shelf, |shelf| {
            let first = shelf.readers.enter_at(0);
            let shown = shelf.shown.load(Ordering::Acquire);
            // It runs on core 1 from here on.
            shelf.read(1);
            // SAFETY: as in `read`.
            shelf.there[shown].with(|there| assert!(unsafe { *there }));
            drop(first);
        });
        shelf.replace(1, 2);
        reading.join().expect("no panic");
        assert!(shelf.readers.poll(shelf.readers.now()), "the counts are at zero again");
    });
}
