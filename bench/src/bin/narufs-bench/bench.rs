//! `narufs bench`: measures a target, prints a table, writes records.

use narufs_bench::killed::{self, Engine, Mount};
use narufs_bench::progress::Progress;
use narufs_bench::stop::Stop;
use narufs_bench::target::{Directory, Library, LibraryOptions};
use narufs_bench::workload::{self, Spec};
use narufs_bench::{Error, Params, Plan, Record, daily, stats};
use narufs_cli::args::Bench;
use narufs_cli::failure::{Failure, Status};
use narufs_cli::options::OptionList;
use narufs_cli::output::say;
use narufs_cli::server;
use narufs_cli::size::Size;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Measures.
pub fn run(args: &Bench) -> Result<(), Failure> {
    if args.list {
        workload::every().for_each(describe);
        return Ok(());
    }
    let plan = plan(args).map_err(failure)?;
    if let Some(wrong) = plan.wrong() {
        return Err(Failure::new(Status::Usage, wrong));
    }
    let target = args.target.as_deref().unwrap_or_default();
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    // Found out before the time, not after it.
    let mut json = match &args.json {
        Some(path) if !to_stdout => {
            Some((std::fs::File::create(path).map_err(|e| cannot_write(path, e))?, path))
        }
        _ => None,
    };
    let stop = Stop::on_signals().map_err(failure)?;
    let progress = Progress::new();
    let mut records = Vec::new();
    let mut each = |record: Record| {
        if !to_stdout {
            let daily = record.workload == daily::NAME;
            if records.last().is_none_or(|last: &Record| (last.workload == daily::NAME) != daily) {
                progress.result(&if daily { daily::heading() } else { heading() });
            }
            progress.result(&if daily { daily::row(&record) } else { row(&record) });
        }
        records.push(record);
    };
    let done = match target.strip_prefix("lib:") {
        Some("scratch") => run_scratch(target, args, &plan, &stop, &progress, &mut each),
        Some(image) => run_library(Path::new(image), target, args, &plan, &stop, &progress, &mut each),
        None => Directory::new(Path::new(target), args.count_device.as_deref())
            .and_then(|mut dir| narufs_bench::run(&mut dir, &plan, &stop, &progress, &mut each)),
    };
    // What was measured before a failure or an interruption counts.
    let list =
        serde_json::to_string_pretty(&records).map_err(|e| Failure::new(Status::Failed, e.to_string()))?;
    if to_stdout {
        say!("{list}");
    } else if plan.repeat > 1 {
        let (daily, others): (Vec<Record>, Vec<Record>) =
            records.iter().cloned().partition(|record| record.workload == daily::NAME);
        summary(&others).iter().chain(&daily::summary(&daily)).for_each(|line| say!("{line}"));
    }
    if let Some((file, path)) = &mut json {
        file.write_all(list.as_bytes())
            .and_then(|()| file.write_all(b"\n"))
            .map_err(|e| cannot_write(path, e))?;
    }
    done.map_err(failure)
}

/// A file that cannot be written.
pub(crate) fn cannot_write(path: &Path, e: std::io::Error) -> Failure {
    Failure::about(Status::Failed, path, e)
}

/// A failure with its status.
pub(crate) fn failure(e: Error) -> Failure {
    let status = match &e {
        Error::Usage(_) => Status::Usage,
        Error::Interrupted => Status::Interrupted,
        _ => Status::Failed,
    };
    Failure::new(status, e.to_string())
}

fn plan(args: &Bench) -> Result<Plan, Error> {
    let mut workloads: Vec<&'static Spec> = Vec::new();
    for word in &args.workloads {
        for spec in workload::named(word)? {
            if !workloads.iter().any(|known| known.name == spec.name) {
                workloads.push(spec);
            }
        }
    }
    let params = Params {
        seed: args.seed,
        files: args.files,
        size: args.size.map(|s| s.0),
        spread: args.spread,
        paper: args.paper,
        memory: args.memory.0,
        ratio: args.ratio,
        record: args.record.0,
        ops: args.ops,
        scale: args.scale,
        steps: args.steps.clone(),
    };
    Ok(Plan {
        workloads,
        threads: args.threads.clone(),
        time: Duration::from_secs_f64(args.seconds),
        repeat: args.repeat,
        params,
        check: !args.no_check,
        shelf: daily::Shelf::default(),
    })
}

