//! More data than memory: iozone on file systems that share one memory limit with everything that serves them.
//!
//! The limit is that of a control `group`, made anew for each run. In it runs a `worker`, another process of
//! this program, which makes and mounts the file system, is the load generator, and starts narufs's server; so the
//! generator, the server, the kernel's page cache, tmpfs, frame pools and staging all come out of the same
//! memory. This side stays outside: it makes the group, turns on `swap` for tmpfs, and undoes everything
//! whatever becomes of the worker, which the limit may well end.
//!
//! What this leaves to others: the workload, contenders, and showing what came out.

mod group;
mod swap;
mod worker;

pub use worker::serve;

use super::contender::{Contender, SPILLING, Way};
use super::media::{Media, Places};
use super::start::Budget;
use super::{Absent, call};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::{Error, Params, Record, Result};
use group::{Group, Hierarchy};
use serde::{Deserialize, Serialize};
use std::path::Path;
use swap::Swap;
use worker::Task;

/// The workload.
const WORKLOAD: &str = "iozone";

/// What is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Spilling {
    /// Bytes of the memory limit.
    pub memory: u64,
    /// Sizes of the file, as multiples of the limit.
    pub ratios: Vec<f64>,
}

/// One phase of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Size of the file, as a multiple of the limit.
    pub ratio: f64,
    /// The most memory that was charged to the group at any time of the run, where the kernel tells.
    pub memory_peak: Option<u64>,
    /// What was measured; `repeat` is the round, `target` the contender.
    #[serde(flatten)]
    pub record: Record,
}

/// Everything that was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spilled {
    /// Bytes of the memory limit.
    pub memory: u64,
    /// Where it ran: the limit's interface, swap, narufs's share.
    pub machine: Vec<(String, String)>,
    /// The contenders that ran: name, and what it is.
    pub contenders: Vec<(String, String)>,
    /// Every phase.
    #[serde(deserialize_with = "super::report::rows")]
    pub rows: Vec<Row>,
}

/// The least limit: below it not even the generator and a server fit.
pub const LEAST: u64 = 96 << 20;

impl Spilling {
    /// What cannot be.
    pub fn wrong(&self) -> Option<String> {
        if self.memory < LEAST {
            return Some(format!("--spill-memory {}: say {}M or more", self.memory, LEAST >> 20));
        }
        let bad = self.ratios.iter().find(|ratio| !(**ratio > 0.0 && **ratio <= 1024.0));
        bad.map(|ratio| format!("--spill-ratio {ratio}: say a number above 0, 1024 at the most"))
    }

    fn params(&self, ratio: f64) -> Params {
        Params { memory: self.memory, ratio, ..Params::default() }
    }
}

/// What the generator takes, with what any process does.
const GENERATOR: u64 = 12 << 20;
/// What a server takes beside what it is told: at rest, for its threads, and what its heap keeps.
const SERVER: u64 = 32 << 20;
/// The same of a library: its tables, what write-back and rounds copy to, what its heap keeps.
const LIBRARY: u64 = 12 << 20;

/// What narufs is told to use: what the limit leaves when the generator, a server if there is one, and some page cache
/// of the kernel are in it too. One file takes little metadata.
fn budget(limit: u64, way: Way) -> Budget {
    let metadata = (limit / 64).clamp(4 << 20, 64 << 20);
    let journal = (limit / 32).clamp(4 << 20, 64 << 20);
    let (beside, kernel) = match way {
        Way::Library => (LIBRARY, limit / 64),
        Way::Mount => (SERVER, limit / 64),
        Way::CachedMount => (SERVER, limit / 8),
    };
    let others = metadata + journal + GENERATOR + beside + kernel;
    Budget { pages: limit.saturating_sub(others).max(8 << 20), metadata, journal }
}

/// What all runs have in common.
struct Ground<'a> {
    spilling: &'a Spilling,
    hierarchy: Hierarchy,
    places: &'a Places,
    narufs: &'a Path,
    stop: &'a Stop,
    progress: &'a Progress,
}

