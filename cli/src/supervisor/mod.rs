//! The process that a mount lives by: it keeps the mount's descriptors and the memory that servers share, starts a
//! server, and another one when that is gone.
//!
//! It opens no image (a descriptor would keep its lock), reads nothing but the messages of its own servers, and does
//! nothing else, so that little can end it: its memory is locked, and the kernel does not choose it when memory runs out.
//! While all is well it sleeps.
//!
//! [`channel`] is the conversation with the server, [`program`] starts one, [`deaths`] says when to give up.
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
mod deaths;
mod program;

use crate::failure::{Failure, Status};
use channel::{Death, ToServer, ToSupervisor};
use deaths::Deaths;
use narufs_fuse::mount::process::protect_keeper;
use narufs_fuse::mount::{self, IfBusy};
use narufs_fuse::supervision::{ABORT, DEVICE};
use program::{Program, Running};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Instant;

/// Keeps the mount at `dir`, served by `narufs mount` with these arguments, until it has ended. `ready` is called once, when
/// it works, with what the user should know.
pub fn run(dir: &Path, arguments: Vec<OsString>, ready: impl FnOnce(&[String])) -> Result<(), Failure> {
    protect_keeper();
    let failed = |e: io::Error| Failure::about(Status::MountFailed, dir, e);
    std::env::set_current_dir("/").map_err(failed)?;
    let (asked, ask) = UnixStream::pair().map_err(failed)?;
    asked.set_nonblocking(true).map_err(failed)?;
    for signal in [SIGINT, SIGTERM] {
        let ask = ask.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, ask).map_err(failed)?;
    }
    let program = Program::own().map_err(failed)?;
    let kept = BTreeMap::new();
    let server = program.start(&arguments, &kept, None).map_err(failed)?;
    let supervisor = Supervisor {
        dir: dir.to_owned(),
        arguments,
        program,
        kept,
        server,
        deaths: Deaths::default(),
        asked,
        unmounts: 0,
        has_served: false,
        survives: true,
        last_words: None,
    };
    supervisor.keep(Some(ready))
}

struct Supervisor {
    dir: PathBuf,
    arguments: Vec<OsString>,
    program: Program,
    kept: BTreeMap<String, OwnedFd>,
    server: Running,
    deaths: Deaths,
    /// A byte for each signal that asks to unmount.
    asked: UnixStream,
    /// How often that was asked.
    unmounts: usize,
    /// Whether any server has begun to serve.
    has_served: bool,
    /// Whether the mount survives its server.
    survives: bool,
    /// What the server has said of its end.
    last_words: Option<ToSupervisor>,
}

impl Supervisor {
    fn keep(mut self, mut ready: Option<impl FnOnce(&[String])>) -> Result<(), Failure> {
        loop {
            let mut events = [
                PollFd::new(&self.server.socket, PollFlags::IN),
                PollFd::new(&self.server.pidfd, PollFlags::IN),
                PollFd::new(&self.asked, PollFlags::IN),
            ];
            match poll(&mut events, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(Failure::about(Status::Failed, &self.dir, io::Error::from(e))),
            }
            let [_, ended, asked] = events.map(|event| !event.revents().is_empty());
            self.listen(&mut ready);
            if asked {
                self.pass_on_signals();
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
                }
                words @ (ToSupervisor::Failed { .. } | ToSupervisor::Ended) => self.last_words = Some(words),
            }
        }
    }

    fn pass_on_signals(&mut self) {
        let mut bytes = [0; 16];
        while let Ok(count) = (&self.asked).read(&mut bytes)
            && count > 0
        {
            self.unmounts += count;
            for _ in 0..count {
                self.say(&ToServer::Unmount);
            }
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
        let status = match self.server.child.wait() {
            Ok(status) => status,
            Err(e) => return Some(Err(Failure::about(Status::Failed, &self.dir, e))),
        };
        let words = self.last_words.take();
        let was_ready = self.server.is_ready;
        match &words {
            Some(ToSupervisor::Ended) => return Some(outcome(status)),
            Some(ToSupervisor::Failed { status, why }) if !self.has_served => {
                self.forget_mount();
                return Some(Err(Failure::new(Status::of_code(*status), why.clone())));
            }
            _ if !self.has_served => {
                self.forget_mount();
                let why = format!("the server ended before it served: {status}");
                return Some(Err(Failure::about(Status::MountFailed, &self.dir, why)));
            }
            _ if !self.survives => {
                let why = format!("the server ended, and the mount with it: {status}");
                return Some(Err(Failure::about(Status::Failed, &self.dir, why)));
            }
            _ => {}
        }
        let is_killed = status.signal() == Some(libc::SIGKILL);
        let death = if is_killed { Death::Killed } else { Death::OfItself };
        match &words {
            Some(ToSupervisor::Failed { why, .. }) => {
                tracing::error!("{}: no server: {why}", self.dir.display());
            }
            _ => tracing::warn!("{}: its server is gone ({status}); another one starts", self.dir.display()),
        }
        if let Some(why) = self.deaths.note(was_ready, !is_killed, Instant::now()) {
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
fn outcome(status: ExitStatus) -> Result<(), Failure> {
    if status.success() { Ok(()) } else { Err(Failure::new(Status::Failed, "")) }
}

/// The monotonic clock, in nanoseconds.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
