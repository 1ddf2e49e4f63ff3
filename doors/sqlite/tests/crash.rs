//! Every call at which a transaction can be cut off: what is found afterwards is the old state or the new one.
//!
//! The stock sqlite3 runs with the extension built with feature `mortal`, which ends the process at the n-th call that
//! changes something. The image is then looked at as a kill leaves it, and as a loss of power would: a copy of the file,
//! without what is in shared memory.

mod shell;

use shell::{Place, said};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// A transaction, and what must be there before and after it.
struct Case {
    name: &'static str,
    prepare: String,
    sql: String,
    /// Of the image.
    size: &'static str,
    /// Every how many calls the process ends.
    step: usize,
    /// Pieces of a transaction in memory; what is more has a real journal.
    pieces: &'static str,
    /// The directory that stands for the image of the environment, where that gives names their meaning.
    at: Option<&'static str>,
}

const SEEN: &str = "SELECT count(*), sum(length(b)), sum(a) FROM t; PRAGMA integrity_check;";

fn rows(n: usize, bytes: usize) -> String {
    format!(
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n})
         INSERT INTO t SELECT i, zeroblob({bytes}) FROM n;"
    )
}

impl Case {
    fn attaches(&self) -> bool {
        self.sql.contains("other.")
    }

    fn seen(&self, place: &Place) -> String {
        let mut seen = place.sql("a.db", SEEN);
        if self.attaches() {
            seen += &place.sql("b.db", SEEN);
        }
        seen
    }

    /// A shell in the environment that this is about, with an image.
    fn shell(&self, place: &Place, image: &Place) -> Command {
        let mut shell = place.shell();
        if let Some(at) = self.at {
            shell.env("NARUFS_SQLITE_IMAGE", &image.image).env("NARUFS_SQLITE_AT", at);
        }
        shell
    }

    /// What the transaction is run as, with a number of calls to live for.
    fn run(&self, place: &Place, dies_at: usize) -> bool {
        let mut shell = self.shell(place, place);
        shell.env("NARUFS_SQLITE_DIE_AT", dies_at.to_string()).env("NARUFS_SQLITE_PIECES", self.pieces);
        let name = |name: &str| self.at.map_or_else(|| place.uri(name), |at| format!("{at}/{name}"));
        let attach =
            if self.attaches() { format!("ATTACH '{}' AS other;", name("b.db")) } else { String::new() };
        let said = said(shell, &format!(".open {}\n{attach}\n{}", name("a.db"), self.sql));
        let dead = said.status.signal().is_some();
        assert!(dead || said.status.success(), "{}: {said:?}", self.name);
        dead
    }

    /// After how many calls it ends by itself.
    fn lives_for(&self, made: &Place) -> usize {
        let (mut dead, mut alive) = (1, 2);
        while self.run(&made.copied("image"), alive) {
            (dead, alive) = (alive, alive * 2);
        }
        while alive - dead > 1 {
            let middle = dead.midpoint(alive);
            if self.run(&made.copied("image"), middle) { dead = middle } else { alive = middle }
        }
        alive
    }

    fn every_end(&self) {
        // With NARUFS_SQLITE_EVERY each call is taken that the case asks for, else some of them.
        let every = std::env::var_os("NARUFS_SQLITE_EVERY").is_some();
        let step = if every { self.step } else { self.step * 9 };
        let made = Place::of_size(self.size);
        made.sql("a.db", &self.prepare);
        if self.attaches() {
            made.sql("b.db", &self.prepare);
        }
        let old = self.seen(&made);
        let whole = made.copied("image");
        assert!(!self.run(&whole, usize::MAX), "{}: it ends by itself", self.name);
        let new = self.seen(&whole);
        assert_ne!(old, new, "{}", self.name);
        let (mut states, mut news) = (0, 0);
        // Of long transactions the end alone is taken call by call.
        let ends = self.step > 100 || !self.pieces.is_empty();
        let end = if ends { self.lives_for(&made) } else { usize::MAX };
        let last = end.saturating_sub(if every || self.pieces.is_empty() { 40 } else { 10 });
        for dies_at in (1..last).step_by(step).chain(last..end) {
            let place = made.copied("image");
            let original = &place;
            if !self.run(&place, dies_at) {
                break;
            }
            for (how, place) in [("power", &place.copied("copy").into_copied()), ("kill", &place)] {
                // The copy finds by itself what its journals name.
                let _hidden = (how == "power").then(|| original.hidden());
                let seen = self.seen(place);
                assert!(seen == old || seen == new, "{} cut at {dies_at}, {how}: {seen}", self.name);
                states += 1;
                news += usize::from(seen == new);
            }
        }
        println!("{}: {states} states, {news} of them new", self.name);
        assert!(news > 0 || step > self.step, "{}: the new state is met before the end", self.name);
    }
}

