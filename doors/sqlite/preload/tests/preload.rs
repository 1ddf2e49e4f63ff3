//! Programs that know nothing of narufs, with the preload.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn preload() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let built = test.with_file_name("libnarufs_sqlite_preload.so");
    assert!(built.exists(), "{} is not built", built.display());
    built
}

fn command(image: &Path, program: &[&str]) -> Command {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).env("LD_PRELOAD", preload()).env("NARUFS_SQLITE_IMAGE", image);
    command.env("NARUFS_SQLITE_SIZE", "32M").env("NARUFS_SQLITE_MEMORY", "64M");
    command
}

fn run(image: &Path, at: Option<&Path>, program: &[&str]) -> Output {
    let mut command = command(image, program);
    if let Some(at) = at {
        command.env("NARUFS_SQLITE_AT", at);
    }
    command.output().expect("it is installed")
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

#[test]
fn a_stock_shell_and_a_program_of_python_find_their_databases_in_the_image() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    let image = dir.path().join("image");
    let made = run(
        &image,
        None,
        &["sqlite3", "/a.db", "CREATE TABLE t(a); INSERT INTO t VALUES(1); PRAGMA journal_mode;"],
    );
    assert_eq!(said(&made), "delete");
    let python = "import sqlite3; c = sqlite3.connect('/a.db'); c.execute('insert into t values(2)'); c.commit(); \
                  print(c.execute('select sum(a) from t').fetchone()[0])";
    assert_eq!(said(&run(&image, None, &["python3", "-c", python])), "3");
    assert!(!Path::new("/a.db").exists(), "nothing lies outside of the image");
}

#[test]
fn a_program_that_shuts_sqlite_down_finds_its_databases_in_the_image_again() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    let (image, db) = (dir.path().join("image"), dir.path().join("a.db"));
    // Functions of whatever stands in front of the library; one that is asked of the library itself is its own.
    let python = "import ctypes, os, sys
ctypes.CDLL('libsqlite3.so.0', mode=ctypes.RTLD_GLOBAL)
sqlite = ctypes.CDLL(None)
sqlite.sqlite3_vfs_find.restype = ctypes.c_void_p
name = sys.argv[1].encode()
TOLD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.c_void_p)
def run(sql, name=name):
    db, seen = ctypes.c_void_p(), []
    assert sqlite.sqlite3_open(name, ctypes.byref(db)) == 0
    told = TOLD(lambda _, n, values, names: seen.append(values[0].decode()) or 0)
    assert sqlite.sqlite3_exec(db, sql, told, None, None) == 0, sql
    assert sqlite.sqlite3_close(db) == 0
    return seen
run(b'create table t(a)')
for _ in range(2):
    assert sqlite.sqlite3_shutdown() == 0
    print(*run(b'select count(*) from t'), os.path.exists(name))
# One that the program has chosen stays.
other = ctypes.c_void_p(sqlite.sqlite3_vfs_find(b'unix-dotfile'))
assert sqlite.sqlite3_vfs_register(other, 1) == 0
run(b'select 1', b':memory:')
print(sqlite.sqlite3_vfs_find(None) == other.value)";
    let program = run(&image, Some(dir.path()), &["python3", "-c", python, &db.to_string_lossy()]);
    assert_eq!(said(&program), "0 False\n0 False\nTrue");
}

#[test]
fn what_does_not_lie_where_the_image_stands_is_the_system_s() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    let (image, at) = (dir.path().join("image"), dir.path().join("at"));
    let (inside, outside) = (at.join("a.db"), dir.path().join("b.db"));
    let sql = format!("CREATE TABLE t(a); ATTACH '{}' AS b; CREATE TABLE b.t(a);", outside.display());
    said(&run(&image, Some(&at), &["sqlite3", &inside.to_string_lossy(), &sql]));
    assert!(outside.exists() && !inside.exists());
    let sql = "SELECT count(*) FROM t;";
    assert_eq!(said(&run(&image, Some(&at), &["sqlite3", &inside.to_string_lossy(), sql])), "0");
    let named = run(&image, None, &["sqlite3", "/a.db", sql]);
    assert_eq!(said(&named), "0", "the directory stands for the root of the image");
}

#[test]
fn a_path_of_the_system_that_is_longer_than_sqlite_takes_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    let (image, at) = (dir.path().join("image"), dir.path().join("at"));
    let mut long = dir.path().to_owned();
    for _ in 0..3 {
        long.push("d".repeat(200));
    }
    std::fs::create_dir_all(&long).expect("room");
    let long = long.join("a.db");
    let made = run(&image, Some(&at), &["sqlite3", &long.to_string_lossy(), "CREATE TABLE t(a);"]);
    assert!(String::from_utf8_lossy(&made.stderr).contains("unable to open"), "{made:?}");
    assert!(!long.exists());
}