/// Runs every contender among `names` (all if empty) with each size, in turn. What could not run is added to
/// `absent`; only the user's end of it is an error, and what was found before counts.
pub(super) fn spill(
    spilling: &Spilling,
    options: &super::Options,
    media: &Media,
    stop: &Stop,
    progress: &Progress,
    absent: &mut Vec<Absent>,
) -> (Option<Spilled>, Result<()>) {
    let (present, missing) = choose(&options.contenders);
    absent.extend(missing);
    if present.is_empty() {
        return (None, Ok(()));
    }
    let hierarchy = match Hierarchy::find() {
        Ok(hierarchy) => hierarchy,
        Err(e) => {
            let missing = |contender: &Contender| not_run(contender, None, &e);
            absent.extend(present.into_iter().map(missing));
            return (None, Ok(()));
        }
    };
    let places = media.places();
    let mut spilled = Spilled {
        memory: spilling.memory,
        machine: machine(&hierarchy, spilling),
        contenders: present.iter().map(|c| (c.name.to_owned(), c.what.to_owned())).collect(),
        rows: Vec::new(),
    };
    let ground = Ground { spilling, hierarchy, places, narufs: &options.narufs, stop, progress };
    let ended = ground.rounds(&present, options.rounds, &mut spilled.rows, absent);
    (Some(spilled), ended)
}

fn choose(names: &[String]) -> (Vec<&'static Contender>, Vec<Absent>) {
    let wanted = SPILLING.iter().filter(|name| names.is_empty() || names.iter().any(|n| n == *name));
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for contender in wanted.filter_map(|name| Contender::find(name)) {
        match contender.missing() {
            None => present.push(contender),
            Some(reason) => {
                absent.push(Absent {
                    contender: contender.name.into(),
                    workload: Some("spill".into()),
                    reason,
                });
            }
        }
    }
    (present, absent)
}

fn not_run(contender: &Contender, ratio: Option<f64>, why: &Error) -> Absent {
    let size = ratio.map_or(String::new(), |ratio| format!(" {ratio}x"));
    Absent {
        contender: contender.name.to_owned(),
        workload: Some(format!("spill{size}")),
        reason: why.to_string(),
    }
}

