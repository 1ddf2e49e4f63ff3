//! Data beyond a memory limit: bytes of the device and operations, phase by phase.

use super::cells::{Cell, cell};
use super::each;
use super::scale::short;
use crate::Record;
use crate::compare::spill::{Row, Spilled};
use maud::{Markup, html};

/// Medians over the rounds of one phase of one contender with one size.
struct Bar {
    ratio: f64,
    cell: Cell,
    peak: Option<u64>,
}

/// All of them: sizes, then phases, then contenders, each in the order of the run.
fn bars(spilled: &Spilled) -> Vec<Bar> {
    let place = |name: &str| spilled.contenders.iter().position(|(known, _)| known == name);
    let mut bars = Vec::new();
    for ratio in each(&spilled.rows, |row| row.ratio) {
        let of_size: Vec<&Row> = spilled.rows.iter().filter(|row| row.ratio == ratio).collect();
        for phase in each(&of_size, |row| row.record.title()) {
            let mut targets = each(&of_size, |row| row.record.target.as_str());
            targets.sort_by_key(|name| place(name));
            for target in targets {
                let is_same = |row: &&&Row| row.record.title() == phase && row.record.target == target;
                let same: Vec<&Row> = of_size.iter().filter(is_same).copied().collect();
                let records: Vec<&Record> = same.iter().map(|row| &row.record).collect();
                let peak = same.iter().filter_map(|row| row.memory_peak).max();
                bars.extend(cell(&records).map(|cell| Bar { ratio, cell, peak }));
            }
        }
    }
    bars.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    bars
}

/// The cells of each size of file, as a multiple of the memory limit.
pub(super) fn by_size(spilled: Option<&Spilled>) -> Vec<(f64, Vec<Cell>)> {
    let mut sizes: Vec<(f64, Vec<Cell>)> = Vec::new();
    for Bar { ratio, cell, .. } in spilled.map(bars).unwrap_or_default() {
        match sizes.last_mut() {
            Some((size, cells)) if *size == ratio => cells.push(cell),
            _ => sizes.push((ratio, vec![cell])),
        }
    }
    sizes
}

fn megabytes(bytes: f64) -> String {
    format!("{:.0}", bytes / 1e6)
}

/// The section of the page; nothing where nothing ran.
pub(super) fn section(spilled: Option<&Spilled>) -> Markup {
    let Some(spilled) = spilled.filter(|spilled| !spilled.rows.is_empty()) else { return html! {} };
    let bars = bars(spilled);
    html! {
        h2 { "More data than memory" }
        p.soft {
            "iozone with one file under a memory limit of " (spilled.memory >> 20) " MiB that the generator, the "
            "server, caches and tmpfs share; tmpfs swaps to the device of all. Bytes are what was read from and "
            "written to the device in each phase: full bars and first figures written, pale bars and second figures "
            "read, on one scale for all phases of a size. Those compared differ in what they promise."
        }
        @for ratio in each(&bars, |bar| bar.ratio) {
            (size(ratio, spilled, bars.iter().filter(|bar| bar.ratio == ratio).map(|bar| &bar.cell).collect()))
        }
        details { summary { "Figures beyond memory" } (figures(&bars)) }
        div.scroll { table { tbody {
            @for (name, what) in &spilled.contenders { tr { td.word { (name) } td.word.long { (what) } } }
            @for (name, value) in &spilled.machine { tr { td.word { (name) } td.word.long { (value) } } }
        } } }
    }
}

fn size(ratio: f64, spilled: &Spilled, cells: Vec<&Cell>) -> Markup {
    let most = cells.iter().map(|c| c.read.max(c.written)).fold(0.0, f64::max);
    html! {
        h3 { "A file of " (ratio) " times the limit (" (megabytes(spilled.memory as f64 * ratio)) " MB)" }
        div.charts { @for here in cells.chunk_by(|a, b| a.title == b.title) {
            figure {
                h3 { (here.first().map_or("", |c| c.title.as_str())) }
                p.panel { "operations per second" }
                (super::bars::rates(here, false))
                p.panel { "bytes written / read" }
                (super::bars::bytes(here, most, false))
            }
        } }
    }
}

fn figures(bars: &[Bar]) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th { "file" } th.word { "phase" } th.word { "file system" } th.word { "survives" } th { "ops/s" }
                th { "MB read" } th { "MB written" } th { "most memory, MiB" }
            } }
            tbody { @for Bar { ratio, cell, peak } in bars {
                tr.ours[cell.is_ours()] {
                    td { (ratio) "x" } td.word { (cell.title) } td.word { (cell.contender) }
                    td.word { (cell.survives()) } td { (short(cell.ops)) }
                    td { (megabytes(cell.read)) } td { (megabytes(cell.written)) }
                    td { @if let Some(peak) = peak { (peak >> 20) } }
                }
            } }
        } }
    }
}

/// The same for a terminal.
pub(super) fn table(spilled: Option<&Spilled>) -> Vec<String> {
    let Some(spilled) = spilled.filter(|spilled| !spilled.rows.is_empty()) else { return Vec::new() };
    let mut lines = vec![
        String::new(),
        format!("more data than memory: a limit of {} MiB", spilled.memory >> 20),
        format!(
            "{:>5} {:<19} {:<17} {:>9} {:>7} {:>7} {:>8}",
            "file", "phase", "file system", "ops/s", "MB read", "written", "survives"
        ),
    ];
    lines.extend(bars(spilled).iter().map(|Bar { ratio, cell, .. }| {
        format!(
            "{:>4}x {:<19} {:<17} {:>9.0} {:>7} {:>7} {:>8}",
            ratio,
            cell.title,
            cell.contender,
            cell.ops,
            megabytes(cell.read),
            megabytes(cell.written),
            cell.survives()
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
        assert!(
            lines[3].starts_with("0.25x iozone write") && lines[3].contains("tmpfs-swap"),
            "{}",
            lines[3]
        );
        let words: Vec<&str> = lines[4].split_whitespace().collect();
        assert_eq!(words[..6], ["0.25x", "iozone", "write", "narufs-ssd", "10", "2"]);
        assert!(lines[10].starts_with("1.25x iozone read"), "{}", lines[10]);
        assert!(table(None).is_empty());
    }

    #[test]
    fn the_section_shows_bytes_and_operations() {
        let page = section(Some(&spilled())).into_string();
        for part in ["1.25 times the limit (84 MB)", "iozone write", "&lt;what&gt;", "<svg"] {
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
