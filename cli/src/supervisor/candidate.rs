//! A program that may take the place of the one that serves: it is found and asked by a process apart.
//!
//! Its name may lead through the mount, and what it is read from may lie there: who looks at it then waits for a server,
//! and a supervisor that waits for one starts none.
//!
//! What this leaves to others: who asks, and what follows the answer ([`replace`](super::replace)).
//!
//! # Protocol
//! 1. The supervisor starts a process of its own program, and leaves in its standard input what a server would find there:
//!    of all that is kept, the memory alone.
//! 2. That process says which file it has found at the name, and what that is stored in ([`beneath`](super::beneath)), and
//!    becomes it. Where any of it is of the mount, that is the end of it. The new program says whether it can take over,
//!    as a server says that it serves.
//! 3. Whoever has not answered by then is killed. As a server that is heard no more he may take a while to go
//!    ([`remains`](super::remains)), but has nothing that anybody waits for.
//!
//! # Invariants
//! A supervisor opens and starts nothing of a program that has not said that it can take over.

use super::beneath::beneath;
use super::channel::{self, ToServer, ToSupervisor};
use super::control::Asker;
use super::deaths::Deaths;
use super::program::{self, Program, Running};
use crate::failure::{Failure, Status};
use crate::supervised::not_supervised;
use narufs_fuse::supervision::{MEMORY, device_in};
use rustix::event::Timespec;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long a new program may take to look.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long who is heard no more may take to end.
const PASSING: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The name under which it comes that was found.
const PROGRAM: &str = "program";

/// Where it is.
#[derive(Debug)]
pub enum Place {
    /// At this path.
    Named(PathBuf),
    /// It was handed over.
    Given(Program),
}

/// The process apart.
#[derive(Debug)]
pub struct Candidate {
    process: Running,
    /// What it has found.
    program: Option<Program>,
    /// What the program must not be of.
    mount: Option<(u32, u32)>,
    /// Who waits for the outcome.
    pub asker: Option<Asker>,
    until: Instant,
}

/// What has become of it.
#[derive(Debug)]
pub struct Answer {
    /// The program, which can take over; or why there is none that can.
    pub outcome: Result<Program, String>,
    /// Who waits for it.
    pub asker: Option<Asker>,
    /// Readable when the process apart is gone.
    pub process: OwnedFd,
}

impl Candidate {
    /// Has a process of `own` look there, for servers that are told these arguments.
    pub fn start(
        own: &Program,
        place: Place,
        arguments: &[OsString],
        memory: OwnedFd,
    ) -> io::Result<Candidate> {
        let mount = device_in(memory.as_fd());
        let (socket, theirs) = channel::pair()?;
        program::tell(socket.as_fd(), &BTreeMap::from([(MEMORY.to_owned(), memory)]))?;
        let nobody_yet = ToServer::Go { supervisor: 0, death: None, deaths: Deaths::default() };
        channel::send(&socket, &nobody_yet, &[])?;
        let (path, out) = match place {
            Place::Named(path) => (path, Stdio::null()),
            Place::Given(program) => ("/proc/self/fd/1".into(), program.into()),
        };
        let mut command = own.command();
        command.args(["mount", "--examine"]).arg(path).args(arguments).stdin(theirs).stdout(out);
        let process = Running { pidfd: program::spawn(command)?, socket, is_ready: false };
        Ok(Candidate { process, program: None, mount, asker: None, until: Instant::now() + PATIENCE })
    }

    /// Readable when it has said something, or ended.
    pub fn socket(&self) -> &OwnedFd {
        &self.process.socket
    }

    /// How long it may take yet.
    pub fn time_left(&self) -> Timespec {
        let left = self.until.saturating_duration_since(Instant::now());
        Timespec::try_from(left).unwrap_or_default()
    }

    /// Hears what it has said; `Err`: it goes on.
    pub fn hear(mut self) -> Result<Answer, Candidate> {
        match self.outcome() {
            None if self.time_left() != Timespec::default() => Err(self),
            None => Ok(self.answer(Err("the new program does not answer".to_owned()))),
            Some(outcome) => Ok(self.answer(outcome)),
        }
    }

    /// It is not waited for any more, for this reason.
    pub fn give_up(self, why: &str) -> Answer {
        self.answer(Err(why.to_owned()))
    }

    fn answer(self, outcome: Result<Program, String>) -> Answer {
        // It has said what it had to say, and may be waiting for the mount.
        if let Err(e) = self.process.kill() {
            tracing::debug!("what has looked at a program cannot be killed: {e}");
        }
        Answer { outcome, asker: self.asker, process: self.process.pidfd }
    }

