//! Operations as data: generated from a seed, printed, replayed on the model, the library and a mount.

mod generator;

pub use generator::Generator;

/// What makes a write durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// Nothing.
    No,
    /// O_DSYNC on the open file.
    Dsync,
    /// O_SYNC on the open file.
    Sync,
    /// fsync after it.
    Fsync,
    /// fdatasync after it.
    Fdatasync,
}

/// The modes of fallocate(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Falloc {
    /// 0
    Allocate,
    /// KEEP_SIZE
    AllocateKeep,
    /// PUNCH_HOLE | KEEP_SIZE
    Punch,
    /// ZERO_RANGE
    Zero,
    /// ZERO_RANGE | KEEP_SIZE
    ZeroKeep,
    /// COLLAPSE_RANGE
    Collapse,
    /// INSERT_RANGE
    Insert,
}

impl Falloc {
    /// Every mode.
    pub const ALL: [Falloc; 7] = [
        Falloc::Allocate,
        Falloc::AllocateKeep,
        Falloc::Punch,
        Falloc::Zero,
        Falloc::ZeroKeep,
        Falloc::Collapse,
        Falloc::Insert,
    ];

    /// The kernel's `FALLOC_FL_*` bits.
    pub fn bits(self) -> u32 {
        let bits = match self {
            Falloc::Allocate => 0,
            Falloc::AllocateKeep => libc::FALLOC_FL_KEEP_SIZE,
            Falloc::Punch => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            Falloc::Zero => libc::FALLOC_FL_ZERO_RANGE,
            Falloc::ZeroKeep => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
            Falloc::Collapse => libc::FALLOC_FL_COLLAPSE_RANGE,
            Falloc::Insert => libc::FALLOC_FL_INSERT_RANGE,
        };
        bits as u32
    }
}

/// What mknod makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// A regular file.
    File,
    /// A fifo.
    Fifo,
    /// A socket.
    Socket,
    /// A character device with this number.
    Char(u32),
    /// A block device with this number.
    Block(u32),
}

impl Node {
    /// Its bits of `S_IFMT`.
    pub fn bits(self) -> u32 {
        match self {
            Node::File => libc::S_IFREG,
            Node::Fifo => libc::S_IFIFO,
            Node::Socket => libc::S_IFSOCK,
            Node::Char(_) => libc::S_IFCHR,
            Node::Block(_) => libc::S_IFBLK,
        }
    }

    /// Its device number.
    pub fn rdev(self) -> u32 {
        match self {
            Node::Char(rdev) | Node::Block(rdev) => rdev,
            _ => 0,
        }
    }
}

/// Which attribute setxattr wants to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exists {
    /// Any or none.
    Any,
    /// None: XATTR_CREATE.
    No,
    /// One: XATTR_REPLACE.
    Yes,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// UTIME_OMIT
    Omit,
    /// UTIME_NOW
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

/// One operation. Paths are absolute in the tested tree, without "." and "..".
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the system calls and their arguments")]
pub enum Op {
    Create {
        path: String,
        exclusive: bool,
    },
    Mkdir {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Unlink {
        path: String,
    },
    Mknod {
        path: String,
        node: Node,
    },
    Symlink {
        target: String,
        path: String,
    },
    Link {
        from: String,
        to: String,
    },
    /// `flags`: 0, RENAME_NOREPLACE or RENAME_EXCHANGE.
    Rename {
        from: String,
        to: String,
        flags: u32,
    },
    Write {
        path: String,
        offset: u64,
        len: u32,
        fill: u8,
        durable: Durable,
    },
    Append {
        path: String,
        len: u32,
        fill: u8,
    },
    /// open with O_TRUNC, write, close. `direct`: the last whole block is written again, past the cache.
    Rewrite {
        path: String,
        len: u32,
        fill: u8,
        direct: bool,
    },
    /// O_DIRECT; offset and length in blocks of 4096.
    WriteDirect {
        path: String,
        block: u64,
        blocks: u32,
        fill: u8,
        durable: Durable,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Fallocate {
        path: String,
        mode: Falloc,
        offset: u64,
        len: u64,
    },
    CopyRange {
        from: String,
        from_offset: u64,
        to: String,
        to_offset: u64,
        len: u64,
    },
    /// O_TMPFILE, write, linkat.
    Tmpfile {
        dir: String,
        path: String,
        len: u32,
        fill: u8,
    },
    /// One write to each of two files, which are synced before, as one atomic batch that is waited for or not; no more
    /// than two writes, synced or not, on what knows no batches.
    Batch {
        paths: [String; 2],
        offset: u64,
        len: u32,
        fill: u8,
        is_synced: bool,
    },
    Fsync {
        path: String,
    },
    Fdatasync {
        path: String,
    },
    FsyncDir {
        path: String,
    },
    SyncAll,
    SetXattr {
        path: String,
        name: String,
        len: u32,
        fill: u8,
        exists: Exists,
    },
    /// setfacl: the access list, or the default list of a directory, as [`crate::acl::list`] makes it.
    SetAcl {
        path: String,
        default: bool,
        uid: u32,
        perm: u16,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Chown {
        path: String,
        uid: u32,
        gid: u32,
    },
    /// Drops setuid and setgid as a write by an unprivileged task would.
    KillSuid {
        path: String,
    },
    Utimens {
        path: String,
        atime: When,
        mtime: When,
    },
    Read {
        path: String,
        offset: u64,
        len: u32,
    },
}

impl Op {
    /// Whether the operation makes what came before it durable when it succeeds.
    pub fn syncs(&self) -> bool {
        match self {
            Op::Fsync { .. }
            | Op::Fdatasync { .. }
            | Op::FsyncDir { .. }
            | Op::SyncAll
            | Op::Batch { is_synced: true, .. } => true,
            Op::Write { durable, .. } | Op::WriteDirect { durable, .. } => *durable != Durable::No,
            _ => false,
        }
    }
}
