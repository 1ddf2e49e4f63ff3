//! The one thread that commits transactions, and what it writes.
//!
//! Of blocks, and on the SSD ring: the transaction's record, a void record up to the end of its last block, and a commit
//! block. On the SSD ring they go to the image in two steps, as jbd2's: the record, then a flush, which covers the file
//! data too; then the commit block, by a write that is durable when it returns. In memory file data that it maps are flushed,
//! for the scan takes each record that is whole; the record is written, its lines written back, a fence; then the commit
//! block in the same way.
//!
//! Of units in memory: the record and a fence; then a commit record of one slot, which is what the scan goes by, and the
//! tail word of eight bytes, which is what the published journal goes by, with one fence for both.

use zerocopy::IntoBytes;

use super::shared::Shared;
use crate::device::{Cause, IoBuf, Request, Ticket};
use crate::format::{
    CommitPayload, Position, RING_HEADER_COPY, RING_HEADER_SPACE, SLOT_PAYLOAD, SLOT_SIZE, SlotKind,
};
use crate::journal::header::HEADER_BLOCKS;
use crate::journal::ring::{BLOCK_SLOTS, CRC_AT};
use crate::sync::atomic::Ordering;
use crate::{Error, Result};

/// Slots of one write request at most (256 KiB).
const REQUEST_SLOTS: u64 = 1024;
/// Where the tail word of a journal of units lies: behind the first copy of the ring's header.
const TAIL_WORD_AT: usize = RING_HEADER_COPY - size_of::<u64>();

/// Commits what is asked for, until the journal ends.
pub(super) fn run(shared: &Shared) {
    let _broken_off = scopeguard::guard((), |()| {
        if std::thread::panicking() {
            shared.fail("the thread that commits broke off".into());
        }
    });
    let mut next = 1;
    loop {
        // Relaxed, all: the queue orders them.
        let is_over = || shared.over.load(Ordering::Relaxed) || shared.is_failed();
        shared.wanted.wait_until(|| is_over() || shared.requested.load(Ordering::Relaxed) >= next);
        if is_over() {
            return;
        }
        if let Err(e) = commit(shared, next) {
            shared.fail(format!("transaction {next} could not be committed: {e}"));
            return;
        }
        next += 1;
    }
}

/// Locks the running transaction up, lets the next one run, and writes the first.
fn commit(shared: &Shared, number: u64) -> Result<()> {
    shared.state.write().locked = true;
    // Acquire: pairs with the Release of handles that leave.
    shared.left.wait_until(|| shared.updates.load(Ordering::Acquire) == 0 || shared.is_failed());
    shared.check()?;
    let mut state = shared.state.write();
    // Relaxed, all: no handle is open, and the state lock is held.
    let is_empty = shared.handles.swap(0, Ordering::Relaxed) == 0;
    let bytes = shared.bytes.swap(0, Ordering::Relaxed) as usize;
    shared.outstanding.fetch_sub(shared.charged.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    let blocks = std::mem::take(&mut *shared.list.lock());
    let logical = std::mem::take(&mut *shared.logical.lock());
    let depends = shared.depends.load(Ordering::Relaxed);
    let start = state.start;
    let slots = bytes.div_ceil(SLOT_PAYLOAD).max(1) as u64;
    let commit = (start + slots).next_multiple_of(shared.ring.pad);
    let end = if is_empty { start } else { commit + shared.ring.pad };
    state.number += 1;
    state.start = end;
    state.locked = false;
    shared.begins(end);
    drop(state);
    shared.started.wake_all();
    shared.room.wake_all();
    if is_empty {
        return Ok(());
    }
    let count = u16::try_from(slots)
        .ok()
        .filter(|_| end - shared.head() <= shared.ring.slots)
        .ok_or_else(|| Error::Refused(format!("a transaction of {slots} slots does not fit the ring")))?;
    if shared.stream.is_none() {
        shared.data.flush_upto(depends)?;
    }
    let mut writer = Writer { shared, at: start, index: 0, count, pending: Vec::new(), crc: 0 };
    writer.push(&logical);
    let mut image = Vec::new();
    for head in &blocks {
        image.clear();
        head.log(number, shared.as_units, &mut image);
        writer.push(&image);
    }
    debug_assert_eq!(writer.pushed(start), bytes, "what handles have counted is what is logged");
    writer.finish(commit);
    let crc = writer.crc;
    persist(shared, start, commit);
    write_home(shared, start, commit)?;
    // On the SSD ring that has flushed them; in memory they were before.
    shared.data.flush_upto(depends)?;
    write_commit(shared, start, commit, end, crc)?;
    shared.ends.lock().push_back(end);
    // Release: pairs with the Acquire in `durable`.
    shared.committed.store(end, Ordering::Release);
    shared.commits_made.add(1);
    shared.commits.wake_all();
    for head in &blocks {
        shared.table.refile(head);
    }
    if shared.is_filling(end) {
        (shared.need_checkpoint)();
    }
    Ok(())
}

/// Puts bytes into the slots of one record.
struct Writer<'s> {
    shared: &'s Shared,
    at: Position,
    index: u16,
    count: u16,
    pending: Vec<u8>,
    crc: u32,
}

