//! What the system's own sqlite3 finds, with the extension loaded.

mod shell;

use shell::{Place, extension};

const ROWS: &str = "CREATE TABLE t(a INTEGER PRIMARY KEY, b);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
    INSERT INTO t SELECT i, randomblob(500) FROM n;";

#[test]
fn what_was_committed_is_there_and_whole() {
    let place = Place::new();
    place.sql("a.db", ROWS);
    assert_eq!(place.sql("a.db", "SELECT count(*) FROM t; PRAGMA integrity_check;"), "200\nok");
    let rolled = "BEGIN; DELETE FROM t WHERE a > 10; UPDATE t SET b = 1; ROLLBACK; SELECT count(*), max(length(b)) FROM t;";
    assert_eq!(place.sql("a.db", rolled), "200|500");
}

#[test]
fn every_journal_mode_commits_and_rolls_back() {
    for mode in ["delete", "truncate", "persist", "memory", "off", "wal"] {
        for locking in ["normal", "exclusive"] {
            for synchronous in ["off", "normal", "full", "extra"] {
                let place = Place::new();
                let set = format!(
                    "PRAGMA locking_mode={locking}; PRAGMA journal_mode={mode}; PRAGMA synchronous={synchronous};"
                );
                let again = "UPDATE t SET b = 1 WHERE a = 5; INSERT INTO t VALUES(1000, zeroblob(20000));";
                // Without a journal there is nothing to roll back by.
                let back = if mode == "off" { "" } else { "BEGIN; DELETE FROM t; ROLLBACK;" };
                place.sql("a.db", &format!("{set}{ROWS}{again}{back}DELETE FROM t WHERE a = 7;"));
                let found =
                    place.sql("a.db", "SELECT count(*), sum(length(b)) FROM t; PRAGMA integrity_check;");
                assert_eq!(
                    found,
                    format!("200|{}\nok", 198 * 500 + 1 + 20000),
                    "{mode} {locking} {synchronous}"
                );
            }
        }
    }
}

