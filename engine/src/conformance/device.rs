//! What every block device must do, run over each implementation.

use crate::Error;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Request};
use crate::sync::Arc;

/// Runs every case on devices of at least 64 zero blocks, a new one from `make` for each.
///
/// # Panics
/// If the device does not keep a promise.
pub fn check(make: impl Fn() -> Arc<dyn BlockDevice>) {
    reads_see_completed_writes(&*make());
    completions_come_in_the_order_of_submission(&*make());
    requests_beyond_the_end_fail_alone(&*make());
    flushes_count_what_had_completed(&*make());
    causes_are_counted(&*make());
    blocks_are_read_into_any_memory(&*make());
    what_is_written_durably_is_there_and_counted(&*make());
    tickets_may_be_waited_for_in_any_order(&*make());
    discarded_blocks_can_be_written_again(&*make());
    many_threads_work_side_by_side(&*make());
}

pub(crate) fn filled(byte: u8, blocks: usize) -> IoBuf {
    IoBuf::from_slice(&vec![byte; blocks * BLOCK_SIZE])
}

pub(crate) fn read_one(device: &dyn BlockDevice, block: u64) -> IoBuf {
    let request = Request::read(block, IoBuf::zeroed(BLOCK_SIZE), Cause::Recovery);
    device.run(vec![request]).expect("read").remove(0)
}

fn reads_see_completed_writes(device: &dyn BlockDevice) {
    assert!(device.blocks() >= 64);
    assert!(read_one(device, 3).iter().all(|b| *b == 0));
    device.run(vec![Request::write(3, filled(1, 4), Cause::DataWriteBack)]).expect("write");
    device.run(vec![Request::write(4, filled(2, 1), Cause::DataWriteBack)]).expect("write");
    let all = device
        .run(vec![Request::read(2, IoBuf::zeroed(6 * BLOCK_SIZE), Cause::ReadMiss)])
        .expect("read")
        .remove(0);
    let seen: Vec<u8> = all.chunks(BLOCK_SIZE).map(|b| b[BLOCK_SIZE - 1]).collect();
    assert_eq!(seen, [0, 1, 2, 1, 1, 0]);
}

fn completions_come_in_the_order_of_submission(device: &dyn BlockDevice) {
    let writes = (0..32).map(|n| Request::write(n, filled(n as u8 + 1, 1), Cause::Checkpoint)).collect();
    device.run(writes).expect("write");
    let reads = (0..32).rev().map(|n| Request::read(n, IoBuf::zeroed(BLOCK_SIZE), Cause::Metadata)).collect();
    let seen: Vec<u8> = device.run(reads).expect("read").iter().map(|b| b[0]).collect();
    assert_eq!(seen, (1..=32).rev().collect::<Vec<u8>>());
}

fn requests_beyond_the_end_fail_alone(device: &dyn BlockDevice) {
    let end = device.blocks();
    let batch = vec![
        Request::write(end - 1, filled(5, 1), Cause::Checkpoint),
        Request::write(end - 1, filled(6, 2), Cause::Checkpoint),
        Request::read(u64::MAX, IoBuf::zeroed(BLOCK_SIZE), Cause::Metadata),
        Request::read(u64::MAX / BLOCK_SIZE as u64 + 1, IoBuf::zeroed(BLOCK_SIZE), Cause::Metadata),
        Request::read(0, IoBuf::zeroed(100), Cause::Metadata),
        Request::discard(end, 1, Cause::Checkpoint),
    ];
    let done = device.wait(device.submit(batch));
    assert_eq!(done.len(), 6);
    assert_eq!(done[0].result, Ok(()));
    assert!(done[1..].iter().all(|d| matches!(d.result, Err(Error::Device { .. }))), "{done:?}");
    assert_eq!(done[1].buf.len(), 2 * BLOCK_SIZE, "the buffer comes back");
    assert_eq!(read_one(device, end - 1)[0], 5);
    assert!(device.run(vec![Request::read(end, IoBuf::zeroed(BLOCK_SIZE), Cause::Metadata)]).is_err());
    assert!(device.run(Vec::new()).expect("nothing to do").is_empty());
}

fn flushes_count_what_had_completed(device: &dyn BlockDevice) {
    assert_eq!((device.writes_completed(), device.writes_flushed(), device.flushes()), (1, 0, 0));
    device.flush().expect("flush");
    assert_eq!((device.writes_flushed(), device.flushes()), (1, 1), "what was there before is flushed too");
    device.run(vec![Request::write(0, filled(1, 2), Cause::Journal)]).expect("write");
    device.run(vec![Request::read(0, IoBuf::zeroed(BLOCK_SIZE), Cause::Journal)]).expect("read");
    assert_eq!(device.writes_completed(), 2);
    device.flush_upto(1).expect("covered already");
    assert_eq!((device.writes_flushed(), device.flushes()), (1, 1));
    device.flush_upto(2).expect("flush");
    assert_eq!((device.writes_flushed(), device.flushes()), (2, 2));
    device.flush().expect("nothing new");
    assert_eq!(device.flushes(), 2);
}

