//! What came out: a page for each paper and one that leads to them, and lines for a terminal.

mod page;
mod plot;
mod text;

pub use page::{index, page};
pub use text::lines;

use super::found::Wanted;

/// A figure with as many digits as it deserves.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v == 0.0 || v >= 99.5 => format!("{value:.0}"),
        v if v >= 9.95 => format!("{value:.1}"),
        v if v >= 0.095 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn wanted(wanted: Wanted) -> String {
    match wanted {
        Wanted::AtLeast(least) => format!("at least {}", figure(least)),
        Wanted::AtMost(most) => format!("at most {}", figure(most)),
        Wanted::Within(least, most) => format!("{} to {}", figure(least), figure(most)),
    }
}

fn perhaps(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), figure)
}

/// What became of a goal, in a word.
fn verdict(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "missed",
        None => "not measured",
    }
}
