//! Programs at work on a mount whose server is killed: each knows which of its calls returned and what was synced,
//! and judges what it finds after the next mount.

mod content;

use crate::dir_target::DirTarget;
use crate::model::Model;
use crate::op::{Falloc, Generator, Op};
use crate::oracle::{Kept, Oracle};
use crate::target::Target;
use content::{Appender, Database, Rewriter, Saver};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// One program.
pub trait Client: Send {
    /// Does its next operation, of one system call or of several.
    ///
    /// # Errors
    /// What a system call answered; the operation stays under way and there is no next.
    fn step(&mut self) -> io::Result<()>;

    /// Judges what is there after a crash.
    ///
    /// # Errors
    /// What contradicts the contract.
    fn judge(&self) -> Result<(), String>;
}

/// Whether an error is what the users of a killed server are told.
pub fn is_of_a_dead_mount(e: &io::Error) -> bool {
    // EINTR: over io_uring the kernel was copying the request into a process that was being killed.
    let of_its_end = [libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED, libc::EIO, libc::EINTR];
    e.raw_os_error().is_some_and(|errno| of_its_end.contains(&errno))
}

/// A directory of a client's own. What follows is judged from here on, whatever is taken back.
fn own(root: &Path, name: &str) -> io::Result<PathBuf> {
    let dir = root.join(name);
    fs::create_dir(&dir)?;
    File::open(&dir)?.sync_all()?;
    Ok(dir)
}

/// Clients of whom none syncs, each with a directory of its own in `root`.
///
/// # Errors
/// Those of preparing the directories.
pub fn without_syncs(root: &Path, kept: Kept) -> io::Result<Vec<Box<dyn Client>>> {
    Ok(vec![
        Box::new(Rewriter::new(&own(root, "rewriter-0")?)?),
        Box::new(Rewriter::new(&own(root, "rewriter-1")?)?),
        Box::new(Saver::new(own(root, "saver")?, kept, false)),
    ])
}

/// One of each kind that syncs, and two of those with random operations.
///
/// # Errors
/// Those of preparing the directories.
pub fn with_syncs(root: &Path, seed: u64, kept: Kept) -> io::Result<Vec<Box<dyn Client>>> {
    let dir = |name: &str| own(root, name);
    Ok(vec![
        Box::new(Random::new(dir("random-0")?, 2 * seed, kept)?),
        Box::new(Random::new(dir("random-1")?, 2 * seed + 1, kept)?),
        Box::new(Saver::new(dir("saver")?, kept, true)),
        Box::new(Appender::new(&dir("appender")?)),
        Box::new(Database::new(&dir("database")?, seed)?),
        Box::new(Maker::new(dir("maker")?, kept)),
    ])
}

/// Random operations, judged by the oracle.
struct Random {
    dir: PathBuf,
    target: DirTarget,
    generator: Generator,
    oracle: Oracle,
}

impl Random {
    fn new(dir: PathBuf, seed: u64, kept: Kept) -> io::Result<Random> {
        let mut target = DirTarget::new(&dir)?;
        target.sync_all = Some(narufs_fuse::control::sync);
        let oracle = Oracle::new(Model::default(), kept).among_others();
        Ok(Random { dir, target, generator: Generator::new(seed), oracle })
    }

    /// The next operation that every kernel passes on.
    fn next_op(&mut self) -> Op {
        loop {
            match self.generator.next_op() {
                Op::Fallocate { mode: Falloc::Collapse | Falloc::Insert, .. } | Op::Tmpfile { .. } => {}
                op => return op,
            }
        }
    }
}

impl Client for Random {
    fn step(&mut self) -> io::Result<()> {
        let op = self.next_op();
        let got = self.target.apply(&op);
        if let Err(e) = &got {
            let e = io::Error::from_raw_os_error(*e);
            if is_of_a_dead_mount(&e) {
                let _ = self.oracle.begun(&op);
                return Err(e);
            }
        }
        let want = self.oracle.returned(&op);
        if got == want {
            Ok(())
        } else {
            Err(io::Error::other(format!("{op:?} answered {got:?}, expected {want:?}")))
        }
    }

    fn judge(&self) -> Result<(), String> {
        let shown = DirTarget::new(&self.dir).map_err(|e| e.to_string())?.tree()?;
        self.oracle.check(&shown).map(drop).map_err(|e| format!("random operations: {e}"))
    }
}

/// Makes and removes directories and files, and syncs the directory now and then.
struct Maker {
    dir: PathBuf,
    kept: Kept,
    count: u64,
    /// The names after each operation from the last that is surely kept, the one under way included.
    states: Vec<BTreeSet<String>>,
}

impl Maker {
    fn new(dir: PathBuf, kept: Kept) -> Maker {
        Maker { dir, kept, count: 0, states: vec![BTreeSet::new()] }
    }

    /// Whether the operation made the change, the state after it is noted before it begins.
    fn change(
        &mut self,
        name: String,
        there: bool,
        call: impl Fn(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut names = self.states.last().cloned().unwrap_or_default();
        if there {
            names.insert(name.clone())
        } else {
            names.remove(&name)
        };
        self.states.push(names);
        call(&self.dir.join(name))?;
        if self.kept == Kept::All {
            self.keep();
        }
        Ok(())
    }

    /// All that has returned stays.
    fn keep(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }
}

impl Client for Maker {
    fn step(&mut self) -> io::Result<()> {
        let (now, before) = (self.count, self.count.wrapping_sub(7));
        self.count += 1;
        self.change(format!("d{now}"), true, |path| fs::create_dir(path))?;
        self.change(format!("f{now}"), true, |path| File::create(path).map(drop))?;
        if now >= 7 {
            self.change(format!("d{before}"), false, |path| fs::remove_dir(path))?;
            self.change(format!("f{before}"), false, |path| fs::remove_file(path))?;
        }
        if now % 4 == 3 {
            File::open(&self.dir)?.sync_all()?;
            self.keep();
        }
        Ok(())
    }

    fn judge(&self) -> Result<(), String> {
        let entries = fs::read_dir(&self.dir).map_err(|e| format!("the made names: {e}"))?;
        let found: Result<BTreeSet<String>, _> =
            entries.map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned())).collect();
        let found = found.map_err(|e| format!("the made names: {e}"))?;
        if self.states.contains(&found) {
            return Ok(());
        }
        Err(format!("made names are {found:?}; it was one of {:?}", self.states))
    }
}
