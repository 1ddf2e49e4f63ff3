//! Which of the states that a crash may leave are tried.
//!
//! The grain of a block is its 512-byte sector, that of a cache line the eight-byte word in the order of the
//! stores. A plan names a version for each unit, and is made of different contents alone: a cut that leaves what
//! another already leaves is not tried twice.

use std::collections::HashSet;

use super::crash::Unit;
use super::image::{PAGE, Page};

pub(super) const SECTOR: usize = 512;
pub(super) const SECTORS: usize = PAGE / SECTOR;

/// Units up to which all subsets are tried.
const ALL_UPTO: usize = 10;
/// Sectors of one block up to which all subsets are tried.
const SECTORS_UPTO: usize = 6;
/// Random combinations tried beyond that.
const SAMPLES: usize = 200;

/// What one unit became.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Pick {
    Version(usize),
    /// A version for each sector of a block.
    Torn([u8; SECTORS]),
}

/// A pick for each unit.
type Picks = Vec<Pick>;

/// The combinations to try, each once.
pub(super) fn plan(units: &[Unit], seed: u64) -> Vec<Picks> {
    let (none, all) = none_and_all(units);
    let mut plan = vec![none.clone(), all.clone()];
    match whole_choices(units).or_else(|| sector_choices(units)).or_else(|| unit_choices(units)) {
        Some(choices) => every_combination(&choices, &mut plan),
        None => {
            let mut random = SplitMix(seed);
            plan.extend((0..SAMPLES).map(|_| units.iter().map(|unit| random.pick(unit)).collect::<Picks>()));
        }
    }
    for (at, unit) in units.iter().enumerate() {
        // Alone and missing, in each of its versions.
        for pick in (0..unit.versions()).map(Pick::Version).chain(cuts(unit)) {
            plan.push(with(&none, at, pick));
            plan.push(with(&all, at, pick));
        }
    }
    plan.extend(prefixes(units, &none));
    plan.iter_mut().for_each(|picks| normalise(units, picks));
    let mut seen = HashSet::new();
    plan.retain(|picks| seen.insert(picks.clone()));
    plan
}

/// Combinations drawn at random, each once.
pub(super) fn draw(units: &[Unit], seed: u64, count: usize) -> Vec<Picks> {
    let (none, all) = none_and_all(units);
    if units.is_empty() {
        return vec![none];
    }
    let prefixes = prefixes(units, &none);
    let mut random = SplitMix(seed);
    let mut seen = HashSet::new();
    for _ in 0..count {
        let at = random.below(units.len());
        let mut picks = match random.below(8) {
            0 => none.clone(),
            1 => all.clone(),
            2 => with(&none, at, random.pick(&units[at])),
            3 => with(&all, at, random.pick(&units[at])),
            4 if !prefixes.is_empty() => prefixes[random.below(prefixes.len())].clone(),
            _ => units.iter().map(|unit| random.pick(unit)).collect(),
        };
        normalise(units, &mut picks);
        seen.insert(picks);
    }
    let mut plan: Vec<_> = seen.into_iter().collect();
    plan.sort_unstable();
    plan
}

fn none_and_all(units: &[Unit]) -> (Picks, Picks) {
    let last = |unit: &Unit| unit.steps().last().map_or(unit.versions() - 1, |step| step.version);
    (vec![Pick::Version(0); units.len()], units.iter().map(|u| Pick::Version(last(u))).collect())
}

/// Every version of every unit, if there are few combinations.
fn whole_choices(units: &[Unit]) -> Option<Vec<Vec<Pick>>> {
    let only_lines = units.iter().all(|unit| matches!(unit, Unit::Line { .. }));
    let choices: Vec<Vec<Pick>> =
        units.iter().map(|unit| (0..unit.versions()).map(Pick::Version).collect()).collect();
    (only_lines && combinations(&choices).is_some()).then_some(choices)
}

/// Every subset of sectors, if few sectors differ; lines whole or not at all.
fn sector_choices(units: &[Unit]) -> Option<Vec<Vec<Pick>>> {
    let choices: Option<Vec<_>> = units
        .iter()
        .map(|unit| match unit {
            Unit::Block { versions, .. } if versions.len() == 2 => {
                let differ = differing(versions);
                (differ.len() <= SECTORS_UPTO).then(|| {
                    let torn = |subset: usize| {
                        let mut sectors = [0; SECTORS];
                        for (bit, sector) in differ.iter().enumerate() {
                            sectors[*sector] = (subset >> bit & 1) as u8;
                        }
                        Pick::Torn(sectors)
                    };
                    (0..1 << differ.len()).map(torn).collect()
                })
            }
            unit => Some(subset_choices(unit)),
        })
        .collect();
    choices.filter(|choices| combinations(choices).is_some())
}