impl Writer<'_> {
    fn push(&mut self, mut bytes: &[u8]) {
        if !self.pending.is_empty() {
            let (missing, rest) = bytes.split_at(bytes.len().min(SLOT_PAYLOAD - self.pending.len()));
            self.pending.extend_from_slice(missing);
            if self.pending.len() < SLOT_PAYLOAD {
                return;
            }
            let mut slot = std::mem::take(&mut self.pending);
            self.slot(&slot);
            slot.clear();
            (self.pending, bytes) = (slot, rest);
        }
        while let Some((slot, rest)) = bytes.split_at_checked(SLOT_PAYLOAD) {
            self.slot(slot);
            bytes = rest;
        }
        self.pending.extend_from_slice(bytes);
    }

    fn slot(&mut self, payload: &[u8]) {
        let place = (self.index, self.count);
        self.put(place, SlotKind::Operation, payload);
        self.index += 1;
    }

    fn put(&mut self, place: (u16, u16), kind: SlotKind, payload: &[u8]) {
        let bytes = self.shared.ring.encode(self.at, place, kind, payload);
        self.crc = crc32c::crc32c_append(self.crc, &bytes[CRC_AT..CRC_AT + 4]);
        self.shared.front.write(offset(self.shared, self.at), &bytes);
        self.at += 1;
    }

    /// Bytes pushed so far to a record that begins at `start`.
    fn pushed(&self, start: Position) -> usize {
        (self.at - start) as usize * SLOT_PAYLOAD + self.pending.len()
    }

    /// Fills the record's last slot, and what is left below `commit` with void.
    fn finish(&mut self, commit: Position) {
        let last = std::mem::take(&mut self.pending);
        if self.index < self.count {
            self.slot(&last);
        }
        let voids = (commit - self.at) as u16;
        for index in 0..voids {
            self.put((index, voids), SlotKind::Void, &[]);
        }
    }
}

fn offset(shared: &Shared, position: Position) -> usize {
    RING_HEADER_SPACE + shared.ring.index(position) * SLOT_SIZE
}

/// The pieces of the ring from `start` to `end`: first slots' positions and counts.
fn pieces(shared: &Shared, start: Position, end: Position) -> impl Iterator<Item = (Position, u64)> {
    let slots = shared.ring.slots;
    let mut at = start;
    std::iter::from_fn(move || {
        let count = (end - at).min(slots - at % slots);
        let piece = (at, count);
        at += count;
        (count > 0).then_some(piece)
    })
}

/// Writes the lines back and fences.
fn persist(shared: &Shared, start: Position, end: Position) {
    for (at, count) in pieces(shared, start, end) {
        shared.front.write_back(offset(shared, at), count as usize * SLOT_SIZE);
    }
    shared.front.fence();
}

/// The blocks of the ring region that hold the slots from `start` on, and the bytes.
fn region(shared: &Shared, region: u64, at: Position, count: u64) -> (u64, IoBuf) {
    let mut buf = IoBuf::zeroed(count as usize * SLOT_SIZE);
    shared.front.read(offset(shared, at), &mut buf);
    (region + HEADER_BLOCKS + shared.ring.index(at) as u64 / BLOCK_SLOTS, buf)
}

/// On the SSD ring: writes the record to the image, and has it flushed with all that was written before.
fn write_home(shared: &Shared, start: Position, end: Position) -> Result<()> {
    let Some(stream) = &shared.stream else { return Ok(()) };
    let mut tickets: Vec<Ticket> = Vec::new();
    for (first, count) in pieces(shared, start, end) {
        for at in (first..first + count).step_by(REQUEST_SLOTS as usize) {
            let (block, buf) = region(shared, stream.start, at, REQUEST_SLOTS.min(first + count - at));
            tickets.push(stream.device.submit(vec![Request::write(block, buf, Cause::Journal)]));
        }
    }
    let mut outcome = Ok(());
    for ticket in tickets {
        let done = stream.device.wait(ticket);
        outcome = outcome.and(done.into_iter().try_for_each(|completion| completion.result));
    }
    outcome?;
    stream.bytes.add((end - start) * SLOT_SIZE as u64);
    stream.device.flush()
}

/// Writes the commit at `commit`, durably.
fn write_commit(shared: &Shared, start: Position, commit: Position, end: Position, crc: u32) -> Result<()> {
    let payload = CommitPayload {
        range_start: start.into(),
        durable_upto: start.into(),
        range_crc: crc.into(),
        reserved: 0.into(),
    };
    let count = (end - commit) as u16;
    for index in 0..count {
        let payload = if index == 0 { payload.as_bytes() } else { &[] };
        let at = commit + u64::from(index);
        let bytes = shared.ring.encode(at, (index, count), SlotKind::Commit, payload);
        shared.front.write(offset(shared, at), &bytes);
    }
    if shared.as_units && shared.stream.is_none() {
        shared.front.write_u64(TAIL_WORD_AT, end);
        shared.front.write_back(TAIL_WORD_AT, size_of::<u64>());
    }
    persist(shared, commit, end);
    let Some(stream) = &shared.stream else { return Ok(()) };
    let (block, buf) = region(shared, stream.start, commit, end - commit);
    stream.bytes.add((end - commit) * SLOT_SIZE as u64);
    stream.device.write_durably(block, buf, Cause::Journal)
}
