//! A mounted file system: what the kernel may trust, and for how long, and how its files are opened.
//!
//! What this leaves to others: what each operation does ([`operations`](super::operations)).

use super::Caching;
use super::convert::{engine_open_flags, kernel_attr};
use super::dir_times::DirTimes;
use super::failures::Failures;
use super::files::PAST_CACHE;
use super::handles::Handles;
use super::locks::Waits;
use super::names::{LONG, Lease, Names};
use super::recall::Recalls;
use crate::mount::process::Hardening;
use crate::mount::{FuseOptions, Io, Permissions, Transport};
use crate::server::Notifier;
use crate::session::{Features, RequestContext, groups};
use crate::supervision::Supervision;
use crate::types::{Attr, Attributes, Entry, Opened};
use crate::wire::OpenFlags;
use narufs_engine::vfs::{self, Context, Vfs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// A file system as the mount serves it.
#[derive(Debug)]
pub struct EngineOperations {
    pub(super) fs: Arc<Vfs>,
    /// Since when it counts.
    pub(super) started: SystemTime,
    pub(super) open: Handles,
    /// Locks that are waited for, where they are not the kernel's to keep ([`locks`](super::locks)).
    pub(super) waits: Option<Waits>,
    /// Whether the kernel keeps open files to itself ([`files`](super::files)).
    pub(super) keeps_opens: AtomicBool,
    pub(super) failures: Arc<Failures>,
    pub(super) dir_times: DirTimes,
    pub(super) permissions: Permissions,
    /// Whether `fs.protected_hardlinks` is the server's to see to: the kernel asks who may read and write a file, and here that
    /// is the server.
    protects_links: bool,
    pub(super) caching: Caching,
    /// For how long the kernel may trust a name.
    pub(super) names: Names,
    /// For how long the kernel may trust attributes.
    attributes_hold: Duration,
    io: Io,
    /// User and group that what is root's is shown as.
    root_as: Option<(u32, u32)>,
    /// Nothing is changed through the mount, access times included, though the file system may be for changes.
    read_only: bool,
    /// Each read is to reach the server: it changes the access time.
    sees_reads: bool,
    pub(super) recalls: Arc<Recalls>,
    /// Whether extended attributes are to be had.
    pub(super) xattr: bool,
    pub(super) features: OnceLock<Features>,
    pub(super) transport: OnceLock<Transport>,
    /// Where the mount outlives its server.
    pub(super) supervision: Option<Arc<Supervision>>,
    pub(super) notifier: OnceLock<Notifier>,
    /// What this process has given up.
    pub(super) hardening: Hardening,
}

impl EngineOperations {
    /// Serves `fs` at a mount with these options, which outlives its server where there is supervision.
    pub fn new(
        fs: Arc<Vfs>,
        caching: Caching,
        options: &FuseOptions,
        supervision: Option<&Arc<Supervision>>,
    ) -> Self {
        let policy = fs.options();
        let is_successor = supervision.is_some_and(|supervision| supervision.memory().incarnation() > 0);
        EngineOperations {
            read_only: options.read_only,
            sees_reads: policy.atime == vfs::AtimePolicy::Strict && !policy.read_only && !options.read_only,
            // Programs that serve what they use share their locks with the mount.
            recalls: Arc::new(Recalls::new(
                !options.shares_locks,
                supervision.map(|supervision| Arc::clone(supervision.memory())),
            )),
            fs,
            started: SystemTime::now(),
            open: Handles::new(supervision.map_or(0, |supervision| supervision.memory().incarnation())),
            waits: options.shares_locks.then(Waits::default),
            keeps_opens: AtomicBool::new(false),
            failures: Arc::default(),
            dir_times: DirTimes::new(supervision.map(|supervision| Arc::clone(supervision.memory()))),
            permissions: options.permissions(),
            protects_links: options.permissions() == Permissions::Server && are_links_protected(),
            names: Names::new(caching, options.permissions(), is_successor),
            attributes_hold: if caching.trusts(options.permissions()) { LONG } else { Duration::ZERO },
            caching,
            io: options.io,
            root_as: options.root_as,
            xattr: options.xattr,
            features: OnceLock::new(),
            transport: OnceLock::new(),
            supervision: supervision.cloned(),
            notifier: OnceLock::new(),
            hardening: Hardening::default(),
        }
    }

    /// In a process that has given this up.
    pub fn hardened(self, hardening: Hardening) -> Self {
        EngineOperations { hardening, ..self }
    }

    /// The file system.
    pub fn fs(&self) -> &Arc<Vfs> {
        &self.fs
    }

    pub(super) fn caller(&self, ctx: &RequestContext<'_>, umask: u32) -> Context {
        let load = |caller: &Context| groups::groups(caller.pid, caller.uid, caller.gid).to_vec();
        let caller = Context::new(ctx.uid, ctx.gid, ctx.pid, umask, load).by_kernel();
        match self.permissions {
            Permissions::Kernel => caller.checked(),
            Permissions::Server if self.protects_links => caller.protecting_links(),
            Permissions::Server => caller,
        }
    }

    /// What was agreed on with the kernel says whether it keeps open files to itself.
    pub(super) fn agree(&self, features: &Features) {
        // A second INIT of one conversation does not exist; the first stands.
        let _ = self.features.set(*features);
        // Locks go with the close of a file: each is to be told.
        // So is what is opened to append where others do, too: such a file goes past the cache.
        let is_alone = self.caching == Caching::Exclusive && self.waits.is_none();
        let checks = self.permissions == Permissions::Kernel && is_alone;
        if checks && self.is_trusted() && !self.sees_reads && self.io != Io::Direct && features.no_open() {
            self.fs.closes_are_not_told();
            self.keeps_opens.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the kernel keeps open directories to itself.
    pub(super) fn kernel_keeps_directories(&self) -> bool {
        self.kernel_keeps_opens() && self.features.get().is_some_and(Features::no_opendir)
    }

    pub(super) fn entry(&self, entry: &vfs::Entry, lease: Lease) -> Entry {
        Entry {
            nodeid: entry.nid,
            generation: u64::from(entry.generation),
            attr: self.shown(&entry.attr),
            entry_timeout: lease.hold(),
            attr_timeout: self.hold_uncounted(&entry.attr),
        }
    }

    pub(super) fn attributes(&self, attr: &vfs::Attr) -> Attributes {
        Attributes { attr: self.shown(attr), timeout: self.hold(attr) }
    }

    /// Attributes that the kernel takes in whatever it was told meanwhile: see [`told`](super::told).
    pub(super) fn attributes_uncounted(&self, attr: &vfs::Attr) -> Attributes {
        Attributes { attr: self.shown(attr), timeout: self.hold_uncounted(attr) }
    }

    fn hold_uncounted(&self, attr: &vfs::Attr) -> Duration {
        if self.caching == Caching::Shared { Duration::ZERO } else { self.hold(attr) }
    }

    /// Attributes as the kernel takes them, which lets users in by them.
    fn shown(&self, attr: &vfs::Attr) -> Attr {
        let mut shown = kernel_attr(attr);
        if let Some((uid, gid)) = self.root_as {
            shown.uid = if shown.uid == 0 { uid } else { shown.uid };
            shown.gid = if shown.gid == 0 { gid } else { shown.gid };
        }
        shown
    }

    /// How long attributes may be trusted.
    ///
    /// A write by one who may not keep setuid takes it here, and the kernel does not learn of that from the
    /// answer: such a mode is asked for each time, lest a changed program run with it.
    ///
    /// A directory's times change with each name that is made in it: see [`dir_times`](super::dir_times). Where the
    /// server checks permissions nobody needs them.
    fn hold(&self, attr: &vfs::Attr) -> Duration {
        let format = attr.mode() & libc::S_IFMT;
        let setuid = attr.mode() & (libc::S_ISUID | libc::S_ISGID) != 0;
        match format {
            libc::S_IFREG if setuid => Duration::ZERO,
            libc::S_IFDIR if matches!(self.names, Names::Long) => {
                self.dir_times.hold(attr, || self.fs.getattr(attr.nid).ok())
            }
            libc::S_IFDIR => Duration::ZERO,
            _ => self.attributes_hold,
        }
    }

    /// Whether the kernel may trust what it was told for as long as it is not told otherwise.
    fn is_trusted(&self) -> bool {
        !self.attributes_hold.is_zero()
    }

    /// What the kernel may do with an open file.
    pub(super) fn opened(&self, handle: vfs::FileHandle, flags: i32) -> Opened {
        let fh = if self.kernel_keeps_opens() {
            self.fs.release(handle, None);
            if self.is_made_past_cache(flags) { PAST_CACHE } else { 0 }
        } else {
            self.open.insert(&self.fs, self.as_served(handle))
        };
        Opened { fh, flags: self.kernel_flags(flags) }
    }

    /// A file or directory as it may be read through the mount.
    pub(super) fn as_served(&self, handle: vfs::FileHandle) -> vfs::FileHandle {
        if self.read_only { handle.keeping_atime() } else { handle }
    }

    /// How the kernel is to treat a file opened so.
    pub(super) fn kernel_flags(&self, flags: i32) -> OpenFlags {
        let keeps_opens = self.kernel_keeps_opens();
        let is_past_cache = if keeps_opens { self.is_made_past_cache(flags) } else { self.is_direct(flags) };
        let mut kernel = OpenFlags::empty();
        if is_past_cache {
            kernel |= OpenFlags::DIRECT_IO | OpenFlags::PARALLEL_DIRECT_WRITES;
        } else if self.is_trusted() && !self.sees_reads {
            kernel |= OpenFlags::KEEP_CACHE;
        }
        // A close has nothing to write (the kernel writes what was mapped when the map goes) and no locks to give
        // back, where they are the kernel's own, and that a write failed is fsync's to tell.
        kernel.set(OpenFlags::NOFLUSH, self.waits.is_none());
        kernel
    }

    /// Whether a file opened so goes past the kernel's page cache. Without a kernel that maps such files shared,
    /// the kernel's own way for O_DIRECT is taken, which does not write in parallel; who asks for all files to
    /// go past it prefers that to maps. Where each read has to be seen all files go past it, if they can be mapped;
    /// else the first read after each open is seen.
    pub(super) fn is_direct(&self, flags: i32) -> bool {
        let asked = flags & libc::O_DIRECT != 0 || self.sees_reads;
        let maps = || self.features.get().is_some_and(Features::direct_io_allows_mmap);
        // Through its cache the kernel says where the end was when it last asked.
        let appends = || self.finds_the_end(flags) && (flags & libc::O_ACCMODE == libc::O_WRONLY || maps());
        self.io == Io::Direct || appends() || asked && maps()
    }

    /// Whether the kernel keeps what is written, and with it sizes and times, until it sees fit.
    pub(super) fn kernel_keeps_writes(&self) -> bool {
        self.features.get().is_some_and(Features::writeback_cache)
    }

    /// The flags to open a file with in the engine.
    pub(super) fn open_flags(&self, flags: i32) -> vfs::OpenFlags {
        let mut wanted = engine_open_flags(flags, self.is_direct(flags));
        // Each write says whether it goes to the end: fcntl(2) changes that of an open file.
        wanted.remove(vfs::OpenFlags::APPEND);
        wanted.set(vfs::OpenFlags::FILLS_CACHE, self.kernel_keeps_writes());
        wanted.set(vfs::OpenFlags::KERNEL_CACHES, !self.is_direct(flags));
        wanted
    }
}

/// What `fs.protected_hardlinks` says as the mount begins; where that is not told, it is as most systems have it.
fn are_links_protected() -> bool {
    std::fs::read("/proc/sys/fs/protected_hardlinks").map_or(true, |said| said.trim_ascii() != b"0")
}