fn case(name: &'static str, rows: String, sql: &str, step: usize) {
    let size = if step > 100 { "320M" } else { "24M" };
    Case { name, prepare: rows, sql: sql.to_owned(), size, step, pieces: "", at: None }.every_end();
}

/// With a real journal from the eighth page on.
fn case_of_few_pieces(name: &'static str, rows: String, sql: String) {
    Case { name, prepare: rows, sql, size: "24M", step: 11, pieces: "8", at: None }.every_end();
}

#[test]
fn one_row() {
    case("one row", rows(10, 100), "UPDATE t SET b = zeroblob(99) WHERE a = 3;", 1);
}

#[test]
fn two_pages_in_each_journal_mode() {
    for mode in ["truncate", "persist", "delete"] {
        let sql = format!("PRAGMA journal_mode={mode}; UPDATE t SET b = zeroblob(2000) WHERE a IN (1, 9);");
        case("two pages", rows(10, 3000), &sql, 1);
    }
}

#[test]
fn two_databases() {
    let sql =
        "BEGIN; UPDATE t SET b = zeroblob(9) WHERE a = 3; UPDATE other.t SET b = 1 WHERE a = 4; COMMIT;";
    case("two databases", rows(10, 100), sql, 1);
}

#[test]
fn a_vacuum() {
    case("a vacuum", rows(60, 3000) + "DELETE FROM t WHERE a % 3;", "DELETE FROM t WHERE a < 9; VACUUM;", 3);
}

#[test]
fn sixty_four_pages_that_spill() {
    let sql = "PRAGMA cache_size=4; UPDATE t SET b = zeroblob(2999);";
    case("64 pages", rows(64, 3000), sql, 17);
}

#[test]
fn a_real_journal_of_one_whose_syncs_are_off() {
    for mode in ["delete", "persist"] {
        let sql = format!(
            "PRAGMA synchronous=off; PRAGMA cache_size=4; PRAGMA journal_mode={mode}; UPDATE t SET b = zeroblob(2999);"
        );
        case_of_few_pieces("syncs off", rows(30, 3000), sql);
    }
}

#[test]
fn real_journals_of_two_databases() {
    let sql = "PRAGMA cache_size=4; BEGIN; UPDATE t SET b = zeroblob(2999); UPDATE other.t SET b = zeroblob(2998); COMMIT;";
    case_of_few_pieces("two real journals", rows(16, 3000), sql.to_owned());
}

