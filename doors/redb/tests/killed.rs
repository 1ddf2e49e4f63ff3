//! SIGKILL in the midst of commits, and a drive that loses power: what was answered is there, whole, and nothing else is.
//!
//! NARUFS_REDB_KILLS says how often; 12 times by default. With feature `long` the power is lost too: NARUFS_DRIVE is the
//! program narufs-drive, and it takes root.

use narufs::{FormatOptions, Fs, MountOptions, Origin};
use narufs_redb::NarufsBackend;
use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");
const LAST: TableDefinition<u64, u64> = TableDefinition::new("last");

const IMAGE: &str = "NARUFS_REDB_CHILD_IMAGE";
const ROUND: &str = "NARUFS_REDB_CHILD_ROUND";

/// Transactions whose rows stay.
const KEPT: u64 = 20;

fn open(image: &Path, origin: Origin) -> Fs {
    Fs::open(image, &MountOptions::new().memory(64 << 20).origin(origin)).expect("nobody has it open")
}

fn database(fs: &Fs) -> Database {
    let backend = NarufsBackend::create(fs, "/a.redb").expect("room");
    Builder::new().set_cache_size(1 << 20).create_with_backend(backend).expect("it is whole")
}

fn last(db: &Database) -> u64 {
    let read = db.begin_read().expect("it is open");
    match read.open_table(LAST) {
        Err(TableError::TableDoesNotExist(_)) => 0,
        last => last.expect("a table").get(0).expect("it can be read").map_or(0, |n| n.value()),
    }
}

/// How long the value of a row is: some take many pages.
fn bytes(number: u64) -> usize {
    if number.is_multiple_of(7) { 100_000 } else { (number * 97 % 5000) as usize }
}

#[test]
fn commit_until_killed() {
    let Some(image) = std::env::var_os(IMAGE) else { return };
    let round: u64 = std::env::var(ROUND).expect("a round").parse().expect("a number");
    let fs = open(Path::new(&image), Origin::Unknown);
    let db = database(&fs);
    let mut out = std::io::stdout();
    writeln!(out, "\nbegun").expect("a pipe");
    for number in last(&db) + 1.. {
        let mut write = db.begin_write().expect("nobody else writes");
        write.set_two_phase_commit(round % 3 == 1);
        write.set_quick_repair(round % 3 == 2);
        let is_durable = round % 4 != 3 || number.is_multiple_of(3);
        if !is_durable {
            write.set_durability(Durability::None).expect("there is no savepoint");
        }
        {
            let mut rows = write.open_table(ROWS).expect("a table");
            rows.insert(number, &*vec![number as u8; bytes(number)]).expect("room");
            if let Some(old) = number.checked_sub(KEPT) {
                rows.remove(old).expect("a table");
            }
            write.open_table(LAST).expect("a table").insert(0, number).expect("room");
        }
        write.commit().expect("room");
        if is_durable {
            writeln!(out, "done {number}").and_then(|()| out.flush()).expect("a pipe");
        }
    }
}

/// A process that commits, and what it says.
struct Committing {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// The last that it has answered for.
    answered: u64,
}

impl Committing {
    fn start(image: &Path, round: u64, known: u64) -> Committing {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "commit_until_killed", "--nocapture"])
            .env(IMAGE, image)
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Committing { child, lines, answered: known }
    }

    /// Reads on until it has answered for so many, or ends.
    fn wait_for(&mut self, enough: u64) {
        for line in self.lines.by_ref().map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("done ") {
                self.answered = number.parse().expect("a number");
            }
            if self.answered >= enough {
                break;
            }
        }
    }

    /// All that it has said, when it has ended.
    fn last_words(mut self) -> u64 {
        self.wait_for(u64::MAX);
        self.child.wait().expect("it ends");
        self.answered
    }
}

