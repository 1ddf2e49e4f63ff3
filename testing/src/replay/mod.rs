//! What losses of power could have left of a disk, from a record of what a mount wrote to it.
//!
//! QEMU's blklogwrites records each write, flush and discard of a machine in which a load works (testing/machines:
//! `recorded.sh`, `load.py`, `loads`); it tells of each operation that has returned in sectors behind the file system, so that
//! the record has them in their order. [`log`] reads it, [`states`] makes of it what could have been left: what was
//! written before a flush began is there, of what was written since any part, sector by sector. [`look`] mounts such a
//! state and checks it; [`oracle`] (files), [`database`], [`git`], [`mail`] and [`postgres`] judge what is there of a load by
//! what may be there, which [`acked`] says.
//! With the journal in persistent memory beside the disk there are [`moments`] at which both are known.
//!
//! Left to others: a write that was under way while a flush was counts as flushed if it ended before that (the record has
//! ends, not beginnings); the states that `narufs_engine::sim` enumerates of single operations.
//!
//! Invariants: a record is a stranger's word: what it says beyond the disk or its own end is an error in words.

pub mod acked;
pub mod database;
pub mod git;
pub mod log;
pub mod look;
pub mod mail;
pub mod moments;
pub mod oracle;
pub mod postgres;
pub mod states;

use crate::outlive::Outcome;
use acked::{Acked, Durability, Found, Told};
use log::Log;
use look::{Kind, Load};
use moments::Moment;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use states::{Disk, Event};
use std::fmt;

/// Failures that are told one by one.
const TOLD: u64 = 5;
/// As much as is told of each: a check of a file system may complain of all that there is.
const LINE: usize = 400;

/// What is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The file system.
    pub kind: Kind,
    /// What worked on it.
    pub load: Load,
    /// What the mount promised it.
    pub durability: Durability,
    /// Sectors that it has; the next ones are the load's.
    pub sectors: usize,
    /// Whether the disk does what a flush asks for. One that does not must be found to lose something; what was there when the
    /// load began it has.
    pub flushes: bool,
    /// Random states between two flushes.
    pub states: u64,
    /// Where their choices come from.
    pub seed: u64,
}

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Entries of the record.
    pub entries: u64,
    /// Flushes with anything to flush, since the load began.
    pub flushes: u64,
    /// States looked at.
    pub states: u64,
    /// Those that contradict what was acknowledged, or cannot be mounted, or are damaged.
    pub failed: u64,
    /// Those that are of an earlier moment, as a window permits: something is missing that was acknowledged.
    pub earlier: u64,
    /// Operations acknowledged by the end of the record.
    pub acknowledged: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { entries, flushes, states, failed, earlier, acknowledged } = self;
        write!(
            f,
            "{entries} entries, {acknowledged} operations acknowledged, {flushes} flushes, {states} states, {failed} failed, {earlier} of an earlier moment"
        )
    }
}

/// Goes through a record from its beginning. Where there are moments, only those are looked at.
///
/// # Errors
/// A record that is none, or that ends in the middle of an entry.
pub fn run(log: &mut Log, plan: &Plan, moments: &[Moment]) -> Outcome<Tally> {
    let mut coming = moments.iter().peekable();
    let mut replay = Replay {
        plan: *plan,
        disk: Disk::new(plan.sectors),
        acked: Acked::default(),
        pending: Vec::new(),
        random: StdRng::seed_from_u64(plan.seed),
        tally: Tally::default(),
    };
    while let Some(entry) = log.next_entry()? {
        replay.tally.entries += 1;
        while let Some(moment) = coming.next_if(|moment| moment.size < log.at()) {
            replay.moment(&std::fs::read(&moment.memory)?);
        }
        if entry.flushes && plan.flushes {
            if moments.is_empty() { replay.flush() } else { replay.settle() }
        }
        if let Some(event) = states::event(entry, plan.sectors)? {
            let begins = matches!(event, Event::Acknowledged(Told { number: 0, .. }));
            replay.pending.push(event);
            // Else what such a disk leaves would be no file system at all, which tells nothing of who judges the load.
            if begins && !plan.flushes {
                replay.settle();
            }
        }
    }
    if moments.is_empty() {
        replay.flush()
    } else {
        replay.settle()
    }
    replay.tally.acknowledged = replay.acked.total();
    Ok(replay.tally)
}

struct Replay {
    plan: Plan,
    /// As the last flush has left it.
    disk: Disk,
    acked: Acked,
    /// Since then.
    pending: Vec<Event>,
    random: StdRng,
    tally: Tally,
}

impl Replay {
    /// A flush begins, or the record ends: some of what may be there if the power goes before it ends, then what is there
    /// when it has ended.
    fn flush(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let changes = pending.iter().any(Event::changes);
        if changes {
            for _ in 0..self.plan.states {
                self.some_of(&pending);
            }
        }
        self.pending = pending;
        self.settle();
        if changes && self.acked.has_begun() {
            self.tally.flushes += 1;
            self.count(self.judge(self.disk.bytes(), None, &self.acked), "at a flush");
        }
    }

    /// All that was written is on the medium.
    fn settle(&mut self) {
        for event in self.pending.drain(..) {
            self.disk.apply(&event);
            self.acked.hear(&event);
        }
    }

    /// The power goes at some moment, and leaves some of what was written by then.
    fn some_of(&mut self, pending: &[Event]) {
        let until = self.random.random_range(1..=pending.len());
        let mut acked = self.acked.clone();
        pending[..until].iter().for_each(|event| acked.hear(event));
        if !acked.has_begun() {
            return;
        }
        let odds = [0.1, 0.5, 0.9][self.random.random_range(0..3)];
        let bytes = self.disk.some_of(&pending[..until], odds, &mut self.random);
        self.count(self.judge(&bytes, None, &acked), "between flushes");
    }

    /// The power goes at this moment, and leaves what the memory holds, and of the disk what was flushed and some of what was
    /// written since.
    fn moment(&mut self, memory: &[u8]) {
        let mut acked = self.acked.clone();
        self.pending.iter().for_each(|event| acked.hear(event));
        if !acked.has_begun() {
            return;
        }
        // As many as there are different ones: with nothing to be flushed, one.
        let states = if self.pending.iter().any(Event::changes) { self.plan.states.max(1) } else { 1 };
        for _ in 0..states {
            let odds = [0.0, 0.1, 0.5, 0.9, 1.0][self.random.random_range(0..5)];
            let bytes = self.disk.some_of(&self.pending, odds, &mut self.random);
            self.count(self.judge(&bytes, Some(memory), &acked), "at a moment");
        }
    }

    /// Whether it is of an earlier moment.
    fn judge(&self, bytes: &[u8], memory: Option<&[u8]>, acked: &Acked) -> Result<bool, String> {
        let Plan { kind, load, durability, .. } = self.plan;
        let found: Found = look::judge(kind, load, bytes, memory, &acked.allowed(durability))?;
        if acked.at_one_moment(&found) {
            return Ok(acked.is_ahead_of(&found));
        }
        Err(format!(
            "of the processes operations up to {found:?} are there, which were never the last together"
        ))
    }

    fn count(&mut self, judged: Result<bool, String>, when: &str) {
        self.tally.states += 1;
        let why = match judged {
            Ok(earlier) => {
                self.tally.earlier += u64::from(earlier);
                return;
            }
            Err(why) => why,
        };
        self.tally.failed += 1;
        if self.tally.failed <= TOLD {
            let why: String = why.chars().take(LINE).collect();
            println!("entry {}, {when}, state {}: {why}", self.tally.entries, self.tally.states);
        }
    }
}

#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod tests;