/// The name of a super-journal that is gone, and not durably, is there again for as long as its databases are rolled back.
#[test]
fn two_databases_whose_commit_could_not_be_synced_are_both_old_or_both_new() {
    let made = Place::of_size("24M");
    for name in ["a.db", "b.db"] {
        made.sql(name, &rows(16, 3000));
    }
    let seen = |place: &Place| ["a.db", "b.db"].map(|name| place.sql(name, SEEN));
    let sql = "PRAGMA cache_size=4; BEGIN; UPDATE t SET b = zeroblob(2999); UPDATE other.t SET b = zeroblob(2999); COMMIT;";
    let dies = |place: &Place, at: usize| {
        let mut shell = place.shell();
        shell.env("NARUFS_SQLITE_FAIL_SYNC", "1").env("NARUFS_SQLITE_PIECES", "8");
        shell.env("NARUFS_SQLITE_DIE_AT", at.to_string());
        let sql = format!(".open {}\nATTACH '{}' AS other;\n{sql}", place.uri("a.db"), place.uri("b.db"));
        let said = said(shell, &sql);
        assert!(!said.status.success(), "{said:?}");
        said.status.signal().is_some()
    };
    let old = seen(&made);
    let (mut dead, mut alive) = (1_usize, 1_usize << 12);
    while alive - dead > 1 {
        let middle = dead.midpoint(alive);
        if dies(&made.copied("image"), middle) { dead = middle } else { alive = middle }
    }
    for at in alive.saturating_sub(60)..=alive {
        let place = made.copied("image");
        dies(&place, at);
        let [a, b] = seen(&place);
        assert_eq!(a, b, "cut at {at}");
        assert!(a == old[0] || a.ends_with("|47984|136\nok"), "cut at {at}: {a}");
    }
}

/// Names without an image may mean another one when journals are played back than they did when those were written.
#[test]
fn journals_of_two_databases_are_played_back_or_kept_whatever_image_the_environment_names() {
    let sql = "PRAGMA cache_size=4;
        BEGIN; UPDATE t SET b = zeroblob(2999); UPDATE other.t SET b = zeroblob(2998); COMMIT;";
    for at in ["", "/srv/data"] {
        let case = Case {
            name: "plain names",
            prepare: rows(16, 3000),
            sql: sql.to_owned(),
            size: "24M",
            step: 1,
            // So each is durable with its sync, before all are committed.
            pieces: "0",
            at: Some(at),
        };
        let (made, elsewhere) = (Place::of_size(case.size), Place::of_size(case.size));
        for name in ["a.db", "b.db"] {
            made.sql(name, &case.prepare);
        }
        let seen = |place: &Place, image: &Place| {
            let (a, b) = (place.uri("a.db"), place.uri("b.db"));
            let seen = said(case.shell(place, image), &format!(".open {a}\n{SEEN}\n.open {b}\n{SEEN}\n"));
            if seen.status.success() { Ok(seen.out) } else { Err(seen.err) }
        };
        let old = seen(&made, &made).expect("it is whole");
        let whole = made.copied("image");
        assert!(!case.run(&whole, usize::MAX), "it ends by itself");
        let new = seen(&whole, &whole).expect("it is whole");
        let end = case.lives_for(&made);
        let mut kept = 0;
        for dies_at in (end.saturating_sub(70)..end).step_by(3) {
            let place = made.copied("image");
            assert!(case.run(&place, dies_at), "cut at {dies_at}");
            match seen(&place, &elsewhere) {
                Ok(seen) => assert!(seen == old || seen == new, "{at} cut at {dies_at}: {seen}"),
                Err(why) => {
                    let what_to_do = format!("set NARUFS_SQLITE_IMAGE={}", place.image.display());
                    assert!(why.contains(&what_to_do), "{at} cut at {dies_at}: {why}");
                    kept += 1;
                }
            }
            let seen = seen(&place, &place).expect("it is the image that was meant");
            assert!(seen == old || seen == new, "{at} cut at {dies_at}: {seen}");
        }
        println!("at {at:?}: {kept} kept");
        assert_eq!(kept > 0, !at.is_empty(), "a full name has its image in it");
    }
}

#[test]
#[cfg(feature = "long")]
fn a_thousand_and_ten_thousand_pages_that_spill() {
    let sql = "PRAGMA cache_size=50; UPDATE t SET b = zeroblob(2999);";
    case("1000 pages", rows(1000, 3000), sql, 211);
    case("10000 pages", rows(10000, 3000), sql, 4111);
}

#[test]
#[cfg(feature = "long")]
fn two_databases_that_are_more_than_a_batch() {
    let sql = "PRAGMA cache_size=50; BEGIN; UPDATE t SET b = zeroblob(2999); UPDATE other.t SET b = zeroblob(2998); COMMIT;";
    case("two large databases", rows(900, 3000), sql, 211);
    case("two larger databases", rows(1500, 3000), sql, 311);
}
