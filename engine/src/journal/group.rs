//! Group commit on the SSD ring: which thread waits for which position, which leads, which commits are under way.
//!
//! # Protocol
//! 1. *Enter.* A thread that needs a commit and finds it neither durable nor under way leads, if a commit is *due*: if
//!    nobody leads, or one leads and as many wait to be gathered as half of those that its commit serves. Else
//!    it leaves a *waiter*: its sleeping thread, or a call to be made. The look and the deed are one critical
//!    section.
//! 2. *Gather.* One leader at a time takes the flag, reserves up to a block boundary, and so begins the next
//!    commit: ranges follow one another without a gap. It waits for the seals below and submits the range.
//! 3. *Finish.* It waits for its write, then for a flush that began after that. Leaders do this side by side,
//!    and the device's group flush serves them together. One that has nobody to answer meanwhile writes a range of
//!    one request by a call that makes it durable: a wait less, and no other write needs that flush.
//! 4. *Publish.* `committed` moves over the ranges that are down, from the oldest on: a commit is published
//!    only with all before it. A thread that publishes answers the waiters that are covered now.
//! 5. *Leave.* A leader goes on while a commit is due, in the sense of 1; a thread that wanted a commit of its
//!    own leaves as soon as it has it, if another can go on: a leader, or a sleeping thread, which is woken for
//!    that. Again one critical section.
//! 6. *Haste.* A thread that leads with locks in hand ([`Lead::Briefly`]) makes others wait for those. While it leads,
//!    any newcomer leads beside it, however few wait: so when its own commit is down, no thread waits that no commit
//!    covers, or another leads, and it leaves, having answered those that its commit covers. Only a thread that came in
//!    the instant between the reservation of that commit and the note of its end may need it for one more.
//!
//! Invariant: if a thread waits that no commit under way covers, then somebody leads or is woken to lead; if
//! a thread waits that one covers, then its leader has yet to publish. So nobody waits for ever.
//!
//! Why two commits may be under way: a thread that comes just after a commit was begun would else wait for nearly two.
//! Why not always: a commit costs the same for one record as for many, so callers should come in few groups. With
//! the rule of the half, two callers have a commit each, and many fall into two groups that take turns.

mod turns;

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::stream::{Begun, Stream};
use super::{Durability, Journal};
use crate::format::Position;
use crate::planted::{self, Spot};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Mutex};
use crate::{Result, deferred};
pub(super) use turns::Lead;
use turns::{Seat, Turns, UnderWay, Waiter, Who};

/// Called once with the outcome of a commit, by whichever thread learns it: that thread may have others to
/// answer, so the call may wait for the device, but neither for the journal nor for credits; nor may it let go what
/// keeps the file system open. Its panic is its own.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// The callers of an SSD ring's commits.
pub(super) struct Group {
    turns: Mutex<Turns>,
    /// Held while a commit is begun.
    gathering: Mutex<()>,
}

/// The right, and the duty, to commit; given up when dropped.
struct Leader<'j> {
    journal: &'j Journal,
    stream: &'j Stream,
    /// Its thread's own records; `None`: it leads for a call.
    own: Option<Position>,
    lead: Lead,
    left: bool,
}

impl Group {
    pub(super) fn new(start: Position) -> Group {
        Group { turns: Mutex::new(Turns::new(start)), gathering: Mutex::new(()) }
    }

    /// Notes that a commit that ends at `end` begins; the end of the one before.
    pub(super) fn begins(&self, end: Position, since: u64, own: Option<Position>) -> Position {
        self.turns.lock().begin(end, since, own)
    }

    /// The journal has failed: threads that sleep look again. Calls are answered by their leaders.
    pub(super) fn wake_all(&self) {
        for waiter in &self.turns.lock().waiting {
            if let Who::Thread(seat) = &waiter.who {
                seat.queue.wake_all();
            }
        }
    }
}

impl Journal {
    /// Sleeps until everything below `upto` is durable, or leads.
    pub(super) fn commit_grouped(&self, stream: &Stream, upto: Position, lead: Lead) -> Result<()> {
        let mut led = false;
        while self.durable() < upto {
            let seat = {
                let mut turns = stream.group.turns.lock();
                if self.durable() >= upto {
                    break;
                }
                if self.is_failed() {
                    // It may have been woken to lead: then nobody else answers those that wait.
                    let waiters = turns.all();
                    drop(turns);
                    self.answer(waiters);
                    return self.check();
                }
                if turns.take_lead(upto, lead) {
                    None
                } else {
                    let seat = Arc::new(Seat::new());
                    turns.wait(upto, Who::Thread(Arc::clone(&seat)));
                    Some(seat)
                }
            };
            match seat {
                Some(seat) => self.sleep(&seat.queue, || seat.is_called()),
                None => {
                    led = true;
                    Leader { journal: self, stream, own: Some(upto), lead, left: false }.lead()?;
                }
            }
        }
        if !led {
            self.counters.coalesced.add(1);
        }
        Ok(())
    }

