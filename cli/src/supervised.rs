//! A server's way to its supervisor, and to another one where that is gone.
//!
//! A supervisor that is killed is replaced by its server ([`replace_supervisor`]), which has a duplicate of everything that
//! was to be kept. Whoever notices first does it: who waits for what the supervisor says, or who has something to say that
//! must be heard. It is not done before the first server serves, for there is nobody to do it for, nor where the mount ends
//! with its server.
//!
//! # Invariants
//! Of all that is to be kept there is a duplicate here, from before the supervisor is told of it. One supervisor at a time is
//! started, and none while another lives: what tells of its end is the end of its socket.

use crate::broker::Broker;
use crate::failure::{Failure, Status};
use crate::metrics::serving::METRICS;
use crate::options::OptionList;
use crate::supervisor::adopted::{replace_supervisor, start_by};
use crate::supervisor::channel::{self, Death, ToServer, ToSupervisor};
use crate::supervisor::deaths::{Deaths, forget_old};
use crate::supervisor::replace::State;
use narufs_engine::takeover::{Takeover, now};
use narufs_fuse::supervision::{self, Inherited, Keeper, MEMORY, Supervision};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Supervisors that may be started within a minute.
const MOST_SUPERVISORS: usize = 5;

/// The name under which the image is kept, opened with `O_PATH`.
pub const IMAGE: &str = "image";

/// The conversation with the supervisor.
#[derive(Debug, Clone)]
pub struct Link {
    state: Arc<Mutex<Conversation>>,
}

#[derive(Debug)]
struct Conversation {
    /// `None`: nobody is there, and nobody will be.
    socket: Option<Arc<OwnedFd>>,
    /// What the supervisor's servers are told.
    arguments: Vec<OsString>,
    /// Who starts another supervisor, if not this process.
    broker: Option<Arc<Broker>>,
    supervisor: u32,
    /// What was to be kept.
    kept: BTreeMap<String, OwnedFd>,
    /// Whether the mount has been served, by this process or another, and outlives it.
    survives: bool,
    /// Whether this server has begun to serve.
    is_ready: bool,
    /// How often this server was asked to unmount.
    unmounts: usize,
    deaths: Deaths,
    /// When supervisors were started, by the monotonic clock.
    started: VecDeque<u64>,
}

/// What the supervisor has said at the beginning.
#[derive(Debug)]
pub struct Start {
    /// Its process.
    pub supervisor: u32,
    /// How the last server has ended, and when; `None`: this is the first.
    pub death: Option<(Death, u64)>,
    /// The memory that servers share.
    pub memory: Option<OwnedFd>,
    /// Where metrics are asked for.
    pub metrics: Option<OwnedFd>,
    /// The image; `None`: nobody has opened it, or only older versions have.
    pub image: Option<OwnedFd>,
    /// The mount.
    pub left: Option<Inherited>,
}

/// What was heard.
#[derive(Debug)]
pub enum Heard {
    /// Something that it says.
    Said(ToServer),
    /// Something that this program does not understand: a supervisor of another version is there.
    Unknown(io::Error),
    /// It is gone, and a process of this number goes on in its place.
    Replaced(u32),
    /// It is gone, and this is why nobody is in its place.
    Alone(String),
}

impl Link {
    /// Hears what the supervisor has to say first. The conversation is this process's standard input; `arguments` are what
    /// servers are told.
    pub fn open(arguments: Vec<OsString>) -> io::Result<(Link, Start)> {
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        let mut kept = BTreeMap::new();
        let (supervisor, death, deaths) = loop {
            match channel::receive(&socket, true)?.ok_or(io::ErrorKind::UnexpectedEof)? {
                (ToServer::Left(names), descriptors) => kept.extend(names.into_iter().zip(descriptors)),
                (ToServer::Go { supervisor, death, deaths }, _) => break (supervisor, death, deaths),
                _ => return Err(io::Error::other("the supervisor begins in the middle")),
            }
        };
        let duplicate = |descriptor: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(descriptor, 3);
        let memory = kept.get(MEMORY).map(duplicate).transpose()?;
        let metrics = kept.get(METRICS).map(duplicate).transpose()?;
        let image = kept.get(IMAGE).map(duplicate).transpose()?;
        let mut named = Vec::new();
        for (name, descriptor) in kept.iter().filter(|(name, _)| *name != MEMORY) {
            named.push((name.clone(), duplicate(descriptor)?));
        }
        let left = Inherited::new(named);
        let conversation = Conversation {
            socket: Some(Arc::new(socket)),
            arguments,
            broker: None,
            supervisor,
            kept,
            survives: left.is_some(),
            is_ready: false,
            unmounts: 0,
            deaths,
            started: VecDeque::new(),
        };
        let link = Link { state: Arc::new(Mutex::new(conversation)) };
        Ok((link, Start { supervisor, death, memory, metrics, image, left }))
    }

    /// Has this one start another supervisor from now on.
    pub fn act_through(&self, broker: &Arc<Broker>) {
        self.state().broker = Some(Arc::clone(broker));
    }

    fn state(&self) -> MutexGuard<'_, Conversation> {
        // Whoever panicked has left it whole: each change is one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the supervisor says next, or what has become of it.
    pub fn hear(&self) -> Heard {
        let socket = self.state().socket.clone();
        let heard = socket.as_deref().map_or(Ok(None), |socket| channel::receive(socket, true));
        let mut state = self.state();
        match heard {
            Ok(Some((said, _))) => {
                state.unmounts += usize::from(said == ToServer::Unmount);
                Heard::Said(said)
            }
            Ok(None) => match state.replace(socket.as_ref()) {
                Ok(supervisor) => Heard::Replaced(supervisor),
                Err(why) => Heard::Alone(why),
            },
            Err(e) => Heard::Unknown(e),
        }
    }

