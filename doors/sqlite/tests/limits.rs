//! Where there is no room, and names that lead elsewhere.

mod shell;

use narufs::{Fs, MountOptions, OpenOptions};
use shell::{Place, Talk, said};
use std::os::unix::fs::PermissionsExt;

const ROWS: &str = "CREATE TABLE t(a INTEGER PRIMARY KEY, b);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
    INSERT INTO t SELECT i, zeroblob(3000) FROM n;";

/// What has no room is told, and undoes nothing later: neither when there is room again, nor in the next process.
#[test]
fn a_journal_without_room_undoes_nothing_of_what_comes_after_it() {
    for (mode, synchronous) in [("delete", "full"), ("persist", "off")] {
        for makes_room in [false, true] {
            let place = Place::of_size("32M");
            place.sql("a.db", ROWS);
            // It leaves less than the journal of all of the other.
            let filled = place.run(&format!(
                ".bail off\n.open {}\nPRAGMA synchronous=off; CREATE TABLE f(b); PRAGMA cache_size=50;\n{}",
                place.uri("filler.db"),
                "INSERT INTO f VALUES(zeroblob(400000));\n".repeat(80)
            ));
            assert!(filled.err.contains("full"), "{filled:?}");
            let mut shell = place.shell();
            shell.env("NARUFS_SQLITE_PIECES", "300");
            let room = if makes_room {
                format!(
                    "ATTACH '{}' AS filler; PRAGMA filler.secure_delete=off; DROP TABLE filler.f; VACUUM filler;",
                    place.uri("filler.db")
                )
            } else {
                String::new()
            };
            let again = if makes_room { "UPDATE t SET b = zeroblob(2998) WHERE a > 1;" } else { "" };
            let said = said(
                shell,
                &format!(
                    ".bail off\n.open {}\nPRAGMA locking_mode=exclusive; PRAGMA journal_mode={mode};
                     PRAGMA synchronous={synchronous}; PRAGMA cache_size=20;
                     UPDATE t SET b = zeroblob(2999);\n{room}\nUPDATE t SET b = 'kept' WHERE a = 1;\n{again}\n
                     SELECT b, (SELECT count(*) FROM t), (SELECT sum(length(b)) FROM t) FROM t WHERE a = 1;",
                    place.uri("a.db")
                ),
            );
            assert!(said.err.contains("full"), "{mode}: {said:?}");
            let seen = if makes_room { "kept|1500|4494006" } else { "kept|1500|4497004" };
            assert!(said.out.trim_end().ends_with(seen), "{mode} {makes_room}: {said:?}");
            let found = place.sql(
                "a.db",
                "SELECT b, (SELECT count(*) FROM t), (SELECT sum(length(b)) FROM t) FROM t WHERE a = 1;
                 PRAGMA integrity_check;",
            );
            assert_eq!(found, format!("{seen}\nok"), "{mode} {makes_room}: {said:?}");
        }
    }
}

/// What a COMMIT has refused is not there, however the lock stays: neither for the next, nor with it.
#[test]
fn a_commit_without_room_takes_no_effect_later() {
    for locking in ["normal", "exclusive"] {
        let (place, filled) = (Place::of_size("16M"), "SELECT count(*), sum(length(b)) FROM f;");
        let insert = "INSERT INTO f(b) VALUES(zeroblob(400000));\n";
        let mut shell = Talk::inside(&place, "room.db", "");
        shell.ask("CREATE TABLE r(b); INSERT INTO r VALUES(zeroblob(2000000));");
        let said = shell.ask(&format!(
            ".connection 1\n.open {}\nPRAGMA locking_mode={locking}; PRAGMA synchronous=off;
             CREATE TABLE f(a INTEGER PRIMARY KEY, b);\n{}{filled}",
            place.uri("a.db"),
            insert.repeat(60)
        ));
        let there = 60 - said.matches("full").count();
        assert!(there < 60, "{said}");
        assert!(said.ends_with(&format!("\n{there}|{}", there * 400_000)), "{locking}: {said}");
        shell.ask(".connection 0\nPRAGMA secure_delete=off; DROP TABLE r; VACUUM;");
        let said = shell.ask(&format!(".connection 1\n{insert}{filled}"));
        let seen = format!("{}|{}", there + 1, (there + 1) * 400_000);
        assert_eq!(said, seen, "{locking}");
        shell.end(".quit");
        assert_eq!(place.sql("a.db", filled), seen, "{locking}");
    }
}

