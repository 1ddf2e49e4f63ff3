//! A database in an image beside one that is a file of the system, in one transaction: neither is ever torn.

mod shell;

use narufs::{Fs, MountOptions};
use shell::{Place, Talk, said};
use std::os::unix::process::ExitStatusExt;

const SEEN: &str = "SELECT count(*), sum(length(b)), sum(a) FROM t; PRAGMA integrity_check;";

fn rows(n: usize) -> String {
    format!(
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n})
         INSERT INTO t SELECT i, zeroblob(3000) FROM n;"
    )
}

/// After how many calls it ends by itself, where it is told after how many it dies, and says whether it has.
fn lives_for(dies: impl Fn(usize) -> bool) -> usize {
    let (mut dead, mut alive) = (1_usize, 1_usize << 12);
    while alive - dead > 1 {
        let middle = dead.midpoint(alive);
        if dies(middle) { dead = middle } else { alive = middle }
    }
    alive
}

/// Without a name that outlives the image's memory its journal would be thrown away unplayed after a crash.
#[test]
fn what_an_image_begins_is_not_committed_together_with_a_file_of_the_system() {
    let place = Place::new();
    place.sql("a.db", &rows(3));
    assert!(place.outside(&rows(3)).status.success());
    for mode in ["delete", "truncate", "persist"] {
        for passed_through in [false, true] {
            let mut shell = place.shell();
            let (a, b) = if passed_through {
                shell.env("NARUFS_SQLITE_IMAGE", &place.image).env("NARUFS_SQLITE_AT", "/srv/data");
                ("/srv/data/a.db".to_owned(), place.beside().display().to_string())
            } else {
                (place.uri("a.db"), format!("file:{}?vfs=unix", place.beside().display()))
            };
            let both = "UPDATE main.t SET b = 1; UPDATE other.t SET b = 1;";
            let seen = "SELECT sum(length(b)) FROM main.t; SELECT sum(length(b)) FROM other.t;";
            let said = said(
                shell,
                &format!(
                    ".bail off\n.open {a}\nATTACH '{b}' AS other; PRAGMA other.journal_mode={mode};
                     BEGIN; {both} COMMIT;\n{seen}
                     BEGIN; UPDATE main.t SET b = b; COMMIT; BEGIN; UPDATE other.t SET b = b; COMMIT; SELECT 'each alone';"
                ),
            );
            assert!(said.out.ends_with("9000\n9000\neach alone\n"), "{mode}: {said:?}");
            assert!(said.err.contains("beside.db-journal: of a database elsewhere"), "{mode}: {said:?}");
        }
    }
    assert_eq!(place.sql("a.db", SEEN), "3|9000|6\nok");
    assert_eq!(place.outside(SEEN).out, "3|9000|6\nok\n");
}

/// A shell for which the image stands at the directory where it lies, or at the root.
fn stands(place: &Place, at_its_directory: bool) -> std::process::Command {
    let mut shell = place.shell();
    shell.env("NARUFS_SQLITE_IMAGE", &place.image);
    if at_its_directory {
        shell.env("NARUFS_SQLITE_AT", place.beside().parent().expect("it lies in a directory"));
    }
    shell
}

