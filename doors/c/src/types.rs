//! What C has pointers to, and structs that it fills or reads.

#![allow(non_camel_case_types, reason = "names of C")]

use crate::fail::{Failure, Outcome};
use narufs::{FileTimes, Metadata};
use std::ffi::{c_char, c_int, c_void};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

macro_rules! opaque {
    ($($name:ident),*) => { $(
        #[repr(C)]
        pub struct $name {
            _opaque: [u8; 0],
        }
    )* };
}

opaque!(narufs_dir, narufs_file, narufs_entries, narufs_batch);

/// Told once how something ended: with 0, or with an errno, of which narufs_error_message() has the words. It is called by
/// the thread that has asked or by another, and must neither wait nor use the file system, nor throw.
pub type narufs_done = Option<unsafe extern "C" fn(arg: *mut c_void, error: c_int)>;

/// How a file system is made. Begin with NARUFS_FORMAT_OPTIONS_INIT.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct narufs_format_options {
    /// sizeof of this struct.
    pub size: usize,
    /// Bytes of the file system; 0 is all of the device. With it an image that is a file is made if it is not there.
    pub bytes: u64,
    /// Where the journal lies: NARUFS_JOURNAL_....
    pub journal: c_int,
    /// Of what root owns: owner and group of the root directory.
    pub uid: u32,
    pub gid: u32,
    /// Not 0: even where there is a file system already, which is lost.
    pub force: c_int,
    /// Of a journal outside of the image.
    pub journal_path: *const c_char,
    /// The name of the file system, 32 bytes at the most; or NULL.
    pub label: *const c_char,
    /// Not 0: no space is reserved for an image that is a file, which takes it as it is written.
    pub sparse: c_int,
}

/// In a ring on the image.
pub const NARUFS_JOURNAL_IMAGE: c_int = 0;
/// In persistent memory: a file on a DAX file system, or a DAX device.
pub const NARUFS_JOURNAL_PMEM: c_int = 1;
/// In a file in shared memory that stands for persistent memory: it survives the process, not the machine.
pub const NARUFS_JOURNAL_EMULATED: c_int = 2;

/// How a file system is mounted. Begin with NARUFS_MOUNT_OPTIONS_INIT; what is 0 is as usual.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct narufs_mount_options {
    /// sizeof of this struct.
    pub size: usize,
    /// Bytes of memory for the content of files; 0 is by default.
    pub memory: u64,
    /// Bytes of memory for metadata; 0 is by default.
    pub metadata_memory: u64,
    /// What a sync waits for: NARUFS_DURABILITY_....
    pub durability: c_int,
    /// With NARUFS_DURABILITY_WINDOW: 1 to 60000.
    pub window_ms: u32,
    /// When reading changes access times: NARUFS_ATIME_....
    pub access_times: c_int,
    /// What an image is that was not unmounted: NARUFS_ORIGIN_....
    pub origin: c_int,
    /// Not 0: change nothing.
    pub read_only: c_int,
    /// Not 0: write changed times only with something else.
    pub lazy_times: c_int,
    /// Not 0: every change is durable when it returns.
    pub sync: c_int,
    /// Not 0: give up what of the journal is lost; where something is, the image can be read only until a repair by fsck.
    pub discard_journal: c_int,
    /// The path of the journal, if it is not the one that the image names; or NULL.
    pub journal: *const c_char,
}

/// What was synced survives the machine's loss of power.
pub const NARUFS_DURABILITY_POWER: c_int = 0;
/// What was synced survives the end of the process, and a loss of power but for the last window_ms.
pub const NARUFS_DURABILITY_WINDOW: c_int = 1;
/// What was synced survives the end of the process.
pub const NARUFS_DURABILITY_PROCESS: c_int = 2;

/// If it is not later than the last change, or a day old.
pub const NARUFS_ATIME_RELATIVE: c_int = 0;
/// Always.
pub const NARUFS_ATIME_STRICT: c_int = 1;
/// Never.
pub const NARUFS_ATIME_NEVER: c_int = 2;

/// Not known.
pub const NARUFS_ORIGIN_UNKNOWN: c_int = 0;
/// That image, at another place.
pub const NARUFS_ORIGIN_MOVED: c_int = 1;
/// A copy.
pub const NARUFS_ORIGIN_COPIED: c_int = 2;

/// How a scratch file system is made. Begin with NARUFS_SCRATCH_OPTIONS_INIT, and set memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct narufs_scratch_options {
    /// sizeof of this struct.
    pub size: usize,
    /// Bytes of memory, for files and metadata together.
    pub memory: u64,
    /// Bytes of it for metadata, where there is spill space; 0 is an eighth.
    pub metadata_memory: u64,
    /// Bytes of spill space to use; 0 is all, or what is reasonable in a directory.
    pub spill_bytes: u64,
    /// A device, a file or a directory for what memory has no room for; or NULL.
    pub spill: *const c_char,
    /// When reading changes access times: NARUFS_ATIME_....
    pub access_times: c_int,
    /// Not 0: use the spill space even if it holds data, which are lost.
    pub force: c_int,
}

