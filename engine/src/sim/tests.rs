//! The model against what it grants.

use std::collections::BTreeSet;

use super::*;
use crate::Error;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Request};
use crate::pmem::{DurabilityLevel, PersistentMemory};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicUsize, Ordering};

const NVM: PmemSpec = PmemSpec { len: 256, durability: DurabilityLevel::Power };
const STAGING: PmemSpec = PmemSpec { len: 256, durability: DurabilityLevel::Process };

fn write(block: u64, byte: u8) -> Request {
    Request::write(block, IoBuf::from_slice(&[byte; BLOCK_SIZE]), Cause::Checkpoint)
}

fn block(media: &SimMedia, block: u64) -> IoBuf {
    let read = Request::read(block, IoBuf::zeroed(BLOCK_SIZE), Cause::Recovery);
    media.device().run(vec![read]).expect("read").remove(0)
}

/// The first bytes of blocks 0, 1 and 2 in every state in which no block is torn, and whether any was.
fn outcomes(point: &CrashPoint, crash: Crash) -> (BTreeSet<[u8; 3]>, bool) {
    let (mut whole, mut torn) = (BTreeSet::new(), false);
    for state in point.states(crash, 1) {
        let media = state.restart();
        let blocks = [0, 1, 2].map(|n| block(&media, n));
        if blocks.iter().all(|b| b.iter().all(|byte| *byte == b[0])) {
            whole.insert([0, 1, 2].map(|n: usize| blocks[n][0]));
        } else {
            torn = true;
        }
    }
    (whole, torn)
}

#[test]
fn flushed_writes_are_there_and_others_may_be_torn_or_missing() {
    let media = SimMedia::new(8, &[]);
    let device = media.device();
    device.run(vec![write(0, 1)]).expect("write");
    device.flush().expect("flush");
    device.run(vec![write(0, 2), write(1, 3)]).expect("write");
    let (whole, torn) = outcomes(&media.crash_point(media.events()), Crash::PowerLoss);
    assert_eq!(whole, BTreeSet::from([[1, 0, 0], [2, 0, 0], [1, 3, 0], [2, 3, 0]]));
    assert!(torn);
    device.flush().expect("flush");
    let (whole, torn) = outcomes(&media.crash_point(media.events()), Crash::PowerLoss);
    assert_eq!((whole, torn), (BTreeSet::from([[2, 3, 0]]), false));
}

#[test]
fn of_two_pending_writes_to_a_block_either_may_be_last() {
    let media = SimMedia::new(8, &[]);
    media.device().run(vec![write(2, 1)]).expect("write");
    media.device().run(vec![write(2, 2)]).expect("write");
    let (whole, _) = outcomes(&media.crash_point(media.events()), Crash::PowerLoss);
    assert_eq!(whole, BTreeSet::from([[0, 0, 0], [0, 0, 1], [0, 0, 2]]));
}

#[test]
fn a_killed_process_leaves_completed_writes_that_power_may_still_take() {
    let media = SimMedia::new(8, &[]);
    let device = media.device();
    device.run(vec![write(0, 1)]).expect("write");
    let in_flight = device.submit(vec![write(1, 2)]);
    let point = media.crash_point(media.events());
    assert_eq!(outcomes(&point, Crash::ProcessKill).0, BTreeSet::from([[1, 0, 0], [1, 2, 0]]));
    for state in point.states(Crash::ProcessKill, 1) {
        let next = state.restart();
        let arrived = block(&next, 1)[0];
        let (whole, _) = outcomes(&next.crash_point(0), Crash::PowerLoss);
        assert!(whole.contains(&[0, 0, 0]), "{state}: nothing was flushed");
        next.device().flush().expect("flush");
        if block(&next, 1).iter().all(|byte| *byte == arrived) {
            let (whole, _) = outcomes(&next.crash_point(next.events()), Crash::PowerLoss);
            assert_eq!(whole, BTreeSet::from([[1, arrived, 0]]), "{state}: the first flush covers all");
        }
    }
    assert!(device.wait(in_flight)[0].result.is_ok());
}