/// What lists the two has the same words for both with NARUFS_SQLITE_AT, and else two that mean the same.
#[test]
fn a_database_of_the_system_is_not_taken_for_one_of_the_image_that_has_its_path() {
    for at_its_directory in [true, false] {
        let place = Place::new();
        let beside = place.beside();
        let other = beside.with_file_name("b.db");
        if !at_its_directory {
            let fs = Fs::open(&place.image, &MountOptions::new().memory(64 << 20)).expect("closed");
            fs.create_dir_all(beside.parent().expect("it lies in a directory")).expect("room");
            fs.close().expect("it is whole");
        }
        assert!(place.outside(&rows(3)).status.success());
        let run = |sql: &str| said(stands(&place, at_its_directory), sql);
        let (inside, other) = (beside.display(), other.display());
        let made = run(&format!(".open {other}\n{0}\n.open {inside}\n{0}", rows(4)));
        assert!(made.status.success(), "{made:?}");
        let attach = format!("ATTACH 'file:{inside}?vfs=unix' AS src;");
        let both = "BEGIN; UPDATE main.t SET b = 1; UPDATE src.t SET b = 1; COMMIT;";
        let seen = "SELECT sum(length(b)) FROM main.t; SELECT sum(length(b)) FROM src.t;";
        for begun in [
            format!(".open {inside}\n{attach}"),
            // Another connection has the one of the image open.
            format!(".open {inside}\nSELECT 1 FROM t WHERE 0;\n.connection 1\n.open {other}\n{attach}"),
        ] {
            let said = run(&format!(".bail off\n{begun}\n{both}\n{seen}"));
            assert!(said.err.contains("beside.db-journal: of a database elsewhere"), "{begun}: {said:?}");
            assert_eq!(said.out, "12000\n9000\n", "{begun}: {said:?}");
        }
        // What merely lies there is in nobody's way, be it in use or no database.
        let mut in_use = Talk::outside(&beside);
        in_use.ask("PRAGMA cache_size=1; BEGIN; UPDATE t SET b = 2;");
        std::fs::write(format!("{other}"), "").expect("room");
        let said = run(&format!(
            ".open {inside}\nATTACH '{other}' AS src; BEGIN; UPDATE main.t SET b = 1; UPDATE src.t SET b = 1; COMMIT;\n{seen}"
        ));
        assert!(said.status.success() && said.out == "4\n4\n", "{said:?}");
        drop(in_use);
        assert_eq!(place.outside(SEEN).out, "3|9000|6\nok\n");
    }
}

/// Those have no journal that would name a file.
#[test]
fn memory_and_logs_elsewhere_do_not_keep_databases_of_an_image_from_being_committed_together() {
    let place = Place::new();
    for name in ["a.db", "b.db", "log.db"] {
        place.sql(name, &rows(3));
    }
    place.sql("log.db", "PRAGMA journal_mode=wal;");
    assert!(place.outside(&format!("PRAGMA journal_mode=wal; {}", rows(3))).status.success());
    let update = |name: &str| format!("UPDATE {name}.t SET b = 1;");
    place.sql(
        "a.db",
        &format!(
            "ATTACH '{}' AS b; ATTACH '{}' AS log; ATTACH ':memory:' AS memory; ATTACH 'file:m?mode=memory' AS named;
             ATTACH 'file:{}?vfs=unix' AS other; CREATE TABLE memory.t(b); CREATE TABLE named.t(b);
             BEGIN; INSERT INTO memory.t VALUES(1); INSERT INTO named.t VALUES(1); {} COMMIT;",
            place.uri("b.db"),
            place.uri("log.db"),
            place.beside().display(),
            ["main", "b", "log", "other"].map(update).concat(),
        ),
    );
    for name in ["a.db", "b.db", "log.db"] {
        assert_eq!(place.sql(name, SEEN), "3|3|6\nok", "{name}");
    }
    assert_eq!(place.outside(SEEN).out, "3|3|6\nok\n");
}

/// `BEGIN IMMEDIATE` lists the journals of all that are ATTACHed, written to or not.
#[test]
fn what_is_only_read_elsewhere_keeps_no_database_of_an_image_from_being_committed() {
    for mode in ["delete", "truncate", "persist", "memory"] {
        let place = Place::new();
        place.sql("a.db", &rows(3));
        place.sql("b.db", &rows(3));
        assert!(place.outside(&rows(3)).status.success());
        let mut shell = Talk::inside(&place, "a.db", "");
        let begun = shell.ask(&format!(
            "ATTACH '{}' AS b; ATTACH 'file:{}?vfs=unix' AS src; PRAGMA src.journal_mode={mode}; UPDATE src.t SET b = 'old';
             BEGIN IMMEDIATE; INSERT INTO main.t(b) SELECT b FROM src.t; COMMIT;",
            place.uri("b.db"),
            place.beside().display()
        ));
        assert_eq!(begun, mode);
        let said = shell.ask(
            "BEGIN IMMEDIATE; INSERT INTO main.t(b) SELECT b FROM src.t; UPDATE b.t SET b = 1; UPDATE src.t SET b = 1; COMMIT;",
        );
        // That mode alone has nothing that would name a file.
        let is_refused = mode != "memory";
        assert_eq!(said.contains("beside.db-journal: of a database elsewhere"), is_refused, "{mode}: {said}");
        drop(shell);
        let [a, b, src] =
            if is_refused { ["6|9009|21", "3|9000|6", "3|9|6"] } else { ["9|9018|45", "3|3|6", "3|3|6"] };
        for (name, seen) in [("a.db", a), ("b.db", b)] {
            assert_eq!(place.sql(name, SEEN), format!("{seen}\nok"), "{mode} {name}");
        }
        assert_eq!(place.outside(SEEN).out, format!("{src}\nok\n"), "{mode}");
    }
}

