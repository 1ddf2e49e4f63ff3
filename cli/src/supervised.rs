//! A server's way to its supervisor.

use crate::failure::{Failure, Status};
use crate::options::OptionList;
use crate::supervisor::channel::{self, Death, ToServer, ToSupervisor};
use narufs_engine::takeover::Takeover;
use narufs_fuse::supervision::{self, Inherited, Keeper, MEMORY, Supervision};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The conversation with the supervisor.
#[derive(Debug, Clone)]
pub struct Link {
    socket: Arc<OwnedFd>,
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
    /// The mount.
    pub left: Option<Inherited>,
}

impl Link {
    /// Hears what the supervisor has to say first. The conversation is this process's standard input.
    pub fn open() -> io::Result<(Link, Start)> {
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        let link = Link { socket: Arc::new(socket) };
        let mut named = Vec::new();
        loop {
            match link.hear()?.ok_or(io::ErrorKind::UnexpectedEof)? {
                (ToServer::Left(names), descriptors) => named.extend(names.into_iter().zip(descriptors)),
                (ToServer::Go { supervisor, death }, _) => {
                    let memory = named.iter().position(|(name, _)| name == MEMORY);
                    let memory = memory.map(|at| named.swap_remove(at).1);
                    let left = Inherited::new(named);
                    return Ok((link, Start { supervisor, death, memory, left }));
                }
                _ => return Err(io::Error::other("the supervisor begins in the middle")),
            }
        }
    }

    /// What the supervisor says next; `None`: it is gone.
    pub fn hear(&self) -> io::Result<Option<(ToServer, Vec<OwnedFd>)>> {
        channel::receive(&*self.socket, true)
    }

    /// Says something; who does not hear it is gone.
    pub fn say(&self, message: &ToSupervisor) {
        if let Err(e) = channel::send(&*self.socket, message, &[]) {
            tracing::debug!("the supervisor does not hear: {e}");
        }
    }

    /// Says why there is no server.
    pub fn fail(&self, failure: &Failure) {
        self.say(&ToSupervisor::Failed { status: failure.status.code(), why: failure.message.clone() });
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

impl Keeper for Link {
    fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        channel::send(&*self.socket, &ToSupervisor::Keep(name.to_owned()), &[descriptor.as_fd()])
    }
}

/// Says whether a server of this program could go on with what is left.
pub fn check(options: Result<OptionList, String>) -> Result<(), Failure> {
    let (link, start) = Link::open().map_err(not_supervised)?;
    let memory = start.memory.ok_or_else(|| "there is no memory that servers share".to_owned());
    let can = options.and(memory).and_then(|memory| Takeover::check(memory).map_err(|e| e.to_string()));
    let outcome = can.map_err(|why| Failure::new(Status::MountFailed, why));
    match &outcome {
        Ok(()) => link.say(&ToSupervisor::Ready { survives: true, warnings: Vec::new() }),
        Err(failure) => link.fail(failure),
    }
    outcome
}

/// Without a conversation there is nothing to serve for.
pub fn not_supervised(e: io::Error) -> Failure {
    Failure::new(Status::MountUsage, format!("--supervised is for a supervisor to say: {e}"))
}
