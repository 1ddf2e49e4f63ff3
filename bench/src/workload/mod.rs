//! The workloads, each written once over [`Session`].
//!
//! A [`Workload`] prepares what all threads share and makes a [`Worker`] for each thread; a worker's step is one
//! operation. What is set up before and checked afterwards is outside of the time. Random choices follow from
//! the seed and the thread alone, never from time or from other threads: all targets see the same stream.
//!
//! What this leaves to others: time and threads (`load`), counters (`meter`), the way back (`check`).

mod grow;
mod iozone;
mod lookups;
mod names;
mod oltp;
mod pages;
mod registry;
mod tokubench;
mod varmail;

pub use grow::{Append, Truncate};
pub use iozone::Iozone;
pub use lookups::{Enumerate, OpenPath};
pub use names::{Create, Rename, Unlink};
pub use oltp::Oltp;
pub use pages::Pages;
pub use registry::{ALL, DAILY, Family, Phase, Spec, Visitor, every, find, named};
pub use tokubench::Tokubench;
pub use varmail::Varmail;

use crate::content::Content;
use crate::params::Params;
use crate::stop::Stop;
use crate::target::{How, Session};
use crate::{Error, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// What a workload is told before it begins.
#[derive(Debug, Clone)]
pub struct Env {
    /// Threads that take part.
    pub threads: usize,
    /// How large the work is.
    pub params: Params,
    /// The bytes to write.
    pub content: Content,
    /// Whether the user wants the run to end.
    pub stop: Stop,
}

/// What one operation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is done; so many bytes of files were read and written.
    Done(u64),
    /// There is nothing left to do; nothing was done.
    End,
}

/// What a check has looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Files, by name, size or content.
    pub files: u64,
    /// Bytes compared.
    pub bytes: u64,
}

/// Room that a workload needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of data, at the most.
    pub bytes: u64,
    /// Files and directories.
    pub files: u64,
}

/// One of the workloads, with its sizes.
pub trait Workload<S: Session>: Sync {
    /// What one thread does.
    type Worker: Worker<S, Left = Self::Left>;
    /// What must be there of one thread, as data: the process that did the work may be gone when it is compared.
    type Left: Serialize + DeserializeOwned;

    /// Room for it.
    fn needs(&self) -> Needs;
    /// Makes what the threads share. Called once.
    fn prepare(&self, _session: &mut S) -> Result<()> {
        Ok(())
    }
    /// Makes what is a thread's own.
    fn worker(&self, thread: usize, session: &mut S) -> Result<Self::Worker>;
    /// Compares what is there with what each thread has left.
    fn check(&self, left: &[Self::Left], session: &mut S) -> Result<Seen>;
}

/// One thread of a workload.
pub trait Worker<S: Session>: Send {
    /// See [`Workload::Left`].
    type Left;

    /// Before the time of a phase.
    fn begin(&mut self, _phase: usize, _session: &mut S) -> Result<()> {
        Ok(())
    }
    /// One operation.
    fn step(&mut self, session: &mut S) -> Result<Step>;
    /// After the last operation of a phase, inside its time.
    fn finish(&mut self, _session: &mut S) -> Result<()> {
        Ok(())
    }
    /// Closes what is open, after everything, and also when something failed.
    fn end(&mut self, _session: &mut S) -> Result<()> {
        Ok(())
    }
    /// What it has left to be compared.
    fn left(self) -> Self::Left;
}

/// The directory of a thread.
fn own_dir(thread: usize) -> String {
    format!("t{thread:03}")
}

/// Makes a file of `bytes` with content, one piece after the other.
fn fill<S: Session>(session: &mut S, file: &S::File, env: &Env, number: u64, bytes: u64) -> Result<()> {
    let mut at = 0;
    while at < bytes {
        env.stop.check()?;
        let piece = (bytes - at).min(crate::content::LONGEST as u64) as usize;
        session.write_at(file, at, env.content.bytes(number, at, piece))?;
        at += piece as u64;
    }
    Ok(())
}

/// Reads `bytes` of a file and compares them with its content.
fn compare<S: Session>(
    session: &mut S,
    path: &str,
    content: &Content,
    number: u64,
    bytes: u64,
) -> Result<()> {
    let file = session.open(path, How::Read)?;
    let mut part = vec![0; (bytes as usize).clamp(1, crate::content::LONGEST)];
    let mut at = 0;
    let compared = loop {
        let got = session.read_at(&file, at, &mut part)?;
        if let Err(e) = content.check(number, at, &part[..got]) {
            break Err(Error::Wrong(format!("{path}: {e}")));
        }
        at += got as u64;
        if got < part.len() || at > bytes {
            break Ok(());
        }
    };
    session.close(file)?;
    compared?;
    if at == bytes {
        return Ok(());
    }
    Err(Error::Wrong(format!("{path} has {at} bytes, not the {bytes} that were written")))
}

/// Checks that a directory has exactly the files that `wanted` gives.
fn compare_names<S: Session>(
    session: &mut S,
    dir: &str,
    wanted: impl Iterator<Item = String>,
) -> Result<u64> {
    let mut wanted: std::collections::HashSet<String> = wanted.collect();
    let (mut seen, mut strange) = (0, None);
    session.list(dir, &mut |name, _| {
        seen += 1;
        if !wanted.remove(name) {
            strange = Some(name.to_owned());
        }
    })?;
    let shown = if dir.is_empty() { "the work directory" } else { dir };
    match (strange, wanted.iter().next()) {
        (Some(name), _) => Err(Error::Wrong(format!("{shown} has {name}, which was removed or never made"))),
        (_, Some(name)) => Err(Error::Wrong(format!("{shown} lacks {name}"))),
        _ => Ok(seen),
    }
}
