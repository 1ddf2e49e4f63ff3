//! `narufs compare`: file systems on the same device, and a report of who wins where.

use crate::args::Compare;
use crate::bench::{cannot_write, failure};
use crate::failure::{Failure, Status};
use crate::output::say;
use narufs_bench::compare::{Load, Options, compare, full, quick, report};
use narufs_bench::progress::Progress;
use narufs_bench::stop::Stop;
use narufs_bench::{Error, workload};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Compares.
pub fn run(args: &Compare) -> Result<(), Failure> {
    let options = options(args).map_err(failure)?;
    if let Some(device) = &args.device {
        confirm(device)?;
    }
    // Found out before the time, not after it.
    std::fs::create_dir_all(&args.report).map_err(|e| cannot_write(&args.report, e))?;
    let stop = Stop::on_signals().map_err(failure)?;
    let progress = Progress::new();
    let results = compare(&options, &stop, &progress);
    progress.clear();
    let results = results.map_err(failure)?;
    let (json, page) = (args.report.join("results.json"), args.report.join("report.html"));
    let list =
        serde_json::to_string_pretty(&results).map_err(|e| Failure::new(Status::Failed, e.to_string()))?;
    std::fs::write(&json, list + "\n").map_err(|e| cannot_write(&json, e))?;
    std::fs::write(&page, report::page(&results)).map_err(|e| cannot_write(&page, e))?;
    report::table(&results).iter().for_each(|line| say!("{line}"));
    say!("");
    report::sentences(&report::cells(&results)).iter().for_each(|s| say!("{}", s.words));
    say!("report: {}", page.display());
    stop.check().map_err(failure)
}

fn options(args: &Compare) -> Result<Options, Error> {
    let mut loads = if args.quick { quick() } else { full() };
    if !args.workloads.is_empty() {
        let mut chosen: Vec<Load> = Vec::new();
        for word in &args.workloads {
            for spec in workload::named(word)? {
                // The suite's own sizes where it has the workload.
                let known = loads.iter().chain(&full()).find(|load| load.workload == spec.name).cloned();
                chosen.extend(known);
            }
        }
        loads = chosen;
    }
    for load in &mut loads {
        if !args.threads.is_empty() {
            load.threads.clone_from(&args.threads);
        }
        if let Some(seconds) = args.seconds {
            load.time = Duration::from_secs_f64(seconds);
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
    let narufs = std::env::current_exe().map_err(|e| Error::io("find this program", "", e))?;
    let words = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    Ok(Options {
        loads,
        rounds,
        contenders: args.contenders.clone(),
        size: args.size.0,
        work: args.work.clone(),
        device: args.device.clone(),
        narufs,
        command: format!("narufs {words}"),
    })
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
