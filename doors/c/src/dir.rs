//! Directories at which paths begin, the root's among them.

#![allow(unsafe_code, reason = "names that C links to")]

use crate::args::path;
use crate::fail::{Failure, Outcome, done, handle};
use crate::handles::{self, Object, with};
use crate::table::Table;
use crate::types::{narufs_dir, narufs_file};
use narufs::{Dir, File, Fs, OpenOptions};
use std::ffi::{c_char, c_int};
use std::ops::Deref;

/// What a narufs_dir stands for.
pub(crate) enum Place {
    /// The whole file system, for one caller.
    Root(Fs),
    Below(Dir),
}

impl Deref for Place {
    type Target = Dir;
    fn deref(&self) -> &Dir {
        match self {
            Place::Root(fs) => fs,
            Place::Below(dir) => dir,
        }
    }
}

impl Place {
    /// # Errors
    /// EINVAL for a directory below.
    pub(crate) fn fs(&self) -> Outcome<&Fs> {
        match self {
            Place::Root(fs) => Ok(fs),
            Place::Below(_) => Err(Failure::invalid(
                "this is asked of the whole file system: give what narufs_mount() or narufs_scratch() has given",
            )),
        }
    }
}

impl Object for Place {
    type Opaque = narufs_dir;
    fn table() -> &'static Table<Place> {
        static TABLE: Table<Place> = Table::new(1);
        &TABLE
    }
}

/// Asks something of a directory and a path.
pub(crate) fn at<R>(
    dir: *const narufs_dir,
    name: *const c_char,
    call: impl FnOnce(&Dir, &std::path::Path) -> Outcome<R>,
) -> Outcome<R> {
    let name = path(name)?;
    with(dir, |place: &Place| call(place, name))
}

/// Flags of open(2) that have no meaning here.
const MEANINGLESS: c_int = libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_LARGEFILE;

/// Opens a file as open(2) does. Of the flags these count: O_RDONLY, O_WRONLY, O_RDWR, O_APPEND, O_CREAT, O_EXCL, O_TRUNC,
/// O_NOFOLLOW, O_DIRECT, O_SYNC, O_DSYNC, O_NOATIME and O_TMPFILE, with which path is that of a directory. mode is that of
/// a file that is made; there is no umask.
///
/// NULL with EINVAL: for O_CREAT or O_TRUNC with O_RDONLY, O_APPEND with O_TRUNC, and other flags.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_open(
    dir: *mut narufs_dir,
    path: *const c_char,
    flags: c_int,
    mode: u32,
) -> *mut narufs_file {
    handle(|| {
        let mut options = OpenOptions::new();
        let mut rest = flags & !MEANINGLESS & !libc::O_ACCMODE;
        let mut has = |flag: c_int| {
            let has = rest & flag == flag;
            rest &= !if has { flag } else { 0 };
            has
        };
        let is_temporary = has(libc::O_TMPFILE);
        options.no_follow(has(libc::O_NOFOLLOW)).direct(has(libc::O_DIRECT));
        options.sync(has(libc::O_SYNC)).data_sync(has(libc::O_DSYNC)).no_access_time(has(libc::O_NOATIME));
        let (appends, creates) = (has(libc::O_APPEND), has(libc::O_CREAT));
        let (excludes, truncates) = (has(libc::O_EXCL), has(libc::O_TRUNC));
        let access = flags & libc::O_ACCMODE;
        if rest != 0 || access == libc::O_ACCMODE {
            return Err(Failure::invalid("flags that narufs_open() does not know"));
        }
        let writes = access != libc::O_RDONLY;
        if appends && !writes {
            return Err(Failure::invalid("O_APPEND takes O_WRONLY or O_RDWR"));
        }
        options.read(access != libc::O_WRONLY).write(writes).append(appends).mode(mode & 0o7777);
        options.create(creates).create_new(excludes && (creates || is_temporary)).truncate(truncates);
        at(dir, path, |dir, path| {
            let file: File = match is_temporary {
                true => dir.open_temporary(path, &options)?,
                false => dir.open_with(path, &options)?,
            };
            handles::open(file)
        })
    })
}

/// Opens a directory, for paths that begin there; whatever happens above it.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_open_dir(dir: *mut narufs_dir, path: *const c_char) -> *mut narufs_dir {
    handle(|| at(dir, path, |dir, path| handles::open(Place::Below(dir.open_dir(path)?))))
}

/// Closes a directory. That of a file system which is the last of it that is open unmounts it: narufs_unmount() would
/// tell of failures.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_dir_close(dir: *mut narufs_dir) -> c_int {
    done(|| handles::end::<Place>(dir))
}

/// Returns when the names in a directory are durable, and every change of metadata that returned before.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_dir_sync(dir: *mut narufs_dir) -> c_int {
    done(|| with(dir, |place: &Place| Ok(place.sync_all()?)))
}
