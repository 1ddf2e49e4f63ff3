//! Crash enumeration: sequences of operations on simulated media, crashed at their events, recovered, judged.
//!
//! A [`Bench`] is one ring, one kind of crash and one starting tree. A sequence runs on a copy of the start, by
//! one thread and without background work, so that its events follow from the operations alone. At a crash
//! point, each enumerated state is recovered as a new process would; what it shows goes before the oracle;
//! then the image is unmounted, checked, mounted again and must show the same. Of some states the recovery
//! itself is crashed once more; some images are filled, emptied and counted.

mod catalogue;
mod judge;

pub use catalogue::{operations, setup};

use crate::lab::{Lab, Live};
use crate::lib_target::LibTarget;
use crate::model::Model;
use crate::op::Op;
use crate::oracle::{Kept, Oracle};
use crate::target::Target;
use narufs::sim::{Crash, CrashState, Event, SimMedia};
use rand::rngs::StdRng;
use rand::seq::index::sample;
use rand::{Rng, SeedableRng};

/// How thoroughly a sequence is crashed.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Crash points at the most.
    pub points: usize,
    /// States of each at the most.
    pub states: usize,
    /// One state in so many is crashed again during its recovery.
    pub nested: u32,
    /// One state in so many is checked, mounted again and compared.
    pub again: u32,
    /// One state in so many is filled and emptied.
    pub filled: u32,
    /// Whether crash points go on through a checkpoint and an unmount after the operations.
    pub closing: bool,
}

impl Effort {
    /// Every point, every enumerated state.
    pub const FULL: Effort =
        Effort { points: usize::MAX, states: usize::MAX, nested: 97, again: 5, filled: 211, closing: true };
    /// A sample of a few states.
    pub const SAMPLE: Effort =
        Effort { points: 4, states: 3, nested: 61, again: 9, filled: 1499, closing: false };
    /// Many states of each of many points.
    pub const CLOSE: Effort =
        Effort { points: 40, states: 10, nested: 97, again: 9, filled: 997, closing: true };
}

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Sequences of operations.
    pub sequences: u64,
    /// Crash points.
    pub points: u64,
    /// States recovered and judged.
    pub states: u64,
    /// Of these: crashes inside a recovery.
    pub nested: u64,
    /// Images filled and emptied.
    pub filled: u64,
    /// Recovered states that had lost at least one unsynced operation.
    pub shorter: u64,
}

impl Tally {
    /// Adds another's counts.
    pub fn add(&mut self, other: &Tally) {
        self.sequences += other.sequences;
        self.points += other.points;
        self.states += other.states;
        self.nested += other.nested;
        self.filled += other.filled;
        self.shorter += other.shorter;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} sequences, {} crash points, {} states recovered ({} after a crash in recovery, {} had lost unsynced \
             operations), {} filled and emptied",
            self.sequences, self.points, self.states, self.nested, self.shorter, self.filled
        )
    }
}

/// A ring, a kind of crash, and a tree to start from.
pub struct Bench {
    lab: Lab,
    crash: Crash,
    start: CrashState,
    model: Model,
}

/// A sequence that ran: what the oracle says up to each event.
struct Ran {
    /// Events when the first operation began, and after each.
    marks: Vec<usize>,
    /// After so many operations returned: with the next under way, and without.
    oracles: Vec<(Oracle, Oracle)>,
}

impl Ran {
    fn at(&self, events: usize) -> &Oracle {
        let returned = self.marks.iter().rposition(|mark| *mark <= events).unwrap_or(0);
        let (during, after) = &self.oracles[returned];
        if events > self.marks[returned] { during } else { after }
    }
}

impl Bench {
    /// Makes the tree.
    ///
    /// # Errors
    /// What failed.
    pub fn new(lab: Lab, crash: Crash, tree: &[Op]) -> Result<Bench, String> {
        // Whatever core the thread runs on: the same lane takes the same blocks.
        narufs::lane::pin(Some(0));
        let sim = lab.format();
        let mut model = Model::default();
        let live = lab.mount(&sim).map_err(|e| format!("first mount: {e}"))?;
        for op in tree {
            perform(&live, op, model.apply(op))?;
        }
        live.unmount().map_err(|e| format!("first unmount: {e}"))?;
        let start = sim.crash_point(sim.events()).states(Crash::ProcessKill, 0).next();
        let start = start.ok_or("no state of the start")?;
        Ok(Bench { lab, crash, start, model })
    }

