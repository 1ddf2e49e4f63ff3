//! A mount being served: the mount, its conversation, and one lane a core.
//!
//! A server begins with a new mount ([`Server::start`], `handshake`), or goes on with one whose server is gone
//! ([`Server::take_over`], in `drain`). `queues` has requests come through io_uring.

mod drain;
mod handshake;
mod queues;

use crate::mount::guard::Guard;
use crate::mount::{Broker, FuseOptions, Idle, IfBusy, Mount, Transport};
use crate::operations::Operations;
use crate::session::{Config, Features, Session};
use crate::supervision::{ABORT, Agreed, DEVICE, Supervision, clone_name};
use crate::sys;
use crate::transport::awake::Awake;
use crate::transport::device::DevicePort;
use crate::transport::ending::Ending;
use crate::transport::focus::Focus;
use crate::transport::uring::UringPort;
use crate::transport::{Channel, Lane, LaneConfig, Port};
use crate::wire::notify::Notification;
use handshake::handshake;
use narufs_engine::planted::{self, Bug};
use narufs_engine::takeover::Phase;
use queues::{offered, queues};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

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
    /// Where the mount is to outlive this process. Its requests come through `/dev/fuse` then.
    pub supervision: Option<Arc<Supervision>>,
    /// Whether this process is there for more than the mount, and goes on when that has ended.
    pub stays: bool,
    /// Who mounts and unmounts, if not this process.
    pub broker: Option<Arc<dyn Broker>>,
}

/// A mount being served. Dropping it detaches the mount, cuts off who still uses it, and waits for what is in
/// flight.
pub struct Server<O: Operations> {
    mount: Mount,
    /// The first descriptor.
    port: Arc<DevicePort>,
    /// Those over `/dev/fuse`: one a core, or, where requests come through io_uring, one for the rest.
    lanes: Vec<Lane<DevicePort>>,
    queues: Vec<Lane<UringPort>>,
    transport: Transport,
    session: Arc<Session<O>>,
    notifier: Notifier,
    /// Where the mount outlives this process.
    supervision: Option<Arc<Supervision>>,
    /// Where nothing else can cut it off.
    ending: Option<Arc<Ending>>,
    /// Where this process is there for more than the mount. Dropped when that has ended.
    guard: Option<Guard>,
}

