//! Checkpoint: dirty metadata goes home, and the journal's head moves on.
//!
//! One round at a time. It knows nothing of what pages mean (checksums and the NAT index's hints aside), and
//! nothing of how records are logged.
//!
//! # A round, in this order
//! 1. Everything logged so far is committed against a loss of power; the end of that commit is where the head
//!    will move. In the background an earlier commit will do, if it covers the most of what is in the ring: then the
//!    round waits neither for a device nor for a thread that was set aside in the midst of its record; and where the
//!    metadata that the round writes are little beside what the ring holds, an older one, as old as leaves enough room:
//!    what is younger may be superseded or deleted before it is due. A commit covers only sealed records, and a record
//!    is applied before it is sealed, so every page that a record below has changed is clean at home or dirty in memory
//!    now.
//! 2. Observers bring home what only data records below that position hold. Nothing in 3 to 6 depends on it, nor it
//!    on them: in the background both go on side by side (`cleaner`). What no flush of 5 or 6 has covered when both
//!    are over, one more does.
//! 3. The dirty lists are taken. Several threads (`write_home`) claim pages by compare-and-swap, copy their images
//!    under the latch, and checksum the copies. An image's *tag* is the end of the highest record that it holds; it
//!    may lie far above the head's new place, for a page goes on changing.
//! 4. Everything up to the highest tag of the thread's batch is made durable: an image never outruns its records.
//! 5. The images go to the thread's part of the double-write area, with their round, homes, tags and checksums;
//!    flush. Why that is enough to mend what a crash tears, with many batches under way: `area`.
//! 6. The images go home, neighbours in one request, many in flight; flush. From 3 on for the thread's next batch.
//! 7. Everything logged by now is made durable: a page whose block was freed meanwhile was not written, so the
//!    head may pass its earlier changes only once the record that freed it cannot be lost.
//! 8. The head is set durably, with the round's number; credits return, and freed blocks may be reused.
//!
//! A crash before 8 leaves a round that did not finish: recovery restores from the double-write area what 6
//! may have torn. A page that changes between 3 and 6 stays dirty and goes into the next round: no page is
//! written twice in flight. An error that retries do not cure makes the file system read-only.
//!
//! The scratch profile has steps 3 and 6 alone, without a flush: its pages go to the spill space to make room in
//! memory, and nobody reads them after the mount. An error leaves it as it was, with the pages that did not go dirty:
//! operations go on until far too much is dirty, from then on each has one more round tried, and fails with it.

mod area;
mod background;
mod claims;
mod cleaner;
mod images;
#[cfg(all(test, loom))]
mod loom_models;
mod stats;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod tried;
mod write_home;

pub use background::Background;
pub use stats::{CheckpointStats, Phase, PhaseCount};

use crate::Result;
#[cfg(feature = "baselines")]
use crate::baseline::CheckpointBaseline;
use crate::device::BLOCK_SIZE;
use crate::format::{Position, SLOT_SIZE};
use crate::journal::{Durability, MountJournal};
use crate::planted::{self, Bug};
use crate::pmem::DurabilityLevel;
use crate::store::{BrokenOff, MakeRoom, Profile, Short, Store};
use crate::sync::{Arc, Mutex};
use cleaner::Cleaner;
use std::fmt;
use std::time::Instant;

/// What marks the images of a round.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoundId {
    /// The mount epoch.
    pub epoch: u64,
    /// Counts rounds through all mounts.
    pub number: u64,
}

/// A background round begins with a commit of its own where at least this part of what is in the ring lacks one.
const PENDING_PART: u64 = 4;

/// A round passes only what is old if the dirty metadata are at most this part of what the ring holds: all of them are
/// written, however far the head moves.
const METADATA_PART: u64 = 8;
/// It passes at least this part of what the ring holds.
const PASSED_PART: u64 = 4;

/// What a round is to pass, and how its steps 2 and 3 to 6 follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Steps {
    /// Everything that was logged; in turn.
    AllInTurn,
    /// What is old; in turn.
    OldInTurn,
    /// What is old; side by side.
    OldSideBySide,
}