    /// Whether the supervisor has ended.
    pub fn is_over(&self) -> bool {
        let state = self.state();
        let Some(socket) = &state.socket else { return true };
        let mut events = [PollFd::new(&**socket, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut events, Some(&now)).is_ok()
            && events[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP)
    }

    /// Says something, and whether it is heard; who does not hear it is gone.
    pub fn say(&self, message: &ToSupervisor) -> bool {
        let said = self.state().send(message, &[]);
        said.inspect_err(|e| tracing::debug!("the supervisor does not hear: {e}")).is_ok()
    }

    /// Says that this server serves: from now on the supervisor is replaced if the mount `survives` this process. The
    /// supervisor's process.
    ///
    /// # Errors
    /// Nobody hears it.
    pub fn ready(&self, survives: bool, warnings: Vec<String>) -> io::Result<u32> {
        let mut state = self.state();
        let message = ToSupervisor::Ready { survives, warnings };
        let sent = state.send(&message, &[]);
        match sent {
            Err(e) if state.survives => {
                tracing::debug!("the supervisor does not hear: {e}");
                let before = state.socket.clone();
                state.replace(before.as_ref()).map_err(io::Error::other)?;
                state.send(&message, &[])?;
            }
            sent => sent?,
        }
        (state.survives, state.is_ready) = (survives, true);
        Ok(state.supervisor)
    }

    /// Says why there is no server, and whether it is heard: the supervisor then tells the user.
    pub fn fail(&self, failure: &Failure) -> bool {
        self.say(&ToSupervisor::Failed { status: failure.status.code(), why: failure.message.clone() })
    }

    /// What the mount needs to outlive this process.
    pub fn supervision(&self, start: &Start, memory: Arc<Takeover>) -> Arc<Supervision> {
        let death = start.death.map(|(death, _)| match death {
            Death::OfItself => supervision::Death::OfItself,
            Death::Killed | Death::Replaced => supervision::Death::Killed,
        });
        Supervision::new(memory, Box::new(self.clone()), start.supervisor, death)
    }
}

impl Conversation {
    fn send(&self, message: &ToSupervisor, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let socket = self.socket.as_deref().ok_or(io::ErrorKind::NotConnected)?;
        channel::send(socket, message, descriptors)
    }

    /// Starts a supervisor in the place of the one behind this socket, unless somebody has done so: its process, or why
    /// there is none, which stays so.
    fn replace(&mut self, gone: Option<&Arc<OwnedFd>>) -> Result<u32, String> {
        let Some(socket) = &self.socket else { return Err("none could be started".to_owned()) };
        if gone.is_none_or(|gone| !Arc::ptr_eq(gone, socket)) {
            return Ok(self.supervisor);
        }
        self.socket = None;
        if !self.survives {
            return Err("nothing would outlive this server".to_owned());
        }
        loop {
            let now = now();
            forget_old(&mut self.started, now);
            if self.started.len() >= MOST_SUPERVISORS {
                return Err(format!("{MOST_SUPERVISORS} of them have ended within a minute"));
            }
            self.started.push_back(now);
            let state = State {
                unmounts: self.unmounts,
                deaths: self.deaths.clone(),
                is_apart: true,
                is_ready: self.is_ready,
            };
            let start = |left: OwnedFd| match &self.broker {
                Some(broker) => broker.start_supervisor(&left),
                None => start_by(&self.arguments, left),
            };
            match replace_supervisor(&self.kept, &state, start) {
                Ok((socket, supervisor)) => {
                    (self.socket, self.supervisor) = (Some(Arc::new(socket)), supervisor);
                    return Ok(supervisor);
                }
                Err(e) => tracing::warn!("another supervisor: {e}"),
            }
        }
    }
}

impl Keeper for Link {
    fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let mut state = self.state();
        // First: whoever takes the supervisor's place gets it as well.
        state.kept.insert(name.to_owned(), rustix::io::fcntl_dupfd_cloexec(descriptor, 3)?);
        match state.send(&ToSupervisor::Keep(name.to_owned()), &[descriptor.as_fd()]) {
            Err(e) if state.survives => {
                tracing::debug!("the supervisor does not hear: {e}");
                let before = state.socket.clone();
                state.replace(before.as_ref()).map(drop).map_err(io::Error::other)
            }
            sent => sent,
        }
    }
}

/// Says whether a server of this program could go on with what is left.
pub fn check(options: Result<OptionList, String>) -> Result<(), Failure> {
    let (link, start) = Link::open(Vec::new()).map_err(not_supervised)?;
    let memory = start.memory.ok_or_else(|| "there is no memory that servers share".to_owned());
    let can = options.and(memory).and_then(|memory| Takeover::check(memory).map_err(|e| e.to_string()));
    let outcome = can.map_err(|why| Failure::new(Status::MountFailed, why));
    match &outcome {
        Ok(()) => link.say(&ToSupervisor::Ready { survives: true, warnings: Vec::new() }),
        Err(failure) => link.fail(failure),
    };
    outcome
}

/// Without a conversation there is nothing to serve for.
pub fn not_supervised(e: io::Error) -> Failure {
    Failure::new(Status::MountUsage, format!("--supervised is for a supervisor to say: {e}"))
}