#[test]
fn a_database_without_locks_is_refused() {
    let place = Place::new();
    place.sql("a.db", "CREATE TABLE t(a);");
    for yes in ["1", "2", "on", "TRUE", "yes"] {
        let said = place.run(&format!(".open {}&nolock={yes}\nINSERT INTO t VALUES(1);", place.uri("a.db")));
        assert!(said.err.contains("leave nolock out"), "{yes}: {said:?}");
    }
    for harmless in ["nolock=0", "nolock=off", "immutable=1"] {
        let said = place.run(&format!(".open {}&{harmless}\nSELECT count(*) FROM t;", place.uri("a.db")));
        assert_eq!(said.out, "0\n", "{harmless}: {said:?}");
    }
    let said = place.run(&format!(".open {}&immutable=1\nINSERT INTO t VALUES(1);", place.uri("a.db")));
    assert!(said.err.contains("readonly"), "{said:?}");
}

#[test]
fn a_log_that_is_written_back_without_syncs_is_whole_after_a_kill() {
    let place = Place::new();
    place.sql("a.db", "PRAGMA journal_mode=wal; CREATE TABLE t(a INTEGER PRIMARY KEY, b);");
    let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50)
        INSERT INTO t(b) SELECT zeroblob(3000) FROM n; PRAGMA wal_checkpoint;\n";
    let said = place.run(&format!(
        ".open {}\nPRAGMA locking_mode=exclusive; PRAGMA synchronous=off;\n{insert}{insert}{insert}.system kill -9 $PPID\n",
        place.uri("a.db")
    ));
    assert!(!said.status.success(), "{said:?}");
    assert_eq!(place.sql("a.db", "SELECT count(*) FROM t; PRAGMA integrity_check;"), "150\nok");
}

#[test]
fn a_rollback_of_what_no_journal_undoes_leaves_what_was_there() {
    let place = Place::new();
    place.sql(
        "a.db",
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50)
         INSERT INTO t SELECT i, zeroblob(3000) FROM n;",
    );
    let sql =
        "PRAGMA journal_mode=off; PRAGMA cache_size=2; BEGIN; UPDATE t SET b = zeroblob(2999); ROLLBACK;";
    place.sql("a.db", sql);
    assert_eq!(place.sql("a.db", "SELECT sum(length(b)) FROM t; PRAGMA integrity_check;"), "150000\nok");
}

#[test]
fn a_symbolic_link_to_a_database_is_refused() {
    let place = Place::new();
    place.sql("a.db", "CREATE TABLE t(a);");
    let fs = Fs::open(&place.image, &MountOptions::new().memory(64 << 20)).expect("closed");
    fs.symlink("/a.db", "/l.db").expect("room");
    fs.close().expect("it is whole");
    let said = place.run(&format!(".open {}\nSELECT count(*) FROM t;", place.uri("l.db")));
    assert!(said.err.contains("a symbolic link; name the database that it leads to"), "{said:?}");
}

#[test]
fn what_lies_beside_a_database_is_its_owner_s_and_no_more_to_others_than_it_is() {
    let place = Place::new();
    place.sql("a.db", "CREATE TABLE t(a INTEGER PRIMARY KEY, b);");
    let open = || Fs::open(&place.image, &MountOptions::new().memory(64 << 20)).expect("closed");
    let fs = open();
    fs.set_permissions("/a.db", std::fs::Permissions::from_mode(0o640)).expect("it is there");
    fs.open_with("/a.db", OpenOptions::new().write(true))
        .and_then(|db| db.set_owner(Some(1000), Some(1001)))
        .expect("root");
    fs.close().expect("it is whole");
    // A log and its index, and a journal that is a file, as a kill leaves them.
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
        INSERT INTO t(b) SELECT randomblob(3000) FROM n;";
    for (mode, names) in [("wal", &["/a.db-wal", "/a.db-shm"][..]), ("delete", &["/a.db-journal"][..])] {
        let mut shell = place.shell();
        shell.env("NARUFS_SQLITE_PIECES", "20");
        let sql =
            format!("PRAGMA journal_mode={mode}; PRAGMA cache_size=5; BEGIN; {rows} UPDATE t SET b = 1;");
        let said = said(shell, &format!(".open {}\n{sql}\n.system kill -9 $PPID\n", place.uri("a.db")));
        assert!(!said.status.success(), "{said:?}");
        let fs = open();
        for name in names {
            let there = fs.metadata(name).expect(name);
            let seen = (there.permissions().mode() & 0o777, there.uid(), there.gid());
            assert_eq!(seen, (0o640, 1000, 1001), "{name}");
        }
        fs.close().expect("it is whole");
    }
}

