//! The process that a mount lives by: it keeps the mount's descriptors and the memory that servers share, starts a
//! server, and another one when that is gone.
//!
//! It opens no image (a descriptor would keep its lock), reads nothing but the messages of its own servers, and does
//! nothing else, so that little can end it: its memory is locked, and the kernel does not choose it when memory runs out.
//! While all is well it sleeps.
//!
//! [`channel`] is the conversation with the server, [`program`] starts one, `ends` says what follows its end, [`deaths`] when
//! to give up; [`control`] is how others ask for another program ([`asked`]: who may), which is looked at apart
//! ([`candidate`]), and [`replace`] has it take over. A supervisor that is gone is replaced by its server: `adopted` is how
//! the new one begins. [`store`] is a service manager that keeps descriptors too.
//!
//! What this leaves to others: everything that a server does, a successor too ([`supervised`](crate::supervised)).
//!
//! # Protocol
//! 1. The server says what is to be kept before it reads a request from it. What it has said before its end is heard after
//!    it.
//! 2. A server that ends without having said that the mount has ended is followed by another one, which gets all that is
//!    kept.
//! 3. Before the first server serves there is no mount: its end is the end.
//! 4. The end of a server is that of its process, or of its end of the conversation, whichever is noticed first: no process ends
//!    while a thread of it waits in the kernel for a request that the next server is to answer. Such a thread has nothing
//!    else of the server's open (`narufs_fuse::binding`, `apart`), so when the conversation has ended all others have, and
//!    the image is free. Unless the server has said that the mount has ended, its process has a moment to end as well; then it
//!    is killed, so that nothing of it comes back, the next one is started, and its status is asked for when it is gone
//!    ([`remains`]).
//!
//! # Invariants
//! Of all that is kept there is a duplicate here from its first use until the mount has ended. It can be asked from before a
//! server could tell anybody of it.

pub mod adopted;
pub mod asked;
mod beneath;
pub mod candidate;
pub mod channel;
pub mod control;
pub mod deaths;
mod ends;
pub mod program;
pub mod remains;
pub mod replace;
pub mod store;

use crate::failure::{Failure, Status};
use candidate::{Candidate, Place};
use channel::{ToServer, ToSupervisor};
use control::Control;
use deaths::Deaths;
use narufs_engine::takeover::now;
use narufs_fuse::mount::process::protect_keeper;
use narufs_fuse::mount::{mountinfo, place};
use nix::sys::signal::{SigSet, Signal};
use program::{Exit, Program, Running};
use remains::Remains;
use replace::Trial;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use store::{Store, Stored};

/// Keeps the mount at `dir`, served by `narufs mount` with these arguments, until it has ended. `ready` is called once, when
/// it works, with what the user should know. What is `stored` is gone on with, in place of a new mount.
pub fn run(
    dir: &Path,
    arguments: Vec<OsString>,
    stored: Option<Stored>,
    ready: impl FnOnce(&[String]),
) -> Result<(), Failure> {
    protect_keeper();
    let failed = |e: io::Error| Failure::about(Status::MountFailed, dir, e);
    std::env::set_current_dir("/").map_err(failed)?;
    let signals = Signals::new().map_err(failed)?;
    let program = Program::own().map_err(failed)?;
    let is_stored = stored.is_some();
    // Before the first server mounts anything.
    let below = if is_stored { None } else { topmost(dir) };
    let (dir, arguments, kept) = match stored {
        Some(Stored { dir, arguments: as_mounted, kept }) => {
            if arguments != as_mounted {
                let dir = dir.display();
                tracing::warn!(
                    "{dir}: it goes on as it was mounted; what has changed counts from the next mount on"
                );
            }
            (dir, as_mounted, kept)
        }
        None => (dir.to_owned(), arguments, BTreeMap::new()),
    };
    // It is not known when the last server has ended.
    let death = is_stored.then(|| (channel::Death::Killed, now()));
    // First: the server tells everybody of this process, and they ask.
    let control = open_control();
    let server = program.start(&arguments, &kept, death, &Deaths::default()).map_err(failed)?;
    let path = program::own_name().map_err(failed)?;
    let supervisor = Supervisor {
        below,
        control,
        store: Store::own(),
        has_served: is_stored,
        ..Supervisor::new(dir, arguments, program, path, kept, server, signals)
    };
    supervisor.keep(Some(ready))
}

/// The device of what is mounted there.
fn topmost(dir: &Path) -> Option<(u32, u32)> {
    let point = place(dir).ok()?;
    mountinfo::find(&point).ok()?.map(|found| found.device)
}

fn open_control() -> Option<Control> {
    Control::open().inspect_err(|e| tracing::warn!("no other program can take over: {e}")).ok()
}