/// Attributes of a file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct narufs_stat {
    pub ino: u64,
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    pub nlink: u64,
    pub rdev: u64,
    /// Type and permissions, as st_mode.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// With ino unique for ever.
    pub generation: u32,
    pub atime: libc::timespec,
    pub mtime: libc::timespec,
    pub ctime: libc::timespec,
    /// When it was made.
    pub btime: libc::timespec,
    pub reserved: [u64; 4],
}

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct narufs_entry {
    pub ino: u64,
    /// Behind this entry, for narufs_entries_seek().
    pub position: u64,
    /// DT_REG, DT_DIR and so on, of <dirent.h>.
    pub kind: u32,
    pub name_len: u32,
    /// Ends with a zero byte.
    pub name: [c_char; 256],
}

/// Room and use of a file system.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct narufs_space {
    /// Bytes that files and metadata can have.
    pub total: u64,
    /// Bytes of them that are free.
    pub free: u64,
    /// Inodes in use and still possible.
    pub files: u64,
    /// Inodes still possible.
    pub files_free: u64,
    pub reserved: [u64; 4],
}

/// What was brought back when a file system was mounted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct narufs_recovery {
    /// Records of the journal that were redone; 0 after a clean unmount.
    pub records: u64,
    /// Pages (4 KiB) of files' content that were taken from the journal.
    pub data_pages: u64,
    pub reserved: [u64; 2],
}

/// A lock that is in the way of another.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct narufs_lock {
    pub start: u64,
    /// 0 is up to the end of the file, wherever that is.
    pub len: u64,
    /// NARUFS_LOCK_SHARED or NARUFS_LOCK_EXCLUSIVE.
    pub kind: c_int,
    pub reserved: [u32; 3],
}

fn timespec(time: SystemTime) -> libc::timespec {
    // Before 1970 the seconds are rounded down.
    let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => (-seconds, 0),
                nanoseconds => (-seconds - 1, 1_000_000_000 - nanoseconds),
            }
        }
    };
    libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() }
}

/// A time to set, as utimensat(2).
enum Stamp {
    Omit,
    Now,
    At(SystemTime),
}

fn time(at: &libc::timespec) -> Outcome<Stamp> {
    match at.tv_nsec {
        libc::UTIME_OMIT => Ok(Stamp::Omit),
        libc::UTIME_NOW => Ok(Stamp::Now),
        nanoseconds => {
            let wrong = || {
                Failure::invalid("a time has less than 0 or more than 999999999 nanoseconds, or does not fit")
            };
            let nanoseconds = u32::try_from(nanoseconds).ok().filter(|n| *n < 1_000_000_000);
            let nanoseconds = Duration::new(0, nanoseconds.ok_or_else(wrong)?);
            let seconds = Duration::from_secs(at.tv_sec.unsigned_abs());
            let whole =
                if at.tv_sec < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
            whole.and_then(|whole| whole.checked_add(nanoseconds)).ok_or_else(wrong).map(Stamp::At)
        }
    }
}

/// Times to set, of access and of change; NULL is now.
pub(crate) fn times(at: *const libc::timespec) -> Outcome<FileTimes> {
    if at.is_null() {
        return Ok(FileTimes::new().set_accessed_now().set_modified_now());
    }
    let [accessed, modified] = crate::args::bytes(at, 2)? else { return Err(Failure::invalid("no times")) };
    let times = FileTimes::new();
    let times = match time(accessed)? {
        Stamp::Omit => times,
        Stamp::Now => times.set_accessed_now(),
        Stamp::At(at) => times.set_accessed(at),
    };
    Ok(match time(modified)? {
        Stamp::Omit => times,
        Stamp::Now => times.set_modified_now(),
        Stamp::At(at) => times.set_modified(at),
    })
}

/// An owner to set; that of -1 stays, as chown(2).
pub(crate) fn owner(id: u32) -> Option<u32> {
    (id != u32::MAX).then_some(id)
}

pub(crate) fn stat(metadata: &Metadata) -> narufs_stat {
    narufs_stat {
        ino: metadata.ino(),
        size: metadata.len(),
        blocks: metadata.blocks(),
        nlink: metadata.nlink(),
        rdev: metadata.rdev(),
        mode: metadata.mode(),
        uid: metadata.uid(),
        gid: metadata.gid(),
        generation: metadata.generation(),
        atime: timespec(metadata.accessed()),
        mtime: timespec(metadata.modified()),
        ctime: timespec(metadata.changed()),
        btime: timespec(metadata.created()),
        reserved: [0; 4],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_come_back_as_they_were_set() {
        for (tv_sec, tv_nsec) in [(0, 0), (5, 7), (-1, 999_999_999), (-3, 0), (-3, 1)] {
            let at = libc::timespec { tv_sec, tv_nsec };
            let Ok(Stamp::At(time)) = time(&at) else { panic!("{tv_sec} {tv_nsec}") };
            let back = timespec(time);
            assert_eq!((back.tv_sec, back.tv_nsec), (tv_sec, tv_nsec));
        }
        for (tv_sec, tv_nsec) in [(0, -1), (0, 1_000_000_000), (0, i64::MAX)] {
            let wrong = time(&libc::timespec { tv_sec, tv_nsec });
            assert!(matches!(wrong, Err(failure) if failure.errno() == libc::EINVAL), "{tv_sec} {tv_nsec}");
        }
    }
}
