//! Data beyond a memory limit: bytes of the device and operations, phase by phase.

use super::chart;
use crate::compare::spill::{Row, Spilled};
use crate::stats::median;
use maud::{Markup, html};

/// Medians over the rounds of one phase of one contender with one size.
struct Bar<'a> {
    ratio: f64,
    phase: &'a str,
    contender: &'a str,
    survives: &'static str,
    ops: f64,
    read: f64,
    written: f64,
    peak: Option<u64>,
}

/// All of them: sizes, then phases, then contenders, each in the order of the run.
fn bars(spilled: &Spilled) -> Vec<Bar<'_>> {
    let same = |a: &Row, b: &Row| {
        a.ratio == b.ratio && a.record.phase == b.record.phase && a.record.target == b.record.target
    };
    let mut bars = Vec::new();
    for (at, row) in spilled.rows.iter().enumerate() {
        if spilled.rows[..at].iter().any(|before| same(before, row)) {
            continue;
        }
        let all: Vec<&Row> = spilled.rows.iter().filter(|other| same(other, row)).collect();
        let mid = |of: fn(&Row) -> f64| median(&all.iter().map(|r| of(r)).collect::<Vec<_>>()).unwrap_or(0.0);
        bars.push(Bar {
            ratio: row.ratio,
            phase: row.record.phase.as_deref().unwrap_or_default(),
            contender: &row.record.target,
            survives: super::cells::word(row.record.survives),
            ops: mid(|r| r.record.ops_per_s),
            read: mid(|r| r.record.device_read_bytes as f64),
            written: mid(|r| r.record.device_write_bytes as f64),
            peak: all.iter().filter_map(|r| r.memory_peak).max(),
        });
    }
    let phases = each(&bars, |bar| bar.phase);
    let rank = |bar: &Bar| {
        let place = spilled.contenders.iter().position(|(name, _)| name == bar.contender);
        (phases.iter().position(|phase| *phase == bar.phase), place)
    };
    bars.sort_by(|a, b| a.ratio.total_cmp(&b.ratio).then_with(|| rank(a).cmp(&rank(b))));
    bars
}

