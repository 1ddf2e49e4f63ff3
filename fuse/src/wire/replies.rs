//! The structures that the server sends.

use super::structs::{FileLock, wire_structs};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

wire_structs! {
    /// What every reply and notification begins with.
    OutHeader[16] {
        len: u32,
        error: i32,
        unique: u64,
    }
    /// INIT's answer.
    InitOut[64] {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    }
    /// Attributes of an inode.
    AttrOut[88] {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    /// LOOKUP and whatever makes a name.
    EntryOut[128] {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: AttrOut,
    }
    /// GETATTR, SETATTR.
    GetattrOut[104] {
        attr_valid: u64,
        attr_valid_nsec: u32,
        dummy: u32,
        attr: AttrOut,
    }
    /// A time of STATX.
    SxTime[16] {
        tv_sec: i64,
        tv_nsec: u32,
        reserved: i32,
    }
    /// Attributes of STATX.
    Statx[256] {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: SxTime,
        btime: SxTime,
        ctime: SxTime,
        mtime: SxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }
    /// STATX.
    StatxOut[288] {
        attr_valid: u64,
        attr_valid_nsec: u32,
        flags: u32,
        spare: [u64; 2],
        stat: Statx,
    }
    /// OPEN, OPENDIR, and the second half of CREATE and TMPFILE.
    OpenOut[16] {
        fh: u64,
        open_flags: u32,
        backing_id: i32,
    }
    /// WRITE, COPY_FILE_RANGE.
    WriteOut[8] {
        size: u32,
        padding: u32,
    }
    /// STATFS.
    StatfsOut[80] {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
    /// GETXATTR, LISTXATTR asked for the size alone.
    GetxattrOut[8] {
        size: u32,
        padding: u32,
    }
    /// GETLK.
    LkOut[24] {
        lk: FileLock,
    }
    /// BMAP.
    BmapOut[8] {
        block: u64,
    }
    /// IOCTL; data follow.
    IoctlOut[16] {
        result: i32,
        flags: u32,
        in_iovs: u32,
        out_iovs: u32,
    }
    /// POLL.
    PollOut[8] {
        revents: u32,
        padding: u32,
    }
    /// LSEEK.
    LseekOut[8] {
        offset: u64,
    }
    /// COPY_FILE_RANGE_64.
    CopyFileRangeOut[8] {
        bytes_copied: u64,
    }
    /// What a name in a directory begins with.
    DirentHead[24] {
        ino: u64,
        off: u64,
        namelen: u32,
        kind: u32,
    }
    /// Notification: drop attributes and pages of an inode.
    InvalInodeOut[24] {
        ino: u64,
        off: i64,
        len: i64,
    }
    /// Notification: take these bytes of a file, which follow.
    StoreOut[24] {
        nodeid: u64,
        offset: u64,
        size: u32,
        padding: u32,
    }
    /// Notification: drop (or expire) a name; the name and a zero follow.
    InvalEntryOut[16] {
        parent: u64,
        namelen: u32,
        flags: u32,
    }
    /// Notification: a name is gone; the name and a zero follow.
    DeleteOut[24] {
        parent: u64,
        child: u64,
        namelen: u32,
        padding: u32,
    }
}
