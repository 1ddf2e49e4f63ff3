//! The scan of a mapped ring, after a kill and after damage.

use std::sync::atomic::AtomicU64 as RealU64;

use proptest::prelude::*;

use super::*;
use crate::format::{RING_HEADER_COPY, SLOT_SIZE};

fn scan(memory: &TestMemory) -> Scan {
    scan_mapped(Arc::new(memory.copy())).expect("a header")
}

#[test]
fn whole_records_count_and_holes_are_skipped() {
    let (memory, journal) = mapped(64);
    let credits = || journal.credits(3, CreditClass::Ordinary).expect("room");
    log(&journal, &payload(0, 1));
    journal.commit_upto(journal.tail(), Durability::Power).expect("committed");
    let committed = journal.committed(DurabilityLevel::Power);
    drop(journal.reserve(credits(), 2).expect("a void"));
    // A thread that was killed between reservation and persist.
    let hole = journal.reserve(credits(), 3).expect("reserved");
    log(&journal, &payload(0, 2));
    let scan = scan(&memory);
    std::mem::forget(hole);
    let found: Vec<_> = records(&scan).iter().map(|(_, bytes)| parse(bytes)).collect();
    assert_eq!(found, [(0, 1), (0, 2)]);
    assert_eq!((scan.end, scan.last_commit), (journal.tail(), Some(committed - 1)));
    assert!(scan.next_position >= 64);
    let later: Vec<_> = scan.records_from(committed).map(|r| parse(&r.expect("readable").1)).collect();
    assert_eq!(later, [(0, 2)]);
}

#[test]
fn what_a_commit_covers_and_does_not_verify_is_damage() {
    let (memory, journal) = mapped(64);
    let first = log(&journal, &payload(0, 1));
    log(&journal, &payload(0, 2));
    journal.commit_upto(journal.tail(), Durability::Power).expect("committed");
    log(&journal, &payload(0, 3));
    let flip = |position: Position| {
        let copy = memory.copy();
        let offset = RING_HEADER_SPACE + position as usize * SLOT_SIZE + 100;
        let mut byte = [0];
        copy.read(offset, &mut byte);
        copy.write(offset, &[byte[0] ^ 4]);
        scan_mapped(Arc::new(copy)).expect("a header")
    };
    let damaged = flip(first);
    assert_eq!(damaged.end, first);
    assert!(damaged.damage.is_some_and(|d| d.contains(&format!("slot {first} "))));
    // Beyond the last commit it is a hole.
    let torn = flip(journal.tail() - 1);
    assert_eq!(records(&torn).len(), 2);
}

#[test]
fn slots_of_an_earlier_lap_or_mount_do_not_count() {
    let (memory, journal) = mapped(32);
    for n in 0..40 {
        let end = log(&journal, &payload(1, n));
        journal.commit_upto(end, Durability::Power).expect("committed");
        journal.advance_head(journal.committed(DurabilityLevel::Power), n).expect("moved");
    }
    log(&journal, &payload(1, 99));
    let found = scan(&memory);
    assert_eq!(records(&found).iter().map(|(_, b)| parse(b)).collect::<Vec<_>>(), [(1, 99)]);
    let start = found.next_position;
    let next = Options { epoch: 6, ..options(32, start) };
    drop(Journal::start(Media::Mapped(memory.clone()), next).expect("starts"));
    let found = scan(&memory);
    assert_eq!((found.head, found.end, records(&found).len()), (start, start, 0));
}

#[test]
fn a_torn_header_leaves_the_other_copy() {
    let (memory, journal) = mapped(32);
    let end = log(&journal, b"x");
    journal.commit_upto(end, Durability::Power).expect("committed");
    journal.advance_head(end, 1).expect("moved");
    memory.write(0, &[0xff; 60]);
    assert_eq!(scan(&memory).head, 0);
    memory.write(RING_HEADER_COPY, &[0xff; 60]);
    assert!(scan_mapped(memory).is_err());
}

/// The process is killed at arbitrary moments: everything that had returned is found, in each thread's order.
#[test]
fn nothing_that_returned_is_lost() {
    const THREADS: u64 = 3;
    const RECORDS: u64 = 300;
    let memory = Arc::new(TestMemory::new(128));
    let (asked, options) = Asked::with(options(128, 0));
    let journal = Journal::start(Media::Mapped(memory.clone()), options).expect("starts");
    let ends: Vec<_> = (0..THREADS).map(|_| RealU64::new(0)).collect();
    let running = RealU64::new(THREADS);
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let (journal, running, asked, ends) = (&journal, &running, &asked, &ends);
            s.spawn(move || {
                for n in 0..RECORDS {
                    let end = log(journal, &payload(t, n));
                    ends[t as usize].store(end << 16 | (n + 1), Ordering::SeqCst);
                    if n % 7 == 0 {
                        journal.commit_upto(end, Durability::Power).expect("committed");
                    }
                }
                running.fetch_sub(1, Ordering::SeqCst);
                asked.queue.wake_all();
            });
        }
        s.spawn(|| asked.checkpoint(&journal, || running.load(Ordering::SeqCst) == 0));
        while running.load(Ordering::SeqCst) > 0 {
            let returned: Vec<_> = ends.iter().map(|e| e.load(Ordering::SeqCst)).collect();
            let (head, copy) = (journal.head(), memory.copy());
            // A copy is no instant: if the ring moved on meanwhile, it proves nothing.
            if journal.head() != head {
                continue;
            }
            let Ok(scan) = scan_mapped(Arc::new(copy)) else { continue };
            if scan.head != head {
                continue;
            }
            let mut last = vec![0; THREADS as usize];
            for (_, bytes) in scan.records().map_while(|r| r.ok()) {
                let (t, n) = parse(&bytes);
                assert!(n + 1 > last[t as usize], "out of order");
                last[t as usize] = n + 1;
            }
            for (t, word) in returned.iter().enumerate() {
                let (end, count) = (word >> 16, word & 0xffff);
                assert!(
                    end <= scan.head || last[t] >= count || scan.damage.is_some(),
                    "thread {t} lost {count}"
                );
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 64 * SLOT_SIZE), at in 0..64usize) {
        let (memory, journal) = mapped(64);
        for n in 0..8 {
            log(&journal, &payload(0, n));
        }
        journal.commit_upto(journal.tail(), Durability::Power).expect("committed");
        memory.write(RING_HEADER_SPACE + at * SLOT_SIZE, &bytes[at * SLOT_SIZE..]);
        let scan = scan(&memory);
        prop_assert!(scan.end <= journal.tail());
        prop_assert!(scan.records().all(|r| r.is_ok()));
    }

    #[test]
    fn a_flipped_bit_is_damage_or_harmless(bit in 0..64 * SLOT_SIZE * 8) {
        let (memory, journal) = mapped(64);
        for n in 0..8 {
            log(&journal, &payload(0, n));
        }
        journal.commit_upto(journal.tail(), Durability::Power).expect("committed");
        let mut byte = [0];
        memory.read(RING_HEADER_SPACE + bit / 8, &mut byte);
        memory.write(RING_HEADER_SPACE + bit / 8, &[byte[0] ^ 1 << (bit % 8)]);
        let scan = scan(&memory);
        let hit = (bit / 8 / SLOT_SIZE) as u64;
        // A damaged commit record itself is a hole: nothing says that it was there.
        prop_assert_eq!(scan.damage.is_some(), scan.last_commit.is_some_and(|commit| hit < commit));
        for record in scan.records() {
            parse(&record.expect("readable").1);
        }
    }
}
