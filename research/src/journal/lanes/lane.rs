//! One record's way in its lane: reserved, persisted, sealed, each a type of its own.
//!
//! The lane itself goes along, so it has one record under way at most, and none is sealed that was not persisted:
//!
//! ```
//! # use narufs_research::journal::lanes::{Lane, LastStamp, Shape};
//! fn in_order<'l>(lane: Lane<'l>, object: &mut LastStamp, payload: &[u8]) -> Lane<'l> {
//!     let reserved = lane.reserve(&mut [object], Shape::slots_for(payload.len())).ok().expect("room");
//!     reserved.persist(payload).seal().0
//! }
//! ```
//! ```compile_fail
//! # use narufs_research::journal::lanes::{Lane, LastStamp, Shape};
//! fn not_persisted<'l>(lane: Lane<'l>, object: &mut LastStamp, payload: &[u8]) -> Lane<'l> {
//!     let reserved = lane.reserve(&mut [object], Shape::slots_for(payload.len())).ok().expect("room");
//!     reserved.seal().0
//! }
//! ```

use super::planted::Bug;
use super::slot::{PAYLOAD, SLOT};
use super::{Error, Lanes, Shared, Stamp, busy, idle, parse};
use narufs_engine::sync::atomic::Ordering;

/// The highest stamp of a record that touched an object. Belongs to the object, under its lock.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastStamp(Stamp);

impl LastStamp {
    /// The stamp that an fsync of the object commits.
    pub fn stamp(self) -> Stamp {
        self.0
    }
}

/// The right to a lane.
pub struct Lane<'l> {
    lanes: &'l Lanes,
    number: usize,
    /// The next position.
    next: u64,
    /// Where the room ends, as far as the owner has looked.
    room: u64,
}

struct Open<'l> {
    lane: Lane<'l>,
    stamp: Stamp,
    count: u16,
}

/// A stamp taken, nothing written. Dropped so, it is given back.
#[must_use = "a record under way holds up every commit"]
pub struct Reserved<'l>(Option<Open<'l>>);

/// A record that is persistent. Dropped so, all fails.
#[must_use = "a record under way holds up every commit"]
pub struct Persisted<'l>(Option<Open<'l>>);

const HELD: &str = "a record leaves its state only with the value itself";

impl Lanes {
    /// Takes a lane that nobody has; `None` if somebody does, or all failed.
    pub fn claim(&self, number: usize) -> Option<Lane<'_>> {
        let shared = self.lanes.get(number)?;
        self.check().ok()?;
        // Acquire: pairs with the Release of the owner before, whose end is read next.
        shared.claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // Relaxed: only owners write it.
        let next = shared.end.load(Ordering::Relaxed);
        Some(Lane { lanes: self, number, next, room: next })
    }
}

impl<'l> Lane<'l> {
    fn shared(&self) -> &'l Shared {
        &self.lanes.lanes[self.number]
    }

    fn find_room(&mut self, count: u16) -> Result<(), Error> {
        self.lanes.check()?;
        let end = self.next + u64::from(count);
        if end > self.room {
            // Acquire: pairs with the Release in `advance_head`: reading the slots there comes before writing them.
            self.room = self.shared().head.load(Ordering::Acquire) + self.lanes.shape.slots;
        }
        if count == 0 || end > self.room { Err(Error::Full) } else { Ok(()) }
    }

    /// Takes a stamp for a record of `count` slots that touches `objects`, whose locks the caller holds until it has
    /// sealed the record. Does not wait.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Failed`]; the lane comes back.
    pub fn reserve(
        mut self,
        objects: &mut [&mut LastStamp],
        count: u16,
    ) -> Result<Reserved<'l>, (Lane<'l>, Error)> {
        if let Err(e) = self.find_room(count) {
            return Err((self, e));
        }
        let planted = self.lanes.planted;
        let last = objects.iter().map(|object| object.0).max().unwrap_or(0);
        let least = if planted.is(Bug::StampIgnoresObjects) { 0 } else { last + 1 };
        let (lanes, word) = (self.lanes, &self.shared().word);
        // Relaxed: the exchange verifies it.
        let mut seen = word.load(Ordering::Relaxed);
        let stamp = loop {
            let stamp = lanes.clock.now(self.number).max(least).max(parse(seen).0 + 1);
            if planted.is(Bug::NeverBusy) {
                break stamp;
            }
            // Relaxed: with whoever raises the word it has one order, which is all that rule 2 needs; what its own
            // earlier Release told goes on through an exchange to whoever reads the word it writes.
            match word.compare_exchange_weak(seen, busy(stamp), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break stamp,
                Err(now) => seen = now,
            }
        };
        for object in objects {
            object.0 = stamp;
        }
        Ok(Reserved(Some(Open { lane: self, stamp, count })))
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `claim`.
        self.shared().claimed.store(false, Ordering::Release);
    }
}