/// Runs the rounds of one store, one at a time; shared through an [`Arc`].
///
/// Rounds are run by a thread ([`Background::checkpoints`]), or, where none is started, by the operations that find
/// one due (`run_inline`); besides by whoever asks for one.
pub struct Checkpointer {
    store: Arc<Store>,
    /// The last round that finished; its lock lets one run at a time.
    last: Mutex<RoundId>,
    cleaner: Cleaner,
    stats: stats::Counters,
}

impl Checkpointer {
    /// Of a store whose pages nobody else writes home.
    pub fn new(store: Arc<Store>) -> Checkpointer {
        Checkpointer {
            store,
            last: Mutex::default(),
            cleaner: Cleaner::default(),
            stats: stats::Counters::default(),
        }
    }

    /// The store whose pages go home.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Says which round finished last, when the journal begins.
    pub(crate) fn begin_after(&self, last: RoundId) {
        *self.last.lock() = last;
    }

    /// Has operations run the rounds: there is no background thread. By the mount, before anybody else has the store.
    pub(crate) fn run_inline(self: &Arc<Self>) {
        let rounds: Arc<dyn MakeRoom> = Arc::clone(self) as Arc<dyn MakeRoom>;
        self.store.set_make_room(&rounds);
    }

    /// Runs a round: afterwards the head has passed every record that was logged before the call. May sleep.
    ///
    /// # Errors
    /// The file system is read-only, or has just become so for want of a working device; in the scratch profile what
    /// the spill space said, and it can be tried again.
    pub fn checkpoint(&self) -> Result<()> {
        self.checkpoint_as(Steps::AllInTurn)
    }

    /// Runs a round that need not pass the youngest records: so that there is room, but not for a caller who has found
    /// none. May sleep.
    pub(crate) fn checkpoint_old(&self) -> Result<()> {
        self.checkpoint_as(Steps::OldInTurn)
    }

    /// As [`Checkpointer::checkpoint`], by the background thread.
    fn checkpoint_in_background(&self) -> Result<()> {
        self.checkpoint_as(Steps::OldSideBySide)
    }

    fn checkpoint_as(&self, steps: Steps) -> Result<()> {
        let mut last = self.last.lock();
        self.store.check_writable()?;
        // Pages that a round has claimed are on no list, and no later one may pass their records.
        let _broken_off = BrokenOff::watch(&self.store, "a checkpoint broke off");
        let running = self.store.signal().round_begins();
        let next = RoundId { number: last.number + 1, ..*last };
        let began = Instant::now();
        let done = self.round(next, steps);
        if !matches!(done, Ok(None)) || self.store.journal().is_none() {
            self.stats.rounds.add(1);
            self.stats.ns.add(stats::nanoseconds_since(began));
        }
        if !self.store.profile().keeps() {
            self.store.failures.note(done.as_ref().err().cloned());
        }
        // Before the lock is given up, for the next round says for itself that it runs; and after what is noted of a
        // failure: who sees that no round is running and waits on would have another tried.
        drop(running);
        match &done {
            Ok(passed) => {
                last.number += u64::from(passed.is_some());
                // As of this round: without a journal the head is the tail, and what is freed from now on may be on its
                // way home in the next.
                let durable = self.store.committed(DurabilityLevel::Power);
                let head = self.store.journal().map_or(durable, |journal| journal.head());
                // Without a journal, before another round: it may write what was freed by a record that has its end and is
                // not applied, which counts as passed.
                let last = self.store.journal().is_none().then_some(last);
                // Even if that is no news: another may have read the same and not yet told.
                for observer in self.store.observers() {
                    observer.durable(durable);
                    observer.head_passed(head);
                }
                drop(last);
                if self.store.profile() != Profile::InMemory
                    && self.store.dirty.count() >= self.store.dirty_limit
                {
                    // Who is throttled has asked once, for this round.
                    self.store.signal().need_round();
                }
            }
            Err(e) if self.store.profile().keeps() => self.store.fail(format!("a checkpoint failed: {e}")),
            // Nothing is lost: what did not go is dirty still.
            Err(_) => {}
        }
        self.store.signal().wake_throttled();
        done.map(drop)
    }

