//! Which cache lines do operations share that commute?
//!
//! Two operations whose order does not matter can be done by two cores without either waiting for the other, if
//! what they touch is disjoint but for what both only read (Clements et al., "The Scalable Commutativity Rule",
//! SOSP 2013). Here each operation of a [catalogue](ops) is run on two logical lanes, one after the other, every
//! memory access of the engine is [recorded](trace), and the cache lines are intersected: a line that one
//! operation writes and the other touches would travel between their cores.
//!
//! A conflict is named by where in the engine it is: the source file of the access that writes, and its function.
//! The heap's own lines are left out: they belong to no structure of ours.

pub mod ops;
mod places;
mod ptrace;
pub mod report;
pub mod trace;

use std::collections::{BTreeMap, BTreeSet};

/// What an operation did to one cache line.
#[derive(Debug, Clone, Default)]
pub struct Touch {
    /// The first place in the engine that reads it.
    pub read: Option<String>,
    /// The first place that writes it.
    pub written: Option<String>,
    /// The bytes of it that are read or written, a bit each.
    pub touched_bytes: u64,
    /// The bytes of it that are written, a bit each.
    pub written_bytes: u64,
}

/// How near to each other two accesses have to be to conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    /// In one cache line: what hardware moves. Which small objects lie side by side in the heap differs from run to
    /// run and from machine to machine.
    Line,
    /// On the same byte: what the engine itself shares, wherever its objects lie.
    Byte,
}

/// What one run of an operation touched, by cache line.
pub type Footprint = BTreeMap<u64, Touch>;

/// An operation on both lanes.
#[derive(Debug, Clone)]
pub struct Traced {
    /// Its name.
    pub name: &'static str,
    /// On the first lane and on the second.
    pub lanes: [Footprint; 2],
    /// Instructions of the first run, by the place in the engine that carries them out or has them carried out.
    pub steps: BTreeMap<String, u64>,
    /// The source files of the engine that the first run passes, in the order in which they first come.
    pub files: Vec<String>,
}

/// The cache lines of a pair that would travel: where each is touched, and how many lines there are of that kind.
pub type Conflicts = BTreeMap<String, usize>;

/// Intersects one operation on the first lane with one on the second.
pub fn conflicts(first: &Footprint, second: &Footprint, grain: Grain) -> Conflicts {
    let mut found = Conflicts::new();
    for (line, one) in first {
        let Some(other) = second.get(line) else { continue };
        let both = (one.written_bytes & other.touched_bytes) | (one.touched_bytes & other.written_bytes);
        if grain == Grain::Byte && both == 0 {
            continue;
        }
        let place = match (&one.written, &other.written) {
            (Some(place), _) | (None, Some(place)) => place,
            (None, None) => continue,
        };
        // What the heap does with its own lines follows from the history of the process, not from the pair.
        if place != places::HEAP {
            *found.entry(place.clone()).or_default() += 1;
        }
    }
    found
}

/// Conflicts of each pair of operations, either way round.
pub fn matrix(traced: &[Traced], grain: Grain) -> BTreeMap<(usize, usize), Conflicts> {
    let mut pairs = BTreeMap::new();
    for (a, one) in traced.iter().enumerate() {
        for (b, other) in traced.iter().enumerate().skip(a) {
            let mut both = conflicts(&one.lanes[0], &other.lanes[1], grain);
            for (place, count) in conflicts(&other.lanes[0], &one.lanes[1], grain) {
                let lines = both.entry(place).or_default();
                *lines = count.max(*lines);
            }
            pairs.insert((a, b), both);
        }
    }
    pairs
}

/// The structures, source files of the engine, that a pair shares.
pub fn structures(conflicts: &Conflicts) -> BTreeSet<&str> {
    conflicts.keys().map(|place| place.split_once(' ').map_or(place.as_str(), |(file, _)| file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line, the place that reads its first bytes, the place that writes them, and which bytes those are.
    type Row<'a> = (u64, Option<&'a str>, Option<&'a str>, u64);

    fn footprint(rows: &[Row]) -> Footprint {
        let own = |place: &Option<&str>| place.map(str::to_owned);
        let touch = |(line, r, w, bytes): &Row| {
            let written_bytes = if w.is_some() { *bytes } else { 0 };
            (*line, Touch { read: own(r), written: own(w), touched_bytes: *bytes, written_bytes })
        };
        rows.iter().map(touch).collect()
    }

    #[test]
    fn a_line_conflicts_if_one_side_writes_it() {
        let one =
            footprint(&[(1, Some("a x"), None, 1), (2, None, Some("b y"), 1), (3, Some("c z"), None, 1)]);
        let other =
            footprint(&[(1, Some("a x"), None, 1), (2, Some("d y"), None, 1), (3, None, Some("e z"), 1)]);
        let expected = Conflicts::from([("b y".to_owned(), 1), ("e z".to_owned(), 1)]);
        for grain in [Grain::Line, Grain::Byte] {
            let found = conflicts(&one, &other, grain);
            assert_eq!(found, expected);
            assert_eq!(structures(&found), BTreeSet::from(["b", "e"]));
            assert!(conflicts(&one, &Footprint::new(), grain).is_empty());
        }
    }

    #[test]
    fn neighbours_share_a_line_and_no_byte() {
        let one = footprint(&[(1, None, Some("a x"), 0x00ff)]);
        let other = footprint(&[(1, None, Some("b y"), 0xff00)]);
        assert_eq!(conflicts(&one, &other, Grain::Line).len(), 1);
        assert!(conflicts(&one, &other, Grain::Byte).is_empty());
    }
}