impl<'l> Open<'l> {
    fn write(&self, payload: &[u8]) {
        let Lane { lanes, number, next, .. } = self.lane;
        let (memory, shape, planted) = (&*lanes.memory, &lanes.shape, lanes.planted);
        for index in 0..self.count {
            let from = (usize::from(index) * PAYLOAD).min(payload.len());
            let to = (from + PAYLOAD).min(payload.len());
            let slot = shape.encode(number, next, self.stamp, (index, self.count), &payload[from..to]);
            memory.write(shape.offset(number, next + u64::from(index)), &slot);
        }
        // A record may go round the ring's end: two pieces.
        let before_end = (shape.slots - next % shape.slots).min(u64::from(self.count));
        let rest = u64::from(self.count) - before_end;
        if !planted.is(Bug::NoWriteBack) {
            memory.write_back(shape.offset(number, next), before_end as usize * SLOT);
            if rest > 0 {
                memory.write_back(shape.offset(number, next + before_end), rest as usize * SLOT);
            }
        }
        if !planted.is(Bug::NoFence) {
            memory.fence();
        }
    }

    /// Lets commits pass, with the slots up to the lane's next position.
    fn leave(self) -> (Lane<'l>, Stamp) {
        let shared = self.lane.shared();
        let publish = || {
            // Release: pairs with the Acquire in `visit`, which reads the end next.
            shared.word.store(idle(self.stamp), Ordering::Release);
        };
        if self.lane.lanes.planted.is(Bug::WordBeforeEnd) {
            publish();
        }
        // Relaxed: the word tells of it, or the claim.
        shared.end.store(self.lane.next, Ordering::Relaxed);
        if !self.lane.lanes.planted.is(Bug::WordBeforeEnd) {
            publish();
        }
        self.lane.lanes.seals.wake_all();
        (self.lane, self.stamp)
    }
}

impl<'l> Reserved<'l> {
    /// The record's stamp.
    pub fn stamp(&self) -> Stamp {
        self.0.as_ref().expect(HELD).stamp
    }

    /// Writes the record, which fits its slots, and persists it.
    pub fn persist(mut self, payload: &[u8]) -> Persisted<'l> {
        let open = self.0.as_ref().expect(HELD);
        let room = usize::from(open.count) * PAYLOAD;
        assert!(payload.len() <= room, "{} bytes in slots for {room}", payload.len());
        open.write(payload);
        Persisted(self.0.take())
    }

    /// Gives the stamp back: there is no record.
    pub fn give_back(mut self) -> Lane<'l> {
        self.0.take().expect(HELD).leave().0
    }
}

impl<'l> Persisted<'l> {
    /// Lets commits pass the record. Only now may the objects' locks be given up.
    pub fn seal(mut self) -> (Lane<'l>, Stamp) {
        let mut open = self.0.take().expect(HELD);
        open.lane.next += u64::from(open.count);
        open.leave()
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            open.leave();
        }
    }
}

impl Drop for Persisted<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            open.lane.lanes.fail();
        }
    }
}
