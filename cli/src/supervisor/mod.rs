//! The process that a mount lives by: it keeps the mount's descriptors and the memory that servers share, starts a
//! server, and another one when that is gone.
//!
//! It opens no image (a descriptor would keep its lock), reads nothing but the messages of its own servers, and does
//! nothing else, so that little can end it: its memory is locked, and the kernel does not choose it when memory runs out.
//! While all is well it sleeps.
//!
//! [`channel`] is the conversation with the server, [`program`] starts one, [`deaths`] says when to give up; [`control`] is
//! how others ask for another program, and [`replace`] has it take over.
//!
//! What this leaves to others: everything that a server does, a successor too ([`supervised`](crate::supervised)).
//!
//! # Protocol
//! 1. The server says what is to be kept before it reads a request from it. What it has said before its end is heard after
//!    it.
//! 2. A server that ends without having said that the mount has ended is followed by another one, which gets all that is
//!    kept.
//! 3. Before the first server serves there is no mount: its end is the end.
//!
//! # Invariants
//! Of all that is kept there is a duplicate here from its first use until the mount has ended.

pub mod channel;
pub mod control;
mod deaths;
mod program;
mod replace;

use crate::failure::{Failure, Status};
use channel::{Death, ToServer, ToSupervisor};
use control::Control;
use deaths::Deaths;
use narufs_engine::takeover::now;
use narufs_fuse::mount::process::protect_keeper;
use narufs_fuse::mount::{self, IfBusy};
use narufs_fuse::supervision::{ABORT, DEVICE};
use program::{Program, Running};
use replace::Trial;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::WaitIdStatus;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Keeps the mount at `dir`, served by `narufs mount` with these arguments, until it has ended. `ready` is called once, when
/// it works, with what the user should know.
pub fn run(dir: &Path, arguments: Vec<OsString>, ready: impl FnOnce(&[String])) -> Result<(), Failure> {
    protect_keeper();
    let failed = |e: io::Error| Failure::about(Status::MountFailed, dir, e);
    std::env::set_current_dir("/").map_err(failed)?;
    let signals = Signals::new().map_err(failed)?;
    let path = std::env::current_exe().map_err(failed)?;
    let program = Program::own().map_err(failed)?;
    let kept = BTreeMap::new();
    let server = program.start(&arguments, &kept, None).map_err(failed)?;
    let control = Control::open().inspect_err(|e| tracing::warn!("no other program can take over: {e}")).ok();
    let supervisor = Supervisor {
        dir: dir.to_owned(),
        arguments,
        program,
        path,
        kept,
        server,
        deaths: Deaths::default(),
        signals,
        control,
        unmounts: 0,
        has_served: false,
        survives: true,
        last_words: None,
        last_exit: None,
        trial: None,
    };
    supervisor.keep(Some(ready))
}

/// The same where another program has begun, of which this process has been so far.
pub fn go_on(dir: &Path, arguments: Vec<OsString>) -> Result<(), Failure> {
    protect_keeper();
    let failed = |e: io::Error| Failure::about(Status::MountFailed, dir, e);
    let signals = Signals::new().map_err(failed)?;
    let replace::Inherited { kept, server, control, state } = replace::Inherited::read().map_err(failed)?;
    let supervisor = Supervisor {
        dir: dir.to_owned(),
        arguments,
        program: Program::own().map_err(failed)?,
        path: std::env::current_exe().map_err(failed)?,
        kept,
        server,
        deaths: Deaths::default(),
        signals,
        control,
        unmounts: state.unmounts,
        has_served: true,
        survives: true,
        last_words: None,
        last_exit: None,
        trial: None,
    };
    supervisor.keep(None::<fn(&[String])>)
}

