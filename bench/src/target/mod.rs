//! What a workload runs on.
//!
//! A [`Target`] is a place for files; a [`Session`] is one thread's view of it. Workloads know nothing else, so
//! that each is written once and compiled for each kind of target. Paths are relative to the work directory of
//! the run, which [`Target::enter`] makes and [`Target::leave`] removes.

mod directory;
mod library;
mod place;

pub use directory::{Directory, Remount};
pub use library::{Library, LibraryOptions, LibrarySession};
pub use place::{is_mount_point, mounted_from};

use crate::Result;
use crate::meter::Counters;

/// What a file of a target lives through once it was synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Survives {
    /// It is in memory alone.
    Nothing,
    /// The end of the process that serves it, not of the machine.
    Process,
    /// The machine's loss of power.
    Power,
}

/// What a target is.
#[derive(Debug, Clone)]
pub struct Description {
    /// Its name in records: what the user called it.
    pub name: String,
    /// The type of file system.
    pub filesystem: String,
    /// See [`Survives`].
    pub survives: Survives,
    /// What a reader of its rows must know.
    pub note: Option<String>,
}

/// Room on a target.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    /// Free bytes.
    pub bytes: u64,
    /// Files that can still be made, where there is such a limit.
    pub files: Option<u64>,
}

/// How a target was brought back for the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reopened {
    /// Its server was killed, and it was mounted anew: what is there came from its media and journal.
    Killed,
    /// It was unmounted and mounted anew.
    Remounted,
    /// It was only synced: what is there may come from memory.
    Synced,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// For reading.
    Read,
    /// For reading and writing.
    Write,
    /// For reading and appending.
    Append,
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// Anything else.
    File,
}

/// A place for files.
pub trait Target {
    /// One thread's view.
    type Session: Session + Send;

    /// What it is.
    fn describe(&self) -> Description;
    /// Makes the work directory of a run; paths of sessions are relative to it.
    fn enter(&mut self, name: &str) -> Result<()>;
    /// Removes the work directory with everything in it.
    fn leave(&mut self) -> Result<()>;
    /// A view for one thread.
    fn session(&self) -> Result<Self::Session>;
    /// Makes everything durable.
    fn sync_all(&self) -> Result<()>;
    /// Room.
    fn space(&self) -> Result<Space>;
    /// What has happened so far.
    fn counters(&self) -> Result<Counters>;
    /// The work directory in the names of the kernel, where it has one, for programs that make system calls.
    fn directory(&self) -> Option<std::path::PathBuf> {
        None
    }
    /// Brings everything back from the media, as far as this target can. There is no session.
    fn reopen(&mut self) -> Result<Reopened>;
}

/// One thread's calls. Each returns when the same system call would.
pub trait Session {
    /// An open file.
    type File: Send;

    /// Makes a directory (mode 0755). False if there is one.
    fn mkdir(&mut self, path: &str) -> Result<bool>;
    /// Makes a file (mode 0644) that is not there, and opens it.
    fn create(&mut self, path: &str, how: How) -> Result<Self::File>;
    /// Opens a file that is there.
    fn open(&mut self, path: &str, how: How) -> Result<Self::File>;
    /// Closes it.
    fn close(&mut self, file: Self::File) -> Result<()>;
    /// Removes a file.
    fn unlink(&mut self, path: &str) -> Result<()>;
    /// Renames.
    fn rename(&mut self, from: &str, to: &str) -> Result<()>;
    /// Reads; fewer bytes than asked only at the end of the file.
    fn read_at(&mut self, file: &Self::File, offset: u64, into: &mut [u8]) -> Result<usize>;
    /// Writes all of it.
    fn write_at(&mut self, file: &Self::File, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Writes all of it to the end, in one piece; the file was opened with [`How::Append`].
    fn append(&mut self, file: &Self::File, bytes: &[u8]) -> Result<()>;
    /// Sets the size.
    fn truncate(&mut self, file: &Self::File, size: u64) -> Result<()>;
    /// Data and attributes durable.
    fn fsync(&mut self, file: &Self::File) -> Result<()>;
    /// Data durable.
    fn fdatasync(&mut self, file: &Self::File) -> Result<()>;
    /// The size of the file that a path leads to.
    fn size(&mut self, path: &str) -> Result<u64>;
    /// Opens a directory ("" is the work directory), calls `each` for every entry but "." and "..", and closes
    /// it. Returns how many there were.
    fn list(&mut self, path: &str, each: &mut dyn FnMut(&str, Kind)) -> Result<u64>;
}
