//! Everyday work: how long each step took, as a multiple of the better of ext4 and xfs.

use super::each;
use crate::Record;
use crate::daily::NAME;
use crate::stats::{median, range};
use maud::{Markup, html};

/// Those whose better one is what a step is measured by.
const MEASURES: [&str; 2] = ["ext4", "xfs"];
/// Medians that lie closer together are even.
const CLOSE: f64 = 0.05;

/// Medians over the rounds of one step of one contender.
#[derive(Debug, Clone, PartialEq)]
struct Took {
    contender: String,
    seconds: f64,
    least: f64,
    most: f64,
    then_sync: f64,
    cpu: f64,
    requests: Option<f64>,
    read: f64,
    written: f64,
    flushes: Option<f64>,
    survives: &'static str,
}

/// A step, in the order of the run: what each contender took.
struct Step {
    name: String,
    took: Vec<Took>,
}

/// How one stands beside the better of ext4 and xfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Quicker,
    Even,
    Slower,
}

impl Step {
    fn of(&self, contender: &str) -> Option<&Took> {
        self.took.iter().find(|took| took.contender == contender)
    }

    /// The better of those that are the measure.
    fn measure(&self) -> Option<&Took> {
        let there = MEASURES.iter().filter_map(|name| self.of(name));
        there.min_by(|a, b| a.seconds.total_cmp(&b.seconds)).filter(|took| took.seconds > 0.0)
    }

    fn multiple(&self, took: &Took) -> Option<f64> {
        self.measure().map(|measure| took.seconds / measure.seconds)
    }

    fn outcome(&self, took: &Took) -> Option<Outcome> {
        let measure = self.measure()?;
        let multiple = took.seconds / measure.seconds;
        let apart = took.least > measure.most || took.most < measure.least;
        Some(match multiple {
            m if (m - 1.0).abs() <= CLOSE || !apart => Outcome::Even,
            m if m < 1.0 => Outcome::Quicker,
            _ => Outcome::Slower,
        })
    }
}

fn took(same: &[&Record]) -> Option<Took> {
    let first = same.first()?;
    let mid = |of: fn(&Record) -> f64| median(&same.iter().map(|r| of(r)).collect::<Vec<_>>()).unwrap_or(0.0);
    let maybe =
        |of: fn(&Record) -> Option<f64>| median(&same.iter().filter_map(|r| of(r)).collect::<Vec<_>>());
    let (least, most) = range(&same.iter().map(|r| r.seconds).collect::<Vec<_>>())?;
    Some(Took {
        contender: first.target.clone(),
        seconds: mid(|r| r.seconds),
        least,
        most,
        then_sync: mid(|r| r.then_sync_s.unwrap_or(0.0)),
        cpu: mid(|r| r.cpu_s),
        requests: maybe(|r| r.requests.as_ref().map(|all| all.values().sum::<u64>() as f64)),
        read: mid(|r| r.device_read_bytes as f64),
        written: mid(|r| r.device_write_bytes as f64),
        flushes: maybe(|r| r.device_flushes.map(|n| n as f64)),
        survives: super::cells::word(first.survives),
    })
}

fn steps(records: &[Record]) -> Vec<Step> {
    let daily: Vec<&Record> = records.iter().filter(|r| r.workload == NAME).collect();
    let name = |r: &Record| r.phase.clone().unwrap_or_default();
    let contenders = contenders(records);
    let of = |step: &str| {
        let mut all = Vec::new();
        for contender in &contenders {
            let same = daily.iter().filter(|r| name(r) == step && r.target == *contender);
            all.extend(took(&same.copied().collect::<Vec<_>>()));
        }
        all
    };
    // Each contender may lack some.
    let order = crate::daily::STEPS.iter().map(|step| step.name);
    let there = order.filter(|step| daily.iter().any(|r| name(r) == *step));
    there.map(|step| Step { name: step.to_owned(), took: of(step) }).collect()
}

fn contenders(records: &[Record]) -> Vec<&str> {
    let daily: Vec<&Record> = records.iter().filter(|r| r.workload == NAME).collect();
    each(&daily, |r| r.target.as_str())
}

/// Seconds, with digits that a clock and a user can use.
fn seconds(value: f64) -> String {
    match value {
        v if v < 0.0995 => format!("{:.1} ms", v * 1e3),
        v if v < 9.995 => format!("{v:.2} s"),
        v => format!("{v:.1} s"),
    }
}

fn times(multiple: f64) -> String {
    if multiple < 9.95 { format!("{multiple:.2}") } else { format!("{multiple:.0}") }
}

