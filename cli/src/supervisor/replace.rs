//! Another program takes the place of the one that a supervisor runs and starts servers from.
//!
//! # Protocol
//! 1. The new program, which must not lie in the mount itself, says whether it understands the options and the memory that is
//!    left; nothing is touched. If not, that is all.
//! 2. The server is told to stop, and a new one starts from the new program, as after a kill. If it ends before it serves,
//!    the old program starts the next.
//! 3. When it serves, the supervisor's process goes on as the new program. Its descriptors wait for that in a socket, which
//!    is standard input; it stays the parent of the server.

use super::channel::{self, MOST_DESCRIPTORS, ToServer, ToSupervisor};
use super::control::{Asker, Control};
use super::deaths::Deaths;
use super::program::{self, Exit, Program, Running};
use super::remains::Remains;
use super::{Signals, Supervisor};
use narufs_fuse::supervision::{MEMORY, device_in};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

/// How long a new program may take to look.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Why a program is refused when none serves.
pub(super) const NO_SERVER: &str = "no server is there that could make room, try again";
const SERVER_SOCKET: &str = "supervisor-socket";
const SERVER_PROCESS: &str = "supervisor-process";
const LISTENER: &str = "supervisor-listener";
/// What the names of processes of earlier servers begin with.
const REMAINS: &str = "supervisor-remains-";

/// A program that has been accepted, and the one before it.
#[derive(Debug)]
pub struct Trial {
    /// What serves if the new one does not.
    pub other: Program,
    /// Whether the new one has been started.
    pub is_started: bool,
    /// Who waits for the outcome.
    pub asker: Option<Asker>,
}

/// What the program before this one knew, beside descriptors; or what the server knows of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    /// How often it was asked to unmount.
    pub unmounts: usize,
    /// Of servers before the one that is there.
    #[serde(default)]
    pub deaths: Deaths,
    /// Whether this is another process, whose predecessor is gone.
    #[serde(default)]
    pub is_apart: bool,
    /// Whether the server that is there has begun to serve.
    #[serde(default = "yes")]
    pub is_ready: bool,
}

fn yes() -> bool {
    true
}

impl Supervisor {
    /// Has a program serve, if it can.
    pub(super) fn upgrade(&mut self, program: Program, asker: Option<Asker>) {
        let refuse = |why: String| {
            tracing::warn!("the program is not replaced: {why}");
            if let Some(asker) = &asker {
                asker.answer(Err(why));
            }
        };
        if self.trial.is_some() || !self.server.is_ready || !self.survives {
            return refuse(NO_SERVER.to_owned());
        }
        // Nobody would serve it when it is to be started.
        if self.mounts_what_has(&program) {
            return refuse("it lies in the mount that it is to serve: copy it elsewhere".to_owned());
        }
        if let Err(why) = self.check(&program) {
            return refuse(why);
        }
        self.trial = Some(Trial { other: program, is_started: false, asker });
        self.say(&ToServer::Stop);
    }

    /// Whether a program is a file of the mount itself.
    fn mounts_what_has(&self, program: &Program) -> bool {
        let mount = self.kept.get(MEMORY).and_then(|memory| device_in(memory.as_fd()));
        mount.is_some() && mount == program.device().ok()
    }

