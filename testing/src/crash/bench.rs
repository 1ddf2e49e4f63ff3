//! A sequence on a copy of its starting tree, and the points at which it is crashed.

use super::known::{Known, Under};
use super::{Effort, Tally};
use crate::lab::{Lab, Live, Ring, WINDOW};
use crate::lib_target::LibTarget;
use crate::model::{Model, Outcome, Value};
use crate::op::Op;
use crate::oracle::{Kept, Oracle};
use crate::target::Target;
use narufs_engine::format::ROOT_NID;
use narufs_engine::inode::{Time, hold};
use narufs_engine::sim::{Crash, CrashState, Event, SimMedia};
use narufs_engine::vfs::{Context, DirEntry, FileHandle, FileType, OpenFlags};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::index::sample;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Duration;

/// A ring, a kind of crash, and a tree to start from.
pub struct Bench {
    pub(super) lab: Lab,
    pub(super) crash: Crash,
    start: Arc<CrashState>,
    model: Model,
}

/// What may be found after a crash.
#[derive(Clone)]
pub(super) struct Promise {
    /// After the bench's kind of crash.
    now: Oracle,
    /// After a loss of power that follows it, where that may take more.
    power: Option<Oracle>,
}

impl Promise {
    fn each<R>(&mut self, mut f: impl FnMut(&mut Oracle) -> R) -> R {
        if let Some(power) = &mut self.power {
            f(power);
        }
        f(&mut self.now)
    }
}

/// A sequence that ran: what is promised up to each event.
pub(super) struct Ran {
    lags: bool,
    /// Events when the first operation began, and after each, the unmount among them.
    marks: Vec<usize>,
    /// The time of each mark.
    times: Vec<Duration>,
    /// After so many operations returned: with the next under way, and without.
    promises: Vec<(Promise, Promise)>,
    /// From so many events on, what was answered up to this time survives a loss of power.
    kept: Vec<(usize, Duration)>,
}

/// What is promised at a crash point.
pub(super) struct Promised<'r> {
    now: &'r Promise,
    /// The moments to which a loss of power may go back: what a mount that waits for the power durability would have
    /// promised at each of them.
    earlier: Vec<&'r Promise>,
    /// Which it is among those of the run.
    pub(super) under: Under,
}

impl Ran {
    fn new(events: usize, time: Duration, lags: bool) -> Ran {
        Ran { lags, marks: vec![events], times: vec![time], promises: Vec::new(), kept: Vec::new() }
    }

    fn note_kept(&mut self, events: usize, upto: Option<Duration>) {
        self.kept.extend(upto.map(|upto| (events, upto)));
    }

    /// A clean unmount leaves everything durable.
    fn note_unmount(&mut self, events: usize) {
        let Some((promise, _)) = self.promises.last() else { return };
        let mut promise = promise.clone();
        let _ = promise.each(|oracle| oracle.returned(&Op::SyncAll));
        self.promises.push((promise.clone(), promise));
        self.marks.push(events);
        self.times.extend(self.times.last().copied());
        self.note_kept(events, Some(Duration::MAX));
    }

    pub fn at(&self, events: usize) -> Promised<'_> {
        let returned = self.marks.iter().rposition(|mark| *mark <= events).unwrap_or(0);
        let (during, after) = &self.promises[returned];
        let kept = self.kept.iter().filter(|(from, _)| *from <= events).map(|(_, upto)| *upto).max();
        // The first answer that is lost came while its operation was under way.
        let may_be_lost = |op: &usize| kept.is_none_or(|kept| self.times[op + 1] > kept);
        let earlier = (0..returned).rev().filter(|op| self.lags && may_be_lost(op));
        let earlier: Vec<_> = earlier.map(|op| &self.promises[op].0).collect();
        let under_way = events > self.marks[returned];
        let under = (returned, under_way, earlier.len());
        Promised { now: if under_way { during } else { after }, earlier, under }
    }
}

impl Promised<'_> {
    /// What may be found after a crash, and another in the recovery; any of these.
    pub fn oracles(&self, crashes: &[Crash]) -> Vec<&Oracle> {
        let first = crashes.first();
        if !crashes.contains(&Crash::PowerLoss) {
            return vec![&self.now.now];
        }
        let moments = [self.now].into_iter().chain(self.earlier.iter().copied());
        moments
            .map(|promise| match first {
                Some(Crash::ProcessKill) => promise.power.as_ref().unwrap_or(&promise.now),
                _ => &promise.now,
            })
            .collect()
    }
}

impl Bench {
    /// Makes the tree.
    ///
    /// # Errors
    /// What failed.
    pub fn new(lab: Lab, crash: Crash, tree: &[Op]) -> Result<Bench, String> {
        // Whatever core the thread runs on: the same lane takes the same blocks.
        narufs_engine::lane::pin(Some(0));
        at_step(0);
        let sim = lab.format();
        let mut model = Model::default();
        let live = lab.mount(&sim).map_err(|e| format!("first mount: {e}"))?;
        for op in tree {
            perform(&live, &sim, op, model.apply(op), None)?;
        }
        live.unmount().map_err(|e| format!("first unmount: {e}"))?;
        let start = sim.crash_point(sim.events()).states(Crash::ProcessKill, 0).next();
        let start = Arc::new(start.ok_or("no state of the start")?);
        Ok(Bench { lab, crash, start, model })
    }

