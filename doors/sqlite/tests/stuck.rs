//! A database in an image, committed with a file of the system, whose journal could not be ended then: SQLite does not look at
//! that, and what was called committed is not undone by it.

mod shell;

use shell::{Place, Said, said};

const SEEN: &str = "SELECT count(*), sum(length(b)), sum(a) FROM t; PRAGMA integrity_check;";

const ROWS: &str = "CREATE TABLE t(a INTEGER PRIMARY KEY, b);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 16) INSERT INTO t SELECT i, zeroblob(3000) FROM n;";

const MODES: [&str; 3] = ["delete", "truncate", "persist"];

const REFUSED: &str = "it undoes what is committed, and cannot be written to: its database is refused";

/// Both, with those rows.
fn made() -> Place {
    let place = Place::of_size("24M");
    place.sql("b.db", ROWS);
    assert!(place.outside(ROWS).status.success());
    place
}

/// Commits both with a journal that is a file, and goes on; so many attempts to end one fail, from the first on.
fn committed(place: &Place, settings: &str, fail: usize, then: &str) -> Said {
    // One that is killed has said what it said.
    let mut shell = place.shell_by(&["stdbuf", "-oL", "sqlite3"]);
    shell.env("NARUFS_SQLITE_PIECES", "8").env("NARUFS_SQLITE_FAIL_ENDS", fail.to_string());
    let said = said(
        shell,
        &format!(
            ".bail off\n.open {}\nATTACH '{}' AS other; PRAGMA other.cache_size=4; {settings}
             BEGIN; UPDATE main.t SET b = zeroblob(2999); UPDATE other.t SET b = zeroblob(2999); COMMIT;
             SELECT 'committed';\n{then}",
            place.beside().display(),
            place.uri("b.db")
        ),
    );
    assert!(said.out.contains("committed"), "{settings} {fail}: {said:?}");
    said
}

/// What there is afterwards.
fn is_there(place: &Place, inside: &str, why: &str) {
    let b = place.run(&format!(".open {}\n{SEEN}", place.uri("b.db")));
    assert_eq!(b.out, format!("{inside}\nok\n"), "{why}: {b:?}");
    assert_eq!(place.outside(SEEN).out, "16|47984|136\nok\n", "{why}");
}

#[test]
fn what_a_file_of_the_system_has_committed_is_not_undone_by_a_journal_that_could_not_be_ended() {
    for mode in MODES {
        for fail in 1..=3 {
            let place = made();
            let said = committed(
                &place,
                &format!("PRAGMA other.journal_mode={mode};"),
                fail,
                "SELECT count(*) FROM other.t;\nSELECT sum(length(b)) FROM other.t;",
            );
            // Whoever meets it while it is stuck is told.
            assert_eq!(said.err.contains(REFUSED), fail == 3, "{mode} {fail}: {said:?}");
            assert!(said.out.ends_with("47984\n"), "{mode} {fail}: {said:?}");
            is_there(&place, "16|47984|136", &format!("{mode} {fail}: {said:?}"));
        }
    }
}

/// A close locks nothing and asks for no journal, and an end without one not even that.
#[test]
fn a_journal_that_could_not_be_ended_is_ended_by_the_end_of_its_program() {
    for mode in MODES {
        for (fail, end) in [(2, ""), (3, ""), (2, ".exit 1")] {
            let place = made();
            let said = committed(&place, &format!("PRAGMA other.journal_mode={mode};"), fail, end);
            is_there(&place, "16|47984|136", &format!("{mode} {fail} {end}: {said:?}"));
        }
    }
}

/// A lock that stays has nobody look for a journal.
#[test]
fn nothing_is_written_past_a_journal_that_could_not_be_ended() {
    // So few that they are committed at once.
    const FEW: &str = "WHERE a < 3";
    let later = [
        // With a journal that becomes a file again, and one that does not.
        ("", "", "32|95984|1872"),
        ("", FEW, "18|53984|339"),
        // With one that is opened anew where nobody has looked for the old one, and becomes the same file.
        (
            "PRAGMA other.journal_mode=off; SELECT count(*) FROM other.t; PRAGMA other.journal_mode=delete;",
            "",
            "32|95984|1872",
        ),
        ("PRAGMA other.journal_mode=memory;", FEW, "18|53984|339"),
        ("PRAGMA other.journal_mode=off;", FEW, "18|53984|339"),
    ];
    for mode in MODES {
        for (later, which, seen) in later {
            // Killed while it is stuck, it has lost what was committed before, and that alone.
            for (fail, tries, seen) in [(2, 1, seen), (3, 2, seen), (1000, 1, "16|48000|136")] {
                // That mode cannot take back what was refused.
                if tries > 1 && later.ends_with("off;") {
                    continue;
                }
                let place = made();
                let insert =
                    format!("INSERT INTO other.t SELECT a + 100, zeroblob(3000) FROM other.t {which};\n");
                let said = committed(
                    &place,
                    &format!("PRAGMA other.journal_mode={mode}; PRAGMA other.locking_mode=exclusive;"),
                    fail,
                    &format!("{later}\n{}.shell kill -9 $PPID", insert.repeat(tries)),
                );
                let case = format!("{mode} {later} {fail}: {said:?}");
                assert_eq!(said.err.contains(REFUSED), fail > 2, "{case}");
                assert_eq!(said.err.contains("disk I/O error"), fail > 2, "{case}");
                is_there(&place, seen, &case);
            }
        }
    }
}
