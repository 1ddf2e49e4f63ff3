//! What the kernel asks of the engine, operation by operation.
//!
//! An inode's number is the kernel's node id, and the root's are the same. The file of a request is found by
//! [`files`](super::files). Permissions are the engine's to check, unless the kernel has.
//!
//! FLUSH is served where locks are not the kernel's: a close has nothing to write.
//!
//! Invariant: a lookup count that the engine has raised is either told to the kernel or given back.

use super::Caching;
use super::attributes::CAPABILITY;
use super::convert::{birth_of, statfs_out};
use super::engine::EngineOperations;
use super::names::Lease;
use super::recall::{self, Recalls};
use super::told::Teller;
use crate::control::{LATENCIES, RESIZE, STATS, TRIM, page_of_latencies};
use crate::mount::Transport;
use crate::operations::{Ioctl, NewNode, Operations, Release, Write};
use crate::server::Notifier;
use crate::session::{DoneReply, Features, LockReply, RequestContext, WriteReply};
use crate::types::{Attributes, Entry, Errno, Lock, Opened, Result, SetAttr};
use crate::wire::dirent::DirSink;
use crate::wire::{CopyFileRangeIn, OpenFlags, ReadIn, ReleaseFlags, StatfsOut, StatxOut};
use narufs_engine::lock::Owner;
use narufs_engine::vfs::{self, FallocateMode, XattrMode};
use std::sync::Arc;

/// The attribute that holds an access list.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

impl Operations for EngineOperations {
    fn init(&self, features: &Features) {
        self.agree(features);
    }

    fn notified_by(&self, notifier: &Notifier) {
        self.recalls.set_notifier(notifier);
        let _ = self.notifier.set(notifier.clone());
        if let Err(e) = self.dir_times.tell(notifier.clone()) {
            tracing::warn!("times of directories may be old for a while: {e}");
        }
        if self.caching == Caching::Shared {
            self.fs.watch(Some(Arc::new(Teller::new(notifier.clone()))));
        }
    }

    fn served_by(&self, transport: Transport) {
        let _ = self.transport.set(transport);
        self.ask_kernel();
        Recalls::go_on(&self.recalls, &self.fs);
    }

    fn made(&self, _: &RequestContext<'_>, parent: u64, nid: u64) -> Result<Entry> {
        let lease = self.names.lend(&self.fs, parent);
        self.made_before(parent, nid, lease)
    }

    fn made_and_opened(
        &self,
        _: &RequestContext<'_>,
        parent: u64,
        nid: u64,
        flags: i32,
    ) -> Result<(Entry, Opened)> {
        let lease = self.names.lend(&self.fs, parent);
        Ok((self.made_before(parent, nid, lease)?, self.opened_before(flags)))
    }

    fn written(&self, _: &RequestContext<'_>, nodeid: u64, write: &Write, written: usize, reply: WriteReply) {
        let result = self.sync_written(nodeid, write).map(|()| written);
        self.answer_write(nodeid, write, written, result, reply);
    }

    fn destroy(&self) {
        self.fs.watch(None);
        self.end_waits();
        self.dir_times.end();
        self.recalls.end();
        self.open.clear();
        self.fs.forget_all();
    }