    fn outcome(&mut self) -> Option<Result<Program, String>> {
        let why = loop {
            match channel::receive(&self.process.socket, false) {
                Ok(Some((ToSupervisor::Keep(name), along))) if name == PROGRAM && self.program.is_none() => {
                    let found: Vec<Program> = along.into_iter().map(Program::from).collect();
                    let is_of_mount = |place: &Program| place.device().ok() == self.mount;
                    // Nobody would serve it when it is to be started.
                    if self.mount.is_some() && found.iter().any(is_of_mount) {
                        let why = "it lies in the mount that it is to serve, or in what is stored there: copy it elsewhere";
                        return Some(Err(why.to_owned()));
                    }
                    self.program = found.into_iter().next();
                }
                Ok(Some((ToSupervisor::Ready { .. }, _))) => match self.program.take() {
                    Some(program) => return Some(Ok(program)),
                    None => break "it is not there".to_owned(),
                },
                Ok(Some((ToSupervisor::Failed { why, .. }, _))) => break why,
                Ok(Some(_)) => {}
                Ok(None) => break self.end(),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return None,
                Err(e) => break e.to_string(),
            }
        };
        Some(Err(format!("the new program does not take over: {why}")))
    }

    /// How it has ended, unless it has only let its socket go.
    fn end(&self) -> String {
        let ended = self.process.ends_within(&PASSING).then(|| self.process.wait());
        ended.and_then(Result::ok).map_or_else(|| "it says nothing".to_owned(), |exit| exit.to_string())
    }
}

/// The process apart: becomes the program at this path. Comes back only if it cannot.
pub fn become_it(path: &Path, arguments: &[OsString]) -> Result<(), Failure> {
    let supervisor = rustix::stdio::stdin();
    let why = match Program::open(path) {
        Ok(program) => {
            let beneath = beneath(&program);
            let found: Vec<_> = std::iter::once(&program).chain(&beneath).map(AsFd::as_fd).collect();
            let said = ToSupervisor::Keep(PROGRAM.to_owned());
            channel::send(supervisor, &said, &found).map_err(not_supervised)?;
            let mut command = program.command_beside();
            command.args(["mount", "--check-takeover"]).args(arguments).stdout(Stdio::null());
            format!("it cannot be started: {}", command.exec())
        }
        Err(e) => format!("it cannot be opened: {e}"),
    };
    let failed = ToSupervisor::Failed { status: Status::MountFailed.code(), why };
    channel::send(supervisor, &failed, &[]).map_err(not_supervised)?;
    // The supervisor says it.
    Err(Failure::new(Status::MountFailed, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};

    /// A candidate that is this child, and who speaks for it.
    fn candidate(mount: Option<(u32, u32)>) -> (Candidate, OwnedFd, Child) {
        let child = Command::new("/bin/cat").stdin(Stdio::piped()).spawn().expect("it starts");
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("it lives");
        let (socket, says) = channel::pair().expect("sockets");
        let process = Running { pidfd, socket, is_ready: false };
        let until = Instant::now() + Duration::from_secs(3600);
        (Candidate { process, program: None, mount, asker: None, until }, says, child)
    }

    fn is_killed(mut child: Child) {
        assert_eq!(child.wait().expect("ours").signal(), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn what_has_been_found_and_can_take_over_is_the_program() {
        let (candidate, says, child) = candidate(Some((0, 0)));
        let candidate = candidate.hear().expect_err("it has said nothing");
        let found = Program::own().expect("a program");
        let say = |said, along: &[_]| channel::send(&says, &said, along).expect("room");
        say(ToSupervisor::Keep(PROGRAM.to_owned()), &[found.as_fd()]);
        let candidate = candidate.hear().expect_err("it has not said whether it can");
        say(ToSupervisor::Ready { survives: true, warnings: Vec::new() }, &[]);
        let answer = candidate.hear().expect("it has said all");
        let program = answer.outcome.expect("it can");
        assert_eq!(program.device().expect("a file"), found.device().expect("a file"));
        is_killed(child);
    }

    #[test]
    fn what_lies_in_the_mount_or_was_not_found_is_none() {
        let found = Program::own().expect("a program");
        let (in_mount, says, child) = candidate(found.device().ok());
        channel::send(&says, &ToSupervisor::Keep(PROGRAM.to_owned()), &[found.as_fd()]).expect("room");
        let why = in_mount.hear().expect("it need not say more").outcome.expect_err("it is refused");
        assert!(why.contains("copy it elsewhere"), "{why}");
        is_killed(child);
        let (nowhere, says, child) = candidate(None);
        let ready = ToSupervisor::Ready { survives: true, warnings: Vec::new() };
        channel::send(&says, &ready, &[]).expect("room");
        nowhere.hear().expect("it has said all").outcome.expect_err("there is no program");
        is_killed(child);
    }

    #[test]
    fn who_does_not_answer_in_time_is_not_waited_for() {
        let (candidate, says, child) = candidate(None);
        let mut candidate = candidate.hear().expect_err("it has time");
        candidate.until = Instant::now();
        let why = candidate.hear().expect("its time is up").outcome.expect_err("there is no program");
        assert!(why.contains("does not answer"), "{why}");
        is_killed(child);
        drop(says);
    }
}