fn causes_are_counted(device: &dyn BlockDevice) {
    device
        .run(vec![
            Request::write(0, filled(1, 3), Cause::DoubleWrite),
            Request::write(9, filled(1, 1), Cause::DoubleWrite),
            Request::read(0, IoBuf::zeroed(BLOCK_SIZE), Cause::ReadAhead),
            Request::discard(20, 5, Cause::Eviction),
        ])
        .expect("run");
    let counts = device.counters();
    let of = |cause: Cause| counts.iter().find(|c| c.cause == cause).expect("every cause is listed");
    assert_eq!((of(Cause::DoubleWrite).writes, of(Cause::DoubleWrite).write_bytes), (2, 16384));
    assert_eq!((of(Cause::ReadAhead).reads, of(Cause::ReadAhead).read_bytes), (1, 4096));
    assert_eq!(of(Cause::Eviction).discard_bytes, 5 * 4096);
    assert_eq!((of(Cause::Fsck).reads, of(Cause::DoubleWrite).reads), (0, 0));
}

fn blocks_are_read_into_any_memory(device: &dyn BlockDevice) {
    device.run(vec![Request::write(5, filled(7, 2), Cause::DataWriteBack)]).expect("write");
    let mut memory = IoBuf::zeroed(4 * BLOCK_SIZE);
    // As direct I/O wants it, and not.
    for at in [BLOCK_SIZE, 3] {
        memory.fill(1);
        let into = &mut memory[at..at + 2 * BLOCK_SIZE];
        device.read_into(6, into, Cause::ReadMiss).expect("read");
        assert!(into[..BLOCK_SIZE].iter().all(|b| *b == 7) && into[BLOCK_SIZE..].iter().all(|b| *b == 0));
        assert!((memory[at - 1], memory[at + 2 * BLOCK_SIZE]) == (1, 1));
    }
    let misses = device.counters().into_iter().find(|c| c.cause == Cause::ReadMiss).expect("it is listed");
    assert_eq!((misses.reads, misses.read_bytes), (2, 4 * BLOCK_SIZE as u64));
    let end = device.blocks();
    assert!(device.read_into(end, &mut memory[..BLOCK_SIZE], Cause::ReadMiss).is_err());
    assert!(device.read_into(0, &mut memory[..100], Cause::ReadMiss).is_err());
}

fn what_is_written_durably_is_there_and_counted(device: &dyn BlockDevice) {
    let unflushed = || device.writes_completed() - device.writes_flushed();
    let before = unflushed();
    device.write_durably(3, filled(9, 7), Cause::Journal).expect("write");
    assert!(unflushed() <= before, "no flush need cover it");
    device.run(vec![Request::write(20, filled(1, 1), Cause::Checkpoint)]).expect("write");
    let (written, flushes) = (device.writes_completed(), device.flushes());
    device.write_durably(3, filled(9, 7), Cause::Journal).expect("write");
    let is_covered = device.writes_flushed() >= written;
    assert!(!is_covered || device.flushes() > flushes, "nothing else is flushed by it");
    assert_eq!((read_one(device, 3)[0], read_one(device, 9)[4095], read_one(device, 10)[0]), (9, 9, 0));
    let journal = device.counters().into_iter().find(|c| c.cause == Cause::Journal).expect("it is listed");
    assert_eq!((journal.writes, journal.write_bytes), (2, 14 * BLOCK_SIZE as u64));
    assert!(device.write_durably(device.blocks(), filled(1, 1), Cause::Journal).is_err());
}

fn tickets_may_be_waited_for_in_any_order(device: &dyn BlockDevice) {
    let tickets: Vec<_> = (0..8u8)
        .map(|n| device.submit(vec![Request::write(u64::from(n), filled(n + 1, 1), Cause::Checkpoint)]))
        .collect();
    for ticket in tickets.into_iter().rev() {
        assert!(device.wait(ticket).iter().all(|d| d.result.is_ok()));
    }
    for n in 0..8u8 {
        assert_eq!(read_one(device, u64::from(n))[0], n + 1);
    }
}

pub(crate) fn discarded_blocks_can_be_written_again(device: &dyn BlockDevice) {
    device.run(vec![Request::write(10, filled(3, 4), Cause::DataWriteBack)]).expect("write");
    device.run(vec![Request::discard(11, 2, Cause::DataWriteBack)]).expect("discard");
    assert_eq!((read_one(device, 10)[0], read_one(device, 13)[0]), (3, 3));
    device.run(vec![Request::write(11, filled(4, 1), Cause::DataWriteBack)]).expect("write");
    assert_eq!(read_one(device, 11)[0], 4);
}

fn many_threads_work_side_by_side(device: &dyn BlockDevice) {
    many_threads_work_side_by_side_from(device, 1);
}

pub(crate) fn many_threads_work_side_by_side_from(device: &dyn BlockDevice, before: u64) {
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            scope.spawn(move || {
                for round in 0..24u8 {
                    let at = thread * 8;
                    let byte = thread as u8 * 24 + round;
                    let writes = (0..8).map(|n| Request::write(at + n, filled(byte, 1), Cause::Checkpoint));
                    device.run(writes.collect()).expect("write");
                    let covered = device.writes_completed();
                    if round % 8 == 0 {
                        device.flush_upto(covered).expect("flush");
                        assert!(device.writes_flushed() >= covered);
                    }
                    let reads =
                        (0..8).map(|n| Request::read(at + n, IoBuf::zeroed(BLOCK_SIZE), Cause::Metadata));
                    for buf in device.run(reads.collect()).expect("read") {
                        assert!(buf.iter().all(|b| *b == byte));
                    }
                }
            });
        }
    });
    assert_eq!(device.writes_completed(), 8 * 24 * 8 + before);
}
