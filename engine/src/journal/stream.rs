//! The SSD ring: commits that carry the staged slots to the ring region of the image.
//!
//! Whoever wants a commit and finds nobody leading, leads, in its own thread; the others sleep until it has
//! published. There is one leader at a time, so ranges are written in order, each after the flush of the one
//! before. A device error fails the journal: what was staged is not lost, but nothing more is promised.

use crate::planted::{self, Bug};
use std::collections::VecDeque;

use zerocopy::IntoBytes;

use super::Journal;
use super::handle::Reserved;
use super::header::HEADER_BLOCKS;
use super::ring::{BLOCK_SLOTS, CRC_AT};
use crate::Result;
use crate::device::{BlockDevice, Cause, IoBuf, Op, Request, Ticket};
use crate::format::{CommitPayload, Position, SLOT_SIZE, SlotKind};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Counter};

/// Slots of one write request at most (256 KiB).
const REQUEST_SLOTS: u64 = 1024;
/// Write requests in flight at most; bounds the memory of a commit to 4 MiB.
const IN_FLIGHT: usize = 16;

/// Where the staged slots go.
pub(super) struct Stream {
    pub(super) device: Arc<dyn BlockDevice>,
    /// First block of the ring region.
    pub(super) start: u64,
    pub(super) bytes: Counter,
    leading: AtomicBool,
}

/// The right to commit; steps down when dropped.
struct Leader<'j>(&'j Journal, &'j Stream);

impl Stream {
    pub(super) fn new(device: Arc<dyn BlockDevice>, start: u64) -> Stream {
        Stream { device, start, bytes: Counter::new(), leading: AtomicBool::new(false) }
    }

    fn lead<'j>(&'j self, journal: &'j Journal) -> Option<Leader<'j>> {
        // Acquire: pairs with the Release in `drop`: the new leader sees what the last one published and
        // wrote. Relaxed on failure: nothing was taken.
        self.leading
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Leader(journal, self))
    }

    fn is_led(&self) -> bool {
        // Relaxed: looked at again by the exchange.
        self.leading.load(Ordering::Relaxed)
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("the leader of a commit gave up".into());
        }
        // Release: pairs with the Acquire in `lead`.
        self.1.leading.store(false, Ordering::Release);
        self.0.commits.wake_all();
    }
}

impl Journal {
    /// Group commit: step 9 of the protocol.
    pub(super) fn commit_grouped(&self, stream: &Stream, upto: Position) -> Result<()> {
        let mut own = false;
        while self.durable() < upto {
            self.check()?;
            let Some(leader) = stream.lead(self) else {
                self.sleep(&self.commits, || self.durable() >= upto || !stream.is_led());
                continue;
            };
            if self.durable() < upto {
                if self.claim() {
                    own = true;
                    leader.commit()?;
                } else {
                    drop(leader);
                    // What is missing is another's record between its reservation and its flag; its seal
                    // follows.
                    self.sleep(&self.seals, || {
                        // Relaxed: looked at again by the exchange in `claim`.
                        self.durable() >= upto || self.armed.load(Ordering::Relaxed)
                    });
                }
            }
        }
        if !own {
            self.counters.coalesced.add(1);
        }
        Ok(())
    }

    /// Copies staged slots.
    fn staged(&self, from: Position, into: &mut [u8]) {
        self.front.read(self.offset(from), into);
    }
}

impl Leader<'_> {
    /// One commit: everything reserved so far becomes durable.
    fn commit(&self) -> Result<()> {
        let Leader(journal, stream) = *self;
        let reserved = Reserved::commit_slots(journal);
        let first = reserved.first();
        let range_start = journal.durable();
        if !planted::is(Bug::CommitBeforeSeal) {
            journal.sleep(&journal.seals, || journal.sequence.walk(range_start, first) >= first);
        }
        journal.check()?;
        let end = match self.write(reserved, range_start) {
            Ok(end) => end,
            Err(e) => {
                journal.fail(format!("the journal could not be written: {e}"));
                return Err(e);
            }
        };
        // Release: pairs with the Acquire in `durable`.
        journal.committed.store(end, Ordering::Release);
        journal.counters.commits.add(1);
        stream.bytes.add((end - range_start) * SLOT_SIZE as u64);
        journal.pool.give(journal.ring.pad - (end - first));
        journal.seals.wake_all();
        Ok(())
    }

    /// Writes the blocks from `range_start` to the end of the commit's slots, and flushes.
    fn write(&self, reserved: Reserved<'_>, range_start: Position) -> Result<Position> {
        let Leader(journal, stream) = *self;
        let (first, slots) = (reserved.first(), journal.ring.slots);
        let mut reserved = Some(reserved);
        let end = (first + 1).next_multiple_of(journal.ring.pad);
        let (mut at, mut range_crc) = (range_start, 0);
        let mut in_flight = VecDeque::new();
        let mut result = Ok(());
        while at < end && result.is_ok() {
            let index = journal.ring.index(at) as u64;
            let count = (end - at).min(REQUEST_SLOTS).min(slots - index);
            let mut buf = IoBuf::zeroed(count as usize * SLOT_SIZE);
            let records = (first.min(at + count) - at) as usize * SLOT_SIZE;
            journal.staged(at, &mut buf[..records]);
            for slot in buf[..records].chunks_exact(SLOT_SIZE) {
                range_crc = crc32c::crc32c_append(range_crc, &slot[CRC_AT..CRC_AT + 4]);
            }
            if at + count == end
                && let Some(reserved) = reserved.take()
            {
                let payload = CommitPayload {
                    range_start: range_start.into(),
                    // The commit before was flushed before it was published.
                    durable_upto: range_start.into(),
                    range_crc: range_crc.into(),
                    reserved: 0.into(),
                };
                // Sealed before it is on the device: in the staging it is a record like any other.
                reserved.persist_as(SlotKind::Commit, payload.as_bytes()).apply(|_, _| ()).seal();
                journal.staged(first, &mut buf[records..]);
            }
            let block = stream.start + HEADER_BLOCKS + index / BLOCK_SLOTS;
            if in_flight.len() == IN_FLIGHT
                && let Some(oldest) = in_flight.pop_front()
            {
                result = finish(stream, oldest);
            }
            let request = Request { op: Op::Write, block, buf, cause: Cause::Journal };
            in_flight.push_back(stream.device.submit(vec![request]));
            at += count;
        }
        // All are waited for, whatever happened to one.
        for ticket in in_flight {
            result = result.and(finish(stream, ticket));
        }
        result?;
        crate::blocking::about_to_block();
        if !planted::is(Bug::NoCommitFlush) {
            stream.device.flush()?;
        }
        Ok(end)
    }
}

fn finish(stream: &Stream, ticket: Ticket) -> Result<()> {
    crate::blocking::about_to_block();
    let done = stream.device.wait(ticket);
    done.into_iter().try_for_each(|completion| completion.result)
}
