//! Scratch space that spills: what the device reads and writes in each phase of iozone, with each kind of needless
//! request turned on by itself, and the kernel's own tmpfs with swap beside it.

use super::said;
use crate::reproduce::found::{Account, Cells, Goal, Table, Wanted};
use crate::reproduce::phases::{PhaseIo, measure};
use crate::reproduce::run::{OURS, Run, absent, options};
use narufs_bench::compare::spill::Spilling;
use narufs_bench::compare::{self, compare};
use narufs_bench::daily::Shelf;
use narufs_bench::progress::Progress;
use narufs_bench::target::Library;
use narufs_bench::{Error, Params, Result};
use narufs_cli::options::OptionList;
use narufs_cli::server;

const CLEAN_LOST: &str = "spill-clean-lost";
const READ_BEFORE: &str = "spill-read-before-overwrite";
const BLIND: &str = "spill-blind-readahead";
const ALL: &str = "spill-clean-lost+spill-read-before-overwrite+spill-blind-readahead";
const VARIANTS: [&str; 5] = [OURS, CLEAN_LOST, READ_BEFORE, BLIND, ALL];

/// What is needless, which switch does it, and what the paper says of it.
const NEEDLESS: [(&str, &str, &str); 3] = [
    ("needless writes MB", CLEAN_LOST, "written while only reading"),
    ("needless reads MB", READ_BEFORE, "read while overwriting whole pages"),
    ("needless read-ahead MB", BLIND, "read beyond the pages asked for, at random"),
];

const MB: f64 = 1e6;

/// Runs it.
///
/// # Errors
/// The user's end of it; scratch space that cannot be made.
pub fn run(run: &Run) -> Result<Account> {
    let mut account = Account::new([
        "spill",
        "Memory that overflows to a device without needless requests",
        "Analyzing Supplement Secondary Storage I/O for Memory-Based File Systems (Linux 3.11, tmpfs with swap on an SSD, \
         4 GB of memory, 5 GB of data, IOzone)",
        "Which of the device's reads and writes are needless when a file is larger than memory, and what does each kind \
         cost?",
    ]);
    let memory: u64 = run.size(256 << 20, 24 << 20);
    account.method = said(&[
        "iozone, records of 4 KiB: write, rewrite, read, reread, random read, random write of a file of 0.25, 1.25 and 2.5 \
         times the memory, in scratch space that spills to a file on the device.",
        "Needless writes: bytes of data written in the three reading phases beyond what was dirty when they began. Needless \
         reads: bytes of data read in rewrite and random write, whose records are whole pages. Needless read-ahead: bytes \
         read in the random read beyond one page for each page that was not in memory.",
    ]);
    account.method.push(format!("Memory: {} MiB.", memory >> 20));
    account.differs = said(&[
        "The paper's machine has 4 GB; what matters is the file's size as a multiple of memory.",
        "narufs guesses which way a reader goes, from eight ways that it remembers of a file, and reads ahead of one that has \
         gone on twice: random reads do so by chance hardly ever, the smaller the file the more.",
        "The three switches are in this engine, one by one, so that each shows its own cost; tmpfs has all three at once.",
    ]);
    let places: &[u64] = run.size(&[25, 125, 250], &[25, 125]);
    let mut causes: Vec<Vec<String>> = Vec::new();
    let cells = run.in_turn(&mut account, "% of memory", &VARIANTS, places, |variant, percent| {
        let phases = phases(run, variant, memory, percent as f64 / 100.0)?;
        causes.retain(|row| row[0] != percent.to_string() || row[1] != variant);
        causes.extend(phases.iter().flat_map(|phase| by_cause(variant, percent, phase)));
        Ok(figures(&phases))
    })?;
    for &percent in places {
        for (what, switch, words) in NEEDLESS {
            let ours = cells.median(OURS, percent, what);
            let title = format!("ours, {percent} %: MB {words}");
            account.goals.push(Goal::new(title, Wanted::AtMost(0.0), ours));
            let file = memory as f64 * percent as f64 / 100.0 / MB;
            if percent > 100 {
                let theirs = cells.median(switch, percent, what);
                let title = format!("{switch}, {percent} %: MB {words}");
                account.goals.push(Goal::new(title, Wanted::AtLeast(file / 10.0), theirs));
            }
        }
    }
    show(&mut account, &cells, causes);
    tmpfs(run, &mut account, memory)?;
    Ok(account)
}

fn show(account: &mut Account, cells: &Cells, causes: Vec<Vec<String>>) {
    let mut columns: Vec<(&str, &str, usize)> = vec![
        ("device MB", "device, MB in all", 1),
        ("needless writes MB", "needless writes, MB", 1),
        ("needless reads MB", "needless reads, MB", 1),
        ("needless read-ahead MB", "needless read-ahead, MB", 1),
    ];
    columns.extend(SPEEDS.iter().map(|(_, what)| (*what, *what, 0)));
    account.show("Device bytes", ["% of memory", "MB read and written in all phases"], cells, &columns);
    let head =
        ["% of memory", "variant", "phase", "cause", "MB read", "MB written"].map(str::to_owned).to_vec();
    account.tables.push(Table { title: "By cause (last round)".to_owned(), head, rows: causes });
}

