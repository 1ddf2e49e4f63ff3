//! Whole file systems.

#![allow(unsafe_code, reason = "names that C links to")]

use crate::args::{self, maybe_text, put};
use crate::dir::Place;
use crate::fail::{Failure, Outcome, done, handle, number};
use crate::handles::{self, with};
use crate::table::Closed;
use crate::types::*;
use narufs::{AccessTimes, Durability, FormatOptions, Fs, Journal, MountOptions, Origin, ScratchOptions};
use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::time::Duration;

fn to_format(asked: &narufs_format_options) -> Outcome<FormatOptions> {
    let journal = match asked.journal {
        NARUFS_JOURNAL_IMAGE => Journal::Image,
        NARUFS_JOURNAL_PMEM => Journal::PersistentMemory(args::path(asked.journal_path)?.into()),
        NARUFS_JOURNAL_EMULATED => Journal::Emulated(args::path(asked.journal_path)?.into()),
        _ => return Err(Failure::invalid("journal is none of NARUFS_JOURNAL_...")),
    };
    let mut options = FormatOptions::new()
        .journal(journal)
        .force(asked.force != 0)
        .owner(asked.uid, asked.gid)
        .sparse(asked.sparse != 0);
    if asked.bytes > 0 {
        options = options.size(asked.bytes);
    }
    if let Some(label) = maybe_text(asked.label) {
        options = options.label(label.to_str().ok_or_else(|| Failure::invalid("the label is not UTF-8"))?);
    }
    Ok(options)
}

fn to_access_times(asked: c_int) -> Outcome<AccessTimes> {
    match asked {
        NARUFS_ATIME_RELATIVE => Ok(AccessTimes::Relative),
        NARUFS_ATIME_STRICT => Ok(AccessTimes::Strict),
        NARUFS_ATIME_NEVER => Ok(AccessTimes::Never),
        _ => Err(Failure::invalid("access_times is none of NARUFS_ATIME_...")),
    }
}

fn to_mount(asked: &narufs_mount_options) -> Outcome<MountOptions> {
    let durability = match asked.durability {
        NARUFS_DURABILITY_POWER => Durability::Power,
        NARUFS_DURABILITY_WINDOW => Durability::Window(Duration::from_millis(asked.window_ms.into())),
        NARUFS_DURABILITY_PROCESS => Durability::Process,
        _ => return Err(Failure::invalid("durability is none of NARUFS_DURABILITY_...")),
    };
    let origin = match asked.origin {
        NARUFS_ORIGIN_UNKNOWN => Origin::Unknown,
        NARUFS_ORIGIN_MOVED => Origin::Moved,
        NARUFS_ORIGIN_COPIED => Origin::Copied,
        _ => return Err(Failure::invalid("origin is none of NARUFS_ORIGIN_...")),
    };
    let mut options = MountOptions::new()
        .durability(durability)
        .origin(origin)
        .access_times(to_access_times(asked.access_times)?)
        .read_only(asked.read_only != 0)
        .lazy_times(asked.lazy_times != 0)
        .sync(asked.sync != 0)
        .discard_journal(asked.discard_journal != 0);
    if asked.memory > 0 {
        options = options.memory(asked.memory);
    }
    if asked.metadata_memory > 0 {
        options = options.metadata_memory(asked.metadata_memory);
    }
    if let Some(journal) = maybe_text(asked.journal) {
        options = options.journal(PathBuf::from(journal));
    }
    Ok(options)
}

fn to_scratch(asked: &narufs_scratch_options) -> Outcome<ScratchOptions> {
    let mut options = ScratchOptions::new(asked.memory).access_times(to_access_times(asked.access_times)?);
    if asked.metadata_memory > 0 {
        options = options.metadata_memory(asked.metadata_memory);
    }
    if let Some(spill) = maybe_text(asked.spill) {
        options = options.spill(PathBuf::from(spill)).force(asked.force != 0);
        if asked.spill_bytes > 0 {
            options = options.spill_size(asked.spill_bytes);
        }
    }
    Ok(options)
}

/// Makes a file system on an image: a file, or a block device. options may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_format(image: *const c_char, options: *const narufs_format_options) -> c_int {
    done(|| Ok(Fs::format(args::path(image)?, &to_format(&args::options(options)?)?)?))
}

/// Mounts the file system on an image, which is recovered after a crash, into this process, and gives its root. options
/// may be NULL. It is used as root would; see narufs_as_user().
#[unsafe(no_mangle)]
pub extern "C" fn narufs_mount(
    image: *const c_char,
    options: *const narufs_mount_options,
) -> *mut narufs_dir {
    handle(|| {
        let options = to_mount(&args::options(options)?)?;
        handles::open(Place::Root(Fs::open(args::path(image)?, &options)?))
    })
}

