//! One record's way: reserved, persisted, applied, sealed, each a type of its own.
//!
//! The types make the order of the protocol the only one that compiles: a record that was not persisted
//! cannot be sealed.
//!
//! ```
//! # use narufs_engine::journal::{Credits, Journal, Position};
//! fn in_order(journal: &Journal, credits: Credits<'_>, payload: &[u8]) -> narufs_engine::Result<Position> {
//!     let reserved = journal.reserve(credits, Journal::slots_for(payload.len()))?;
//!     Ok(reserved.persist(payload).apply(|_first, _end| ()).seal().end())
//! }
//! ```
//! ```compile_fail
//! # use narufs_engine::journal::{Credits, Journal, Position};
//! fn not_persisted(journal: &Journal, credits: Credits<'_>, payload: &[u8]) -> narufs_engine::Result<Position> {
//!     let reserved = journal.reserve(credits, Journal::slots_for(payload.len()))?;
//!     Ok(reserved.seal().end())
//! }
//! ```
//! ```compile_fail
//! # use narufs_engine::journal::{Credits, Journal, Position};
//! fn not_applied(journal: &Journal, credits: Credits<'_>, payload: &[u8]) -> narufs_engine::Result<Position> {
//!     let reserved = journal.reserve(credits, Journal::slots_for(payload.len()))?;
//!     Ok(reserved.persist(payload).seal().end())
//! }
//! ```

use super::{Credits, Journal};
use crate::format::{Position, SLOT_PAYLOAD, SLOT_SIZE, SlotKind};
use crate::planted::{self, Bug, kill};
use crate::sync::atomic::Ordering;
use crate::takeover;
use crate::unwinding::Unwinding;
use crate::{Error, Result};

/// Slots that belong to one record, whatever its state.
struct Slots<'j> {
    journal: &'j Journal,
    first: Position,
    count: u16,
    unwinding: Unwinding,
}

/// Slots taken, not yet written. Dropped so, they are filled with void.
#[must_use = "reserved slots hold up every commit until they are sealed"]
pub struct Reserved<'j>(Option<Slots<'j>>);

/// Slots whose bytes have reached the front's media. Dropped so, the journal fails.
#[must_use = "persisted slots hold up every commit until they are sealed"]
pub struct Persisted<'j>(Option<Slots<'j>>);

/// Slots whose change was made in memory too. Dropped so, the journal fails.
#[must_use = "applied slots hold up every commit until they are sealed"]
pub struct Applied<'j>(Option<Slots<'j>>);

/// A record that commits may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    first: Position,
    end: Position,
}

const HELD: &str = "slots leave a state only with the value itself";

impl Journal {
    /// Logs one record: reserves, writes and persists it, runs `apply` with its first position and its end,
    /// seals it. Gives back the end: the record is durable once a commit covers it.
    ///
    /// `apply` must not fail, block or panic. The credits must allow for [`slots_for`](Journal::slots_for)
    /// the payload. Nothing here sleeps, and it fails only when the journal has failed.
    pub fn log(
        &self,
        credits: Credits<'_>,
        payload: &[u8],
        apply: impl FnOnce(Position, Position),
    ) -> Result<Position> {
        let reserved = self.reserve(credits, Self::slots_for(payload.len()))?;
        let [reserved_at, noted, persistent, changed, sealed] = kill::record(takeover::is_decisive);
        kill::step(reserved_at);
        takeover::reserved(self.epoch, reserved.first());
        kill::step(noted);
        super::stop::reserved(reserved.first());
        let persisted = reserved.persist(payload);
        kill::step(persistent);
        let applied = persisted.apply(apply);
        kill::step(changed);
        let end = applied.seal().end();
        kill::step(sealed);
        Ok(end)
    }

    /// Takes `count` contiguous slots; what the credits have beyond goes back.
    pub fn reserve<'j>(&'j self, mut credits: Credits<'_>, count: u32) -> Result<Reserved<'j>> {
        self.check()?;
        if count == 0 || !credits.belongs_to(self) || !credits.spend(count) {
            return Err(Error::Refused(format!("a record of {count} slots is beyond its credits")));
        }
        let count = u16::try_from(count).expect("credits are granted for 65535 slots at most");
        let first = self.sequence.reserve(count);
        // From here on the slots must be sealed, whatever happens.
        let reserved = Reserved(Some(Slots { journal: self, first, count, unwinding: Unwinding::watch() }));
        // Relaxed: a thread that sees the flag up has reserved before any thread that will take it down. If the commit
        // of one that has taken it down had reserved before, this reservation would have acquired that from the tail,
        // and what is seen here could not be older. So as a rule the line of the flag is only read.
        // AcqRel: the Release passes this reservation to any thread that takes the flag down (Acquire in `claim`),
        // so that the commit's own comes after it.
        if !self.armed.load(Ordering::Relaxed) && !self.armed.swap(true, Ordering::AcqRel) {
            credits.spend_price();
        }
        Ok(reserved)
    }
}