/// SQLite forgets a super-journal that no journal has named yet when the commit fails.
#[test]
fn a_super_journal_that_had_no_room_keeps_no_image_open() {
    let (full, place) = (Place::of_size("16M"), Place::new());
    full.sql("main.db", "CREATE TABLE t(a);");
    for name in ["a.db", "b.db"] {
        place.sql(name, ROWS);
    }
    let mut fill =
        format!(".bail off\n.open {}\nPRAGMA synchronous=off; CREATE TABLE f(b);", full.uri("filler.db"));
    for (bytes, times) in [(400_000, 40), (40_000, 20), (4000, 40)] {
        fill += &format!("INSERT INTO f VALUES(zeroblob({bytes}));\n").repeat(times);
    }
    assert!(full.run(&fill).err.contains("full"));
    let mut shell = Talk::with(&place, "NARUFS_SQLITE_PIECES=20");
    let (main, a, b) = (full.uri("main.db"), place.uri("a.db"), place.uri("b.db"));
    let said = shell.ask(&format!(
        ".bail off\n.open {main}\nATTACH '{a}' AS a; ATTACH '{b}' AS b; PRAGMA a.cache_size=5;
         BEGIN; UPDATE a.t SET b = 1 WHERE a < 200; UPDATE b.t SET b = 1 WHERE a = 1; COMMIT;\n.open :memory:"
    ));
    assert!(said.contains("full"), "{said}");
    assert_eq!(full.sql("main.db", "SELECT count(*) FROM t;"), "0");
    drop(shell);
    assert_eq!(place.sql("a.db", "SELECT sum(length(b)) FROM t; PRAGMA integrity_check;"), "4500000\nok");
    let fs = Fs::open(&full.image, &MountOptions::new().memory(64 << 20)).expect("closed");
    let mut names = fs.read_dir("/").expect("it is there").map(|entry| entry.expect("it is whole"));
    assert!(names.all(|entry| !entry.file_name().to_string_lossy().contains("-mj")), "nothing is left of it");
    drop(names);
    fs.close().expect("it is whole");
}

/// SQLite reads the name of a super-journal into a page's room before it looks at its checksum.
#[test]
fn a_journal_that_names_what_is_longer_than_a_page_does_no_harm() {
    let place = Place::new();
    place.sql("a.db", "PRAGMA page_size=512; CREATE TABLE t(a); INSERT INTO t VALUES(1);");
    let mut journal = vec![b'x'; 4000];
    journal.extend_from_slice(&4000_u32.to_be_bytes());
    journal.extend_from_slice(&[0; 4]);
    journal.extend_from_slice(&[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
    let fs = Fs::open(&place.image, &MountOptions::new().memory(64 << 20)).expect("closed");
    fs.write("/a.db-journal", &journal).expect("room");
    fs.close().expect("it is whole");
    assert_eq!(place.sql("a.db", "SELECT count(*) FROM t; PRAGMA integrity_check;"), "1\nok");
}

#[test]
fn a_name_that_leaves_no_room_for_that_of_a_super_journal_is_refused() {
    let place = Place::new();
    let longest = 500 - place.image.as_os_str().len() - "::/".len();
    let name = |len: usize| [&"d/".repeat(len / 2)[..], &"f".repeat(len % 2)].concat();
    let fs = Fs::open(&place.image, &MountOptions::new().memory(64 << 20)).expect("closed");
    fs.create_dir_all(format!("/{}", "d/".repeat(longest / 2))).expect("room");
    fs.close().expect("it is whole");
    let opens = |len: usize| {
        let name = format!("{}f", &name(len)[..len - 1]);
        place.run(&format!(".open {}\nCREATE TABLE IF NOT EXISTS t(a);", place.uri(&name)))
    };
    let refused = opens(longest + 1);
    assert!(refused.err.contains("full names of 500 bytes at the most"), "{refused:?}");
    let taken = opens(longest);
    assert!(taken.status.success(), "{taken:?}");
}
