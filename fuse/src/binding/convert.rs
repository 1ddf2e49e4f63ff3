//! Between the engine's types and the mount's.

use crate::operations::Write;
use crate::types::{Attr, SetAttr, SetTime, Time};
use crate::wire::{StatfsOut, WriteFlags};
use narufs_engine::device::BLOCK_SIZE;
use narufs_engine::vfs;

const NANOS: i64 = 1_000_000_000;

fn kernel_time(nanos: i64) -> Time {
    Time { secs: nanos.div_euclid(NANOS), nanos: nanos.rem_euclid(NANOS) as u32 }
}

/// Times further away than the engine keeps (the years 1677 to 2262) become its first or last.
fn engine_time(time: Time) -> i64 {
    time.secs.saturating_mul(NANOS).saturating_add(i64::from(time.nanos))
}

/// Attributes as the kernel takes them.
pub fn kernel_attr(attr: &vfs::Attr) -> Attr {
    Attr {
        ino: attr.nid,
        size: attr.size,
        blocks: attr.blocks,
        atime: kernel_time(attr.atime),
        mtime: kernel_time(attr.mtime),
        ctime: kernel_time(attr.ctime),
        mode: attr.mode(),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_SIZE as u32,
    }
}

/// The time of birth as the kernel takes it.
pub fn birth_of(attr: &vfs::Attr) -> Time {
    kernel_time(attr.btime)
}

/// What is to be set, as the engine takes it.
pub fn engine_attributes(change: &SetAttr) -> vfs::SetAttr {
    let time = |time: Option<SetTime>| match time {
        None => vfs::SetTime::Omit,
        Some(SetTime::Now) => vfs::SetTime::Now,
        Some(SetTime::At(time)) => vfs::SetTime::At(engine_time(time)),
    };
    vfs::SetAttr {
        mode: change.mode,
        uid: change.uid,
        gid: change.gid,
        size: change.size,
        atime: time(change.atime),
        mtime: time(change.mtime),
        kill_suidgid: change.kill_suidgid,
    }
}

/// The flags to open a file with in the engine.
///
/// Where the kernel's page cache is in between, the kernel itself finds the end for O_APPEND, and sends an FSYNC
/// after each write for O_SYNC; writes from its cache may come through any handle and must heed neither.
pub fn engine_open_flags(flags: i32, direct: bool) -> vfs::OpenFlags {
    let flags = vfs::OpenFlags::from_kernel(flags as u32);
    let kernel_does = vfs::OpenFlags::APPEND | vfs::OpenFlags::SYNC | vfs::OpenFlags::DSYNC;
    if direct { flags } else { flags - kernel_does }
}

/// What holds for one write, wherever it goes. `direct`: past the kernel's page cache, so that these flags are the only
/// word of O_SYNC (which one write alone may have); past the engine's too if the program asked for that.
pub fn engine_write_flags(write: &Write, direct: bool) -> vfs::WriteFlags {
    let mut flags = vfs::WriteFlags::empty();
    flags.set(vfs::WriteFlags::KILL_SUIDGID, write.flags.contains(WriteFlags::KILL_SUIDGID));
    flags.set(vfs::WriteFlags::FROM_CACHE, write.flags.contains(WriteFlags::CACHE));
    if direct {
        let open = vfs::OpenFlags::from_kernel(write.open_flags as u32);
        flags.set(vfs::WriteFlags::SYNC, open.is_sync());
        flags.set(vfs::WriteFlags::DSYNC, open.is_dsync());
        flags.set(vfs::WriteFlags::DIRECT, open.contains(vfs::OpenFlags::DIRECT));
    }
    flags
}

/// Room and use as the kernel takes them.
pub fn statfs_out(room: &vfs::StatFs) -> StatfsOut {
    StatfsOut {
        blocks: room.blocks,
        bfree: room.blocks_free,
        bavail: room.blocks_available,
        files: room.files,
        ffree: room.files_free,
        bsize: room.block_size,
        namelen: room.name_max,
        frsize: room.block_size,
        padding: 0,
        spare: [0; 6],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_beyond_what_is_kept_are_defined() {
        let before = Time { secs: -2, nanos: 999_999_999 };
        assert_eq!(engine_time(before), -1_000_000_001);
        assert_eq!(kernel_time(-1_000_000_001), before);
        let last = kernel_time(engine_time(Time { secs: i64::MAX, nanos: 0 }));
        assert_eq!(engine_time(last), i64::MAX);
        assert_eq!(kernel_time(engine_time(Time { secs: i64::MIN, nanos: 5 })).secs, -9223372037);
    }

    #[test]
    fn the_kernel_appends_and_syncs_where_its_cache_is_in_between() {
        let open = libc::O_RDWR | libc::O_APPEND | libc::O_SYNC;
        assert_eq!(engine_open_flags(open, false), vfs::OpenFlags::READ_WRITE);
        assert!(engine_open_flags(open, true).is_sync());
        let write = Write { fh: 0, offset: 0, flags: WriteFlags::CACHE, open_flags: open };
        assert_eq!(engine_write_flags(&write, false), vfs::WriteFlags::FROM_CACHE);
        let direct = engine_write_flags(&Write { flags: WriteFlags::KILL_SUIDGID, ..write }, true);
        let wanted = vfs::WriteFlags::SYNC | vfs::WriteFlags::DSYNC;
        assert_eq!(direct, wanted | vfs::WriteFlags::KILL_SUIDGID);
        let asked = engine_write_flags(&Write { open_flags: open | libc::O_DIRECT, ..write }, true);
        assert_eq!(asked, wanted | vfs::WriteFlags::DIRECT | vfs::WriteFlags::FROM_CACHE);
    }
}
