//! The engine and its load in a process of their own, which is killed before what it wrote is compared.
//!
//! `parent` starts this program anew, once to measure and once to compare. The first process mounts the image,
//! runs the workload, syncs, tells its records and what must be there, and is killed with SIGKILL while it waits.
//! The second one mounts what the kill has left, compares, and tidies up: nothing that the first had in memory is
//! there any more. `child` is what both do. Orders go through standard input, which stays open until the run is
//! to end; `Said` comes back through standard output, a line of JSON each. No line is written while the time
//! runs unless somebody watches a progress bar.
//!
//! What this leaves to others: what is measured (`run`), what is compared (`workload`).

mod child;
mod parent;

pub use child::serve;
pub use parent::run;

use crate::{Error, Params, Record};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The hidden command of the program that calls [`serve`].
pub const COMMAND: &str = "bench-child";

/// An image, and the engine that is to run on it.
#[derive(Debug, Clone)]
pub struct Engine {
    /// The program that is started; it knows [`COMMAND`].
    pub program: PathBuf,
    /// How it mounts.
    pub mount: Mount,
}

/// How an image is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The image.
    pub image: PathBuf,
    /// What records call it.
    pub name: String,
    /// Options as of `narufs mount -o`.
    pub options: Vec<String>,
}

/// What a child is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    mount: Mount,
    /// The work directory of the run.
    work: String,
    load: Load,
    step: Step,
    /// Whether somebody watches.
    watched: bool,
}

/// One workload, as in [`crate::Plan`].
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Load {
    workload: String,
    threads: usize,
    repeat: u32,
    repeats: u32,
    time: Duration,
    params: Params,
    check: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Step {
    /// Measure. With a check afterwards, wait for the kill; else tidy up and end.
    Measure,
    /// Mount what was left, compare it with this, tidy up and end.
    Compare(String),
    /// Tidy up after a process that has failed.
    TidyUp,
}

/// What a child says.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Said {
    /// What it does, for those who watch.
    Doing(String, String),
    /// How long it has run, and how long it will.
    Running(Duration, Option<Duration>),
    /// A phase is measured.
    Measured(Box<Record>),
    /// Everything was synced in this time; this must be there. It waits for the kill.
    Synced(Duration, String),
    /// The image is mounted: recovery is over.
    Mounted,
    /// Everything is there. What comparing took; files and bytes.
    Compared(Duration, u64, u64),
    /// The end of its work: the image is unmounted.
    Ended,
    /// What went wrong, with everything tidied up.
    Failed(Failure),
    /// A thread has panicked.
    Panicked(String),
}

/// An [`Error`] as it travels.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Failure {
    Usage(String),
    Refused(String),
    Wrong(String),
    Interrupted,
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        match e {
            Error::Usage(words) => Failure::Usage(words),
            Error::Wrong(words) => Failure::Wrong(words),
            Error::Interrupted => Failure::Interrupted,
            other => Failure::Refused(other.to_string()),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Usage(words) => Error::Usage(words),
            Failure::Refused(words) => Error::Refused(words),
            Failure::Wrong(words) => Error::Wrong(words),
            Failure::Interrupted => Error::Interrupted,
        }
    }
}