/// What looks into it is in the process that has the locks.
#[test]
fn what_is_only_read_elsewhere_stays_locked() {
    let place = Place::new();
    place.sql("a.db", &rows(3));
    assert!(place.outside(&rows(3)).status.success());
    let mut shell = Talk::inside(&place, "a.db", "");
    let said = shell.ask(&format!(
        "ATTACH 'file:{}?vfs=unix' AS src; PRAGMA src.locking_mode=exclusive; UPDATE src.t SET b = 'old';
         BEGIN IMMEDIATE; INSERT INTO main.t(b) SELECT b FROM src.t; COMMIT;",
        place.beside().display()
    ));
    assert_eq!(said, "exclusive");
    let refused = place.outside("UPDATE t SET b = 'new';");
    assert!(refused.err.contains("locked"), "{refused:?}");
    drop(shell);
    assert_eq!(place.outside(SEEN).out, "3|9|6\nok\n");
}

/// An automatic VACUUM has something to do in a commit that changes nothing else where a callback has kept it from an earlier one.
#[test]
fn what_the_commit_itself_changes_elsewhere_is_not_committed_together_with_an_image() {
    let place = Place::new();
    place.sql("a.db", &rows(3));
    let made = place.outside(&format!("PRAGMA auto_vacuum=incremental; {} CREATE TABLE u(a);", rows(16)));
    assert!(made.status.success(), "{made:?}");
    let insert = |wanted: &str| {
        let said = place.run(&format!(
            ".bail off\n.open {}\nATTACH 'file:{}?vfs=unix' AS src;
             BEGIN IMMEDIATE; INSERT INTO main.t(b) SELECT b FROM src.t WHERE a = 1; COMMIT;\nSELECT count(*) FROM main.t;",
            place.uri("a.db"),
            place.beside().display()
        ));
        assert!(said.out == wanted, "{said:?}");
        said.err
    };
    insert("4\n");
    assert!(place.outside("DELETE FROM t WHERE a > 3;").status.success());
    // As such a callback leaves it: where the header says `incremental`.
    let mut bytes = std::fs::read(place.beside()).expect("it is there");
    bytes[64..68].fill(0);
    std::fs::write(place.beside(), &bytes).expect("room");
    let said = insert("4\n");
    assert!(said.contains("beside.db-journal: of a database elsewhere"), "{said}");
    assert!(std::fs::read(place.beside()).expect("it is there") == bytes, "it was not changed");
}

/// The super-journal is a file in the image, and lists the journal that a file of the system with a log does not have.
#[test]
fn a_name_of_the_system_that_is_listed_beside_those_of_an_image_keeps_nobody_from_playing_them_back() {
    let made = Place::of_size("24M");
    for name in ["a.db", "b.db"] {
        made.sql(name, &rows(16));
    }
    assert!(made.outside(&format!("PRAGMA journal_mode=wal; {}", rows(16))).status.success());
    let run = |dies_at: usize| {
        let place = made.copied("image");
        std::fs::copy(made.beside(), place.beside()).expect("room");
        let mut shell = place.shell();
        shell.env("NARUFS_SQLITE_PIECES", "8").env("NARUFS_SQLITE_DIE_AT", dies_at.to_string());
        let attach = format!(
            "ATTACH '{}' AS b; ATTACH 'file:{}?vfs=unix' AS other;",
            place.uri("b.db"),
            place.beside().display()
        );
        let update = ["main", "b", "other"].map(|name| format!("UPDATE {name}.t SET b = zeroblob(2999);"));
        let sql = format!(".open {}\n{attach} BEGIN; {} COMMIT;", place.uri("a.db"), update.concat());
        let said = said(shell, &sql);
        let dead = said.status.signal().is_some();
        assert!(dead || said.status.success(), "{said:?}");
        (place, dead)
    };
    let alive = lives_for(|dies_at| run(dies_at).1);
    let mut played = 0;
    for dies_at in (alive.saturating_sub(60)..=alive).step_by(3) {
        let (place, _) = run(dies_at);
        let [a, b] = ["a.db", "b.db"].map(|name| place.run(&format!(".open {}\n{SEEN}", place.uri(name))));
        assert!(a.status.success() && b.status.success() && a.out == b.out, "cut at {dies_at}: {a:?} {b:?}");
        played += usize::from(a.err.contains("recovered"));
    }
    assert!(played > 0, "some have journals that are files");
}

