//! The engine's operations as the mount serves them.
//!
//! An inode's number is the kernel's node id, and the root's are the same. An open file is a [`handles`] entry.
//! Permissions are the engine's to check; with `default_permissions` the kernel has checked them before.
//!
//! What it leaves to others: everything that an operation does (`narufs::vfs`), and locks asked for by programs,
//! which the kernel keeps by itself for all users of the mount.
//!
//! Invariants: a lookup count that the engine has raised is either told to the kernel or given back; nothing of
//! the engine's is trusted for longer than [`Caching`] allows.

mod convert;
mod handles;

use crate::control::STATS;
use crate::mount::MountOptions;
use crate::mount::process::drop_capabilities;
use crate::operations::{Ioctl, NewNode, Operations, Release, Write};
use crate::server::{Server, ServerConfig};
use crate::session::{Config, Features, RequestContext, groups};
use crate::types::{Attributes, Entry, Errno, Opened, Result, SetAttr};
use crate::wire::dirent::DirSink;
use crate::wire::{CopyFileRangeIn, OpenFlags, ReadIn, ReleaseFlags, StatfsOut, StatxOut, WriteFlags};
use convert::{birth_of, engine_attributes, engine_open_flags, engine_write_flags, kernel_attr, statfs_out};
use handles::Handles;
use narufs::vfs::{self, Context, FallocateMode, Fs, Whence, XattrMode};
use rustix::thread::CapabilitySet;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long the kernel may trust what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// The mount is the only way in: the kernel sees every change itself.
    Exclusive,
    /// A program changes the file system through the library as well: the kernel asks anew each time.
    Shared,
}

/// What `narufs stats` shows of a mount.
#[derive(serde::Serialize)]
struct ServedStats {
    server_pid: u32,
    #[serde(flatten)]
    stats: narufs::stats::Stats,
}

/// As good as for ever.
const LONG: Duration = Duration::from_secs(24 * 3600);
/// For attributes of directories, where the kernel checks permissions by them.
const DIRECTORY_HOLD: Duration = Duration::from_secs(1);

/// A file system as the mount serves it.
#[derive(Debug)]
pub struct EngineOperations {
    fs: Arc<Fs>,
    open: Handles,
    /// For how long the kernel may trust a name.
    names_hold: Duration,
    /// For how long the kernel may trust attributes.
    attributes_hold: Duration,
    features: OnceLock<Features>,
}

/// Mounts a file system at `dir` and serves it until it is unmounted.
pub fn serve(
    fs: Arc<Fs>,
    dir: &Path,
    options: &MountOptions,
    caching: Caching,
) -> io::Result<Server<EngineOperations>> {
    let mut options = options.clone();
    let mut config = ServerConfig {
        session: Config {
            // With `default_permissions` the kernel must know access lists too; without, the engine judges.
            posix_acl: options.default_permissions,
            auto_inval: caching == Caching::Shared,
            export: true,
            ..Config::default()
        },
        on_thread_start: Some(Arc::new(give_up_capabilities)),
        ..ServerConfig::default()
    };
    if options.max_read == 0 {
        options.max_read = config.session.max_write;
    } else {
        // Buffers are as large as the larger of the two.
        config.session.max_write = config.session.max_write.max(options.max_read);
    }
    let operations = EngineOperations::new(fs, caching, options.default_permissions);
    Server::start(Arc::new(operations), dir, &options, &config)
}

/// What serves requests needs no privilege: the image is open, and permissions are judged by the callers'.
fn give_up_capabilities() {
    if let Err(e) = drop_capabilities(CapabilitySet::empty()) {
        tracing::warn!("capabilities are kept: {e}");
    }
}

impl EngineOperations {
    /// Serves `fs`. `default_permissions`: the kernel checks permissions before it asks.
    pub fn new(fs: Arc<Fs>, caching: Caching, default_permissions: bool) -> Self {
        let attributes_hold = if caching == Caching::Exclusive { LONG } else { Duration::ZERO };
        // The kernel does not check search permission on names that it has cached unless it checks all
        // permissions: another user could walk through a directory that only its owner may search.
        let names_hold = if default_permissions { attributes_hold } else { Duration::ZERO };
        EngineOperations {
            fs,
            open: Handles::default(),
            names_hold,
            attributes_hold,
            features: OnceLock::new(),
        }
    }

    /// The file system.
    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    fn caller(&self, ctx: &RequestContext<'_>, umask: u32) -> Context {
        let load = |caller: &Context| groups::groups(caller.pid, caller.uid, caller.gid).to_vec();
        Context::new(ctx.uid, ctx.gid, ctx.pid, umask, load)
    }

