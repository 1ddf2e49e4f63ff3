//! The states that a crash may leave.

use std::collections::HashSet;

use super::frontier::{Frontier, Pending, Progress};
use super::image::{PAGE, Page};
use super::media::SimMedia;
use crate::sync::Arc;

/// How the system went down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The machine lost power.
    PowerLoss,
    /// The process was killed; the machine went on.
    ProcessKill,
}

/// Combinations up to which all of them are tried.
const ALL_UPTO: u64 = 1 << 10;
/// Random combinations tried beyond that.
const SAMPLES: usize = 200;
const SECTOR: usize = 512;

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
enum Unit {
    Block { block: u64, versions: Vec<Page> },
    Line { pmem: usize, line: usize, versions: Vec<[u8; 64]> },
}

/// What one unit became.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Pick {
    Version(usize),
    /// A version for each sector of a block.
    Torn([u8; PAGE / SECTOR]),
}

impl Unit {
    fn versions(&self) -> usize {
        match self {
            Unit::Block { versions, .. } => versions.len(),
            Unit::Line { versions, .. } => versions.len(),
        }
    }
}

impl CrashPoint {
    /// The states that a crash here may leave: all of them if they are few; else none and all of what is
    /// pending, each alone, each missing, all prefixes, and a sample that `seed` determines.
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
        let mut versions = vec![surely.unwrap_or_else(|| Arc::new([0; PAGE]))];
        for pending in of_block().filter(|p| open(p)) {
            if !versions.contains(&pending.contents) {
                versions.push(pending.contents.clone());
            }
        }
        Unit::Block { block, versions }
    };
    blocks.into_iter().map(unit).filter(|u| u.versions() > 1).collect()
}

fn line_units(frontier: &Frontier) -> Vec<Unit> {
    let mut units = Vec::new();
    for (number, pmem) in frontier.pmems.iter().enumerate() {
        let Some(pmem) = pmem else { continue };
        for (line, history) in &pmem.lines {
            let mut versions = vec![pmem.persisted_line(*line)];
            for state in &history.states {
                if !versions.contains(state) {
                    versions.push(*state);
                }
            }
            if versions.len() > 1 {
                units.push(Unit::Line { pmem: number, line: *line, versions });
            }
        }
    }
    units
}

/// A store that a kill may have cut short between two of its words.
fn cut_short(frontier: &Frontier, pmem: usize, line: usize) -> Option<Unit> {
    let history = frontier.pmems[pmem].as_ref()?.lines.get(&line)?;
    let versions: Vec<_> = history.states.iter().rev().take(history.last_store).copied().collect();
    (versions.len() > 1).then_some(Unit::Line { pmem, line, versions })
}

/// The combinations to try, each once.
fn plan(units: &[Unit], seed: u64) -> Vec<Vec<Pick>> {
    let none = vec![Pick::Version(0); units.len()];
    let all: Vec<Pick> = units.iter().map(|u| Pick::Version(u.versions() - 1)).collect();
    let count = units.iter().try_fold(1u64, |n, u| n.checked_mul(u.versions() as u64));
    let mut plan = Vec::new();
    if let Some(count) = count.filter(|n| *n <= ALL_UPTO) {
        for mut number in 0..count {
            plan.push(Vec::with_capacity(units.len()));
            for unit in units {
                let versions = unit.versions() as u64;
                plan.last_mut().expect("just pushed").push(Pick::Version((number % versions) as usize));
                number /= versions;
            }
        }
    } else {
        plan.push(none.clone());
        plan.push(all.clone());
        for (at, unit) in units.iter().enumerate() {
            for version in 0..unit.versions() {
                plan.push(with(&none, at, Pick::Version(version)));
                plan.push(with(&all, at, Pick::Version(version)));
            }
            plan.push([&all[..=at], &none[at + 1..]].concat());
        }
        let mut random = SplitMix(seed);
        for _ in 0..SAMPLES {
            plan.push(units.iter().map(|unit| random.pick(unit)).collect());
        }
    }
    // Torn blocks: the first half alone, the second half alone, every other sector, among none and all.
    for (at, unit) in units.iter().enumerate() {
        if let Unit::Block { versions, .. } = unit {
            let last = (versions.len() - 1) as u8;
            for mask in [0x0f_u8, 0xf0, 0x55] {
                let torn = Pick::Torn(std::array::from_fn(|s| if mask >> s & 1 == 1 { last } else { 0 }));
                plan.push(with(&none, at, torn));
                plan.push(with(&all, at, torn));
            }
        }
    }
    let mut seen = HashSet::new();
    plan.retain(|picks| seen.insert(picks.clone()));
    plan
}

/// Combinations drawn at random, each once.
fn draw(units: &[Unit], seed: u64, count: usize) -> Vec<Vec<Pick>> {
    let none = vec![Pick::Version(0); units.len()];
    if units.is_empty() {
        return vec![none];
    }
    let all: Vec<Pick> = units.iter().map(|u| Pick::Version(u.versions() - 1)).collect();
    let mut random = SplitMix(seed);
    let mut seen = HashSet::new();
    for _ in 0..count {
        let at = (random.next() % units.len() as u64) as usize;
        let picks = match random.next() % 8 {
            0 => none.clone(),
            1 => all.clone(),
            2 => with(&none, at, random.pick(&units[at])),
            3 => with(&all, at, random.pick(&units[at])),
            4 => [&all[..=at], &none[at + 1..]].concat(),
            _ => units.iter().map(|unit| random.pick(unit)).collect(),
        };
        seen.insert(picks);
    }
    let mut plan: Vec<_> = seen.into_iter().collect();
    plan.sort_unstable();
    plan
}

fn with(picks: &[Pick], at: usize, pick: Pick) -> Vec<Pick> {
    let mut picks = picks.to_vec();
    picks[at] = pick;
    picks
}

/// A small generator, so that a seed gives the same states for ever.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn pick(&mut self, unit: &Unit) -> Pick {
        let versions = unit.versions() as u64;
        match unit {
            Unit::Block { .. } if self.next().is_multiple_of(4) => {
                Pick::Torn(std::array::from_fn(|_| (self.next() % versions) as u8))
            }
            _ => Pick::Version((self.next() % versions) as usize),
        }
    }
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

impl CrashState {
    /// New media with these contents, for recovery to run on. Unchanged contents are shared.
    pub fn restart(&self) -> SimMedia {
        let mut frontier = Frontier::clone(&self.base);
        frontier.pending.retain(|p| p.progress == Progress::Done);
        for (unit, pick) in self.units.iter().zip(&self.picks) {
            match unit {
                Unit::Block { block, versions } => {
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
                Unit::Line { pmem, line, versions } => {
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
        SimMedia::from_frontier(frontier)
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

fn torn(versions: &[Page], sectors: &[u8; PAGE / SECTOR]) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    for (sector, version) in sectors.iter().enumerate() {
        let range = sector * SECTOR..(sector + 1) * SECTOR;
        bytes[range.clone()].copy_from_slice(&versions[usize::from(*version)][range]);
    }
    bytes
}
