//! The front with real threads.

use std::sync::atomic::AtomicU64;

use super::*;

#[test]
fn a_record_is_applied_once_and_committed() {
    let (_, journal) = mapped(64);
    let credits = journal.credits(3, CreditClass::Ordinary).expect("room");
    let mut applied = None;
    let end = journal.log(credits, &[7; 300], |first, end| applied = Some((first, end))).expect("logged");
    assert_eq!((applied, end), (Some((0, 2)), 2));
    assert_eq!(journal.committed(DurabilityLevel::Power), 0);
    journal.commit_upto(end, Durability::Power).expect("committed");
    assert_eq!(journal.committed(DurabilityLevel::Power), 3);
    journal.commit_upto(journal.tail(), Durability::Power).expect("nothing to do");
    assert_eq!((journal.tail(), journal.stats().commits), (3, 1));
}

#[test]
fn the_head_stays_below_the_last_commit() {
    let (_, journal) = mapped(64);
    let end = log(&journal, b"x");
    assert!(journal.advance_head(end, 1).is_err());
    journal.commit_upto(end, Durability::Power).expect("committed");
    journal.advance_head(end, 1).expect("moved");
    assert!(journal.advance_head(0, 2).is_err());
    assert_eq!(journal.head(), end);
}

#[test]
fn an_abandoned_reservation_becomes_void_and_a_panic_fails_the_journal() {
    let (_, journal) = mapped(64);
    let credits = journal.credits(2, CreditClass::Ordinary).expect("room");
    drop(journal.reserve(credits, 2).expect("reserved"));
    journal.commit_upto(journal.tail(), Durability::Power).expect("the void is passed");
    assert_eq!(journal.stats().voids, 1);
    let credits = journal.credits(2, CreditClass::Ordinary).expect("room");
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        journal.log(credits, b"x", |_, _| panic!("a bug"))
    }));
    assert!(panic.is_err());
    assert!(journal.failed().is_some());
    assert_eq!(journal.commit_upto(journal.tail(), Durability::Power).unwrap_err().errno(), libc::EROFS);
    assert!(journal.credits(1, CreditClass::Ordinary).is_err());
}

#[test]
fn a_record_beyond_its_credits_is_refused() {
    let (_, journal) = mapped(64);
    let credits = journal.credits(1, CreditClass::Ordinary).expect("room");
    assert!(journal.log(credits, &[0; 300], |_, _| ()).is_err());
    assert_eq!(journal.tail(), 0);
    assert!(journal.credits(journal.max_record_slots() + 1, CreditClass::Ordinary).is_err());
}

/// Threads log and commit on a tiny ring for many laps, while another moves the head when asked.
#[test]
fn many_laps_with_many_threads() {
    const THREADS: u64 = 4;
    const RECORDS: u64 = 400;
    let memory = Arc::new(TestMemory::new(32));
    let (asked, options) = Asked::with(options(32, 0));
    let journal = Journal::start(Media::Mapped(memory), options).expect("starts");
    let running = AtomicU64::new(THREADS);
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let (journal, running, asked) = (&journal, &running, &asked);
            s.spawn(move || {
                for n in 0..RECORDS {
                    let end = log(journal, &vec![t as u8; (n as usize * 37) % 900]);
                    if n % 3 == 0 {
                        journal.commit_upto(end, Durability::Power).expect("committed");
                        assert!(journal.committed(DurabilityLevel::Power) >= end);
                    }
                }
                running.fetch_sub(1, Ordering::SeqCst);
                asked.queue.wake_all();
            });
        }
        s.spawn(|| asked.checkpoint(&journal, || running.load(Ordering::SeqCst) == 0));
    });
    let stats = journal.stats();
    assert_eq!(stats.records, THREADS * RECORDS);
    assert!(stats.laps > 20, "{stats:?}");
    // Everything is given back: the ring can be filled again.
    assert!(stats.tail - stats.head <= 32);
}

#[test]
fn the_mapped_ring_keeps_the_promises_of_a_journal() {
    crate::conformance::journal::check(|| mapped(1024).1);
}

#[test]
fn what_is_refused_gives_nothing_back() {
    let (_memory, journal) = mapped(64);
    let mut held = Vec::new();
    while let Some(credits) = journal.credits_now(4, Look::Nearby).expect("it has not failed") {
        held.push(credits);
    }
    for refused in [4, u32::MAX] {
        assert!(journal.credits_now(refused, Look::Nearby).expect("it has not failed").is_none());
    }
    assert!(!journal.has_room(4, CreditClass::Ordinary));
    let slots: u32 = held.iter().map(Credits::slots).sum();
    assert!(u64::from(slots) < 64 && !journal.has_room(64 - slots, CreditClass::Reserve));
    drop(held);
    assert!(journal.has_room(63, CreditClass::Reserve));
}
