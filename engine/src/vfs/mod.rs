//! Operations on inodes: what FUSE, the path API and the tests call.
//!
//! An operation takes credits, then locks in the order of [`crate::lock::LockClass`], builds its change on one
//! journal handle, commits, updates what is in memory, and unlocks. Permissions are checked here, on every
//! way in. This module leaves bytes of files to `file`, entries to `dir`, attributes in memory to `inode`.
//!
//! Lookup counts: every [`Entry`] returned holds one count on its inode, raised before the call returns. The
//! caller gives it back with [`Fs::forget`], also when it could not deliver the reply.

mod types;

pub use types::*;

use crate::error::{Error, Result};
use crate::format::Nid;

/// A mounted image. Shared through an `Arc`.
#[derive(Debug)]
pub struct Fs {
    options: FsOptions,
}

/// An open file or directory. Given back with [`Fs::release`] or [`Fs::releasedir`].
#[derive(Debug)]
pub struct FileHandle {
    nid: Nid,
    flags: OpenFlags,
}

impl FileHandle {
    /// The inode.
    pub fn nid(&self) -> Nid {
        self.nid
    }
    /// The flags it was opened with.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }
}

const SOON: Error = Error::Errno(libc::ENOSYS);

impl Fs {
    /// The options of the mount.
    pub fn options(&self) -> &FsOptions {
        &self.options
    }