fn run_library(
    image: &Path,
    name: &str,
    args: &Bench,
    plan: &Plan,
    stop: &Stop,
    progress: &Progress,
    each: &mut impl FnMut(Record),
) -> Result<(), Error> {
    if args.count_device.is_some() {
        return Err(Error::Usage("--count-device: a library's device I/O is counted by the engine".into()));
    }
    let mut options = args.options.clone();
    options.extend(args.nvm_delay.map(|ns| format!("nvm_delay={ns}")));
    options.extend(args.nvm_bandwidth.map(|size| format!("nvm_bandwidth={}", size.0)));
    let mount = Mount { image: image.to_owned(), name: name.to_owned(), options };
    // What is wrong with them is said before a process is started.
    mount_options(&mount)?;
    killed::run(&Engine { program: this_program()?, mount }, plan, stop, progress, each)
}

/// Runs on scratch space in this process: there is nothing that a kill would leave.
fn run_scratch(
    name: &str,
    args: &Bench,
    plan: &Plan,
    stop: &Stop,
    progress: &Progress,
    each: &mut impl FnMut(Record),
) -> Result<(), Error> {
    let mut options = OptionList::parse(&args.options).map_err(Error::Usage)?;
    options.scratch = true;
    options.check().map_err(Error::Usage)?;
    server::fit_heap(&options);
    let spill = options.spill.clone().unwrap_or_else(|| PathBuf::from(name));
    let mut library = Library::scratch(&spill, name, &server::scratch_options(&options))?;
    let done = narufs_bench::run(&mut library, plan, stop, progress, each);
    done.and(library.unmount())
}

/// This program, which is started anew for engines in processes of their own.
pub(crate) fn this_program() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(|e| Error::io("find this program", "", e))
}

/// Mounts an image in this process, which another has started: see [`killed`].
pub fn child() -> Result<(), Failure> {
    killed::serve(library_options).map_err(failure)
}

fn mount_options(mount: &Mount) -> Result<OptionList, Error> {
    let options = OptionList::parse(&mount.options).map_err(Error::Usage)?;
    if options.read_only {
        return Err(Error::Usage("-o ro: workloads write".into()));
    }
    Ok(options)
}

/// The engine's options, in the process that is going to have it.
fn library_options(mount: &Mount) -> Result<LibraryOptions, Error> {
    let options = mount_options(mount)?;
    server::fit_heap(&options);
    Ok(LibraryOptions {
        journal: None,
        costs: server::emulation_costs(&options),
        image: server::image_options(&options),
        files: server::assemble_options(&options, false),
    })
}

fn describe(spec: &Spec) {
    let pinned = if spec.pinned { "pinned threads" } else { "threads as the scheduler likes" };
    say!("{:<10} {}: {}", spec.name, spec.family.name(), spec.summary);
    say!("{:<10} one operation: {}", "", spec.operation);
    say!("{:<10} sizes: {}; {pinned}", "", spec.sizes);
}

/// Bytes in a few letters.
fn bytes(n: u64) -> String {
    if n == 0 { "0".into() } else { Size(n).to_string() }
}

fn heading() -> String {
    format!(
        "{:<20} {:>4} {:>4} {:>12} {:>9} {:>10} {:>10} {:>10} {:>9} {:>10} {:>10}  {}",
        "workload",
        "thr",
        "run",
        "ops/s",
        "MB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "cpu us/op",
        "dev read",
        "dev write",
        "laps, check"
    )
}

fn row(r: &Record) -> String {
    let laps = match r.laps {
        Some(laps) if r.unlapped => format!("{laps:.2} (unlapped)"),
        Some(laps) => format!("{laps:.1}"),
        None => "-".into(),
    };
    let check = match &r.check {
        Some(c) => format!(", {} files right, {:.1} s", c.files, c.reopen_s + c.compare_s),
        None => String::new(),
    };
    format!(
        "{:<20} {:>4} {:>4} {:>12.0} {:>9.1} {:>10.1} {:>10.1} {:>10.1} {:>9.2} {:>10} {:>10}  {laps}{check}",
        r.title(),
        r.threads,
        r.repeat,
        r.ops_per_s,
        r.mb_per_s,
        r.p50_us,
        r.p99_us,
        r.p999_us,
        r.cpu_us_per_op,
        bytes(r.device_read_bytes),
        bytes(r.device_write_bytes)
    )
}

/// Median and spread of what was repeated.
fn summary(records: &[Record]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut seen: Vec<(String, usize)> = Vec::new();
    for record in records {
        let key = (record.title(), record.threads);
        if seen.contains(&key) {
            continue;
        }
        let same: Vec<f64> = records
            .iter()
            .filter(|r| r.title() == key.0 && r.threads == key.1)
            .map(|r| r.ops_per_s)
            .collect();
        if let (Some(median), Some(spread)) = (stats::median(&same), stats::spread(&same)) {
            lines.push(format!(
                "{:<20} {:>4}      {median:>12.0} ops/s, median of {}, spread {:.0} %",
                key.0,
                key.1,
                same.len(),
                spread * 100.0
            ));
        }
        seen.push(key);
    }
    lines
}
