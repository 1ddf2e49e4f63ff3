//! Records gathered: one cell for each workload, number of threads and contender, medians over the rounds.

use super::Results;
use crate::Record;
use crate::stats::{median, range};
use crate::target::Survives;
use std::collections::HashMap;

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
    /// The fewest of any round.
    pub least: f64,
    /// The most of any round.
    pub most: f64,
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

/// Classes, the strongest promise first: the order of everything that is shown.
pub(super) const CLASSES: [Survives; 3] = [Survives::Power, Survives::Process, Survives::Nothing];

/// A class in words that follow a name.
pub(super) fn promise(class: Survives) -> &'static str {
    match class {
        Survives::Power => "survives a loss of power",
        Survives::Process => "survives the end of the process",
        Survives::Nothing => "survives nothing",
    }
}

/// A class in one word.
pub(super) fn word(class: Survives) -> &'static str {
    match class {
        Survives::Nothing => "nothing",
        Survives::Process => "process",
        Survives::Power => "power",
    }
}

impl Cell {
    /// The class in one word.
    pub fn survives(&self) -> &'static str {
        word(self.class)
    }

    /// Whether it is narufs.
    pub fn is_ours(&self) -> bool {
        self.contender.starts_with("narufs")
    }

    /// Range of the rounds over their median.
    pub fn spread(&self) -> f64 {
        if self.ops > 0.0 { (self.most - self.least) / self.ops } else { 0.0 }
    }
}

/// One cell of the records of all rounds.
pub(super) fn cell(same: &[&Record]) -> Option<Cell> {
    let first = same.first()?;
    let of = |f: fn(&Record) -> f64| same.iter().map(|r| f(r)).collect::<Vec<f64>>();
    let mid = |f: fn(&Record) -> f64| median(&of(f)).unwrap_or(0.0);
    let (least, most) = range(&of(|r| r.ops_per_s))?;
    Some(Cell {
        title: first.title(),
        workload: first.workload.clone(),
        threads: first.threads,
        contender: first.target.clone(),
        class: first.survives,
        ops: mid(|r| r.ops_per_s),
        least,
        most,
        p50_us: mid(|r| r.p50_us),
        p99_us: mid(|r| r.p99_us),
        cpu_us: mid(|r| r.cpu_us_per_op),
        read: mid(|r| r.device_read_bytes as f64),
        written: mid(|r| r.device_write_bytes as f64),
        unlapped: same.iter().any(|r| r.unlapped),
        rounds: same.len(),
    })
}

/// All cells of the load generator's workloads: workloads in the order of the run, then threads, then classes, and the best of a class first.
pub fn cells(results: &Results) -> Vec<Cell> {
    let mut titles: Vec<String> = Vec::new();
    let mut groups: HashMap<(String, usize, &str), Vec<&Record>> = HashMap::new();
    for record in results.records.iter().filter(|record| record.workload != crate::daily::NAME) {
        let title = record.title();
        if !titles.contains(&title) {
            titles.push(title.clone());
        }
        groups.entry((title, record.threads, &record.target)).or_default().push(record);
    }
    let mut cells: Vec<Cell> = groups.values().filter_map(|same| cell(same)).collect();
    let place = |cell: &Cell| titles.iter().position(|title| *title == cell.title);
    let class = |cell: &Cell| CLASSES.iter().position(|class| *class == cell.class);
    cells.sort_by(|a, b| {
        let order = |c: &Cell| (place(c), c.threads, class(c));
        order(a).cmp(&order(b)).then(b.ops.total_cmp(&a.ops)).then_with(|| a.contender.cmp(&b.contender))
    });
    cells
}

/// What the best of the same class reached where this cell was measured, itself included.
pub(super) fn best(cells: &[Cell], of: &Cell) -> f64 {
    let same = |cell: &&Cell| cell.title == of.title && cell.threads == of.threads && cell.class == of.class;
    cells.iter().filter(same).map(|cell| cell.ops).fold(0.0, f64::max)
}

/// Titles in their order, of cells that a condition holds for.
pub(super) fn titles(cells: &[Cell], wanted: impl Fn(&Cell) -> bool) -> Vec<&str> {
    let mut titles: Vec<&str> = Vec::new();
    for cell in cells.iter().filter(|cell| wanted(cell)) {
        if titles.last() != Some(&cell.title.as_str()) {
            titles.push(&cell.title);
        }
    }
    titles
}

/// "1 thread", "16 threads".
pub(super) fn threads(count: usize) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

/// A cell for tests.
#[cfg(test)]
pub(super) fn example(title: &str, threads: usize, contender: &str, class: Survives, ops: f64) -> Cell {
    Cell {
        title: title.into(),
        workload: title.split(' ').next().unwrap_or_default().into(),
        threads,
        contender: contender.into(),
        class,
        ops,
        least: ops,
        most: ops,
        p50_us: 1.0,
        p99_us: 2.0,
        cpu_us: 1.0,
        read: 0.0,
        written: 0.0,
        unlapped: false,
        rounds: 1,
    }
}