    fn lookup(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<Entry> {
        let lease = self.names.lend(&self.fs, parent);
        let found = match name {
            // By these names NFS asks for an inode and for its parent.
            b"." => self.fs.by_handle(parent, None),
            b".." => self.fs.parent(parent),
            _ => self.fs.lookup(&self.caller(ctx, 0), parent, name),
        };
        match found {
            Ok(entry) => Ok(self.entry(&entry, lease)),
            Err(e) if e.errno() == libc::ENOENT && !lease.hold().is_zero() => {
                Ok(Entry::negative(lease.hold()))
            }
            Err(e) => Err(e.into()),
        }
    }

    fn ioctl(&self, ctx: &RequestContext<'_>, _: u64, call: &Ioctl<'_>) -> Result<Vec<u8>> {
        match call.command {
            STATS => self.stats(ctx),
            LATENCIES => page_of_latencies(call.data, &ctx.latencies().sums()).ok_or(Errno(libc::EINVAL)),
            TRIM => self.trim(ctx, call.data),
            RESIZE => self.resize(ctx, call.data),
            _ => Err(Errno(libc::ENOTTY)),
        }
    }

    fn forget(&self, nodeid: u64, count: u64) {
        self.failures.forget(nodeid);
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
        let attr = self.change_attributes(ctx, nodeid, change)?;
        if change.mode.is_some() {
            self.names.permissions_changed(&self.fs, nodeid);
        }
        Ok(self.attributes_uncounted(&attr))
    }

    fn readlink(&self, _: &RequestContext<'_>, nodeid: u64) -> Result<Vec<u8>> {
        Ok(self.fs.readlink(nodeid)?)
    }

    fn symlink(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        let lease = self.names.lend(&self.fs, parent);
        let made = self.fs.symlink(&self.caller(ctx, 0), parent, name, target)?;
        self.dir_times.changed(parent);
        Ok(self.entry(&made, lease))
    }

    fn mknod(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], new: &NewNode) -> Result<Entry> {
        let (lease, caller) = (self.names.lend(&self.fs, parent), self.caller(ctx, new.umask));
        let made = self.fs.mknod(&caller, parent, name, new.mode, new.rdev)?;
        self.dir_times.changed(parent);
        Ok(self.entry(&made, lease))
    }

