//! Credits: promises of free slots, given before an operation takes its first lock.
//!
//! A slot is free, cached by a lane, granted, or used; [`Pool`] counts the first two. A grant covers the
//! slots of one record and the price of one commit (see the module above), so that neither logging nor
//! committing ever waits for room.
//!
//! 1. An ordinary taker looks into its lane's cache, then takes from the centre (and fills the cache), but
//!    leaves the reserve there.
//! 2. In vain, it queues behind those that starve already. The first of the queue empties all lanes' caches
//!    into the centre, takes what it needs if that is there, else asks for a checkpoint, at every look, and
//!    sleeps. While somebody starves, nobody uses the lanes, and each seal asks for a checkpoint too: the
//!    record just sealed may hold the very slots that are missing.
//! 3. The reserve class does the same in a queue of its own, and may take the reserve.
//! 4. A checkpoint is asked for once the centre falls below a mark. It follows the pace: what was used up while the
//!    last round ran, and half as much again, is what must be free when the next one begins, lest anybody wait. Where
//!    that leaves room, the head does not pass the youngest part of the ring ([`Journal::kept_young`]).
//! 5. Giving back goes to the lane up to its share, else to the centre, then wakes a thread that sleeps; a moved head
//!    gives to the centre.

use super::{Journal, size};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{CachePadded, Mutex, WaitQueue};
use crate::{Error, Result};

/// The kind of caller that asks for credits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreditClass {
    /// An operation of a user.
    Ordinary,
    /// Work that makes room or that others wait for: checkpoint, reclaim, write-back.
    Reserve,
}

/// Where to look for room without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Where it is near, and only if nobody waits for any: for a thread that holds credits already, and so must not
    /// wait for more.
    Nearby,
    /// Near, and only while a quarter of the ring would be left to others: for what may as well go elsewhere.
    Ample,
    /// Wherever it is kept, with a checkpoint asked for where little is left: for a thread that makes room himself.
    Everywhere,
}

/// Room for one record. What is not used goes back on drop.
#[must_use = "credits hold room in the ring until they are dropped"]
pub struct Credits<'j> {
    journal: &'j Journal,
    /// Slots for the record.
    slots: u64,
    /// Slots for a commit.
    price: u64,
}

impl Journal {
    /// Room for one record of up to `max_slots` slots. To be called before any lock is taken that somebody with
    /// credits may wait for: it may sleep until a checkpoint has made room. Fails only when the journal has failed, or
    /// for more than [`max_record_slots`](Journal::max_record_slots).
    pub fn credits(&self, max_slots: u32, class: CreditClass) -> Result<Credits<'_>> {
        self.check()?;
        if max_slots > self.max_record_slots() {
            return Err(Error::Refused(format!(
                "a record of {max_slots} slots is more than the ring allows ({})",
                self.max_record_slots()
            )));
        }
        let price = self.ring.pad;
        let need = u64::from(max_slots) + price;
        if !self.pool.take_quickly(need, class) {
            let since = std::time::Instant::now();
            self.pool.take(need, class, || self.is_failed(), &self.need_checkpoint);
            self.counters.wait_ns.add(since.elapsed().as_nanos() as u64);
            self.check()?;
        } else if self.pool.is_low() {
            (self.need_checkpoint)();
        }
        Ok(Credits { journal: self, slots: u64::from(max_slots), price })
    }
}

impl Journal {
    /// As [`Journal::credits`] for an ordinary record, if there is room now where one is to look. It leaves the reserve
    /// alone. A record that is too large for the ring finds none.
    pub fn credits_now(&self, max_slots: u32, look: Look) -> Result<Option<Credits<'_>>> {
        self.check()?;
        let (slots, price) = (u64::from(max_slots), self.ring.pad);
        let (need, class) = (slots + price, CreditClass::Ordinary);
        let everywhere = look == Look::Everywhere;
        let taken = max_slots <= self.max_record_slots()
            && (look != Look::Ample || self.pool.is_ample(need))
            && (self.pool.take_quickly(need, class) || everywhere && self.pool.take_now(need, class));
        if taken && everywhere && self.pool.is_low() {
            (self.need_checkpoint)();
        }
        // Only then: what is dropped gives back.
        Ok(taken.then(|| Credits { journal: self, slots, price }))
    }

    /// How many of the youngest slots a round need not pass to make enough room for as much as is used up while it
    /// runs. What they hold may be superseded or deleted before the next round comes to it.
    pub fn kept_young(&self) -> u64 {
        // Relaxed: a hint.
        self.pool.young.load(Ordering::Relaxed)
    }

    /// Whether [`Journal::credits`] would find room without a checkpoint, if nobody else asks meanwhile.
    pub fn has_room(&self, max_slots: u32, class: CreditClass) -> bool {
        let leave = if class == CreditClass::Ordinary { self.pool.reserve } else { 0 };
        self.pool.free() >= u64::from(max_slots) + self.ring.pad + leave
    }
}