#[test]
fn a_database_of_the_system_opens_by_a_symbolic_link() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    let (image, at) = (dir.path().join("image"), dir.path().join("at"));
    let (real, link, inward) =
        (dir.path().join("real.db"), dir.path().join("link.db"), dir.path().join("inward.db"));
    std::os::unix::fs::symlink(&real, &link).expect("room");
    std::os::unix::fs::symlink(at.join("a.db"), &inward).expect("room");
    said(&run(&image, Some(&at), &["sqlite3", &link.to_string_lossy(), "CREATE TABLE t(a);"]));
    assert!(real.exists());
    said(&run(&image, Some(&at), &["sqlite3", &inward.to_string_lossy(), "CREATE TABLE u(a);"]));
    let there = said(&run(&image, None, &["sqlite3", "/a.db", ".tables"]));
    assert_eq!(there, "u", "a link to where the image stands leads into it");
}

#[test]
fn what_still_reads_goes_on_beside_a_rollback() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    let image = dir.path().join("image");
    let python = "import sqlite3
c = sqlite3.connect('/a.db', isolation_level=None)
c.execute('create table t(a integer primary key, b)')
c.executemany('insert into t values(?, 1)', [(n,) for n in range(100)])
c.execute('create table u(a)')
for mode in 'delete', 'truncate', 'persist', 'memory':
    c.execute('pragma journal_mode=' + mode)
    c.execute('begin')
    rows = c.execute('select a from t')
    rows.fetchone()
    c.execute('insert into u values(1)')
    c.execute('rollback')
    assert len(rows.fetchall()) == 99, mode
print(c.execute('select count(*) from u').fetchone()[0])";
    assert_eq!(said(&run(&image, None, &["python3", "-c", python])), "0");
}

/// The journal of a connection that keeps it open has its name again with each transaction, whoever had it in between.
#[test]
fn two_databases_whose_commit_has_no_room_are_rolled_back_after_another_connection_had_their_journals() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    let image = dir.path().join("image");
    let python = "import sqlite3
def opened(name):
    c = sqlite3.connect(name, isolation_level=None, timeout=0)
    c.execute('create table t(a integer primary key, b)')
    c.execute('insert into t(b) values(1), (1), (1)')
    return c
def told(why, c, sql, *values):
    try:
        c.execute(sql, values)
    except sqlite3.OperationalError as e:
        assert why in str(e), e
        return True
filler, one, two = [opened(name) for name in ('/filler.db', '/a.db', '/b.db')]
filler.execute('pragma synchronous=off')
for size in 400000, 40000:
    while not told('full', filler, 'insert into t(b) values(zeroblob(?))', size):
        pass
one.execute('attach ? as other', ('/b.db',))
one.execute('pragma main.journal_mode=persist')
one.execute('pragma other.journal_mode=persist')
# Its lock has the journal stay open behind the commit.
rows = one.execute('select a from other.t')
rows.fetchone()
one.executescript('begin; update main.t set b = 2; update other.t set b = 2; commit')
two.execute('begin')
two.execute('update t set b = 3')
assert told('locked', two, 'commit')
two.execute('rollback')
one.execute('begin')
one.execute('update other.t set b = 4')
one.execute('insert into main.t(b) values(zeroblob(2000000))')
assert told('full', one, 'commit')
del rows
print(one.execute('select (select sum(b) from main.t), (select sum(b) from other.t)').fetchone())";
    assert_eq!(said(&run(&image, None, &["python3", "-c", python])), "(6, 6)");
    let sql = "PRAGMA integrity_check; SELECT sum(b) FROM t;";
    for name in ["/a.db", "/b.db"] {
        assert_eq!(said(&run(&image, None, &["sqlite3", name, sql])), "ok\n6");
    }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn others_look_in_while_a_program_uses_it_and_a_child_that_outlives_it_keeps_nobody_waiting() {
    assert!(Path::new("/dev/fuse").exists(), "missing: /dev/fuse, to mount");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    let (image, point) = (dir.path().join("image"), dir.path().join("mnt"));
    std::fs::create_dir(&point).expect("room");
    let python = "import os, signal, sqlite3, sys
c = sqlite3.connect('/a.db')
c.execute('create table t(a)')
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
os.write(1, b'!')
signal.pause()";
    let mut program = command(&image, &["python3", "-c", python]);
    program.env("NARUFS_SQLITE_SERVE", &point).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.spawn().expect("python3 is installed");
    program.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("it says that it is there");
    let there = Command::new("sqlite3").arg(point.join("a.db")).arg("SELECT count(*) FROM t;").output();
    let there = there.expect("sqlite3 is installed");
    // The child goes on until it is closed.
    let stdin = program.stdin.take().expect("piped");
    program.kill().expect("it is ours");
    program.wait().expect("it ends");
    let after = std::fs::read_dir(&point).map(drop).map_err(|e| e.raw_os_error());
    drop(stdin);
    let unmounted = Command::new("umount").arg("-l").arg(&point).status().expect("umount is installed");
    // Who opens it next recovers it, and leaves nothing in memory.
    let next = run(&image, None, &["sqlite3", "/a.db", "SELECT count(*) FROM t;"]);
    assert_eq!((said(&there).as_str(), after), ("0", Err(Some(libc::ENOTCONN))));
    assert!(unmounted.success());
    assert_eq!(said(&next), "0");
}
