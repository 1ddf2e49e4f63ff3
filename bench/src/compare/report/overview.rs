//! One table and one picture of a comparison, for docs/perf: every row in which narufs ran beside a file system of the
//! kernel, the losses first. [`super::page`] has everything else.

use super::cells::{Cell, cells};
use super::scale::{Log, ratio, short, tick};
use super::{Results, absences, spill};
use maud::{Markup, html};

/// The name of the picture, to which the table's page links.
pub const PICTURE: &str = "overview.svg";
/// File systems that are served from user space: narufs is set beside the kernel's.
const PEERS: [&str; 2] = ["ntfs-3g", "fuse2fs"];
/// What stands in the table for a run that did not tell.
const UNKNOWN: &str = "not recorded";

/// Between the names and the right margin.
const PLOT: f64 = 546.0;
const END: f64 = 24.0;
/// More than a letter takes in text of any length here, in the widest of the usual fonts: no viewer tells how wide its
/// own makes a text.
const LETTER: f64 = 7.4;
const ROW: f64 = 22.0;
const TOP: f64 = 96.0;
const MOUNT: &str = "#c94a00";
const LIBRARY: &str = "#a03784";
const SLOWER: &str = "#fbeee7";
const SLOWER_SIDE: &str = "narufs is slower";
const FASTER: &str = "faster than the best kernel file system";
/// Columns of the key, and how wide each is: the longest name of a narufs fits in.
const KEYS: f64 = 4.0;
const KEY: f64 = 190.0;

/// One narufs in one workload, and the best file system of the kernel there.
struct Row {
    /// The workload, with its file's size where that is beyond memory.
    title: String,
    ours: Cell,
    best: Cell,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.ours.ops / self.best.ops
    }

    /// Workload and number of threads, as the picture names them.
    fn name(&self) -> String {
        format!("{}, {}", self.title, super::cells::threads(self.ours.threads))
    }

    fn line(&self) -> String {
        let mark = if self.ours.unlapped { super::summary::UNLAPPED } else { "" };
        format!(
            "| {}{mark} | {} | {} | {} | {} | {} | {} | {}x | {} - {} |\n",
            self.title,
            self.ours.threads,
            self.ours.contender,
            self.ours.survives(),
            short(self.ours.ops),
            self.best.contender,
            short(self.best.ops),
            ratio(self.ratio()),
            ratio(self.ours.least / self.best.most),
            ratio(self.ours.most / self.best.least),
        )
    }
}

/// All rows, the worst first. In memory only those compare that survive the same; beyond memory all do.
fn rows(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |cells: &[Cell], title: &dyn Fn(&Cell) -> String, within_class: bool| {
        for ours in cells.iter().filter(|cell| cell.is_ours() && cell.least > 0.0) {
            let stands_beside = |cell: &&Cell| {
                (&cell.title, cell.threads) == (&ours.title, ours.threads)
                    && !cell.is_ours()
                    && !PEERS.contains(&cell.contender.as_str())
                    && (!within_class || cell.class == ours.class)
                    && cell.least > 0.0
            };
            let best = cells.iter().filter(stands_beside).max_by(|a, b| a.ops.total_cmp(&b.ops));
            rows.extend(best.map(|best| Row { title: title(ours), ours: ours.clone(), best: best.clone() }));
        }
    };
    add(&cells(results), &|cell| cell.title.clone(), true);
    for (size, cells) in spill::by_size(results.spilled.as_ref()) {
        add(&cells, &|cell| format!("{}, {size}x memory", cell.title), false);
    }
    rows.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    rows
}

