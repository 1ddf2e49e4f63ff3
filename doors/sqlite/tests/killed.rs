//! SIGKILL in the midst of transactions: what was answered is there, whole, and nothing else is.
//!
//! NARUFS_SQLITE_KILLS says how often; 20 times by default.

mod shell;

use shell::{Place, start};
use std::io::{BufRead, BufReader};

/// Transactions of a round; more than it lives for.
const MOST: usize = 400;

/// What a round runs: numbered transactions, each of two databases every third round, with pages that spill every
/// second.
fn script(place: &Place, round: usize, first: usize) -> String {
    let mut sql = format!(".open {}\nATTACH '{}' AS other;\n", place.uri("a.db"), place.uri("b.db"));
    if round % 2 == 1 {
        sql += "PRAGMA cache_size=3;\n";
    }
    let mode = ["delete", "truncate", "persist"][round / 2 % 3];
    sql += &format!("PRAGMA main.journal_mode={mode};\n");
    for n in first..first + MOST {
        sql += &format!(
            "BEGIN; INSERT INTO main.t VALUES({n}, randomblob({})); UPDATE main.total SET n = {n};\n",
            n * 97 % 9000
        );
        sql += "UPDATE main.t SET b = randomblob(length(b)) WHERE a % 50 = 0;\n";
        if round.is_multiple_of(3) {
            sql += &format!("UPDATE other.total SET n = {n};\n");
        }
        sql += &format!("COMMIT; SELECT 'done {n}';\n");
    }
    sql
}

#[test]
fn what_was_answered_outlives_kills() {
    let kills = std::env::var("NARUFS_SQLITE_KILLS").map_or(20, |n| n.parse().expect("a number"));
    let place = Place::of_size("256M");
    for name in ["a.db", "b.db"] {
        place.sql(
            name,
            "CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE TABLE total(n); INSERT INTO total VALUES(0);",
        );
    }
    let (mut known, mut known_other) = (0, 0);
    for round in 0..kills {
        // Lines come as they are printed.
        let mut child =
            start(place.shell_by(&["stdbuf", "-oL", "sqlite3"]), &script(&place, round, known + 1));
        let lives_for = 1 + round * 31 % 60;
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut done = known;
        for line in lines.by_ref().map_while(Result::ok) {
            done = line.strip_prefix("done ").map_or(done, |n| n.parse().expect("a number"));
            if done >= known + lives_for {
                break;
            }
        }
        child.kill().expect("it is ours");
        for line in lines.map_while(Result::ok) {
            done = line.strip_prefix("done ").map_or(done, |n| n.parse().expect("a number"));
        }
        child.wait().expect("it ends");
        assert!(done > known, "round {round} has done something");
        let found = place.sql(
            "a.db",
            "SELECT n, (SELECT max(a) FROM t), (SELECT count(*) FROM t) FROM total; PRAGMA integrity_check;",
        );
        let now = if found == format!("{0}|{0}|{0}\nok", done + 1) { done + 1 } else { done };
        assert_eq!(found, format!("{now}|{now}|{now}\nok"), "round {round}: {done} were answered");
        if round.is_multiple_of(3) {
            known_other = now;
        }
        let other = place.sql("b.db", "SELECT n FROM total; PRAGMA integrity_check;");
        assert_eq!(other, format!("{known_other}\nok"), "round {round}: both databases or none");
        known = now;
        if known > 3000 {
            place.sql("a.db", "DELETE FROM t; UPDATE total SET n = 0; VACUUM;");
            known = 0;
        }
    }
    println!("{kills} kills");
}

/// What a commit that nobody syncs leaves to the machine elsewhere is there as long as the machine is.
#[test]
fn commits_outlive_kills_whatever_synchronous_is() {
    let place = Place::of_size("256M");
    for (mode, locking, synchronous) in [
        ("wal", "normal", "normal"),
        ("wal", "exclusive", "normal"),
        ("wal", "normal", "off"),
        ("delete", "normal", "off"),
    ] {
        let name = format!("{mode}-{locking}-{synchronous}.db");
        place.sql(&name, &format!("PRAGMA journal_mode={mode}; CREATE TABLE t(a INTEGER PRIMARY KEY, b);"));
        let set = format!("PRAGMA locking_mode={locking}; PRAGMA synchronous={synchronous};");
        // The first and the last are small, the second is more than one record of the journal takes at once.
        let large = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
            INSERT INTO t(b) SELECT zeroblob(3000) FROM n;";
        let sql = format!("{set} INSERT INTO t VALUES(1, 1); {large} INSERT INTO t(b) VALUES(1);");
        let said = place.run(&format!(".open {}\n{sql}\n.system kill -9 $PPID\n", place.uri(&name)));
        assert!(!said.status.success(), "{said:?}");
        let found = place.sql(&name, "SELECT count(*) FROM t; PRAGMA integrity_check;");
        assert_eq!(found, "102\nok", "{name}");
    }
}