/// Looks at what is left; the number of the last transaction.
fn judge(fs: &Fs, answered: u64, round: u64) -> u64 {
    let mut db = database(fs);
    assert!(db.check_integrity().expect("it can be read"), "round {round}");
    let now = last(&db);
    // Every third may be the next that is durable.
    assert!(now >= answered && now <= answered + 3, "round {round}: {now}, {answered} were answered");
    let read = db.begin_read().expect("it is open");
    let rows = read.open_table(ROWS).expect("a table");
    let mut numbers = Vec::new();
    for row in rows.iter().expect("it can be read") {
        let (key, value) = row.expect("it can be read");
        let number = key.value();
        assert_eq!(value.value(), vec![number as u8; bytes(number)], "round {round}");
        numbers.push(number);
    }
    let expected: Vec<u64> = (now.saturating_sub(KEPT - 1).max(1)..=now).collect();
    assert_eq!(numbers, expected, "round {round}");
    now
}

#[test]
fn what_was_answered_outlives_kills() {
    let kills = std::env::var("NARUFS_REDB_KILLS").map_or(12, |n| n.parse().expect("a number"));
    let place = tempfile::tempdir().expect("room");
    let image = place.path().join("image");
    Fs::format(&image, &FormatOptions::new().size(256 << 20)).expect("room");
    let mut known = 0;
    for round in 0..kills {
        let mut committing = Committing::start(&image, round, known);
        committing.wait_for(known + 1 + round * 31 % 60);
        committing.child.kill().expect("it is ours");
        let answered = committing.last_words();
        assert!(answered > known, "round {round} has done something");
        known = judge(&open(&image, Origin::Unknown), answered, round);
    }
    println!("{kills} kills");
}

/// A drive with a cache that a loss of power takes, as a file.
#[cfg(feature = "long")]
struct Drive {
    child: Child,
    dir: tempfile::TempDir,
}

#[cfg(feature = "long")]
impl Drive {
    fn mount(flushed: &Path, seed: u64) -> Drive {
        let program = std::env::var_os("NARUFS_DRIVE").expect("NARUFS_DRIVE is the program narufs-drive");
        let dir = tempfile::tempdir().expect("room");
        let mut command = Command::new(program);
        // Of every third nothing is left that was not flushed.
        command.arg(flushed).arg(dir.path()).args((!seed.is_multiple_of(3)).then(|| seed.to_string()));
        let mut drive = Drive { child: command.spawn().expect("it starts"), dir };
        while !drive.disk().exists() {
            assert!(drive.child.try_wait().expect("it is ours").is_none(), "the drive did not start");
            std::thread::yield_now();
        }
        drive
    }

    fn disk(&self) -> std::path::PathBuf {
        self.dir.path().join("disk")
    }

    /// When the next flush is asked for.
    fn lose_power(&self) {
        let asked = Command::new("kill").arg(self.child.id().to_string()).status();
        assert!(asked.expect("procps").success());
    }
}

#[cfg(feature = "long")]
impl Drop for Drive {
    fn drop(&mut self) {
        // After a failed assertion it still runs; else there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("umount").args(["-l".as_ref(), self.dir.path().as_os_str()]).status();
    }
}

#[test]
#[cfg(feature = "long")]
fn what_was_answered_outlives_losses_of_power() {
    let place = tempfile::tempdir().expect("room");
    let flushed = place.path().join("flushed");
    Fs::format(&flushed, &FormatOptions::new().size(64 << 20)).expect("room");
    let mut known = 0;
    for round in 0..40 {
        let mut drive = Drive::mount(&flushed, round);
        let mut committing = Committing::start(&drive.disk(), round, known);
        committing.wait_for(known + 1 + round * 31 % 60);
        drive.lose_power();
        drive.child.wait().expect("it ends");
        committing.child.kill().expect("it is ours");
        let answered = committing.last_words();
        assert!(answered > known, "round {round} has done something");
        drop(drive);
        let fs = open(&flushed, Origin::Copied);
        known = judge(&fs, answered, round);
        fs.close().expect("nothing is in use");
    }
}
