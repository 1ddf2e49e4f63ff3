//! Group commit on the SSD ring: who waits for which position, who leads, which commits are under way.
//!
//! # Protocol
//! 1. *Enter.* Who needs a commit and finds it neither durable nor under way leads, if a commit is *due*: if
//!    nobody leads, or one leads and as many wait to be gathered as half of those whom its commit serves. Else
//!    it leaves a *waiter*: its sleeping thread, or a call to be made. The look and the deed are one critical
//!    section.
//! 2. *Gather.* One leader at a time takes the flag, reserves up to a block boundary, and so begins the next
//!    commit: ranges follow one another without a gap. It waits for the seals below and submits the range.
//! 3. *Finish.* It waits for its write, then for a flush that began after that. Leaders do this side by side,
//!    and the device's group flush serves them together. One that has nobody to answer meanwhile writes a range of
//!    one request by a call that makes it durable: a wait less, and no other write needs that flush.
//! 4. *Publish.* `committed` moves over the ranges that are down, from the oldest on: a commit is published
//!    only with all before it. Whoever publishes answers the waiters that are covered now.
//! 5. *Leave.* A leader goes on while a commit is due, in the sense of 1; a thread that wanted a commit of its
//!    own leaves as soon as it has it, if another can go on: a leader, or a sleeping thread, which is woken for
//!    that. Again one critical section.
//! 6. *Haste.* Who leads with locks in hand ([`Lead::Briefly`]) makes others wait for those. While it leads, any
//!    newcomer leads beside it, however few wait: so when its own commit is down, nobody waits whom no commit covers,
//!    or another leads, and it leaves, having answered those whom its commit covers. Only who came in the instant
//!    between the reservation of that commit and the note of its end may need it for one more.
//!
//! Invariant: if somebody waits whom no commit under way covers, then somebody leads or is woken to lead; if
//! somebody waits whom one covers, then its leader has yet to publish. So nobody waits for ever.
//!
//! Why two commits may be under way: who comes just after a commit was begun would else wait for nearly two.
//! Why not always: a commit costs the same for one record as for many, so callers should come in few groups. With
//! the rule of the half, two callers have a commit each, and many fall into two groups that take turns.

use std::collections::VecDeque;
use std::mem;

use super::stream::{Begun, Stream};
use super::{Journal, Wanted};
use crate::format::Position;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, WaitQueue};
use crate::{Result, answers};

/// Commits under way at most.
const MOST_LEADERS: usize = 2;

/// A second commit is begun when this part of those whom the first serves wait for it.
const DUE_PART: usize = 2;

/// Called once with the outcome of a commit, by whichever thread learns it: that thread may have others to
/// answer, so the call may wait for the device, but neither for the journal nor for credits.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// The callers of an SSD ring's commits.
pub(super) struct Group {
    turns: Mutex<Turns>,
    /// Held while a commit is begun.
    gathering: Mutex<()>,
}

struct Turns {
    leaders: usize,
    /// Those of them in haste.
    hasty: usize,
    /// End of the last commit that was begun.
    begun: Position,
    /// Whom that commit serves.
    served: usize,
    /// Commits that are not published, in order.
    under_way: VecDeque<UnderWay>,
    waiting: Vec<Waiter>,
    /// Those of them whom no commit that was begun covers.
    ungathered: usize,
}

struct UnderWay {
    end: Position,
    /// When it was begun, see [`super::lag`].
    since: u64,
    is_down: bool,
}

struct Waiter {
    upto: Position,
    who: Who,
}

enum Who {
    Thread(Arc<Seat>),
    Call(Done),
}

/// For how long a thread that needs a commit may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lead {
    /// As long as others need it.
    Freely,
    /// It has locks in hand that others wait for.
    Briefly,
}

/// Where one thread sleeps.
struct Seat {
    called: AtomicBool,
    queue: WaitQueue,
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
        let turns = Turns {
            leaders: 0,
            hasty: 0,
            begun: start,
            served: 0,
            under_way: VecDeque::new(),
            waiting: Vec::new(),
            ungathered: 0,
        };
        Group { turns: Mutex::new(turns), gathering: Mutex::new(()) }
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

impl Turns {
    /// Whether a commit should begin for so many who wait, beside so many other leaders.
    fn is_due(&self, count: usize, others: usize) -> bool {
        // A leader whose commit is not under way yet will gather them.
        let free = others < MOST_LEADERS && others <= self.under_way.len();
        count > 0 && (others == 0 || free && (count * DUE_PART >= self.served || self.hasty > 0))
    }

    /// Takes a turn for the caller, whose records end at `upto`, if a commit is due.
    fn take_lead(&mut self, upto: Position, lead: Lead) -> bool {
        let leads = upto > self.begun && self.is_due(self.ungathered + 1, self.leaders);
        self.leaders += usize::from(leads);
        self.hasty += usize::from(leads && lead == Lead::Briefly);
        leads
    }