/// SQLite asks for each journal that is listed before it takes the list away.
#[test]
fn a_commit_that_failed_beside_a_log_elsewhere_leaves_no_super_journal() {
    let place = Place::of_size("24M");
    for name in ["a.db", "b.db"] {
        place.sql(name, &rows(16));
    }
    assert!(place.outside(&format!("PRAGMA journal_mode=wal; {}", rows(16))).status.success());
    let mut shell = place.shell();
    shell.env("NARUFS_SQLITE_FAIL_SYNC", "1").env("NARUFS_SQLITE_PIECES", "8");
    let update = ["main", "b", "other"].map(|name| format!("UPDATE {name}.t SET b = zeroblob(2999);"));
    let said = said(
        shell,
        &format!(
            ".bail off\n.open {}\nATTACH '{}' AS b; ATTACH 'file:{}?vfs=unix' AS other;
             BEGIN; {} COMMIT;\nSELECT sum(length(b)) FROM main.t;",
            place.uri("a.db"),
            place.uri("b.db"),
            place.beside().display(),
            update.concat()
        ),
    );
    assert!(said.err.contains("disk I/O error") && said.out == "48000\n", "{said:?}");
    let fs = Fs::open(&place.image, &MountOptions::new().memory(64 << 20)).expect("closed");
    let names = fs.read_dir("/").expect("it is there").map(|entry| entry.expect("it is whole"));
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left: Vec<_> = names.filter(|name| name.contains("-mj")).collect();
    assert!(left.is_empty(), "{left:?}: {said:?}");
    fs.close().expect("it is whole");
    // What has a log was committed before, by itself.
    assert_eq!(place.outside(SEEN).out, "16|47984|136\nok\n");
    for name in ["a.db", "b.db"] {
        assert_eq!(place.sql(name, SEEN), "16|48000|136\nok", "{name}");
    }
}

/// The super-journal is a file of the system, whose VFS has the main database, and takes it away when that is opened.
#[test]
fn what_a_file_of_the_system_begins_leaves_each_database_whole_whichever_is_opened_first() {
    const BOTH: &str = "PRAGMA cache_size=4; PRAGMA other.cache_size=4;
        BEGIN; UPDATE main.t SET b = zeroblob(2999); UPDATE other.t SET b = zeroblob(2999); COMMIT;";
    let made = Place::of_size("24M");
    made.sql("b.db", &rows(16));
    assert!(made.outside(&rows(16)).status.success());
    let run = |dies_at: usize| {
        let place = made.copied("image");
        std::fs::copy(made.beside(), place.beside()).expect("room");
        let mut shell = place.shell();
        shell.env("NARUFS_SQLITE_PIECES", "8").env("NARUFS_SQLITE_DIE_AT", dies_at.to_string());
        let (a, b) = (place.beside(), place.uri("b.db"));
        let said = said(shell, &format!(".open {}\nATTACH '{b}' AS other;\n{BOTH}", a.display()));
        let dead = said.status.signal().is_some();
        assert!(dead || said.status.success(), "{said:?}");
        (place, dead)
    };
    let alive = lives_for(|dies_at| run(dies_at).1);
    let has_journal = |place: &Place| {
        let fs = Fs::open(&place.image, &MountOptions::new().memory(64 << 20)).expect("closed");
        let has = fs.metadata("/b.db-journal").is_ok();
        fs.close().expect("it is whole");
        has
    };
    let whole = |seen: &str| ["16|48000|136\nok\n", "16|47984|136\nok\n"].contains(&seen);
    let mut played = 0;
    for dies_at in alive.saturating_sub(30)..=alive {
        for a_first in [true, false] {
            let (place, dead) = run(dies_at);
            let before = a_first.then(|| place.outside(SEEN));
            let is_hot = has_journal(&place);
            let b = place.run(&format!(".open {}\n{SEEN}", place.uri("b.db")));
            let a = before.unwrap_or_else(|| place.outside(SEEN));
            assert!(whole(&a.out) && whole(&b.out), "cut at {dies_at}: {a:?} {b:?}");
            // Pages may have gone home, or not: they are undone by what there is.
            assert_eq!(b.err.contains("recovered"), is_hot, "cut at {dies_at}: {b:?}");
            played += usize::from(is_hot);
            assert!(dead || a.out == b.out && a.out.starts_with("16|47984"), "{a:?} {b:?}");
        }
    }
    assert!(played > 0, "some have a journal that is a file");
}

