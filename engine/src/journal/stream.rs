//! The SSD ring: a commit's way from the staging to the ring region of the image.
//!
//! A thread that commits, and when, is decided in [`super::group`]. A device error fails the journal: what was staged
//! is not lost, but nothing more is promised.

use crate::planted::{self, Bug};
use std::collections::VecDeque;
use std::time::Duration;

use zerocopy::IntoBytes;

use super::group::{Group, Lead};
use super::handle::Reserved;
use super::header::HEADER_BLOCKS;
use super::lag::Kept;
use super::ring::{BLOCK_SLOTS, CRC_AT};
use super::{Durability, Journal};
use crate::Result;
use crate::device::{BlockDevice, Cause, IoBuf, Op, Request, Ticket};
use crate::format::{CommitPayload, Position, SLOT_SIZE, SlotKind};
use crate::sync::{Arc, Counter};

/// Slots of one write request at most (256 KiB).
const REQUEST_SLOTS: u64 = 1024;
/// Write requests in flight at most; bounds the memory of a commit to 4 MiB.
const IN_FLIGHT: usize = 16;

/// Promises for more than this part of the ring are streamed before their time: a checkpoint that makes room, or data
/// that goes home in place, waits for them.
const HURRY_PART: u64 = 16;

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
    /// What is still to be written: the first block of a range that one request holds, and its bytes.
    whole: Option<(u64, IoBuf)>,
}

impl Stream {
    /// The region from block `start` on; the first commit begins at `first`.
    pub(super) fn new(device: Arc<dyn BlockDevice>, start: u64, first: Position) -> Stream {
        Stream { device, start, bytes: Counter::new(), group: Group::new(first) }
    }

    /// Begins a commit of everything reserved so far: waits until it is sealed, and submits the blocks from the
    /// end of the commit before to its own, once the data are flushed that its records need. `begins` is told that
    /// end and the time at once, and gives the end before. One caller at a time, which has taken the flag down.
    ///
    /// `at_leisure`: the caller has something else to do while the device is at work. Without it, a range of one
    /// request is written by [`Stream::finish`], in one call that returns when it is durable.
    pub(super) fn begin(
        &self,
        journal: &Journal,
        at_leisure: bool,
        begins: impl FnOnce(Position, u64) -> Position,
    ) -> Result<Begun> {
        let since = journal.lag.begin();
        let reserved = Reserved::commit_slots(journal);
        let first = reserved.first();
        let end = (first + 1).next_multiple_of(journal.ring.pad);
        let range_start = begins(end, since);
        if !planted::is(Bug::CommitBeforeSeal) {
            journal.sleep(&journal.seals, || journal.sequence.walk(range_start, first) >= first);
        }
        journal.check()?;
        self.seal(journal, reserved, range_start);
        let writes = journal.lag.writes();
        if writes > self.device.writes_flushed() && !planted::is(Bug::CommitBeforeData) {
            self.device.flush_upto(writes)?;
        }
        let (in_flight, whole) = self.submit(journal, range_start, end, at_leisure)?;
        self.bytes.add((end - range_start) * SLOT_SIZE as u64);
        journal.pool.give(journal.ring.pad - (end - first));
        Ok(Begun { end, in_flight, whole })
    }

    /// Returns the end of the commit once its range is on media that survive.
    pub(super) fn finish(&self, begun: Begun) -> Result<Position> {
        self.wait(begun.in_flight)?;
        match begun.whole {
            Some((block, buf)) if planted::is(Bug::NoCommitFlush) => {
                self.device.run(vec![Request::write(block, buf, Cause::Journal)])?;
            }
            // What its records need has been flushed before, and each range answers for itself alone.
            Some((block, buf)) => self.device.write_durably(block, buf, Cause::Journal)?,
            None if planted::is(Bug::NoCommitFlush) => {}
            None => self.device.flush()?,
        }
        Ok(begun.end)
    }

    /// Seals the commit's slots, before anything is on the device: in the staging it is a record like any other,
    /// and a caller that waits for no more than that does not wait for the device.
    fn seal(&self, journal: &Journal, reserved: Reserved<'_>, range_start: Position) {
        let mut range_crc = 0;
        for at in range_start..reserved.first() {
            let mut crc = [0; 4];
            journal.front.read(journal.offset(at) + CRC_AT, &mut crc);
            range_crc = crc32c::crc32c_append(range_crc, &crc);
        }
        let payload = CommitPayload {
            range_start: range_start.into(),
            // The commit before may still be on its way: what is published is flushed.
            durable_upto: journal.durable().into(),
            range_crc: range_crc.into(),
            reserved: 0.into(),
        };
        reserved.persist_as(SlotKind::Commit, payload.as_bytes()).apply(|_, _| ()).seal();
    }