/// Signals, each a byte in a socket.
struct Signals {
    /// That ask to unmount.
    unmount: UnixStream,
    /// That ask for the program that now has the name of this one.
    upgrade: UnixStream,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        let of = |signals: &[i32]| -> io::Result<UnixStream> {
            let (asked, ask) = UnixStream::pair()?;
            asked.set_nonblocking(true)?;
            for signal in signals {
                signal_hook::low_level::pipe::register(*signal, ask.try_clone()?)?;
            }
            Ok(asked)
        };
        Ok(Signals { unmount: of(&[SIGINT, SIGTERM])?, upgrade: of(&[SIGHUP])? })
    }

    /// How many there were since the last time.
    fn count(mut of: &UnixStream) -> usize {
        let (mut bytes, mut all) = ([0; 16], 0);
        while let Ok(count) = of.read(&mut bytes)
            && count > 0
        {
            all += count;
        }
        all
    }
}

struct Supervisor {
    dir: PathBuf,
    arguments: Vec<OsString>,
    program: Program,
    /// Its name when it began.
    path: PathBuf,
    kept: BTreeMap<String, OwnedFd>,
    server: Running,
    deaths: Deaths,
    signals: Signals,
    control: Option<Control>,
    /// How often it was asked to unmount.
    unmounts: usize,
    /// Whether any server has begun to serve.
    has_served: bool,
    /// Whether the mount survives its server.
    survives: bool,
    /// What the server has said of its end.
    last_words: Option<ToSupervisor>,
    last_exit: Option<WaitIdStatus>,
    /// Another program is to serve.
    trial: Option<Trial>,
}

impl Supervisor {
    fn keep(mut self, mut ready: Option<impl FnOnce(&[String])>) -> Result<(), Failure> {
        loop {
            // Without a place to be asked at, one more look at the signals.
            let control = self.control.as_ref().map_or(self.signals.upgrade.as_fd(), AsFd::as_fd);
            let mut events = [
                PollFd::new(&self.server.socket, PollFlags::IN),
                PollFd::new(&self.server.pidfd, PollFlags::IN),
                PollFd::new(&self.signals.unmount, PollFlags::IN),
                PollFd::new(&self.signals.upgrade, PollFlags::IN),
                PollFd::from_borrowed_fd(control, PollFlags::IN),
            ];
            match poll(&mut events, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(Failure::about(Status::Failed, &self.dir, io::Error::from(e))),
            }
            let [_, ended, unmount, upgrade, asked] = events.map(|event| !event.revents().is_empty());
            self.listen(&mut ready);
            if unmount {
                self.pass_on_signals();
            }
            if upgrade && Signals::count(&self.signals.upgrade) > 0 {
                match Program::open(&self.path) {
                    Ok(program) => self.upgrade(program, None),
                    Err(e) => tracing::error!("{}: {e}", self.path.display()),
                }
            }
            if asked && let Some(control) = &self.control {
                match control.accept() {
                    Ok((asker, program)) => self.upgrade(program, Some(asker)),
                    Err(e) => tracing::warn!("a question is not heard: {e}"),
                }
            }
            if ended {
                // What it has said before its end is in the socket.
                self.listen(&mut ready);
                if let Some(outcome) = self.server_ended() {
                    return outcome;
                }
            }
        }
    }

    /// Hears what the server has said.
    fn listen(&mut self, ready: &mut Option<impl FnOnce(&[String])>) {
        loop {
            let (message, descriptors) = match channel::receive(&self.server.socket, false) {
                Ok(Some(heard)) => heard,
                Ok(None) => return,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => {
                    tracing::error!("{}: its server says what nobody understands: {e}", self.dir.display());
                    return;
                }
            };
            match message {
                ToSupervisor::Keep(name) => {
                    self.kept.extend(descriptors.into_iter().next().map(|descriptor| (name, descriptor)));
                }
                ToSupervisor::Ready { survives, warnings } => {
                    self.server.is_ready = true;
                    self.deaths.ready();
                    (self.has_served, self.survives) = (true, survives);
                    match ready.take() {
                        Some(ready) => ready(&warnings),
                        None => warnings.iter().for_each(|line| tracing::warn!("{line}")),
                    }
                    self.follow();
                }
                words @ (ToSupervisor::Failed { .. } | ToSupervisor::Ended) => self.last_words = Some(words),
            }
        }
    }

