//! What every journal must do, whichever stands behind the seam.

use crate::journal::{CreditClass, Durability, JournalFront, Position};
use crate::pmem::DurabilityLevel;

/// Runs every case.
///
/// `make` gives a fresh journal with room for a hundred records of 64 bytes and more, each committed alone.
///
/// # Panics
/// If the journal does not keep a promise.
pub fn check<J: JournalFront>(make: impl Fn() -> J) {
    records_are_applied_once_and_in_order_of_reservation(&make());
    commits_serve_many_threads(&make());
    the_head_follows_commits(&make());
    a_failed_journal_refuses(&make());
}

fn log_one<J: JournalFront>(journal: &J, bytes: &[u8]) -> Position {
    let credits = journal.credits(1, CreditClass::Ordinary).expect("there is room");
    journal.log(credits, bytes, |_, _| ()).expect("the journal has not failed")
}

fn records_are_applied_once_and_in_order_of_reservation<J: JournalFront>(journal: &J) {
    let mut applied = Vec::new();
    for n in 0..4u8 {
        let credits = journal.credits(1, CreditClass::Reserve).expect("there is room");
        let end = journal.log(credits, &[n; 64], |first, end| applied.push((first, end))).expect("logged");
        assert_eq!(applied.last().map(|range| range.1), Some(end), "the end is that of the record");
    }
    assert_eq!(applied.len(), 4, "each change is applied once");
    assert!(applied.windows(2).all(|pair| pair[0].1 <= pair[1].0), "records do not overlap");
    assert!(journal.tail() >= applied[3].1, "the tail is beyond every record");
}

fn commits_serve_many_threads<J: JournalFront>(journal: &J) {
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for n in 0..10u8 {
                    let end = log_one(journal, &[thread, n]);
                    journal.commit_upto(end, Durability::Power).expect("committed");
                    assert!(
                        journal.committed(DurabilityLevel::Power) >= end,
                        "a commit covers what it was asked for"
                    );
                    assert!(journal.committed(DurabilityLevel::Process) >= end, "power includes process");
                }
            });
        }
    });
    let tail = journal.tail();
    journal.commit_upto(tail, Durability::Power).expect("committed");
    journal.commit_upto(tail, Durability::Process).expect("committed");
}

fn the_head_follows_commits<J: JournalFront>(journal: &J) {
    let head = journal.head();
    let end = log_one(journal, b"a record");
    assert!(journal.advance_head(end, 1).is_err(), "the head does not pass what is not committed");
    assert_eq!(journal.head(), head);
    journal.commit_upto(end, Durability::Power).expect("committed");
    let committed = journal.committed(DurabilityLevel::Power);
    journal.advance_head(committed, 1).expect("it was committed");
    assert_eq!(journal.head(), committed);
}

fn a_failed_journal_refuses<J: JournalFront>(journal: &J) {
    let end = log_one(journal, b"a record");
    assert_eq!(journal.failed(), None);
    journal.fail("a test".into());
    journal.fail("another".into());
    assert_eq!(journal.failed().as_deref(), Some("a test"), "the first reason stays");
    assert!(journal.credits(1, CreditClass::Ordinary).is_err());
    let errno = journal.commit_upto(end, Durability::Power).map_err(|e| e.errno());
    assert_eq!(errno, Err(libc::EROFS), "what was not committed never will be");
}