    /// Submits the blocks from `range_start` to `end`, which are sealed; or hands them back, if one request holds them
    /// all and they need not be under way at once.
    fn submit(
        &self,
        journal: &Journal,
        range_start: Position,
        end: Position,
        at_leisure: bool,
    ) -> Result<(VecDeque<Ticket>, Option<(u64, IoBuf)>)> {
        let slots = journal.ring.slots;
        let mut at = range_start;
        let mut in_flight = VecDeque::new();
        while at < end {
            let index = journal.ring.index(at) as u64;
            let count = (end - at).min(REQUEST_SLOTS).min(slots - index);
            let mut buf = IoBuf::zeroed(count as usize * SLOT_SIZE);
            journal.front.read(journal.offset(at), &mut buf);
            let block = self.start + HEADER_BLOCKS + index / BLOCK_SLOTS;
            if count == end - range_start && !at_leisure {
                return Ok((in_flight, Some((block, buf))));
            }
            if in_flight.len() == IN_FLIGHT
                && let Some(oldest) = in_flight.pop_front()
                && let Err(e) = self.wait([oldest])
            {
                self.wait(in_flight)?;
                return Err(e);
            }
            let request = Request { op: Op::Write, block, buf, cause: Cause::Journal };
            in_flight.push_back(self.device.submit(vec![request]));
            at += count;
        }
        Ok((in_flight, None))
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
    /// Whether an fsync may be answered before the power durability has come.
    pub fn may_lag(&self, durability: Durability) -> bool {
        self.stream.is_some() && durability != Durability::Power
    }

    /// Whether a commit flushes what the records below it depend on ([`Journal::depend`]): who logs them need not.
    pub fn commit_flushes(&self, durability: Durability) -> bool {
        self.may_lag(durability)
    }

    /// What is logged from now on, and what is promised, counts only with so many of the device's completed
    /// writes flushed: the commit that covers it sees to that.
    pub fn depend(&self, writes: u64) {
        self.lag.depend(writes);
    }

    /// Returns once all promises are kept that were made before the call: every position and write that an
    /// fsync was answered for is durable against a loss of power.
    pub fn keep_promises(&self) -> Result<()> {
        self.keep_promises_and(0, Lead::Freely)
    }

    /// The same by one whose locks others wait for: it serves them no longer than for itself. Everything below `upto` is
    /// durable, too, if it is sealed.
    pub fn keep_promises_briefly(&self, upto: Position) -> Result<()> {
        self.keep_promises_and(upto, Lead::Briefly)
    }

    fn keep_promises_and(&self, upto: Position, lead: Lead) -> Result<()> {
        let is_durable = upto <= self.durable();
        match &self.stream {
            Some(stream) if !is_durable || self.lag.now() > Duration::ZERO || !self.is_kept(stream) => {
                self.commit_and_flush(stream, upto, lead)
            }
            // On a mapped ring it is since it was sealed.
            _ => Ok(()),
        }
    }

    /// As [`Journal::keep_promises`], and everything below `upto` is durable.
    pub(super) fn commit_and_flush(&self, stream: &Stream, upto: Position, lead: Lead) -> Result<()> {
        let since = self.lag.begin();
        let writes = self.lag.writes();
        self.commit_grouped(stream, upto.max(self.lag.position()), lead)?;
        // The commit has seen to it, if there was one to make.
        if let Err(e) = stream.device.flush_upto(writes) {
            self.fail(format!("data could not be flushed: {e}"));
            return Err(e);
        }
        self.keep(stream, since);
        Ok(())
    }

    /// Promises that everything below `upto` becomes durable, and the writes that it depends on; the lag.
    pub(super) fn promise(&self, upto: Position) -> Duration {
        match &self.stream {
            Some(stream) if upto > self.durable() || self.lag.writes() > stream.device.writes_flushed() => {
                if upto.saturating_sub(self.durable()) > self.ring.slots / HURRY_PART {
                    self.lag.hurry();
                }
                self.lag.promise(upto)
            }
            _ => Duration::ZERO,
        }
    }

    /// Every promise made before `since` is kept.
    pub(super) fn keep(&self, stream: &Stream, since: u64) {
        let (position, writes) = (self.durable(), stream.device.writes_flushed());
        self.lag.keep(Kept { before: since, position, writes });
    }

    fn is_kept(&self, stream: &Stream) -> bool {
        self.lag.position() <= self.durable() && self.lag.writes() <= stream.device.writes_flushed()
    }

    /// Sleeps until the oldest promise that is not kept is half as old as `window`; without one it sleeps on. False
    /// once [`Journal::end_streaming`] was called, or the journal has failed.
    pub fn wait_due(&self, window: Duration) -> bool {
        self.lag.wait_due(window / 2)
    }

    /// Ends the thread that sleeps in [`Journal::wait_due`].
    pub fn end_streaming(&self) {
        self.lag.end();
    }
}
