//! What a successor does first: it finishes what its predecessor had read and not answered.
//!
//! The kernel puts those requests back before all others when it is asked to, each with a bit in its number. They are
//! served one after the other, so that, should one of them end this server too, it is known which.
//!
//! Invariant: when this returns, each request that a predecessor has noted has been answered, or is one that the kernel
//! does not wait for any more.

use super::{Notifier, Server, ServerConfig, usable_cores};
use crate::mount::{FuseOptions, Idle, Mount};
use crate::operations::Operations;
use crate::session::is_replied_to;
use crate::supervision::{Agreed, Inherited, Supervision};
use crate::transport::device::DevicePort;
use crate::transport::{Channel, LaneConfig, Port, Reply, Service};
use crate::wire::notify::Notification;
use crate::wire::{InHeader, UNIQUE_RESEND};
use narufs_engine::planted::kill::{self, Kind, Serving, Step};
use narufs_engine::takeover::Phase;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

impl<O: Operations> Server<O> {
    /// Goes on with the mount at `dir`, whose server is gone: first with what was in flight, then as any other. `config` is
    /// as it was for that server, and has the memory that it has left.
    pub fn take_over(
        operations: Arc<O>,
        dir: &Path,
        options: &FuseOptions,
        config: &ServerConfig,
        inherited: Inherited,
    ) -> io::Result<Self> {
        let left = config.supervision.as_ref().and_then(|supervision| {
            let agreed = supervision.memory().session().as_ref().and_then(Agreed::from_bytes)?;
            Some((supervision, agreed))
        });
        let (supervision, agreed) =
            left.ok_or_else(|| io::Error::other("the server before has left no word"))?;
        let Agreed { features, device } = agreed;
        // Before there is a mount of this server's, which would end with what fails.
        let port = DevicePort::new(inherited.device, features.max_write as usize).inherited()?;
        let mount = Mount::inherited(dir, device, inherited.abort, config.broker.clone());
        let mut server = Server::new(operations, mount, port, features, Some(supervision), config.stays);
        match server.go_on(supervision, options.idle, config, inherited.clones) {
            Ok(()) => Ok(server),
            Err(e) => {
                server.leave();
                Err(e)
            }
        }
    }

    fn go_on(
        &mut self,
        supervision: &Supervision,
        idle: Idle,
        config: &ServerConfig,
        clones: Vec<(usize, OwnedFd)>,
    ) -> io::Result<()> {
        let cores = config.cores.clone().map_or_else(usable_cores, Ok)?;
        let threads = self.threads(config, idle);
        supervision.memory().enter(Phase::Draining);
        let begin = || -> io::Result<()> {
            let again = self.drain(&threads)?;
            supervision.memory().requests().forget_left();
            kill::step(Step::Drained);
            tracing::debug!(again, "requests were sent again");
            self.start_lanes(&cores, &threads, idle, clones)?;
            self.session.served_by(self.transport);
            Ok(())
        };
        let begun = begin();
        if begun.is_err() && self.is_supervised() {
            // As in `leave`: the end of the conversation would free files without names that the kernel has open.
            std::mem::forget(threads);
        }
        begun
    }

    /// Leaves the mount to the next server, which the supervisor starts when this process has ended; until then its threads
    /// serve what they have read. Where nobody keeps the mount it is ended.
    pub fn leave(self) {
        if self.is_supervised() {
            // Whatever takes it down would cut off who uses it.
            std::mem::forget(self);
        }
    }

    /// Serves what was in flight from a thread like those of the lanes.
    fn drain(&self, threads: &LaneConfig) -> io::Result<u64> {
        let serve = || {
            if let Some(init) = &threads.on_thread_start {
                init();
            }
            drain(&self.port, &*self.session)
        };
        let panicked = |_| Err(io::Error::other("what was in flight could not be served"));
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, serve)?;
            thread.join().unwrap_or_else(panicked)
        })
    }
}

/// Serves what was in flight, up to the first request that nobody has read before, with it. The number of those in flight.
fn drain(port: &Arc<DevicePort>, service: &dyn Service) -> io::Result<u64> {
    let channel: Arc<dyn Channel> = port.clone();
    kill::step(Step::Resending);
    if let Err(e) = Notifier::new(port).send(&Notification::Resend) {
        // The mount is gone: the first look says so.
        tracing::debug!("nothing is sent again: {e}");
    }
    let mut slot = port.slot();
    let mut again = 0;
    while port.look(&mut slot)? == Some(true) {
        let (request, buffer) = port.open(&mut slot);
        let Some((request, header)) = request.and_then(|request| Some((request, request.header()?))) else {
            tracing::error!("a request is shorter than it says; it is dropped");
            continue;
        };
        let _serving = Serving::of(Kind::of(header.opcode));
        kill::step(Step::Redelivered);
        let reply = Reply::new(header.unique, Arc::clone(&channel), buffer).timed(&header);
        if catch_unwind(AssertUnwindSafe(|| service.serve(request, reply))).is_err() {
            tracing::error!(
                opcode = header.opcode,
                "an operation panicked and was answered with EIO: report it"
            );
        }
        kill::step(Step::Redone);
        again += u64::from(header.unique & UNIQUE_RESEND != 0);
        if is_first(&header) {
            break;
        }
    }
    Ok(again)
}

/// Whether nobody has read this one before. What has no reply comes between others.
fn is_first(header: &InHeader) -> bool {
    header.unique & UNIQUE_RESEND == 0 && is_replied_to(header)
}
