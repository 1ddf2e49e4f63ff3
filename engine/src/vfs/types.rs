//! What callers of [`Vfs`](super::Vfs) give and get.

use crate::Result;
pub use crate::acl::Context;
use crate::error::Error;
pub use crate::file::FallocateMode;
use crate::format::Nid;
pub use crate::inode::{FileType, Time};

/// The attributes of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Identity.
    pub nid: Nid,
    /// Generation of the identity.
    pub generation: u32,
    /// Type.
    pub file_type: FileType,
    /// Permission bits with setuid, setgid and sticky (`0o7777`), without the type.
    pub perm: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as `st_rdev`.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// 512-byte units that belong to the inode, as `st_blocks`.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
}

impl Attr {
    /// Type and permissions as `st_mode`.
    pub fn mode(&self) -> u32 {
        self.file_type.mode() | self.perm
    }
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime {
    /// Leave it.
    #[default]
    Omit,
    /// The present.
    Now,
    /// This time.
    At(Time),
}

/// Attributes to set; what is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permission bits (`0o7777`); type bits are ignored.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes, of a regular file.
    pub size: Option<u64>,
    /// Last access.
    pub atime: SetTime,
    /// Last change of content.
    pub mtime: SetTime,
    /// Drop setuid and setgid as a write by an unprivileged task would (the kernel's KILL_SUIDGID).
    pub kill_suidgid: bool,
}

/// What a name leads to. Each entry that [`Vfs`](super::Vfs) returns holds one lookup count on its inode, to be
/// given back with [`Vfs::forget`](super::Vfs::forget).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Identity.
    pub nid: Nid,
    /// Generation: with the nid unique for ever.
    pub generation: u32,
    /// Attributes.
    pub attr: Attr,
}

/// One entry of a directory as [`Vfs::readdir`](super::Vfs::readdir) shows it; it holds no lookup count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode.
    pub nid: Nid,
    /// The place in the directory: the next call with it continues after this entry.
    pub cookie: u64,
    /// Type of the inode.
    pub file_type: FileType,
}

bitflags::bitflags! {
    /// How a file is opened; the bits are the kernel's `O_*`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct OpenFlags: i32 {
        /// For writing only.
        const WRITE_ONLY = libc::O_WRONLY;
        /// For reading and writing.
        const READ_WRITE = libc::O_RDWR;
        /// Each write goes to the end.
        const APPEND = libc::O_APPEND;
        /// Empty the file.
        const TRUNCATE = libc::O_TRUNC;
        /// Fail if the name exists.
        const EXCLUSIVE = libc::O_EXCL;
        /// Past the page cache.
        const DIRECT = libc::O_DIRECT;
        /// Each write returns when it and all attributes are durable.
        const SYNC = libc::O_SYNC;
        /// Each write returns when it is durable and can be read back.
        const DSYNC = libc::O_DSYNC;
        /// Reading leaves the access time.
        const NO_ATIME = libc::O_NOATIME;
        /// Only a directory will do.
        const DIRECTORY = libc::O_DIRECTORY;
        /// Not through a symlink.
        const NO_FOLLOW = libc::O_NOFOLLOW;
        /// For execution: needs execute permission in place of read permission (the kernel's `FMODE_EXEC`).
        const EXECUTE = 0o40;
        /// Reading is allowed whatever else is said: the kernel fills the pages of its cache that a program
        /// writes in part. No flag of the kernel's.
        const FILLS_CACHE = 1 << 30;
        /// What is read goes into a cache of the kernel's: it need not stay in the engine's too.
        const KERNEL_CACHES = 1 << 29;
    }
}

impl OpenFlags {
    /// The flags of a system call or FUSE request; unknown bits are dropped.
    pub fn from_kernel(flags: u32) -> OpenFlags {
        OpenFlags::from_bits_truncate(flags as i32) - OpenFlags::FILLS_CACHE - OpenFlags::KERNEL_CACHES
    }

    /// Whether reading is allowed.
    pub fn reads(self) -> bool {
        self.bits() & libc::O_ACCMODE != libc::O_WRONLY
    }

    /// Whether reading is answered: it is allowed, or the kernel's need alone.
    pub fn fills(self) -> bool {
        self.reads() || self.contains(OpenFlags::FILLS_CACHE)
    }