    /// Asks a program whether it can go on from here.
    fn check(&self, program: &Program) -> Result<(), String> {
        let failed = |e: io::Error| format!("the new program could not be asked: {e}");
        let (socket, theirs) = channel::pair().map_err(failed)?;
        let mut command = program.command();
        command.args(["mount", "--check-takeover"]).args(&self.arguments).stdin(theirs).stdout(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        drop(command);
        let memory = self.kept.get(MEMORY).and_then(|memory| memory.try_clone().ok());
        let memory = memory.map(|memory| (MEMORY.to_owned(), memory)).into_iter().collect();
        let answer = program::tell(socket.as_fd(), &memory)
            .and_then(|()| channel::send(&socket, &nobody_yet(), &[]))
            .and_then(|()| Ok(poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&PATIENCE))?))
            .and_then(|_| channel::receive(&socket, false));
        // Whatever it has answered.
        let _ = child.kill();
        let status = child.wait().map_err(failed)?;
        match answer {
            Ok(Some((ToSupervisor::Ready { .. }, _))) => Ok(()),
            Ok(Some((ToSupervisor::Failed { why, .. }, _))) => Err(format!("the new program refuses: {why}")),
            Ok(_) => Err(format!("the new program does not take over: {status}")),
            Err(e) => Err(format!("the new program does not answer: {e}")),
        }
    }

    /// The server is gone: which program starts the next one.
    pub(super) fn choose_program(&mut self) {
        match &mut self.trial {
            Some(trial) if trial.is_started => {
                let exit = self.last_exit.unwrap_or(Exit::Unknown);
                self.go_back(&format!("a server of it ended before it served: {exit}"));
            }
            Some(trial) => {
                std::mem::swap(&mut self.program, &mut trial.other);
                trial.is_started = true;
            }
            None => {}
        }
    }

    /// The new program does not serve: the old one starts the next server.
    pub(super) fn go_back(&mut self, why: &str) {
        let Some(trial) = self.trial.take() else { return };
        self.program = trial.other;
        let why = format!("the new program does not serve, the old one goes on: {why}");
        tracing::error!("{}: {why}", self.dir.display());
        if let Some(asker) = &trial.asker {
            asker.answer(Err(why));
        }
    }

    /// A server of the new program serves: this process follows.
    pub(super) fn follow(&mut self) {
        let Some(trial) = self.trial.take_if(|trial| trial.is_started) else { return };
        tracing::warn!("{}: another program serves", self.dir.display());
        if let Some(asker) = &trial.asker {
            asker.answer(Ok(()));
        }
        drop(trial);
        let e = self.become_program();
        tracing::error!("the supervisor stays the program that it was: {e}");
    }

    /// Comes back only with an error.
    fn become_program(&mut self) -> io::Error {
        // From here on who asks to unmount is heard by the program that follows; who has asked is passed on.
        Signals::hold();
        self.pass_on_signals();
        // The deaths of servers of another program say nothing of those of this one.
        let state =
            State { unmounts: self.unmounts, deaths: Deaths::default(), is_apart: false, is_ready: true };
        let (control, remains) = (self.control.as_ref(), &self.remains);
        let failed = match hand_over(&self.kept, &self.server, remains, control, &state) {
            Ok(left) => {
                // In the group that it is in: the leader of a session, as services are, may lead no other.
                let mut command = self.program.command_beside();
                command.args(["mount", "--supervise-on"]).args(&self.arguments).stdin(left).exec()
            }
            Err(e) => e,
        };
        Signals::release();
        failed
    }
}

fn nobody_yet() -> ToServer {
    ToServer::Go { supervisor: 0, death: None, deaths: Deaths::default() }
}

/// A socket in which everything lies that another supervisor needs.
pub fn hand_over(
    kept: &BTreeMap<String, OwnedFd>,
    server: &Running,
    remains: &Remains,
    control: Option<&Control>,
    state: &State,
) -> io::Result<OwnedFd> {
    let (ours, theirs) = channel::pair()?;
    program::tell(ours.as_fd(), kept)?;
    let server = [(SERVER_SOCKET, server.socket.as_fd()), (SERVER_PROCESS, server.pidfd.as_fd())];
    let own = server.into_iter().chain(control.map(|control| (LISTENER, control.as_fd())));
    let remains = remains.all().enumerate().map(|(number, process)| (format!("{REMAINS}{number}"), process));
    let own = own.map(|(name, descriptor)| (name.to_owned(), descriptor)).chain(remains);
    let (names, own): (Vec<_>, Vec<_>) = own.take(MOST_DESCRIPTORS).unzip();
    channel::send(&ours, &ToServer::Left(names), &own)?;
    channel::send(&ours, state, &[])?;
    Ok(theirs)
}

/// What was left in standard input: what it kept, its server, and where it was asked.
pub struct Inherited {
    pub kept: BTreeMap<String, OwnedFd>,
    pub server: Running,
    pub remains: Remains,
    pub control: Option<Control>,
    pub state: State,
}

impl Inherited {
    /// Reads it.
    pub fn read() -> io::Result<Inherited> {
        let socket = rustix::stdio::stdin().try_clone_to_owned()?;
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        let mut kept = BTreeMap::new();
        while !kept.contains_key(SERVER_PROCESS) {
            let heard = channel::receive(&socket, true)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let (ToServer::Left(names), descriptors) = heard else {
                return Err(io::Error::other("it was not left by a supervisor"));
            };
            kept.extend(names.into_iter().zip(descriptors));
        }
        let heard = channel::receive(&socket, true)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (state, _): (State, _) = heard;
        let of_remains = |(name, _): &(String, OwnedFd)| name.starts_with(REMAINS);
        let (remains, mut kept): (BTreeMap<_, _>, BTreeMap<_, _>) = kept.into_iter().partition(of_remains);
        let remains = remains.into_values().collect();
        let mut take = |name| kept.remove(name);
        let (server, process) = (take(SERVER_SOCKET), take(SERVER_PROCESS));
        let control = take(LISTENER).map(Control::inherited);
        let (Some(socket), Some(pidfd)) = (server, process) else {
            return Err(io::Error::other("no server was left"));
        };
        let is_ready = state.is_ready;
        Ok(Inherited { kept, server: Running { pidfd, socket, is_ready }, remains, control, state })
    }
}
