//! The SSD ring: what a loss of power leaves, and what a kill leaves.

use std::sync::atomic::AtomicU64 as RealU64;

use proptest::prelude::*;

use super::lossy::LossyDevice;
use super::*;
use crate::device::{BLOCK_SIZE, Request};
use crate::format::SLOT_SIZE;
use crate::sync::Counter;

const START: u64 = 3;

struct Ssd {
    staging: Arc<TestMemory>,
    device: Arc<LossyDevice>,
    journal: Journal,
}

fn region(slots: u64) -> u64 {
    slots / BLOCK_SLOTS + 2
}

fn ssd(options: Options) -> Ssd {
    let slots = options.slots;
    let staging = Arc::new(TestMemory::new(slots));
    let device = Arc::new(LossyDevice::new((START + region(slots)) as usize));
    let media = Media::Ssd { staging: staging.clone(), device: device.clone(), start: START };
    Ssd { staging, device, journal: Journal::start(media, options).expect("starts") }
}

impl Ssd {
    fn scan(&self, seed: u64) -> Scan {
        let after = self.device.after_power_loss(seed);
        scan_device(Arc::new(after), START, region(self.journal.ring.slots)).expect("a header")
    }
}

#[test]
fn power_durability_comes_with_the_commit_and_process_durability_before() {
    let ssd = ssd(options(64, 0));
    let end = log(&ssd.journal, &payload(0, 1));
    ssd.journal.commit_upto(end, Durability::Process).expect("sealed");
    assert!(ssd.journal.committed(DurabilityLevel::Process) >= end);
    assert_eq!(ssd.journal.committed(DurabilityLevel::Power), 0);
    assert_eq!(records(&ssd.scan(1)).len(), 0);
    assert_eq!(records(&scan_mapped(Arc::new(ssd.staging.copy())).expect("a header")).len(), 1);
    ssd.journal.commit_upto(end, Durability::Power).expect("committed");
    assert_eq!(ssd.journal.committed(DurabilityLevel::Power), 16);
    let scan = ssd.scan(1);
    assert_eq!((scan.end, records(&scan).len()), (16, 1));
    assert_eq!(ssd.journal.stats().bytes_streamed, BLOCK_SIZE as u64);
    assert!(!ssd.journal.stream_step().expect("nothing to do"));
}

#[test]
fn a_ring_goes_round_with_commits_padded_to_blocks() {
    let ssd = ssd(options(64, 0));
    for n in 0..60 {
        let end = log(&ssd.journal, &payload(2, n));
        if n % 2 == 0 {
            ssd.journal.commit_upto(end, Durability::Power).expect("committed");
            let scan = ssd.scan(n);
            assert!(scan.end >= end);
            let found: Vec<_> = records(&scan).iter().map(|(_, b)| parse(b).1).collect();
            assert_eq!(found.last(), Some(&n));
            ssd.journal.advance_head(ssd.journal.committed(DurabilityLevel::Power), n).expect("moved");
        }
    }
    assert!(!ssd.device.wrote_a_block_twice());
    assert!(ssd.journal.stats().laps > 5);
}

#[test]
fn of_two_commits_under_way_the_second_counts_with_the_first_alone() {
    for seed in 0..60 {
        let ssd = ssd(options(256, 0));
        let stream = ssd.journal.stream.as_ref().expect("an SSD ring");
        let begin = |n| {
            log(&ssd.journal, &payload(2, n));
            assert!(ssd.journal.claim());
            stream.begin(&ssd.journal, true, |end, at| stream.group.begins(end, at, None)).expect("no faults")
        };
        let (first, second) = (begin(1), begin(2));
        let found = |least: usize| {
            let found: Vec<_> = records(&ssd.scan(seed)).iter().map(|(_, bytes)| parse(bytes)).collect();
            assert!(found.len() >= least && [(2, 1), (2, 2)].starts_with(&found), "seed {seed}: {found:?}");
        };
        found(0);
        stream.finish(second).expect("no faults");
        found(0);
        stream.finish(first).expect("no faults");
        found(2);
    }
}

#[test]
fn a_device_error_is_told_to_everybody_who_waits() {
    let ssd = ssd(options(64, 0));
    let end = log(&ssd.journal, b"x");
    ssd.device.fail_writes();
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    for _ in 0..2 {
        let told = told.clone();
        let done = move |outcome: Result<()>| told.lock().expect("test").push(outcome.map_err(|e| e.errno()));
        ssd.journal.commit_then(end, Durability::Power, Box::new(done));
    }
    assert_eq!(*told.lock().expect("test"), [Err(libc::EROFS), Err(libc::EROFS)]);
}

#[test]
fn a_device_error_fails_the_journal() {
    let ssd = ssd(options(64, 0));
    let end = log(&ssd.journal, b"x");
    ssd.device.fail_writes();
    assert_eq!(ssd.journal.commit_upto(end, Durability::Power).unwrap_err().errno(), libc::EIO);
    assert!(ssd.journal.failed().is_some());
    assert_eq!(ssd.journal.commit_upto(end, Durability::Power).unwrap_err().errno(), libc::EROFS);
    assert!(ssd.journal.advance_head(0, 1).is_err());
}

