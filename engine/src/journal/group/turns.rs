//! Which thread leads, which waiters a commit that was begun covers, and which wait: what the callers of commits look
//! at and change under one mutex, and the rules that they follow there.
//!
//! What this leaves to others: the protocol that this is a part of, and all that takes time (the module above).

use std::collections::VecDeque;
use std::mem;

use super::Done;
use crate::format::Position;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, WaitQueue};

/// Commits under way at most.
const MOST_LEADERS: usize = 2;

/// A second commit is begun when this part of those that the first serves wait for it.
const DUE_PART: usize = 2;

pub(super) struct Turns {
    leaders: usize,
    /// Those of them in haste.
    hasty: usize,
    /// End of the last commit that was begun.
    begun: Position,
    /// How many that commit serves.
    served: usize,
    /// Commits that are not published, in order.
    under_way: VecDeque<UnderWay>,
    pub waiting: Vec<Waiter>,
    /// Those of them that no commit that was begun covers.
    pub ungathered: usize,
}

pub(super) struct UnderWay {
    pub end: Position,
    /// When it was begun, see [`crate::journal::lag`].
    pub since: u64,
    is_down: bool,
}

pub(super) struct Waiter {
    pub upto: Position,
    pub who: Who,
}

pub(super) enum Who {
    Thread(Arc<Seat>),
    Call(Done),
}

/// For how long a thread that needs a commit may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lead {
    /// As long as others need it.
    Freely,
    /// It has locks in hand that others wait for.
    Briefly,
}

/// Where one thread sleeps.
pub(super) struct Seat {
    called: AtomicBool,
    pub queue: WaitQueue,
}

impl Turns {
    /// Everything below `start` is durable.
    pub fn new(start: Position) -> Turns {
        Turns {
            leaders: 0,
            hasty: 0,
            begun: start,
            served: 0,
            under_way: VecDeque::new(),
            waiting: Vec::new(),
            ungathered: 0,
        }
    }

    /// Whether a commit should begin for so many waiters, beside so many other leaders.
    fn is_due(&self, count: usize, others: usize) -> bool {
        // A leader whose commit is not under way yet will gather them.
        let free = others < MOST_LEADERS && others <= self.under_way.len();
        count > 0 && (others == 0 || free && (count * DUE_PART >= self.served || self.hasty > 0))
    }

    /// Takes a turn for the caller, whose records end at `upto`, if a commit is due.
    pub fn take_lead(&mut self, upto: Position, lead: Lead) -> bool {
        let leads = upto > self.begun && self.is_due(self.ungathered + 1, self.leaders);
        self.leaders += usize::from(leads);
        self.hasty += usize::from(leads && lead == Lead::Briefly);
        leads
    }

    /// Gives a turn back.
    pub fn end_lead(&mut self, lead: Lead) {
        self.leaders -= 1;
        self.hasty -= usize::from(lead == Lead::Briefly);
    }

    /// A waiter comes, for what lies below `upto`.
    pub fn wait(&mut self, upto: Position, who: Who) {
        self.ungathered += usize::from(upto > self.begun);
        self.waiting.push(Waiter { upto, who });
    }

    /// Notes that a commit that ends at `end` begins, for its leader's own records among others; the end of the
    /// one before.
    pub fn begin(&mut self, end: Position, since: u64, own: Option<Position>) -> Position {
        let before = mem::replace(&mut self.begun, end);
        let left = self.waiting.iter().filter(|waiter| waiter.upto > end).count();
        let gathered = mem::replace(&mut self.ungathered, left) - left;
        self.served = gathered + usize::from(own.is_some_and(|upto| upto > before));
        self.under_way.push_back(UnderWay { end, since, is_down: false });
        before
    }

    /// Whether the commits that were begun leave out a waiter, or the leader's own records.
    pub fn is_needed(&self, own: Option<Position>) -> bool {
        self.ungathered > 0 || own.is_some_and(|upto| upto > self.begun)
    }

    /// Notes that a commit is down; the last one that may be published now.
    pub fn down(&mut self, end: Position) -> Option<UnderWay> {
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
    pub fn covered(&mut self, upto: Position) -> Vec<Waiter> {
        self.waiting.extract_if(.., |waiter| waiter.upto <= upto).collect()
    }

    /// Takes all waiters: the journal has failed.
    pub fn all(&mut self) -> Vec<Waiter> {
        self.ungathered = 0;
        mem::take(&mut self.waiting)
    }

    /// Ends a turn if the leader need not go on; gives the waiter to wake to go on in its place.
    pub fn leave(&mut self, own: Option<Position>, lead: Lead) -> Option<Option<Waiter>> {
        let mut successor = None;
        if self.is_due(self.ungathered, self.leaders - 1) {
            // A thread that leads for a call serves on: no thread has to wake up then.
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
    /// Nobody is called yet.
    pub fn new() -> Seat {
        Seat { called: AtomicBool::new(false), queue: WaitQueue::new() }
    }

    /// Whether its owner was called.
    pub fn is_called(&self) -> bool {
        // Acquire: pairs with the Release in `call`.
        self.called.load(Ordering::Acquire)
    }

    /// Calls its owner, who wakes.
    pub fn call(&self) {
        // Release: pairs with the Acquire of the sleeper: it sees what its commit, or its predecessor, has left.
        self.called.store(true, Ordering::Release);
        self.queue.wake_all();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
