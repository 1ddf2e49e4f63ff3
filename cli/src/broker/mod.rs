//! A process that does for a server what the server has given up: it mounts and unmounts, keeps umount(8)'s table,
//! removes the socket of its metrics, and starts another supervisor where that was killed.
//!
//! Each server starts one of its own before it gives anything up ([`harden`](crate::harden)), and is its parent; it ends
//! with its server, and keeps no descriptor of the mount. What it does it was told on its command line, which is the
//! server's: the directory, and with which options. So a server that somebody else has got hold of can have its own
//! directory mounted, once, and unmounted, and can start a supervisor for itself, and that is all.
//!
//! Where it is killed the mount goes on; it is then ended by `narufs umount` and not by signals, and a supervisor that is
//! killed besides is not replaced.
//!
//! [`process`] is the broker; here is how it is asked. [`acting`] is what takes the right to mount. A service whose processes
//! have not got that right has a [`mounter`] do it, which is another service: its broker hands such questions on.
//!
//! # Protocol
//! The server asks and waits, one question at a time; each has one answer. The end of the socket is the end of the server.
//! A mounter is asked in the same words, one question a connection.

pub mod acting;
pub mod mounter;
pub mod process;

use crate::supervisor::channel;
use crate::supervisor::program::Program;
use narufs_fuse::mount::{self, IfBusy, Made, Setting};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

/// What is asked that takes the right to mount.
#[derive(Debug, Serialize, Deserialize)]
enum Act {
    /// It is to mount.
    Mount { read_only: bool },
    /// It is to unmount what has this device number.
    Unmount { device: (u32, u32), busy: IfBusy },
    /// It is to set something of the mount.
    Set { device: (u32, u32), what: Setting, value: u64 },
    /// The mount is to be in umount(8)'s table.
    Enter,
    /// It is not to be there any more.
    Leave,
}

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
enum Question {
    /// What takes the right to mount.
    Act(Act),
    /// Nobody asks for metrics any more: the name of the socket that they were served at goes.
    Unlisten,
    /// A supervisor is to be started, which finds what it needs in the socket that comes along.
    Supervise,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// It is done; false: there was nothing to do.
    Done(bool),
    /// It is mounted: the descriptor comes along, and the file that cuts it, if that could be opened.
    Mounted { device: (u32, u32) },
    /// It cannot be done.
    Refused { errno: Option<i32>, why: String },
}

impl Answer {
    /// Of what has nothing to send along.
    fn of(outcome: io::Result<bool>) -> (Answer, Vec<OwnedFd>) {
        let refused = |e: io::Error| Answer::Refused { errno: e.raw_os_error(), why: e.to_string() };
        (outcome.map_or_else(refused, Answer::Done), Vec::new())
    }

    /// It, unless it is a refusal.
    fn or_refusal(self) -> io::Result<Answer> {
        match self {
            Answer::Refused { errno: Some(errno), .. } => Err(io::Error::from_raw_os_error(errno)),
            Answer::Refused { errno: None, why } => Err(io::Error::other(why)),
            answer => Ok(answer),
        }
    }
}

/// The way to it.
#[derive(Debug)]
pub struct Broker {
    socket: Mutex<OwnedFd>,
    pid: u32,
}

impl Broker {
    /// Starts it, for a server that was started with these arguments.
    ///
    /// # Errors
    /// Those of starting a process.
    pub fn start(arguments: &[OsString]) -> io::Result<Arc<Broker>> {
        let (ours, theirs) = channel::pair()?;
        let program = Program::own()?;
        let mut command = program.command();
        command.args(["mount", "--broker"]).args(arguments).stdin(theirs).stdout(Stdio::null());
        let child = command.spawn()?;
        // This process's duplicate of the broker's end goes: its end is to be told.
        drop(command);
        // Nothing is lost with the child's handle: it ends with this process.
        Ok(Arc::new(Broker { socket: Mutex::new(ours), pid: child.id() }))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Has the mount entered in umount(8)'s table, until what this gives goes.
    pub fn enter(&self) -> Entered<'_> {
        self.say(&Question::Act(Act::Enter));
        Entered { broker: self }
    }

    /// Has a supervisor started that finds what it needs in this socket.
    ///
    /// # Errors
    /// Why not.
    pub fn start_supervisor(&self, left: &OwnedFd) -> io::Result<()> {
        self.ask(&Question::Supervise, &[left.as_fd()]).map(drop)
    }

    /// Has the name of the socket that metrics were served at removed.
    pub fn listens_no_more(&self) {
        self.say(&Question::Unlisten);
    }

    fn say(&self, question: &Question) {
        if let Err(e) = self.ask(question, &[]) {
            tracing::debug!("{question:?}: {e}");
        }
    }

    fn ask(&self, question: &Question, along: &[BorrowedFd<'_>]) -> io::Result<(Answer, Vec<OwnedFd>)> {
        // Whoever panicked has left nothing half done: who asks and is not answered finds that the broker is gone.
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = |e: io::Error| io::Error::new(e.kind(), format!("the server's broker is gone: {e}"));
        channel::send(&*socket, question, along).map_err(gone)?;
        let answered =
            channel::receive(&*socket, true)?.ok_or_else(|| gone(io::ErrorKind::NotConnected.into()))?;
        let (answer, descriptors): (Answer, _) = answered;
        Ok((answer.or_refusal()?, descriptors))
    }

    fn act(&self, act: Act) -> io::Result<(Answer, Vec<OwnedFd>)> {
        self.ask(&Question::Act(act), &[])
    }
}

impl mount::Broker for Broker {
    fn mount(&self, read_only: bool) -> io::Result<Made> {
        let (answer, along) = self.act(Act::Mount { read_only })?;
        let mut along = along.into_iter();
        match (answer, along.next()) {
            (Answer::Mounted { device }, Some(descriptor)) => {
                Ok(Made { device, descriptor, abort: along.next() })
            }
            _ => Err(io::Error::other("the server's broker answers something else")),
        }
    }

    fn unmount(&self, device: (u32, u32), busy: IfBusy) -> io::Result<bool> {
        let (answer, _) = self.act(Act::Unmount { device, busy })?;
        Ok(matches!(answer, Answer::Done(true)))
    }

    fn set(&self, device: (u32, u32), what: Setting, value: u64) -> io::Result<()> {
        self.act(Act::Set { device, what, value }).map(drop)
    }
}

/// An entry in umount(8)'s table, which goes with this.
#[derive(Debug)]
pub struct Entered<'b> {
    broker: &'b Broker,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.broker.say(&Question::Act(Act::Leave));
    }
}
