//! The thread that brings home what only data records hold: beside the rounds, and ahead of them.
//!
//! What this leaves to others: what goes home and how (the observers), the flush and the head (the rounds).
//!
//! # Protocol
//! 1. A round says where the head will move to, and wakes the thread.
//! 2. The thread has the observers bring home what lies below that position, and notes how far it has come.
//! 3. While more than half of the ring is filled it goes on as far as a round would now, so that the next finds little
//!    to wait for. With less it sleeps: what is superseded or deleted before a round asks need not go home at all.
//! 4. The round waits until the thread has come as far as its position. It flushes the device after that, so the flush
//!    covers what was written.
//!
//! What goes home ahead of its round is an ordinary write-back: until the head passes its records, recovery redoes
//! them. A failure is told to the round that waits, and ends the thread: the file system goes read-only. Where there is
//! no thread a round does its work.

use super::Checkpointer;
use super::background::Background;
use crate::format::Position;
use crate::sync::{Arc, Condvar, Mutex};
use crate::{Error, Result, blocking};

/// What lies between how far the thread has come and how far it may go is at least this part of the ring when it goes
/// on by itself.
const TURN_PART: u64 = 16;

/// How far the thread has come, and how far it is to.
#[derive(Debug, Default)]
struct Progress {
    wanted: Position,
    reached: Position,
    running: bool,
    stop: bool,
    failed: Option<Error>,
}

/// What rounds and the thread know of one another.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    inside: Mutex<Progress>,
    /// Wakes the thread.
    wake: Condvar,
    /// Tells of its progress.
    moved: Condvar,
}

impl Cleaner {
    /// Has the thread bring home what lies below `upto`, if there is one.
    pub(super) fn ask(&self, upto: Position) {
        let mut inside = self.inside.lock();
        inside.wanted = inside.wanted.max(upto);
        self.wake.notify_one();
    }

    /// Returns once what lay below `upto` is written home, or with false if there is no thread for it.
    pub(super) fn wait(&self, upto: Position) -> Result<bool> {
        blocking::about_to_block();
        let mut inside = self.inside.lock();
        loop {
            match &inside.failed {
                Some(e) => return Err(e.clone()),
                None if inside.reached >= upto => return Ok(true),
                None if !inside.running => return Ok(false),
                None => self.moved.wait(&mut inside),
            }
        }
    }
}

impl Background {
    /// Starts the thread that brings data home for the rounds.
    pub fn cleaning(checkpointer: Arc<Checkpointer>) -> Result<Background> {
        checkpointer.cleaner.inside.lock().running = true;
        let ended = Ended(Arc::clone(&checkpointer));
        let run = move || {
            let ended = ended;
            clean(&ended.0);
        };
        Background::start("narufs-reclaim", run, move || {
            checkpointer.cleaner.inside.lock().stop = true;
            checkpointer.cleaner.wake.notify_one();
        })
    }
}

/// Tells whoever waits that there is no thread any more, after a panic too.
struct Ended(Arc<Checkpointer>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.cleaner.inside.lock().running = false;
        self.0.cleaner.moved.notify_all();
    }
}

fn clean(checkpointer: &Checkpointer) {
    let (store, cleaner) = (checkpointer.store(), &checkpointer.cleaner);
    while let Some(upto) = next(checkpointer) {
        let outcome = store.observers().iter().try_for_each(|observer| observer.pre_checkpoint(upto));
        let mut inside = cleaner.inside.lock();
        match outcome {
            Ok(()) => inside.reached = inside.reached.max(upto),
            Err(e) => {
                inside.failed = Some(e);
                return;
            }
        }
        drop(inside);
        cleaner.moved.notify_all();
    }
}

/// Sleeps until there is something to do: up to where; none at the end.
fn next(checkpointer: &Checkpointer) -> Option<Position> {
    let cleaner = &checkpointer.cleaner;
    let mut inside = cleaner.inside.lock();
    loop {
        if inside.stop {
            return None;
        }
        if inside.wanted > inside.reached {
            return Some(inside.wanted);
        }
        if let Some(journal) = checkpointer.store().journal() {
            let filled = journal.tail().saturating_sub(journal.head()) > journal.slots() / 2;
            let goal = checkpointer.old_goal(journal);
            let ahead = goal.saturating_sub(inside.reached.max(journal.head()));
            if filled && ahead > journal.slots() / TURN_PART {
                return Some(goal);
            }
        }
        cleaner.wake.wait(&mut inside);
    }
}
