//! Figures to look up: every cell, and emulated NVM beside ext4 on RAM.

use super::cells::{Cell, best, promise, threads, titles};
use super::scale::{ratio, short};
use super::summary::{IN_RAM, UNLAPPED};
use maud::{Markup, html};

/// A table for each workload, folded away.
pub(super) fn all(cells: &[Cell]) -> Markup {
    html! {
        @for title in titles(cells, |_| true) {
            details { summary { (title) } (table(cells, title)) }
        }
    }
}

fn table(cells: &[Cell], title: &str) -> Markup {
    let of_title: Vec<&Cell> = cells.iter().filter(|c| c.title == title).collect();
    html! {
        div.scroll { table.all {
            thead { tr {
                th { "file system" } th { "survives" } th { "ops/s" } th { "spread" } th { "of best" } th { "p50 us" }
                th { "p99 us" } th { "CPU us/op" } th { "B read" } th { "B written" }
            } }
            @for here in of_title.chunk_by(|a, b| a.threads == b.threads) {
                tbody {
                    tr { th { (threads(here.first().map_or(0, |c| c.threads))) } }
                    @for c in here { tr.ours[c.is_ours()] {
                        td { (c.contender) @if c.unlapped { (UNLAPPED) } }
                        td { (c.survives()) } td { (short(c.ops)) } td { (format!("{:.0} %", c.spread() * 100.0)) }
                        td { (share(c.ops, best(cells, c))) } td { (time(c.p50_us)) } td { (time(c.p99_us)) }
                        td { (format!("{:.2}", c.cpu_us)) } td { (short(c.read)) } td { (short(c.written)) }
                    } }
                }
            }
        } }
    }
}

fn share(of: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.2}", of / whole) } else { String::new() }
}

/// Microseconds, with digits that a clock can give.
fn time(us: f64) -> String {
    match us {
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// What the journal's memory alone does, and what the device still costs: emulated NVM, mounted, with the most threads,
/// beside ext4 with its journal on RAM and wholly on RAM.
pub(super) fn nvm(cells: &[Cell]) -> Option<Markup> {
    const OURS: &str = "narufs-nvm";
    let mut rows = Vec::new();
    for title in titles(cells, |c| c.contender == OURS) {
        let of = |name: &str, count: usize| {
            cells
                .iter()
                .find(|c| c.title == title && c.threads == count && c.contender == name && c.ops > 0.0)
        };
        let own = cells.iter().filter(|c| c.title == title && c.contender == OURS && c.ops > 0.0);
        let Some(ours) = own.max_by_key(|c| c.threads) else { continue };
        let beside = IN_RAM.map(|(name, _)| of(name, ours.threads));
        if beside.iter().any(Option::is_some) {
            rows.push((ours, beside));
        }
    }
    let class = rows.first().map(|(ours, _)| ours.class)?;
    Some(html! {
        h3 { "Emulated NVM beside ext4 on RAM" }
        p.soft { "Operations per second with the most threads; each " (promise(class)) "." }
        div.scroll { table {
            thead { tr {
                th.word { "workload" } th { "threads" } th { (OURS) }
                @for (_, what) in IN_RAM { th { (what) } th { "ratio" } }
            } }
            tbody { @for (ours, beside) in &rows { tr {
                td.word { (ours.title) @if ours.unlapped { (UNLAPPED) } } td { (ours.threads) } td { (short(ours.ops)) }
                @for other in beside {
                    td { (other.map_or_else(String::new, |c| short(c.ops))) }
                    td { (other.map_or_else(String::new, |c| ratio(ours.ops / c.ops))) }
                }
            } } }
        } }
    })
}
