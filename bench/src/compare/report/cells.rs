//! Records gathered: one cell for each workload, number of threads and contender, medians over the rounds.

use super::Results;
use crate::Record;
use crate::stats::{median, spread};
use crate::target::Survives;

/// The contender that others are measured by.
pub(super) const BASE: &str = "ext4";

/// Medians over the rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The workload with its phase.
    pub title: String,
    /// The workload.
    pub workload: String,
    /// Threads.
    pub threads: usize,
    /// The contender.
    pub contender: String,
    /// What a synced file lives through.
    pub class: Survives,
    /// Operations in a second.
    pub ops: f64,
    /// Range of them over the median.
    pub spread: f64,
    /// Median latency.
    pub p50_us: f64,
    /// One in a hundred was slower.
    pub p99_us: f64,
    /// Processor time of an operation.
    pub cpu_us: f64,
    /// Bytes read from the device.
    pub read: f64,
    /// Bytes written to it.
    pub written: f64,
    /// Whether it went around its ring too seldom.
    pub unlapped: bool,
    /// Rounds that gave a record.
    pub rounds: usize,
}

impl Cell {
    /// The class in one word.
    pub fn survives(&self) -> &'static str {
        match self.class {
            Survives::Nothing => "nothing",
            Survives::Process => "process",
            Survives::Power => "power",
        }
    }

    /// Whether it is narufs.
    pub fn is_ours(&self) -> bool {
        self.contender.starts_with("narufs")
    }
}

fn cell(first: &Record, same: &[&Record]) -> Cell {
    let of = |f: fn(&Record) -> f64| same.iter().map(|r| f(r)).collect::<Vec<f64>>();
    let mid = |f: fn(&Record) -> f64| median(&of(f)).unwrap_or(0.0);
    Cell {
        title: first.title(),
        workload: first.workload.clone(),
        threads: first.threads,
        contender: first.target.clone(),
        class: first.survives,
        ops: mid(|r| r.ops_per_s),
        spread: spread(&of(|r| r.ops_per_s)).unwrap_or(0.0),
        p50_us: mid(|r| r.p50_us),
        p99_us: mid(|r| r.p99_us),
        cpu_us: mid(|r| r.cpu_us_per_op),
        read: mid(|r| r.device_read_bytes as f64),
        written: mid(|r| r.device_write_bytes as f64),
        unlapped: same.iter().any(|r| r.unlapped),
        rounds: same.len(),
    }
}

/// All cells: workloads in the order of the run, then threads, then contenders.
pub fn cells(results: &Results) -> Vec<Cell> {
    let same =
        |a: &Record, b: &Record| a.title() == b.title() && a.threads == b.threads && a.target == b.target;
    let mut cells = Vec::new();
    for (at, record) in results.records.iter().enumerate() {
        if results.records[..at].iter().any(|before| same(before, record)) {
            continue;
        }
        let all: Vec<&Record> = results.records.iter().filter(|other| same(other, record)).collect();
        cells.push(cell(record, &all));
    }
    let order: Vec<String> = cells.iter().map(|cell| cell.title.clone()).collect();
    let place = |cell: &Cell| order.iter().position(|title| *title == cell.title);
    let rank = |cell: &Cell| results.contenders.iter().position(|(name, _)| *name == cell.contender);
    cells.sort_by_key(|cell| (place(cell), cell.threads, rank(cell)));
    cells
}

/// What the base reached where this cell was measured.
pub(super) fn baseline(cells: &[Cell], of: &Cell) -> Option<f64> {
    let same = |cell: &&Cell| cell.contender == BASE && cell.title == of.title && cell.threads == of.threads;
    cells.iter().find(same).map(|cell| cell.ops).filter(|ops| *ops > 0.0)
}
