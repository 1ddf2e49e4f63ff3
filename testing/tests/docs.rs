//! The tables of docs/POSIX.md and docs/CONSISTENCY.md name the tests that hold them: no cell is empty, and each
//! test that is named exists.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Opens a cell of an operation for which there can be no such test; the reason follows.
const NOT_APPLICABLE: &str = "does not apply: ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace").to_owned()
}

/// The names of all tests in the tree: functions of Rust and Python files, and the program tests themselves.
fn tests() -> HashSet<String> {
    let mut names = HashSet::new();
    let mut left: Vec<PathBuf> =
        ["engine", "fuse", "cli", "testing", "fuzz"].iter().map(|d| root().join(d)).collect();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            if path.file_name().is_some_and(|n| n != "target") {
                left.extend(fs::read_dir(&path).expect("list").map(|e| e.expect("entry").path()));
            }
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".sh") {
            names.insert(name);
        } else if name.ends_with(".rs") || name.ends_with(".py") {
            let text = fs::read_to_string(&path).expect("source");
            let words = text.lines().filter_map(|line| {
                let line = line.trim_start();
                let rest = line.strip_prefix("pub ").unwrap_or(line);
                let rest = rest.strip_prefix("fn ").or_else(|| rest.strip_prefix("def "))?;
                Some(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?.to_owned())
            });
            names.extend(words);
        }
    }
    names
}

/// Rows of the table whose heading begins so, with its cells.
fn table(file: &str, heading: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("docs").join(file)).expect("document");
    let rows: Vec<Vec<String>> = text
        .lines()
        .skip_while(|line| !line.starts_with(heading))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    assert!(!rows.is_empty(), "{file} has no table that begins with {heading:?}");
    rows
}

/// What is wrong with a cell that names tests.
fn wrong(cell: &str, tests: &HashSet<String>) -> Option<String> {
    if cell.strip_prefix(NOT_APPLICABLE).is_some_and(|reason| !reason.is_empty()) {
        return None;
    }
    let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
    if named.is_empty() {
        return Some("names no test".to_owned());
    }
    let missing: Vec<&str> = named.into_iter().filter(|n| !tests.contains(*n)).collect();
    (!missing.is_empty()).then(|| format!("names tests that do not exist: {missing:?}"))
}

#[test]
fn every_operation_and_flag_names_its_tests() {
    let tests = tests();
    let mut complaints = Vec::new();
    for row in table("POSIX.md", "| operation") {
        let [operation, library, mount, crash, kernel] = row.as_slice() else {
            complaints.push(format!("{row:?} does not have five cells"));
            continue;
        };
        for (column, cell) in [("library", library), ("mount", mount), ("crash", crash)] {
            complaints.extend(wrong(cell, &tests).map(|w| format!("{operation}: the {column} test {w}")));
        }
        if operation.is_empty() || kernel.is_empty() {
            complaints.push(format!("{row:?} has an empty cell"));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_sentence_of_the_contract_names_its_tests() {
    let tests = tests();
    let complaints: Vec<String> = table("CONSISTENCY.md", "| sentence")
        .iter()
        .filter_map(|row| match row.as_slice() {
            [sentence, named] => wrong(named, &tests).map(|w| format!("{sentence}: {w}")),
            _ => Some(format!("{row:?} does not have two cells")),
        })
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