/// The same where another process, or another program in this one, has kept it so far: what that has left is in standard
/// input.
pub fn go_on(dir: &Path, arguments: Vec<OsString>) -> Result<(), Failure> {
    protect_keeper();
    let failed = |e: io::Error| Failure::about(Status::MountFailed, dir, e);
    let signals = Signals::new().map_err(failed)?;
    // The program before this one in this process has held them back.
    Signals::release();
    let replace::Inherited { kept, server, remains, control, state } =
        replace::Inherited::read().map_err(failed)?;
    let program = Program::own().map_err(failed)?;
    let path = program::own_name().map_err(failed)?;
    let mut supervisor = Supervisor {
        remains,
        deaths: state.deaths,
        control,
        store: Store::own(),
        unmounts: state.unmounts,
        ..Supervisor::new(dir.to_owned(), arguments, program, path, kept, server, signals)
    };
    if state.is_apart {
        supervisor.adopt()?;
    }
    supervisor.keep_in_store();
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

    fn all() -> SigSet {
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
    }

    /// Has the kernel keep what comes from now on, another program in this process included.
    fn hold() {
        if let Err(e) = Signals::all().thread_block() {
            tracing::debug!("signals are not held back: {e}");
        }
    }

    /// Has what was kept come.
    fn release() {
        if let Err(e) = Signals::all().thread_unblock() {
            tracing::debug!("signals stay held back: {e}");
        }
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
    /// The device of what was mounted there before.
    below: Option<(u32, u32)>,
    arguments: Vec<OsString>,
    program: Program,
    /// Its name when it began.
    path: PathBuf,
    kept: BTreeMap<String, OwnedFd>,
    server: Running,
    /// Of servers before it.
    remains: Remains,
    deaths: Deaths,
    signals: Signals,
    control: Option<Control>,
    /// The service manager, if this is its service.
    store: Option<Store>,
    /// How often it was asked to unmount.
    unmounts: usize,
    /// Whether any server has begun to serve.
    has_served: bool,
    /// Whether the mount survives its server.
    survives: bool,
    /// What the server has said of its end.
    last_words: Option<ToSupervisor>,
    last_exit: Option<Exit>,
    /// Another program is looked at.
    candidate: Option<Candidate>,
    /// Another program is to serve.
    trial: Option<Trial>,
}

impl Supervisor {
    /// Of a server that may have served, with nobody to be asked by.
    fn new(
        dir: PathBuf,
        arguments: Vec<OsString>,
        program: Program,
        path: PathBuf,
        kept: BTreeMap<String, OwnedFd>,
        server: Running,
        signals: Signals,
    ) -> Supervisor {
        Supervisor {
            dir,
            below: None,
            arguments,
            program,
            path,
            kept,
            server,
            remains: Remains::default(),
            deaths: Deaths::default(),
            signals,
            control: None,
            store: None,
            unmounts: 0,
            has_served: true,
            survives: true,
            last_words: None,
            last_exit: None,
            candidate: None,
            trial: None,
        }
    }

    fn keep(mut self, ready: Option<impl FnOnce(&[String])>) -> Result<(), Failure> {
        let outcome = self.keep_on(ready);
        if let Some(store) = &mut self.store {
            store.forget();
        }
        outcome
    }

    fn keep_on(&mut self, mut ready: Option<impl FnOnce(&[String])>) -> Result<(), Failure> {
        loop {
            // Without a place to be asked at, or a program that is looked at, one more look at the signals.
            let none = self.signals.upgrade.as_fd();
            let control = self.control.as_ref().map_or(none, AsFd::as_fd);
            let candidate = self.candidate.as_ref().map_or(none, |candidate| candidate.socket().as_fd());
            let mut events = vec![
                PollFd::new(&self.server.socket, PollFlags::IN),
                PollFd::new(&self.server.pidfd, PollFlags::IN),
                PollFd::new(&self.signals.unmount, PollFlags::IN),
                PollFd::new(&self.signals.upgrade, PollFlags::IN),
                PollFd::from_borrowed_fd(control, PollFlags::IN),
                PollFd::from_borrowed_fd(candidate, PollFlags::IN),
            ];
            events.extend(self.remains.events());
            match poll(&mut events, self.candidate.as_ref().map(Candidate::time_left).as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(Failure::about(Status::Failed, &self.dir, io::Error::from(e))),
            }
            let heard: Vec<bool> = events.iter().map(|event| !event.revents().is_empty()).collect();
            let [_, ended, unmount, upgrade, asked, ..] = heard[..] else { continue };
            self.remains.bury();
            let is_silent = self.listen(&mut ready);
            if unmount {
                self.pass_on_signals();
            }
            if ended || is_silent {
                // What it has said before its end is in the socket.
                self.listen(&mut ready);
                if let Some(outcome) = self.server_ended() {
                    return outcome;
                }
                // The rest is for the next one.
                continue;
            }
            self.hear_candidate();
            if upgrade && Signals::count(&self.signals.upgrade) > 0 {
                self.upgrade(Place::Named(self.path.clone()), None);
            }
            if asked && let Some(control) = &self.control {
                match control.accept() {
                    Ok((asker, program)) => self.upgrade(Place::Given(program), Some(asker)),
                    Err(e) => tracing::warn!("a question is not heard: {e}"),
                }
            }
        }
    }

    /// Hears what the server has said; true: that was all.
    fn listen(&mut self, ready: &mut Option<impl FnOnce(&[String])>) -> bool {
        loop {
            let (message, descriptors) = match channel::receive(&self.server.socket, false) {
                Ok(Some(heard)) => heard,
                Ok(None) => return true,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                Err(e) => {
                    tracing::error!("{}: its server says what nobody understands: {e}", self.dir.display());
                    return false;
                }
            };
            match message {
                ToSupervisor::Keep(name) => {
                    let Some(descriptor) = descriptors.into_iter().next() else { continue };
                    if let Some(store) = self.store.as_mut().filter(|_| self.has_served) {
                        store.keep(&name, descriptor.as_fd());
                    }
                    self.kept.insert(name, descriptor);
                }
                ToSupervisor::Ready { survives, warnings } => {
                    self.server.is_ready = true;
                    self.deaths.ready();
                    (self.has_served, self.survives) = (true, survives);
                    if ready.is_some() {
                        self.keep_in_store();
                    }
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

    /// The service manager keeps all of it too, now that it works.
    fn keep_in_store(&mut self) {
        let Some(store) = &mut self.store else { return };
        if self.survives {
            store.keep_all(&self.kept, &self.dir, &self.arguments);
        }
        store.ready(&self.dir);
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
}

/// Nanoseconds of a second.
pub const NANOSECONDS: u64 = 1_000_000_000;