    fn mkdir(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], new: &NewNode) -> Result<Entry> {
        let lease = self.names.lend(&self.fs, parent);
        let made = self.fs.mkdir(&self.caller(ctx, new.umask), parent, name, new.mode)?;
        self.dir_times.changed(parent);
        Ok(self.entry(&made, lease))
    }

    fn unlink(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<()> {
        self.fs.unlink(&self.caller(ctx, 0), parent, name)?;
        self.removed(parent);
        Ok(())
    }

    fn rmdir(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<()> {
        self.fs.rmdir(&self.caller(ctx, 0), parent, name)?;
        self.removed(parent);
        Ok(())
    }

    fn rename(
        &self,
        ctx: &RequestContext<'_>,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
    ) -> Result<()> {
        let known = vfs::RenameFlags::from_bits(flags).ok_or(Errno(libc::EINVAL))?;
        self.fs.rename(&self.caller(ctx, 0), from.0, from.1, to.0, to.1, known)?;
        self.renamed(from.0, to.0, flags);
        Ok(())
    }

    fn removed(&self, parent: u64) {
        self.dir_times.changed(parent);
    }

    fn renamed(&self, from: u64, to: u64, flags: u32) {
        self.dir_times.changed(from);
        if from != to {
            self.dir_times.changed(to);
            self.names.moved(&self.fs, from, to);
            if flags & vfs::RenameFlags::EXCHANGE.bits() != 0 {
                self.names.moved(&self.fs, to, from);
            }
        }
    }

    fn attribute_changed(&self, nodeid: u64, name: &[u8]) {
        if name == ACCESS_LIST {
            self.names.permissions_changed(&self.fs, nodeid);
        }
    }

    fn link(&self, ctx: &RequestContext<'_>, nodeid: u64, parent: u64, name: &[u8]) -> Result<Entry> {
        let lease = self.names.lend(&self.fs, parent);
        let linked = self.fs.link(&self.caller(ctx, 0), nodeid, parent, name)?;
        self.dir_times.changed(parent);
        Ok(self.entry(&linked, lease))
    }

    fn open(&self, ctx: &RequestContext<'_>, nodeid: u64, flags: i32, _: bool) -> Result<Opened> {
        if self.kernel_keeps_opens() {
            return Err(Errno(libc::ENOSYS));
        }
        let handle = self.fs.open(&self.caller(ctx, 0), nodeid, self.open_flags(flags))?;
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
        let lease = self.names.lend(&self.fs, parent);
        let wanted = self.open_flags(flags);
        let (entry, handle, _) =
            self.fs.create(&self.caller(ctx, new.umask), parent, name, new.mode, wanted)?;
        self.dir_times.changed(parent);
        Ok((self.entry(&entry, lease), self.opened(handle, flags)))
    }

    fn tmpfile(
        &self,
        ctx: &RequestContext<'_>,
        parent: u64,
        new: &NewNode,
        flags: i32,
    ) -> Result<(Entry, Opened)> {
        let wanted = self.open_flags(flags);
        let (entry, handle) = self.fs.tmpfile(&self.caller(ctx, new.umask), parent, new.mode, wanted)?;
        Ok((self.entry(&entry, Lease::NONE), self.opened(handle, flags)))
    }

    fn read(&self, _: &RequestContext<'_>, nodeid: u64, read: &ReadIn, buffer: &mut [u8]) -> Result<usize> {
        let file = self.file_with(nodeid, read.fh, self.flags_to_read(read.flags as i32))?;
        recall::before_read(&file, read);
        Ok(self.fs.read(&file, read.offset, buffer)?)
    }

    fn write(&self, ctx: &RequestContext<'_>, nodeid: u64, write: &Write, data: &[u8]) -> Result<usize> {
        self.write_bytes(ctx, nodeid, write, data)
    }

    fn write_then(
        &self,
        ctx: &RequestContext<'_>,
        nodeid: u64,
        write: &Write,
        data: &[u8],
        reply: WriteReply,
    ) {
        self.answer_write(nodeid, write, data.len(), self.write(ctx, nodeid, write, data), reply);
    }

    fn flush(&self, _: &RequestContext<'_>, nodeid: u64, fh: u64, lock_owner: u64) -> Result<()> {
        self.closed_by(nodeid, fh, lock_owner)
    }

    fn getlk(&self, _: &RequestContext<'_>, nodeid: u64, lock: &Lock) -> Result<Lock> {
        self.test_lock(nodeid, lock)
    }

    fn setlk(&self, _: &RequestContext<'_>, nodeid: u64, lock: &Lock) -> Result<()> {
        self.try_lock(nodeid, lock)
    }

    fn setlkw(&self, _: &RequestContext<'_>, nodeid: u64, lock: &Lock, reply: LockReply) {
        self.lock_then(nodeid, lock, reply);
    }

    fn interrupt(&self, unique: u64) -> bool {
        self.interrupt_lock(unique)
    }

    fn release(&self, _: u64, release: &Release) {
        if self.kernel_keeps_opens() {
            return;
        }
        let owner =
            release.flags.contains(ReleaseFlags::FLOCK_UNLOCK).then_some(Owner::Mount(release.lock_owner));
        self.open.remove(release.fh, owner);
    }

    fn fsync(&self, ctx: &RequestContext<'_>, nodeid: u64, fh: u64, data_only: bool) -> Result<()> {
        self.sync_file(ctx, nodeid, fh, data_only)
    }

    fn fsync_then(&self, ctx: &RequestContext<'_>, nodeid: u64, fh: u64, data_only: bool, reply: DoneReply) {
        self.sync_file_then(ctx, nodeid, fh, data_only, reply);
    }

    fn opendir(&self, ctx: &RequestContext<'_>, nodeid: u64, _: i32) -> Result<Opened> {
        if self.kernel_keeps_directories() {
            return Err(Errno(libc::ENOSYS));
        }
        let handle = self.as_served(self.fs.opendir(&self.caller(ctx, 0), nodeid)?);
        Ok(Opened { fh: self.open.insert_directory(&self.fs, handle), flags: OpenFlags::empty() })
    }

    fn readdir(
        &self,
        _: &RequestContext<'_>,
        nodeid: u64,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<()> {
        let mut each =
            |one: &vfs::DirEntry<'_>| sink.push(one.nid, one.cookie, one.file_type as u8, one.name);
        Ok(self.fs.readdir(&*self.directory(nodeid, fh)?, offset, &mut each)?)
    }

    fn readdirplus(
        &self,
        ctx: &RequestContext<'_>,
        nodeid: u64,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<()> {
        let (open, lease) = (self.directory(nodeid, fh)?, self.names.lend(&self.fs, nodeid));
        let mut each = |one: &vfs::DirEntry<'_>, entry: Option<&vfs::Entry>| match entry {
            Some(entry) if one.name != b"." && one.name != b".." => {
                sink.push_entry(&self.entry(entry, lease), one.cookie, one.name)
            }
            _ => sink.push(one.nid, one.cookie, one.file_type as u8, one.name),
        };
        self.fs.readdirplus(&self.caller(ctx, 0), &open, offset, &mut each)?;
        if lease.hold().is_zero() {
            // Used up while the list was made.
            sink.distrust();
        }
        Ok(())
    }

    fn releasedir(&self, _: u64, release: &Release) {
        if self.kernel_keeps_directories() {
            return;
        }
        self.open.remove(release.fh, None);
    }

    fn fsyncdir(&self, _: &RequestContext<'_>, nodeid: u64, fh: u64, data_only: bool) -> Result<()> {
        Ok(self.fs.fsync(&*self.directory(nodeid, fh)?, data_only)?)
    }

    fn fsyncdir_then(&self, _: &RequestContext<'_>, nodeid: u64, fh: u64, data_only: bool, reply: DoneReply) {
        self.sync_directory_then(nodeid, fh, data_only, reply);
    }

    fn syncfs(&self, _: &RequestContext<'_>, _: u64) -> Result<()> {
        Ok(self.fs.syncfs()?)
    }

    fn sync_power(&self, _: &RequestContext<'_>, _: u64) -> Result<()> {
        Ok(self.fs.sync_power()?)
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
        self.serves_xattr()?;
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno(libc::EINVAL)),
        };
        self.fs.setxattr(&self.caller(ctx, 0), nodeid, name, value, mode)?;
        self.attribute_changed(nodeid, name);
        Ok(())
    }

    fn getxattr(&self, ctx: &RequestContext<'_>, nodeid: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.serves_xattr()?;
        Ok(self.fs.getxattr(&self.caller(ctx, 0), nodeid, name)?)
    }

    fn listxattr(&self, ctx: &RequestContext<'_>, nodeid: u64) -> Result<Vec<u8>> {
        self.serves_xattr()?;
        Ok(self.fs.listxattr(&self.caller(ctx, 0), nodeid)?)
    }

    fn removexattr(&self, ctx: &RequestContext<'_>, nodeid: u64, name: &[u8]) -> Result<()> {
        match name {
            CAPABILITY => self.remove_capability(ctx, nodeid)?,
            _ => self.fs.removexattr(&self.caller(ctx, 0), nodeid, name)?,
        }
        self.attribute_changed(nodeid, name);
        Ok(())
    }

    fn access(&self, ctx: &RequestContext<'_>, nodeid: u64, mask: i32) -> Result<()> {
        Ok(self.fs.access(&self.caller(ctx, 0), nodeid, mask as u32)?)
    }

    fn fallocate(
        &self,
        ctx: &RequestContext<'_>,
        nodeid: u64,
        fh: u64,
        (offset, len): (u64, u64),
        mode: i32,
    ) -> Result<()> {
        let mode = FallocateMode::from_kernel(mode as u32)?;
        Ok(self.fs.fallocate(&self.caller(ctx, 0), &*self.file(nodeid, fh)?, mode, offset, len)?)
    }

    fn lseek(&self, _: &RequestContext<'_>, nodeid: u64, fh: u64, offset: u64, whence: i32) -> Result<u64> {
        self.seek(nodeid, fh, offset, whence)
    }

    fn copy_file_range(&self, ctx: &RequestContext<'_>, nodeid: u64, copy: &CopyFileRangeIn) -> Result<u64> {
        self.copy(ctx, nodeid, copy)
    }
}
