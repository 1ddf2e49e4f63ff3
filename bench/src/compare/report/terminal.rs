//! The results for a terminal of any width: the verdicts, then a table in which one looks a figure up.

use super::cells::{CLASSES, Cell, best, cells, promise, threads, titles};
use super::summary::{Crowd, verdicts};
use super::{Results, absences};

/// Columns below which the table leaves out what is seldom looked for.
const WIDE: usize = 110;

/// The mark of rows that went around the journal too seldom; not every terminal has the page's.
const UNLAPPED: char = '*';

/// Breaks words into lines of at most `width` columns; all but the first begin with `indent`.
fn wrap(text: &str, width: usize, indent: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.trim().is_empty() || line.chars().count() + 1 + word.chars().count() <= width {
            if !line.trim().is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        } else {
            lines.push(format!("{indent}{word}"));
        }
    }
    lines
}

/// A table, one line for each workload, number of threads and contender.
pub fn table(results: &Results, width: usize) -> Vec<String> {
    let cells = cells(results);
    let mut lines = Vec::new();
    for title in titles(&cells, |_| true) {
        let of_title: Vec<&Cell> = cells.iter().filter(|c| c.title == title).collect();
        for here in of_title.chunk_by(|a, b| a.threads == b.threads) {
            block(title, here, &cells, width, &mut lines);
        }
    }
    if cells.iter().any(|c| c.unlapped) {
        lines.extend(wrap(
            &format!(
                "{UNLAPPED} went around the journal less than three times: does not yet show what checkpoints cost \
                 in the long run"
            ),
            width,
            "  ",
        ));
    }
    lines.extend(super::daily::table(&results.records));
    lines.extend(super::spill::table(results.spilled.as_ref()));
    for said in absences(results) {
        lines.extend(wrap(&format!("not run: {said}"), width, "  "));
    }
    lines
}

fn block(title: &str, here: &[&Cell], cells: &[Cell], width: usize, lines: &mut Vec<String>) {
    let wide = width >= WIDE;
    let heading = format!("{title}, {}", threads(here.first().map_or(0, |c| c.threads)));
    let mut head = format!(
        "{heading:<32} {:>10} {:>6} {:>7} {:>9} {:>9}",
        "ops/s", "spread", "of best", "p50 us", "p99 us"
    );
    if wide {
        head += &format!(" {:>10} {:>9} {:>9}", "CPU us/op", "MB read", "MB writ.");
    }
    lines.push(head);
    for class in CLASSES {
        let own: Vec<&&Cell> = here.iter().filter(|c| c.class == class).collect();
        if !own.is_empty() {
            lines.push(format!("  {}", promise(class)));
        }
        for cell in own {
            let mark = if cell.unlapped { UNLAPPED } else { ' ' };
            let of = if cell.ops > 0.0 { cell.ops / best(cells, cell) } else { 0.0 };
            let name = format!("{}{mark}", cell.contender);
            let mut line = format!(
                "    {name:<28} {:>10.0} {:>5.0}% {of:>7.2} {:>9.1} {:>9.1}",
                cell.ops,
                cell.spread() * 100.0,
                cell.p50_us,
                cell.p99_us,
            );
            if wide {
                let (read, written) = (cell.read / 1e6, cell.written / 1e6);
                line += &format!(" {:>10.2} {read:>9.1} {written:>9.1}", cell.cpu_us);
            }
            lines.push(line);
        }
    }
    lines.push(String::new());
}

/// Who wins where.
pub fn summary(results: &Results, width: usize) -> Vec<String> {
    let cells = cells(results);
    let verdicts = verdicts(&cells, Crowd::Most);
    let daily = super::daily::verdicts(&results.records);
    if verdicts.is_empty() && daily.is_empty() {
        return vec!["No narufs ran with another file system of the same promise.".into()];
    }
    let words = verdicts.iter().map(|v| v.words().replace(super::summary::UNLAPPED, &UNLAPPED.to_string()));
    words.chain(daily).flat_map(|words| wrap(&words, width, "  ")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::*;

    #[test]
    fn every_cell_has_a_line_and_no_line_is_too_long() {
        for width in [80, 120] {
            let (lines, summary) = (table(&results(), width), summary(&results(), width));
            for line in lines.iter().chain(&summary) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
            for contender in ["ext4", "narufs-ssd"] {
                let rows = lines.iter().filter(|l| l.trim_start().starts_with(&format!("{contender} ")));
                assert_eq!(rows.count(), 5, "{contender}");
            }
            let all = lines.join("\n");
            assert!(all.contains("DWOM, 1 thread ") && all.contains("varmail, 16 threads "), "{all}");
            assert!(all.contains("not run: f2fs: this kernel has no <f2fs>"), "{all}");
            assert_eq!(all.contains("CPU us/op"), width == 120);
            assert!(
                summary[0].starts_with("narufs-ssd (mounted; survives a loss of power)"),
                "{}",
                summary[0]
            );
        }
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("one two three", 7, "  "), ["one two", "  three"]);
        assert_eq!(wrap("unbreakable", 4, "  "), ["unbreakable"]);
    }
}