impl<O: Operations> Server<O> {
    /// Mounts at `dir` and serves it from threads of its own.
    pub fn start(
        operations: Arc<O>,
        dir: &Path,
        options: &FuseOptions,
        config: &ServerConfig,
    ) -> io::Result<Self> {
        let supervision = config.supervision.as_ref();
        // The kernel says what it offers when the mount begins.
        let by_uring = supervision.is_none() && offered(options.transport, &config.session)?;
        let (mount, fd) = Mount::new(dir, options, config.broker.clone())?;
        if let Some(supervision) = supervision {
            supervision.keep(DEVICE, fd.as_fd());
            if let Some(abort) = mount.abort_file() {
                supervision.keep(ABORT, abort);
            }
        }
        let cores = config.cores.clone().map_or_else(usable_cores, Ok)?;
        // Before the kernel is told of it: afterwards it waits for its queues to be served.
        let queues = match by_uring {
            true => queues(fd.as_fd(), &cores, options.transport, &config.session)?,
            false => Vec::new(),
        };
        // A process that is there for nothing else ends with its mount, and that is an end too.
        let can_be_cut = !config.stays || mount.abort_file().is_some() || !queues.is_empty();
        let ending = if can_be_cut { None } else { Some(Arc::new(Ending::new()?)) };
        let port = DevicePort::new(fd, config.session.max_write as usize).ended_by(ending.clone());
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
        let supervision = supervision.filter(|supervision| {
            if features.resends() {
                supervision.memory().set_session(Agreed { features, device: mount.device() }.to_bytes());
            } else {
                supervision.is_left_alone();
            }
            features.resends()
        });
        let port = port.with_largest(features.max_write as usize);
        let mut server = Server::new(operations, mount, port, features, supervision, config.stays);
        server.ending = ending;
        server.guard = config.stays.then(|| server.guarded()).flatten();
        let threads = server.threads(config, options.idle);
        if features.io_uring() && server.start_queues(queues, &threads)? {
            server.transport = Transport::Uring;
        } else {
            let why = "transport=uring: this kernel does not serve FUSE through io_uring";
            if options.transport == Transport::Uring {
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
            server.start_lanes(&cores, &threads, options.idle, Vec::new())?;
        }
        server.session.served_by(server.transport);
        Ok(server)
    }

    fn new(
        operations: Arc<O>,
        mount: Mount,
        port: DevicePort,
        features: Features,
        supervision: Option<&Arc<Supervision>>,
        stays: bool,
    ) -> Self {
        let port = Arc::new(if supervision.is_some() { port.pinned() } else { port });
        let session = Session::new(operations, features).supervised(supervision.cloned());
        let session = Arc::new(session.beside_others(stays));
        let notifier = Notifier::new(&port);
        session.notified_by(&notifier);
        session.measures(port.latencies());
        let (lanes, queues, transport) = (Vec::new(), Vec::new(), Transport::Device);
        let supervision = supervision.cloned();
        let (ending, guard) = (None, None);
        Server { mount, port, lanes, queues, transport, session, notifier, supervision, ending, guard }
    }

    /// Who cuts the mount off if this process is killed.
    fn guarded(&self) -> Option<Guard> {
        let guard = Guard::begin(self.mount.abort_file()?);
        guard
            .inspect_err(|e| tracing::debug!("nobody cuts the mount off if this process is killed: {e}"))
            .ok()
    }

    /// How its lanes are run. Whoever has this keeps the conversation from ending with the last of them.
    fn threads(&self, config: &ServerConfig, idle: Idle) -> LaneConfig {
        LaneConfig {
            on_thread_start: config.on_thread_start.clone(),
            awake: Awake::open(idle),
            held: Some(Arc::new(Conversation(Arc::clone(&self.session), Arc::clone(&self.port)))),
            ..LaneConfig::default()
        }
    }

    /// `clones`: those that a predecessor has left, by the numbers of their lanes.
    fn start_lanes(
        &mut self,
        cores: &[usize],
        threads: &LaneConfig,
        idle: Idle,
        mut clones: Vec<(usize, OwnedFd)>,
    ) -> io::Result<()> {
        if let Some(supervision) = &self.supervision {
            supervision.memory().enter(Phase::Serving);
        }
        // To wake a client on a core that has halted takes longer than to serve it on its own.
        let may_watch = match idle {
            Idle::Auto => threads.awake.is_some(),
            Idle::Awake => true,
            Idle::Halt => false,
        };
        let focus = Arc::new(Focus::new(cores, may_watch));
        for (lane, &core) in cores.iter().enumerate() {
            let left = clones.iter().position(|(number, _)| *number == lane);
            let lane_port = self.lane_port(lane, left.map(|at| clones.swap_remove(at).1))?;
            self.session.measures(lane_port.latencies());
            let focus = Some((Arc::clone(&focus), lane));
            let config = LaneConfig { core: Some(core), focus, ..threads.clone() };
            self.lanes.push(Lane::start(lane_port, self.session.clone(), config)?);
        }
        keep_awake(threads);
        Ok(())
    }

    fn lane_port(&self, lane: usize, left: Option<OwnedFd>) -> io::Result<Arc<DevicePort>> {
        if let Some(left) = left {
            return Ok(Arc::new(self.port.lane_over(left).inherited()?));
        }
        // Where /dev/fuse cannot be opened again, the lanes share the first descriptor.
        Ok(match self.port.try_clone() {
            Ok(clone) => {
                if let Some(supervision) = &self.supervision
                    && !planted::is(Bug::CloneNotKept)
                {
                    supervision.keep(&clone_name(lane), clone.as_fd());
                }
                Arc::new(clone)
            }
            Err(e) => {
                tracing::debug!(lane, "the descriptor is shared: {e}");
                Arc::clone(&self.port)
            }
        })
    }

    /// A lane for each queue, and one for what comes by `/dev/fuse` still. False: the kernel refuses a queue, and
    /// everything comes there.
    fn start_queues(&mut self, queues: Vec<(usize, UringPort)>, threads: &LaneConfig) -> io::Result<bool> {
        self.lanes.push(Lane::start(Arc::clone(&self.port), self.session.clone(), threads.clone())?);
        let queues: Vec<_> = queues.into_iter().map(|(core, queue)| (core, Arc::new(queue))).collect();
        for (core, queue) in &queues {
            self.session.measures(queue.latencies());
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

    /// Whether the mount outlives this process: somebody keeps it, and the kernel can send requests again.
    pub fn is_supervised(&self) -> bool {
        self.supervision.as_ref().is_some_and(|supervision| supervision.supervisor() != 0)
    }

    /// Where it is mounted.
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    /// Tells the kernel to drop what it has cached.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Its counters, for a thread of this process.
    pub fn counters(&self) -> Counters<O> {
        Counters { session: Arc::clone(&self.session) }
    }

    /// Waits until the mount is gone and everything in flight is finished, then ends the conversation.
    pub fn wait(&self) {
        self.queues.iter().for_each(Lane::wait);
        self.lanes.iter().for_each(Lane::wait);
        self.session.destroy();
    }

    /// Ends the mount; [`Server::wait`] then returns when its last user has gone, who is cut off by [`IfBusy::Abort`].
    pub fn unmount(&self, busy: IfBusy) -> io::Result<()> {
        let unmounted = self.mount.unmount(busy);
        match &self.ending {
            Some(ending) if busy == IfBusy::Abort => {
                ending.come();
                // It ends, though nobody else can have it end.
                unmounted.or_else(|e| if e.kind() == io::ErrorKind::Unsupported { Ok(()) } else { Err(e) })
            }
            _ => unmounted,
        }
    }
}

impl<O: Operations> Drop for Server<O> {
    fn drop(&mut self) {
        // A connection that is gone is not cut: its number may be another mount's by now.
        let gone = self.lanes.iter().any(Lane::is_over);
        if gone {
            self.mount.has_ended();
        }
        // Its lanes end where it is cut off, whatever is said of the mount.
        let is_cut = gone || self.mount.abort().is_ok();
        let ended = self.unmount(if gone { IfBusy::Detach } else { IfBusy::Abort });
        if let Err(e) = &ended {
            tracing::error!("{} could not be ended: {e}", self.mount.point().display());
        }
        if let Some(ending) = &self.ending {
            ending.come();
        }
        // Its threads would wait for ever where nothing has ended it.
        if ended.is_ok() || is_cut || self.ending.is_some() {
            self.wait();
        }
    }
}

/// Ends the conversation when the last lane has ended, however long the server is kept: those who were cut off have
/// nothing open or locked any more.
struct Conversation<O: Operations>(Arc<Session<O>>, Arc<DevicePort>);

impl<O: Operations> Drop for Conversation<O> {
    fn drop(&mut self) {
        self.0.destroy();
        self.1.end();
    }
}

/// Reads the counters of a mount that this process serves. Nothing is to be read once the file system below is taken down.
pub struct Counters<O> {
    pub(crate) session: Arc<Session<O>>,
}

/// Sends notifications. It may be used from any thread that serves no request at the moment, and is no lane's: the
/// kernel may wait for pages, and deliver a request of io_uring in the thread that waits.
#[derive(Clone)]
pub struct Notifier {
    port: Arc<DevicePort>,
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}

impl Notifier {
    /// One over this port.
    pub(crate) fn new(port: &Arc<DevicePort>) -> Notifier {
        Notifier { port: Arc::clone(port) }
    }

    /// Sends one; ENOENT only says that the kernel had nothing cached.
    pub fn send(&self, notification: &Notification<'_>) -> io::Result<()> {
        let (code, bytes) = notification.encode();
        self.port.send(0, code, &[&bytes])
    }

    /// Gives the calling thread, which takes no signals any more, a table of descriptors of its own, in which is what this
    /// sends over alone, for as long as it keeps what it gets. To be called by a thread that owns no other.
    ///
    /// # Errors
    /// Those of the calls: then it may have no descriptors at all.
    pub(crate) fn alone(&self) -> io::Result<OwnedFd> {
        sys::alone_with(self.port.as_fd())
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

#[cfg(test)]
mod tests;