    /// Looks a name up. ".." leads to the parent. Needs search permission.
    pub fn lookup(&self, _ctx: &Context, _parent: Nid, _name: &[u8]) -> Result<Entry> {
        Err(SOON)
    }
    /// Gives `n` lookup counts back; the last frees an inode without names. Never fails: a count that was not
    /// given is ignored.
    pub fn forget(&self, _nid: Nid, _n: u64) {}
    /// Gives all lookup counts back: the kernel is gone.
    pub fn forget_all(&self) {}
    /// Attributes.
    pub fn getattr(&self, _nid: Nid) -> Result<Attr> {
        Err(SOON)
    }
    /// Sets attributes. With a handle that writes, the size may be set without write permission.
    pub fn setattr(
        &self,
        _ctx: &Context,
        _nid: Nid,
        _handle: Option<&FileHandle>,
        _set: &SetAttr,
    ) -> Result<Attr> {
        Err(SOON)
    }
    /// Target of a symlink.
    pub fn readlink(&self, _nid: Nid) -> Result<Vec<u8>> {
        Err(SOON)
    }
    /// Makes a symlink.
    pub fn symlink(&self, _ctx: &Context, _parent: Nid, _name: &[u8], _target: &[u8]) -> Result<Entry> {
        Err(SOON)
    }
    /// Makes a regular file, fifo, socket or device node; `mode` with its type bits, before the umask.
    pub fn mknod(&self, _ctx: &Context, _parent: Nid, _name: &[u8], _mode: u32, _rdev: u32) -> Result<Entry> {
        Err(SOON)
    }
    /// Makes a directory; `mode` before the umask.
    pub fn mkdir(&self, _ctx: &Context, _parent: Nid, _name: &[u8], _mode: u32) -> Result<Entry> {
        Err(SOON)
    }
    /// Removes a name that is not a directory.
    pub fn unlink(&self, _ctx: &Context, _parent: Nid, _name: &[u8]) -> Result<()> {
        Err(SOON)
    }
    /// Removes an empty directory.
    pub fn rmdir(&self, _ctx: &Context, _parent: Nid, _name: &[u8]) -> Result<()> {
        Err(SOON)
    }
    /// Renames, replaces or exchanges.
    pub fn rename(
        &self,
        _ctx: &Context,
        _parent: Nid,
        _name: &[u8],
        _new_parent: Nid,
        _new_name: &[u8],
        _flags: RenameFlags,
    ) -> Result<()> {
        Err(SOON)
    }
    /// Gives an inode another name; one of [`Fs::tmpfile`] its first.
    pub fn link(&self, _ctx: &Context, _nid: Nid, _new_parent: Nid, _new_name: &[u8]) -> Result<Entry> {
        Err(SOON)
    }
    /// Opens a regular file.
    pub fn open(&self, _ctx: &Context, _nid: Nid, _flags: OpenFlags) -> Result<FileHandle> {
        Err(SOON)
    }
    /// Makes a regular file if the name does not exist (which EXCLUSIVE demands) and opens it. The last member
    /// says whether it was made.
    pub fn create(
        &self,
        _ctx: &Context,
        _parent: Nid,
        _name: &[u8],
        _mode: u32,
        _flags: OpenFlags,
    ) -> Result<(Entry, FileHandle, bool)> {
        Err(SOON)
    }
    /// Makes a regular file without a name and opens it; with EXCLUSIVE it can never get one.
    pub fn tmpfile(
        &self,
        _ctx: &Context,
        _parent: Nid,
        _mode: u32,
        _flags: OpenFlags,
    ) -> Result<(Entry, FileHandle)> {
        Err(SOON)
    }
    /// Reads at an offset; fewer bytes than asked only at the end of the file.
    pub fn read(&self, _handle: &FileHandle, _offset: u64, _into: &mut [u8]) -> Result<usize> {
        Err(SOON)
    }
    /// Writes at an offset, or to the end with APPEND; fewer bytes than given only where space ran out.
    pub fn write(
        &self,
        _ctx: &Context,
        _handle: &FileHandle,
        _offset: u64,
        _data: &[u8],
        _flags: WriteFlags,
    ) -> Result<usize> {
        Err(SOON)
    }
    /// A descriptor was closed: reports an error of write-back that this handle was not told of, and gives up
    /// the fcntl locks of `owner`.
    pub fn flush(&self, _handle: &FileHandle, _owner: u64) -> Result<()> {
        Err(SOON)
    }
    /// Gives a handle of a file back, and with it the flock of `owner`, if one is given.
    pub fn release(&self, _handle: FileHandle, _flock_owner: Option<u64>) {}
    /// Returns when data and attributes of the file, and all metadata changed before, are durable; with
    /// `datasync` attributes that are not needed to read the data may stay behind.
    pub fn fsync(&self, _handle: &FileHandle, _datasync: bool) -> Result<()> {
        Err(SOON)
    }
    /// Opens a directory for reading.
    pub fn opendir(&self, _ctx: &Context, _nid: Nid) -> Result<FileHandle> {
        Err(SOON)
    }
    /// Calls `fill` for "." and "..", then for each entry after `cookie` (0: all) in the order of cookies, until
    /// it returns false: that entry counts as not seen. No lock is held while `fill` runs.
    pub fn readdir(
        &self,
        _handle: &FileHandle,
        _cookie: u64,
        _fill: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        Err(SOON)
    }
    /// As [`Fs::readdir`] with the attributes of each: every entry for which `fill` returned true holds a
    /// lookup count, except "." and "..". An inode that has gone meanwhile comes as `None`.
    pub fn readdirplus(
        &self,
        _ctx: &Context,
        _handle: &FileHandle,
        _cookie: u64,
        _fill: &mut dyn FnMut(&DirEntry, Option<&Entry>) -> bool,
    ) -> Result<()> {
        Err(SOON)
    }
    /// Gives a handle of a directory back.
    pub fn releasedir(&self, _handle: FileHandle) {}
    /// Returns when all metadata changed before is durable.
    pub fn fsyncdir(&self, _handle: &FileHandle, _datasync: bool) -> Result<()> {
        Err(SOON)
    }
    /// Room and use.
    pub fn statfs(&self) -> Result<StatFs> {
        Err(SOON)
    }
    /// Value of an extended attribute. ENODATA: there is none.
    pub fn getxattr(&self, _ctx: &Context, _nid: Nid, _name: &[u8]) -> Result<Vec<u8>> {
        Err(SOON)
    }
    /// Sets an extended attribute.
    pub fn setxattr(
        &self,
        _ctx: &Context,
        _nid: Nid,
        _name: &[u8],
        _value: &[u8],
        _mode: XattrMode,
    ) -> Result<()> {
        Err(SOON)
    }
    /// Names of the extended attributes that the caller may see, each followed by a zero byte.
    pub fn listxattr(&self, _ctx: &Context, _nid: Nid) -> Result<Vec<u8>> {
        Err(SOON)
    }
    /// Removes an extended attribute. ENODATA: there is none.
    pub fn removexattr(&self, _ctx: &Context, _nid: Nid, _name: &[u8]) -> Result<()> {
        Err(SOON)
    }
    /// Whether the caller may do what `mask` says (`R_OK`, `W_OK`, `X_OK`, or 0: it exists).
    pub fn access(&self, _ctx: &Context, _nid: Nid, _mask: u32) -> Result<()> {
        Err(SOON)
    }
    /// Allocates, punches, zeroes or moves a range.
    pub fn fallocate(
        &self,
        _ctx: &Context,
        _handle: &FileHandle,
        _mode: FallocateMode,
        _offset: u64,
        _len: u64,
    ) -> Result<()> {
        Err(SOON)
    }
    /// The next data or hole at or after an offset. ENXIO: none.
    pub fn lseek(&self, _handle: &FileHandle, _offset: u64, _whence: Whence) -> Result<u64> {
        Err(SOON)
    }
    /// Copies within the file system; returns how many bytes.
    pub fn copy_file_range(
        &self,
        _ctx: &Context,
        _from: &FileHandle,
        _from_offset: u64,
        _to: &FileHandle,
        _to_offset: u64,
        _len: u64,
    ) -> Result<u64> {
        Err(SOON)
    }
    /// Returns when everything written before is durable.
    pub fn syncfs(&self) -> Result<()> {
        Err(SOON)
    }
    /// The lock that stands in the way of this one, if any (F_GETLK).
    pub fn getlk(
        &self,
        _handle: &FileHandle,
        _owner: u64,
        _lock: &FileLockRequest,
    ) -> Result<Option<FileLockRequest>> {
        Err(SOON)
    }
    /// Takes or gives up a range (F_SETLK; with `wait` F_SETLKW). While it waits, `interrupted` is asked from
    /// time to time; once it says true the call ends with EINTR. EAGAIN: another holds it. EDEADLK.
    pub fn setlk(
        &self,
        _handle: &FileHandle,
        _owner: u64,
        _lock: &FileLockRequest,
        _wait: bool,
        _interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        Err(SOON)
    }
    /// Takes, changes or gives up the lock over the whole file (flock(2)); otherwise as [`Fs::setlk`].
    pub fn flock(
        &self,
        _handle: &FileHandle,
        _owner: u64,
        _kind: LockKind,
        _wait: bool,
        _interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        Err(SOON)
    }
    /// The inode of an NFS file handle; ESTALE if it is another's by now. `None` accepts any generation.
    pub fn by_handle(&self, _nid: Nid, _generation: Option<u32>) -> Result<Entry> {
        Err(SOON)
    }
    /// The parent of a directory, with a lookup count; of the root itself.
    pub fn parent(&self, _nid: Nid) -> Result<Entry> {
        Err(SOON)
    }
}
