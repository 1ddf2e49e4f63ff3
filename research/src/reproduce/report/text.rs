//! Lines for a terminal.

use super::{perhaps, verdict, wanted};
use crate::reproduce::found::{Account, Results, Table};

/// Goals first, then tables, then what did not run.
pub fn lines(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    if results.quick {
        lines.push("quick: these figures say that all of it works, and no more".to_owned());
    }
    for account in &results.papers {
        lines.push(String::new());
        lines.push(format!("{}: {}", account.paper, account.title));
        lines.extend(table(&goals(account)));
        for found in &account.tables {
            lines.push(String::new());
            lines.push(found.title.clone());
            lines.extend(table(found));
        }
        lines.extend(
            account.absent.iter().map(|absent| format!("did not run: {}: {}", absent.what, absent.reason)),
        );
    }
    lines
}

/// The goals of a paper as a table.
pub fn goals(account: &Account) -> Table {
    let head = ["goal", "wanted", "paper", "measured", "model", ""].map(str::to_owned).to_vec();
    let row = |goal: &crate::reproduce::found::Goal| {
        vec![
            goal.what.clone(),
            wanted(goal.wanted),
            perhaps(goal.published),
            perhaps(goal.measured),
            perhaps(goal.modelled),
            verdict(goal.met).to_owned(),
        ]
    };
    Table { title: "Goals".to_owned(), head, rows: account.goals.iter().map(row).collect() }
}

/// Columns as wide as their widest cell: the first to the left, the others to the right.
fn table(table: &Table) -> Vec<String> {
    let all: Vec<&Vec<String>> = std::iter::once(&table.head).chain(&table.rows).collect();
    let width =
        |column: usize| all.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..table.head.len()).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &&Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let words = |row: &[&str]| row.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let found = Table {
            title: "t".into(),
            head: words(&["a", "ops/s"]),
            rows: vec![words(&["threads", "1"]), words(&["b", "123456"])],
        };
        assert_eq!(table(&found), ["  a         ops/s", "  threads       1", "  b        123456"]);
    }
}
