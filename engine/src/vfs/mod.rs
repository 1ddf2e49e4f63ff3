//! Operations on inodes: what FUSE, the path API and the tests call.
//!
//! An operation takes credits, then locks in the order of [`crate::lock::LockClass`], builds its change on one
//! journal handle, commits, updates what is in memory, and unlocks. Permissions are checked here, on every
//! way in. This module leaves bytes of files to `file`, entries to `dir`, attributes in memory to `inode`.
//!
//! Lookup counts: every [`Entry`] returned holds one count on its inode, raised before the call returns. The
//! caller gives it back with [`Fs::forget`], also when it could not deliver the reply.

mod assemble;
mod at;
mod attr;
mod borrowed;
mod by_nid;
mod carry;
mod completion;
mod files;
mod home;
mod make;
mod meta;
mod multi_record;
mod names;
mod pending_eviction;
mod records;
mod remove;
mod rename;
mod shrink;
mod space;
#[cfg(test)]
mod tests;
mod types;
mod volume;
mod walk;
mod watch;

pub use crate::file::ErrorMark;
pub use crate::inode::{Lent, Recall};
pub use assemble::{AssembleOptions, Running};
pub use at::InodeRef;
pub use meta::{InodeSpace, Meta, NewSlot};
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use records::RECORDS;
pub use records::{LARGEST_RECORD, LARGEST_RESERVE_RECORD};
pub use space::ImageSpace;
pub use types::*;
pub use walk::{Arrive, Walked};
pub use watch::{Changed, Watch};

use crate::error::{Error, Result};
use crate::file::{DataInode, DataOptions, DataPath};
use crate::format::{Inode, Nid, Position};
use crate::inode::{Forgotten, InodeObj, now};
use crate::lock::{AdvisoryKind, AdvisoryLocks, LockClass, LockSet, Rank, RankedMutex};
use crate::sync::{Arc, OnceLock};
use pending_eviction::PendingEviction;
use watch::Watched;

/// A mounted image. Shared through an `Arc`.
#[derive(Debug)]
pub struct Fs {
    meta: Arc<Meta>,
    data: DataPath<Meta>,
    locks: AdvisoryLocks,
    /// Held while a directory may get another parent.
    directory_move: RankedMutex<()>,
    pending_eviction: Arc<PendingEviction>,
    watched: Watched,
    /// Where walks of absolute paths begin, once there was one.
    root: OnceLock<InodeRef>,
}

/// An open file or directory. Given back with [`Fs::release`] or [`Fs::releasedir`].
#[derive(Debug)]
pub struct FileHandle {
    inode: Arc<InodeObj>,
    flags: OpenFlags,
    mark: Option<Arc<ErrorMark>>,
}

impl FileHandle {
    /// The inode.
    pub fn nid(&self) -> Nid {
        self.inode.nid()
    }
    /// The flags it was opened with.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }
    /// What a cache above, such as the kernel's, may hold of the file's pages: to be told before they are read or
    /// written for it, and asked after each write past it. It is forgotten with the last lookup count and open file.
    pub fn lent(&self) -> &Lent {
        &self.inode.lent
    }
}

/// An inode of a set of locks that was asked for.
fn locked<'l, const N: usize>(locks: &'l LockSet<'_, Inode, N>, inode: &InodeObj) -> &'l Inode {
    locks.inode(inode.nid()).expect("the set was acquired with it")
}

/// The same, of one that was asked for exclusively.
fn locked_mut<'l, const N: usize>(locks: &'l mut LockSet<'_, Inode, N>, inode: &InodeObj) -> &'l mut Inode {
    locks.inode_mut(inode.nid()).expect("the set was acquired with it, exclusively")
}

impl Fs {
    /// The file system over the metadata of a mounted image.
    pub fn new(meta: Arc<Meta>, data: DataOptions) -> Result<Fs> {
        let pending_eviction = Arc::new(PendingEviction::default());
        let awaited = Arc::clone(&pending_eviction);
        meta.alloc.set_await_frees(Box::new(move || awaited.wait(pending_eviction::PATIENCE)));
        Ok(Fs {
            data: DataPath::new(Arc::clone(&meta), data)?,
            meta,
            locks: AdvisoryLocks::new(),
            directory_move: RankedMutex::new(Rank::new(LockClass::DirectoryMove, 0), ()),
            pending_eviction,
            watched: Watched::default(),
            root: OnceLock::new(),
        })
    }