impl Credits<'_> {
    pub(super) fn belongs_to(&self, journal: &Journal) -> bool {
        std::ptr::eq(self.journal, journal)
    }

    /// Turns `count` slots from promised into used; false if they are more than was promised.
    pub(super) fn spend(&mut self, count: u32) -> bool {
        match self.slots.checked_sub(u64::from(count)) {
            Some(rest) => {
                self.slots = rest;
                true
            }
            None => false,
        }
    }

    /// The price of a commit now belongs to the armed flag.
    pub(super) fn spend_price(&mut self) {
        self.price = 0;
    }

    /// Slots that a record may have.
    pub fn slots(&self) -> u32 {
        // Granted as a u32, and only ever less.
        self.slots as u32
    }
}

impl Drop for Credits<'_> {
    fn drop(&mut self) {
        self.journal.pool.give(self.slots + self.price);
    }
}

/// Free slots, in the centre and with the lanes.
pub(super) struct Pool {
    centre: CachePadded<AtomicU64>,
    lanes: Box<[CachePadded<AtomicU64>]>,
    /// Most that a lane keeps.
    share: u64,
    /// What ordinary takers leave in the centre.
    reserve: u64,
    /// Below this lanes are given nothing in advance.
    ample: u64,
    /// Below this a checkpoint is due: a quarter of the slots, or more where a round would come too late.
    low: AtomicU64,
    /// Slots of the youngest part, half of the ring at the most.
    young: AtomicU64,
    slots: u64,
    max_record: u32,
    /// Whether a checkpoint was asked for since the head last moved.
    asked: AtomicBool,
    starving: AtomicU32,
    /// The turn of ordinary takers, and of the reserve class.
    turns: [Mutex<()>; 2],
    queue: WaitQueue,
}

impl Pool {
    pub(super) fn new(slots: u64, pad: u64, lanes: usize) -> Pool {
        let lanes = lanes.max(1);
        Pool {
            centre: CachePadded::new(AtomicU64::new(slots)),
            lanes: (0..lanes).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            // Several operations' worth, if the ring has it: else each would go to the centre and back.
            share: (slots / 16 / lanes as u64).min(2048),
            reserve: size::reserve(slots, pad),
            // Below half a round is due: while it runs, lanes are to have their own all the more.
            ample: slots / 4,
            low: AtomicU64::new(slots / 2),
            young: AtomicU64::new(0),
            slots,
            max_record: size::max_record(slots, pad) as u32,
            asked: AtomicBool::new(false),
            starving: AtomicU32::new(0),
            turns: [Mutex::new(()), Mutex::new(())],
            queue: WaitQueue::new(),
        }
    }

    pub(super) fn max_record(&self) -> u32 {
        self.max_record
    }

    /// Takes `need` without waiting.
    pub(super) fn take_quickly(&self, need: u64, class: CreditClass) -> bool {
        match class {
            CreditClass::Reserve => take(&self.centre, need, 0),
            CreditClass::Ordinary => {
                // Relaxed: a hint; a thread that starves collects what it misses here by looking again.
                if self.starving.load(Ordering::Relaxed) != 0 {
                    return false;
                }
                let lane = self.lane();
                if take(lane, need, 0) {
                    return true;
                }
                if self.share > 0 && take(&self.centre, need + self.share, self.reserve + self.ample) {
                    // Release: as in `give`.
                    lane.fetch_add(self.share, Ordering::Release);
                    self.queue.wake_all();
                    return true;
                }
                take(&self.centre, need, self.reserve)
            }
        }
    }