    /// Whether writing is allowed.
    pub fn writes(self) -> bool {
        self.bits() & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Whether all of O_SYNC is set, O_DSYNC being a part of it.
    pub fn is_sync(self) -> bool {
        self.contains(OpenFlags::SYNC)
    }

    /// Whether O_DSYNC or O_SYNC is set.
    pub fn is_dsync(self) -> bool {
        self.contains(OpenFlags::DSYNC)
    }
}

bitflags::bitflags! {
    /// What holds for one write, beside the flags of its open file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct WriteFlags: u32 {
        /// To the end, whatever the offset.
        const APPEND = 1;
        /// As O_SYNC.
        const SYNC = 2;
        /// As O_DSYNC.
        const DSYNC = 4;
        /// Past the page cache.
        const DIRECT = 8;
        /// Drop setuid, setgid and capabilities: the writer is not privileged.
        const KILL_SUIDGID = 16;
        /// The kernel writes back its cache: on behalf of nobody, no permission to check.
        const FROM_CACHE = 32;
        /// The times are the kernel's to change.
        const KEEP_TIMES = 64;
        /// ENOSPC, and nothing is written, where there is no room for all of it; but what takes several steps, for memory
        /// is short, is written as far as it came.
        const WHOLE = 128;
    }
}

bitflags::bitflags! {
    /// How to rename; the bits are the kernel's, but for the last.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct RenameFlags: u32 {
        /// Fail if the new name exists.
        const NO_REPLACE = libc::RENAME_NOREPLACE;
        /// Exchange the two names, which must exist.
        const EXCHANGE = libc::RENAME_EXCHANGE;
        /// Fail if it is no directory that is renamed: a slash after one of the names says so.
        const DIRECTORY = 1 << 31;
        /// Fail if it is no directory that the new name leads to: of two that are exchanged a slash says so.
        const TARGET_DIRECTORY = 1 << 30;
    }
}

/// What [`Vfs::lseek`](super::Vfs::lseek) looks for. Offsets from start, position and end need no file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// The next byte that is not in a hole.
    Data,
    /// The next hole; the end of the file counts as one.
    Hole,
}

/// How an extended attribute is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XattrMode {
    /// Made or replaced.
    #[default]
    Any,
    /// Must be new.
    Create,
    /// Must exist.
    Replace,
}

/// Room and use, as statfs shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct StatFs {
    /// Bytes of a block: the unit of the counts.
    pub block_size: u32,
    /// Blocks that files and metadata can have.
    pub blocks: u64,
    /// Free blocks of them.
    pub blocks_free: u64,
    /// Free blocks for tasks without privilege: the same.
    pub blocks_available: u64,
    /// Inodes in use and still possible.
    pub files: u64,
    /// Inodes still possible.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}

/// When reading changes the access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum AtimePolicy {
    /// If it is not later than the last change, or a day old.
    #[default]
    Relative,
    /// Always.
    Strict,
    /// Never.
    Never,
}

/// How a mounted image behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct VfsOptions {
    /// Nothing may be changed.
    pub read_only: bool,
    /// When reading changes the access time.
    pub atime: AtimePolicy,
    /// Changed times alone are written only with something else, at fsync, at eviction or at unmount.
    pub lazytime: bool,
    /// Every change is durable when it returns.
    pub sync: bool,
}

/// ENOENT, ENAMETOOLONG or nothing: what can be a path, or lie on an image as the target of a symlink.
pub(crate) fn check_path(path: &[u8]) -> Result<()> {
    if path.is_empty() {
        return Err(Error::Errno(libc::ENOENT));
    }
    if path.len() >= libc::PATH_MAX as usize {
        return Err(Error::Errno(libc::ENAMETOOLONG));
    }
    Ok(())
}

/// ENOENT, ENAMETOOLONG, EINVAL or nothing: what can be made the target of a symlink. No system call gives one with a zero
/// byte; an image may have one all the same.
pub(crate) fn check_target(target: &[u8]) -> Result<()> {
    check_path(target)?;
    if target.contains(&0) { Err(Error::Errno(libc::EINVAL)) } else { Ok(()) }
}
