//! Targets for the tests, and one that writes down what is asked of another.
#![allow(dead_code, reason = "each test program uses a part of it")]

use narufs_bench::content::mixed;
use narufs_bench::daily::Shelf;
use narufs_bench::meter::Counters;
use narufs_bench::progress::Progress;
use narufs_bench::stop::Stop;
use narufs_bench::target::{Description, Directory, How, Kind, Library, Reopened, Session, Space, Target};
use narufs_bench::workload::{self, Spec};
use narufs_bench::{Params, Plan, Record, Result};
use narufs_engine::format::JournalKind;
use narufs_engine::pmem::EmulationCosts;
use narufs_engine::{FormatOptions, VolumeOptions};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// A directory in memory, removed with the test.
pub fn memory() -> TempDir {
    tempfile::Builder::new().prefix("narufs-bench-test.").tempdir_in("/dev/shm").expect("memory for files")
}

/// A directory target on it.
pub fn directory(at: &TempDir) -> Directory {
    Directory::new(at.path(), None).expect("it is a directory")
}

/// An image of 256 MiB with its ring, mounted as a library.
pub fn library(at: &TempDir) -> Library {
    let (image, ring) = (at.path().join("image"), at.path().join("ring"));
    let options = FormatOptions {
        blocks: Some(65536),
        journal_slots: Some(16384),
        journal: JournalKind::Emulated,
        journal_path: Some(ring.to_str().expect("plain letters").into()),
        sparse: true,
        ..FormatOptions::default()
    };
    std::fs::File::create(&image).and_then(|f| f.set_len(65536 * 4096)).expect("a sparse file");
    narufs_engine::format(&image, &FormatOptions { blocks: None, ..options }).expect("room enough");
    let options = VolumeOptions { costs: EmulationCosts::default(), ..VolumeOptions::default() };
    Library::mount(&image, "lib", options).expect("just made")
}

/// Small sizes for every workload.
pub fn small() -> Params {
    Params { files: Some(90), size: Some(1 << 20), memory: 1 << 20, ..Params::default() }
}

/// A plan of one workload that ends by its operations or its work, not by time.
pub fn plan(name: &str, threads: usize, params: Params) -> Plan {
    Plan {
        workloads: vec![workload::find(name).expect("it is there")],
        threads: vec![threads],
        time: Duration::from_secs(600),
        repeat: 1,
        params,
        check: true,
        shelf: Shelf::default(),
    }
}

/// Runs a plan and gives its records.
pub fn run<T: Target>(target: &mut T, plan: &Plan) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    narufs_bench::run(target, plan, &Stop::default(), &Progress::none(), |r| records.push(r))?;
    Ok(records)
}

/// All workloads.
pub fn all() -> impl Iterator<Item = &'static Spec> {
    workload::ALL.iter()
}

/// What a session was asked for, in its order.
pub type Log = Arc<Mutex<Vec<String>>>;

/// A target that writes down what its sessions are asked for.
pub struct Recording<T> {
    pub inner: T,
    /// One list for each session, in the order of their making.
    pub logs: Arc<Mutex<Vec<Log>>>,
    /// How the sessions lie.
    pub lie: Option<Lie>,
}

/// A call that is not carried out, though it says so: a file system that loses something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    Write,
    Append,
    Truncate,
    Unlink,
    Rename,
}

impl<T> Recording<T> {
    pub fn new(inner: T) -> Recording<T> {
        Recording { inner, logs: Arc::default(), lie: None }
    }

    /// Every call of every session.
    pub fn streams(&self) -> Vec<Vec<String>> {
        let logs = self.logs.lock().expect("no test has panicked with it");
        logs.iter().map(|log| log.lock().expect("no test has panicked with it").clone()).collect()
    }
}

impl<T: Target> Target for Recording<T> {
    type Session = RecordingSession<T::Session>;

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
        let log = Log::default();
        self.logs.lock().expect("no test has panicked with it").push(Arc::clone(&log));
        Ok(RecordingSession { inner: self.inner.session()?, log, lie: self.lie, calls: 0 })
    }
    fn sync_all(&self) -> Result<()> {
        self.inner.sync_all()
    }
    fn space(&self) -> Result<Space> {
        self.inner.space()
    }
    fn counters(&self) -> Result<Counters> {
        self.inner.counters()
    }
    fn reopen(&mut self) -> Result<Reopened> {
        self.inner.reopen()
    }
}

pub struct RecordingSession<S> {
    inner: S,
    log: Log,
    lie: Option<Lie>,
    calls: u64,
}

fn digest(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |sum, part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        mixed(sum, u64::from_le_bytes(word))
    })
}

impl<S> RecordingSession<S> {
    fn note(&self, words: String) {
        self.log.lock().expect("no test has panicked with it").push(words);
    }

    /// Whether this call is one that is not carried out: a few of many, so that most things work.
    fn lies(&mut self, about: Lie) -> bool {
        self.calls += 1;
        self.lie == Some(about) && self.calls % 7 == 3
    }
}

impl<S: Session> Session for RecordingSession<S> {
    type File = S::File;

    fn mkdir(&mut self, path: &str) -> Result<bool> {
        self.note(format!("mkdir {path}"));
        self.inner.mkdir(path)
    }
    fn create(&mut self, path: &str, how: How) -> Result<S::File> {
        self.note(format!("create {path} {how:?}"));
        self.inner.create(path, how)
    }
    fn open(&mut self, path: &str, how: How) -> Result<S::File> {
        self.note(format!("open {path} {how:?}"));
        self.inner.open(path, how)
    }
    fn close(&mut self, file: S::File) -> Result<()> {
        self.note("close".into());
        self.inner.close(file)
    }
    fn unlink(&mut self, path: &str) -> Result<()> {
        self.note(format!("unlink {path}"));
        if self.lies(Lie::Unlink) { Ok(()) } else { self.inner.unlink(path) }
    }
    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        self.note(format!("rename {from} {to}"));
        if self.lies(Lie::Rename) { Ok(()) } else { self.inner.rename(from, to) }
    }
    fn read_at(&mut self, file: &S::File, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.note(format!("read {offset} {}", into.len()));
        self.inner.read_at(file, offset, into)
    }
    fn write_at(&mut self, file: &S::File, offset: u64, bytes: &[u8]) -> Result<()> {
        self.note(format!("write {offset} {:x}", digest(bytes)));
        if self.lies(Lie::Write) { Ok(()) } else { self.inner.write_at(file, offset, bytes) }
    }
    fn append(&mut self, file: &S::File, bytes: &[u8]) -> Result<()> {
        self.note(format!("append {:x}", digest(bytes)));
        if self.lies(Lie::Append) { Ok(()) } else { self.inner.append(file, bytes) }
    }
    fn truncate(&mut self, file: &S::File, size: u64) -> Result<()> {
        self.note(format!("truncate {size}"));
        if self.lies(Lie::Truncate) { Ok(()) } else { self.inner.truncate(file, size) }
    }
    fn fsync(&mut self, file: &S::File) -> Result<()> {
        self.note("fsync".into());
        self.inner.fsync(file)
    }
    fn fdatasync(&mut self, file: &S::File) -> Result<()> {
        self.note("fdatasync".into());
        self.inner.fdatasync(file)
    }
    fn size(&mut self, path: &str) -> Result<u64> {
        self.note(format!("stat {path}"));
        self.inner.size(path)
    }
    fn list(&mut self, path: &str, each: &mut dyn FnMut(&str, Kind)) -> Result<u64> {
        self.note(format!("list {path}"));
        self.inner.list(path, each)
    }
}
