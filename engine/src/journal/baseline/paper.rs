//! The journal of the thesis, to the letter: no lock, and every commit for itself.
//!
//! # Protocol
//! 1. An operation reserves its slots by one add to the slot index, copies into them, writes their lines back, and sets
//!    the flag. A slot holds an inode's worth, so it takes one for each unit that it changes, even where the engine's
//!    record, which is what recovery reads, needs fewer: the rest hold the units.
//! 2. A commit takes its place in the commit-order array by one add; spins until the commit before has published the
//!    index of its own slot; reserves a slot, and publishes that index; spins until the commit before has set its flag,
//!    and until every slot between the two carries its own; writes its commit block, and sets its flag.
//! 3. Every fsync whose records are not committed makes such a commit, whether or not another under way covers them.
//!
//! What the thesis leaves open is the engine's: wrap-around, torn slots, the slots of an operation in one piece, a full
//! ring. A commit that finds no room for a block of its own, while a checkpoint makes some, waits for another's.
//! Spinning threads yield now and then, which the thesis's need not: in a kernel, a thread that holds a slot is seldom set
//! aside. On the SSD ring, which the thesis does not know, each commit writes its range and flushes in its turn.

use std::ops::Deref;
use std::time::Instant;

use zerocopy::IntoBytes;

use super::touched::{MountRecord, UNIT_BYTES, UNITS};
use crate::device::{Cause, IoBuf, Request};
use crate::format::{CommitPayload, Position, SLOT_PAYLOAD, SLOT_SIZE, SlotKind};
use crate::journal::handle::Reserved;
use crate::journal::header::HEADER_BLOCKS;
use crate::journal::ring::{BLOCK_SLOTS, CRC_AT};
use crate::journal::stream::Stream;
use crate::journal::{CreditClass, Credits, Journal, Look};
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::{Result, takeover};

/// Places of the commit-order array. More commits are never under way than there are threads in them.
const PLACES: u64 = 4096;
/// Looks before a spinning thread yields.
const LOOKS: u64 = 1000;
/// Slots that an operation may take for each that its record may have.
const WIDER: u32 = 2;

/// The journal.
pub struct Paper {
    journal: Journal,
    /// The next place of the commit-order array.
    places: CachePadded<AtomicU64>,
    order: Box<[Place]>,
}

/// A commit in the array. Each word names the commit that has written it, so that laps are told apart.
#[derive(Default)]
struct Place {
    /// The commit whose slot is published.
    published: AtomicU64,
    /// Where its block ends.
    end: AtomicU64,
    /// The commit whose flag is set.
    done: AtomicU64,
}

impl Deref for Paper {
    type Target = Journal;

    fn deref(&self) -> &Journal {
        &self.journal
    }
}

impl Paper {
    /// In the place of the engine's own journal, which has just begun.
    pub fn new(journal: Journal) -> Paper {
        let order: Box<[Place]> = (0..PLACES).map(|_| Place::default()).collect();
        // The commit before the first, which nobody has made.
        order[0].end.store(journal.tail(), Ordering::Relaxed);
        Paper { journal, places: CachePadded::new(AtomicU64::new(1)), order }
    }

    fn place(&self, commit: u64) -> &Place {
        &self.order[(commit % PLACES) as usize]
    }

    /// See [`Journal::max_record_slots`].
    pub fn max_record_slots(&self) -> u32 {
        self.journal.max_record_slots() / WIDER
    }

    /// See [`Journal::has_room`].
    pub fn has_room(&self, max_slots: u32, class: CreditClass) -> bool {
        self.journal.has_room(max_slots.saturating_mul(WIDER), class)
    }

