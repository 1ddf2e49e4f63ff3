//! Everyday work at a tiny scale: every step has its record and is compared, what is wrong is found and said, and
//! nothing is left behind.

mod support;

use narufs_bench::daily::{Caches, STEPS};
use narufs_bench::meter::Counters;
use narufs_bench::progress::Progress;
use narufs_bench::stop::Stop;
use narufs_bench::target::{Description, Directory, Reopened, Space, Target};
use narufs_bench::{Error, Params, Record, Result};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use support::*;

/// A directory that can say that it was mounted anew, and on which something is done behind everybody's back.
struct Tampered {
    inner: Directory,
    remounts: u32,
    syncs: Cell<u32>,
    tamper: fn(u32, &Path),
}

impl Tampered {
    fn new(inner: Directory, tamper: fn(u32, &Path)) -> Tampered {
        Tampered { inner, remounts: 0, syncs: Cell::new(0), tamper }
    }
}

impl Target for Tampered {
    type Session = <Directory as Target>::Session;

    fn describe(&self) -> Description {
        self.inner.describe()
    }
    fn enter(&mut self, name: &str) -> Result<()> {
        self.inner.enter(name)
    }
    fn leave(&mut self) -> Result<()> {
        self.inner.leave()
    }
    fn session(&self) -> Result<Self::Session> {
        self.inner.session()
    }
    fn sync_all(&self) -> Result<()> {
        self.syncs.set(self.syncs.get() + 1);
        if let Some(dir) = self.inner.directory() {
            (self.tamper)(self.syncs.get(), &dir);
        }
        self.inner.sync_all()
    }
    fn space(&self) -> Result<Space> {
        self.inner.space()
    }
    fn counters(&self) -> Result<Counters> {
        self.inner.counters()
    }
    fn directory(&self) -> Option<PathBuf> {
        self.inner.directory()
    }
    fn reopen(&mut self) -> Result<Reopened> {
        self.remounts += 1;
        Ok(Reopened::Remounted)
    }
}

fn params(steps: &[&str]) -> Params {
    Params { scale: 0.004, steps: steps.iter().map(|step| (*step).to_owned()).collect(), ..Params::default() }
}

/// What came of it, and the records that were given before a failure.
fn daily<T: Target>(target: &mut T, steps: &[&str]) -> (Result<()>, Vec<Record>) {
    let mut records = Vec::new();
    let plan = plan("daily", 1, params(steps));
    let done = narufs_bench::run(target, &plan, &Stop::default(), &Progress::none(), |r| records.push(r));
    (done, records)
}

fn names(records: &[Record]) -> Vec<&str> {
    records.iter().filter_map(|r| r.phase.as_deref()).collect()
}

/// The programs of the steps that are not installed.
fn missing() -> Vec<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    STEPS.iter().flat_map(|step| step.programs.iter().copied()).filter(|program| !is_there(program)).collect()
}

#[test]
#[ignore = "needs the programs of everyday work: tar, find, grep, git, rsync, make, a C compiler, sqlite3"]
fn every_step_is_done_compared_and_cleaned_up() {
    assert_eq!(missing(), [""; 0], "these programs are missing");
    let at = memory();
    let (done, records) = daily(&mut directory(&at), &[]);
    done.expect("nothing is wrong");
    let warm: Vec<&str> =
        STEPS.iter().map(|step| step.name).filter(|name| !name.ends_with("-cold")).collect();
    assert_eq!(names(&records), warm, "memory cannot be cold");
    for record in &records {
        assert!(record.seconds > 0.0 && record.then_sync_s.is_some_and(|s| s >= 0.0), "{record:?}");
        assert_eq!((record.threads, record.pinned, record.caches), (1, false, Some(Caches::Warm)));
    }
    let synced = records.iter().find(|r| r.phase.as_deref() == Some("fsyncs")).expect("it takes no program");
    assert_eq!((synced.ops, synced.done), (10, true));
    let check = records.last().and_then(|last| last.check).expect("all that is left was compared");
    assert_eq!(check.reopened, Reopened::Synced);
    assert!(check.files > 30 && check.bytes > 0, "{check:?}");
    assert!(std::fs::read_dir(at.path()).expect("it is there").next().is_none(), "nothing is left");
}

#[test]
fn cold_steps_begin_with_a_remount_where_somebody_can() {
    let at = memory();
    let mut target = Tampered::new(directory(&at), |_, _| {});
    let (done, records) = daily(&mut target, &["find", "find-cold", "read-cold"]);
    done.expect("nothing is wrong");
    assert_eq!(names(&records), ["find", "find-cold", "read-cold"]);
    let caches: Vec<_> = records.iter().filter_map(|r| r.caches).collect();
    assert_eq!(caches, [Caches::Warm, Caches::Remounted, Caches::Remounted]);
    assert_eq!(target.remounts, 3, "for each of the two, and for the check");
}

/// Changes a byte of a file below a directory and puts its time back.
fn plant(dir: &Path) {
    let files = std::fs::read_dir(dir).expect("it is there").map(|entry| entry.expect("readable").path());
    let long = |file: &PathBuf| {
        file.symlink_metadata()
            .is_ok_and(|found| found.is_file() && found.len() > 100 && !found.permissions().readonly())
    };
    let file = files.filter(long).min().expect("one is long enough");
    let time = std::fs::metadata(&file).and_then(|found| found.modified()).expect("it is there");
    let mut bytes = std::fs::read(&file).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&file, bytes).expect("room");
    let opened = std::fs::File::options().write(true).open(&file);
    opened.and_then(|f| f.set_modified(time)).expect("own file");
}

#[test]
fn a_planted_difference_is_found_and_the_other_steps_count() {
    let at = memory();
    // Each step is synced before and after: the fourth follows the copying.
    let tamper = |sync: u32, dir: &Path| {
        if sync == 4 {
            plant(&dir.join("copy"))
        }
    };
    let (done, records) = daily(&mut Tampered::new(directory(&at), tamper), &["untar", "copy", "fsyncs"]);
    let said = done.expect_err("a byte is another").to_string();
    assert!(
        said.starts_with("wrong content: daily: copy: in copy: ") && said.contains("other bytes"),
        "{said}"
    );
    assert_eq!(names(&records), ["untar", "fsyncs"], "what was right has its record");
    assert!(std::fs::read_dir(at.path()).expect("it is there").next().is_none(), "nothing is left");
}

#[test]
fn what_is_lost_between_the_steps_and_the_end_is_found() {
    let at = memory();
    // After the step, and when it was compared: before the last comparison.
    let tamper = |sync: u32, dir: &Path| {
        if sync == 3 {
            std::fs::remove_file(dir.join("synced/f00003")).expect("it was made");
        }
    };
    let (done, records) = daily(&mut Tampered::new(directory(&at), tamper), &["fsyncs"]);
    let said = done.expect_err("a file is gone").to_string();
    assert!(said.contains("synced has 9 files, not 10"), "{said}");
    assert!(records.iter().all(|record| record.check.is_none()), "and no record says that it was right");
}

#[test]
fn what_cannot_be_is_refused() {
    let at = memory();
    let mut library = library(&at);
    let (done, _) = daily(&mut library, &[]);
    assert!(matches!(&done, Err(Error::Refused(said)) if said.contains("system calls")), "{done:?}");
    library.unmount().expect("nothing is open");
    let (done, _) = daily(&mut directory(&at), &["unzip"]);
    assert!(matches!(&done, Err(Error::Usage(said)) if said.contains("--steps unzip")), "{done:?}");
    let two = plan("daily", 2, params(&[]));
    assert!(two.wrong().is_some_and(|said| said.contains("--threads")));
}
