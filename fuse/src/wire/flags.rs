//! The protocol's flag words.

use bitflags::bitflags;

bitflags! {
    /// What both sides can do; the upper half travels in `flags2`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct InitFlags: u64 {
        /// Reads may be sent in parallel.
        const ASYNC_READ = 1 << 0;
        /// fcntl locks are the server's.
        const POSIX_LOCKS = 1 << 1;
        /// The server truncates at OPEN with O_TRUNC.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// The server finds "." and ".." of any inode: NFS export works.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes may exceed 4 KiB.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask (it must, where default ACLs replace it).
        const DONT_MASK = 1 << 6;
        /// The device can be spliced to.
        const SPLICE_WRITE = 1 << 7;
        /// Spliced pages may be moved.
        const SPLICE_MOVE = 1 << 8;
        /// The device can be spliced from.
        const SPLICE_READ = 1 << 9;
        /// flock locks are the server's.
        const FLOCK_LOCKS = 1 << 10;
        /// IOCTL on directories too.
        const HAS_IOCTL_DIR = 1 << 11;
        /// The kernel drops cached pages when size or mtime change.
        const AUTO_INVAL_DATA = 1 << 12;
        /// READDIRPLUS is served.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel chooses between READDIR and READDIRPLUS.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Direct I/O may be sent in parallel.
        const ASYNC_DIO = 1 << 15;
        /// The kernel keeps dirty pages.
        const WRITEBACK_CACHE = 1 << 16;
        /// OPEN may be answered ENOSYS: no OPEN or RELEASE from then on.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Lookups and readdir of one directory run in parallel.
        const PARALLEL_DIROPS = 1 << 18;
        /// The server clears setuid and setgid (the older contract).
        const HANDLE_KILLPRIV = 1 << 19;
        /// The kernel checks POSIX ACLs (and turns default_permissions on).
        const POSIX_ACL = 1 << 20;
        /// Reading after an abort gives ECONNABORTED.
        const ABORT_ERROR = 1 << 21;
        /// `max_pages` of the reply counts.
        const MAX_PAGES = 1 << 22;
        /// READLINK's answers are cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// OPENDIR may be answered ENOSYS.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached pages are dropped only when the server says so.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// `map_alignment` counts (virtio only).
        const MAP_ALIGNMENT = 1 << 26;
        /// Directories may be automounts.
        const SUBMOUNTS = 1 << 27;
        /// The server clears setuid and setgid where the kernel asks so.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has its longer form.
        const SETXATTR_EXT = 1 << 29;
        /// `flags2` counts.
        const INIT_EXT = 1 << 30;
        /// Creating requests carry a security context.
        const SECURITY_CTX = 1 << 32;
        /// DAX per inode (virtio only).
        const HAS_INODE_DAX = 1 << 33;
        /// Creating requests carry the caller's group that matches the parent directory's.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// Entries can be expired without being dropped.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Shared mappings of files opened for direct I/O.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Reads and writes may pass to another file.
        const PASSTHROUGH = 1 << 37;
        /// No NFS export.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// The kernel can send requests again.
        const HAS_RESEND = 1 << 39;
        /// The mount may be id-mapped.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests may come through io_uring.
        const OVER_IO_URING = 1 << 41;
        /// `request_timeout` counts.
        const REQUEST_TIMEOUT = 1 << 42;
    }
}

bitflags! {
    /// How the kernel treats an open file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct OpenFlags: u32 {
        /// Past the kernel's page cache.
        const DIRECT_IO = 1 << 0;
        /// Cached pages stay valid over the open.
        const KEEP_CACHE = 1 << 1;
        /// No file position.
        const NONSEEKABLE = 1 << 2;
        /// Names of this directory may be cached.
        const CACHE_DIR = 1 << 3;
        /// A stream.
        const STREAM = 1 << 4;
        /// No FLUSH at close.
        const NOFLUSH = 1 << 5;
        /// Direct writes to one file in parallel (since 7.38).
        const PARALLEL_DIRECT_WRITES = 1 << 6;
        /// Reads and writes pass to another file.
        const PASSTHROUGH = 1 << 7;
    }
}

bitflags! {
    /// Which fields of SETATTR count.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct SetattrValid: u32 {
        /// `mode`
        const MODE = 1 << 0;
        /// `uid`
        const UID = 1 << 1;
        /// `gid`
        const GID = 1 << 2;
        /// `size`
        const SIZE = 1 << 3;
        /// `atime`
        const ATIME = 1 << 4;
        /// `mtime`
        const MTIME = 1 << 5;
        /// `fh`
        const FH = 1 << 6;
        /// The server's own clock for atime.
        const ATIME_NOW = 1 << 7;
        /// The server's own clock for mtime.
        const MTIME_NOW = 1 << 8;
        /// `lock_owner`
        const LOCKOWNER = 1 << 9;
        /// `ctime`
        const CTIME = 1 << 10;
        /// Clear setuid, and setgid where the group may execute.
        const KILL_SUIDGID = 1 << 11;
    }
}

bitflags! {
    /// Flags of WRITE.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct WriteFlags: u32 {
        /// From the kernel's page cache; the file handle is a guess.
        const CACHE = 1 << 0;
        /// `lock_owner` counts.
        const LOCKOWNER = 1 << 1;
        /// Clear setuid, and setgid where the group may execute.
        const KILL_SUIDGID = 1 << 2;
    }
}

bitflags! {
    /// Flags of RELEASE.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct ReleaseFlags: u32 {
        /// Flush as well.
        const FLUSH = 1 << 0;
        /// Drop the owner's flock locks.
        const FLOCK_UNLOCK = 1 << 1;
    }
}

/// READ: `lock_owner` counts.
pub const READ_LOCKOWNER: u32 = 1 << 1;
/// GETATTR and STATX: `fh` counts.
pub const GETATTR_FH: u32 = 1 << 0;
/// GETLK, SETLK, SETLKW: a flock lock, not an fcntl one.
pub const LK_FLOCK: u32 = 1 << 0;
/// FSYNC, FSYNCDIR: data alone.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// OPEN, CREATE: clear setuid, and setgid where the group may execute.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// SETXATTR: clear setgid when `system.posix_acl_access` is set.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// INVAL_ENTRY: expire, do not drop.
pub const EXPIRE_ONLY: u32 = 1 << 0;
