//! What operations take and give, apart from the wire's layout.

use crate::wire::{
    AttrOut, EntryOut, GetattrOut, OpenFlags, SetattrIn, SetattrValid, Statx, StatxOut, SxTime,
};
use std::time::Duration;

/// Why an operation fails: the errno that the caller gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl From<narufs_engine::Error> for Errno {
    fn from(error: narufs_engine::Error) -> Self {
        Errno(error.errno())
    }
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Errno>;

/// A point in time: seconds since 1970, and nanoseconds within the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub secs: i64,
    /// Nanoseconds, below 1e9.
    pub nanos: u32,
}

/// Attributes of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attr {
    /// The number that stat(2) shows.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Type and permissions.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as the kernel encodes it.
    pub rdev: u32,
    /// The best size of a read or write, in bytes.
    pub blksize: u32,
}

impl Attr {
    /// As the wire has it.
    pub fn to_wire(&self) -> AttrOut {
        AttrOut {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.secs as u64,
            mtime: self.mtime.secs as u64,
            ctime: self.ctime.secs as u64,
            atimensec: self.atime.nanos,
            mtimensec: self.mtime.nanos,
            ctimensec: self.ctime.nanos,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.blksize,
            flags: 0,
        }
    }
}

/// Attributes, and how long the kernel may keep them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// The attributes.
    pub attr: Attr,
    /// For how long they hold without being asked for again.
    pub timeout: Duration,
}

impl Attributes {
    /// As the wire has it.
    pub fn to_wire(&self) -> GetattrOut {
        GetattrOut {
            attr_valid: self.timeout.as_secs(),
            attr_valid_nsec: self.timeout.subsec_nanos(),
            dummy: 0,
            attr: self.attr.to_wire(),
        }
    }
}

impl StatxOut {
    /// Attributes with a birth time.
    pub fn with_birth(Attributes { attr, timeout }: &Attributes, birth: Time) -> Self {
        let time = |time: Time| SxTime { tv_sec: time.secs, tv_nsec: time.nanos, reserved: 0 };
        StatxOut {
            attr_valid: timeout.as_secs(),
            attr_valid_nsec: timeout.subsec_nanos(),
            flags: 0,
            spare: [0; 2],
            stat: Statx {
                mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
                blksize: attr.blksize,
                attributes: 0,
                nlink: attr.nlink,
                uid: attr.uid,
                gid: attr.gid,
                mode: attr.mode as u16,
                spare0: 0,
                ino: attr.ino,
                size: attr.size,
                blocks: attr.blocks,
                attributes_mask: 0,
                atime: time(attr.atime),
                btime: time(birth),
                ctime: time(attr.ctime),
                mtime: time(attr.mtime),
                // The kernel's encoding of device numbers: 12 bits of major between the minor's 8 and 12.
                rdev_major: attr.rdev >> 8 & 0xfff,
                rdev_minor: attr.rdev & 0xff | attr.rdev >> 12 & 0xfff00,
                dev_major: 0,
                dev_minor: 0,
                spare2: [0; 14],
            },
        }
    }
}

/// What a name leads to. Giving one away raises the inode's lookup count by one; FORGET lowers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// The inode as the kernel will name it; 0 for a name known not to exist.
    pub nodeid: u64,
    /// Distinguishes inodes that bear the same number one after the other.
    pub generation: u64,
    /// Its attributes.
    pub attr: Attr,
    /// For how long the kernel may trust the name.
    pub entry_timeout: Duration,
    /// For how long it may trust the attributes.
    pub attr_timeout: Duration,
}

impl Entry {
    /// A name known not to exist for so long. No lookup count is raised.
    pub fn negative(timeout: Duration) -> Self {
        Entry { entry_timeout: timeout, ..Entry::default() }
    }

    /// As the wire has it.
    pub fn to_wire(&self) -> EntryOut {
        EntryOut {
            nodeid: self.nodeid,
            generation: self.generation,
            entry_valid: self.entry_timeout.as_secs(),
            attr_valid: self.attr_timeout.as_secs(),
            entry_valid_nsec: self.entry_timeout.subsec_nanos(),
            attr_valid_nsec: self.attr_timeout.subsec_nanos(),
            attr: self.attr.to_wire(),
        }
    }
}

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// What the kernel will call it.
    pub fh: u64,
    /// How the kernel treats it; what it does not know is taken out before it is sent.
    pub flags: OpenFlags,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The server's own clock.
    Now,
    /// This time.
    At(Time),
}

/// Attributes to change: those that are `Some`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size, in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the data.
    pub mtime: Option<SetTime>,
    /// Last change of the inode (only with the write-back cache).
    pub ctime: Option<Time>,
    /// The open file through which it is changed: its access was checked at open.
    pub fh: Option<u64>,
    /// Clear setuid, and setgid where the group may execute.
    pub kill_suidgid: bool,
}

impl From<&SetattrIn> for SetAttr {
    fn from(args: &SetattrIn) -> Self {
        let valid = SetattrValid::from_bits_truncate(args.valid);
        let time = |at: SetattrValid, now: SetattrValid, secs: u64, nanos: u32| {
            if valid.contains(now) {
                Some(SetTime::Now)
            } else {
                valid.contains(at).then_some(SetTime::At(Time { secs: secs as i64, nanos }))
            }
        };
        SetAttr {
            mode: valid.contains(SetattrValid::MODE).then_some(args.mode),
            uid: valid.contains(SetattrValid::UID).then_some(args.uid),
            gid: valid.contains(SetattrValid::GID).then_some(args.gid),
            size: valid.contains(SetattrValid::SIZE).then_some(args.size),
            atime: time(SetattrValid::ATIME, SetattrValid::ATIME_NOW, args.atime, args.atimensec),
            mtime: time(SetattrValid::MTIME, SetattrValid::MTIME_NOW, args.mtime, args.mtimensec),
            ctime: valid
                .contains(SetattrValid::CTIME)
                .then_some(Time { secs: args.ctime as i64, nanos: args.ctimensec }),
            fh: valid.contains(SetattrValid::FH).then_some(args.fh),
            kill_suidgid: valid.contains(SetattrValid::KILL_SUIDGID),
        }
    }
}

/// A lock asked for or held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// The open file through which it is asked for.
    pub fh: u64,
    /// Who holds it, as the kernel names owners (an open file, or a process's table of files).
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Last byte, included.
    pub end: u64,
    /// F_RDLCK, F_WRLCK or F_UNLCK.
    pub kind: i32,
    /// The process, for F_GETLK.
    pub pid: u32,
    /// A flock lock: another name space than fcntl's.
    pub flock: bool,
}