    fn entry(&self, entry: &vfs::Entry) -> Entry {
        Entry {
            nodeid: entry.nid,
            generation: u64::from(entry.generation),
            attr: kernel_attr(&entry.attr),
            entry_timeout: self.names_hold,
            attr_timeout: self.hold(&entry.attr),
        }
    }

    fn attributes(&self, attr: &vfs::Attr) -> Attributes {
        Attributes { attr: kernel_attr(attr), timeout: self.hold(attr) }
    }

    /// How long attributes may be trusted.
    ///
    /// A write by one who may not keep setuid takes it here, and the kernel does not learn of that from the
    /// answer: such a mode is asked for each time, lest a changed program run with it.
    ///
    /// A directory's times change with each name that is made in it. The kernel then forgets what it knew, but
    /// an answer that was given just before and arrives just after brings the old times back for as long as
    /// they may be trusted. A walk along names that are not trusted asks for each directory anyway.
    fn hold(&self, attr: &vfs::Attr) -> Duration {
        let format = attr.mode() & libc::S_IFMT;
        let setuid = attr.mode() & (libc::S_ISUID | libc::S_ISGID) != 0;
        match format {
            libc::S_IFREG if setuid => Duration::ZERO,
            libc::S_IFDIR => self.names_hold.min(DIRECTORY_HOLD),
            _ => self.attributes_hold,
        }
    }

    /// What the kernel may do with an open file.
    fn opened(&self, handle: vfs::FileHandle, flags: i32) -> Opened {
        let mut kernel = OpenFlags::empty();
        if self.is_direct(flags) {
            kernel |= OpenFlags::DIRECT_IO | OpenFlags::PARALLEL_DIRECT_WRITES;
        } else if !self.attributes_hold.is_zero() {
            kernel |= OpenFlags::KEEP_CACHE;
        }
        if !vfs::OpenFlags::from_kernel(flags as u32).writes() {
            // Nothing that its close could tell.
            kernel |= OpenFlags::NOFLUSH;
        }
        Opened { fh: self.open.insert(&self.fs, handle), flags: kernel }
    }

    /// Whether a file opened so goes past the kernel's page cache. Without a kernel that maps such files shared,
    /// the kernel's own way for O_DIRECT is taken, which does not write in parallel.
    fn is_direct(&self, flags: i32) -> bool {
        flags & libc::O_DIRECT != 0 && self.features.get().is_some_and(Features::direct_io_allows_mmap)
    }

    fn list(&self, fh: u64, offset: u64, each: &mut dyn FnMut(&vfs::DirEntry<'_>) -> bool) -> Result<()> {
        Ok(self.fs.readdir(&*self.open.get(fh)?, offset, each)?)
    }
}

impl Operations for EngineOperations {
    fn init(&self, features: &Features) {
        // A second INIT of one conversation does not exist; the first stands.
        let _ = self.features.set(*features);
    }

    fn destroy(&self) {
        self.open.clear();
        self.fs.forget_all();
    }

    fn lookup(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<Entry> {
        let found = match name {
            // By these names NFS asks for an inode and for its parent.
            b"." => self.fs.by_handle(parent, None),
            b".." => self.fs.parent(parent),
            _ => self.fs.lookup(&self.caller(ctx, 0), parent, name),
        };
        match found {
            Ok(entry) => Ok(self.entry(&entry)),
            Err(e) if e.errno() == libc::ENOENT && !self.names_hold.is_zero() => {
                Ok(Entry::negative(self.names_hold))
            }
            Err(e) => Err(e.into()),
        }
    }

    fn ioctl(&self, _: &RequestContext<'_>, _: u64, call: &Ioctl<'_>) -> Result<Vec<u8>> {
        if call.command != STATS {
            return Err(Errno(libc::ENOTTY));
        }
        let stats = ServedStats { server_pid: std::process::id(), stats: self.fs.stats()? };
        serde_json::to_vec(&stats).map_err(|_| Errno(libc::EIO))
    }

    fn forget(&self, nodeid: u64, count: u64) {
        self.fs.forget(nodeid, count);
    }

    fn getattr(&self, _: &RequestContext<'_>, nodeid: u64, _: Option<u64>) -> Result<Attributes> {
        Ok(self.attributes(&self.fs.getattr(nodeid)?))
    }

    fn statx(&self, _: &RequestContext<'_>, nodeid: u64, _: Option<u64>, _: u32) -> Result<StatxOut> {
        let attr = self.fs.getattr(nodeid)?;
        Ok(StatxOut::with_birth(&self.attributes(&attr), birth_of(&attr)))
    }

    fn setattr(&self, ctx: &RequestContext<'_>, nodeid: u64, change: &SetAttr) -> Result<Attributes> {
        let open = change.fh.map(|fh| self.open.get(fh)).transpose()?;
        let change = engine_attributes(change);
        Ok(self.attributes(&self.fs.setattr(
            &self.caller(ctx, 0),
            nodeid,
            open.as_deref().map(|o| &**o),
            &change,
        )?))
    }

    fn readlink(&self, _: &RequestContext<'_>, nodeid: u64) -> Result<Vec<u8>> {
        Ok(self.fs.readlink(nodeid)?)
    }

    fn symlink(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        Ok(self.entry(&self.fs.symlink(&self.caller(ctx, 0), parent, name, target)?))
    }

    fn mknod(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], new: &NewNode) -> Result<Entry> {
        Ok(self.entry(&self.fs.mknod(&self.caller(ctx, new.umask), parent, name, new.mode, new.rdev)?))
    }

