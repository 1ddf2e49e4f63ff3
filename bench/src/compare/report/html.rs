//! The page: one file, nothing from elsewhere, readable light and dark, wide and narrow.

use super::cells::{Cell, baseline, cells};
use super::{Results, chart, summary};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = "
:root { color-scheme: light dark; --text: #1c1f23; --soft: #5d6670; --back: #ffffff; --line: #d8dde3; --panel: #f5f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e8ec; --soft: #9aa5b1; --back: #14171a; --line: #343b43; --panel: #1d2226; }
}
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 72rem; color: var(--text); background: var(--back);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 0 0 .4rem; }
p.soft, .soft { color: var(--soft); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .8rem; background: var(--panel); border-radius: 8px; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font-size: 13px; }
svg .grid { stroke: var(--line); stroke-width: 1; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; padding: 0; list-style: none; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child, td.word, th.word { text-align: left; } thead th { color: var(--soft); font-weight: 600; }
tr.ours td { font-weight: 600; } code { overflow-wrap: anywhere; }
.win::marker { content: '\\25B2  '; color: #3d9a50; } .loss::marker { content: '\\25BC  '; color: #d1495b; }
.draw::marker { content: '=  '; }
";

/// The page.
pub fn page(results: &Results) -> String {
    let cells = cells(results);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "File systems compared" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "File systems compared" }
                p.soft {
                    "One load generator, the same device, " (results.rounds)
                    " interleaved rounds; medians. After each run everything was synced, brought back from its media "
                    "(narufs after a kill) and compared."
                }
                (words(&cells))
                h2 { "Operations per second over threads" }
                p.soft { "Logarithmic: one line of the grid is a factor of ten." }
                (legend(results))
                (curves(&cells, results))
                (bars(&cells, results))
                (phases(&cells, results))
                (tables(&cells))
                (about(results))
            }
        }
    };
    page.into_string()
}

fn words(cells: &[Cell]) -> Markup {
    let sentences = summary::sentences(cells);
    html! {
        h2 { "Who wins where" }
        p.soft {
            "narufs against the best of the others that promise the same, with the most threads measured. "
            "A ratio across promises would say little: what survives a loss of power waits for the device."
        }
        @if sentences.is_empty() {
            p { "Nothing of the same promise ran together." }
        }
        ul {
            @for s in &sentences {
                @let class = if s.ratio > 1.05 { "win" } else if s.ratio < 0.95 { "loss" } else { "draw" };
                li class=(class) { (s.words) }
            }
        }
    }
}

fn legend(results: &Results) -> Markup {
    html! {
        ul.legend {
            @for (name, what) in &results.contenders {
                li title=(what) {
                    i style=(format!("background:{}", chart::colour(name, &results.contenders))) {}
                    (name)
                }
            }
        }
    }
}

/// Titles in their order, of cells that a condition holds for.
fn titles(cells: &[Cell], wanted: impl Fn(&Cell) -> bool) -> Vec<String> {
    let mut titles: Vec<String> = Vec::new();
    for cell in cells.iter().filter(|cell| wanted(cell)) {
        if !titles.contains(&cell.title) {
            titles.push(cell.title.clone());
        }
    }
    titles
}

fn is_macro(cell: &Cell) -> bool {
    matches!(cell.workload.as_str(), "varmail" | "tokubench")
}

fn curves(cells: &[Cell], results: &Results) -> Markup {
    html! {
        div.charts {
            @for title in titles(cells, |cell| cell.workload != "iozone") {
                @let own: Vec<&Cell> = cells.iter().filter(|cell| cell.title == title).collect();
                figure { h3 { (title) } (chart::lines(&own, &results.contenders)) }
            }
        }
    }
}

fn bars(cells: &[Cell], results: &Results) -> Markup {
    let colour = |name: &str| chart::colour(name, &results.contenders);
    html! {
        @for title in titles(cells, is_macro) {
            h2 { (title) ", operations per second" }
            div.charts {
                @let mut threads: Vec<usize> =
                    cells.iter().filter(|c| c.title == title).map(|c| c.threads).collect();
                @let () = threads.dedup();
                @for count in threads {
                    @let here = cells.iter().filter(|c| c.title == title && c.threads == count);
                    @let rows: Vec<(String, f64)> = here.map(|c| (c.contender.clone(), c.ops)).collect();
                    figure { h3 { (count) " threads" } (chart::bars(&rows, "", colour)) }
                }
            }
        }
    }
}

fn phases(cells: &[Cell], results: &Results) -> Markup {
    let colour = |name: &str| chart::colour(name, &results.contenders);
    let titles = titles(cells, |cell| cell.workload == "iozone");
    let device = |title: &str, of: fn(&Cell) -> f64| -> Vec<(String, f64)> {
        cells.iter().filter(|c| c.title == title).map(|c| (c.contender.clone(), of(c))).collect()
    };
    html! {
        @if !titles.is_empty() {
            h2 { "Bytes of the device by phase" }
            div.charts {
                @for title in &titles {
                    figure { h3 { (title) ", read" } (chart::bars(&device(title, |c| c.read), "B", colour)) }
                    figure { h3 { (title) ", written" } (chart::bars(&device(title, |c| c.written), "B", colour)) }
                }
            }
        }
    }
}

