//! The engine under the mount.
//!
//! `engine` is a file system as it is mounted, `operations` what is asked of it, `files` finds the file of a
//! request, `bytes` moves those of files, `failures` knows which thread was told of a failed write-back, `handles` has open
//! files by number, `inherited` answers for an earlier server of the mount, `names` says for how long the kernel may trust a name,
//! `dir_times` the same of a directory's attributes, `told` tells it of what changes behind its back, `recall` keeps its
//! page cache true beside writes that go past it, `unrecalled` notes of which files it is not yet, `apart` waits for that,
//! `locks` has those of the mount's users where the library's are,
//! `syncs` makes durable and answers then, `volume` answers what concerns the file system as a whole, `stats`
//! shows counters, `attributes` changes those of files, `convert` goes between the two worlds' types.
//!
//! What it leaves to others: everything that an operation does (`narufs_engine::vfs`), and, unless they are to be in common
//! with the library's, locks asked for by programs, which the kernel keeps by itself for all users of the mount.
//!
//! Invariant: nothing of the engine's is trusted for longer than [`Caching`] allows.

mod apart;
mod attributes;
mod bytes;
mod convert;
mod dir_times;
mod engine;
mod failures;
mod files;
mod handles;
mod inherited;
mod locks;
mod names;
mod operations;
mod recall;
mod stats;
mod syncs;
mod told;
mod unrecalled;
mod volume;

pub use engine::EngineOperations;

use crate::mount::process::{Hardening, drop_capabilities};
use crate::mount::{Broker, FuseOptions, Io, Permissions};
use crate::server::{Server, ServerConfig};
use crate::session::Config;
use crate::supervision::{Inherited, Supervision};
use narufs_engine::cache::available_memory;
use narufs_engine::vfs::Vfs;
use rustix::thread::CapabilitySet;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How long the kernel may trust what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// The mount is the only way in: the kernel sees every change itself.
    Exclusive,
    /// A program changes the file system through the library as well: the kernel is told of each change before the
    /// library's call returns. Where the server checks permissions it asks anew each time instead.
    Shared,
}

impl Caching {
    /// Whether the kernel may trust what it was told for as long as it is not told otherwise.
    fn trusts(self, permissions: Permissions) -> bool {
        self == Caching::Exclusive || permissions == Permissions::Kernel
    }
}

/// Mounts a file system at `dir` and serves it until it is unmounted.
///
/// A process may use the mount that it serves. If it is killed in the middle of a call on it, the thread that
/// waits for the answer keeps the process, and with it the connection, from ending, until the mount's
/// [guard](crate::mount::guard) cuts it off; where there is none, until somebody else does (`umount -f DIR`). To be
/// safe, a process uses its own file system through the library, and leaves the mount to others.
///
/// # Errors
/// Of the mount; or `InvalidInput` for [`Io::Cached`] with [`Caching::Shared`]: what the kernel keeps to itself the
/// library's readers would not see; or for permissions that the server is to check with [`Io::Cached`], or the kernel
/// with [`FuseOptions::xattr`] taken away; or for [`FuseOptions::root_as`] without the kernel's checks; or for [`FuseOptions::shares_locks`] with [`Caching::Exclusive`], or through
/// io_uring.
pub fn serve(
    fs: Arc<Vfs>,
    dir: &Path,
    options: &FuseOptions,
    caching: Caching,
) -> io::Result<Server<EngineOperations>> {
    let (operations, options, config) = prepare(fs, options, caching, &Process::default())?;
    let config = ServerConfig { stays: true, ..config };
    Server::start(operations, dir, &options, &config)
}

/// How a process that does nothing but serve stands to others.
#[derive(Debug, Default)]
pub struct Process {
    /// Where the mount is to outlive it.
    pub supervision: Option<Arc<Supervision>>,
    /// The mount that is there already, whose server is gone.
    pub left: Option<Inherited>,
    /// Who mounts and unmounts for it.
    pub broker: Option<Arc<dyn Broker>>,
    /// What it has given up.
    pub hardening: Hardening,
}