    fn mkdir(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], new: &NewNode) -> Result<Entry> {
        Ok(self.entry(&self.fs.mkdir(&self.caller(ctx, new.umask), parent, name, new.mode)?))
    }

    fn unlink(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<()> {
        Ok(self.fs.unlink(&self.caller(ctx, 0), parent, name)?)
    }

    fn rmdir(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<()> {
        Ok(self.fs.rmdir(&self.caller(ctx, 0), parent, name)?)
    }

    fn rename(
        &self,
        ctx: &RequestContext<'_>,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
    ) -> Result<()> {
        let flags = vfs::RenameFlags::from_bits(flags).ok_or(Errno(libc::EINVAL))?;
        Ok(self.fs.rename(&self.caller(ctx, 0), from.0, from.1, to.0, to.1, flags)?)
    }

    fn link(&self, ctx: &RequestContext<'_>, nodeid: u64, parent: u64, name: &[u8]) -> Result<Entry> {
        Ok(self.entry(&self.fs.link(&self.caller(ctx, 0), nodeid, parent, name)?))
    }

    fn open(&self, ctx: &RequestContext<'_>, nodeid: u64, flags: i32, _: bool) -> Result<Opened> {
        let handle =
            self.fs.open(&self.caller(ctx, 0), nodeid, engine_open_flags(flags, self.is_direct(flags)))?;
        Ok(self.opened(handle, flags))
    }

    fn create(
        &self,
        ctx: &RequestContext<'_>,
        parent: u64,
        name: &[u8],
        new: &NewNode,
        flags: i32,
    ) -> Result<(Entry, Opened)> {
        let wanted = engine_open_flags(flags, self.is_direct(flags));
        let (entry, handle, _) =
            self.fs.create(&self.caller(ctx, new.umask), parent, name, new.mode, wanted)?;
        Ok((self.entry(&entry), self.opened(handle, flags)))
    }

    fn tmpfile(
        &self,
        ctx: &RequestContext<'_>,
        parent: u64,
        new: &NewNode,
        flags: i32,
    ) -> Result<(Entry, Opened)> {
        let wanted = engine_open_flags(flags, self.is_direct(flags));
        let (entry, handle) = self.fs.tmpfile(&self.caller(ctx, new.umask), parent, new.mode, wanted)?;
        Ok((self.entry(&entry), self.opened(handle, flags)))
    }

    fn read(&self, _: &RequestContext<'_>, _: u64, read: &ReadIn, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.fs.read(&*self.open.get(read.fh)?, read.offset, buffer)?)
    }

    fn write(&self, ctx: &RequestContext<'_>, _: u64, write: &Write, data: &[u8]) -> Result<usize> {
        let direct = self.is_direct(write.open_flags) && !write.flags.contains(WriteFlags::CACHE);
        let flags = engine_write_flags(write, direct);
        Ok(self.fs.write(&self.caller(ctx, 0), &*self.open.get(write.fh)?, write.offset, data, flags)?)
    }

    fn flush(&self, _: &RequestContext<'_>, _: u64, fh: u64, lock_owner: u64) -> Result<()> {
        Ok(self.fs.flush(&*self.open.get(fh)?, lock_owner)?)
    }

    fn release(&self, _: u64, release: &Release) {
        let owner = release.flags.contains(ReleaseFlags::FLOCK_UNLOCK).then_some(release.lock_owner);
        self.open.remove(release.fh, owner);
    }

    fn fsync(&self, _: &RequestContext<'_>, _: u64, fh: u64, data_only: bool) -> Result<()> {
        Ok(self.fs.fsync(&*self.open.get(fh)?, data_only)?)
    }

    fn opendir(&self, ctx: &RequestContext<'_>, nodeid: u64, _: i32) -> Result<Opened> {
        let handle = self.fs.opendir(&self.caller(ctx, 0), nodeid)?;
        Ok(Opened { fh: self.open.insert_directory(&self.fs, handle), flags: OpenFlags::empty() })
    }

    fn readdir(
        &self,
        _: &RequestContext<'_>,
        _: u64,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<()> {
        self.list(fh, offset, &mut |one| sink.push(one.nid, one.cookie, one.file_type as u8, one.name))
    }

    fn readdirplus(
        &self,
        ctx: &RequestContext<'_>,
        _: u64,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<()> {
        let open = self.open.get(fh)?;
        let mut each = |one: &vfs::DirEntry<'_>, entry: Option<&vfs::Entry>| match entry {
            Some(entry) if one.name != b"." && one.name != b".." => {
                sink.push_entry(&self.entry(entry), one.cookie, one.name)
            }
            _ => sink.push(one.nid, one.cookie, one.file_type as u8, one.name),
        };
        Ok(self.fs.readdirplus(&self.caller(ctx, 0), &open, offset, &mut each)?)
    }

    fn releasedir(&self, _: u64, release: &Release) {
        self.open.remove(release.fh, None);
    }

    fn fsyncdir(&self, _: &RequestContext<'_>, _: u64, fh: u64, data_only: bool) -> Result<()> {
        Ok(self.fs.fsyncdir(&*self.open.get(fh)?, data_only)?)
    }

    fn syncfs(&self, _: &RequestContext<'_>, _: u64) -> Result<()> {
        Ok(self.fs.syncfs()?)
    }

    fn statfs(&self, _: &RequestContext<'_>, _: u64) -> Result<StatfsOut> {
        Ok(statfs_out(&self.fs.statfs()?))
    }

    fn setxattr(
        &self,
        ctx: &RequestContext<'_>,
        nodeid: u64,
        name: &[u8],
        value: &[u8],
        flags: i32,
        _: bool,
    ) -> Result<()> {
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno(libc::EINVAL)),
        };
        Ok(self.fs.setxattr(&self.caller(ctx, 0), nodeid, name, value, mode)?)
    }

    fn getxattr(&self, ctx: &RequestContext<'_>, nodeid: u64, name: &[u8]) -> Result<Vec<u8>> {
        Ok(self.fs.getxattr(&self.caller(ctx, 0), nodeid, name)?)
    }

    fn listxattr(&self, ctx: &RequestContext<'_>, nodeid: u64) -> Result<Vec<u8>> {
        Ok(self.fs.listxattr(&self.caller(ctx, 0), nodeid)?)
    }

    fn removexattr(&self, ctx: &RequestContext<'_>, nodeid: u64, name: &[u8]) -> Result<()> {
        Ok(self.fs.removexattr(&self.caller(ctx, 0), nodeid, name)?)
    }

    fn access(&self, ctx: &RequestContext<'_>, nodeid: u64, mask: i32) -> Result<()> {
        Ok(self.fs.access(&self.caller(ctx, 0), nodeid, mask as u32)?)
    }

    fn fallocate(
        &self,
        ctx: &RequestContext<'_>,
        _: u64,
        fh: u64,
        (offset, len): (u64, u64),
        mode: i32,
    ) -> Result<()> {
        let mode = FallocateMode::from_kernel(mode as u32)?;
        Ok(self.fs.fallocate(&self.caller(ctx, 0), &*self.open.get(fh)?, mode, offset, len)?)
    }

    fn lseek(&self, _: &RequestContext<'_>, _: u64, fh: u64, offset: u64, whence: i32) -> Result<u64> {
        let whence = match whence {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return Err(Errno(libc::EINVAL)),
        };
        Ok(self.fs.lseek(&*self.open.get(fh)?, offset, whence)?)
    }

    fn copy_file_range(&self, ctx: &RequestContext<'_>, _: u64, copy: &CopyFileRangeIn) -> Result<u64> {
        if copy.flags != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let (from, to) = (self.open.get(copy.fh_in)?, self.open.get(copy.fh_out)?);
        let caller = self.caller(ctx, 0);
        Ok(self.fs.copy_file_range(&caller, &from, copy.off_in, &to, copy.off_out, copy.len)?)
    }
}
