//! The image at a directory, served by the process that uses it: stock sqlite3 there and the VFS here are in each other's
//! way as two processes on one file system are, and see what the other has committed.

mod shell;

use shell::{Place, Talk};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const ROWS: &str = "CREATE TABLE t(a INTEGER PRIMARY KEY, b);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
    INSERT INTO t SELECT i, randomblob(500) FROM n;";

/// An image, and the directory where it is to be seen.
struct Both {
    place: Place,
    point: PathBuf,
    _dir: tempfile::TempDir,
}

impl Both {
    fn new() -> Both {
        assert!(Path::new("/dev/fuse").exists(), "missing: /dev/fuse, to mount");
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
        let point = dir.path().join("mnt");
        std::fs::create_dir(&point).expect("room");
        Both { place: Place::of_size("256M"), point, _dir: dir }
    }

    /// Who serves.
    fn inside(&self) -> Talk {
        Talk::inside(&self.place, "a.db", &format!("&serve={}", self.point.display()))
    }

    fn outside(&self) -> Talk {
        Talk::outside(&self.point.join("a.db"))
    }

    fn is_mounted(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/mounts").expect("the list");
        mounts.lines().any(|line| line.split(' ').nth(1) == self.point.to_str())
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        // What was killed has left it.
        if self.is_mounted() {
            let _ = std::process::Command::new("umount").arg("-l").arg(&self.point).status();
        }
    }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn each_waits_for_the_other_and_sees_its_commits() {
    let both = Both::new();
    let mut inside = both.inside();
    assert_eq!(inside.ask(ROWS), "");
    let mut outside = both.outside();
    let locked = |said: String| assert!(said.contains("database is locked"), "{said}");
    for mode in ["delete", "truncate", "persist"] {
        assert_eq!(inside.ask(&format!("PRAGMA journal_mode={mode};")), mode);
        // Who reads there keeps a commit here from its end, and its transaction reads what was.
        assert_eq!(inside.ask("UPDATE t SET b = zeroblob(500);"), "");
        assert_eq!(outside.ask("BEGIN; SELECT sum(length(b)) FROM t;"), "100000");
        locked(inside.ask("UPDATE t SET b = 1 WHERE a <= 100;"));
        assert_eq!(outside.ask("SELECT sum(length(b)) FROM t; COMMIT;"), "100000");
        assert_eq!(inside.ask("UPDATE t SET b = 1 WHERE a <= 100;"), "");
        assert_eq!(outside.ask("SELECT sum(length(b)) FROM t; PRAGMA integrity_check;"), "50100\nok");
        // The other way round.
        assert_eq!(inside.ask("BEGIN; SELECT sum(length(b)) FROM t;"), "50100");
        locked(outside.ask("UPDATE t SET b = 1;"));
        assert_eq!(inside.ask("SELECT sum(length(b)) FROM t; COMMIT;"), "50100");
        assert_eq!(outside.ask("UPDATE t SET b = 1;"), "");
        assert_eq!(inside.ask("SELECT sum(length(b)) FROM t; PRAGMA integrity_check;"), "200\nok");
        // One writer at a time.
        assert_eq!(outside.ask("BEGIN IMMEDIATE;"), "");
        locked(inside.ask("BEGIN IMMEDIATE;"));
        assert_eq!(outside.ask("ROLLBACK;"), "");
        assert_eq!(inside.ask("BEGIN IMMEDIATE; UPDATE t SET b = 2;"), "");
        locked(outside.ask("BEGIN IMMEDIATE;"));
        assert_eq!(inside.ask("ROLLBACK;"), "");
        assert_eq!(outside.ask("SELECT sum(b) FROM t;"), "200");
    }
    // What grows and shrinks here is as long there.
    assert_eq!(inside.ask("INSERT INTO t SELECT a + 200, zeroblob(20000) FROM t;"), "");
    assert_eq!(outside.ask("SELECT count(*), sum(length(b)) FROM t;"), "400|4000200");
    assert_eq!(inside.ask("DELETE FROM t WHERE a > 200; VACUUM;"), "");
    assert_eq!(outside.ask("SELECT count(*) FROM t; PRAGMA integrity_check;"), "200\nok");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn many_transactions_of_both_at_once_are_all_there() {
    const EACH: usize = 150;
    let both = Both::new();
    let mut inside = both.inside();
    inside.ask(ROWS);
    inside.ask("CREATE TABLE total(n); INSERT INTO total VALUES(0); CREATE TABLE by(who, n, b);");
    let script = |who: &str, mode: &str| {
        let mut sql = format!(".timeout 600000\nPRAGMA cache_size=8; PRAGMA journal_mode={mode};\n");
        for n in 0..EACH {
            // Every third spills before it is committed, and every seventh is not.
            let spills = if n % 3 == 0 { "UPDATE t SET b = randomblob(500);" } else { "" };
            let end = if n % 7 == 6 { "ROLLBACK" } else { "COMMIT" };
            sql += &format!(
                "BEGIN IMMEDIATE; UPDATE total SET n = n + 1; {spills} INSERT INTO by SELECT '{who}', n, \
                 randomblob({}) FROM total; {end};\n",
                n * 97 % 9000
            );
        }
        sql
    };
    let mut done = 0;
    for mode in ["delete", "truncate", "persist"] {
        let mut outside = both.outside();
        outside.tell(&script("outside", mode));
        inside.tell(&script("inside", mode));
        assert_eq!((inside.answer().as_str(), outside.answer().as_str()), (mode, mode));
        let each = EACH - EACH / 7;
        done += 2 * each;
        for side in [&mut inside, &mut outside] {
            let found = side.ask(
                "SELECT n, (SELECT count(DISTINCT n) FROM by), (SELECT count(*) FROM by), (SELECT max(n) FROM by)
                 FROM total; SELECT DISTINCT length(b) FROM t; PRAGMA integrity_check;",
            );
            assert_eq!(found, format!("{done}|{done}|{done}|{done}\n500\nok"), "{mode}");
        }
    }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_writer_of_the_mount_that_is_killed_is_undone_by_who_comes_next() {
    let both = Both::new();
    let mut inside = both.inside();
    inside.ask(ROWS);
    let mut outside = both.outside();
    assert_eq!(outside.ask("PRAGMA cache_size=2; BEGIN; UPDATE t SET b = zeroblob(2000);"), "");
    assert!(inside.ask("SELECT count(*) FROM t;").contains("locked"), "its cache has spilled");
    outside.kill();
    let found = inside.ask(".timeout 600000\nSELECT sum(length(b)) FROM t; PRAGMA integrity_check;");
    assert!(found.contains("recovered ") && found.ends_with("\n100000\nok"), "{found}");
    assert!(!both.point.join("a.db-journal").exists());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_log_is_one_side_s_at_a_time_and_the_other_is_told() {
    let both = Both::new();
    let mut inside = both.inside();
    inside.ask(ROWS);
    assert_eq!(inside.ask("PRAGMA journal_mode=wal; UPDATE t SET b = 1;"), "wal");
    let mut outside = both.outside();
    // Which takes SQLite ten seconds to be sure of.
    let said = outside.ask("SELECT count(*) FROM t;");
    assert!(said.contains("locking protocol"), "{said}");
    // A connection that knows of the log keeps it, as everywhere.
    assert!(inside.ask("PRAGMA journal_mode=delete;").contains("locked"));
    outside.end("");
    assert_eq!(inside.ask("PRAGMA journal_mode=delete;"), "delete");
    let mut outside = both.outside();
    assert_eq!(outside.ask("SELECT sum(b) FROM t; PRAGMA journal_mode=wal;"), "200\nwal");
    assert_eq!(outside.ask("UPDATE t SET b = 2;"), "");
    let said = inside.ask("SELECT sum(b) FROM t;");
    let why = "another process uses this database in WAL mode through a mount";
    assert!(said.contains(why) && said.contains("database is locked"), "{said}");
    outside.end("");
    let found = inside.ask("SELECT sum(b) FROM t; PRAGMA integrity_check;");
    assert!(found.ends_with("400\nok"), "{found}");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn the_mount_ends_with_the_last_connection_and_at_the_end_of_the_process() {
    let both = Both::new();
    let mut inside = both.inside();
    inside.ask(ROWS);
    assert!(both.is_mounted() && both.point.join("a.db").exists());
    inside.ask(".open :memory:");
    assert!(!both.is_mounted());
    // With a connection that nobody closes.
    inside.ask(&format!(".open {}&serve={}", both.place.uri("a.db"), both.point.display()));
    assert!(both.is_mounted());
    inside.end(".exit 3");
    assert!(!both.is_mounted());
    // What a process leaves that is killed gives way to the next.
    let mut inside = both.inside();
    assert_eq!(inside.ask("SELECT count(*) FROM t;"), "200");
    inside.kill();
    assert!(both.is_mounted() && std::fs::read_dir(&both.point).is_err());
    let mut inside = both.inside();
    assert_eq!(inside.ask("SELECT count(*) FROM t;"), "200");
    assert!(both.point.join("a.db").exists());
    inside.end("");
    assert!(!both.is_mounted());
}

/// The process that would cut a directory off if its server were killed.
fn guard_of(point: &Path) -> String {
    let device = std::fs::metadata(point).expect("it is served").dev();
    let abort = format!("/{}/abort", libc::minor(device));
    let is_it = |process: &PathBuf| {
        let words = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let file = std::fs::read_link(process.join("fd/1")).unwrap_or_default();
        words.ends_with(b"narufs-guard\0") && file.to_string_lossy().ends_with(&abort)
    };
    let mut processes =
        std::fs::read_dir("/proc").expect("they are listed").map(|entry| entry.expect("read").path());
    let found = processes.find(is_it).expect("one stands by");
    found.file_name().expect("a number").to_string_lossy().into_owned()
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_guard_that_is_killed_takes_nobody_with_it() {
    let both = Both::new();
    let mut inside = both.inside();
    inside.ask(ROWS);
    let kill = ["-9", &guard_of(&both.point)];
    assert!(std::process::Command::new("kill").args(kill).status().expect("it is installed").success());
    assert_eq!(inside.ask("UPDATE t SET b = 1; SELECT count(*) FROM t;"), "200");
    // What it is told at the end is told to nobody.
    assert_eq!(inside.end("").code(), Some(0));
    assert!(!both.is_mounted());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn what_was_written_there_until_the_process_ends_is_in_the_image() {
    let both = Both::new();
    for _ in 0..10 {
        let inside = both.inside();
        let file = File::create(both.point.join("log")).expect("room");
        let write = move |n: u64| file.write_all_at(&n.to_ne_bytes(), 0).is_ok();
        assert!(write(1));
        let writer = std::thread::spawn(move || (2..).find(|n| !write(*n)).expect("it is cut off"));
        // With a connection that nobody closes.
        inside.end(".exit 3");
        let failed = writer.join().expect("it ends");
        let _inside = both.inside();
        let found = std::fs::read(both.point.join("log")).expect("it was made");
        let found = u64::from_ne_bytes(found.try_into().expect("eight bytes"));
        // The last may have been written and not answered.
        assert!(found == failed || found == failed - 1, "{found} of {failed}");
    }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_directory_that_cannot_be_served_is_named() {
    let place = Place::new();
    let said = place.run(&format!(".open {}&serve=/nowhere/mnt\nSELECT 1;", place.uri("a.db")));
    assert!(said.err.contains("serve /nowhere/mnt: "), "{said:?}");
}