/// Every subset of up to ten pending units.
fn unit_choices(units: &[Unit]) -> Option<Vec<Vec<Pick>>> {
    let count: usize = units
        .iter()
        .map(|unit| match unit {
            Unit::Block { .. } => unit.versions() - 1,
            Unit::Line { .. } => 1,
        })
        .sum();
    (count <= ALL_UPTO).then(|| units.iter().map(subset_choices).collect())
}

/// A block has any of its writes or none, a line all of its stores or none.
fn subset_choices(unit: &Unit) -> Vec<Pick> {
    match unit {
        Unit::Block { versions, .. } => (0..versions.len()).map(Pick::Version).collect(),
        Unit::Line { versions, .. } => vec![Pick::Version(0), Pick::Version(versions.len() - 1)],
    }
}

/// Number of combinations, if all are to be tried.
fn combinations(choices: &[Vec<Pick>]) -> Option<u64> {
    let count = choices.iter().try_fold(1u64, |n, of_unit| n.checked_mul(of_unit.len() as u64));
    count.filter(|n| *n <= 1 << ALL_UPTO)
}

fn every_combination(choices: &[Vec<Pick>], plan: &mut Vec<Picks>) {
    let count: u64 = choices.iter().map(|of_unit| of_unit.len() as u64).product();
    for mut number in 0..count {
        let mut picks = Vec::with_capacity(choices.len());
        for of_unit in choices {
            let len = of_unit.len() as u64;
            picks.push(of_unit[(number % len) as usize]);
            number /= len;
        }
        plan.push(picks);
    }
}

/// What is there when everything reached the media in the order of issue, after each step.
fn prefixes(units: &[Unit], none: &Picks) -> Vec<Picks> {
    let mut steps: Vec<(u64, usize, usize)> = Vec::new();
    for (at, unit) in units.iter().enumerate() {
        steps.extend(unit.steps().iter().map(|step| (step.at, at, step.version)));
    }
    // Stable: what one write or store brought stays in its own order.
    steps.sort_by_key(|(time, ..)| *time);
    let mut now = none.clone();
    let after = |(_, at, version): (u64, usize, usize)| {
        now[at] = Pick::Version(version);
        now.clone()
    };
    steps.into_iter().map(after).collect()
}

/// A block cut in the middle, either half first, and every other sector.
fn cuts(unit: &Unit) -> Vec<Pick> {
    let Unit::Block { versions, .. } = unit else { return Vec::new() };
    let last = (versions.len() - 1) as u8;
    let cut = |mask: u8| Pick::Torn(std::array::from_fn(|s| if mask >> s & 1 == 1 { last } else { 0 }));
    [0x0f, 0xf0, 0x55].map(cut).to_vec()
}

/// Sectors in which not all versions are the same.
fn differing(versions: &[Page]) -> Vec<usize> {
    let same =
        |sector: usize| versions.iter().all(|v| sector_of(v, sector) == sector_of(&versions[0], sector));
    (0..SECTORS).filter(|sector| !same(*sector)).collect()
}

fn sector_of(page: &Page, sector: usize) -> &[u8] {
    &page[sector * SECTOR..(sector + 1) * SECTOR]
}

/// Writes cuts in one way: as a whole version where they leave one, else with the lowest versions.
fn normalise(units: &[Unit], picks: &mut Picks) {
    for (unit, pick) in units.iter().zip(picks) {
        let (Unit::Block { versions, .. }, Pick::Torn(sectors)) = (unit, *pick) else { continue };
        let content = |sector: usize| sector_of(&versions[usize::from(sectors[sector])], sector);
        let is = |version: &Page| (0..SECTORS).all(|sector| sector_of(version, sector) == content(sector));
        *pick = match versions.iter().position(is) {
            Some(version) => Pick::Version(version),
            None => Pick::Torn(std::array::from_fn(|sector| {
                let same = versions.iter().position(|v| sector_of(v, sector) == content(sector));
                same.map_or(sectors[sector], |version| version as u8)
            })),
        };
    }
}

fn with(picks: &Picks, at: usize, pick: Pick) -> Picks {
    let mut picks = picks.clone();
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

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick(&mut self, unit: &Unit) -> Pick {
        let versions = unit.versions();
        match unit {
            Unit::Block { .. } if self.next().is_multiple_of(4) => {
                Pick::Torn(std::array::from_fn(|_| self.below(versions) as u8))
            }
            _ => Pick::Version(self.below(versions)),
        }
    }
}