/// Where one is quicker, even and slower, in words: the furthest first.
fn verdict(steps: &[Step], contender: &str) -> Option<String> {
    let list = |wanted: Outcome| {
        let found = steps.iter().filter_map(|step| {
            let took = step.of(contender)?;
            (step.outcome(took)? == wanted).then_some((step.multiple(took)?, step))
        });
        let mut found: Vec<(f64, &Step)> = found.collect();
        let far = |multiple: f64| if multiple > 0.0 { multiple.ln().abs() } else { f64::MAX };
        found.sort_by(|a, b| far(b.0).total_cmp(&far(a.0)));
        let each = found.iter().map(|(multiple, step)| format!("{} {}", step.name, times(*multiple)));
        (found.len(), each.collect::<Vec<_>>().join(", "))
    };
    let parts = [(Outcome::Quicker, "quicker"), (Outcome::Even, "even"), (Outcome::Slower, "slower")];
    let said = parts.map(|(outcome, word)| match list(outcome) {
        (0, _) => format!("{word} in none"),
        (count, list) => format!("{word} in {count} ({list})"),
    });
    let measured = steps.iter().any(|step| step.of(contender).is_some() && step.measure().is_some());
    measured.then(|| said.join(", "))
}

/// The section of the page; nothing where nothing ran.
pub(super) fn section(records: &[Record]) -> Markup {
    let (steps, contenders) = (steps(records), contenders(records));
    if steps.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Everyday work" }
        p.soft {
            "Real programs on one tree, one after the other: seconds of each step, and below them the multiple of the "
            "better of ext4 and xfs (2.0 takes twice as long). Medians; even is what lies within a twentieth, or where "
            "rounds overlap. What was left to be written afterwards is in the figures below. Contents were compared "
            "after each step."
        }
        ul.lede { @for contender in contenders.iter().filter(|name| !MEASURES.contains(name)) {
            @if let Some(words) = verdict(&steps, contender) {
                li class=(super::look::look(contender).family) { b { (contender) } ": " (words) "." }
            }
        } }
        div.scroll { table.steps {
            thead { tr { th.word { "step" } @for contender in &contenders { th { (contender) } } } }
            tbody { @for step in &steps { tr {
                td.word { (step.name) }
                @for contender in &contenders { @match step.of(contender) {
                    Some(took) => td { (seconds(took.seconds)) br; (multiple(step, took)) },
                    None => td { "\u{2013}" },
                } }
            } } }
        } }
        details { summary { "Figures of everyday work" } (figures(&steps)) }
    }
}

fn multiple(step: &Step, took: &Took) -> Markup {
    let class = match step.outcome(took) {
        Some(Outcome::Quicker) => "quicker",
        Some(Outcome::Slower) => "slower",
        _ => "soft",
    };
    html! { @if let Some(multiple) = step.multiple(took) { span class=(class) { (times(multiple)) "\u{d7}" } } }
}

fn figures(steps: &[Step]) -> Markup {
    let count = |figure: Option<f64>| figure.map_or_else(|| "\u{2013}".to_owned(), |n| format!("{n:.0}"));
    html! {
        p.soft {
            "Then sync: what syncing everything took after the step. Processor time is that of the programs and of a "
            "server of narufs, of no other server and no kernel thread. Bytes and flushes are those of the step and the "
            "sync. Requests are those that the kernel sent to a mount of narufs."
        }
        div.scroll { table {
            thead { tr {
                th.word { "step" } th.word { "file system" } th.word { "survives" } th { "seconds" } th { "of rounds" }
                th { "then sync" } th { "CPU s" } th { "requests" } th { "MB read" } th { "MB written" } th { "flushes" }
            } }
            tbody { @for step in steps { @for took in &step.took {
                tr.ours[took.contender.starts_with("narufs")] {
                    td.word { (step.name) } td.word { (took.contender) } td.word { (took.survives) }
                    td { (format!("{:.3}", took.seconds)) }
                    td { (format!("{:.3}\u{2013}{:.3}", took.least, took.most)) }
                    td { (format!("{:.3}", took.then_sync)) } td { (format!("{:.2}", took.cpu)) }
                    td { (count(took.requests)) }
                    td { (format!("{:.1}", took.read / 1e6)) } td { (format!("{:.1}", took.written / 1e6)) }
                    td { (count(took.flushes)) }
                }
            } } }
        } }
    }
}

