//! A supervisor in the place of one that is gone, started by the server that lives on.
//!
//! It is nobody's child, and in a session of its own: a process between starts it and ends at once. It is the server's
//! parent no more than the server is its: it waits by a descriptor of the process, and learns the exit status where the
//! kernel tells it to others than parents.
//!
//! What this leaves to others: what is handed over, and how ([`replace`](super::replace)); who hands it over
//! ([`supervised`](crate::supervised)).

use super::channel::ToServer;
use super::program::{Program, Running};
use super::remains::Remains;
use super::replace::{State, hand_over};
use super::{Supervisor, channel, open_control};
use crate::failure::{Failure, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;

/// How long a new supervisor may take to begin.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

impl Supervisor {
    /// Says to the server that this process keeps the mount. Fails if it has not waited, and lives: another one keeps it.
    pub(super) fn adopt(&mut self) -> Result<(), Failure> {
        // First: the server tells everybody of this process as soon as it has heard of it, and they ask.
        self.control = open_control();
        let is_said = self.server.tell(&ToServer::Kept { supervisor: std::process::id() });
        if let Err(e) = is_said
            && !self.server.ends_within(&Timespec { tv_sec: 1, tv_nsec: 0 })
        {
            return Err(Failure::about(Status::Failed, &self.dir, format!("the server has not waited: {e}")));
        }
        tracing::warn!("{}: its supervisor is gone; this process goes on in its place", self.dir.display());
        Ok(())
    }
}

/// The process between: starts the supervisor whose inheritance is in standard input.
pub fn start_apart(arguments: &[OsString]) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::new(Status::Failed, format!("no supervisor can be started: {e}"));
    // The end of a terminal is not to end it.
    rustix::process::setsid().map_err(|e| failed(e.into()))?;
    // Open until the other has begun.
    let program = Program::own().map_err(failed)?;
    let mut command = program.command();
    // Nothing is lost with the child's handle: whoever has no parent any more is waited for by init.
    command.args(["mount", "--supervise-on"]).args(arguments).spawn().map_err(failed)?;
    Ok(())
}

/// Has another process keep, for this one, what a supervisor that is gone has kept. The way to it, and its number. `start`
/// starts it, with what it inherits ([`start_by`]).
pub fn replace_supervisor(
    kept: &BTreeMap<String, OwnedFd>,
    state: &State,
    start: impl FnOnce(OwnedFd) -> io::Result<()>,
) -> io::Result<(OwnedFd, u32)> {
    let (ours, theirs) = channel::pair()?;
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    let server = Running { pidfd: own, socket: theirs, is_ready: state.is_ready };
    let left = hand_over(kept, &server, &Remains::default(), None, state)?;
    start(left)?;
    poll(&mut [PollFd::new(&ours, PollFlags::IN)], Some(&PATIENCE))?;
    match channel::receive(ours.as_fd(), false)? {
        Some((ToServer::Kept { supervisor }, _)) => Ok((ours, supervisor)),
        _ => Err(io::Error::other("it has ended before it began")),
    }
}

/// Starts a supervisor that finds what it needs in this socket, by way of a process that ends at once.
pub fn start_by(arguments: &[OsString], left: OwnedFd) -> io::Result<()> {
    let program = Program::own()?;
    let mut command = program.command_beside();
    command.args(["mount", "--supervise-apart"]).args(arguments).stdin(left).stdout(Stdio::null());
    let between = command.spawn();
    // This process's duplicate of what is handed over goes: nobody is to wait for one that never reads it.
    drop(command);
    let status = between?.wait()?;
    if !status.success() {
        return Err(io::Error::other(format!("it was not started: {status}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Signals;
    use super::super::control::connect_to;
    use super::*;
    use rustix::net::{SendFlags, send};
    use rustix::thread::gettid;
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::sync::mpsc;

    #[test]
    fn who_is_told_of_a_supervisor_in_the_place_of_another_can_ask_it() {
        let (server, socket) = channel::pair().expect("sockets");
        // It says nothing before there is room in the socket.
        while send(&socket, b"full", SendFlags::DONTWAIT).is_ok() {}
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).expect("it lives");
        let (unmount, upgrade) = UnixStream::pair().expect("sockets");
        let mut supervisor = Supervisor::new(
            PathBuf::from("/nowhere"),
            Vec::new(),
            Program::own().expect("a program"),
            PathBuf::new(),
            BTreeMap::new(),
            Running { pidfd, socket, is_ready: true },
            Signals { unmount, upgrade },
        );
        let (say, thread) = mpsc::channel();
        let adopting = std::thread::spawn(move || {
            say.send(gettid()).expect("somebody hears it");
            supervisor.adopt().map(|()| supervisor)
        });
        let thread = thread.recv().expect("it has begun").as_raw_nonzero();
        let says = format!("{} ", libc::SYS_sendmsg);
        let call = format!("/proc/self/task/{thread}/syscall");
        while !std::fs::read_to_string(&call).expect("it waits").starts_with(&says) {
            std::thread::yield_now();
        }
        let asked = connect_to(std::process::id());
        let heard = loop {
            if let Ok(heard) = channel::receive::<ToServer>(&server, true) {
                break heard;
            }
        };
        let said = heard.map(|(said, _)| said);
        assert_eq!(said, Some(ToServer::Kept { supervisor: std::process::id() }));
        asked.expect("it has listened before it said so");
        adopting.join().expect("it does not panic").expect("the server has waited");
    }
}
