//! The SSD ring: a commit's way from the staging to the ring region of the image.
//!
//! Who commits, and when, is decided in [`super::group`]. A device error fails the journal: what was staged is
//! not lost, but nothing more is promised.

use crate::planted::{self, Bug};
use std::collections::VecDeque;

use zerocopy::IntoBytes;

use super::Journal;
use super::group::Group;
use super::handle::Reserved;
use super::header::HEADER_BLOCKS;
use super::ring::{BLOCK_SLOTS, CRC_AT};
use crate::Result;
use crate::device::{BlockDevice, Cause, IoBuf, Op, Request, Ticket};
use crate::format::{CommitPayload, Position, SLOT_SIZE, SlotKind};
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
    pub(super) group: Group,
}

/// A commit whose range is on its way to the device.
pub(super) struct Begun {
    end: Position,
    in_flight: VecDeque<Ticket>,
}

impl Stream {
    /// The region from block `start` on; the first commit begins at `first`.
    pub(super) fn new(device: Arc<dyn BlockDevice>, start: u64, first: Position) -> Stream {
        Stream { device, start, bytes: Counter::new(), group: Group::new(first) }
    }

    /// Begins a commit of everything reserved so far: waits until it is sealed, and submits the blocks from the
    /// end of the commit before to its own. `begins` is told that end at once, and gives the one before. One
    /// caller at a time, who has taken the flag down.
    pub(super) fn begin(
        &self,
        journal: &Journal,
        begins: impl FnOnce(Position) -> Position,
    ) -> Result<Begun> {
        let reserved = Reserved::commit_slots(journal);
        let first = reserved.first();
        let end = (first + 1).next_multiple_of(journal.ring.pad);
        let range_start = begins(end);
        if !planted::is(Bug::CommitBeforeSeal) {
            journal.sleep(&journal.seals, || journal.sequence.walk(range_start, first) >= first);
        }
        journal.check()?;
        let in_flight = self.submit(journal, reserved, range_start, end)?;
        self.bytes.add((end - range_start) * SLOT_SIZE as u64);
        journal.pool.give(journal.ring.pad - (end - first));
        Ok(Begun { end, in_flight })
    }

    /// Returns the end of the commit once its range is on media that survive.
    pub(super) fn finish(&self, begun: Begun) -> Result<Position> {
        self.wait(begun.in_flight)?;
        if !planted::is(Bug::NoCommitFlush) {
            self.device.flush()?;
        }
        Ok(begun.end)
    }

    /// Seals the commit's slots and submits the blocks from `range_start` to their end.
    fn submit(
        &self,
        journal: &Journal,
        reserved: Reserved<'_>,
        range_start: Position,
        end: Position,
    ) -> Result<VecDeque<Ticket>> {
        let (first, slots) = (reserved.first(), journal.ring.slots);
        let mut reserved = Some(reserved);
        let (mut at, mut range_crc) = (range_start, 0);
        let mut in_flight = VecDeque::new();
        while at < end {
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
                    // The commit before may still be on its way: what is published is flushed.
                    durable_upto: journal.durable().into(),
                    range_crc: range_crc.into(),
                    reserved: 0.into(),
                };
                // Sealed before it is on the device: in the staging it is a record like any other.
                reserved.persist_as(SlotKind::Commit, payload.as_bytes()).apply(|_, _| ()).seal();
                journal.staged(first, &mut buf[records..]);
            }
            let block = self.start + HEADER_BLOCKS + index / BLOCK_SLOTS;
            if in_flight.len() == IN_FLIGHT
                && let Some(oldest) = in_flight.pop_front()
                && let Err(e) = self.wait([oldest])
            {
                return self.wait(in_flight).and(Err(e));
            }
            let request = Request { op: Op::Write, block, buf, cause: Cause::Journal };
            in_flight.push_back(self.device.submit(vec![request]));
            at += count;
        }
        Ok(in_flight)
    }

    /// Waits for all requests, whatever happened to one; the first error.
    fn wait(&self, tickets: impl IntoIterator<Item = Ticket>) -> Result<()> {
        let mut result = Ok(());
        for ticket in tickets {
            crate::blocking::about_to_block();
            let done = self.device.wait(ticket);
            result = result.and(done.into_iter().try_for_each(|completion| completion.result));
        }
        result
    }
}

impl Journal {
    /// Copies staged slots.
    fn staged(&self, from: Position, into: &mut [u8]) {
        self.front.read(self.offset(from), into);
    }
}
