//! What came out, for a terminal and for a page that stands on its own.

mod cells;
mod chart;
mod html;
mod summary;

pub use cells::{Cell, cells};
pub use html::page;
pub use summary::sentences;

use super::Results;

/// A table for a terminal: one line for each workload, number of threads and contender.
pub fn table(results: &Results) -> Vec<String> {
    let cells = cells(results);
    let mut lines = vec![format!(
        "{:<20} {:>4} {:<20} {:>12} {:>7} {:>10} {:>10} {:>10} {:>8}",
        "workload", "thr", "file system", "ops/s", "spread", "p50 us", "p99 us", "survives", "of ext4"
    )];
    for cell in &cells {
        let of = cells::baseline(&cells, cell).map_or("-".into(), |base| format!("{:.2}", cell.ops / base));
        lines.push(format!(
            "{:<20} {:>4} {:<20} {:>12.0} {:>6.0}% {:>10.1} {:>10.1} {:>10} {:>8}",
            cell.title,
            cell.threads,
            cell.contender,
            cell.ops,
            cell.spread * 100.0,
            cell.p50_us,
            cell.p99_us,
            cell.survives(),
            of
        ));
    }
    for absent in &results.absent {
        let what = absent.workload.as_deref().unwrap_or("everything");
        lines.push(format!("not run: {}, {what}: {}", absent.contender, absent.reason));
    }
    lines
}