/// What has no room at the end of its transaction is rolled back by a journal that is a file already.
#[test]
fn what_a_file_of_the_system_begins_and_has_no_room_is_rolled_back() {
    for last in [400_000, 100_000, 40_000] {
        let place = Place::of_size("32M");
        place.sql("b.db", &rows(1000));
        assert!(place.outside(&rows(16)).status.success());
        let mut shell = Talk::with(&place, "NARUFS_SQLITE_PIECES=200");
        shell.ask(&format!(
            ".bail off\n.open {}\nATTACH '{}' AS other; PRAGMA other.cache_size=5;
             BEGIN; UPDATE main.t SET b = 1; UPDATE other.t SET b = zeroblob(2999) WHERE a < 400;
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150)
             INSERT INTO other.t(b) SELECT zeroblob(3000) FROM n;",
            place.beside().display(),
            place.uri("b.db")
        ));
        let mut fill = format!(
            ".connection 1\n.open {}\nPRAGMA synchronous=off; CREATE TABLE f(b);\n",
            place.uri("filler.db")
        );
        for bytes in [400_000, 100_000, 40_000].into_iter().filter(|bytes| *bytes >= last) {
            fill += &format!("INSERT INTO f VALUES(zeroblob({bytes}));\n").repeat(80);
        }
        let filled = shell.ask(&fill);
        assert!(filled.contains("full"), "{filled}");
        let said = shell.ask(".connection 0\nCOMMIT;");
        assert!(said.contains("full"), "{last}: {said}");
        drop(shell);
        assert_eq!(place.outside(SEEN).out, "16|48000|136\nok\n", "{last}");
        assert_eq!(place.sql("b.db", SEEN), "1000|3000000|500500\nok", "{last}");
    }
}

/// Without syncs nothing of it would be written before its end, when nobody looks at what fails.
#[test]
fn what_a_file_of_the_system_begins_and_nobody_syncs_is_refused_where_it_has_no_room() {
    let place = Place::of_size("32M");
    for name in ["b.db", "c.db"] {
        place.sql(name, &rows(16));
    }
    assert!(place.outside(&rows(16)).status.success());
    let mut shell = Talk::with(&place, "NARUFS_SQLITE_PIECES=200");
    shell.ask(&format!(
        ".bail off\n.open {}\nATTACH '{}' AS b; ATTACH '{}' AS c; PRAGMA c.synchronous=off;
         BEGIN; UPDATE main.t SET b = 1; UPDATE b.t SET b = zeroblob(2999); INSERT INTO c.t(b) VALUES(zeroblob(400000));",
        place.beside().display(),
        place.uri("b.db"),
        place.uri("c.db")
    ));
    let mut fill = format!(
        ".connection 1\n.open {}\nPRAGMA synchronous=off; CREATE TABLE f(b);\n",
        place.uri("filler.db")
    );
    fill += &"INSERT INTO f VALUES(zeroblob(400000));\n".repeat(80);
    let filled = shell.ask(&fill);
    assert!(filled.contains("full"), "{filled}");
    let said = shell.ask(".connection 0\nCOMMIT;");
    assert!(said.contains("full"), "{said}");
    let seen = shell
        .ask("SELECT sum(length(b)) FROM main.t; SELECT sum(length(b)) FROM b.t; SELECT count(*) FROM c.t;");
    assert_eq!(seen, "48000\n48000\n16");
    // With less there is room for all, and all are told to be there.
    let said = shell.ask(
        "BEGIN; UPDATE main.t SET b = 1; UPDATE b.t SET b = zeroblob(2999); UPDATE c.t SET b = zeroblob(2999); COMMIT;",
    );
    assert_eq!(said, "");
    drop(shell);
    assert_eq!(place.outside(SEEN).out, "16|16|136\nok\n");
    for name in ["b.db", "c.db"] {
        assert_eq!(place.sql(name, SEEN), "16|47984|136\nok", "{name}");
    }
}