    /// The data path: its background threads, what a checkpoint asks of it, its counters.
    pub fn data(&self) -> &DataPath<Meta> {
        &self.data
    }

    /// The metadata.
    pub fn meta(&self) -> &Arc<Meta> {
        &self.meta
    }

    /// Waits for the record of an operation where the mount is synchronous.
    fn finish(&self, end: Position) -> Result<()> {
        if self.meta.options.sync { self.meta.store.settle_upto(end, self.meta.durability) } else { Ok(()) }
    }

    /// Runs an operation, once more with what can be freed if space ran out.
    fn alloc_room<T>(&self, operation: impl FnMut() -> Result<T>) -> Result<T> {
        self.meta.alloc.with_room(operation)
    }

    fn writable(&self) -> Result<()> {
        if self.meta.options.read_only {
            return Err(Error::Errno(libc::EROFS));
        }
        self.meta.store.check_writable()
    }

    /// The options of the mount.
    pub fn options(&self) -> &FsOptions {
        &self.meta.options
    }

    /// Opens a regular file.
    pub fn open(&self, ctx: &Context, nid: Nid, flags: OpenFlags) -> Result<FileHandle> {
        self.open_file(ctx, self.meta.inode(nid)?, flags)
    }
    /// Makes a regular file if the name does not exist (which EXCLUSIVE demands) and opens it. The last member
    /// says whether it was made.
    pub fn create(
        &self,
        ctx: &Context,
        parent: Nid,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Entry, FileHandle, bool)> {
        let created = self.create_file(ctx, parent, name, mode, flags);
        self.tell(ctx, Changed::Name { dir: parent, name });
        created
    }
    /// Makes a regular file without a name and opens it; with EXCLUSIVE it can never get one.
    pub fn tmpfile(
        &self,
        ctx: &Context,
        parent: Nid,
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Entry, FileHandle)> {
        self.temporary_file(ctx, parent, mode, flags)
    }
    /// Reads at an offset; fewer bytes than asked only at the end of the file.
    pub fn read(&self, handle: &FileHandle, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.read_file(handle, offset, into)
    }
    /// Writes at an offset, or to the end with APPEND; fewer bytes than given only where space ran out.
    pub fn write(
        &self,
        ctx: &Context,
        handle: &FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize> {
        let written = self.write_file(ctx, handle, offset, data, flags);
        let (offset, len) = match &written {
            Ok(written) => (written.offset, written.len as u64),
            // Some of it may have been.
            Err(_) => (0, u64::MAX),
        };
        self.tell(ctx, Changed::Content { nid: handle.nid(), offset, len });
        written.map(|written| written.len)
    }
    /// A descriptor was closed: reports an error of write-back that this handle was not told of, and gives up
    /// the fcntl locks of `owner`.
    pub fn flush(&self, handle: &FileHandle, owner: u64) -> Result<()> {
        self.locks.release_owner(handle.nid(), AdvisoryKind::Record, owner);
        match &handle.mark {
            Some(mark) if handle.flags.writes() => handle.inode.data().check(mark),
            _ => Ok(()),
        }
    }
    /// Gives a handle of a file back, and with it the flock of `owner`, if one is given.
    pub fn release(&self, handle: FileHandle, flock_owner: Option<u64>) {
        if let Some(owner) = flock_owner {
            self.locks.release_owner(handle.nid(), AdvisoryKind::Flock, owner);
        }
        if handle.flags.writes() && handle.inode.file_type() == FileType::Regular {
            self.data.closed(&handle.inode);
        }
        if handle.inode.holds.close() {
            self.reap(&handle.inode);
        } else if handle.inode.holds.opens() == 0 {
            self.pending_eviction.held(&handle.inode);
        }
        drop(handle);
        self.meta.log_waiting_times();
    }
    /// Returns when data and attributes of the file, and all metadata changed before, are durable; with
    /// `datasync` attributes that are not needed to read the data may stay behind.
    pub fn fsync(&self, handle: &FileHandle, datasync: bool) -> Result<()> {
        self.sync_file(handle, datasync)
    }
    /// Opens a directory for reading.
    pub fn opendir(&self, ctx: &Context, nid: Nid) -> Result<FileHandle> {
        self.open_dir(ctx, self.meta.inode(nid)?)
    }
    fn open_dir(&self, ctx: &Context, inode: Arc<InodeObj>) -> Result<FileHandle> {
        if !inode.is_dir() {
            return Err(Error::Errno(libc::ENOTDIR));
        }
        self.check(ctx, &inode, &inode.lock.read(), crate::acl::READ)?;
        if !inode.holds.open() {
            return Err(Error::Errno(libc::ESTALE));
        }
        Ok(FileHandle { inode, flags: OpenFlags::DIRECTORY, mark: None })
    }
    /// Calls `fill` for "." and "..", then for each entry after `cookie` (0: all) in the order of cookies, until
    /// it returns false: that entry counts as not seen. No lock is held while `fill` runs.
    pub fn readdir(
        &self,
        handle: &FileHandle,
        cookie: u64,
        fill: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        self.read_dir(handle, cookie, &mut |entry| fill(entry))
    }
    /// As [`Fs::readdir`] with the attributes of each: every entry for which `fill` returned true holds a
    /// lookup count, except "." and "..". An inode that has gone meanwhile comes as `None`.
    pub fn readdirplus(
        &self,
        ctx: &Context,
        handle: &FileHandle,
        cookie: u64,
        fill: &mut dyn FnMut(&DirEntry, Option<&Entry>) -> bool,
    ) -> Result<()> {
        self.check(ctx, &handle.inode, &handle.inode.lock.read(), crate::acl::EXECUTE)?;
        self.read_dir(handle, cookie, &mut |entry| {
            if matches!(entry.name, b"." | b"..") {
                return fill(entry, None);
            }
            let found = self.meta.inode(entry.nid).and_then(|inode| self.hold(inode));
            let Ok(inode) = found else { return fill(entry, None) };
            let taken = fill(entry, Some(&self.entry(&inode)));
            if !taken && inode.holds.forget(1) {
                self.reap(&inode);
            }
            taken
        })
    }
    /// Gives a handle of a directory back.
    pub fn releasedir(&self, handle: FileHandle) {
        if handle.inode.holds.close() {
            self.reap(&handle.inode);
        } else if handle.inode.holds.opens() == 0 {
            self.pending_eviction.held(&handle.inode);
        }
        drop(handle);
        self.meta.log_waiting_times();
    }
    /// Returns when all metadata changed before is durable.
    pub fn fsyncdir(&self, handle: &FileHandle, _datasync: bool) -> Result<()> {
        let upto = self.log_dir(handle)?;
        self.meta.store.settle_upto(upto, self.meta.durability)
    }
    /// Value of an extended attribute. ENODATA: there is none.
    pub fn getxattr(&self, ctx: &Context, nid: Nid, name: &[u8]) -> Result<Vec<u8>> {
        self.xattr_value(ctx, &*self.meta.inode(nid)?, name)
    }
    /// Sets an extended attribute.
    pub fn setxattr(
        &self,
        ctx: &Context,
        nid: Nid,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let done = self.change_xattr(ctx, &self.meta.inode(nid)?, name, Some(value), mode);
        self.tell(ctx, Changed::Attributes { nid });
        done
    }
    /// Names of the extended attributes that the caller may see, each followed by a zero byte.
    pub fn listxattr(&self, ctx: &Context, nid: Nid) -> Result<Vec<u8>> {
        let inode = self.meta.inode(nid)?;
        let image = inode.lock.read();
        let mut names = Vec::new();
        for (name, _) in crate::xattr::read(&self.meta.store, &image)? {
            if crate::xattr::is_listed(ctx, &name) {
                names.extend_from_slice(&name);
                names.push(0);
            }
        }
        Ok(names)
    }
    /// Removes an extended attribute. ENODATA: there is none.
    pub fn removexattr(&self, ctx: &Context, nid: Nid, name: &[u8]) -> Result<()> {
        let done = self.change_xattr(ctx, &self.meta.inode(nid)?, name, None, XattrMode::Any);
        self.tell(ctx, Changed::Attributes { nid });
        done
    }
    /// Whether the caller may do what `mask` says (`R_OK`, `W_OK`, `X_OK`, or 0: it exists).
    pub fn access(&self, ctx: &Context, nid: Nid, mask: u32) -> Result<()> {
        let inode = self.meta.inode(nid)?;
        let special =
            !matches!(inode.file_type(), FileType::Regular | FileType::Directory | FileType::Symlink);
        if mask & 2 != 0 && self.meta.options.read_only && !special {
            return Err(Error::Errno(libc::EROFS));
        }
        self.check(ctx, &inode, &inode.lock.read(), mask & 7)
    }
    /// Allocates, punches, zeroes or moves a range.
    pub fn fallocate(
        &self,
        ctx: &Context,
        handle: &FileHandle,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let done = self.allocate_range(ctx, handle, mode, offset, len);
        self.tell(ctx, Changed::Content { nid: handle.nid(), offset, len: u64::MAX });
        done
    }
    /// The next data or hole at or after an offset. ENXIO: none.
    pub fn lseek(&self, handle: &FileHandle, offset: u64, whence: Whence) -> Result<u64> {
        let to = match whence {
            Whence::Data => crate::file::SeekTo::Data,
            Whence::Hole => crate::file::SeekTo::Hole,
        };
        self.data.seek(&handle.inode, to, offset)
    }
    /// Copies within the file system; returns how many bytes.
    pub fn copy_file_range(
        &self,
        ctx: &Context,
        from: &FileHandle,
        from_offset: u64,
        to: &FileHandle,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let copied = self.copy_between(ctx, (from, from_offset), (to, to_offset), len);
        self.tell(ctx, Changed::Content { nid: to.nid(), offset: to_offset, len });
        copied
    }
    /// Returns when everything written before is durable.
    pub fn syncfs(&self) -> Result<()> {
        self.data.sync_all(|| {
            let mut stale = self.meta.table.stale(usize::MAX).into_iter();
            stale.try_for_each(|inode| self.meta.log_times(&inode))
        })
    }
    /// Returns when everything that a sync was answered for survives a loss of power, and every operation on
    /// metadata that returned before: at once, with `durability=power`, but for the latter.
    pub fn sync_power(&self) -> Result<()> {
        let store = &self.meta.store;
        let upto = store.tail();
        store.keep_promises()?;
        store.commit_upto(upto, crate::journal::Durability::Power)
    }
    /// Whether a file or directory is open.
    pub fn has_open_files(&self) -> bool {
        self.meta.table.all().iter().any(|inode| inode.holds.opens() > 0)
    }
    /// The locks that programs ask for (fcntl, flock), by nid.
    pub fn locks(&self) -> &AdvisoryLocks {
        &self.locks
    }
    /// The inode of an NFS file handle; ESTALE if it is another's by now. `None` accepts any generation.
    pub fn by_handle(&self, nid: Nid, generation: Option<u32>) -> Result<Entry> {
        let inode = self.meta.inode(nid)?;
        if generation.is_some_and(|g| g != inode.generation())
            || inode.nlink() == 0 && inode.holds.opens() == 0
        {
            return Err(Error::Errno(libc::ESTALE));
        }
        let inode = self.hold(inode).map_err(|_| Error::Errno(libc::ESTALE))?;
        Ok(self.entry(&inode))
    }
    /// The parent of a directory, with a lookup count; of the root itself.
    pub fn parent(&self, nid: Nid) -> Result<Entry> {
        let inode = self.meta.inode(nid)?;
        if !inode.is_dir() {
            return Err(Error::Errno(libc::ENOTDIR));
        }
        let image = inode.lock.read();
        let up = self.hold(self.parent_of(&image)?)?;
        drop(image);
        Ok(self.entry(&up))
    }
}