#[test]
fn lines_persist_by_write_back_and_fence_of_one_thread() {
    let media = SimMedia::new(8, &[NVM]);
    let memory = media.pmem(0).expect("added");
    let possible = || -> BTreeSet<u64> {
        let states = media.crash_point(media.events()).states(Crash::PowerLoss, 1);
        states
            .map(|state| {
                let mut word = [0; 8];
                state.restart().pmem(0).expect("it survives").read(64, &mut word);
                u64::from_le_bytes(word)
            })
            .collect()
    };
    memory.write_u64(64, 1);
    assert_eq!(possible(), BTreeSet::from([0, 1]));
    memory.write_back(64, 8);
    assert_eq!(possible(), BTreeSet::from([0, 1]));
    memory.write_u64(64, 2);
    std::thread::scope(|scope| scope.spawn(|| memory.fence()).join().expect("no panic"));
    assert_eq!(possible(), BTreeSet::from([0, 1, 2]), "another thread's fence orders nothing of ours");
    memory.fence();
    assert_eq!(possible(), BTreeSet::from([1, 2]), "what was stored after the write-back may be missing");
    memory.persist(64, 8);
    assert_eq!(possible(), BTreeSet::from([2]));
}

#[test]
fn a_line_is_torn_only_between_words_and_in_their_order() {
    let media = SimMedia::new(8, &[NVM]);
    media.pmem(0).expect("added").write(0, &[7; 32]);
    let mut seen = BTreeSet::new();
    for state in media.crash_point(media.events()).states(Crash::PowerLoss, 1) {
        let mut line = [0; 64];
        state.restart().pmem(0).expect("it survives").read(0, &mut line);
        seen.insert(line.iter().filter(|b| **b == 7).count());
        assert!(line.is_sorted_by(|a, b| a >= b), "a prefix: {line:?}");
    }
    assert_eq!(seen, BTreeSet::from([0, 8, 16, 24, 32]));
}

#[test]
fn staging_survives_the_process_and_not_the_power() {
    let media = SimMedia::new(8, &[STAGING, NVM]);
    media.pmem(0).expect("added").write(10, b"staged");
    media.pmem(1).expect("added").write_u64(0, 1);
    let point = media.crash_point(media.events());
    for state in point.states(Crash::ProcessKill, 1) {
        let mut seen = [0; 6];
        state.restart().pmem(0).expect("it survives").read(10, &mut seen);
        assert_eq!(&seen, b"staged");
    }
    for state in point.states(Crash::PowerLoss, 1) {
        let next = state.restart();
        assert!(next.pmem(0).is_none() && next.pmem(1).is_some());
        assert_eq!(next.add_pmem(STAGING), 2);
        let memory = next.pmem(2).expect("just added");
        memory.write(0, b"new");
        memory.persist(0, 3);
        let after = next.crash_point(next.events()).states(Crash::ProcessKill, 1).next().expect("one state");
        let mut seen = [0; 3];
        after.restart().pmem(2).expect("it survives").read(0, &mut seen);
        assert_eq!(&seen, b"new");
    }
}

#[test]
fn a_kill_may_cut_the_last_store_short() {
    let media = SimMedia::new(8, &[STAGING]);
    let memory = media.pmem(0).expect("added");
    memory.write(0, &[1; 16]);
    memory.write(16, &[2; 24]);
    let counts = |events| -> BTreeSet<usize> {
        let states = media.crash_point(events).states(Crash::ProcessKill, 1);
        states
            .map(|state| {
                let mut line = [0; 64];
                state.restart().pmem(0).expect("it survives").read(0, &mut line);
                line.iter().filter(|b| **b != 0).count()
            })
            .collect()
    };
    assert_eq!(counts(2), BTreeSet::from([24, 32, 40]));
    memory.fence();
    assert_eq!(counts(3), BTreeSet::from([40]));
}

#[test]
fn both_clocks_combine() {
    let media = SimMedia::new(8, &[NVM]);
    media.device().run(vec![write(0, 1)]).expect("write");
    media.pmem(0).expect("added").write_u64(0, 1);
    let mut seen = BTreeSet::new();
    for state in media.crash_point(media.events()).states(Crash::PowerLoss, 1) {
        let next = state.restart();
        let mut word = [0; 8];
        next.pmem(0).expect("it survives").read(0, &mut word);
        seen.insert((block(&next, 0)[0], word[0]));
    }
    assert_eq!(seen, BTreeSet::from([(0, 0), (0, 1), (1, 0), (1, 1)]));
}

#[test]
fn many_pending_units_are_sampled_and_replayable() {
    let media = SimMedia::new(64, &[]);
    media.device().run((0..40).map(|n| write(n, 1)).collect()).expect("write");
    let point = media.crash_point(media.events());
    let texts = |seed| point.states(Crash::PowerLoss, seed).map(|s| s.to_string()).collect::<Vec<_>>();
    assert_eq!(texts(5), texts(5));
    assert_ne!(texts(5), texts(6));
    assert!((280..2000).contains(&texts(5).len()), "{}", texts(5).len());
}

