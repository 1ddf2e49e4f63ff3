//! A mount being served: the mount, its conversation, and one lane a core.

use crate::mount::{IfBusy, Mount, MountOptions};
use crate::operations::Operations;
use crate::session::{Config, Features, Negotiated, Session, negotiate};
use crate::transport::device::DevicePort;
use crate::transport::focus::Focus;
use crate::transport::{Channel, Lane, LaneConfig, Port, Service};
use crate::wire::notify::Notification;
use crate::wire::{Op, parse};
use std::io;
use std::path::Path;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// How a mount is served.
#[derive(Clone, Default)]
pub struct ServerConfig {
    /// What to agree on with the kernel.
    pub session: Config,
    /// The cores to serve on, one lane each; `None` for all that the process may use.
    pub cores: Option<Vec<usize>>,
    /// Called by each serving thread when it starts.
    pub on_thread_start: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// A mount being served. Dropping it detaches the mount, cuts off who still uses it, and waits for what is in
/// flight.
pub struct Server<O: Operations> {
    mount: Mount,
    lanes: Vec<Lane<DevicePort>>,
    session: Arc<Session<O>>,
    notifier: Notifier,
}

impl<O: Operations> Server<O> {
    /// Mounts at `dir` and serves it from threads of its own.
    pub fn start(
        operations: Arc<O>,
        dir: &Path,
        options: &MountOptions,
        config: &ServerConfig,
    ) -> io::Result<Self> {
        let (mount, fd) = Mount::new(dir, options)?;
        let port = DevicePort::new(fd, config.session.max_write as usize);
        let features = handshake(&port, &config.session)?;
        if let Err(e) = mount.set_readahead(config.session.max_readahead) {
            tracing::debug!("read-ahead stays as it is: {e}");
        }
        let port = Arc::new(port.with_largest(features.max_write as usize));
        let session = Arc::new(Session::new(operations, features));
        let notifier = Notifier { channel: port.clone() };
        let mut server = Server { mount, lanes: Vec::new(), session, notifier };
        let cores = config.cores.clone().map_or_else(usable_cores, Ok)?;
        let focus = Arc::new(Focus::new(&cores));
        for (lane, core) in cores.into_iter().enumerate() {
            // Where /dev/fuse cannot be opened again, the lanes share the first descriptor.
            let lane_port = match port.try_clone() {
                Ok(clone) => Arc::new(clone),
                Err(e) => {
                    tracing::debug!(core, "the descriptor is shared: {e}");
                    Arc::clone(&port)
                }
            };
            let config = LaneConfig {
                core: Some(core),
                on_thread_start: config.on_thread_start.clone(),
                focus: Some((Arc::clone(&focus), lane)),
            };
            let service: Arc<dyn Service> = server.session.clone();
            server.lanes.push(Lane::start(lane_port, service, config)?);
        }
        Ok(server)
    }

    /// What was agreed on with the kernel.
    pub fn features(&self) -> &Features {
        self.session.features()
    }

    /// Where it is mounted.
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    /// Tells the kernel to drop what it has cached.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Waits until the mount is gone and everything in flight is finished, then ends the conversation.
    pub fn wait(&self) {
        self.lanes.iter().for_each(Lane::wait);
        self.session.destroy();
    }

    /// Ends the mount; [`Server::wait`] then returns when its last user has gone.
    pub fn unmount(&self, busy: IfBusy) -> io::Result<()> {
        self.mount.unmount(busy)
    }
}

impl<O: Operations> Drop for Server<O> {
    fn drop(&mut self) {
        // A connection that is gone is not cut: its number may be another mount's by now.
        let gone = self.lanes.iter().any(Lane::is_over);
        match self.mount.unmount(if gone { IfBusy::Detach } else { IfBusy::Abort }) {
            Ok(()) => self.wait(),
            // Its threads would wait for ever.
            Err(e) => tracing::error!("{} could not be ended: {e}", self.mount.point().display()),
        }
    }
}

/// Sends notifications. It may be used from any thread that serves no request at the moment.
#[derive(Clone)]
pub struct Notifier {
    channel: Arc<dyn Channel>,
}

impl Notifier {
    /// Sends one; ENOENT only says that the kernel had nothing cached.
    pub fn send(&self, notification: &Notification<'_>) -> io::Result<()> {
        let (code, bytes) = notification.encode();
        self.channel.send(0, code, &[&bytes])
    }
}

fn usable_cores() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// Answers INIT, which is the first request of every mount.
fn handshake(port: &DevicePort, config: &Config) -> io::Result<Features> {
    let mut slot = port.slot();
    while port.receive(&mut slot)? {
        let (request, _) = port.open(&mut slot);
        let Some(Ok((header, op, _))) = request.map(|request| parse(request, true)) else { continue };
        let Op::Init { args, flags2 } = op else {
            port.send(header.unique, -libc::EIO, &[])?;
            continue;
        };
        match negotiate(config, &args, flags2) {
            Negotiated::Agreed(features, answer) => {
                port.send(header.unique, 0, &[answer.as_bytes()])?;
                tracing::debug!(?features, "mounted");
                return Ok(features);
            }
            Negotiated::AskAgain(answer) => port.send(header.unique, 0, &[answer.as_bytes()])?,
            Negotiated::Refused(why) => {
                port.send(header.unique, -libc::EPROTO, &[])?;
                return Err(io::Error::other(why));
            }
        }
    }
    Err(io::Error::other("the mount was ended before it was served"))
}