    /// Another for a ring of the same kind, which starts with the very same media: what is random in them, too.
    pub fn with(&self, ring: Ring, crash: Crash) -> Bench {
        let lab = Lab { ring, ..self.lab };
        Bench { lab, crash, start: Arc::clone(&self.start), model: self.model.clone() }
    }

    /// Media that hold the tree, cleanly unmounted.
    pub fn media(&self) -> SimMedia {
        self.start.restart()
    }

    /// The journal.
    pub fn ring(&self) -> Ring {
        self.lab.ring
    }

    /// What the tree is.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What is promised of a tree that is wholly durable.
    pub(super) fn promise(&self, model: Model) -> Promise {
        let synced_alone = self.lab.keeps_in_memory();
        let staged = !synced_alone && !self.lab.ring.is_mapped() && self.crash == Crash::ProcessKill;
        let all = !synced_alone && (self.crash == Crash::ProcessKill || self.lab.ring.is_mapped());
        let power = staged.then(|| Oracle::new(model.clone(), Kept::Prefix));
        Promise { now: Oracle::new(model, if all { Kept::All } else { Kept::Prefix }), power }
    }

    /// Runs a sequence and crashes it.
    ///
    /// # Errors
    /// The first violation: the operations, the crash state, and what was wrong.
    pub fn run(&self, ops: &[Op], effort: &Effort, seed: u64, tally: &mut Tally) -> Result<(), String> {
        self.run_knowing(&mut Known::default(), ops, effort, seed, tally)
    }

    /// The same where other benches may have run these operations.
    ///
    /// # Errors
    /// As [`Bench::run`].
    pub fn run_knowing(
        &self,
        known: &mut Known,
        ops: &[Op],
        effort: &Effort,
        seed: u64,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let described =
            |e: String| format!("{:?}, {:?}, {ops:?}, seed {seed}: {e}", self.lab.ring, self.crash);
        known.run();
        self.run_sequence(known, ops, effort, seed, tally).map_err(described)
    }

    fn run_sequence(
        &self,
        known: &mut Known,
        ops: &[Op],
        effort: &Effort,
        seed: u64,
        tally: &mut Tally,
    ) -> Result<(), String> {
        narufs_engine::lane::pin(Some(0));
        at_step(1);
        let mut rng = StdRng::seed_from_u64(seed);
        let sim = self.media();
        let live = self.lab.mount(&sim).map_err(|e| format!("mount of the start: {e}"))?;
        let start = self.promise(self.model.clone());
        let open = if effort.open { open_all(&live)? } else { Vec::new() };
        let mut ran = self.perform_all(&live, &sim, ops, start, effort.in_round, &mut rng)?;
        if effort.closing {
            open.into_iter().for_each(|handle| live.fs().release(handle, None));
            live.unmount().map_err(|e| format!("unmount: {e}"))?;
            ran.note_unmount(sim.events());
        } else {
            drop(live);
        }
        tally.sequences += 1;
        let mut points = sim.crash_points();
        for events in self.points(&sim, &ran, effort, &mut rng) {
            points.skip_to(events);
            let Some(point) = points.next() else { break };
            tally.points += 1;
            let states = match effort.states {
                usize::MAX => point.states(self.crash, rng.random()),
                count => point.sample(self.crash, rng.random(), count),
            };
            let promised = ran.at(point.events);
            for state in states {
                self.judge(known, &state, &promised, effort, &mut rng, tally)
                    .map_err(|e| format!("{state}: {e}"))?;
            }
        }
        Ok(())
    }

    /// Does the operations and notes what is promised.
    pub(super) fn perform_all(
        &self,
        live: &Live,
        sim: &SimMedia,
        ops: &[Op],
        mut promise: Promise,
        in_round: Option<usize>,
        rng: &mut StdRng,
    ) -> Result<Ran, String> {
        let mut ran = Ran::new(sim.events(), live.time(), self.lab.ring.may_lag());
        for (at, op) in ops.iter().enumerate() {
            self.pass(live, sim, &mut ran, rng)?;
            let mut during = promise.clone();
            let _ = during.each(|oracle| oracle.begun(op));
            ran.promises.push((during, promise.clone()));
            let want = promise.each(|oracle| oracle.returned(op));
            let answered = op.syncs() && want.is_ok();
            perform(live, sim, op, want, in_round.filter(|_| at + 1 == ops.len()))?;
            ran.marks.push(sim.events());
            ran.times.push(live.time());
            // A sync of all waits in any case; others are not answered while an older answer is at stake.
            let window = if *op == Op::SyncAll { Some(Duration::ZERO) } else { self.window() };
            let kept = window.filter(|_| answered).and_then(|window| live.time().checked_sub(window));
            ran.note_kept(sim.events(), kept);
        }
        ran.promises.push((promise.clone(), promise));
        self.pass(live, sim, &mut ran, rng)?;
        Ok(ran)
    }