#[test]
fn damage_is_told_from_a_torn_tail() {
    let ssd = ssd(options(128, 0));
    for n in 0..3 {
        let end = log(&ssd.journal, &payload(0, n));
        ssd.journal.commit_upto(end, Durability::Power).expect("committed");
    }
    let slot = |position: usize| (START as usize + 2) * BLOCK_SIZE + position * SLOT_SIZE + 30;
    // In the last range: nothing later says that it was durable.
    ssd.device.corrupt(slot(32));
    let torn = ssd.scan(0);
    assert_eq!((torn.end, records(&torn).len()), (32, 2));
    ssd.device.corrupt(slot(32));
    // In the first range: the later commits say so.
    ssd.device.corrupt(slot(0));
    let damaged = ssd.scan(0);
    assert_eq!(damaged.end, 0);
    assert!(damaged.damage.is_some_and(|d| d.contains("up to 32 ")));
}

/// Threads log and commit through many laps while the head moves; power is lost at arbitrary moments.
#[test]
fn what_was_committed_survives_a_loss_of_power() {
    const THREADS: u64 = 3;
    const RECORDS: u64 = 120;
    let (asked, options) = Asked::with(options(128, 16));
    let ssd = ssd(options);
    let running = RealU64::new(THREADS);
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let (ssd, running, asked) = (&ssd, &running, &asked);
            s.spawn(move || {
                for n in 0..RECORDS {
                    let end = log(&ssd.journal, &payload(t, n));
                    let survives = || {
                        let scan = ssd.scan(n);
                        assert!(scan.end >= end, "committed {end}, found {}", scan.end);
                        for (_, bytes) in records(&scan) {
                            parse(&bytes);
                        }
                    };
                    if n % 4 == 0 {
                        ssd.journal.commit_upto(end, Durability::Power).expect("committed");
                        survives();
                    } else if n % 4 == 2 {
                        let (told, tells) = std::sync::mpsc::channel();
                        let done = move |outcome| told.send(outcome).expect("it is waited for");
                        ssd.journal.commit_then(end, Durability::Power, Box::new(done));
                        tells.recv().expect("called").expect("committed");
                        survives();
                    }
                }
                running.fetch_sub(1, Ordering::SeqCst);
                asked.queue.wake_all();
            });
        }
        s.spawn(|| asked.checkpoint(&ssd.journal, || running.load(Ordering::SeqCst) == 0));
    });
    assert!(!ssd.device.wrote_a_block_twice());
    assert!(ssd.journal.stats().laps > 2, "{:?}", ssd.journal.stats());
}

#[test]
fn the_ssd_ring_keeps_the_promises_of_a_journal() {
    crate::conformance::journal::check(|| ssd(options(2048, 0)).journal);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_flipped_bit_is_never_read_as_a_record(bit in 0..128 * SLOT_SIZE * 8) {
        let ssd = ssd(options(128, 0));
        for n in 0..3 {
            let end = log(&ssd.journal, &payload(0, n));
            ssd.journal.commit_upto(end, Durability::Power).expect("committed");
        }
        ssd.device.corrupt((START as usize + 2) * BLOCK_SIZE + bit / 8);
        let scan = ssd.scan(0);
        let hit = (bit / 8 / SLOT_SIZE) as u64;
        prop_assert_eq!(scan.damage.is_some(), hit < 32);
        for (n, record) in scan.records().enumerate() {
            prop_assert_eq!(parse(&record.expect("readable").1), (0, n as u64));
        }
    }
}

#[test]
fn what_a_kill_leaves_in_the_staging_is_carried_to_the_device() {
    for seed in 0..40 {
        let ssd = ssd(options(256, 0));
        for n in 0..30 {
            let end = log(&ssd.journal, &payload(2, n));
            if n % 7 == 6 {
                ssd.journal.commit_upto(end, Durability::Power).expect("committed");
                ssd.journal.advance_head(ssd.journal.committed(DurabilityLevel::Power), n).expect("moved");
            }
        }
        // A thread that the kill stops between its reservation and its record, and one that gets on.
        let credits = ssd.journal.credits(3, CreditClass::Ordinary).expect("room");
        std::mem::forget(ssd.journal.reserve(credits, 3).expect("reserved"));
        log(&ssd.journal, &payload(2, 30));
        let staged = scan_mapped(Arc::new(ssd.staging.copy())).expect("a header");
        assert!(records(&ssd.scan(seed)).len() < records(&staged).len());
        staged.carry(ssd.device.as_ref(), START).expect("no faults");
        let carried = ssd.scan(seed);
        assert_eq!(records(&carried), records(&staged));
        staged.carry(ssd.device.as_ref(), START).expect("carried again, should the kill come again");
        assert_eq!(records(&ssd.scan(seed)), records(&staged));
    }
}