impl Ground<'_> {
    fn rounds(
        &self,
        present: &[&'static Contender],
        rounds: u32,
        rows: &mut Vec<Row>,
        absent: &mut Vec<Absent>,
    ) -> Result<()> {
        for round in 1..=rounds {
            for &ratio in &self.spilling.ratios {
                for contender in present {
                    self.stop.check()?;
                    match self.one(contender, ratio) {
                        Ok(found) => {
                            self.tell(round, rounds, &found);
                            rows.extend(found.into_iter().map(|mut row| {
                                row.record.repeat = round;
                                row
                            }));
                        }
                        Err(e) => {
                            self.stop.check()?;
                            let why = not_run(contender, Some(ratio), &e);
                            self.progress.line(&format!("round {round}: {}: {e}", contender.name));
                            absent.push(why);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn tell(&self, round: u32, rounds: u32, rows: &[Row]) {
        for Row { ratio, record, .. } in rows {
            self.progress.line(&format!(
                "round {round}/{rounds}: spill {ratio}x {}: {}: {:.0} ops/s, device {:.0} MB read, {:.0} MB written",
                record.phase.as_deref().unwrap_or_default(),
                record.target,
                record.ops_per_s,
                record.device_read_bytes as f64 / 1e6,
                record.device_write_bytes as f64 / 1e6,
            ));
        }
    }

    /// One contender with one size.
    fn one(&self, contender: &Contender, ratio: f64) -> Result<Vec<Row>> {
        let limit = self.spilling.memory;
        self.progress.doing(contender.name, &format!("iozone, {ratio} times the memory limit"));
        let params = self.spilling.params(ratio);
        let file = params.iozone_share(1);
        if contender.swaps() && self.places.bytes < file {
            let mib = |bytes: u64| bytes >> 20;
            return Err(Error::Refused(format!(
                "too little swap: the device has {} MiB, the file {} MiB; say a larger --size",
                mib(self.places.bytes),
                mib(file)
            )));
        }
        // Turned off last: without the files there is nothing to bring back into memory.
        let swap = if contender.swaps() { Some(Swap::on(&self.places.device)?) } else { None };
        let group = Group::new(&self.hierarchy, &group_name(), limit)?;
        let task = Task {
            door: group.door(),
            contender: contender.name.to_owned(),
            places: self.places.clone(),
            narufs: self.narufs.to_owned(),
            budget: budget(limit, contender.way()),
            memory: limit,
            ratio,
        };
        let records = worker::run(&task, self.narufs, self.stop);
        let (peak, killed) = (group.peak(), group.killed());
        group.end_processes();
        let unmounted = clear(&self.places.mount);
        drop(group);
        drop(swap);
        let records = records.map_err(|e| out_of_memory(e, killed, limit))?;
        unmounted?;
        Ok(records.into_iter().map(|record| Row { ratio, memory_peak: peak, record }).collect())
    }
}

/// A name that no other run uses.
fn group_name() -> String {
    format!("narufs-compare.{}", std::process::id())
}

/// Names the true reason of what a process has met whose server, or which itself, was killed.
fn out_of_memory(e: Error, killed: u64, limit: u64) -> Error {
    match (e, killed) {
        (Error::Interrupted, _) => Error::Interrupted,
        (e, 0) => e,
        (e, killed) => Error::Refused(format!(
            "out of memory: the limit of {} MiB made the kernel kill {killed} process(es): {e}",
            limit >> 20
        )),
    }
}

/// Unmounts what a worker has left there.
fn clear(point: &Path) -> Result<()> {
    let shown = point.display().to_string();
    while crate::target::is_mount_point(point) {
        if call("umount", &[&shown]).is_err() {
            call("umount", &["--lazy", &shown])?;
        }
    }
    Ok(())
}

fn machine(hierarchy: &Hierarchy, spilling: &Spilling) -> Vec<(String, String)> {
    let read = |path: &str| std::fs::read_to_string(path).map_or("unknown".into(), |s| s.trim().to_owned());
    let budget = |way| budget(spilling.memory, way);
    let [mount, cached, library] = [Way::Mount, Way::CachedMount, Way::Library].map(budget);
    let mib = |bytes: u64| bytes >> 20;
    let rows = [
        ("memory limit", format!("{} MiB, {}", mib(spilling.memory), hierarchy.describe())),
        (
            "in the limit",
            "generator, server, page cache, tmpfs, frame pool, staging; not the kernel's threads for loop devices, \
             which with direct I/O keep no pages"
                .to_owned(),
        ),
        (
            "narufs",
            format!(
                "memory={}M, with io=cached {}M, as a library {}M; metadata_memory={}M, a journal of {} MiB",
                mib(mount.pages),
                mib(cached.pages),
                mib(library.pages),
                mib(mount.metadata),
                mib(mount.journal)
            ),
        ),
        ("swap of tmpfs", "the device of all, highest priority".to_owned()),
        ("other swap", swap::in_use()),
        ("vm.swappiness", read("/proc/sys/vm/swappiness")),
        ("vm.page-cluster", read("/proc/sys/vm/page-cluster")),
        ("zswap", read("/sys/module/zswap/parameters/enabled")),
    ];
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_narufs_is_told_stays_within_the_limit() {
        for limit in [LEAST, 128 << 20, 256 << 20, 512 << 20, 8 << 30] {
            for way in [Way::Library, Way::Mount, Way::CachedMount] {
                let budget = budget(limit, way);
                assert!(budget.pages + budget.metadata + budget.journal < limit, "{limit}: {budget:?}");
                assert!(budget.pages >= limit / 4, "{limit}: {budget:?}");
            }
        }
    }

    #[test]
    fn limits_that_make_no_sense_are_named() {
        let good = Spilling { memory: 512 << 20, ratios: vec![0.25, 2.5] };
        assert_eq!(good.wrong(), None);
        let small = Spilling { memory: 1 << 20, ..good.clone() };
        assert!(small.wrong().expect("refused").contains("--spill-memory"));
        for ratio in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let bad = Spilling { ratios: vec![1.0, ratio], ..good.clone() };
            assert!(bad.wrong().expect("refused").contains("--spill-ratio"), "{ratio}");
        }
    }

    #[test]
    fn the_reason_of_a_killed_process_is_named() {
        let said = |killed| out_of_memory(Error::Refused("gone".into()), killed, 64 << 20).to_string();
        assert_eq!(said(0), "gone");
        assert!(said(1).starts_with("out of memory: the limit of 64 MiB") && said(1).ends_with("gone"));
        assert!(matches!(out_of_memory(Error::Interrupted, 1, 0), Error::Interrupted));
    }

    #[test]
    fn contenders_are_chosen_by_name() {
        let names = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|n| (*n).to_owned()).collect();
            choose(&list).0.iter().map(|c| c.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["narufs-ssd", "xfs", "tmpfs-swap"]), ["tmpfs-swap", "narufs-ssd"]);
        assert!(names(&["xfs"]).is_empty());
        assert!(names(&[]).contains(&"narufs-lib-ssd"));
    }
}