/// The different values of a field, in their order.
fn each<'a, T: PartialEq>(bars: &[Bar<'a>], of: impl Fn(&Bar<'a>) -> T) -> Vec<T> {
    let mut found = Vec::new();
    for value in bars.iter().map(of) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

fn megabytes(bytes: f64) -> String {
    format!("{:.0}", bytes / 1e6)
}

/// The section of the page; nothing where nothing ran.
pub(super) fn section(spilled: Option<&Spilled>) -> Markup {
    let Some(spilled) = spilled.filter(|spilled| !spilled.rows.is_empty()) else { return html! {} };
    let bars = bars(spilled);
    let colour = |name: &str| chart::colour(name, &spilled.contenders);
    let rows = |ratio: f64, phase: &str, of: fn(&Bar) -> f64| -> Vec<(String, f64)> {
        let here = bars.iter().filter(|bar| bar.ratio == ratio && bar.phase == phase);
        here.map(|bar| (bar.contender.to_owned(), of(bar))).collect()
    };
    html! {
        h2 { "More data than memory" }
        p.soft {
            "iozone with one file under a memory limit of " (spilled.memory >> 20) " MiB that the generator, the "
            "server, caches and tmpfs share; tmpfs swaps to the device of all. Bytes are what was read from and "
            "written to the device in each phase."
        }
        @for ratio in each(&bars, |bar| bar.ratio) {
            h3 { "A file of " (ratio) " times the limit (" (megabytes(spilled.memory as f64 * ratio)) " MB)" }
            div.charts {
                @for phase in each(&bars, |bar| bar.phase) {
                    figure { h3 { (phase) ", operations per second" } (chart::bars(&rows(ratio, phase, |b| b.ops), "", colour)) }
                    figure { h3 { (phase) ", bytes read" } (chart::bars(&rows(ratio, phase, |b| b.read), "B", colour)) }
                    figure { h3 { (phase) ", bytes written" } (chart::bars(&rows(ratio, phase, |b| b.written), "B", colour)) }
                }
            }
        }
        div.scroll { table {
            thead { tr {
                th { "file" } th.word { "phase" } th.word { "file system" } th.word { "survives" } th { "ops/s" }
                th { "MB read" } th { "MB written" } th { "most memory, MiB" }
            } }
            tbody { @for bar in &bars {
                tr.ours[bar.contender.starts_with("narufs")] {
                    td { (bar.ratio) "x" } td.word { (bar.phase) } td.word { (bar.contender) }
                    td.word { (bar.survives) } td { (chart::short(bar.ops)) }
                    td { (megabytes(bar.read)) } td { (megabytes(bar.written)) }
                    td { @match bar.peak { Some(peak) => (peak >> 20), None => "" } }
                }
            } }
        } }
        div.scroll { table { tbody {
            @for (name, what) in &spilled.contenders { tr { td { (name) } td.word { (what) } } }
            @for (name, value) in &spilled.machine { tr { td { (name) } td.word { (value) } } }
        } } }
    }
}

/// The same for a terminal.
pub(super) fn table(spilled: Option<&Spilled>) -> Vec<String> {
    let Some(spilled) = spilled.filter(|spilled| !spilled.rows.is_empty()) else { return Vec::new() };
    let mut lines = vec![
        String::new(),
        format!("more data than memory: a limit of {} MiB", spilled.memory >> 20),
        format!(
            "{:>5} {:<14} {:<20} {:>12} {:>9} {:>11} {:>10}",
            "file", "phase", "file system", "ops/s", "MB read", "MB written", "survives"
        ),
    ];
    lines.extend(bars(spilled).iter().map(|bar| {
        format!(
            "{:>4}x {:<14} {:<20} {:>12.0} {:>9} {:>11} {:>10}",
            bar.ratio,
            bar.phase,
            bar.contender,
            bar.ops,
            megabytes(bar.read),
            megabytes(bar.written),
            bar.survives
        )
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Measured, histogram};
    use crate::meter::{Counters, DeviceIo};
    use crate::record::{Record, Row as Which};
    use crate::target::{Description, Survives};
    use std::time::Duration;

    fn row(ratio: f64, phase: &str, target: &str, repeat: u32, read_bytes: u64) -> Row {
        let which =
            Which { workload: "iozone", phase: Some(phase), threads: 1, pinned: false, repeat, seed: 1 };
        let description = Description {
            name: target.into(),
            filesystem: "x".into(),
            survives: Survives::Nothing,
            note: None,
        };
        let time = Duration::from_secs(1);
        let measured = Measured { time, ops: 10, bytes: 0, latency: histogram(), done: true };
        let counters =
            Counters { device: DeviceIo { read_bytes, ..DeviceIo::default() }, ..Counters::default() };
        let record = Record::new(which, &description, &measured, Duration::ZERO, &counters);
        Row { ratio, memory_peak: Some(64 << 20), record }
    }

    fn spilled() -> Spilled {
        let mut rows = Vec::new();
        for repeat in [1, 2, 3] {
            for ratio in [1.25, 0.25] {
                for target in ["tmpfs-swap", "narufs-ssd"] {
                    rows.push(row(ratio, "write", target, repeat, 1_000_000 * u64::from(repeat)));
                    rows.push(row(ratio, "read", target, repeat, 0));
                }
            }
        }
        let contenders = ["tmpfs-swap", "narufs-ssd"].map(|n| (n.to_owned(), "<what>".to_owned()));
        Spilled {
            memory: 64 << 20,
            machine: vec![("memory limit".into(), "64 MiB".into())],
            contenders: contenders.into(),
            rows,
        }
    }

    #[test]
    fn medians_are_shown_size_by_size_and_phase_by_phase() {
        let lines = table(Some(&spilled()));
        assert_eq!(lines.len(), 3 + 2 * 2 * 2, "{lines:#?}");
        assert!(lines[3].starts_with("0.25x write") && lines[3].contains("tmpfs-swap"), "{}", lines[3]);
        let words: Vec<&str> = lines[4].split_whitespace().collect();
        assert_eq!(words[..5], ["0.25x", "write", "narufs-ssd", "10", "2"]);
        assert!(lines[10].starts_with("1.25x read"), "{}", lines[10]);
        assert!(table(None).is_empty());
    }

    #[test]
    fn the_section_shows_bytes_and_operations() {
        let page = section(Some(&spilled())).into_string();
        for part in ["1.25 times the limit (84 MB)", "write, bytes read", "&lt;what&gt;", "<svg"] {
            assert!(page.contains(part), "the section lacks {part}");
        }
        assert!(!page.contains("NaN"));
        assert_eq!(section(None).into_string(), "");
    }

    #[test]
    fn rows_are_records_with_more() {
        let json = serde_json::to_value(spilled()).expect("plain");
        assert_eq!(json["rows"][0]["target"], "tmpfs-swap");
        assert_eq!(json["rows"][0]["ratio"], 1.25);
        let again: Spilled = serde_json::from_value(json).expect("the same");
        assert_eq!(again.rows[0].record, spilled().rows[0].record);
    }
}