/// The page with the table, in Markdown. The picture lies beside it as [`PICTURE`].
pub fn overview(results: &Results) -> String {
    let rows = rows(results);
    let slower = rows.iter().filter(|row| row.ratio() < 1.0).count();
    let mut page = format!(
        "# Performance\n\
         One run of one commit, written by `make report` with [all of its figures](../report/report.html); nothing here\n\
         is edited by hand. Each row is a narufs beside the best file system of the Linux kernel that ran the same\n\
         workload with as many threads and survives the same (beyond memory: the best of all), the losses first. narufs\n\
         is slower in {slower} of {} rows.\n\n\
         ![Operations a second of narufs over those of the best kernel file system, by workload]({PICTURE})\n\n\
         [BENCH.md](../BENCH.md) says what workloads and contenders are, [targets.md](targets.md) what is asked for,\n\
         [experiments](experiments/README.md) what was measured before, for which decision.\n\n\
         | workload | threads | narufs | survives | ops/s | best kernel file system | ops/s | narufs of it | rounds |\n\
         | --- | ---: | --- | --- | ---: | --- | ---: | ---: | --- |\n",
        rows.len()
    );
    page.extend(rows.iter().map(Row::line));
    page += &format!(
        "\nMedians of {} interleaved rounds; the last column is the worst and the best that two rounds give.\n",
        results.rounds
    );
    if rows.iter().any(|row| row.ours.unlapped) {
        page += &format!(
            "{} went around its journal less than three times, so it does not show what checkpoints cost.\n",
            super::summary::UNLAPPED
        );
    }
    let machine = |name: &str| results.machine.iter().find(|(known, _)| known == name);
    page += "\n## The run\n| | |\n| --- | --- |\n";
    page += &format!("| commit | {} |\n", machine("commit").map_or(UNKNOWN, |(_, value)| value));
    for (name, value) in results.machine.iter().filter(|(name, _)| name != "commit") {
        page += &format!("| {name} | {value} |\n");
    }
    for (name, value) in results.spilled.iter().flat_map(|spilled| &spilled.machine) {
        page += &format!("| beyond memory: {name} | {value} |\n");
    }
    page += &format!("\n```sh\n{}\n```\n", results.command);
    let absent = absences(results);
    if !absent.is_empty() {
        page += "\nWhat did not run:\n\n";
        page.extend(absent.iter().map(|line| format!("- {line}\n")));
    }
    page
}

/// The picture: a line for each workload and number of threads, a mark for each narufs.
pub fn picture(results: &Results) -> String {
    let rows = rows(results);
    let mut lines: Vec<(String, Vec<&Row>)> = Vec::new();
    let mut kinds: Vec<&str> = Vec::new();
    for row in &rows {
        match lines.iter_mut().find(|(name, _)| *name == row.name()) {
            Some((_, marks)) => marks.push(row),
            None => lines.push((row.name(), vec![row])),
        }
        if !kinds.contains(&row.ours.contender.as_str()) {
            kinds.push(&row.ours.contender);
        }
    }
    kinds.sort_unstable();
    let scale = Log::over(rows.iter().map(Row::ratio).chain([0.5, 2.0]));
    // As wide as the longest name makes it, so that none is cut off.
    let names = lines.iter().map(|(name, _)| room(name)).fold(0.0, f64::max) + 16.0;
    let x = |ratio: f64| names + PLOT * scale.at(ratio);
    let faster = x(1.0) + 8.0;
    let width = (names + PLOT + END).max(faster + room(FASTER)).max(KEYS * KEY + 16.0).ceil();
    let height = TOP + ROW * lines.len() as f64 + 12.0;
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {height}"))
            width=(width) height=(height) font-family="system-ui, sans-serif" font-size="12" {
            rect x="0" y="0" width=(width) height=(height) fill="#ffffff" {}
            rect x=(place(names)) y=(TOP - 6.0) width=(place(x(1.0) - names)) height=(height - TOP) fill=(SLOWER) {}
            @for (at, kind) in kinds.iter().enumerate() { (key(at, kind)) }
            text x=(place(x(1.0) - 8.0)) y=(TOP - 26.0) text-anchor="end" fill="#59626c" { (SLOWER_SIDE) }
            text x=(place(faster)) y=(TOP - 26.0) fill="#59626c" { (FASTER) }
            @for mark in scale.ticks() {
                line x1=(place(x(mark))) x2=(place(x(mark))) y1=(TOP - 6.0) y2=(height - 6.0) stroke="#d5dbe1" {}
                text x=(place(x(mark))) y=(TOP - 10.0) text-anchor="middle" fill="#59626c" { (tick(mark)) "x" }
            }
            line x1=(place(x(1.0))) x2=(place(x(1.0))) y1=(TOP - 6.0) y2=(height - 6.0) stroke="#1c1f23" stroke-width="1.5" {}
            @for (at, (name, marks)) in lines.iter().enumerate() {
                @let y = TOP + ROW * at as f64 + ROW / 2.0;
                text x=(place(names - 8.0)) y=(y + 4.0) text-anchor="end" fill="#1c1f23" { (name) }
                line x1=(place(names)) x2=(place(names + PLOT)) y1=(y) y2=(y) stroke="#eceff2" {}
                @for row in marks { (mark(&row.ours.contender, x(row.ratio()), y)) }
            }
        }
    };
    picture.into_string() + "\n"
}

/// What a text may take.
fn room(text: &str) -> f64 {
    LETTER * text.chars().count() as f64
}

fn place(x: f64) -> String {
    format!("{x:.1}")
}