    fn kept(&self) -> Kept {
        if self.crash == Crash::ProcessKill || self.lab.ring.is_mapped() { Kept::All } else { Kept::Prefix }
    }

    /// Runs a sequence and crashes it.
    ///
    /// # Errors
    /// The first violation: the operations, the crash state, and what was wrong.
    pub fn run(&self, ops: &[Op], effort: &Effort, seed: u64, tally: &mut Tally) -> Result<(), String> {
        let described =
            |e: String| format!("{:?}, {:?}, {ops:?}, seed {seed}: {e}", self.lab.ring, self.crash);
        self.run_sequence(ops, effort, seed, tally).map_err(described)
    }

    fn run_sequence(&self, ops: &[Op], effort: &Effort, seed: u64, tally: &mut Tally) -> Result<(), String> {
        narufs::lane::pin(Some(0));
        let mut rng = StdRng::seed_from_u64(seed);
        let sim = self.start.restart();
        let live = self.lab.mount(&sim).map_err(|e| format!("mount of the start: {e}"))?;
        let mut oracle = Oracle::new(self.model.clone(), self.kept());
        let mut ran = Ran { marks: vec![sim.events()], oracles: Vec::new() };
        for op in ops {
            let mut during = oracle.clone();
            let _ = during.begun(op);
            ran.oracles.push((during, oracle.clone()));
            perform(&live, op, oracle.returned(op))?;
            ran.marks.push(sim.events());
        }
        ran.oracles.push((oracle.clone(), oracle));
        if effort.closing {
            live.unmount().map_err(|e| format!("unmount: {e}"))?;
        } else {
            drop(live);
        }
        tally.sequences += 1;
        let chosen = self.points(&sim, &ran.marks, effort, &mut rng);
        let mut points = sim.crash_points();
        for events in chosen {
            points.skip_to(events);
            let Some(point) = points.next() else { break };
            tally.points += 1;
            let oracle = ran.at(point.events);
            let states = match effort.states {
                usize::MAX => point.states(self.crash, rng.random()),
                count => point.sample(self.crash, rng.random(), count),
            };
            for state in states {
                self.judge(&state, oracle, effort, &mut rng, tally).map_err(|e| format!("{state}: {e}"))?;
            }
        }
        Ok(())
    }

    /// Event counts to crash at: those after which the possible states or the promises differ.
    fn points(&self, sim: &SimMedia, marks: &[usize], effort: &Effort, rng: &mut StdRng) -> Vec<usize> {
        let first = marks.first().copied().unwrap_or(0);
        let matters = |events: &usize| {
            if marks.contains(events) {
                return true;
            }
            let staged = self.crash == Crash::PowerLoss && !self.lab.ring.is_mapped();
            match sim.event(*events - 1) {
                Event::WriteIssued { .. } | Event::FlushEnded { .. } => true,
                Event::WriteEnded { .. } => self.crash == Crash::ProcessKill,
                Event::Store { .. } => !staged,
                Event::Fence { .. } => self.crash == Crash::PowerLoss && !staged,
                Event::WriteBack { .. } | Event::FlushBegan | Event::PmemAdded { .. } => false,
            }
        };
        let all: Vec<usize> = (first..=sim.events()).filter(matters).collect();
        let mut chosen = sample(rng, all.len(), effort.points.min(all.len())).into_vec();
        chosen.sort_unstable();
        chosen.into_iter().map(|at| all[at]).collect()
    }
}

/// Does an operation, which must answer as the model did.
fn perform(live: &Live, op: &Op, want: crate::model::Outcome) -> Result<(), String> {
    let got = LibTarget::new(live.fs()).apply(op);
    if got == want {
        Ok(())
    } else {
        Err(format!("{op:?} answered {}, expected {}", brief(&got), brief(&want)))
    }
}

fn brief(outcome: &crate::model::Outcome) -> String {
    match outcome {
        Ok(crate::model::Value::Unit) => "success".into(),
        Ok(crate::model::Value::Bytes(bytes)) => format!("{} bytes", bytes.len()),
        Err(errno) => std::io::Error::from_raw_os_error(*errno).to_string(),
    }
}
