//! What must be there of the databases of testing/machines/load.py, which says the same of a mount.
//!
//! Each process has one, of SQLite: transaction N adds row N and removes that of [`KEEP`] before. One commits by a journal that is
//! removed, the other by a write-ahead log, both with `synchronous=EXTRA`. SQLite's own recovery and check come first,
//! on copies of the files.

use super::oracle::{Acked, KEEP, content};
use crate::model::Tree;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// What the rows are read by, in lines: the check's word, then number and content of each.
const READ: &str = "PRAGMA integrity_check; SELECT number || ' ' || hex(content) FROM told ORDER BY number;";

/// Judges what is there.
///
/// # Errors
/// What contradicts what was acknowledged, in words.
pub fn judge(tree: &Tree, acked: &Acked) -> Result<(), String> {
    acked.each().try_for_each(|(process, acked)| {
        let told = |why| format!("process {process}, of {acked} transactions acknowledged: {why}");
        judge_one(tree, process, acked).map_err(told)
    })
}

fn judge_one(tree: &Tree, process: usize, acked: u64) -> Result<(), String> {
    let work = tempfile::tempdir().map_err(|e| e.to_string())?;
    for name in ["base", "base-journal", "base-wal"] {
        if let Some(file) = tree.get(&format!("/d{process}/{name}")) {
            std::fs::write(work.path().join(name), &file.data).map_err(|e| e.to_string())?;
        }
    }
    let lines = read(&work.path().join("base"))?;
    let mut lines = lines.lines();
    match lines.next() {
        Some("ok") => {}
        said => return Err(format!("the check of the database says {said:?}")),
    }
    let rows: Vec<&str> = lines.collect();
    let number = |row: &str| row.split(' ').next().and_then(|number| number.parse::<u64>().ok());
    let last = rows.last().and_then(|row| number(row)).unwrap_or(0);
    if last < acked || last > acked + 1 {
        return Err(format!("the last one that is there is {last}"));
    }
    let wanted: Vec<String> = (last.saturating_sub(KEEP - 1).max(1)..=last)
        .map(|number| format!("{number} {}", hex(&content(process, number))))
        .collect();
    if rows != wanted { Err(format!("its {} rows are not those of {last}", rows.len())) } else { Ok(()) }
}

fn read(base: &Path) -> Result<String, String> {
    let output = Command::new("sqlite3").arg("-bail").arg(base).arg(READ).output();
    let output = output.map_err(|e| format!("sqlite3: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "))
}

/// Bytes as SQLite writes them.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // It goes into memory.
        let _ = write!(text, "{byte:02X}");
        text
    })
}