    /// Steps 1 to 8; the new head, or none if there was nothing to do.
    fn round(&self, id: RoundId, steps: Steps) -> Result<Option<Position>> {
        #[cfg(feature = "baselines")]
        let steps = match (self.store.baselines().checkpoint, steps) {
            // One thread does all of it.
            (CheckpointBaseline::One | CheckpointBaseline::Batched, Steps::OldSideBySide) => Steps::OldInTurn,
            (_, steps) => steps,
        };
        let Some(journal) = self.store.journal() else {
            // Without spill space there is nowhere to go.
            let written = if self.store.profile() == Profile::InMemory { Ok(()) } else { self.write_all(id) };
            return written.map(|()| None);
        };
        let tail = journal.tail();
        let used = tail.saturating_sub(journal.head());
        let pending = tail.saturating_sub(journal.committed(DurabilityLevel::Power));
        if steps == Steps::AllInTurn || pending * PENDING_PART >= used {
            self.stats.time(Phase::Commit, || self.store.commit_upto(tail, Durability::Power))?;
        }
        let target = match steps {
            Steps::AllInTurn => journal.committed(DurabilityLevel::Power),
            Steps::OldInTurn | Steps::OldSideBySide => journal.commit_beyond(self.old_goal(journal)),
        };
        if target == journal.head() && self.store.dirty.count() == 0 {
            return Ok(None);
        }
        let stats = &self.stats;
        let observed = || {
            stats.time(Phase::Data, || {
                self.store.observers().iter().try_for_each(|observer| observer.pre_checkpoint(target))
            })
        };
        match steps {
            Steps::AllInTurn | Steps::OldInTurn => observed().and_then(|()| self.write_all(id))?,
            Steps::OldSideBySide => {
                self.cleaner.ask(target);
                let written = self.write_all(id);
                let cleaned = stats.time(Phase::Data, || self.cleaner.wait(target));
                written.and(if cleaned? { Ok(()) } else { observed() })?;
            }
        }
        stats.time(Phase::Retire, || self.retire(journal, target, id)).map(Some)
    }

    /// Steps 7 and 8; the new head.
    fn retire(&self, journal: &MountJournal, target: Position, id: RoundId) -> Result<Position> {
        self.store.check_observed()?;
        if !planted::is(Bug::HeadMovedBeforeFlush) && !planted::is(Bug::AreaReusedEarly) {
            self.store.device().flush()?;
        }
        if !planted::is(Bug::ForgottenBeforeLog) {
            self.store.commit_upto(journal.tail(), Durability::Power)?;
        }
        let passed = if planted::is(Bug::HeadPassesYoung) {
            journal.committed(DurabilityLevel::Power)
        } else {
            target
        };
        journal.advance_head(passed, id.number)?;
        Ok(passed)
    }

    /// How far a round that passes what is old goes, at the least.
    fn old_goal(&self, journal: &MountJournal) -> Position {
        let (head, tail) = (journal.head(), journal.tail());
        let used = tail.saturating_sub(head);
        let metadata = self.store.dirty.count() as u64 * BLOCK_SIZE as u64;
        if metadata * METADATA_PART > used * SLOT_SIZE as u64 {
            return journal.committed(DurabilityLevel::Power);
        }
        let kept = journal.kept_young().min(used - used / PASSED_PART);
        (tail - kept).min(journal.committed(DurabilityLevel::Power))
    }

    /// Rounds until the journal is empty and nothing is dirty: the end of a mount. Nobody logs meanwhile.
    pub(crate) fn drain(&self) -> Result<()> {
        loop {
            self.checkpoint()?;
            let empty = self.store.journal().is_none_or(|journal| journal.head() == journal.tail());
            if empty && self.store.dirty.unwritten() == 0 {
                return Ok(());
            }
        }
    }
}

impl MakeRoom for Checkpointer {
    fn make_room(&self, short: Short) -> Result<()> {
        // Within a round, what it calls must make do with the reserve.
        if self.last.try_lock().is_none() {
            return Ok(());
        }
        match short {
            Short::Journal => self.checkpoint(),
            Short::Soon => self.checkpoint_old(),
        }
    }
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer").finish_non_exhaustive()
    }
}