    /// See [`Journal::credits`].
    pub fn credits(&self, max_slots: u32, class: CreditClass) -> Result<Credits<'_>> {
        self.journal.credits(max_slots.saturating_mul(WIDER), class)
    }

    /// See [`Journal::credits_now`].
    pub fn credits_now(&self, max_slots: u32, look: Look) -> Result<Option<Credits<'_>>> {
        self.journal.credits_now(max_slots.saturating_mul(WIDER), look)
    }

    /// Step 1.
    pub fn log(
        &self,
        credits: Credits<'_>,
        record: MountRecord<'_>,
        apply: impl FnOnce(Position, Position),
    ) -> Result<Position> {
        let blocks = record.blocks();
        let slots = Journal::slots_for(record.payload.len());
        let units: u32 = blocks.iter().map(|touch| touch.units.count_ones()).sum();
        let count = units.clamp(slots, credits.slots().max(slots));
        let mut rest = Vec::with_capacity((count - slots) as usize);
        'all: for touch in &blocks {
            for unit in (0..UNITS).filter(|unit| touch.units & 1 << unit != 0) {
                if rest.len() == rest.capacity() {
                    break 'all;
                }
                let mut bytes = Vec::with_capacity(UNIT_BYTES);
                touch.buffer.log_units(1 << unit, None, &mut bytes);
                bytes.truncate(SLOT_PAYLOAD);
                rest.push(bytes);
            }
        }
        let reserved = self.journal.reserve(credits, count)?;
        takeover::reserved(self.journal.epoch(), reserved.first());
        Ok(reserved.persist_beside(record.payload, &rest).apply(apply).seal().end())
    }

    /// Steps 2 and 3: a commit of everything below the tail, which is at or beyond `upto`.
    pub fn commit_upto(&self, upto: Position) -> Result<()> {
        let journal = &self.journal;
        journal.check()?;
        let upto = upto.min(journal.tail());
        if journal.durable() >= upto {
            return Ok(());
        }
        loop {
            let price = journal.pool.take_quickly(journal.ring.pad, CreditClass::Ordinary);
            if price || journal.claim() {
                return self.commit();
            }
            journal.check()?;
            if journal.durable() >= upto {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    fn commit(&self) -> Result<()> {
        let journal = &self.journal;
        // Relaxed: only the order of places counts; what is passed on goes by their words.
        let own = self.places.fetch_add(1, Ordering::Relaxed);
        let (before, place) = (self.place(own - 1), self.place(own));
        let since = Instant::now();
        // Acquire: pairs with the Release below.
        self.spin(|| before.published.load(Ordering::Acquire) == own - 1)?;
        let reserved = Reserved::commit_slots(journal);
        let first = reserved.first();
        let end = (first + 1).next_multiple_of(journal.ring.pad);
        // Relaxed: the publication passes it on.
        place.end.store(end, Ordering::Relaxed);
        let start = before.end.load(Ordering::Relaxed);
        // Release: pairs with the Acquire above.
        place.published.store(own, Ordering::Release);
        // Acquire: pairs with the Release at the end.
        self.spin(|| before.done.load(Ordering::Acquire) == own - 1)?;
        self.spin_below(start, first)?;
        journal.check()?;
        journal.counters.wait_ns.add(since.elapsed().as_nanos() as u64);
        let payload = CommitPayload {
            range_start: start.into(),
            durable_upto: start.into(),
            range_crc: self.range_crc(start, first).into(),
            reserved: 0.into(),
        };
        let written = reserved.persist_as(SlotKind::Commit, payload.as_bytes());
        if let Some(stream) = &journal.stream {
            self.stream(stream, start, end).inspect_err(|e| journal.fail(format!("a commit failed: {e}")))?;
            journal.pool.give(journal.ring.pad - (end - first));
        }
        // Release: pairs with the Acquire in `durable`.
        written.apply(|_, end| journal.committed.store(end, Ordering::Release)).seal();
        journal.counters.commits.add(1);
        // Release: pairs with the Acquire of the next commit.
        place.done.store(own, Ordering::Release);
        Ok(())
    }

    /// Spins on the flag of each record from `at` on.
    fn spin_below(&self, mut at: Position, upto: Position) -> Result<()> {
        while at < upto {
            let next = at + 1;
            self.spin(|| {
                at = self.journal.sequence.walk(at, next);
                at >= next
            })?;
        }
        Ok(())
    }

    fn spin(&self, mut ready: impl FnMut() -> bool) -> Result<()> {
        let mut looks = 0u64;
        while !ready() {
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                self.journal.check()?;
                if looks == LOOKS {
                    crate::blocking::about_to_block();
                }
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// On the SSD ring alone.
    fn range_crc(&self, start: Position, first: Position) -> u32 {
        let journal = &self.journal;
        if journal.stream.is_none() {
            return 0;
        }
        (start..first).fold(0, |sum, at| {
            let mut crc = [0; 4];
            journal.front.read(journal.offset(at) + CRC_AT, &mut crc);
            crc32c::crc32c_append(sum, &crc)
        })
    }

    /// Writes the blocks from `start` to `end` to the image, durably.
    fn stream(&self, stream: &Stream, start: Position, end: Position) -> Result<()> {
        let (journal, slots) = (&self.journal, self.journal.ring.slots);
        let mut at = start;
        let mut requests = Vec::new();
        while at < end {
            let count = (end - at).min(slots - at % slots).min(1024);
            let mut buf = IoBuf::zeroed(count as usize * SLOT_SIZE);
            journal.front.read(journal.offset(at), &mut buf);
            let block = stream.start + HEADER_BLOCKS + journal.ring.index(at) as u64 / BLOCK_SLOTS;
            requests.push(Request::write(block, buf, Cause::Journal));
            at += count;
        }
        stream.bytes.add((end - start) * SLOT_SIZE as u64);
        stream.device.run(requests)?;
        stream.device.flush()
    }
}
