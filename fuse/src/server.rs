//! A mount being served: the mount, its conversation, and one lane a core.

use crate::mount::{FuseOptions, Idle, IfBusy, Mount, Transport};
use crate::operations::Operations;
use crate::session::{Config, Features, Negotiated, Session, negotiate};
use crate::transport::awake::Awake;
use crate::transport::device::DevicePort;
use crate::transport::focus::Focus;
use crate::transport::uring::{self, UringPort};
use crate::transport::{Channel, Lane, LaneConfig, Port};
use crate::wire::notify::Notification;
use crate::wire::{Op, parse};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
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
    /// Bytes of what was written that the kernel keeps at the most, where it keeps any; `None` for its own limit.
    pub dirty_limit: Option<u64>,
}

/// A mount being served. Dropping it detaches the mount, cuts off who still uses it, and waits for what is in
/// flight.
pub struct Server<O: Operations> {
    mount: Mount,
    /// Those over `/dev/fuse`: one a core, or, where requests come through io_uring, one for the rest.
    lanes: Vec<Lane<DevicePort>>,
    queues: Vec<Lane<UringPort>>,
    transport: Transport,
    session: Arc<Session<O>>,
    notifier: Notifier,
}

impl<O: Operations> Server<O> {
    /// Mounts at `dir` and serves it from threads of its own.
    pub fn start(
        operations: Arc<O>,
        dir: &Path,
        options: &FuseOptions,
        config: &ServerConfig,
    ) -> io::Result<Self> {
        // The kernel says what it offers when the mount begins.
        let by_uring = offered(options.transport, &config.session)?;
        let (mount, fd) = Mount::new(dir, options)?;
        let cores = config.cores.clone().map_or_else(usable_cores, Ok)?;
        // Before the kernel is told of it: afterwards it waits for its queues to be served.
        let queues = match by_uring {
            true => queues(fd.as_fd(), &cores, options.transport, &config.session)?,
            false => Vec::new(),
        };
        let port = DevicePort::new(fd, config.session.max_write as usize);
        let wanted = Config { io_uring: !queues.is_empty(), ..config.session.clone() };
        let features = handshake(&port, &wanted)?;
        if let Err(e) = mount.set_readahead(config.session.max_readahead) {
            tracing::debug!("read-ahead stays as it is: {e}");
        }
        if let Some(bytes) = config.dirty_limit
            && let Err(e) = mount.set_dirty_limit(bytes)
        {
            tracing::debug!("how much the kernel keeps of what is written stays as it is: {e}");
        }
        let port = Arc::new(port.with_largest(features.max_write as usize));
        let session = Arc::new(Session::new(operations, features));
        let notifier = Notifier { channel: port.clone() };
        session.notified_by(&notifier);
        let mut server = Server {
            mount,
            lanes: Vec::new(),
            queues: Vec::new(),
            transport: Transport::Device,
            session,
            notifier,
        };
        let threads = || LaneConfig {
            on_thread_start: config.on_thread_start.clone(),
            awake: Awake::open(options.idle),
            ..LaneConfig::default()
        };
        let transport = if features.io_uring() && server.start_queues(queues, &port, &threads())? {
            Transport::Uring
        } else {
            let why = "transport=uring: this kernel does not serve FUSE through io_uring";
            if options.transport == Transport::Uring {
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
            server.start_lanes(&port, &cores, &threads(), options.idle)?;
            Transport::Device
        };
        server.session.served_by(transport);
        server.transport = transport;
        Ok(server)
    }

    fn start_lanes(
        &mut self,
        port: &Arc<DevicePort>,
        cores: &[usize],
        threads: &LaneConfig,
        idle: Idle,
    ) -> io::Result<()> {
        // To wake a client on a core that has halted takes longer than to serve it on its own.
        let may_watch = match idle {
            Idle::Auto => threads.awake.is_some(),
            Idle::Awake => true,
            Idle::Halt => false,
        };
        let focus = Arc::new(Focus::new(cores, may_watch));
        for (lane, &core) in cores.iter().enumerate() {
            // Where /dev/fuse cannot be opened again, the lanes share the first descriptor.
            let lane_port = match port.try_clone() {
                Ok(clone) => Arc::new(clone),
                Err(e) => {
                    tracing::debug!(core, "the descriptor is shared: {e}");
                    Arc::clone(port)
                }
            };
            let focus = Some((Arc::clone(&focus), lane));
            let config = LaneConfig { core: Some(core), focus, ..threads.clone() };
            self.lanes.push(Lane::start(lane_port, self.session.clone(), config)?);
        }
        keep_awake(threads);
        Ok(())
    }

    /// A lane for each queue, and one for what comes by `/dev/fuse` still. False: the kernel refuses a queue, and
    /// everything comes there.
    fn start_queues(
        &mut self,
        queues: Vec<(usize, UringPort)>,
        port: &Arc<DevicePort>,
        threads: &LaneConfig,
    ) -> io::Result<bool> {
        self.lanes.push(Lane::start(Arc::clone(port), self.session.clone(), threads.clone())?);
        let queues: Vec<_> = queues.into_iter().map(|(core, queue)| (core, Arc::new(queue))).collect();
        for (core, queue) in &queues {
            let config = LaneConfig { core: Some(*core), ..threads.clone() };
            self.queues.push(Lane::start(Arc::clone(queue), self.session.clone(), config)?);
        }
        keep_awake(threads);
        let registered = queues.iter().try_for_each(|(_, queue)| queue.wait_registered());
        Ok(registered.inspect_err(|e| tracing::warn!("the kernel refuses a queue: {e}")).is_ok())
    }

    /// What was agreed on with the kernel.
    pub fn features(&self) -> &Features {
        self.session.features()
    }

    /// How requests come: never [`Transport::Auto`].
    pub fn transport(&self) -> Transport {
        self.transport
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
        self.queues.iter().for_each(Lane::wait);
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

/// Sends notifications. It may be used from any thread that serves no request at the moment, and is no lane's: the
/// kernel may wait for pages, and deliver a request of io_uring in the thread that waits.
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

/// Starts the thread that keeps idle cores from halting, if the lanes ask one to; it ends with the first of them.
fn keep_awake(threads: &LaneConfig) {
    let Some(awake) = threads.awake.clone() else { return };
    let init = threads.on_thread_start.clone();
    let keep = move || {
        if let Some(init) = init {
            init();
        }
        awake.keep();
    };
    if let Err(e) = std::thread::Builder::new().name("naru-awake".to_owned()).spawn(keep) {
        tracing::debug!("idle cores halt while requests come: {e}");
    }
}

fn usable_cores() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// What serves the kernel's queues, each with its core: none if io_uring is not wanted or cannot be.
fn queues(
    device: BorrowedFd<'_>,
    cores: &[usize],
    transport: Transport,
    session: &Config,
) -> io::Result<Vec<(usize, UringPort)>> {
    match make_queues(device, cores, session) {
        Err(e) if transport == Transport::Auto => {
            tracing::debug!("requests come by /dev/fuse: {e}");
            Ok(Vec::new())
        }
        made => made.map_err(uring_failed),
    }
}

fn uring_failed(e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("transport=uring: {e}"))
}

/// Whether requests are to come through io_uring; has the kernel offer it where that is asked for.
fn offered(transport: Transport, session: &Config) -> io::Result<bool> {
    // A lock that is waited for keeps a place of its queue: as many as there are places, and the unlocking finds none.
    match transport {
        Transport::Device => Ok(false),
        Transport::Auto => Ok(!session.locks && uring::is_enabled().unwrap_or(false)),
        Transport::Uring if session.locks => {
            Err(uring_failed(io::Error::new(io::ErrorKind::InvalidInput, "it serves no locks")))
        }
        Transport::Uring => match uring::is_enabled() {
            Ok(true) => Ok(true),
            Ok(false) => uring::enable().map(|()| true).map_err(uring_failed),
            Err(_) => {
                let why = "it takes Linux 6.14 or later";
                Err(uring_failed(io::Error::new(io::ErrorKind::Unsupported, why)))
            }
        },
    }
}

/// A port for each core; the queues of cores that serve nobody are shared out among them.
fn make_queues(
    device: BorrowedFd<'_>,
    cores: &[usize],
    session: &Config,
) -> io::Result<Vec<(usize, UringPort)>> {
    let all = 0..uring::queues()?;
    let others: Vec<u16> = all.clone().filter(|queue| !cores.contains(&usize::from(*queue))).collect();
    let own: Vec<u16> = all.filter(|queue| cores.contains(&usize::from(*queue))).collect();
    let port = |(nth, queue): (usize, &u16)| {
        let share: Vec<u16> = others.iter().copied().skip(nth).step_by(own.len()).collect();
        let device = device.try_clone_to_owned()?;
        let port = UringPort::new(device, session.max_write as usize, *queue, &share)?;
        Ok((usize::from(*queue), port))
    };
    own.iter().enumerate().map(port).collect()
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
