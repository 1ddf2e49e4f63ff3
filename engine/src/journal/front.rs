//! The seam of the journal: what the file system asks of one, and the test that any of them must pass.
//!
//! The engine uses [`Journal`] through static dispatch and pays nothing for the seam. Other journals, built
//! to be compared with, implement it outside the engine.

use super::{CreditClass, Credits, Durability, Journal, JournalStats, Position};
use crate::Result;
use crate::pmem::DurabilityLevel;

/// A journal: records go in, a commit makes them durable, the head lets them go.
pub trait JournalFront: Send + Sync {
    /// Room for one record.
    type Credits<'j>
    where
        Self: 'j;

    /// See [`Journal::credits`].
    fn credits(&self, max_slots: u32, class: CreditClass) -> Result<Self::Credits<'_>>;
    /// See [`Journal::log`].
    fn log(
        &self,
        credits: Self::Credits<'_>,
        payload: &[u8],
        apply: impl FnOnce(Position, Position),
    ) -> Result<Position>;
    /// See [`Journal::tail`].
    fn tail(&self) -> Position;
    /// See [`Journal::commit_upto`].
    fn commit_upto(&self, upto: Position, durability: Durability) -> Result<()>;
    /// See [`Journal::committed`].
    fn committed(&self, durability: DurabilityLevel) -> Position;
    /// See [`Journal::head`].
    fn head(&self) -> Position;
    /// See [`Journal::advance_head`].
    fn advance_head(&self, to: Position, round: u64) -> Result<()>;
    /// See [`Journal::fail`].
    fn fail(&self, why: String);
    /// See [`Journal::failed`].
    fn failed(&self) -> Option<String>;
    /// See [`Journal::stats`].
    fn stats(&self) -> JournalStats;
}

impl JournalFront for Journal {
    type Credits<'j> = Credits<'j>;

    fn credits(&self, max_slots: u32, class: CreditClass) -> Result<Credits<'_>> {
        self.credits(max_slots, class)
    }

    fn log(
        &self,
        credits: Credits<'_>,
        payload: &[u8],
        apply: impl FnOnce(Position, Position),
    ) -> Result<Position> {
        self.log(credits, payload, apply)
    }

    fn tail(&self) -> Position {
        self.tail()
    }

    fn commit_upto(&self, upto: Position, durability: Durability) -> Result<()> {
        self.commit_upto(upto, durability)
    }

    fn committed(&self, durability: DurabilityLevel) -> Position {
        self.committed(durability)
    }

    fn head(&self) -> Position {
        self.head()
    }

    fn advance_head(&self, to: Position, round: u64) -> Result<()> {
        self.advance_head(to, round)
    }

    fn fail(&self, why: String) {
        self.fail(why);
    }

    fn failed(&self) -> Option<String> {
        self.failed()
    }

    fn stats(&self) -> JournalStats {
        self.stats()
    }
}

/// The conformance test: what every implementation promises. Panics where one does not keep it.
///
/// `make` gives a fresh journal with room for a hundred records of 64 bytes and more, each committed alone.
pub fn conformance<J: JournalFront>(make: impl Fn() -> J) {
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