    fn pass_on_signals(&mut self) {
        let count = Signals::count(&self.signals.unmount);
        self.unmounts += count;
        for _ in 0..count {
            self.say(&ToServer::Unmount);
        }
    }

    fn say(&self, message: &ToServer) {
        if let Err(e) = self.server.tell(message) {
            tracing::debug!("the server does not hear: {e}");
        }
    }

    /// Starts another server, unless that was the last: then the outcome.
    fn server_ended(&mut self) -> Option<Result<(), Failure>> {
        let died_at = now();
        let status = match self.server.wait() {
            Ok(status) => status,
            Err(e) => return Some(Err(Failure::about(Status::Failed, &self.dir, e))),
        };
        let words = self.last_words.take();
        let line = exit_line(&Some(status));
        self.last_exit = Some(status);
        let was_ready = self.server.is_ready;
        match &words {
            Some(ToSupervisor::Ended) => return Some(outcome(&status)),
            Some(ToSupervisor::Failed { status, why }) if !self.has_served => {
                self.forget_mount();
                return Some(Err(Failure::new(Status::of_code(*status), why.clone())));
            }
            _ if !self.has_served => {
                self.forget_mount();
                let why = format!("the server ended before it served: {line}");
                return Some(Err(Failure::about(Status::MountFailed, &self.dir, why)));
            }
            _ if !self.survives => {
                let why = format!("the server ended, and the mount with it: {line}");
                return Some(Err(Failure::about(Status::Failed, &self.dir, why)));
            }
            _ => {}
        }
        let is_killed = status.terminating_signal() == Some(libc::SIGKILL);
        let death = match &self.trial {
            Some(trial) if !trial.is_started => Death::Replaced,
            _ if is_killed => Death::Killed,
            _ => Death::OfItself,
        };
        match &words {
            Some(ToSupervisor::Failed { why, .. }) => {
                tracing::error!("{}: no server: {why}", self.dir.display());
            }
            _ if death == Death::Replaced => {}
            _ => tracing::warn!("{}: its server is gone ({line}); another one starts", self.dir.display()),
        }
        self.choose_program();
        if death != Death::Replaced
            && let Some(why) = self.deaths.note(was_ready, death == Death::OfItself, Instant::now())
        {
            return Some(Err(self.give_up(&why)));
        }
        match self.program.start(&self.arguments, &self.kept, Some((death, died_at))) {
            Ok(server) => self.server = server,
            Err(e) => return Some(Err(self.give_up(&format!("no server can be started: {e}")))),
        }
        for _ in 0..self.unmounts {
            self.say(&ToServer::Unmount);
        }
        None
    }

    /// The mount has never worked.
    fn forget_mount(&mut self) {
        if self.kept.remove(DEVICE).is_some()
            && let Err(e) = mount::unmount(&self.dir, IfBusy::Detach)
        {
            tracing::debug!("{}: {e}", self.dir.display());
        }
    }

    /// Cuts off who uses the mount.
    fn give_up(&self, why: &str) -> Failure {
        let abort = self.kept.get(ABORT).map(|abort| rustix::io::write(abort, b"1"));
        if let Some(Err(e)) = abort {
            tracing::debug!("the connection ends with this process: {e}");
        }
        let dir = self.dir.display();
        let why = format!(
            "{why}, and the mount with them: run narufs umount {dir}, then narufs fsck, and mount again"
        );
        tracing::error!("{dir}: {why}");
        Failure::about(Status::Failed, &self.dir, why)
    }
}

/// How a mount has ended whose server said so; why it did not go well the server has said.
fn outcome(status: &WaitIdStatus) -> Result<(), Failure> {
    if status.exit_status() == Some(0) { Ok(()) } else { Err(Failure::new(Status::Failed, "")) }
}

/// How a server has ended, in words.
fn exit_line(status: &Option<WaitIdStatus>) -> String {
    let status = status.as_ref();
    match (status.and_then(WaitIdStatus::exit_status), status.and_then(WaitIdStatus::terminating_signal)) {
        (Some(code), _) => format!("exit status {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "it is not known how".to_owned(),
    }
}
