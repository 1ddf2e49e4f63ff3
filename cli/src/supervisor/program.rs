//! The program that a supervisor starts servers from: the file that was there when it was told of it, whatever has taken
//! its name since.

use super::channel::{self, Death, MOST_DESCRIPTORS, ToServer};
use super::deaths::Deaths;
use crate::holder;
use narufs_fuse::mount::process::exit_status;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal, waitid,
};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// A program file.
#[derive(Debug)]
pub struct Program {
    file: OwnedFd,
}

impl From<OwnedFd> for Program {
    fn from(file: OwnedFd) -> Program {
        Program { file }
    }
}

impl From<Program> for Stdio {
    fn from(program: Program) -> Stdio {
        program.file.into()
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A server that was started.
#[derive(Debug)]
pub struct Running {
    /// Readable when it has ended.
    pub pidfd: OwnedFd,
    /// The way to it.
    pub socket: OwnedFd,
    /// Whether it has said that it serves.
    pub is_ready: bool,
}

impl Running {
    /// Whether it ends while this waits.
    pub fn ends_within(&self, time: &Timespec) -> bool {
        loop {
            match poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(time)) {
                Err(Errno::INTR) => {}
                ready => return ready.is_ok_and(|ready| ready > 0),
            }
        }
    }
}

impl Program {
    /// The file at this path.
    pub fn open(path: &Path) -> io::Result<Program> {
        Ok(Program { file: rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())? })
    }

    /// The program that this process runs.
    pub fn own() -> io::Result<Program> {
        Program::open(Path::new("/proc/self/exe"))
    }

    /// The device that it lies on. Nobody who serves that is asked.
    pub fn device(&self) -> io::Result<(u32, u32)> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(&self.file, "", flags, StatxFlags::empty())?;
        Ok((found.stx_dev_major, found.stx_dev_minor))
    }

    /// A command line that begins with it, of a process in the caller's group.
    pub fn command_beside(&self) -> Command {
        // Resolved by the child, in which the descriptor is open still.
        let mut command = Command::new(holder::path_of(&self.file));
        command.arg0("narufs").current_dir("/");
        command
    }

    /// The same of one in a group of its own.
    pub fn command(&self) -> Command {
        let mut command = self.command_beside();
        command.process_group(0);
        command
    }

    /// Starts a server, and tells it what was kept.
    pub fn start(
        &self,
        arguments: &[OsString],
        kept: &BTreeMap<String, OwnedFd>,
        death: Option<(Death, u64)>,
        deaths: &Deaths,
    ) -> io::Result<Running> {
        let (socket, theirs) = channel::pair()?;
        // Before there is a server: one that has begun goes on whatever becomes of this process.
        tell(socket.as_fd(), kept)?;
        channel::send(&socket, &go(death, deaths), &[])?;
        let mut command = self.command();
        command.args(["mount", "--supervised"]).args(arguments).stdin(theirs).stdout(Stdio::null());
        Ok(Running { pidfd: spawn(command)?, socket, is_ready: false })
    }
}

/// Starts a process: a descriptor of it. What it was given is not this process's any more, so that its end is the end of a
/// conversation with it.
pub fn spawn(mut command: Command) -> io::Result<OwnedFd> {
    let mut child = command.spawn()?;
    drop(command);
    // Nothing is lost with the child's own handle: it is waited for by the descriptor.
    pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(|e| {
        // Nobody would know of its end.
        let _ = child.kill().and_then(|()| child.wait());
        e.into()
    })
}

fn go(death: Option<(Death, u64)>, deaths: &Deaths) -> ToServer {
    ToServer::Go { supervisor: std::process::id(), death, deaths: deaths.clone() }
}

/// The name that this process's program had, whatever has it now.
pub fn own_name() -> io::Result<PathBuf> {
    let name = std::env::current_exe()?.into_os_string().into_vec();
    let name = name.strip_suffix(b" (deleted)").unwrap_or(&name);
    Ok(PathBuf::from(OsStr::from_bytes(name)))
}

/// Tells a process what was kept.
pub fn tell(socket: BorrowedFd<'_>, kept: &BTreeMap<String, OwnedFd>) -> io::Result<()> {
    let kept: Vec<_> = kept.iter().collect();
    for some in kept.chunks(MOST_DESCRIPTORS) {
        let names = some.iter().map(|(name, _)| (*name).clone()).collect();
        let descriptors: Vec<_> = some.iter().map(|(_, descriptor)| descriptor.as_fd()).collect();
        channel::send(socket, &ToServer::Left(names), &descriptors)?;
    }
    Ok(())
}

/// How a server has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// It was another process's child, and the kernel does not say.
    Unknown,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Status(code) => write!(f, "exit status {code}"),
            Exit::Signal(signal) => write!(f, "signal {signal}"),
            Exit::Unknown => write!(f, "it is not known how"),
        }
    }
}

impl Exit {
    fn new(status: Option<i32>, signal: Option<i32>) -> Exit {
        match (status, signal) {
            (Some(code), _) => Exit::Status(code),
            (_, Some(signal)) => Exit::Signal(signal),
            _ => Exit::Unknown,
        }
    }

    /// Whether it may have been ended by others: as a kill counts what nobody knows of.
    pub fn is_kill(self) -> bool {
        matches!(self, Exit::Signal(libc::SIGKILL) | Exit::Unknown)
    }
}

impl From<WaitIdStatus> for Exit {
    fn from(status: WaitIdStatus) -> Exit {
        Exit::new(status.exit_status(), status.terminating_signal())
    }
}

impl From<Option<ExitStatus>> for Exit {
    fn from(status: Option<ExitStatus>) -> Exit {
        status.map_or(Exit::Unknown, |status| Exit::new(status.code(), status.signal()))
    }
}

impl Running {
    /// How it has ended, as soon as it has.
    pub fn wait(&self) -> io::Result<Exit> {
        loop {
            match waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Ok(Some(status)) => return Ok(status.into()),
                // The one before this supervisor has started it, and it has ended: that is why this was asked.
                Err(Errno::CHILD) => return Ok(exit_status(self.pidfd.as_fd()).into()),
                Ok(None) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Has no thread of it run any more.
    pub fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Tells it something.
    pub fn tell(&self, message: &ToServer) -> io::Result<()> {
        channel::send(&self.socket, message, &[])
    }
}
