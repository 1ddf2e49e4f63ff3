//! `narufs compare`: file systems on the same device, and a report of who wins where.

use crate::bench::{cannot_write, failure, this_program};
use narufs_bench::compare::spill::{self, Spilling};
use narufs_bench::compare::{Load, Options, Results, compare, device, full, quick, report, spilling};
use narufs_bench::progress::Progress;
use narufs_bench::stop::Stop;
use narufs_bench::{Error, daily, workload};
use narufs_cli::args::Compare;
use narufs_cli::failure::{Failure, Status};
use narufs_cli::output::say;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The word that stands for data beyond a memory limit among the names of workloads.
const SPILL: &str = "spill";

/// The process within a memory limit, on behalf of a comparison.
pub fn work() -> Result<(), Failure> {
    spill::serve(std::io::stdin(), std::io::stdout()).map_err(failure)
}

/// Compares, or shows what was compared before.
pub fn run(args: &Compare) -> Result<(), Failure> {
    if let Some(from) = &args.from {
        let results = read(from)?;
        make_directory(args)?;
        return write(&results, args);
    }
    let options = options(args).map_err(failure)?;
    if let Some(path) = &args.device {
        // Nobody types a name for nothing.
        device::check(path, args.size.0).map_err(failure)?;
        confirm(path)?;
    }
    // Found out before the time, not after it.
    make_directory(args)?;
    let stop = Stop::on_signals().map_err(failure)?;
    let progress = Progress::new();
    let results = compare(&options, &stop, &progress);
    progress.clear();
    let mut results = results.map_err(failure)?;
    if let Some(commit) = &args.commit {
        results.machine.insert(0, ("commit".to_owned(), commit.clone()));
    }
    write(&results, args)?;
    stop.check().map_err(failure)
}

fn make_directory(args: &Compare) -> Result<(), Failure> {
    for dir in std::iter::once(&args.report).chain(&args.table) {
        std::fs::create_dir_all(dir).map_err(|e| cannot_write(dir, e))?;
    }
    Ok(())
}

/// Results of an earlier comparison.
fn read(from: &Path) -> Result<Results, Failure> {
    let text = std::fs::read(from).map_err(|e| Failure::about(Status::Failed, from, e))?;
    serde_json::from_slice(&text)
        .map_err(|e| Failure::about(Status::Failed, from, format!("not the results of a comparison: {e}")))
}

/// Writes and says what came out.
fn write(results: &Results, args: &Compare) -> Result<(), Failure> {
    let (json, page) = (args.report.join("results.json"), args.report.join("report.html"));
    let list = match args.compact {
        true => report::compact(results),
        false => serde_json::to_vec_pretty(results),
    };
    let invalid = |e: serde_json::Error| Failure::new(Status::Failed, e.to_string());
    let list = list.map_err(invalid)?;
    // What is shown is what is kept: the figures of a short list are rounded.
    let results: &Results = &serde_json::from_slice(&list).map_err(invalid)?;
    std::fs::write(&json, list).map_err(|e| cannot_write(&json, e))?;
    std::fs::write(&page, report::page(results)).map_err(|e| cannot_write(&page, e))?;
    if let Some(dir) = &args.table {
        let (table, picture) = (dir.join("README.md"), dir.join(report::PICTURE));
        std::fs::write(&table, report::overview(results)).map_err(|e| cannot_write(&table, e))?;
        std::fs::write(&picture, report::picture(results)).map_err(|e| cannot_write(&picture, e))?;
    }
    // A pipe gets all columns: what reads it is not short of room.
    let width = terminal_size::terminal_size().map_or(120, |(width, _)| usize::from(width.0));
    report::table(results, width).iter().for_each(|line| say!("{line}"));
    say!("");
    report::summary(results, width).iter().for_each(|line| say!("{line}"));
    say!("report: {}", page.display());
    Ok(())
}

fn options(args: &Compare) -> Result<Options, Error> {
    let mut loads = if args.quick { quick() } else { full() };
    if !args.workloads.is_empty() {
        let mut chosen: Vec<Load> = Vec::new();
        for word in args.workloads.iter().filter(|word| *word != SPILL) {
            for spec in workload::named(word)? {
                // The suite's own sizes where it has the workload.
                let known = loads.iter().chain(&full()).find(|load| load.workload == spec.name).cloned();
                chosen.extend(known);
            }
        }
        loads = chosen;
    }
    for load in &mut loads {
        if !args.threads.is_empty() && load.workload != daily::NAME {
            load.threads.clone_from(&args.threads);
        }
        if let Some(seconds) = args.seconds {
            load.time = Duration::from_secs_f64(seconds);
        }
        if let Some(scale) = args.scale {
            load.params.scale = scale;
        }
        load.params.steps.clone_from(&args.steps);
        if let Some(wrong) = load.params.wrong() {
            return Err(Error::Usage(wrong));
        }
        if args.files.is_some() {
            load.params.files = args.files;
        }
        if let Some(bad) = load.threads.iter().find(|t| !(1..=1024).contains(*t)) {
            return Err(Error::Usage(format!("--threads {bad}: say 1 to 1024")));
        }
    }
    let rounds = args.rounds.unwrap_or(if args.quick { 2 } else { 3 });
    if rounds == 0 {
        return Err(Error::Usage("--rounds 0: say 1 or more".into()));
    }
    let narufs = command_beside(&this_program()?);
    let words = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    Ok(Options {
        loads,
        spilling: beyond_memory(args)?,
        rounds,
        contenders: args.contenders.clone(),
        size: args.size.0,
        work: args.work.clone(),
        device: args.device.clone(),
        narufs,
        command: format!("narufs {words}"),
        shelf: daily::Shelf::default(),
    })
}

/// The narufs command, which mounts: beside this program, for they belong together, or in PATH.
fn command_beside(program: &Path) -> PathBuf {
    let beside = program.with_file_name("narufs");
    if beside.is_file() { beside } else { PathBuf::from("narufs") }
}

/// Data beyond a memory limit, where they are asked for.
fn beyond_memory(args: &Compare) -> Result<Option<Spilling>, Error> {
    let mut spilling = spilling(args.quick);
    if let Some(memory) = args.spill_memory {
        spilling.memory = memory.0;
    }
    if !args.spill_ratio.is_empty() {
        spilling.ratios.clone_from(&args.spill_ratio);
    }
    match spilling.wrong() {
        Some(wrong) => Err(Error::Usage(wrong)),
        None if args.workloads.is_empty() || args.workloads.iter().any(|word| word == SPILL) => {
            Ok(Some(spilling))
        }
        None => Ok(None),
    }
}

/// Asks for the device's name once more: nothing on it survives.
fn confirm(device: &Path) -> Result<(), Failure> {
    let shown = device.display().to_string();
    eprint!("Everything on {shown} will be lost. Type its name to go on: ");
    let _ = std::io::stderr().flush();
    let mut typed = String::new();
    let read = std::io::stdin().read_line(&mut typed);
    match read {
        Ok(_) if typed.trim() == shown => Ok(()),
        _ => Err(Failure::new(Status::Failed, format!("{shown}: not confirmed, nothing was done"))),
    }
}