#[test]
fn a_transaction_that_spills_is_rolled_back_and_committed() {
    let place = Place::of_size("256M");
    place.sql("a.db", ROWS);
    let spills = "PRAGMA cache_size=5; BEGIN; UPDATE t SET b = zeroblob(3000);
        WITH RECURSIVE n(i) AS (SELECT 201 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
        INSERT INTO t SELECT i, zeroblob(3000) FROM n;";
    let seen = "SELECT count(*), sum(length(b)) FROM t; PRAGMA integrity_check;";
    let found = place.sql("a.db", &format!("{spills} SELECT count(*) FROM t; ROLLBACK; {seen}"));
    assert_eq!(found, "3000\n200|100000\nok");
    let half = "SAVEPOINT s; DELETE FROM t WHERE a > 100; UPDATE t SET b = 1; ROLLBACK TO s;";
    let found = place.sql("a.db", &format!("{spills} {half} COMMIT; {seen}"));
    assert_eq!(found, "3000|9000000\nok");
    assert_eq!(place.sql("a.db", seen), "3000|9000000\nok");
}

#[test]
fn a_database_that_shrinks_is_whole() {
    let place = Place::new();
    for vacuum in ["none", "full", "incremental"] {
        let name = format!("{vacuum}.db");
        place.sql(
            &name,
            &format!(
                "PRAGMA auto_vacuum={vacuum}; {ROWS} DELETE FROM t WHERE a % 4; PRAGMA incremental_vacuum;"
            ),
        );
        place.sql(&name, "VACUUM; PRAGMA page_size=1024; VACUUM;");
        let found = place.sql(&name, "SELECT count(*) FROM t; PRAGMA integrity_check; PRAGMA page_size;");
        assert_eq!(found, "50\nok\n1024", "{vacuum}");
    }
}

#[test]
fn several_databases_commit_together_and_connections_share_the_image() {
    let place = Place::new();
    for name in ["a.db", "b.db"] {
        place.sql(name, ROWS);
    }
    let attach = format!("ATTACH '{}' AS other;", place.uri("b.db"));
    let both =
        format!("{attach} BEGIN; DELETE FROM main.t WHERE a > 10; DELETE FROM other.t WHERE a > 20; COMMIT;");
    place.sql("a.db", &both);
    assert_eq!(place.sql("a.db", "SELECT count(*) FROM t; PRAGMA integrity_check;"), "10\nok");
    assert_eq!(place.sql("b.db", "SELECT count(*) FROM t; PRAGMA integrity_check;"), "20\nok");
    let back = format!("{attach} BEGIN; DELETE FROM main.t; DELETE FROM other.t; ROLLBACK;");
    place.sql(
        "a.db",
        &format!("{back} SELECT (SELECT count(*) FROM main.t), (SELECT count(*) FROM other.t);"),
    );
    assert_eq!(place.sql("b.db", "SELECT count(*) FROM t;"), "20");
}

#[test]
fn another_connection_sees_the_old_until_the_commit_and_is_told_that_it_must_wait() {
    let place = Place::new();
    place.sql("a.db", ROWS);
    let uri = place.uri("a.db");
    // The shell's connections 0 and 1, in one process.
    let said = place.run(&format!(
        ".open {uri}\nBEGIN IMMEDIATE; UPDATE t SET b = 1;\n.connection 1\n.open {uri}\nSELECT sum(length(b)) FROM t;\n\
         .connection 0\nCOMMIT;\n.connection 1\nSELECT sum(length(b)) FROM t;\n.connection 0\nBEGIN IMMEDIATE;\n\
         .connection 1\nUPDATE t SET b = 2;\n"
    ));
    assert_eq!(said.out, "100000\n200\n", "{said:?}");
    assert!(said.err.contains("database is locked"), "{said:?}");
}

#[test]
fn connections_share_the_index_of_a_log() {
    let place = Place::new();
    place.sql("a.db", &format!("PRAGMA journal_mode=wal; {ROWS}"));
    let uri = place.uri("a.db");
    let said = place.run(&format!(
        ".open {uri}\nBEGIN; UPDATE t SET b = 1;\n.connection 1\n.open {uri}\nSELECT sum(length(b)) FROM t;\n\
         .connection 0\nCOMMIT;\n.connection 1\nSELECT sum(length(b)) FROM t; PRAGMA wal_checkpoint;\n\
         .connection 0\nPRAGMA integrity_check;\n"
    ));
    assert!(said.status.success(), "{said:?}");
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!((lines[0], lines[1], lines[3]), ("100000", "200", "ok"), "{said:?}");
}

#[test]
fn an_image_that_is_yet_to_be_made_has_one_name_from_the_first_connection_on() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    let sub = dir.path().join("sub");
    std::fs::create_dir(&sub).expect("room");
    let link = |to: &str, name: &str| {
        let link = dir.path().join(name);
        std::os::unix::fs::symlink(to, &link).expect("room");
        link
    };
    let images = [
        sub.join("../one"),
        link("sub", "beside").join("two"),
        link("sub/three", "near"),
        link("near-too", "far"),
    ];
    // Where that leads is a link as well.
    link("sub/../four", "near-too");
    let place = Place::new();
    for image in &images {
        for by_environment in [false, true] {
            let mut shell = place.shell();
            let uri = if by_environment {
                shell.env("NARUFS_SQLITE_IMAGE", image).env("NARUFS_SQLITE_SIZE", "16M");
                shell.env("NARUFS_SQLITE_AT", "/srv/data");
                "/srv/data/a.db".to_owned()
            } else {
                format!("file:/a.db?vfs=narufs&image={}&size=16M", image.display())
            };
            let said = shell::said(
                shell,
                &format!(
                    ".open {uri}\nCREATE TABLE t(a);\n.connection 1\n.open {uri}\nINSERT INTO t VALUES(1);\n\
                     .connection 0\nSELECT count(*) FROM t;"
                ),
            );
            assert!(said.status.success() && said.out == "1\n", "{}: {said:?}", image.display());
            std::fs::remove_file(image.canonicalize().expect("it is there")).expect("it is closed");
        }
    }
}

#[test]
fn refusals_say_what_to_do() {
    let place = Place::new();
    let said = place.run(".open file:/a.db?vfs=narufs\nSELECT 1;");
    assert!(said.err.contains("no image is named; say file:"), "{said:?}");
    let said = place.run(".open file:/a.db?vfs=narufs&image=/nowhere/image\nSELECT 1;");
    assert!(said.err.contains("/nowhere/image"), "{said:?}");
    let said = place.run(&format!(".open {}&durability=some\nCREATE TABLE t(a);", place.uri("a.db")));
    assert!(said.err.contains("durability=some: say power, process or window=100ms"), "{said:?}");
}

#[test]
fn what_an_unclosed_connection_has_committed_unsynced_outlives_its_process() {
    let place = Place::new();
    let sql = format!(".open {}\nPRAGMA synchronous=off; {ROWS}\n.exit 3\n", place.uri("a.db"));
    assert_eq!(place.run(&sql).status.code(), Some(3));
    assert_eq!(place.sql("a.db", "SELECT count(*) FROM t; PRAGMA integrity_check;"), "200\nok");
}

#[test]
fn an_automatic_extension_lets_connections_open_that_ask_for_extended_codes() {
    let python = "import ctypes, sys
sqlite, door = ctypes.CDLL('libsqlite3.so.0'), ctypes.CDLL(sys.argv[1])
db = ctypes.c_void_p()
sqlite.sqlite3_auto_extension(door.sqlite3_narufssqlite_init)
opened = sqlite.sqlite3_open_v2(b':memory:', ctypes.byref(db), 0x02000002, None)
sqlite.sqlite3_vfs_find.restype = ctypes.c_void_p
print(opened, sqlite.sqlite3_vfs_find(b'narufs') is not None)";
    let mut command = std::process::Command::new("python3");
    let output = command.args(["-c", python]).arg(extension()).output().expect("python3 is installed");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 True\n", "{output:?}");
}