#[test]
fn of_ten_pending_units_every_subset_is_tried() {
    let media = SimMedia::new(64, &[NVM]);
    media.device().run((0..6).map(|n| write(n, 1)).collect()).expect("write");
    (0..4).for_each(|line| media.pmem(0).expect("added").write(line * 64, &[1; 32]));
    let point = media.crash_point(media.events());
    let mut subsets = BTreeSet::new();
    for state in point.states(Crash::PowerLoss, 1) {
        let next = state.restart();
        let blocks = (0..6).map(|n| block(&next, n));
        let blocks: Vec<bool> = blocks.map(|b| b.iter().all(|byte| *byte == 1)).collect();
        let lines = (0..4).map(|line| {
            let mut bytes = [0; 32];
            next.pmem(0).expect("it survives").read(line * 64, &mut bytes);
            bytes == [1; 32]
        });
        subsets.insert(blocks.into_iter().chain(lines).collect::<Vec<bool>>());
    }
    assert_eq!(subsets.len(), 1 << 10);
}

#[test]
fn of_one_pending_block_every_subset_of_six_sectors_is_tried() {
    let media = SimMedia::new(8, &[]);
    let mut bytes = [0; BLOCK_SIZE];
    bytes[1024..].fill(1);
    let write = Request::write(0, IoBuf::from_slice(&bytes), Cause::Checkpoint);
    media.device().run(vec![write]).expect("write");
    let states = media.crash_point(media.events()).states(Crash::PowerLoss, 1);
    let contents =
        states.map(|state| block(&state.restart(), 0).chunks(512).map(|s| s[0]).collect::<Vec<u8>>());
    assert_eq!(contents.collect::<BTreeSet<_>>().len(), 1 << 6);
}

#[test]
fn many_pending_units_leave_every_prefix_in_the_order_of_issue() {
    let media = SimMedia::new(64, &[NVM]);
    for n in 0..20_u64 {
        media.device().run(vec![write(19 - n, 1)]).expect("write");
        media.pmem(0).expect("added").write_u64((n % 4) as usize * 64, n + 1);
    }
    let seen: BTreeSet<(Vec<u8>, Vec<u64>)> = media
        .crash_point(media.events())
        .states(Crash::PowerLoss, 1)
        .map(|state| {
            let next = state.restart();
            let word = |line: usize| {
                let mut word = [0; 8];
                next.pmem(0).expect("it survives").read(line * 64, &mut word);
                u64::from_le_bytes(word)
            };
            ((0..20).map(|n| block(&next, 19 - n)[4095]).collect(), (0..4).map(word).collect())
        })
        .collect();
    for prefix in 0..=20_u64 {
        let blocks = (0..20).map(|n| u8::from(n < prefix)).collect();
        let last = |line: u64| (0..prefix).rev().find(|n| n % 4 == line).map_or(0, |n| n + 1);
        assert!(seen.contains(&(blocks, (0..4).map(last).collect())), "the first {prefix}");
    }
}

#[test]
fn every_prefix_of_the_log_is_a_crash_point() {
    let media = SimMedia::new(8, &[NVM]);
    media.device().run(vec![write(0, 1)]).expect("write");
    media.pmem(0).expect("added").persist(0, 8);
    media.device().flush().expect("flush");
    let points: Vec<usize> = media.crash_points().map(|p| p.events).collect();
    assert_eq!(points, (0..=media.events()).collect::<Vec<_>>());
    let mut later = media.crash_points();
    later.skip_to(3);
    assert_eq!(later.next().map(|p| p.events), Some(3));
}

#[test]
fn faults_fail_what_they_name_and_leave_anything_behind() {
    let media = SimMedia::new(8, &[]);
    let device = media.device();
    media.set_fault(Some(Box::new(|fault| match fault {
        Fault::Write { nth: 1, .. } => Some(libc::ENOSPC),
        Fault::Read { block: 7, .. } | Fault::Flush { nth: 1 } => Some(libc::EIO),
        _ => None,
    })));
    device.run(vec![write(0, 1)]).expect("write");
    let failed = device.run(vec![write(0, 2)]);
    assert_eq!(failed.map(|_| ()), Err(Error::Device { context: "write", errno: libc::ENOSPC }));
    assert!(device.run(vec![Request::read(7, IoBuf::zeroed(BLOCK_SIZE), Cause::Fsck)]).is_err());
    assert_eq!(device.writes_completed(), 2, "a failed write does not count");
    device.flush().expect("flush");
    let (whole, _) = outcomes(&media.crash_point(media.events()), Crash::PowerLoss);
    assert_eq!(whole, BTreeSet::from([[1, 0, 0], [2, 0, 0]]));
    device.run(vec![write(1, 3)]).expect("write");
    assert!(device.flush().is_err());
    media.set_fault(None);
    assert!(device.flush().is_err(), "what failed once stays failed");
    let (whole, _) = outcomes(&media.crash_point(media.events()), Crash::PowerLoss);
    assert!(whole.contains(&[1, 0, 0]), "the failed flush covered nothing");
}