/// Speeds of phases.
const SPEEDS: [(&str, &str); 6] = [
    ("write", "write MB/s"),
    ("rewrite", "rewrite MB/s"),
    ("read", "read MB/s"),
    ("reread", "reread MB/s"),
    ("random-read", "random read MB/s"),
    ("random-write", "random write MB/s"),
];

fn phases(run: &Run, variant: &str, memory: u64, ratio: f64) -> Result<Vec<PhaseIo>> {
    let spill = run.work.join("spill");
    let more = ["scratch", &format!("memory={memory}"), &format!("spill={}", spill.display())];
    let size = format!("spill_size={}", memory * 4);
    let mut words = options(variant, &more);
    words.push(size);
    let list = OptionList::parse(&words).map_err(Error::Usage)?;
    list.check().map_err(Error::Usage)?;
    server::fit_heap(&list);
    let mut library = Library::scratch(&spill, "narufs", &server::scratch_options(&list))?;
    let params = Params { memory, ratio, ..Params::default() };
    let measured = measure(run, &mut library, "iozone", params);
    let unmounted = library.unmount();
    // What it spilled to, if it is still there.
    let _ = std::fs::remove_file(&spill);
    let measured = measured?;
    unmounted.map(|()| measured)
}

fn figures(phases: &[PhaseIo]) -> Vec<(&'static str, f64)> {
    let of = |names: &[&str]| phases.iter().filter(|phase| names.contains(&phase.name)).collect::<Vec<_>>();
    let all: u64 = phases.iter().map(|phase| phase.read + phase.written).sum();
    let reading = of(&["read", "reread", "random-read"]);
    let written: u64 = reading.iter().map(|phase| phase.written).sum();
    let dirty = reading.first().map_or(0, |phase| phase.dirty_before);
    let read_before: u64 = of(&["rewrite", "random-write"]).iter().map(|phase| phase.read).sum();
    let ahead: u64 = of(&["random-read"]).iter().map(|phase| phase.read.saturating_sub(phase.missed)).sum();
    let mb = |bytes: u64| bytes as f64 / MB;
    let mut found = vec![
        ("device MB", mb(all)),
        ("needless writes MB", mb(written.saturating_sub(dirty))),
        ("needless reads MB", mb(read_before)),
        ("needless read-ahead MB", mb(ahead)),
    ];
    let speed = |(name, what): &(&str, &'static str)| {
        phases.iter().find(|phase| phase.name == *name).map(|phase| (*what, phase.mb_per_s))
    };
    found.extend(SPEEDS.iter().filter_map(speed));
    found
}

fn by_cause(variant: &str, percent: u64, phase: &PhaseIo) -> Vec<Vec<String>> {
    let row = |(cause, read, written): &(String, u64, u64)| {
        let mb = |bytes: &u64| format!("{:.1}", *bytes as f64 / MB);
        vec![
            percent.to_string(),
            variant.to_owned(),
            phase.name.to_owned(),
            cause.clone(),
            mb(read),
            mb(written),
        ]
    };
    phase.causes.iter().map(row).collect()
}

/// The kernel's tmpfs, within a limit of memory that is ours, swapping to a device of its own on the same disk.
fn tmpfs(run: &Run, account: &mut Account, memory: u64) -> Result<()> {
    const WHAT: &str = "the kernel's tmpfs with swap";
    if run.quick {
        absent(account, WHAT, "--quick leaves it out");
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        absent(account, WHAT, "it takes root, for a limit of memory and a swap area");
        return Ok(());
    }
    let narufs = std::env::current_exe().map_err(|e| Error::io("find", "this program", e))?;
    let options = compare::Options {
        loads: Vec::new(),
        spilling: Some(Spilling { memory, ratios: vec![0.25, 1.25, 2.5] }),
        rounds: run.rounds,
        contenders: vec!["tmpfs-swap".to_owned()],
        size: memory * 4,
        work: run.work.clone(),
        device: None,
        narufs,
        command: "narufs reproduce spill".to_owned(),
        shelf: Shelf::default(),
    };
    run.progress.doing("spill", WHAT);
    let results = match compare(&options, &run.stop, &Progress::none()) {
        Ok(results) => results,
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        Err(e) => {
            absent(account, WHAT, e.to_string());
            return Ok(());
        }
    };
    run.stop.check()?;
    results.absent.iter().for_each(|one| absent(account, WHAT, one.reason.clone()));
    let mut cells = Cells::default();
    for row in results.spilled.iter().flat_map(|spilled| &spilled.rows) {
        let phase = row.record.phase.as_deref().unwrap_or_default();
        let place = (row.ratio * 100.0).round() as u64;
        cells.add(phase, place, "MB/s", row.record.mb_per_s);
        cells.add(phase, place, "read MB", row.record.device_read_bytes as f64 / MB);
        cells.add(phase, place, "written MB", row.record.device_write_bytes as f64 / MB);
    }
    let columns = [("MB/s", "MB/s", 0), ("read MB", "MB read", 1), ("written MB", "MB written", 1)];
    account.tables.push(cells.table("tmpfs with swap, by phase (the variant)", "% of memory", &columns));
    Ok(())
}
