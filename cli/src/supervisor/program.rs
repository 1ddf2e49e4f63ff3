//! The program that a supervisor starts servers from: the file that was there when it was told of it, whatever has taken
//! its name since.

use super::channel::{self, Death, MOST_DESCRIPTORS, ToServer};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, waitid};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

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

impl Program {
    /// The file at this path.
    pub fn open(path: &Path) -> io::Result<Program> {
        Ok(Program { file: rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())? })
    }

    /// The program that this process runs.
    pub fn own() -> io::Result<Program> {
        Program::open(Path::new("/proc/self/exe"))
    }

    /// A command line that begins with it.
    pub fn command(&self) -> Command {
        // Resolved by the child, in which the descriptor is open still.
        let mut command = Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        command.arg0("narufs").current_dir("/").process_group(0);
        command
    }

    /// Starts a server, and tells it what was kept.
    pub fn start(
        &self,
        arguments: &[OsString],
        kept: &BTreeMap<String, OwnedFd>,
        death: Option<(Death, u64)>,
    ) -> io::Result<Running> {
        let (socket, theirs) = channel::pair()?;
        let mut command = self.command();
        command.args(["mount", "--supervised"]).args(arguments).stdin(theirs).stdout(Stdio::null());
        let child = command.spawn()?;
        // This process's duplicate of the server's end goes: the end of the server is to be the end of the conversation.
        drop(command);
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        // Nothing is lost with the child's own handle: it is waited for by the descriptor.
        let running = Running { pidfd, socket, is_ready: false };
        let told = tell(running.socket.as_fd(), kept)
            .and_then(|()| running.tell(&ToServer::Go { supervisor: std::process::id(), death }));
        if let Err(e) = told {
            // It is dead, which will be seen.
            tracing::debug!("a server was not told what was kept: {e}");
        }
        Ok(running)
    }
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

impl Running {
    /// How it has ended, as soon as it has.
    pub fn wait(&self) -> io::Result<WaitIdStatus> {
        loop {
            match waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Ok(Some(status)) => return Ok(status),
                Ok(None) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Tells it something.
    pub fn tell(&self, message: &ToServer) -> io::Result<()> {
        channel::send(&self.socket, message, &[])
    }
}