/// The same for a mount that nobody else enters, by a process that is there for nothing else.
///
/// # Errors
/// As of [`serve`]; or if what is left cannot be gone on with.
pub fn serve_alone(
    fs: Arc<Vfs>,
    dir: &Path,
    options: &FuseOptions,
    mut process: Process,
) -> io::Result<Server<EngineOperations>> {
    let left = process.left.take();
    let (operations, options, config) = prepare(fs, options, Caching::Exclusive, &process)?;
    match left {
        None => Server::start(operations, dir, &options, &config),
        Some(left) => Server::take_over(operations, dir, &options, &config, left),
    }
}

/// What is asked of the kernel where this is asked for. Where the server checks permissions, devices are not to be opened.
///
/// # Errors
/// Of what does not go together.
pub fn as_mounted(options: &FuseOptions, caching: Caching) -> io::Result<FuseOptions> {
    let mut options = options.clone();
    if options.io == Io::Cached {
        if caching == Caching::Shared {
            let why = "io=cached is for mounts that are the only way in";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // The kernel changes times by itself, and tells later: only it knows who may.
        if options.permissions == Some(Permissions::Server) {
            let why = "io=cached is for mounts whose permissions the kernel checks";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        options.permissions = Some(Permissions::Kernel);
    }
    if options.shares_locks && caching == Caching::Exclusive {
        let why = "locks in common are for mounts that are not the only way in";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let kernel_checks = options.permissions() == Permissions::Kernel;
    if kernel_checks && !options.xattr {
        let why =
            "noxattr is for mounts whose server checks permissions: the kernel would not see access lists";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // It would open devices without asking the server, for whoever may search the directory. mount(8) says `dev` unasked.
    options.dev &= kernel_checks;
    if !kernel_checks && options.root_as.is_some() {
        let why = "what is root's is another's for a kernel that checks permissions alone";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if options.max_read == 0 {
        options.max_read = Config::default().max_write;
    }
    Ok(options)
}

type Prepared = (Arc<EngineOperations>, FuseOptions, ServerConfig);

fn prepare(fs: Arc<Vfs>, options: &FuseOptions, caching: Caching, process: &Process) -> io::Result<Prepared> {
    let options = as_mounted(options, caching)?;
    let supervision = process.supervision.as_ref();
    let kernel_checks = options.permissions() == Permissions::Kernel;
    let usual = Config::default();
    let config = ServerConfig {
        session: Config {
            // Buffers are as large as the larger of the two.
            max_write: usual.max_write.max(options.max_read),
            // Who checks permissions must know access lists too.
            posix_acl: kernel_checks,
            auto_inval: !caching.trusts(options.permissions()),
            writeback_cache: options.io == Io::Cached,
            export: true,
            locks: options.shares_locks,
            // The parts of a long append are in their order by coming one after the other.
            async_dio: caching == Caching::Exclusive,
            ..usual
        },
        on_thread_start: Some(Arc::new(give_up_capabilities)),
        supervision: supervision.cloned(),
        broker: process.broker.clone(),
        dirty_limit: (options.io == Io::Cached).then(|| dirty_limit(available_memory())),
        ..ServerConfig::default()
    };
    let operations =
        EngineOperations::new(fs, caching, &options, supervision).hardened(process.hardening.clone());
    Ok((Arc::new(operations), options, config))
}

/// Bytes of what was written that the kernel may keep, of so much memory. Within a control group's memory limit dirty
/// pages are not the kernel's to take, and those of a FUSE file system it does not wait for either (who serves it may
/// need that memory): where they and the server fill the group, it ends a process. More than the most does not make
/// writing faster.
fn dirty_limit(memory: u64) -> u64 {
    const LEAST: u64 = 1 << 20;
    const MOST: u64 = 16 << 20;
    (memory / 24).clamp(LEAST, MOST)
}

/// What serves requests needs no privilege: the image is open, and permissions are judged by the callers'.
fn give_up_capabilities() {
    if let Err(e) = drop_capabilities(CapabilitySet::empty()) {
        tracing::warn!("capabilities are kept: {e}");
    }
}
