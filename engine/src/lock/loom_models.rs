//! Models of the word, its opening, and the range lock, on the production types.
//!
//! Each rule was broken by hand in turn; what then failed (among others):
//!
//! | broken | fails |
//! | --- | --- |
//! | `OneWord::try_enter`, load: Acquire to Relaxed | `the_word_is_opened_when_the_last_reader_has_left` |
//! | setting OPEN: AcqRel to Acquire | `the_word_is_opened_when_the_last_reader_has_left` |
//! | setting OPEN: AcqRel to Release | `the_word_hands_over_to_the_table` |
//! | compare-and-swap, success: Acquire to Relaxed | `the_word_is_opened_when_the_last_reader_has_left` |
//! | compare-and-swap, failure: Acquire to Relaxed | `the_word_is_opened_when_the_last_reader_has_left` |
//! | `wait_until_left`, load: Acquire to Relaxed | `the_word_hands_over_to_the_table` |
//! | `leave`: Release to Relaxed | `the_word_hands_over_to_the_table` |
//! | the last to leave wakes nobody | `the_word_hands_over_to_the_table` |
//! | `OneWord::is_written`: Acquire to Relaxed, or an open word counts as left | `no_writer_in_sight_means_that_all_is_written_among_others_too` |
//! | nobody waits until the holders by the word have left | `tries_exclude_too` |
//! | `Slot::enter`: Acquire to Relaxed, or a word in use is taken | `tries_in_the_table_exclude_and_give_back` |
//! | `Slot::list`, exchange: Acquire to Relaxed | `tries_in_the_table_exclude_and_give_back` |
//! | `Slot::list` forgets which holder the word had | `readers_and_writers_of_a_slot_agree` |
//! | `Slot::list` forgets that he writes | `no_writer_in_sight_means_that_all_is_written_among_others_too` |
//! | `Slot::release`: Release to Relaxed, or whatever the word is | `the_word_of_a_slot_hands_over_to_its_list_and_back` |
//! | `release_slowly`, store of 0: Release to Relaxed, or while others are listed | `readers_and_writers_of_a_slot_agree` |
//! | `count`: Release to Relaxed | `no_writer_in_sight_means_that_all_is_written_among_others_too` |
//! | a writer that is granted at once, or looks again, is not counted | `no_writer_in_sight_means_that_all_is_written_among_others_too` |
//! | a writer that is granted by a thread that leaves is not counted | `an_overtaken_writer_is_in_sight` |
//! | `Slot::is_written`: Acquire to Relaxed, or LISTED says nothing | `no_writer_in_sight_means_that_all_is_written` |
//! | `admits` heeds none ahead | `tries_in_the_table_exclude_and_give_back` |
//! | `admits` heeds none behind | `the_word_of_a_slot_hands_over_to_its_list_and_back` |
//! | a called waiter is not woken, or none is called | `no_writer_in_sight_means_that_all_is_written_among_others_too` |
//! | the call is not taken back, or a waiter that was granted meanwhile goes on to wait | `the_word_of_a_slot_hands_over_to_its_list_and_back` |
//! | a release takes out one that waits | `the_word_of_a_slot_hands_over_to_its_list_and_back` |
//! | readers take their slots in another order | `wide_readers_and_writers_do_not_deadlock` |
//! | writers do | `wide_ranges_do_not_deadlock` |
//! | one slot of several is taken, or given back | `wide_ranges_do_not_deadlock` |
//! | a try that fails keeps what it had | `tries_in_the_table_exclude_and_give_back` |
//! | one slot of several is looked at for writers | `no_writer_in_sight_means_that_all_is_written_among_others_too` |
//!
//! That nobody is overtaken without end (insisting counts for nothing, overtakers are not counted) is held by
//! `a_waiting_writer_is_overtaken_by_so_many_and_no_more`, a unit test; that `is_written` does not see readers, other
//! ranges or past lists as writers, which would cost time alone, by `who_looks_sees_writers_and_not_readers`.
//!
//! `shuttle_models` was tried likewise: entries that do not exclude, a count that is not waited down to zero,
//! sets taken out of order, a wait graph that is not kept, a waiter that does not count itself: each fails.

use super::one_word::{OneWord, Way};
use super::{Access, FileLock, RangeLock};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, thread};

fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// An increment in two steps that only its lock makes whole: without exclusion, or without visibility of what
/// the holder before wrote, the sum comes out too small.
fn bump(data: &AtomicU64) {
    let seen = data.load(Ordering::Relaxed);
    data.store(seen + 1, Ordering::Relaxed);
}

