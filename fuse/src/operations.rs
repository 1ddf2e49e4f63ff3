//! What a file system does, one method an operation. The session calls it; the engine's binding implements it.
//!
//! What it leaves to others: the wire, the threads, the order of replies.
//!
//! Invariants an implementation keeps: a method that is about to sleep says so by
//! [`narufs_engine::blocking::about_to_block`]; each [`Entry`] with a node id that it gives away has raised the inode's
//! lookup count; permissions are checked here unless the kernel does.

use crate::mount::Transport;
use crate::server::Notifier;
use crate::session::{DoneReply, Features, LockReply, RequestContext, WriteReply};
use crate::types::{Attributes, Entry, Errno, Lock, Opened, Result, SetAttr};
use crate::wire::dirent::DirSink;
use crate::wire::{CopyFileRangeIn, ReadIn, ReleaseFlags, StatfsOut, StatxOut, WriteFlags, WriteIn};

/// What the session offers a [`Operations::write`] besides the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The open file.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
    /// Whence it comes and what to clear.
    pub flags: WriteFlags,
    /// The open file's flags; O_SYNC and O_DSYNC in them bind this write, for it may be the only word of them.
    pub open_flags: i32,
}

impl From<&WriteIn> for Write {
    fn from(args: &WriteIn) -> Self {
        let flags = WriteFlags::from_bits_truncate(args.write_flags);
        Write { fh: args.fh, offset: args.offset, flags, open_flags: args.flags as i32 }
    }
}

/// How a file or directory is closed for the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// The open file.
    pub fh: u64,
    /// The open file's flags.
    pub open_flags: i32,
    /// What else to do.
    pub flags: ReleaseFlags,
    /// Whose flock locks to drop with FLOCK_UNLOCK.
    pub lock_owner: u64,
}

/// A control call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ioctl<'a> {
    /// The open file.
    pub fh: u64,
    /// The call's number.
    pub command: u32,
    /// Its argument as the caller passed it (an address of the caller, or a number).
    pub argument: u64,
    /// What the number says the caller passes in.
    pub data: &'a [u8],
    /// How much it takes back at most, in bytes.
    pub out_size: usize,
}

/// What a new name is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode {
    /// Type and permissions, before the umask.
    pub mode: u32,
    /// The caller's umask, not yet applied if [`Features::dont_mask`].
    pub umask: u32,
    /// Device number, for a device node.
    pub rdev: u32,
}

const NOT_SERVED: Errno = Errno(libc::ENOSYS);

