//! Another program takes the place of the one that a supervisor runs and starts servers from.
//!
//! # Protocol
//! 1. The new program, which must not lie in the mount itself, says whether it understands the options and the memory that is
//!    left; nothing is touched, and nobody waits ([`candidate`](super::candidate)). If not, that is all. Who asks for another
//!    one meanwhile has it looked at in its place.
//! 2. The server is told to stop, and a new one starts from the new program, as after a kill. If it ends before it serves,
//!    the old program starts the next.
//! 3. When it serves, the supervisor's process goes on as the new program. Its descriptors wait for that in a socket, which
//!    is standard input; it stays the parent of the server.

use super::candidate::{Answer, Candidate, Place};
use super::channel::{self, MOST_DESCRIPTORS, ToServer};
use super::control::{Asker, Control};
use super::deaths::Deaths;
use super::program::{self, Exit, Program, Running};
use super::remains::Remains;
use super::{Signals, Supervisor};
use narufs_fuse::supervision::MEMORY;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;

/// Why a program is refused when none serves.
const NO_SERVER: &str = "no server is there that could make room, try again";
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
    /// Has a program looked at, which is to serve if it can.
    pub(super) fn upgrade(&mut self, place: Place, asker: Option<Asker>) {
        let Some(memory) = self.kept.get(MEMORY).filter(|_| self.can_make_room()) else {
            return refuse(asker, NO_SERVER);
        };
        // Not by the program that serves, which may be older, if this process could not become it.
        let start = |memory| Candidate::start(&Program::own()?, place, &self.arguments, memory);
        match memory.try_clone().and_then(start) {
            Ok(mut candidate) => {
                candidate.asker = asker;
                if let Some(before) = self.candidate.replace(candidate) {
                    self.conclude(before.give_up("another one was asked for meanwhile"));
                }
            }
            Err(e) => refuse(asker, &format!("the new program could not be looked at: {e}")),
        }
    }

    fn can_make_room(&self) -> bool {
        self.trial.is_none() && self.server.is_ready && self.survives
    }

    /// Hears what has become of a program that is looked at.
    pub(super) fn hear_candidate(&mut self) {
        match self.candidate.take().map(Candidate::hear) {
            Some(Ok(answer)) => self.conclude(answer),
            Some(Err(candidate)) => self.candidate = Some(candidate),
            None => {}
        }
    }

    fn conclude(&mut self, Answer { outcome, asker, process }: Answer) {
        self.remains.add(process);
        match outcome {
            Ok(program) if self.can_make_room() => {
                self.trial = Some(Trial { other: program, is_started: false, asker });
                self.say(&ToServer::Stop);
            }
            Ok(_) => refuse(asker, NO_SERVER),
            Err(why) => refuse(asker, &why),
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

fn refuse(asker: Option<Asker>, why: &str) {
    tracing::warn!("the program is not replaced: {why}");
    if let Some(asker) = asker {
        asker.answer(Err(why.to_owned()));
    }
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
