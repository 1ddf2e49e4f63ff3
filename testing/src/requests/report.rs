//! docs/REQUESTS.md: what it says, and whether a count has grown since it was made.

use super::reasons::REASONS;
use super::{Counts, Requests, Table, catalogue};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Stands in front of the kernel's version, and a full stop behind it.
const MADE_ON: &str = "counted on Linux ";
const NOTHING: &str = "none";

const RULES: &str = "The test `requests` counts anew: by `/dev/fuse` and over io_uring, which must come to \
     the same. It fails when a step sends more requests of a kind, or the page is not what it has counted. \
     Most of this is the kernel's choice: on another version of Linux it fails as well, and says so.";

/// Minor version of the kernel at hand: `6.18`.
///
/// # Errors
/// Those of reading it.
pub fn kernel() -> std::io::Result<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let numbers: Vec<&str> = release.split(|c: char| !c.is_ascii_digit()).take(2).collect();
    Ok(numbers.join("."))
}

/// Minor version of the kernel that a document was made on.
pub fn made_on(document: &str) -> Option<&str> {
    let behind = document.split_once(MADE_ON)?.1;
    let end = behind.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    Some(behind[..end].trim_end_matches('.'))
}

/// The document.
///
/// # Errors
/// Kinds of requests without a reason, and reasons without a request.
pub fn text(table: &Table, kernel: &str) -> Result<String, String> {
    let counts: BTreeMap<&str, &Counts> = table.iter().map(|(name, counts)| (*name, counts)).collect();
    let sent: BTreeSet<&str> =
        table.iter().flat_map(|(_, counts)| counts.sent.keys()).map(String::as_str).collect();
    let explained: BTreeSet<&str> = REASONS.iter().flat_map(|(kinds, _)| *kinds).copied().collect();
    if sent != explained {
        let odd: Vec<_> = sent.symmetric_difference(&explained).collect();
        return Err(format!("requests without a reason, or reasons without a request: {odd:?}"));
    }
    let mut out = head(kernel);
    for (heading, rows) in catalogue() {
        let _ = write!(out, "\n## {heading}\n| step | requests | waited for | by name |\n");
        out.push_str("| --- | ---: | ---: | --- |\n");
        for row in rows {
            if let Some(counts) = counts.get(row.name) {
                let _ = writeln!(out, "{}", line(row.name, counts));
            }
        }
    }
    out.push_str("\n## What is needed, and why\n");
    for (kinds, why) in REASONS {
        let _ = writeln!(out, "- {}: {why}", kinds.join(", "));
    }
    Ok(out)
}

fn line(name: &str, counts: &Counts) -> String {
    let kinds: Vec<String> = counts.sent.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let kinds = if kinds.is_empty() { NOTHING.to_owned() } else { kinds.join(", ") };
    format!("| {name} | {} | {} | {kinds} |", counts.sent.values().sum::<u64>(), counts.awaited)
}

/// The rows of a document.
fn rows(document: &str) -> BTreeMap<&str, Counts> {
    document.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<(&str, Counts)> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
    let [name, _, awaited, kinds] = cells.as_slice() else { return None };
    let kinds = kinds.split(", ").filter(|kind| *kind != NOTHING).map(|kind| {
        let (kind, count) = kind.split_once(' ')?;
        Some((kind.to_owned(), count.parse().ok()?))
    });
    Some((name, Counts { sent: kinds.collect::<Option<Requests>>()?, awaited: awaited.parse().ok()? }))
}

/// What a document does not allow: rows that send more of a kind, or have more to wait for.
pub fn growth(document: &str, table: &Table) -> Vec<String> {
    let allowed = rows(document);
    let mut grown = Vec::new();
    for (name, counts) in table {
        let Some(allowed) = allowed.get(name) else { continue };
        for (kind, count) in &counts.sent {
            let most = allowed.sent.get(kind).copied().unwrap_or(0);
            if *count > most {
                grown.push(format!("{name}: {count} {kind} in place of {most}"));
            }
        }
        if counts.awaited > allowed.awaited {
            let (now, then) = (counts.awaited, allowed.awaited);
            grown.push(format!("{name}: {now} requests are waited for in place of {then}"));
        }
    }
    grown
}