    /// Gives a turn back.
    fn end_lead(&mut self, lead: Lead) {
        self.leaders -= 1;
        self.hasty -= usize::from(lead == Lead::Briefly);
    }

    fn wait(&mut self, upto: Position, who: Who) {
        self.ungathered += usize::from(upto > self.begun);
        self.waiting.push(Waiter { upto, who });
    }

    /// Notes that a commit that ends at `end` begins, for its leader's own records among others; the end of the
    /// one before.
    fn begin(&mut self, end: Position, since: u64, own: Option<Position>) -> Position {
        let before = mem::replace(&mut self.begun, end);
        let left = self.waiting.iter().filter(|waiter| waiter.upto > end).count();
        let gathered = mem::replace(&mut self.ungathered, left) - left;
        self.served = gathered + usize::from(own.is_some_and(|upto| upto > before));
        self.under_way.push_back(UnderWay { end, since, is_down: false });
        before
    }

    /// Whether the commits that were begun leave out a waiter, or the leader's own records.
    fn is_needed(&self, own: Option<Position>) -> bool {
        self.ungathered > 0 || own.is_some_and(|upto| upto > self.begun)
    }

    /// Notes that a commit is down; the last one that may be published now.
    fn down(&mut self, end: Position) -> Option<UnderWay> {
        if let Some(one) = self.under_way.iter_mut().find(|one| one.end == end) {
            one.is_down = true;
        }
        let mut last = None;
        while self.under_way.front().is_some_and(|one| one.is_down) {
            last = self.under_way.pop_front();
        }
        last
    }

    /// Takes the waiters whose records lie below `upto`, which is published.
    fn covered(&mut self, upto: Position) -> Vec<Waiter> {
        self.waiting.extract_if(.., |waiter| waiter.upto <= upto).collect()
    }

    /// Takes all waiters: the journal has failed.
    fn all(&mut self) -> Vec<Waiter> {
        self.ungathered = 0;
        mem::take(&mut self.waiting)
    }

    /// Ends a turn if the leader need not go on; gives whom to wake to go on in its place.
    fn leave(&mut self, own: Option<Position>, lead: Lead) -> Option<Option<Waiter>> {
        let mut successor = None;
        if self.is_due(self.ungathered, self.leaders - 1) {
            // Who leads for a call serves on: no thread has to wake up then.
            own?;
            let begun = self.begun;
            let is_thread = |w: &Waiter| w.upto > begun && matches!(w.who, Who::Thread(_));
            match self.waiting.iter().position(is_thread) {
                Some(at) => {
                    successor = Some(self.waiting.swap_remove(at));
                    self.ungathered -= 1;
                }
                None if self.leaders > 1 => {}
                None => return None,
            }
        }
        self.end_lead(lead);
        Some(successor)
    }
}

impl Seat {
    fn call(&self) {
        // Release: pairs with the Acquire of the sleeper: it sees what its commit, or its predecessor, has left.
        self.called.store(true, Ordering::Release);
        self.queue.wake_all();
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
                    // It may have been woken to lead: then nobody else answers those who wait.
                    let waiters = turns.all();
                    drop(turns);
                    self.answer(waiters);
                    return self.check();
                }
                if turns.take_lead(upto, lead) {
                    None
                } else {
                    let seat = Arc::new(Seat { called: AtomicBool::new(false), queue: WaitQueue::new() });
                    turns.wait(upto, Who::Thread(Arc::clone(&seat)));
                    Some(seat)
                }
            };
            match seat {
                // Acquire: pairs with the Release in `call`.
                Some(seat) => self.sleep(&seat.queue, || seat.called.load(Ordering::Acquire)),
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
    pub fn commit_then(&self, upto: Position, wanted: Wanted, done: Done) {
        let Some(stream) = &self.stream else { return done(self.settle_upto(upto, wanted)) };
        let upto = upto.min(self.tail());
        let done = if wanted == Wanted::Power {
            done
        } else {
            match self.is_answered(upto, wanted) {
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
            // The call is told of a failure like everybody who waits.
            let _ = Leader { journal: self, stream, own: None, lead: Lead::Freely, left: false }.lead();
        } else {
            self.counters.coalesced.add(1);
        }
    }

    /// Tells waiters that they are covered, or that the journal has failed.
    fn answer(&self, waiters: Vec<Waiter>) {
        answers::several(|| {
            for Waiter { upto, who } in waiters {
                match who {
                    Who::Thread(seat) => seat.call(),
                    Who::Call(done) if self.durable() >= upto => done(Ok(())),
                    Who::Call(done) => done(self.check()),
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
        // Who is not covered has reserved after the last commit, so the flag is up, or its record is between its
        // reservation and the flag, and a seal follows.
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