fn joined(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("a model's threads do not panic");
    }
}

/// Enters by the word, or waits until the holders by the word have left; then the table is the caller's.
fn enter(word: &OneWord, access: Access, table: &AtomicU64) -> Way {
    // The table is "made" by a Relaxed store: the word alone must publish it.
    let way = word.try_enter(access, || table.store(1, Ordering::Relaxed));
    if way.is_none() {
        word.wait_until_left();
    }
    let way = way.unwrap_or(Way::Table);
    if way == Way::Table {
        assert_eq!(table.load(Ordering::Relaxed), 1, "who sees the word open sees the table");
    }
    way
}

/// Writers by the word exclude each other, and everything they did is seen by a thread that comes after the opening.
#[test]
fn the_word_hands_over_to_the_table() {
    loom::model(|| {
        let shared = Arc::new((OneWord::default(), AtomicU64::new(0), AtomicU64::new(0)));
        let theirs = shared.clone();
        let other = thread::spawn(move || {
            let (word, table, data) = &*theirs;
            if enter(word, Access::Write, table) == Way::Word {
                bump(data);
                word.leave(Access::Write);
            } else {
                // The only other user has left: it used the word, or it would not have been opened.
                assert_eq!(data.load(Ordering::Relaxed), 1);
            }
        });
        let (word, table, data) = &*shared;
        if enter(word, Access::Write, table) == Way::Word {
            bump(data);
            word.leave(Access::Write);
        } else {
            assert_eq!(data.load(Ordering::Relaxed), 1);
        }
        joined([other]);
    });
}

/// Readers share the word; a writer that comes meanwhile waits for both.
#[test]
fn the_word_is_opened_when_the_last_reader_has_left() {
    bounded(3, || {
        let shared = Arc::new((OneWord::default(), AtomicU64::new(0), AtomicU64::new(0)));
        let reader = |shared: Arc<(OneWord, AtomicU64, AtomicU64)>| {
            move || {
                let (word, table, readers) = &*shared;
                if enter(word, Access::Read, table) == Way::Word {
                    readers.fetch_add(1, Ordering::Relaxed);
                    readers.fetch_sub(1, Ordering::Relaxed);
                    word.leave(Access::Read);
                }
            }
        };
        let threads = [thread::spawn(reader(shared.clone())), thread::spawn(reader(shared.clone()))];
        let (word, table, readers) = &*shared;
        let way = enter(word, Access::Write, table);
        assert_eq!(readers.load(Ordering::Relaxed), 0);
        if way == Way::Word {
            word.leave(Access::Write);
        }
        joined(threads);
    });
}

/// Two writers of one range.
#[test]
fn two_overlapping_writers_exclude_each_other() {
    bounded(4, || {
        let shared = Arc::new((RangeLock::for_file(1), AtomicU64::new(0)));
        let theirs = shared.clone();
        let other = thread::spawn(move || {
            for _ in 0..2 {
                let _range = theirs.0.write(0..10);
                bump(&theirs.1);
            }
        });
        {
            let _range = shared.0.write(5..20);
            bump(&shared.1);
        }
        joined([other]);
        assert_eq!(shared.1.load(Ordering::Relaxed), 3);
    });
}

/// A lock whose word is open already: the waiters of one slot.
#[test]
fn a_waiter_in_the_table_is_granted_and_sees_what_was_written() {
    bounded(3, || {
        let shared = Arc::new((opened(), AtomicU64::new(0)));
        let threads = [5..20, 8..30].map(|range| {
            let shared = shared.clone();
            thread::spawn(move || {
                let _range = shared.0.write(range);
                bump(&shared.1);
            })
        });
        {
            let _range = shared.0.write(0..10);
            bump(&shared.1);
        }
        joined(threads);
        assert_eq!(shared.1.load(Ordering::Relaxed), 3);
    });
}

/// A reader and two writers, the word still closed.
#[test]
fn a_reader_and_two_writers_agree() {
    bounded(2, || {
        let shared = Arc::new((RangeLock::for_file(1), AtomicU64::new(0)));
        let threads = [0..10, 5..20].map(|range| {
            let shared = shared.clone();
            thread::spawn(move || {
                let _range = shared.0.write(range);
                bump(&shared.1);
                bump(&shared.1);
            })
        });
        {
            let _range = shared.0.read(0..6);
            assert_eq!(shared.1.load(Ordering::Relaxed) % 2, 0, "no writer is halfway");
        }
        joined(threads);
        assert_eq!(shared.1.load(Ordering::Relaxed), 4);
    });
}