    fn window(&self) -> Option<Duration> {
        (self.lab.ring == Ring::SsdWindow).then_some(WINDOW)
    }

    /// Lets some time pass, in which the streaming thread does its work, or waits for a device that is slow.
    fn pass(&self, live: &Live, sim: &SimMedia, ran: &mut Ran, rng: &mut StdRng) -> Result<(), String> {
        // No two answers at one time.
        live.pass(Duration::from_nanos(1));
        at_step(ran.marks.len());
        let Some(window) = self.window() else { return Ok(()) };
        let slow = rng.random_ratio(1, 3);
        for _ in 0..rng.random_range(0..4) {
            live.pass(window / 2);
            if !slow {
                live.stream().map_err(|e| format!("streaming: {e}"))?;
                ran.note_kept(sim.events(), live.time().checked_sub(window));
            }
        }
        Ok(())
    }

    /// Event counts to crash at: those that stand for all others, as the module says, or a sample of them.
    pub(super) fn points(&self, sim: &SimMedia, ran: &Ran, effort: &Effort, rng: &mut StdRng) -> Vec<usize> {
        // The unmount has a mark of its own.
        let before_last = 1 + usize::from(effort.closing);
        let first = if effort.last { ran.marks.iter().rev().nth(before_last) } else { ran.marks.first() };
        let (first, end) = (first.copied().unwrap_or(0), sim.events());
        let loses_stores = self.crash == Crash::PowerLoss && self.lab.ring.is_mapped();
        let mut all = Vec::new();
        let mut grown = false;
        for events in first..=end {
            let adds = match (events > first).then(|| sim.event(events - 1)) {
                Some(Event::WriteIssued { .. }) => true,
                Some(Event::Store { .. }) => loses_stores || self.crash == Crash::ProcessKill,
                _ => false,
            };
            grown |= adds;
            let takes = events == end
                || match sim.event(events) {
                    Event::FlushEnded { .. } | Event::WriteEnded { durable: true, .. } => {
                        self.crash == Crash::PowerLoss
                    }
                    Event::Fence { .. } => loses_stores,
                    Event::WriteEnded { .. } => self.crash == Crash::ProcessKill,
                    // Killed, each store leaves a state of its own.
                    Event::Store { .. } => self.crash == Crash::ProcessKill,
                    _ => false,
                };
            if ran.marks.contains(&events)
                || ran.kept.iter().any(|(from, _)| *from == events)
                || takes && grown
            {
                all.push(events);
                grown = false;
            }
        }
        let mut chosen = sample(rng, all.len(), effort.points.min(all.len())).into_vec();
        chosen.sort_unstable();
        chosen.into_iter().map(|at| all[at]).collect()
    }
}

/// The time of a step: the same operations leave the same content, and no two of them are in one tick.
fn at_step(step: usize) {
    const BEGINNING: Time = 1_700_000_000_000_000_000;
    const STEP: Time = 20_000_000;
    hold(Some(BEGINNING + STEP * step as Time));
}

/// Opens every file of the root for writing.
fn open_all(live: &Live) -> Result<Vec<FileHandle>, String> {
    let (fs, ctx, mut files) = (live.fs(), Context::root(), Vec::new());
    let dir = fs.opendir(&ctx, ROOT_NID).map_err(|e| format!("opening the root: {e}"))?;
    let mut note = |entry: &DirEntry<'_>| {
        files.extend((entry.file_type == FileType::Regular).then_some(entry.nid));
        true
    };
    fs.readdir(&dir, 0, &mut note).map_err(|e| format!("reading the root: {e}"))?;
    fs.release(dir, None);
    let open = |nid| fs.open(&ctx, nid, OpenFlags::WRITE_ONLY).map_err(|e| format!("opening {nid}: {e}"));
    files.into_iter().map(open).collect()
}

/// Does an operation, which must answer as the model did.
fn perform(
    live: &Live,
    sim: &SimMedia,
    op: &Op,
    want: Outcome,
    in_round: Option<usize>,
) -> Result<(), String> {
    let got = if let Some(writes) = in_round {
        let (fs, own, answer) = (Arc::clone(live.fs()), op.clone(), Arc::new(Mutex::new(None)));
        let said = Arc::clone(&answer);
        live.in_round(sim, writes, move || *said.lock() = Some(LibTarget::new(&fs).apply(&own)))
            .map_err(|e| format!("the round around {op:?}: {e}"))?;
        let answer = answer.lock().take();
        answer.ok_or("the round did not run it")?
    } else {
        LibTarget::new(live.fs()).apply(op)
    };
    if got == want {
        Ok(())
    } else {
        Err(format!("{op:?} answered {}, expected {}", brief(&got), brief(&want)))
    }
}

fn brief(outcome: &Outcome) -> String {
    match outcome {
        Ok(Value::Unit) => "success".into(),
        Ok(Value::Bytes(bytes)) => format!("{} bytes", bytes.len()),
        Err(errno) => std::io::Error::from_raw_os_error(*errno).to_string(),
    }
}