impl<'j> Slots<'j> {
    /// Writes `payload` over the slots and waits until it is persistent.
    fn write(&self, kind: SlotKind, payload: &[u8]) {
        self.write_first(kind, payload, self.count);
    }

    /// The same of the first slots, where the rest are written.
    fn write_first(&self, kind: SlotKind, payload: &[u8], count: u16) {
        let journal = self.journal;
        for index in 0..count {
            let from = (usize::from(index) * SLOT_PAYLOAD).min(payload.len());
            let to = (from + SLOT_PAYLOAD).min(payload.len());
            let position = self.first + u64::from(index);
            let slot = journal.ring.encode(position, (index, self.count), kind, &payload[from..to]);
            journal.front.write(journal.offset(position), &slot);
        }
        // A record may go round the ring's end: two pieces.
        let before_end =
            (journal.ring.slots as usize - journal.ring.index(self.first)).min(self.count.into());
        if !planted::is(Bug::NoWriteBack) {
            journal.front.write_back(journal.offset(self.first), before_end * SLOT_SIZE);
        }
        let rest = usize::from(self.count) - before_end;
        if rest > 0 {
            journal.front.write_back(journal.offset(self.first + before_end as u64), rest * SLOT_SIZE);
        }
        if !planted::is(Bug::NoFence) {
            journal.front.fence();
        }
    }

    fn seal(&self) -> Sealed {
        self.journal.sequence.seal(self.first, self.count);
        // Runs a SeqCst fence first, which `is_starving` needs.
        self.journal.seals.wake_all();
        if self.journal.pool.is_starving() {
            (self.journal.need_checkpoint)();
        }
        Sealed { first: self.first, end: self.end() }
    }

    fn end(&self) -> Position {
        self.first + u64::from(self.count)
    }

    fn abandon(self, state: &str) {
        self.journal.fail(format!("the {state} record at {} was given up", self.first));
    }
}

impl<'j> Reserved<'j> {
    /// The first position.
    pub fn first(&self) -> Position {
        self.0.as_ref().expect(HELD).first
    }

    /// Writes the record, which fits its slots, and persists it.
    pub fn persist(self, payload: &[u8]) -> Persisted<'j> {
        self.persist_as(SlotKind::Operation, payload)
    }

    pub(super) fn commit_slots(journal: &'j Journal) -> Reserved<'j> {
        let (first, count) = journal.sequence.reserve_padded();
        Reserved(Some(Slots { journal, first, count, unwinding: Unwinding::watch() }))
    }

    /// Writes the record, and behind it, in slots of its own that say nothing, each of `rest`.
    #[cfg(feature = "baselines")]
    pub(super) fn persist_beside(self, payload: &[u8], rest: &[Vec<u8>]) -> Persisted<'j> {
        let slots = self.0.as_ref().expect(HELD);
        let from = u64::from(Journal::slots_for(payload.len()));
        for (index, bytes) in (from..u64::from(slots.count)).zip(rest) {
            let (position, place) = (slots.first + index, (index as u16, slots.count));
            let slot = slots.journal.ring.encode_as(position, place, SlotKind::Operation, bytes, 0);
            slots.journal.front.write(slots.journal.offset(position), &slot);
        }
        slots.write_first(SlotKind::Operation, payload, from as u16);
        slots.journal.counters.records.add(1);
        let mut reserved = self;
        Persisted(reserved.0.take())
    }

    pub(super) fn persist_as(mut self, kind: SlotKind, payload: &[u8]) -> Persisted<'j> {
        let slots = self.0.as_ref().expect(HELD);
        assert!(
            payload.len() <= usize::from(slots.count) * SLOT_PAYLOAD,
            "a payload of {} bytes does not fit {} slots",
            payload.len(),
            slots.count
        );
        slots.write(kind, payload);
        if kind == SlotKind::Operation {
            slots.journal.counters.records.add(1);
        }
        Persisted(self.0.take())
    }
}

impl<'j> Persisted<'j> {
    /// Makes the change in memory: `change` gets the first position and the end.
    pub fn apply(mut self, change: impl FnOnce(Position, Position)) -> Applied<'j> {
        let slots = self.0.as_ref().expect(HELD);
        change(slots.first, slots.end());
        Applied(self.0.take())
    }
}

impl Applied<'_> {
    /// Lets commits pass the record.
    pub fn seal(mut self) -> Sealed {
        self.0.take().expect(HELD).seal()
    }
}

impl Sealed {
    /// The first position.
    pub fn first(&self) -> Position {
        self.first
    }

    /// The position after the last.
    pub fn end(&self) -> Position {
        self.end
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let Some(slots) = self.0.take() else { return };
        slots.journal.counters.voids.add(1);
        slots.write(SlotKind::Void, &[]);
        slots.seal();
        if slots.unwinding.has_begun() {
            slots.abandon("reserved");
        }
    }
}

impl Drop for Persisted<'_> {
    fn drop(&mut self) {
        if let Some(slots) = self.0.take() {
            slots.abandon("persisted");
        }
    }
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        if let Some(slots) = self.0.take() {
            slots.abandon("applied");
        }
    }
}
