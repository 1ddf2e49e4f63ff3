//! What a command that did not succeed says, and its exit status.

use std::fmt;
use std::io;
use std::path::Path;

/// Exit statuses by convention of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It failed.
    Failed,
    /// mount(8), umount(8): the mount, or the unmount, failed.
    MountFailed,
    /// mount(8), umount(8): wrong usage or no permission.
    MountUsage,
    /// fsck(8): problems are left.
    ProblemsLeft,
    /// fsck(8): the check failed.
    CheckFailed,
    /// fsck(8): problems were mended.
    Mended,
    /// Wrong usage.
    Usage,
    /// A program that the command is to start is not there, as shells say it.
    NoProgram,
    /// The user interrupted it.
    Interrupted,
}

impl Status {
    /// The status of a failed mount that a process which was started for it has ended with.
    pub fn of_code(code: u8) -> Status {
        match code {
            1 => Status::MountUsage,
            _ => Status::MountFailed,
        }
    }

    /// The number that the process ends with.
    pub fn code(self) -> u8 {
        match self {
            Status::Failed | Status::MountUsage | Status::Mended => 1,
            Status::Usage => 2,
            Status::ProblemsLeft => 4,
            Status::CheckFailed => 8,
            Status::MountFailed => 32,
            Status::NoProgram => 127,
            Status::Interrupted => 130,
        }
    }
}

/// One line for the user, and the status. An empty line is not printed: everything was said.
#[derive(Debug)]
pub struct Failure {
    /// The status.
    pub status: Status,
    /// The line.
    pub message: String,
}

impl Failure {
    /// A failure with its line.
    pub fn new(status: Status, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into() }
    }

    /// A failure about a path, which the line begins with.
    pub fn about(status: Status, path: &Path, why: impl fmt::Display) -> Failure {
        let (path, why) = (path.display().to_string(), why.to_string());
        Failure { status, message: if why.starts_with(&path) { why } else { format!("{path}: {why}") } }
    }

    /// There is no mount of narufs at `dir`.
    pub fn not_ours(dir: &Path) -> Failure {
        Failure::about(Status::Failed, dir, "no narufs is mounted here (narufs mount IMAGE DIR mounts one)")
    }

    /// A control call to the mount at `dir` failed.
    pub fn of_call(dir: &Path, e: &io::Error) -> Failure {
        match e.raw_os_error() {
            Some(libc::ENOTTY) => Failure::not_ours(dir),
            _ => Failure::about(Status::Failed, dir, e),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)
    }
}
