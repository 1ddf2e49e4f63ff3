//! The structures that the kernel sends: each a header field by field as `fuse.h` has it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! wire_structs {
    ($($(#[$doc:meta])* $name:ident [$size:literal] { $($field:ident: $ty:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
            #[repr(C)]
            #[allow(missing_docs, reason = "fields bear the names that fuse.h gives them")]
            pub struct $name { $(pub $field: $ty,)* }
            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}
pub(super) use wire_structs;

wire_structs! {
    /// What every request begins with.
    InHeader[40] {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        total_extlen: u16,
        padding: u16,
    }
    /// INIT before 7.36.
    InitIn[16] {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
    }
    /// What INIT adds since 7.36.
    InitExtIn[48] {
        flags2: u32,
        unused: [u32; 11],
    }
    /// FORGET.
    ForgetIn[8] {
        nlookup: u64,
    }
    /// One of BATCH_FORGET.
    ForgetOne[16] {
        nodeid: u64,
        nlookup: u64,
    }
    /// BATCH_FORGET; `count` of [`ForgetOne`] follow.
    BatchForgetIn[8] {
        count: u32,
        dummy: u32,
    }
    /// GETATTR.
    GetattrIn[16] {
        getattr_flags: u32,
        dummy: u32,
        fh: u64,
    }
    /// STATX.
    StatxIn[24] {
        getattr_flags: u32,
        reserved: u32,
        fh: u64,
        sx_flags: u32,
        sx_mask: u32,
    }
    /// MKNOD.
    MknodIn[16] {
        mode: u32,
        rdev: u32,
        umask: u32,
        padding: u32,
    }
    /// MKDIR.
    MkdirIn[8] {
        mode: u32,
        umask: u32,
    }
    /// RENAME.
    RenameIn[8] {
        newdir: u64,
    }
    /// RENAME2.
    Rename2In[16] {
        newdir: u64,
        flags: u32,
        padding: u32,
    }
    /// LINK.
    LinkIn[8] {
        oldnodeid: u64,
    }
    /// SETATTR.
    SetattrIn[88] {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    /// OPEN, OPENDIR.
    OpenIn[8] {
        flags: u32,
        open_flags: u32,
    }
    /// CREATE, TMPFILE.
    CreateIn[16] {
        flags: u32,
        mode: u32,
        umask: u32,
        open_flags: u32,
    }
    /// RELEASE, RELEASEDIR.
    ReleaseIn[24] {
        fh: u64,
        flags: u32,
        release_flags: u32,
        lock_owner: u64,
    }
    /// FLUSH.
    FlushIn[24] {
        fh: u64,
        unused: u32,
        padding: u32,
        lock_owner: u64,
    }
    /// READ, READDIR, READDIRPLUS.
    ReadIn[40] {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    /// WRITE; `size` bytes follow.
    WriteIn[40] {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    /// FSYNC, FSYNCDIR.
    FsyncIn[16] {
        fh: u64,
        fsync_flags: u32,
        padding: u32,
    }
    /// SETXATTR without SETXATTR_EXT.
    SetxattrCompatIn[8] {
        size: u32,
        flags: u32,
    }
    /// SETXATTR with SETXATTR_EXT.
    SetxattrIn[16] {
        size: u32,
        flags: u32,
        setxattr_flags: u32,
        padding: u32,
    }
    /// GETXATTR, LISTXATTR.
    GetxattrIn[8] {
        size: u32,
        padding: u32,
    }
    /// A range and what is held on it.
    FileLock[24] {
        start: u64,
        end: u64,
        kind: u32,
        pid: u32,
    }
    /// GETLK, SETLK, SETLKW.
    LkIn[48] {
        fh: u64,
        owner: u64,
        lk: FileLock,
        lk_flags: u32,
        padding: u32,
    }
    /// ACCESS.
    AccessIn[8] {
        mask: u32,
        padding: u32,
    }
    /// INTERRUPT.
    InterruptIn[8] {
        unique: u64,
    }
    /// BMAP.
    BmapIn[16] {
        block: u64,
        blocksize: u32,
        padding: u32,
    }
    /// IOCTL; `in_size` bytes follow.
    IoctlIn[32] {
        fh: u64,
        flags: u32,
        cmd: u32,
        arg: u64,
        in_size: u32,
        out_size: u32,
    }
    /// POLL.
    PollIn[24] {
        fh: u64,
        kh: u64,
        flags: u32,
        events: u32,
    }
    /// FALLOCATE.
    FallocateIn[32] {
        fh: u64,
        offset: u64,
        length: u64,
        mode: u32,
        padding: u32,
    }
    /// LSEEK.
    LseekIn[24] {
        fh: u64,
        offset: u64,
        whence: u32,
        padding: u32,
    }
    /// COPY_FILE_RANGE, COPY_FILE_RANGE_64.
    CopyFileRangeIn[56] {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }
    /// SYNCFS.
    SyncfsIn[8] {
        padding: u64,
    }
    /// One security context: a name and a value follow.
    Secctx[8] {
        size: u32,
        padding: u32,
    }
    /// What an extension begins with; for types up to 31, `kind` counts security contexts.
    ExtHeader[8] {
        size: u32,
        kind: u32,
    }
}
