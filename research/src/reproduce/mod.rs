//! `narufs reproduce`: each paper's baseline and its technique in this engine, on the same device, in turn, beside the
//! paper's own figures.
//!
//! A [`bed`] is an image, mounted in this process with a baseline or without; [`slow`] is a device that takes longer,
//! so that waiting is the device's on a machine of few cores. [`run`] has variants take turns, [`papers`] are the
//! experiments, [`found`] is what comes out of them, [`report`] shows it. A baseline that a build does not have is told
//! as missing, and nothing stands in its place.
//!
//! What this leaves to others: the load generator and its workloads (`narufs-bench`), the baselines (the engine's
//! feature of that name), machines that are not there ([`crate::manycore`]).

pub mod bed;
pub mod found;
pub mod held;
pub mod model;
pub mod papers;
pub mod phases;
pub mod report;
pub mod run;
pub mod slow;

use crate::manycore::{machine as manycore, wake};
use found::Results;
use narufs_bench::progress::Progress;
use narufs_bench::stop::Stop;
use narufs_bench::{Error, Result};
use run::Run;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names of papers; all if empty.
    pub papers: Vec<String>,
    /// Small sizes.
    pub quick: bool,
    /// How often each is run, if that is said.
    pub rounds: Option<u32>,
    /// A directory on the device that is measured.
    pub work: PathBuf,
    /// How it was called.
    pub command: String,
}

/// Runs the experiments. What was found when the user ends it before its time is given all the same.
///
/// # Errors
/// What cannot be; a directory that cannot be written to.
pub fn reproduce(options: &Options, stop: &Stop, progress: Progress) -> Result<Results> {
    let papers = papers::named(&options.papers)?;
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 5 });
    if rounds == 0 {
        return Err(Error::Usage("--rounds 0: say 1 or more".into()));
    }
    let work = run::own_directory(&options.work)?;
    let memory = run::own_directory(Path::new("/dev/shm"))?;
    let run = Run {
        work: work.path().to_owned(),
        memory: memory.path().to_owned(),
        quick: options.quick,
        rounds,
        stop: stop.clone(),
        progress,
        costs: model::costs(),
        pair: model::pair(),
        wake: wake::measure(2000),
    };
    let mut results = Results {
        machine: machine(&run, &options.work),
        command: options.command.clone(),
        rounds,
        quick: options.quick,
        papers: Vec::new(),
    };
    for paper in papers {
        match (paper.run)(&run) {
            Ok(account) => results.papers.push(account),
            Err(Error::Interrupted) => break,
            Err(e) => return Err(e.in_workload(paper.name)),
        }
    }
    run.progress.clear();
    Ok(results)
}

/// What a reader must know of the machine.
fn machine(run: &Run, work: &Path) -> Vec<(String, String)> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |table: &str, name: &str| {
        let line = table.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_once(':'));
        line.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let rows = [
        ("processor", format!("{}, {cores} cores", field(&read("/proc/cpuinfo"), "model name"))),
        ("memory", field(&read("/proc/meminfo"), "MemTotal")),
        ("kernel", read("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("device", device(work)),
        (
            "a shared word",
            format!(
                "an add takes {:.1} ns alone, {:.0} ns from another core; from another socket {} times that, for the model",
                run.costs.own,
                run.costs.within,
                manycore::ACROSS
            ),
        ),
        ("two threads", format!("do {:.2} times as much as one where they share nothing", run.pair)),
        ("a sleeper", format!("runs {:.1} us after another thread has woken it", run.wake / 1e3)),
        ("narufs", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The kernel's name for the block device of a directory.
fn device(work: &Path) -> String {
    let number = std::fs::metadata(work).map_or(0, |found| found.dev());
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).unwrap_or_default();
    link.file_name().map_or_else(|| "no block device".to_owned(), |name| name.to_string_lossy().into_owned())
}
