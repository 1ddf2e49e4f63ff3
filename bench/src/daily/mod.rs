//! Everyday work: the real programs that people run all day, on any directory, one after the other.
//!
//! A run of it is a list of [`STEPS`]. Before each step everything is synced; the step's time is that of the program,
//! from before its start to its end; what syncing takes afterwards is measured apart. Then what the step has made is
//! compared with what it has to be, outside of the time. What it works on (`tree`, `sources`) follows from the seed, and
//! its `material` lies outside of the target.
//!
//! A cold step begins with nothing of the target in memory: [`Target::reopen`] brings it back from its media where
//! somebody can (a comparison kills narufs and mounts it anew, and unmounts and mounts the others); elsewhere root drops
//! the kernel's caches. Which of them it was is in the record, and where neither can be had the step is left out.
//!
//! What this leaves to others: counters (`meter`), showing what came out (`table`, and the comparison's report).

mod difference;
mod files;
mod material;
mod program;
mod sources;
mod steps;
mod table;
mod text;
mod tree;
mod work;

pub use material::Shelf;
pub use steps::{STEPS, Step, programs, steps};
pub use table::{heading, row, summary};

use crate::check;
use crate::record::{Record, Row};
use crate::run::At;
use crate::target::{Reopened, Target};
use crate::workload::Needs;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use work::Work;

/// Its name among the workloads.
pub const NAME: &str = "daily";

/// What was in memory when a step began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caches {
    /// What the steps before had left there; what is called warm was done once before.
    Warm,
    /// Nothing: its server was killed, and it was mounted anew.
    Killed,
    /// Nothing: it was unmounted and mounted.
    Remounted,
    /// Nothing of the kernel's caches. A server of a mount keeps its own.
    Dropped,
}

/// Room that it needs: two trees, a clone with its repository, the rest.
fn needs(scale: f64) -> Needs {
    Needs { bytes: (1.4e9 * scale) as u64 + (8 << 20), files: (75_000.0 * scale) as u64 + 2000 }
}

/// Runs the steps in the work directory that the target has entered. A step whose result is wrong has no record; the
/// others go on.
///
/// # Errors
/// The first wrong result, or what ended the run. Records of other steps have been given to `each`.
pub(crate) fn run<T: Target>(target: &mut T, at: &At, each: &mut dyn FnMut(Record)) -> Result<()> {
    let params = &at.plan.params;
    let dir = work_dir(target)?;
    crate::run::check_room(target, needs(params.scale))?;
    at.doing("making the material");
    let mut shelf = at.plan.shelf.take();
    let mut work = Work::new(&dir, shelf.get(params.seed, params.scale)?, at.stop);
    let (mut last, mut wrong) = (None, None);
    for step in steps(&params.steps)? {
        at.stop.check()?;
        if let Some(missing) = step.missing() {
            at.progress.line(&format!("{NAME} {}: left out: {missing} is not installed", step.name));
            continue;
        }
        match one(target, &mut work, step, at) {
            Ok(Some(record)) => last.replace(record).into_iter().for_each(&mut *each),
            Ok(None) => {}
            Err(e @ Error::Wrong(_)) => {
                at.progress.line(&format!("{NAME}: {e}"));
                wrong = wrong.or(Some(e));
            }
            Err(e) => {
                last.into_iter().for_each(each);
                return Err(e);
            }
        }
    }
    let checked = if at.plan.check {
        at.doing("checking");
        check::brought_back(target, |_| work.compare_all()).map(Some)
    } else {
        Ok(None)
    };
    if let Some(mut record) = last {
        record.check = *checked.as_ref().unwrap_or(&None);
        each(record);
    }
    match wrong {
        Some(wrong) => Err(wrong),
        None => checked.map(drop),
    }
}

/// Brings the target back from its media, and compares all that must be there.
fn work_dir<T: Target>(target: &T) -> Result<PathBuf> {
    target.directory().ok_or_else(|| crate::workload::DAILY.not_here())
}

/// One step; nothing if it cannot be had here.
fn one<T: Target>(target: &mut T, work: &mut Work, step: &Step, at: &At) -> Result<Option<Record>> {
    at.doing(step.name);
    let in_step = |e: Error| match e {
        Error::Wrong(what) => Error::Wrong(format!("{}: {what}", step.name)),
        Error::Refused(what) => Error::Refused(format!("{}: {what}", step.name)),
        other => other,
    };
    work.prepare(step).map_err(in_step)?;
    target.sync_all()?;
    let caches = match step.cold.then(|| empty_caches(target)).transpose()? {
        Some(Err(why)) => {
            at.progress.line(&format!("{NAME} {}: left out: {why}", step.name));
            return Ok(None);
        }
        Some(Ok(caches)) => caches,
        None => Caches::Warm,
    };
    work.touch_programs(step);
    let before = target.counters()?.with_own_cpu().with_children_cpu();
    let measured = work.run(step).map_err(in_step)?;
    // Processors and requests before everything is synced: those are what the program has waited for.
    let mut after = target.counters()?.with_own_cpu().with_children_cpu();
    let begin = Instant::now();
    target.sync_all()?;
    let synced = begin.elapsed();
    let settled = target.counters()?;
    // Of the device all that the step has caused counts.
    (after.device, after.log, after.causes) = (settled.device, settled.log, settled.causes);
    after.flushes = settled.flushes;
    if at.plan.check {
        work.compare(step).map_err(in_step)?;
    }
    let row = Row {
        workload: NAME,
        phase: Some(step.name),
        threads: 1,
        pinned: false,
        repeat: at.repeat,
        seed: at.plan.params.seed,
    };
    let mut record = Record::new(row, &target.describe(), &measured, Duration::ZERO, &after.since(&before));
    record.caches = Some(caches);
    record.then_sync_s = Some(synced.as_secs_f64());
    Ok(Some(record))
}

/// Takes everything of the target out of memory; why not, if it cannot be done.
fn empty_caches<T: Target>(target: &mut T) -> Result<std::result::Result<Caches, String>> {
    match target.reopen()? {
        Reopened::Killed => return Ok(Ok(Caches::Killed)),
        Reopened::Remounted => return Ok(Ok(Caches::Remounted)),
        Reopened::Synced => {}
    }
    if target.describe().filesystem == "tmpfs" {
        return Ok(Err("tmpfs is memory".into()));
    }
    let dropped = std::fs::write("/proc/sys/vm/drop_caches", "3");
    Ok(dropped.map(|()| Caches::Dropped).map_err(|e| format!("the kernel's caches cannot be dropped: {e}")))
}
