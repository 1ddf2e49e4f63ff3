//! The states that a crash may leave.

use super::frontier::{Frontier, Pending, Progress};
use super::image::{PAGE, Page};
use super::media::SimMedia;
use super::plan::{Pick, SECTOR, SECTORS, draw, plan};
use crate::sync::Arc;

/// How the system went down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The machine lost power.
    PowerLoss,
    /// The process was killed; the machine went on.
    ProcessKill,
}

/// A place in the log at which to crash.
#[derive(Debug, Clone)]
pub struct CrashPoint {
    /// Events that had happened.
    pub events: usize,
    pub(super) frontier: Frontier,
    /// Memory and line of the store that was the last event: a kill may have cut it short.
    pub(super) storing: Option<(usize, usize)>,
}

/// Something that may be on media in one of several versions. Version 0 is what is surely there.
#[derive(Debug)]
pub(super) enum Unit {
    /// A block with pending writes.
    Block { block: u64, versions: Vec<Page>, steps: Vec<Step> },
    /// A cache line with pending stores.
    Line { pmem: usize, line: usize, versions: Vec<[u8; 64]>, steps: Vec<Step> },
}

/// When a unit would have come to a version, had everything reached the media in the order of issue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub at: u64,
    pub version: usize,
}

impl Unit {
    /// How many versions the unit may have after a crash.
    pub fn versions(&self) -> usize {
        match self {
            Unit::Block { versions, .. } => versions.len(),
            Unit::Line { versions, .. } => versions.len(),
        }
    }

    /// The steps that led here, in order.
    pub fn steps(&self) -> &[Step] {
        match self {
            Unit::Block { steps, .. } | Unit::Line { steps, .. } => steps,
        }
    }
}

/// Numbers each different content; the versions, and the steps between them.
fn versions_of<T: PartialEq>(surely: T, pending: impl Iterator<Item = (u64, T)>) -> (Vec<T>, Vec<Step>) {
    let (mut versions, mut steps) = (vec![surely], Vec::new());
    for (at, content) in pending {
        let known = versions.iter().position(|v| *v == content);
        let version = known.unwrap_or_else(|| {
            versions.push(content);
            versions.len() - 1
        });
        steps.push(Step { at, version });
    }
    (versions, steps)
}

impl CrashPoint {
    /// The states that a crash here may leave. The units are the writes to blocks and the cache lines that are
    /// pending: of up to ten, all subsets; of more none, all, each alone, each missing, and 200 subsets that
    /// `seed` determines; always all prefixes in the order of issue, and blocks and lines cut short at the grain
    /// of their media (512-byte sectors, 8-byte words), all such cuts where they are few.
    pub fn states(&self, crash: Crash, seed: u64) -> CrashStates {
        self.planned(crash, |units| plan(units, seed))
    }

    /// At most `count` of the states that a crash here may leave, drawn by `seed`: none and all of what is
    /// pending, one alone, one missing, prefixes, and mixtures. Cheap, however much is pending.
    pub fn sample(&self, crash: Crash, seed: u64, count: usize) -> CrashStates {
        self.planned(crash, |units| draw(units, seed, count))
    }

    fn planned(&self, crash: Crash, plan: impl FnOnce(&[Unit]) -> Vec<Vec<Pick>>) -> CrashStates {
        let mut base = self.frontier.clone();
        let units = match crash {
            Crash::PowerLoss => {
                base.lose_power();
                let mut units = block_units(&base, |_| true);
                units.extend(line_units(&base));
                base.pending.clear();
                for pmem in base.pmems.iter_mut().flatten() {
                    pmem.lines.clear();
                }
                units
            }
            Crash::ProcessKill => {
                base.forget_overwritten_failures();
                let mut units = block_units(&base, |p| p.progress != Progress::Done);
                units.extend(self.storing.and_then(|(pmem, line)| cut_short(&base, pmem, line)));
                units
            }
        };
        base.end_process();
        let plan = plan(&units);
        CrashStates {
            events: self.events,
            crash,
            base: Arc::new(base),
            units: Arc::new(units),
            plan: plan.into_iter(),
        }
    }
}

/// One unit for each block that has pending writes among which `open` ones may or may not be there.
fn block_units(frontier: &Frontier, open: impl Fn(&Pending) -> bool) -> Vec<Unit> {
    let mut blocks: Vec<u64> = Vec::new();
    for pending in frontier.pending.iter().filter(|p| open(p)) {
        if !blocks.contains(&pending.block) {
            blocks.push(pending.block);
        }
    }
    let unit = |block: u64| {
        let of_block = || frontier.pending.iter().filter(move |p| p.block == block);
        let surely = of_block().rfind(|p| !open(p)).map(|p| p.contents.clone());
        let surely = surely.or_else(|| frontier.device.get(block).cloned());
        let surely = surely.unwrap_or_else(|| Arc::new([0; PAGE]));
        let pending = of_block().filter(|p| open(p)).map(|p| (p.at, p.contents.clone()));
        let (versions, steps) = versions_of(surely, pending);
        Unit::Block { block, versions, steps }
    };
    blocks.into_iter().map(unit).filter(|u| u.versions() > 1).collect()
}