/// Ranges over both slots, in the table: nobody waits in a circle.
#[test]
fn wide_ranges_do_not_deadlock() {
    bounded(3, || {
        let shared = Arc::new((opened(), AtomicU64::new(0)));
        let theirs = shared.clone();
        let other = thread::spawn(move || {
            let _range = theirs.0.write(0..u64::MAX);
            bump(&theirs.1);
        });
        {
            let _range = shared.0.write(100..u64::MAX);
            bump(&shared.1);
        }
        joined([other]);
        assert_eq!(shared.1.load(Ordering::Relaxed), 2);
    });
}

/// Tries, which may fail but not let two in.
#[test]
fn tries_exclude_too() {
    bounded(3, || {
        let shared = Arc::new((RangeLock::for_file(1), AtomicU64::new(0)));
        let theirs = shared.clone();
        let other = thread::spawn(move || {
            let got = theirs.0.try_write(0..10).map(|_range| bump(&theirs.1));
            got.is_some() as u64
        });
        {
            let _range = shared.0.write(0..u64::MAX);
            bump(&shared.1);
        }
        let theirs = other.join().expect("a model's threads do not panic");
        assert_eq!(shared.1.load(Ordering::Relaxed), 1 + theirs);
    });
}

/// A slot whose word holds a page's range, is listed by any thread that meets it there, and goes back to the word.
#[test]
fn the_word_of_a_slot_hands_over_to_its_list_and_back() {
    bounded(3, || {
        let shared = Arc::new((opened(), AtomicU64::new(0)));
        let threads = [0..4096, 4095..8192].map(|range| {
            let shared = shared.clone();
            thread::spawn(move || {
                let _range = shared.0.write(range);
                bump(&shared.1);
            })
        });
        {
            let _range = shared.0.write(0..4096);
            bump(&shared.1);
        }
        joined(threads);
        let _range = shared.0.try_write(0..4096).expect("everything was given back");
        assert_eq!(shared.1.load(Ordering::Relaxed), 3);
    });
}

/// A reader and a writer of a slot whose word either may have, and a writer beside them.
#[test]
fn readers_and_writers_of_a_slot_agree() {
    bounded(3, || {
        let shared = Arc::new((opened(), AtomicU64::new(0)));
        let threads = [0..4096, 4096..8192].map(|range| {
            let shared = shared.clone();
            thread::spawn(move || {
                let written = range.start == 0;
                let _range = shared.0.write(range);
                if written {
                    bump(&shared.1);
                    bump(&shared.1);
                }
            })
        });
        {
            let _range = shared.0.read(0..4096);
            assert_eq!(shared.1.load(Ordering::Relaxed) % 2, 0, "no writer is halfway");
        }
        joined(threads);
        assert_eq!(shared.1.load(Ordering::Relaxed), 2);
    });
}

/// A thread that sees something of what a writer wrote, and no writer any more, sees all of it; by the word of the
/// file, of the slot, and by the list.
#[test]
fn no_writer_in_sight_means_that_all_is_written() {
    for (open, listed) in [(false, false), (true, false), (true, true)] {
        bounded(3, move || {
            let lock = if open { opened() } else { RangeLock::for_file(1) };
            let shared = Arc::new((lock, AtomicU64::new(0), AtomicU64::new(0)));
            let theirs = shared.clone();
            let other = thread::spawn(move || {
                let _range = theirs.0.write(if listed { 0..4095 } else { 0..4096 });
                // Release: as the latch of a page.
                theirs.1.store(1, Ordering::Release);
                theirs.2.store(1, Ordering::Relaxed);
            });
            // Acquire: as the look at a page.
            let first = shared.1.load(Ordering::Acquire);
            if !shared.0.is_written(0..4096) && first == 1 {
                assert_eq!(shared.2.load(Ordering::Relaxed), 1, "half of what was written");
            }
            joined([other]);
        });
    }
}