    /// Takes `need`, in turn, as soon as there is so much; gives up without when `failed`.
    pub(super) fn take(&self, need: u64, class: CreditClass, failed: impl Fn() -> bool, ask: &dyn Fn()) {
        // Relaxed: a hint, see `take_quickly`.
        self.starving.fetch_add(1, Ordering::Relaxed);
        let turn = self.turns[class as usize].lock();
        let look = || {
            let enough = failed() || self.take_now(need, class);
            if !enough {
                ask();
            }
            enough
        };
        self.queue.wait_until(look);
        drop(turn);
        // Relaxed: as above.
        self.starving.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes `need` if there is so much in all; what lanes keep goes to the centre.
    fn take_now(&self, need: u64, class: CreditClass) -> bool {
        let mut moved = false;
        for lane in &self.lanes {
            // AcqRel: Acquire pairs with the Release in `give`; Release passes it on.
            let cached = lane.swap(0, Ordering::AcqRel);
            if cached > 0 {
                self.centre.fetch_add(cached, Ordering::Release);
                moved = true;
            }
        }
        if moved {
            // A taker of the other class may have looked while it was in neither place. It finds nothing to move.
            self.queue.wake_all();
        }
        take(&self.centre, need, if class == CreditClass::Ordinary { self.reserve } else { 0 })
    }

    /// Gives back what was granted and not used.
    pub(super) fn give(&self, slots: u64) {
        if slots == 0 {
            return;
        }
        let lane = self.lane();
        // Relaxed: hints where to put it; a thread that starves looks everywhere.
        let keep =
            self.starving.load(Ordering::Relaxed) == 0 && lane.load(Ordering::Relaxed) + slots <= self.share;
        let to = if keep { lane } else { &self.centre };
        // Release: pairs with the Acquire in `take`: what this thread knew to be free, the taker knows.
        to.fetch_add(slots, Ordering::Release);
        self.queue.wake_all();
    }

    /// Slots below the new head are free; `since` were used while the round ran that moved it. The next is to begin
    /// while there is room for half as many again, and to have as many to pass.
    pub(super) fn head_moved(&self, slots: u64, since: u64) {
        let low = self.reserve + since + since / 2;
        let young = self.slots.saturating_sub(low + since).min(self.slots / 2);
        // Relaxed: hints.
        self.low.store(low.clamp(self.slots / 4, self.slots / 4 * 3), Ordering::Relaxed);
        self.young.store(young, Ordering::Relaxed);
        // Release: pairs with the Acquire in `take`: the readers of these slots are done.
        self.centre.fetch_add(slots, Ordering::Release);
        // Relaxed: asking once too often does no harm.
        self.asked.store(false, Ordering::Relaxed);
        self.queue.wake_all();
    }

    /// Free slots, wherever they are.
    fn free(&self) -> u64 {
        // Relaxed: a moment's answer.
        let lanes: u64 = self.lanes.iter().map(|lane| lane.load(Ordering::Relaxed)).sum();
        self.centre.load(Ordering::Relaxed) + lanes
    }

    /// Whether a checkpoint is due and was not asked for yet.
    pub(super) fn is_low(&self) -> bool {
        // Relaxed: hints.
        self.centre.load(Ordering::Relaxed) < self.low.load(Ordering::Relaxed)
            && !self.asked.load(Ordering::Relaxed)
            && !self.asked.swap(true, Ordering::Relaxed)
    }

    /// Whether a quarter of the slots is left in the centre when so many more are taken, and nobody waits for any.
    fn is_ample(&self, need: u64) -> bool {
        // Relaxed: a moment's answer.
        self.starving.load(Ordering::Relaxed) == 0
            && self.centre.load(Ordering::Relaxed) >= need + self.slots / 4
    }

    /// Whether somebody waits for credits. To be asked after a SeqCst fence that follows the seal: either it
    /// sees the starving thread, or that one looks, and asks for a checkpoint, after the seal.
    pub(super) fn is_starving(&self) -> bool {
        // Relaxed: ordered by that fence and the one that a sleeper runs.
        self.starving.load(Ordering::Relaxed) != 0
    }

    /// Wakes everyone to look again.
    pub(super) fn wake(&self) {
        self.queue.wake_all();
    }

    fn lane(&self) -> &AtomicU64 {
        &self.lanes[current_core() % self.lanes.len()]
    }
}

/// Takes `need` from `from` if `leave` stays there.
fn take(from: &AtomicU64, need: u64, leave: u64) -> bool {
    // Acquire: pairs with the Release of any thread that gave. Relaxed otherwise: nothing was taken.
    from.fetch_update(Ordering::Acquire, Ordering::Relaxed, |have| {
        have.checked_sub(need).filter(|rest| *rest >= leave)
    })
    .is_ok()
}

#[cfg(not(any(loom, shuttle)))]
fn current_core() -> usize {
    rustix::thread::sched_getcpu()
}

/// Under a model checker the core must not depend on the machine.
#[cfg(any(loom, shuttle))]
fn current_core() -> usize {
    0
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn ordinary_takers_leave_the_reserve() {
        let pool = Pool::new(64, 1, 1);
        let mut taken = 0;
        while pool.take_quickly(1, CreditClass::Ordinary) {
            taken += 1;
        }
        assert_eq!(taken, 64 - pool.reserve);
        for _ in 0..pool.reserve {
            assert!(pool.take_quickly(1, CreditClass::Reserve));
        }
        assert!(!pool.take_quickly(1, CreditClass::Reserve));
        assert!(pool.is_low() && !pool.is_low(), "asked for once");
        pool.head_moved(64, 64);
        assert!(!pool.is_low());
    }

    #[test]
    fn a_starved_taker_empties_the_lanes() {
        let pool = Pool::new(1024, 1, 4);
        assert!(pool.take_quickly(1024, CreditClass::Reserve));
        for lane in &pool.lanes {
            lane.store(pool.share, Ordering::Relaxed);
        }
        let all = pool.share * 4;
        assert!(!pool.take_quickly(all, CreditClass::Reserve));
        pool.take(all, CreditClass::Reserve, || false, &|| panic!("nothing is missing"));
        assert_eq!(pool.centre.load(Ordering::Relaxed), 0);
        assert!(!pool.is_starving());
    }

    #[test]
    fn every_ring_size_has_room_for_a_record() {
        for (slots, pad) in [(32, 1), (64, 16), (1024, 16), (1 << 20, 1), (1 << 20, 16)] {
            let pool = Pool::new(slots, pad, 8);
            let need = u64::from(pool.max_record()) + pad;
            assert!(pool.max_record() >= 4 && need + pool.reserve + pad <= slots, "{slots} slots");
        }
    }
}