fn line_units(frontier: &Frontier) -> Vec<Unit> {
    let mut units = Vec::new();
    for (number, pmem) in frontier.pmems.iter().enumerate() {
        let Some(pmem) = pmem else { continue };
        for (line, history) in &pmem.lines {
            let pending = history.at.iter().copied().zip(history.states.iter().copied());
            let (versions, steps) = versions_of(pmem.persisted_line(*line), pending);
            if versions.len() > 1 {
                units.push(Unit::Line { pmem: number, line: *line, versions, steps });
            }
        }
    }
    units
}

/// A store that a kill may have cut short between two of its words.
fn cut_short(frontier: &Frontier, pmem: usize, line: usize) -> Option<Unit> {
    let history = frontier.pmems[pmem].as_ref()?.lines.get(&line)?;
    let versions: Vec<_> = history.states.iter().rev().take(history.last_store).copied().collect();
    (versions.len() > 1).then_some(Unit::Line { pmem, line, versions, steps: Vec::new() })
}

/// Enumerates crash states; see [`CrashPoint::states`].
pub struct CrashStates {
    events: usize,
    crash: Crash,
    base: Arc<Frontier>,
    units: Arc<Vec<Unit>>,
    plan: std::vec::IntoIter<Vec<Pick>>,
}

impl Iterator for CrashStates {
    type Item = CrashState;

    fn next(&mut self) -> Option<CrashState> {
        let picks = self.plan.next()?;
        let (base, units) = (self.base.clone(), self.units.clone());
        Some(CrashState { events: self.events, crash: self.crash, base, units, picks })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.plan.size_hint()
    }
}

impl ExactSizeIterator for CrashStates {}

/// What one crash left.
pub struct CrashState {
    events: usize,
    crash: Crash,
    base: Arc<Frontier>,
    units: Arc<Vec<Unit>>,
    picks: Vec<Pick>,
}

/// What a crash left on the media.
pub struct Left(Frontier);

impl Left {
    /// A number for what a process finds there: contents that are the same have the same one, others another, but for a
    /// chance in 2^128. What is not surely durable counts like what is.
    pub fn content(&self) -> u128 {
        self.0.content()
    }

    /// New media that hold it, for recovery to run on. Unchanged contents are shared.
    pub fn restart(self) -> SimMedia {
        SimMedia::from_frontier(self.0)
    }
}

impl CrashState {
    /// New media with these contents, for recovery to run on. Unchanged contents are shared.
    pub fn restart(&self) -> SimMedia {
        self.left().restart()
    }

    /// What it left.
    pub fn left(&self) -> Left {
        let mut frontier = Frontier::clone(&self.base);
        frontier.pending.retain(|p| p.progress == Progress::Done);
        for (unit, pick) in self.units.iter().zip(&self.picks) {
            match unit {
                Unit::Block { block, versions, .. } => {
                    let contents = match pick {
                        Pick::Version(0) => continue,
                        Pick::Version(version) => versions[*version].clone(),
                        Pick::Torn(sectors) => Arc::new(torn(versions, sectors)),
                    };
                    match self.crash {
                        Crash::PowerLoss => frontier.device.set(*block, contents),
                        // It arrived, but the device may still lose it.
                        Crash::ProcessKill => frontier.pending.push(Pending::done(*block, contents)),
                    }
                }
                Unit::Line { pmem, line, versions, .. } => {
                    let Pick::Version(version) = pick else { continue };
                    let Some(pmem) = &mut frontier.pmems[*pmem] else { continue };
                    match self.crash {
                        Crash::PowerLoss => pmem.set_line(*line, &versions[*version]),
                        // Versions count back from the whole store.
                        Crash::ProcessKill => pmem.cut_short(*line, *version),
                    }
                }
            }
        }
        Left(frontier)
    }
}

impl std::fmt::Display for CrashState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} after {} events;", self.crash, self.events)?;
        for (unit, pick) in self.units.iter().zip(&self.picks) {
            match unit {
                Unit::Block { block, .. } => write!(f, " block {block}:")?,
                Unit::Line { pmem, line, .. } => write!(f, " memory {pmem} line {line}:")?,
            }
            match pick {
                Pick::Version(version) => write!(f, "{version}/{}", unit.versions() - 1)?,
                Pick::Torn(sectors) => write!(f, "{sectors:?}")?,
            }
        }
        Ok(())
    }
}

fn torn(versions: &[Page], sectors: &[u8; SECTORS]) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    for (sector, version) in sectors.iter().enumerate() {
        let range = sector * SECTOR..(sector + 1) * SECTOR;
        bytes[range.clone()].copy_from_slice(&versions[usize::from(*version)][range]);
    }
    bytes
}
