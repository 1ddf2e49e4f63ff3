//! README's figures are those of the table in docs/perf, which is generated.

use super::source::TREE;

/// Rows of the first table of a document that begins so, with their cells.
pub(super) fn rows(document: &str, heading: &str) -> Vec<Vec<String>> {
    let rows: Vec<Vec<String>> = TREE
        .prose(document)
        .lines()
        .skip_while(|line| !line.starts_with(heading))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    assert!(!rows.is_empty(), "{document} has no table that begins with {heading:?}");
    rows
}

#[test]
fn figures_of_the_readme_are_those_of_the_table() {
    let table = rows("docs/perf/README.md", "| workload | threads |");
    let mut wrong = Vec::new();
    for row in rows("README.md", "| what | workload | threads |") {
        let [what, workload, threads, narufs, ..] = row.as_slice() else { panic!("{row:?} is too short") };
        let is_same = |other: &&Vec<String>| {
            (other[0].trim_end_matches('\u{2020}'), &other[1], &other[2])
                == (workload.as_str(), threads, narufs)
        };
        let Some(measured) = table.iter().find(is_same) else {
            wrong.push(format!("{workload}, {threads}, {narufs}: not in the table"));
            continue;
        };
        let [_, _, _, _, ours, best, theirs, ratio, ..] = measured.as_slice() else {
            panic!("{measured:?} is too short")
        };
        let right = [what, workload, threads, narufs, ours, best, theirs, ratio];
        if row.iter().collect::<Vec<_>>() != right {
            wrong.push(format!("| {} |", right.map(String::as_str).join(" | ")));
        }
    }
    assert!(wrong.is_empty(), "README.md should say:\n{}", wrong.join("\n"));
}