#[test]
fn a_power_loss_while_the_staging_is_carried_leaves_what_was_there_or_all() {
    let mut seen = [false; 2];
    for seed in 0..200 {
        let ssd = ssd(options(256, 0));
        let end = log(&ssd.journal, &payload(0, 1));
        ssd.journal.commit_upto(end, Durability::Power).expect("committed");
        for n in 2..9 {
            log(&ssd.journal, &payload(0, n));
        }
        let before = records(&ssd.scan(0));
        let staged = scan_mapped(Arc::new(ssd.staging.copy())).expect("a header");
        ssd.device.ignore_flushes();
        staged.carry(ssd.device.as_ref(), START).expect("no faults");
        let after = records(&ssd.scan(seed));
        let all = records(&staged);
        assert!(after == before || after == all, "seed {seed}: {} records", after.len());
        seen[usize::from(after == all)] = true;
    }
    assert!(seen[0], "some of these losses come in between");
}

/// A journal whose clock stands still until it is moved.
fn timed(slots: u64) -> (Ssd, Arc<Counter>) {
    let time = Arc::new(Counter::new());
    let clock = Clock::moved_by(Arc::clone(&time));
    (ssd(Options { clock, ..options(slots, 0) }), time)
}

const MS: u64 = 1_000_000;
const WINDOW: Durability = Durability::Window(Duration::from_millis(100));

#[test]
fn an_fsync_waits_once_the_oldest_promise_is_as_old_as_the_window() {
    for calls in [false, true] {
        let (ssd, time) = timed(256);
        let journal = &ssd.journal;
        let sync = |n| {
            let end = log(journal, &payload(0, n));
            if !calls {
                return journal.commit_upto(end, WINDOW).expect("no faults");
            }
            let told = Arc::new(std::sync::Mutex::new(None));
            let done = Arc::clone(&told);
            journal.commit_then(
                end,
                WINDOW,
                Box::new(move |outcome| *done.lock().expect("test") = Some(outcome)),
            );
            assert_eq!(told.lock().expect("test").take(), Some(Ok(())));
        };
        sync(1);
        time.add(99 * MS);
        sync(2);
        assert_eq!(journal.committed(DurabilityLevel::Power), 0, "both returned at once");
        assert_eq!(journal.stats().power_lag_ns, 99 * MS);
        time.add(MS);
        sync(3);
        assert!(journal.committed(DurabilityLevel::Power) >= journal.tail());
        assert_eq!(journal.stats().power_lag_ns, 0);
        time.add(1000 * MS);
        sync(4);
        assert!(
            journal.committed(DurabilityLevel::Power) < journal.tail(),
            "a new window begins with a new promise"
        );
        journal.keep_promises().expect("no faults");
        assert!(journal.committed(DurabilityLevel::Power) >= journal.tail());
    }
}

#[test]
fn a_promise_of_data_alone_is_kept_by_a_flush() {
    let (ssd, time) = timed(64);
    let journal = &ssd.journal;
    let buf = crate::device::IoBuf::zeroed(BLOCK_SIZE);
    ssd.device.run(vec![Request::write(0, buf, crate::device::Cause::DataWriteBack)]).expect("no faults");
    journal.depend(ssd.device.writes_completed());
    journal.commit_upto(journal.tail(), WINDOW).expect("no faults");
    assert!(ssd.device.writes_flushed() < ssd.device.writes_completed());
    time.add(100 * MS);
    journal.commit_upto(journal.tail(), WINDOW).expect("no faults");
    assert_eq!(ssd.device.writes_flushed(), ssd.device.writes_completed());
    assert_eq!(journal.stats().power_lag_ns, 0);
    assert_eq!(journal.committed(DurabilityLevel::Power), 0, "there is nothing to commit");
}

#[test]
fn a_device_error_while_streaming_is_told_to_the_next_fsync() {
    for durability in [WINDOW, Durability::Process] {
        let (ssd, _) = timed(64);
        let end = log(&ssd.journal, b"x");
        ssd.journal.commit_upto(end, durability).expect("it may lag");
        ssd.device.fail_writes();
        assert_eq!(ssd.journal.keep_promises().unwrap_err().errno(), libc::EIO);
        assert_eq!(ssd.journal.commit_upto(end, durability).unwrap_err().errno(), libc::EROFS);
        assert!(!ssd.journal.wait_due(Duration::from_secs(1)), "the streaming thread ends");
    }
}

#[test]
fn a_thread_keeps_promises_while_nobody_waits() {
    let ssd = ssd(options(256, 0));
    let window = Duration::from_millis(1);
    std::thread::scope(|scope| {
        let streaming = scope.spawn(|| {
            while ssd.journal.wait_due(window) {
                ssd.journal.keep_promises().expect("no faults");
            }
        });
        for n in 0..10 {
            let end = log(&ssd.journal, &payload(0, n));
            ssd.journal.commit_upto(end, Durability::Window(Duration::from_secs(60))).expect("no faults");
            while ssd.journal.committed(DurabilityLevel::Power) < end {
                std::thread::yield_now();
            }
        }
        ssd.journal.end_streaming();
        streaming.join().expect("no panic");
    });
}
