//! The steps as a table for a terminal: seconds, and what stands beside them.

use super::Caches;
use crate::Record;
use crate::stats::{median, spread};

/// The line above.
pub fn heading() -> String {
    format!(
        "{:<10} {:>3} {:>9} {:>9} {:>8} {:>9} {:>9} {:>9} {:>8}  {}",
        "step",
        "run",
        "seconds",
        "then sync",
        "cpu s",
        "requests",
        "MB read",
        "MB writ.",
        "flushes",
        "caches, check"
    )
}

fn shown(figure: Option<u64>) -> String {
    figure.map_or("-".into(), |n| n.to_string())
}

/// One step.
pub fn row(r: &Record) -> String {
    let caches = match r.caches {
        Some(Caches::Killed) => "cold, server killed",
        Some(Caches::Remounted) => "cold, mounted anew",
        Some(Caches::Dropped) => "cold, kernel's dropped",
        Some(Caches::Warm) | None => "",
    };
    let check = match &r.check {
        Some(c) => format!("{} files right, {:.1} s", c.files, c.reopen_s + c.compare_s),
        None => String::new(),
    };
    let words: Vec<&str> = [caches, &check].into_iter().filter(|said| !said.is_empty()).collect();
    let line = format!(
        "{:<10} {:>3} {:>9.3} {:>9.3} {:>8.2} {:>9} {:>9.1} {:>9.1} {:>8}  {}",
        r.phase.as_deref().unwrap_or_default(),
        r.repeat,
        r.seconds,
        r.then_sync_s.unwrap_or(0.0),
        r.cpu_s,
        shown(r.requests.as_ref().map(|by_opcode| by_opcode.values().sum())),
        r.device_read_bytes as f64 / 1e6,
        r.device_write_bytes as f64 / 1e6,
        shown(r.device_flushes),
        words.join("; ")
    );
    line.trim_end().to_owned()
}

/// Median and spread of a step that was repeated.
pub fn summary(records: &[Record]) -> Vec<String> {
    let mut lines = Vec::new();
    for step in super::STEPS {
        let same =
            records.iter().filter(|r| r.workload == super::NAME && r.phase.as_deref() == Some(step.name));
        let seconds: Vec<f64> = same.map(|r| r.seconds).collect();
        if let (Some(median), Some(spread)) = (median(&seconds), spread(&seconds)) {
            let (name, runs) = (step.name, seconds.len());
            lines.push(format!(
                "{name:<10}     {median:>9.3} s, median of {runs}, spread {:.0} %",
                spread * 100.0
            ));
        }
    }
    lines
}