/// What is answered ENOSYS by default the kernel does not ask for again.
#[allow(unused_variables, reason = "the names document the arguments of what is not served by default")]
pub trait Operations: Send + Sync + 'static {
    /// The conversation has begun. Called once, before anything else.
    fn init(&self, features: &Features) {}

    /// Requests come this way, never [`Transport::Auto`]. Called once, when the mount works.
    fn served_by(&self, transport: Transport) {}

    /// This way the kernel is told to drop what it has cached. Called once, before anything is asked for.
    fn notified_by(&self, notifier: &Notifier) {}

    /// The mount is gone, no operation runs any more. Called once.
    fn destroy(&self) {}

    /// Finds a name; "." and ".." are asked for too where NFS export was agreed on.
    fn lookup(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<Entry>;

    /// Lowers an inode's lookup count.
    fn forget(&self, nodeid: u64, count: u64);

    /// Reads attributes.
    fn getattr(&self, ctx: &RequestContext<'_>, nodeid: u64, fh: Option<u64>) -> Result<Attributes>;

    /// Reads attributes as statx(2) has them; `mask` says which are wanted.
    fn statx(&self, ctx: &RequestContext<'_>, nodeid: u64, fh: Option<u64>, mask: u32) -> Result<StatxOut> {
        Err(NOT_SERVED)
    }

    /// Changes attributes.
    fn setattr(&self, ctx: &RequestContext<'_>, nodeid: u64, change: &SetAttr) -> Result<Attributes>;

    /// Reads a symbolic link.
    fn readlink(&self, ctx: &RequestContext<'_>, nodeid: u64) -> Result<Vec<u8>>;

    /// Makes a symbolic link.
    fn symlink(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry>;

    /// Makes a file, FIFO, socket or device node.
    fn mknod(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], new: &NewNode) -> Result<Entry>;

    /// Makes a directory.
    fn mkdir(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], new: &NewNode) -> Result<Entry>;

    /// Removes a name that is not a directory.
    fn unlink(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn rmdir(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<()>;

    /// Moves or exchanges names. `flags`: RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT.
    fn rename(
        &self,
        ctx: &RequestContext<'_>,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
    ) -> Result<()>;

    /// Another server has removed a name, and not answered.
    fn removed(&self, parent: u64) {}

    /// Another server has moved or exchanged names, and not answered.
    fn renamed(&self, from: u64, to: u64, flags: u32) {}

    /// Another server has set or removed an extended attribute, and not answered.
    fn attribute_changed(&self, nodeid: u64, name: &[u8]) {}

    /// What was made, or got a name, for a request that another server has done and not answered. Its number is `nid`.
    fn made(&self, ctx: &RequestContext<'_>, parent: u64, nid: u64) -> Result<Entry> {
        Err(Errno(libc::EIO))
    }

    /// The same of what was made and opened.
    fn made_and_opened(
        &self,
        ctx: &RequestContext<'_>,
        parent: u64,
        nid: u64,
        flags: i32,
    ) -> Result<(Entry, Opened)> {
        Err(Errno(libc::EIO))
    }

    /// Answers a write of which another server has written so many bytes.
    fn written(
        &self,
        ctx: &RequestContext<'_>,
        nodeid: u64,
        write: &Write,
        written: usize,
        reply: WriteReply,
    ) {
        reply.done(Ok(written));
    }

    /// Adds a name to an inode.
    fn link(&self, ctx: &RequestContext<'_>, nodeid: u64, parent: u64, name: &[u8]) -> Result<Entry>;

    /// Opens a file. `kill_suidgid`: O_TRUNC by one who may not keep setuid. ENOSYS, where [`Features::no_open`]
    /// allows it, ends all OPENs and RELEASEs, also of files that are made.
    fn open(&self, ctx: &RequestContext<'_>, nodeid: u64, flags: i32, kill_suidgid: bool) -> Result<Opened>;

    /// Makes and opens a file; opens it if it is there and `flags` lack O_EXCL.
    fn create(
        &self,
        ctx: &RequestContext<'_>,
        parent: u64,
        name: &[u8],
        new: &NewNode,
        flags: i32,
    ) -> Result<(Entry, Opened)>;

    /// Makes and opens a file without a name.
    fn tmpfile(
        &self,
        ctx: &RequestContext<'_>,
        parent: u64,
        new: &NewNode,
        flags: i32,
    ) -> Result<(Entry, Opened)> {
        Err(Errno(libc::EOPNOTSUPP))
    }

    /// Reads into `buffer`; gives the bytes read, fewer only at the end of the file. The rest of the buffer holds
    /// what earlier replies left there and is not sent.
    fn read(&self, ctx: &RequestContext<'_>, nodeid: u64, read: &ReadIn, buffer: &mut [u8]) -> Result<usize>;

    /// Writes `data`; gives the bytes written.
    fn write(&self, ctx: &RequestContext<'_>, nodeid: u64, write: &Write, data: &[u8]) -> Result<usize>;

    /// The same, where the answer may have to wait for something else: the reply may be kept and given by another
    /// thread.
    fn write_then(
        &self,
        ctx: &RequestContext<'_>,
        nodeid: u64,
        write: &Write,
        data: &[u8],
        reply: WriteReply,
    ) {
        reply.done(self.write(ctx, nodeid, write, data));
    }

    /// One descriptor was closed: drop the owner's fcntl locks, tell of errors.
    fn flush(&self, ctx: &RequestContext<'_>, nodeid: u64, fh: u64, lock_owner: u64) -> Result<()> {
        Err(NOT_SERVED)
    }

    /// The last descriptor was closed. Its result reaches nobody.
    fn release(&self, nodeid: u64, release: &Release);

    /// Makes a file durable.
    fn fsync(&self, ctx: &RequestContext<'_>, nodeid: u64, fh: u64, data_only: bool) -> Result<()>;

    /// The same, where the thread need not wait: the reply may be kept and answered by another.
    fn fsync_then(&self, ctx: &RequestContext<'_>, nodeid: u64, fh: u64, data_only: bool, reply: DoneReply) {
        reply.done(self.fsync(ctx, nodeid, fh, data_only));
    }

    /// Opens a directory. ENOSYS, where [`Features::no_opendir`] allows it, ends all OPENDIRs and RELEASEDIRs.
    fn opendir(&self, ctx: &RequestContext<'_>, nodeid: u64, flags: i32) -> Result<Opened>;

    /// Lists names from the cookie `offset` on (0: the beginning), until the sink is full.
    fn readdir(
        &self,
        ctx: &RequestContext<'_>,
        nodeid: u64,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<()>;

    /// Lists names with what they lead to. For each but "." and "..", ask [`DirSink::fits`], raise the lookup
    /// count, then push the entry. If this fails, nothing was raised.
    fn readdirplus(
        &self,
        ctx: &RequestContext<'_>,
        nodeid: u64,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<()> {
        self.readdir(ctx, nodeid, fh, offset, sink)
    }

    /// An open directory is closed.
    fn releasedir(&self, nodeid: u64, release: &Release);

    /// Makes a directory durable.
    fn fsyncdir(&self, ctx: &RequestContext<'_>, nodeid: u64, fh: u64, data_only: bool) -> Result<()>;

    /// The same, where the thread need not wait: the reply may be kept and answered by another.
    fn fsyncdir_then(
        &self,
        ctx: &RequestContext<'_>,
        nodeid: u64,
        fh: u64,
        data_only: bool,
        reply: DoneReply,
    ) {
        reply.done(self.fsyncdir(ctx, nodeid, fh, data_only));
    }

    /// Makes everything durable.
    fn syncfs(&self, ctx: &RequestContext<'_>, nodeid: u64) -> Result<()> {
        Err(NOT_SERVED)
    }

    /// Makes what syncs were answered for survive a loss of power.
    fn sync_power(&self, ctx: &RequestContext<'_>, nodeid: u64) -> Result<()> {
        Err(NOT_SERVED)
    }

    /// Tells sizes.
    fn statfs(&self, ctx: &RequestContext<'_>, nodeid: u64) -> Result<StatfsOut>;

    /// Sets an extended attribute. `flags`: XATTR_CREATE, XATTR_REPLACE. `kill_sgid`: clear setgid, since an ACL
    /// was set by one who may not keep it.
    fn setxattr(
        &self,
        ctx: &RequestContext<'_>,
        nodeid: u64,
        name: &[u8],
        value: &[u8],
        flags: i32,
        kill_sgid: bool,
    ) -> Result<()> {
        Err(NOT_SERVED)
    }

    /// Reads an extended attribute.
    fn getxattr(&self, ctx: &RequestContext<'_>, nodeid: u64, name: &[u8]) -> Result<Vec<u8>> {
        Err(NOT_SERVED)
    }

    /// Lists extended attributes: each name with a zero after it.
    fn listxattr(&self, ctx: &RequestContext<'_>, nodeid: u64) -> Result<Vec<u8>> {
        Err(NOT_SERVED)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, ctx: &RequestContext<'_>, nodeid: u64, name: &[u8]) -> Result<()> {
        Err(NOT_SERVED)
    }

    /// Checks access as access(2) does; not called where the kernel checks permissions.
    fn access(&self, ctx: &RequestContext<'_>, nodeid: u64, mask: i32) -> Result<()> {
        Err(NOT_SERVED)
    }

    /// Gives the first lock in the way of `lock`, or `lock` itself with F_UNLCK.
    fn getlk(&self, ctx: &RequestContext<'_>, nodeid: u64, lock: &Lock) -> Result<Lock> {
        Err(NOT_SERVED)
    }

    /// Takes or drops a lock; EAGAIN if it is held.
    fn setlk(&self, ctx: &RequestContext<'_>, nodeid: u64, lock: &Lock) -> Result<()> {
        Err(NOT_SERVED)
    }

    /// Takes a lock as soon as it is free. The thread does not wait: the reply is kept and answered later.
    fn setlkw(&self, ctx: &RequestContext<'_>, nodeid: u64, lock: &Lock, reply: LockReply) {
        reply.error(NOT_SERVED);
    }

    /// The caller of this request no longer wants to wait: if it is a lock that waits, answer it with EINTR.
    /// False if it is not (any more).
    fn interrupt(&self, unique: u64) -> bool {
        false
    }

    /// Reserves, punches, zeroes, shifts; `mode` as of fallocate(2).
    fn fallocate(
        &self,
        ctx: &RequestContext<'_>,
        nodeid: u64,
        fh: u64,
        range: (u64, u64),
        mode: i32,
    ) -> Result<()> {
        Err(Errno(libc::EOPNOTSUPP))
    }

    /// Finds data or a hole from `offset` on; `whence` is SEEK_DATA or SEEK_HOLE.
    fn lseek(&self, ctx: &RequestContext<'_>, nodeid: u64, fh: u64, offset: u64, whence: i32) -> Result<u64> {
        Err(NOT_SERVED)
    }

    /// Copies between files; gives the bytes copied.
    fn copy_file_range(&self, ctx: &RequestContext<'_>, nodeid: u64, copy: &CopyFileRangeIn) -> Result<u64> {
        Err(NOT_SERVED)
    }

    /// Serves a control call; gives what the caller takes back.
    fn ioctl(&self, ctx: &RequestContext<'_>, nodeid: u64, call: &Ioctl<'_>) -> Result<Vec<u8>> {
        Err(Errno(libc::ENOTTY))
    }
}
