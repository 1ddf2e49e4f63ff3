//! What came out, for a terminal and for a page that stands on its own.
//!
//! [`cells`] are the medians, [`verdicts`] who wins where; `terminal` and `page` show both. Everything shown has one
//! order: the strongest promise first, and within a promise the best first.

mod bars;
mod cells;
mod compact;
mod curves;
mod daily;
mod look;
mod overview;
mod page;
mod ratios;
pub mod scale;
mod spill;
mod summary;
mod tables;
mod terminal;

pub use cells::{Cell, cells};
pub use compact::compact;
pub(in crate::compare) use compact::rows;
pub use curves::apart;
pub use overview::{PICTURE, overview, picture};
pub use page::page;
pub use summary::{Crowd, Match, Outcome, Verdict, verdicts};
pub use terminal::{summary, table};

use super::Results;

/// How pages look, light and dark.
pub const STYLE: &str = include_str!("page.css");

/// The different values of a field, in their order.
fn each<'a, R, T: PartialEq>(rows: &'a [R], of: impl Fn(&'a R) -> T) -> Vec<T> {
    let mut found = Vec::new();
    for value in rows.iter().map(of) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// What did not run, each reason once.
fn absences(results: &Results) -> Vec<String> {
    let mut said: Vec<(String, &str, Vec<&str>)> = Vec::new();
    for absent in &results.absent {
        let what = absent.workload.as_deref();
        match said.iter_mut().find(|(who, why, _)| *who == absent.contender && *why == absent.reason) {
            Some((_, _, list)) => list.extend(what.filter(|w| !list.contains(w))),
            None => said.push((absent.contender.clone(), &absent.reason, what.into_iter().collect())),
        }
    }
    let line = |(who, why, list): (String, &str, Vec<&str>)| match list.is_empty() {
        true => format!("{who}: {why}"),
        false => format!("{who} in {}: {why}", list.join(", ")),
    };
    said.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Absent;
    use crate::load::{Measured, histogram};
    use crate::meter::Counters;
    use crate::record::{Record, Row};
    use crate::target::{Description, Survives};
    use std::time::Duration;

    fn record(workload: &str, phase: Option<&str>, target: &str, threads: usize, ops: u64) -> Record {
        let row = Row { workload, phase, threads, pinned: true, repeat: 1, seed: 1 };
        let description = Description {
            name: target.into(),
            filesystem: "x".into(),
            survives: Survives::Power,
            note: None,
        };
        let time = Duration::from_secs(1);
        let measured = Measured { time, ops, bytes: 0, latency: histogram(), done: false };
        Record::new(row, &description, &measured, Duration::ZERO, &Counters::default())
    }

    pub(super) fn results() -> Results {
        let mut records = Vec::new();
        for target in ["ext4", "narufs-ssd"] {
            for threads in [1, 16] {
                records.push(record("DWOM", None, target, threads, 1000 * threads as u64));
                records.push(record("varmail", None, target, threads, 50));
            }
            records.push(record("iozone", Some("rewrite"), target, 1, 10));
        }
        let absent =
            Absent { contender: "f2fs".into(), workload: None, reason: "this kernel has no <f2fs>".into() };
        Results {
            machine: vec![("kernel".into(), "6.x".into())],
            command: "narufs compare --quick".into(),
            rounds: 1,
            contenders: ["ext4", "narufs-ssd"].map(|n| (n.to_owned(), "what it is".to_owned())).into(),
            records,
            spilled: None,
            absent: vec![absent],
        }
    }

    #[test]
    fn reasons_are_said_once() {
        let mut results = results();
        for workload in ["DWOM", "DWSL", "DWOM"] {
            let workload = Some(workload.to_owned());
            results.absent.push(Absent { contender: "xfs".into(), workload, reason: "full".into() });
        }
        assert_eq!(absences(&results), ["f2fs: this kernel has no <f2fs>", "xfs in DWOM, DWSL: full"]);
    }
}