/// Makes a file system in memory that overflows to spill space, and that nothing outlives.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_scratch(options: *const narufs_scratch_options) -> *mut narufs_dir {
    handle(|| {
        let options = to_scratch(&args::options(options)?)?;
        handles::open(Place::Root(Fs::scratch(&options)?))
    })
}

/// Writes everything, and marks the image clean. The handle is closed in any case, unless it is EBADF or EINVAL.
///
/// EBUSY: files or directories of it are open, or other threads are using it. Everything that was written is durable
/// then, and the file system is unmounted when the last of them is closed.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_unmount(fs: *mut narufs_dir) -> c_int {
    done(|| {
        // For those who go on with it: what it is closed with does so itself.
        let synced = with(fs, |place: &Place| Ok(place.fs()?.sync()))?;
        let busy = || {
            Failure::of(libc::EBUSY, "other threads are using the file system: it is unmounted with the last")
        };
        match handles::close::<Place>(fs)? {
            Closed::Taken(Place::Root(fs)) => Ok(fs.close()?),
            Closed::Taken(Place::Below(_)) => Err(Failure::invalid("it is not the root")),
            Closed::InUse => {
                synced?;
                Err(busy())
            }
            Closed::Forked => Err(Failure::forked()),
        }
    })
}

/// The same file system for another caller, whose permissions are checked at every step. It is a handle of its own, for
/// narufs_dir_close().
#[unsafe(no_mangle)]
pub extern "C" fn narufs_as_user(
    fs: *mut narufs_dir,
    uid: u32,
    gid: u32,
    groups: *const u32,
    count: usize,
) -> *mut narufs_dir {
    handle(|| {
        let groups = args::bytes(groups, count)?;
        with(fs, |place: &Place| handles::open(Place::Root(place.fs()?.as_user(uid, gid, groups))))
    })
}

/// Returns when everything written before is durable, as far as the mount's durability says.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_sync(fs: *mut narufs_dir) -> c_int {
    done(|| with(fs, |place: &Place| Ok(place.fs()?.sync()?)))
}

/// Returns when everything that a sync was answered for survives a loss of power, whatever the mount's durability says.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_sync_power(fs: *mut narufs_dir) -> c_int {
    done(|| with(fs, |place: &Place| Ok(place.fs()?.sync_power()?)))
}

/// Room and use.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_space(fs: *mut narufs_dir, space: *mut narufs_space) -> c_int {
    done(|| {
        let now = with(fs, |place: &Place| Ok(place.fs()?.space()?))?;
        put(
            space,
            narufs_space {
                total: now.total,
                free: now.free,
                files: now.files,
                files_free: now.files_free,
                reserved: [0; 4],
            },
        )
    })
}

/// Makes the file system larger while it is used: so many bytes, or with 0 as long as its device is. Gives its size, or -1;
/// EPERM for another caller than root, see narufs_as_user().
#[unsafe(no_mangle)]
pub extern "C" fn narufs_resize(fs: *mut narufs_dir, bytes: u64) -> i64 {
    number(|| with(fs, |place: &Place| Ok(place.fs()?.resize((bytes > 0).then_some(bytes))?)))
}

/// Tells the device what is free, in runs of at least so many bytes; gives the number of bytes, or -1; EPERM for another
/// caller than root, see narufs_as_user().
#[unsafe(no_mangle)]
pub extern "C" fn narufs_trim(fs: *mut narufs_dir, least: u64) -> i64 {
    number(|| with(fs, |place: &Place| Ok(place.fs()?.trim(least)?)))
}

/// What was brought back when it was mounted.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_recovery(fs: *mut narufs_dir, recovery: *mut narufs_recovery) -> c_int {
    done(|| {
        let was = with(fs, |place: &Place| Ok(place.fs()?.recovery()))?;
        put(recovery, narufs_recovery { records: was.records, data_pages: was.data_pages, reserved: [0; 2] })
    })
}

/// Why nothing can be changed, if so: words, of which as much is put into the buffer as it has room for, with a zero byte
/// at the end. Gives the number of bytes that they have, 0 if all is well, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_damage(fs: *mut narufs_dir, words: *mut c_char, len: usize) -> libc::ssize_t {
    number(|| {
        let damage = with(fs, |place: &Place| Ok(place.fs()?.damage()))?.unwrap_or_default();
        if let Some((last, room)) = args::bytes_mut(words.cast(), len)?.split_last_mut() {
            let put = room.len().min(damage.len());
            room[..put].copy_from_slice(&damage.as_bytes()[..put]);
            room[put..].fill(0);
            *last = 0;
        }
        Ok(damage.len())
    }) as isize
}

/// Gives back what narufs_read_file() has given. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_free(memory: *mut c_void) {
    // SAFETY: the caller says that it is of this library, which has it of malloc.
    unsafe { libc::free(memory) }
}