/// What a mark stands for, in columns above the scale.
fn key(at: usize, kind: &str) -> Markup {
    let columns = KEYS as usize;
    let (x, y) = (16.0 + KEY * (at % columns) as f64, 18.0 + 20.0 * (at / columns) as f64);
    html! { (mark(kind, x, y)) text x=(x + 12.0) y=(y + 4.0) fill="#1c1f23" { (kind) } }
}

/// A library has another colour than a mount; the shape tells the journal, and a hollow one that less is promised.
fn mark(contender: &str, x: f64, y: f64) -> Markup {
    let colour = if super::summary::is_library(contender) { LIBRARY } else { MOUNT };
    let hollow = ["-window", "-process", "-cached", "-delayed"].iter().any(|end| contender.ends_with(end));
    let outline = if contender.contains("scratch") {
        format!("M{:.1} {:.1}h9v9h-9z", x - 4.5, y - 4.5)
    } else if contender.contains("-nvm") {
        format!("M{x:.1} {:.1}l5.5 9.5h-11z", y - 6.0)
    } else {
        format!("M{:.1} {y:.1}a5 5 0 1 0 10 0a5 5 0 1 0-10 0z", x - 5.0)
    };
    html! { path d=(outline) fill=(if hollow { "#ffffff" } else { colour }) stroke=(colour) stroke-width="1.8" {} }
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::*;
    use std::path::Path;

    #[test]
    fn losses_come_first() {
        let mut slow = results();
        for record in slow.records.iter_mut().filter(|r| r.target != "ext4" && r.workload == "varmail") {
            record.ops_per_s /= 4.0;
        }
        let page = overview(&slow);
        let of = |word: &str| page.find(word).unwrap_or_else(|| panic!("{word} is missing: {page}"));
        assert!(of("| varmail") < of("| DWOM") && page.contains("| 0.25x |"), "{page}");
        assert!(page.contains("slower in 2 of 5 rows") && page.contains(UNKNOWN), "{page}");
        let picture = picture(&slow);
        assert!(picture.contains("varmail, 16 threads") && !picture.contains("NaN"), "{picture}");
    }

    /// An attribute of an element, given what stands before its `>`.
    fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
        element.split_once(&format!(" {name}=\""))?.1.split('"').next()
    }

    /// The texts of a picture that do not lie within it, by the room that letters take at the most.
    fn outside(picture: &str) -> Vec<String> {
        let number = |text: &str| text.parse::<f64>().expect("a number");
        let of = |element: &str, name: &str| number(attribute(element, name).expect("it has that"));
        let frame: Vec<f64> =
            attribute(picture, "viewBox").expect("a frame").split(' ').map(number).collect();
        let mut odd = Vec::new();
        for rest in picture.split("<text").skip(1) {
            let (element, rest) = rest.split_once('>').expect("an element");
            let text = rest.split('<').next().unwrap_or_default();
            let (x, y) = (of(element, "x"), of(element, "y"));
            let left = match attribute(element, "text-anchor") {
                Some("end") => x - room(text),
                Some("middle") => x - room(text) / 2.0,
                _ => x,
            };
            if left < frame[0] || left + room(text) > frame[2] || y < 12.0 || y + 4.0 > frame[3] {
                odd.push(format!("{text}: {left} to {}, {y}", left + room(text)));
            }
        }
        odd
    }

    #[test]
    fn no_text_lies_outside_of_the_picture() {
        let mut long = results();
        for record in long.records.iter_mut().filter(|r| r.workload == "varmail") {
            record.workload = "a workload of a name that is longer than all that are there".into();
        }
        let mut slow = results();
        for record in slow.records.iter_mut().filter(|r| r.target != "ext4") {
            record.ops_per_s /= 1e4;
        }
        for results in [results(), long, slow] {
            let picture = picture(&results);
            assert!(picture.matches("<text").count() > 8, "{picture}");
            assert_eq!(outside(&picture), [""; 0]);
        }
        let cut =
            "<svg viewBox=\"0 0 90 90\"><text x=\"20\" y=\"20\" text-anchor=\"end\">cut off</text></svg>";
        assert_eq!(outside(cut).len(), 1);
    }

    #[test]
    fn the_page_in_the_tree_is_that_of_its_results() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let read =
            |name: &str| std::fs::read_to_string(docs.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let results: Results = serde_json::from_str(&read("report/results.json")).expect("results");
        let again = "write it anew: narufs compare --from docs/report/results.json --compact --report docs/report --table docs/perf";
        assert!(read("perf/README.md") == overview(&results), "{again}");
        assert!(read(&format!("perf/{PICTURE}")) == picture(&results), "{again}");
    }
}