fn head(kernel: &str) -> String {
    let paragraphs = [
        "# Requests of common operations\n",
        "A request costs a switch to the server and back, whatever it asks for: how many of them a step of a \
         program sends decides how fast it is through a mount. Each step below was done 20 times, in new \
         names, on a mount by default options, and the server's own counters (those of `narufs stats`) were \
         read before and after.\n",
        &format!("`make requests` makes this page (root); it was {MADE_ON}{kernel}.\n{RULES}\n"),
        "- `requests`: those that one step sends, the same number each time. `waited for`: those of them \
         that hold the caller up. `by name`: their kinds, by the kernel's names without `FUSE_`.",
        "- A step was done once before it was counted, and a file was opened, so what happens once a mount \
         is in no row: the first OPEN and OPENDIR are answered ENOSYS, and neither they nor RELEASE and \
         RELEASEDIR come again.\n  Until that first OPEN, of a file that is not new, each file that is made \
         sends a RELEASE when it is closed, which nobody waits for; `narufs mount` opens a file without a \
         name to end that.",
        "- Steps follow each other in one directory. One GETATTR in each row that changes names is about \
         that directory, which the step before has changed.",
        "- The caller is root, where no user is named. *Seen before*: by the same step. A *cached* file was \
         read and looked at.",
        "- FORGET and BATCH_FORGET are left out: nobody waits for them, and how many there are is a matter \
         of time.",
    ];
    paragraphs.map(|paragraph| paragraph.to_owned() + "\n").concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(sent: &[(&str, u64)], awaited: u64) -> Table {
        let sent = sent.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect();
        vec![("a step, and one", Counts { sent, awaited })]
    }

    #[test]
    fn rows_are_read_as_they_are_written() {
        for (sent, awaited) in [(vec![], 0), (vec![("LOOKUP", 1)], 1), (vec![("READ", 2), ("RELEASE", 1)], 2)]
        {
            let table = table(&sent, awaited);
            let (name, counts) = &table[0];
            let document = format!("{}\n{}", head("6.18"), line(name, counts));
            assert_eq!(rows(&document), BTreeMap::from([(*name, counts.clone())]));
        }
    }

    #[test]
    fn the_version_is_found() {
        assert_eq!(made_on(&head("6.18")), Some("6.18"));
        assert_eq!(made_on("a page"), None);
        assert!(kernel().is_ok_and(|version| made_on(&head(&version)) == Some(version.as_str())));
    }

    #[test]
    fn more_of_a_kind_another_kind_and_more_to_wait_for_are_growth() {
        let before = table(&[("LOOKUP", 1), ("RELEASE", 1)], 1);
        let document = line(before[0].0, &before[0].1);
        for less in [before, table(&[("LOOKUP", 1)], 1), table(&[], 0)] {
            assert_eq!(growth(&document, &less), [""; 0]);
        }
        for more in [
            table(&[("LOOKUP", 2)], 1),
            table(&[("GETATTR", 1)], 1),
            table(&[("LOOKUP", 1), ("RELEASE", 1)], 2),
        ] {
            assert_eq!(growth(&document, &more).len(), 1, "{more:?}");
        }
        // A new row is no growth.
        assert_eq!(growth("", &table(&[("LOOKUP", 1)], 1)), [""; 0]);
    }

    #[test]
    fn steps_have_names_of_their_own_that_fit_into_a_row() {
        let rows: Vec<&str> =
            catalogue().iter().flat_map(|(_, rows)| rows.iter().map(|row| row.name)).collect();
        assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), rows.len());
        assert!(rows.iter().all(|name| !name.contains('|')));
    }
}
