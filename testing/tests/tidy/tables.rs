//! The tables of docs/POSIX.md and docs/CONSISTENCY.md name the tests that hold them: no cell is empty, and each
//! test that is named exists.

use std::collections::HashSet;

use super::exceptions;
use super::figures::rows;
use super::hold;
use super::source::TREE;
use super::tokens;

/// Opens a cell of an operation for which there can be no such test; the reason follows.
const NOT_APPLICABLE: &str = "does not apply: ";

/// The names of all tests in the tree: functions with `#[test]`, those of Python, and programs.
fn tests() -> HashSet<String> {
    let mut names = HashSet::new();
    for source in &TREE.rust {
        names.extend(tokens::read(&source.path, &source.text).tests);
    }
    for path in &TREE.all {
        let name = path.rsplit('/').next().expect("a part");
        if name.ends_with(".sh") {
            names.insert(name.to_owned());
        } else if name.ends_with(".py") {
            let text = std::fs::read_to_string(TREE.root.join(path)).expect("source");
            let functions = text.lines().filter_map(|line| line.trim_start().strip_prefix("def "));
            names.extend(functions.filter_map(|f| f.split('(').next()).map(str::to_owned));
        }
    }
    names
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
    for row in rows("docs/POSIX.md", "| operation") {
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
    hold("operations", exceptions::UNTESTED_OPERATIONS, &complaints);
}

#[test]
fn every_sentence_of_the_contract_names_its_tests() {
    let tests = tests();
    let complaints: Vec<String> = rows("docs/CONSISTENCY.md", "| sentence")
        .iter()
        .filter_map(|row| match row.as_slice() {
            [sentence, named] => wrong(named, &tests).map(|w| format!("{sentence}: {w}")),
            _ => Some(format!("{row:?} does not have two cells")),
        })
        .collect();
    hold("sentences", exceptions::UNTESTED_SENTENCES, &complaints);
}

/// A document that says "the test `name`" means one that is there.
#[test]
fn every_test_that_is_named_exists() {
    let tests = tests();
    let mut found = Vec::new();
    for source in TREE.prose.iter().chain(&TREE.rust) {
        for (number, line) in source.text.lines().enumerate() {
            let comment = line.trim_start().strip_prefix("//");
            let Some(text) = comment.or_else(|| source.path.ends_with(".md").then_some(line)) else {
                continue;
            };
            for behind in text.match_indices("test `").map(|(at, m)| &text[at + m.len()..]) {
                let name = behind.split('`').next().expect("a part").rsplit("::").next().expect("a part");
                let is_name = name.contains('_') && name.chars().all(|c| c.is_alphanumeric() || c == '_');
                if is_name && !tests.contains(name) {
                    found.push(format!("{}:{}: {name}", source.path, number + 1));
                }
            }
        }
    }
    hold("tests", exceptions::MISSING_TESTS, &found);
}