    /// As [`settle_upto`](Journal::settle_upto), but does not wait for another's commit: `done` is called, here or
    /// by another thread, once everything below `upto` is durable as `wanted`, or the journal has failed. If
    /// nobody commits, this thread does, for as long as it takes.
    pub fn commit_then(&self, upto: Position, durability: Durability, done: Done) {
        let Some(stream) = &self.stream else { return done(self.settle_upto(upto, durability)) };
        let upto = upto.min(self.tail());
        let done = if durability == Durability::Power {
            done
        } else {
            match self.is_answered(upto, durability) {
                Ok(false) => {}
                answered => return done(answered.map(drop)),
            }
            // The data may have gone home after the commit was begun that is waited for.
            let (device, writes) = (Arc::clone(&stream.device), self.lag.writes());
            Box::new(move |committed: Result<()>| done(committed.and_then(|()| device.flush_upto(writes))))
        };
        let leads = {
            let mut turns = stream.group.turns.lock();
            if self.durable() >= upto || self.is_failed() {
                drop(turns);
                let outcome = if self.durable() >= upto { Ok(()) } else { self.check() };
                return done(outcome);
            }
            let leads = turns.take_lead(upto, Lead::Freely);
            turns.wait(upto, Who::Call(done));
            leads
        };
        if leads {
            // The call is told of a failure like everybody that waits.
            let _ = Leader { journal: self, stream, own: None, lead: Lead::Freely, left: false }.lead();
        } else {
            self.counters.coalesced.add(1);
        }
    }

    /// Tells waiters that they are covered, or that the journal has failed.
    fn answer(&self, waiters: Vec<Waiter>) {
        deferred::replies(|| {
            for Waiter { upto, who } in waiters {
                match who {
                    Who::Thread(seat) => seat.call(),
                    Who::Call(done) => {
                        let outcome = if self.durable() >= upto { Ok(()) } else { self.check() };
                        // Others are behind it, and a leader has more to do.
                        if catch_unwind(AssertUnwindSafe(|| done(outcome))).is_err() {
                            tracing::error!("who was told of a commit has panicked");
                        }
                    }
                }
            }
        });
    }
}

impl Leader<'_> {
    /// Commits until nobody needs it; the outcome of its own commits.
    fn lead(mut self) -> Result<()> {
        let (journal, group) = (self.journal, &self.stream.group);
        let mut outcome = Ok(());
        let mut covered = Vec::new();
        loop {
            let begun = self.gather(!covered.is_empty());
            planted::panic_at(Spot::Leading);
            // While the device is at work.
            journal.answer(mem::take(&mut covered));
            let done = begun.and_then(|begun| begun.map(|begun| self.finish(begun)).transpose());
            let mut turns = group.turns.lock();
            let published = match done {
                Ok(end) => end.and_then(|end| turns.down(end)),
                Err(e) => {
                    drop(turns);
                    journal.fail(format!("the journal could not be written: {e}"));
                    outcome = Err(e);
                    turns = group.turns.lock();
                    None
                }
            };
            if let Some(UnderWay { end, since, .. }) = published {
                // Release: pairs with the Acquire in `durable`.
                journal.committed.store(end, Ordering::Release);
                journal.keep(self.stream, since);
            }
            covered = if journal.is_failed() { turns.all() } else { turns.covered(journal.durable()) };
            let Some(successor) = turns.leave(self.own, self.lead) else { continue };
            drop(turns);
            self.left = true;
            journal.seals.wake_all();
            // First, so that the next commit begins while the others are told.
            journal.answer(successor.into_iter().collect());
            journal.answer(covered);
            return outcome;
        }
    }

    /// Begins a commit, if one is needed: everything reserved so far will be in it or in one before.
    fn gather(&self, at_leisure: bool) -> Result<Option<Begun>> {
        let Leader { journal, stream, .. } = *self;
        let _gathering = stream.group.gathering.lock();
        if !stream.group.turns.lock().is_needed(self.own) {
            return Ok(None);
        }
        // A thread that is not covered has reserved after the last commit, so the flag is up, or its record is between
        // its reservation and the flag, and a seal follows.
        while !journal.claim() {
            // Relaxed: looked at again by the exchange in `claim`.
            journal.sleep(&journal.seals, || journal.armed.load(Ordering::Relaxed));
            journal.check()?;
        }
        let begins = |end, since| stream.group.begins(end, since, self.own);
        let begun = stream.begin(journal, at_leisure, begins)?;
        Ok(Some(begun))
    }

    /// Returns the end of the commit once it is down.
    fn finish(&self, begun: Begun) -> Result<Position> {
        let end = self.stream.finish(begun)?;
        self.journal.counters.commits.add(1);
        Ok(end)
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        // A panic.
        self.journal.fail("the leader of a commit gave up".into());
        let mut turns = self.stream.group.turns.lock();
        turns.end_lead(self.lead);
        let waiters = turns.all();
        drop(turns);
        self.journal.answer(waiters);
    }
}