fn tables(cells: &[Cell]) -> Markup {
    html! {
        h2 { "Figures" }
        div.scroll { table {
            thead { tr {
                th { "workload" } th { "threads" } th.word { "file system" } th.word { "survives" } th { "ops/s" }
                th { "spread" } th { "of ext4" } th { "p50 us" } th { "p99 us" } th { "CPU us/op" }
                th { "read" } th { "written" } th.word { "" }
            } }
            tbody { @for cell in cells {
                tr.ours[cell.is_ours()] {
                    td { (cell.title) } td { (cell.threads) } td.word { (cell.contender) }
                    td.word { (cell.survives()) } td { (chart::short(cell.ops)) }
                    td { (format!("{:.0} %", cell.spread * 100.0)) }
                    td { @match baseline(cells, cell) {
                        Some(base) => (format!("{:.2}", cell.ops / base)),
                        None => "",
                    } }
                    td { (format!("{:.1}", cell.p50_us)) } td { (format!("{:.1}", cell.p99_us)) }
                    td { (format!("{:.2}", cell.cpu_us)) }
                    td { (chart::short(cell.read)) } td { (chart::short(cell.written)) }
                    td.word { @if cell.unlapped { "unlapped" } }
                }
            } }
        } }
    }
}

fn about(results: &Results) -> Markup {
    html! {
        h2 { "What ran" }
        div.scroll { table { tbody {
            @for (name, what) in &results.contenders { tr { td { (name) } td.word { (what) } } }
        } } }
        @if !results.absent.is_empty() {
            h2 { "What did not" }
            ul { @for absent in &results.absent {
                li {
                    (absent.contender) ", " (absent.workload.as_deref().unwrap_or("everything")) ": " (absent.reason)
                }
            } }
        }
        h2 { "Machine" }
        div.scroll { table { tbody {
            @for (name, value) in &results.machine { tr { td { (name) } td.word { (value) } } }
        } } }
        p { "Run it again: " code { (results.command) } }
        p.soft {
            "Spread is the range over the median. Device bytes of kernel file systems are what the kernel counts for "
            "the device, those of narufs what its engine asked for. Processor time is without kernel threads. "
            "Emulated NVM is shared memory with every write-back and fence executed. A library makes no system calls."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Absent;
    use crate::load::{Measured, histogram};
    use crate::meter::Counters;
    use crate::record::{Record, Row};
    use crate::target::{Description, Survives};
    use std::time::Duration;

    fn record(workload: &str, phase: Option<&str>, target: &str, threads: usize, ops: u64) -> Record {
        let row = Row { workload, phase, threads, pinned: true, repeat: 1, seed: 1 };
        let description = Description {
            name: target.into(),
            filesystem: "x".into(),
            survives: Survives::Power,
            note: None,
        };
        let time = Duration::from_secs(1);
        let measured = Measured { time, ops, bytes: 0, latency: histogram(), done: false };
        Record::new(row, &description, &measured, Duration::ZERO, &Counters::default())
    }

    fn results() -> Results {
        let mut records = Vec::new();
        for target in ["ext4", "narufs-ssd"] {
            for threads in [1, 16] {
                records.push(record("DWOM", None, target, threads, 1000 * threads as u64));
                records.push(record("varmail", None, target, threads, 50));
            }
            records.push(record("iozone", Some("rewrite"), target, 1, 10));
        }
        let absent =
            Absent { contender: "f2fs".into(), workload: None, reason: "this kernel has no <f2fs>".into() };
        Results {
            machine: vec![("kernel".into(), "6.x".into())],
            command: "narufs compare --quick".into(),
            rounds: 1,
            contenders: ["ext4", "narufs-ssd"].map(|n| (n.to_owned(), "what it is".to_owned())).into(),
            records,
            absent: vec![absent],
        }
    }

    #[test]
    fn the_page_stands_on_its_own() {
        let page = page(&results());
        for foreign in ["http:", "https:", "src=", "href=", "<script", "@import", "url("] {
            assert!(!page.contains(foreign), "the page has {foreign}");
        }
        for part in [
            "prefers-color-scheme: dark",
            "width=device-width",
            "<svg",
            "Who wins where",
            "are even",
            "narufs compare --quick",
            "iozone rewrite, written",
            "this kernel has no &lt;f2fs&gt;",
            "16 threads",
        ] {
            assert!(page.contains(part), "the page lacks {part}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf"), "a figure is none");
    }

    #[test]
    fn an_empty_comparison_is_a_page_too() {
        let page = page(&Results { records: Vec::new(), ..results() });
        assert!(page.contains("Nothing of the same promise"));
    }

    #[test]
    fn the_table_for_terminals_has_every_cell_and_what_did_not_run() {
        let lines = crate::compare::report::table(&results());
        assert_eq!(lines.len(), 1 + 10 + 1);
        assert!(lines[1].starts_with("DWOM") && lines[1].contains("1.00"), "{}", lines[1]);
        assert!(lines[11].contains("f2fs, everything: this kernel has no"));
    }
}
