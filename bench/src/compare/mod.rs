//! The comparison: every file system on the same media, from the same load generator, one after the other in turn.
//!
//! [`media`] are what they lie on, a [`contender`] is one in a configuration, which [`start`] makes and mounts, `round`
//! runs them interleaved, [`spill`] does so beyond a memory limit, [`report`] shows what came out. What was made
//! (files, loop devices, mounts) is undone whatever happens.

mod about;
pub mod contender;
pub mod device;
pub mod media;
mod peer;
pub mod report;
mod round;
pub mod spill;
pub mod start;
mod suite;

pub use round::compare;
pub use suite::{Load, full, quick, spilling};

use crate::daily::Shelf;
use crate::{Error, Record, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What to compare, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is run.
    pub loads: Vec<Load>,
    /// What is run beyond a memory limit.
    pub spilling: Option<spill::Spilling>,
    /// How often, in turn.
    pub rounds: u32,
    /// Names of contenders; all that can run here if empty.
    pub contenders: Vec<String>,
    /// Bytes of each medium.
    pub size: u64,
    /// Where the file behind the loop device is made.
    pub work: PathBuf,
    /// A real device in place of the loop device. Everything on it is lost.
    pub device: Option<PathBuf>,
    /// The narufs program, which makes, mounts and unmounts.
    pub narufs: PathBuf,
    /// How it was called, for the report.
    pub command: String,
    /// Where what everyday work needs is kept.
    pub shelf: Shelf,
}

/// A contender that did not run, or a run that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// The contender.
    pub contender: String,
    /// The workload, of a contender that ran otherwise.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workload: Option<String>,
    /// Why.
    pub reason: String,
}

/// Everything that a comparison has found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// Where it ran.
    pub machine: Vec<(String, String)>,
    /// How it was called.
    pub command: String,
    /// Rounds asked for.
    pub rounds: u32,
    /// The contenders that ran: name, and what it is.
    pub contenders: Vec<(String, String)>,
    /// Every record; `repeat` is the round, `target` the contender.
    #[serde(deserialize_with = "report::rows")]
    pub records: Vec<Record>,
    /// Beyond a memory limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spilled: Option<spill::Spilled>,
    /// What did not run.
    pub absent: Vec<Absent>,
}

/// Runs a program to its end and gives its standard output.
///
/// # Errors
/// In one line: the program, and the last it said.
fn call(program: &str, arguments: &[&str]) -> Result<String> {
    let out = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let out = out.map_err(|e| Error::Refused(format!("{program}: {e}")))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it failed without a word");
    Err(Error::Refused(format!("{program}: {last}")))
}
