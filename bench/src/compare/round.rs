//! The rounds: each load on each contender, one contender after the other, and that again.

use super::contender::{ALL, Contender, SPILLING, named};
use super::media::Media;
use super::spill::spill;
use super::start::Wants;
use super::{Absent, Load, Options, Results};
use crate::daily;
use crate::progress::Progress;
use crate::stop::Stop;
use crate::workload;
use crate::{Error, Plan, Record, Result};

/// Compares.
///
/// # Errors
/// If the media cannot be made or a name is unknown. That a contender fails, or that the user ends it before its
/// time, is no error: it is told with the results.
pub fn compare(options: &Options, stop: &Stop, progress: &Progress) -> Result<Results> {
    let (mut present, mut absent) = choose(&options.contenders)?;
    if options.loads.is_empty() {
        // What would run nothing is neither there nor missing.
        (present, absent) = Default::default();
    }
    progress.doing("media", "writing the devices");
    let in_ram = Contender::in_ram(&present);
    let media = Media::new(&options.work, options.device.as_deref(), options.size, in_ram, stop)?;
    let mut results = Results {
        machine: machine(options, &media),
        command: options.command.clone(),
        rounds: options.rounds,
        contenders: present.iter().map(|c| (c.name.to_owned(), c.what.to_owned())).collect(),
        records: Vec::new(),
        spilled: None,
        absent,
    };
    let mut interrupted = rounds(&present, options, &media, stop, progress, &mut results);
    if let (Some(spilling), Ok(())) = (&options.spilling, &interrupted) {
        (results.spilled, interrupted) =
            spill(spilling, options, &media, stop, progress, &mut results.absent);
    }
    if let Err(e) = interrupted {
        // What was measured before counts.
        results.absent.push(Absent { contender: "all".into(), workload: None, reason: e.to_string() });
    }
    progress.clear();
    Ok(results)
}

fn rounds(
    present: &[&'static Contender],
    options: &Options,
    media: &Media,
    stop: &Stop,
    progress: &Progress,
    results: &mut Results,
) -> Result<()> {
    for round in 1..=options.rounds {
        for load in &options.loads {
            let takes = |contender: &&&'static Contender| contender.takes(load.workload, &options.contenders);
            for contender in present.iter().filter(takes) {
                stop.check()?;
                let done = one(contender, load, options, media, stop, progress, round, &mut results.records);
                stop.check()?;
                if let Err(e) = done {
                    progress.line(&format!("round {round}: {}: {e}", contender.name));
                    results.absent.push(Absent {
                        contender: contender.name.to_owned(),
                        workload: Some(load.workload.to_owned()),
                        reason: e.to_string(),
                    });
                }
            }
        }
    }
    Ok(())
}

/// Who runs, and who cannot.
fn choose(names: &[String]) -> Result<(Vec<&'static Contender>, Vec<Absent>)> {
    let mut wanted = Vec::new();
    for name in names {
        if Contender::find(name).is_none() {
            let mut known: Vec<&str> = named().map(|c| c.name).collect();
            known.extend(SPILLING.iter().filter(|name| !ALL.iter().any(|c| c.name == **name)));
            return Err(Error::Usage(format!("{name}: no such contender; there are {}", known.join(", "))));
        }
        wanted.extend(named().find(|contender| contender.name == name));
    }
    if names.is_empty() {
        wanted = ALL.iter().collect();
    }
    let mut absent = Vec::new();
    wanted.retain(|contender| match contender.missing() {
        None => true,
        Some(reason) => {
            absent.push(Absent { contender: contender.name.to_owned(), workload: None, reason });
            false
        }
    });
    Ok((wanted, absent))
}

#[allow(clippy::too_many_arguments, reason = "one call, whose parts have no life of their own")]
fn one(
    contender: &Contender,
    load: &Load,
    options: &Options,
    media: &Media,
    stop: &Stop,
    progress: &Progress,
    round: u32,
    records: &mut Vec<Record>,
) -> Result<()> {
    let spec = workload::find(load.workload)
        .ok_or_else(|| Error::Usage(format!("{}: no such workload", load.workload)))?;
    let plan = Plan {
        workloads: vec![spec],
        threads: load.threads.clone(),
        time: load.time,
        repeat: 1,
        params: load.params.clone(),
        check: true,
        shelf: options.shelf.clone(),
    };
    let mut each = |mut record: Record| {
        record.repeat = round;
        let threads = record.threads;
        let (title, ops, p99) = (record.title(), record.ops_per_s, record.p99_us);
        let took = match record.workload.as_str() {
            daily::NAME => format!("{:.2} s", record.seconds),
            _ => format!("{ops:.0} ops/s, p99 {p99:.1} us"),
        };
        progress.line(&format!(
            "round {round}/{}: {title} x{threads}: {}: {took}",
            options.rounds, contender.name
        ));
        records.push(record);
    };
    progress.doing(contender.name, "making the file system");
    let wants = Wants { ring: load.ring, files: load.params.files };
    contender.start(media.places(), &options.narufs, wants, None)?.run(&plan, stop, progress, &mut each)
}

/// What a reader must know of the machine.
fn machine(options: &Options, media: &Media) -> Vec<(String, String)> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |table: &str, name: &str| {
        let line = table.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_once(':'));
        line.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let device = match media.is_loop() {
        true => format!(
            "a loop device with direct I/O over a file of {} MiB, written beforehand",
            options.size >> 20
        ),
        false => media.places().device.display().to_string(),
    };
    let in_ram = match (&media.places().ram, &media.places().journal) {
        (None, None) => "none".to_owned(),
        (None, Some(_)) => "a loop device over shared memory, for journals".to_owned(),
        (Some(_), _) => format!("loop devices over shared memory, {} MiB", options.size >> 20),
    };
    let rows = [
        ("processor", format!("{}, {cores} cores", field(&read("/proc/cpuinfo"), "model name"))),
        ("memory", field(&read("/proc/meminfo"), "MemTotal")),
        ("kernel", read("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("device of all", device),
        ("devices in RAM", in_ram),
        ("narufs", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let rows = rows.into_iter().map(|(name, value)| (name.to_owned(), value));
    rows.chain(super::about::rows(options)).collect()
}