/// The same where the writer is not alone: it meets a reader, in the word of the file, of the slot or in the list,
/// before or after its turn. A thread that looks may hold a range himself, or come upon one.
#[test]
fn no_writer_in_sight_means_that_all_is_written_among_others_too() {
    const PAGE: std::ops::Range<u64> = 0..4096;
    // In the same slot as the page, but not in its way; and no whole pages, so that it is listed.
    const BESIDE: std::ops::Range<u64> = 8192..8193;
    // Over both slots, the page in the second.
    const SECOND: std::ops::Range<u64> = 16384..20480;
    let cases = [
        // The list stays when the writer leaves it.
        (true, Some(BESIDE), None, PAGE, PAGE),
        // The word of the slot is listed while the writer has it.
        (true, None, Some(BESIDE), PAGE, PAGE),
        // The writer waits, and is let in by a thread that looks.
        (true, Some(0..1), None, PAGE, PAGE),
        // The word of the file is opened while the writer has it.
        (false, None, Some(BESIDE), PAGE, PAGE),
        (true, None, None, SECOND, 0..32768),
    ];
    for (open, held, tried, written, looked_at) in cases {
        bounded(3, move || {
            let lock = if open { opened() } else { RangeLock::for_file(1) };
            let shared = Arc::new((lock, AtomicU64::new(0), AtomicU64::new(0)));
            let lets_in = held.as_ref().is_some_and(|held| held.start < PAGE.end);
            let mut guard = held.clone().map(|range| shared.0.read(range));
            let (theirs, written) = (shared.clone(), written.clone());
            let other = thread::spawn(move || {
                let _range = theirs.0.write(written);
                // Release: as the latch of a page.
                theirs.1.store(1, Ordering::Release);
                theirs.2.store(1, Ordering::Relaxed);
            });
            if lets_in {
                guard = None;
            }
            // Acquire: as the look at a page.
            let first = shared.1.load(Ordering::Acquire);
            let tried = tried.clone().and_then(|range| shared.0.try_read(range));
            if !shared.0.is_written(looked_at.clone()) && first == 1 {
                assert_eq!(shared.2.load(Ordering::Relaxed), 1, "half of what was written");
            }
            drop((guard, tried));
            joined([other]);
        });
    }
}

/// A writer that waits, is called, overtaken by a thread that looks, and then let in by him.
#[test]
fn an_overtaken_writer_is_in_sight() {
    bounded(3, || {
        let shared = Arc::new((opened(), AtomicU64::new(0), AtomicU64::new(0)));
        let held = shared.0.write(0..1);
        let theirs = shared.clone();
        let other = thread::spawn(move || {
            let _range = theirs.0.write(0..4096);
            // Release: as the latch of a page.
            theirs.1.store(1, Ordering::Release);
            theirs.2.store(1, Ordering::Relaxed);
        });
        drop(held);
        drop(shared.0.try_write(0..1));
        // Acquire: as the look at a page.
        let first = shared.1.load(Ordering::Acquire);
        if !shared.0.is_written(0..4096) && first == 1 {
            assert_eq!(shared.2.load(Ordering::Relaxed), 1, "half of what was written");
        }
        joined([other]);
    });
}

/// A writer and a reader of both slots: they take them in one order.
#[test]
fn wide_readers_and_writers_do_not_deadlock() {
    bounded(3, || {
        let shared = Arc::new((opened(), AtomicU64::new(0)));
        let theirs = shared.clone();
        let other = thread::spawn(move || {
            let _range = theirs.0.write(0..u64::MAX);
            bump(&theirs.1);
            bump(&theirs.1);
        });
        {
            let _range = shared.0.read(100..u64::MAX);
            assert_eq!(shared.1.load(Ordering::Relaxed) % 2, 0, "no writer is halfway");
        }
        joined([other]);
    });
}

/// Tries in the table: they keep others out, and those that fail leave nothing behind.
#[test]
fn tries_in_the_table_exclude_and_give_back() {
    bounded(3, || {
        let shared = Arc::new((opened(), AtomicU64::new(0)));
        let theirs = shared.clone();
        let other = thread::spawn(move || {
            // In the second slot alone.
            let _range = theirs.0.write(16384..20480);
            bump(&theirs.1);
        });
        let got = shared.0.try_write(0..32768).map(|_range| bump(&shared.1));
        joined([other]);
        assert_eq!(shared.1.load(Ordering::Relaxed), 1 + got.map_or(0, |()| 1));
        assert!(shared.0.try_write(0..u64::MAX).is_some(), "everything was given back");
    });
}

/// A range lock whose word was opened by a conflict that is over.
fn opened() -> RangeLock {
    let lock = RangeLock::for_file(1);
    let held = lock.write(0..1);
    assert!(lock.try_write(0..1).is_none());
    drop(held);
    lock
}