#[test]
fn a_short_request_is_done_in_part_and_a_crash_leaves_any_of_it() {
    let media = SimMedia::new(8, &[]);
    let device = media.device();
    device.run((0..3).map(|block| write(block, 1)).collect()).expect("write");
    device.flush().expect("flush");
    media.set_failure(Some(Box::new(|fault| match fault {
        Fault::Write { .. } => Some(Failure { errno: libc::EIO, done: 2 }),
        Fault::Read { .. } => Some(Failure { errno: libc::EIO, done: 1 }),
        Fault::Flush { .. } => None,
    })));
    let long = IoBuf::from_slice(&[2; 3 * BLOCK_SIZE]);
    assert!(device.run(vec![Request::write(0, long, Cause::Checkpoint)]).is_err());
    let ticket = device.submit(vec![Request::read(1, IoBuf::zeroed(2 * BLOCK_SIZE), Cause::Fsck)]);
    let done = device.wait(ticket).pop().expect("one was asked for");
    assert!(done.result.is_err());
    assert_eq!(done.buf[0], 2, "what was read before");
    assert!(!matches!(done.buf[BLOCK_SIZE], 0..=2), "what nobody wrote");
    media.set_fault(None);
    let live = device.run(vec![Request::read(0, IoBuf::zeroed(3 * BLOCK_SIZE), Cause::Fsck)]).expect("read");
    assert_eq!([0, 1, 2].map(|block| live[0][block * BLOCK_SIZE]), [2, 2, 1]);
    // A flush covers what was written whole.
    device.flush().expect("flush");
    let (whole, _) = outcomes(&media.crash_point(media.events()), Crash::PowerLoss);
    let any =
        [1, 2].into_iter().flat_map(|a| [1, 2].map(|b| [a, b])).flat_map(|[a, b]| [1, 2].map(|c| [a, b, c]));
    assert_eq!(whole, any.collect::<BTreeSet<_>>());
}

#[test]
fn a_kill_brings_no_failed_write_back_over_a_later_one() {
    let media = SimMedia::new(8, &[]);
    let device = media.device();
    media.set_fault(Some(Box::new(|fault| {
        matches!(fault, Fault::Write { nth: 0, cause: Cause::Checkpoint, .. }).then_some(libc::EIO)
    })));
    assert!(device.run(vec![write(0, 1)]).is_err());
    let possible = |media: &SimMedia| outcomes(&media.crash_point(media.events()), Crash::ProcessKill).0;
    assert_eq!(possible(&media), BTreeSet::from([[0, 0, 0], [1, 0, 0]]));
    device.run(vec![write(0, 2)]).expect("write");
    assert_eq!(possible(&media), BTreeSet::from([[2, 0, 0]]));
}

#[test]
fn the_hook_sees_every_event_from_its_own_thread() {
    let media = SimMedia::new(8, &[NVM]);
    let (seen, shared) = (Arc::new(AtomicUsize::new(0)), media.pmem(0).expect("added"));
    let count = seen.clone();
    media.set_hook(Some(Arc::new(move |number, _event| {
        // No lock is held: the hook may use the media. Relaxed: one thread.
        shared.read(0, &mut [0; 8]);
        assert_eq!(count.fetch_add(1, Ordering::Relaxed), number);
    })));
    media.device().run(vec![write(0, 1)]).expect("write");
    media.pmem(0).expect("added").persist(0, 8);
    // Relaxed: one thread.
    assert_eq!(seen.load(Ordering::Relaxed), media.events());
    media.set_hook(None);
}

#[test]
fn overlapping_writes_are_noticed() {
    let media = SimMedia::new(8, &[]);
    media.device().run(vec![write(0, 1), write(1, 1)]).expect("write");
    media.device().run(vec![write(0, 1)]).expect("write");
    assert_eq!(media.overlapping_writes(), 0);
    media.device().run(vec![write(0, 1), write(0, 2)]).expect("write");
    assert_eq!(media.overlapping_writes(), 1);
}