/// The same for a terminal.
pub(super) fn table(records: &[Record]) -> Vec<String> {
    let steps = steps(records);
    if steps.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "{:<9} {:<18} {:>8} {:>6} {:>9} {:>8} {:>8} {:>7}",
        "everyday", "file system", "seconds", "times", "then sync", "requests", "MB writ.", "flushes"
    )];
    let count = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |n| format!("{n:.0}"));
    for step in &steps {
        for (at, took) in step.took.iter().enumerate() {
            let name = if at == 0 { step.name.as_str() } else { "" };
            lines.push(format!(
                "{name:<9} {:<18} {:>8.3} {:>6} {:>9.3} {:>8} {:>8.1} {:>7}",
                took.contender,
                took.seconds,
                step.multiple(took).map_or_else(|| "-".to_owned(), times),
                took.then_sync,
                count(took.requests),
                took.written / 1e6,
                count(took.flushes)
            ));
        }
    }
    lines.push("times: of the better of ext4 and xfs; 2 takes twice as long".into());
    lines.push(String::new());
    lines
}

/// Who is quicker in what, for a terminal.
pub(super) fn verdicts(records: &[Record]) -> Vec<String> {
    let steps = steps(records);
    let all = contenders(records).into_iter().filter(|name| !MEASURES.contains(name));
    all.filter_map(|name| verdict(&steps, name).map(|words| format!("everyday work, {name}: {words}.")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Measured, histogram};
    use crate::meter::Counters;
    use crate::record::Row;
    use crate::target::{Description, Survives};
    use std::time::Duration;

    fn record(step: &str, target: &str, repeat: u32, milliseconds: u64) -> Record {
        let row = Row { workload: NAME, phase: Some(step), threads: 1, pinned: false, repeat, seed: 1 };
        let description = Description {
            name: target.into(),
            filesystem: "x".into(),
            survives: Survives::Power,
            note: None,
        };
        let time = Duration::from_millis(milliseconds);
        let measured = Measured { time, ops: 1, bytes: 0, latency: histogram(), done: true };
        Record::new(row, &description, &measured, Duration::ZERO, &Counters::default())
    }

    fn records() -> Vec<Record> {
        let mut records = Vec::new();
        for repeat in [1, 2, 3] {
            for (target, untar, copy, find) in
                [("ext4", 1000, 800, 100), ("xfs", 2000, 400, 120), ("narufs-ssd", 4000, 100, 101)]
            {
                for (step, ms) in [("untar", untar), ("copy", copy), ("find", find)] {
                    records.push(record(step, target, repeat, ms + u64::from(repeat)));
                }
            }
        }
        records.push(record("untar", "ntfs-3g", 1, 9000));
        records
    }

    #[test]
    fn each_step_is_beside_the_better_of_ext4_and_xfs() {
        let steps = steps(&records());
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["untar", "find", "copy"], "in the order of the run");
        let outcome = |at: usize, name: &str| steps[at].of(name).and_then(|took| steps[at].outcome(took));
        assert_eq!(outcome(0, "narufs-ssd"), Some(Outcome::Slower));
        assert_eq!(outcome(1, "narufs-ssd"), Some(Outcome::Even), "rounds overlap");
        assert_eq!(outcome(2, "narufs-ssd"), Some(Outcome::Quicker));
        assert_eq!(outcome(2, "ntfs-3g"), None);
        let words = verdict(&steps, "narufs-ssd").expect("it was measured");
        assert_eq!(words, "quicker in 1 (copy 0.25), even in 1 (find 1.01), slower in 1 (untar 3.99)");
        assert!(verdict(&steps, "ntfs-3g").is_some_and(|said| said.contains("slower in 1 (untar 8.98)")));
    }

    #[test]
    fn the_section_and_the_table_show_losses_as_plainly_as_wins() {
        let page = section(&records()).into_string();
        for part in
            ["Everyday work", "slower in 1", "3.99\u{d7}", "class=\"slower\"", "class=\"quicker\"", "4.00 s"]
        {
            assert!(page.contains(part), "the section lacks {part}: {page}");
        }
        let lines = table(&records());
        assert_eq!(lines.len(), 1 + 10 + 2, "{lines:#?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        assert!(section(&[]).into_string().is_empty() && table(&[]).is_empty() && verdicts(&[]).is_empty());
    }

    #[test]
    fn without_ext4_and_xfs_there_are_seconds_alone() {
        let alone: Vec<Record> = records().into_iter().filter(|r| r.target == "narufs-ssd").collect();
        assert!(verdicts(&alone).is_empty());
        assert!(table(&alone)[1].contains(" - "));
        assert!(!section(&alone).into_string().contains("NaN"));
    }
}
