//! What must be there of the databases of SQLite (testing/machines/loads/sqlite.py, whose `judge` says the same of a mount).
//!
//! Each process has one, of SQLite: transaction N adds row N and removes that of `KEEP` before. One commits by a journal that is
//! removed, the other by a write-ahead log, both with `synchronous=EXTRA`. SQLite's own recovery and check come first,
//! on copies of the files.

use super::acked::{Allowed, Found};
use super::oracle::{content, kept};
use crate::model::Tree;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// What the rows are read by, in lines: the check's word, then number and content of each.
const READ: &str = "PRAGMA integrity_check; SELECT number || ' ' || hex(content) FROM told ORDER BY number;";

/// Judges what is there: the last transaction of each process.
///
/// # Errors
/// What contradicts what was acknowledged, in words.
pub fn judge(tree: &Tree, allowed: &Allowed) -> Result<Found, String> {
    allowed.each(|process, _| judge_one(tree, process))
}

fn judge_one(tree: &Tree, process: usize) -> Result<u64, String> {
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
    let wanted: Vec<String> =
        kept(last).map(|number| format!("{number} {}", hex(&content(process, number)))).collect();
    if rows == wanted { Ok(last) } else { Err(format!("its {} rows are not those of {last}", rows.len())) }
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
