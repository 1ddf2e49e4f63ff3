//! Open files: attributes, length, durability.

#![allow(unsafe_code, reason = "names that C links to")]

use crate::args::put;
use crate::fail::{Failure, done};
use crate::handles::{self, Object, with};
use crate::table::Table;
use crate::types::{self, narufs_file, narufs_stat};
use narufs::File;
use std::ffi::c_int;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

impl Object for File {
    type Opaque = narufs_file;
    fn table() -> &'static Table<File> {
        static TABLE: Table<File> = Table::new(2);
        &TABLE
    }
}

/// Closes a file, and gives its locks back. It is not synced. Calls of other threads that are using it go on to their end,
/// and its locks are given back with the last of them: a call that waits for a lock which this file has waits for ever.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_close(file: *mut narufs_file) -> c_int {
    done(|| handles::end::<File>(file))
}

/// Returns when content and attributes are durable, and every change of metadata that returned before, as far as the
/// mount's durability says. It also tells of what could not be written in the background since the file was opened.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_fsync(file: *mut narufs_file) -> c_int {
    done(|| with(file, |file: &File| Ok(file.sync_all()?)))
}

/// As narufs_fsync(), but for attributes that are not needed to read the content.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_fdatasync(file: *mut narufs_file) -> c_int {
    done(|| with(file, |file: &File| Ok(file.sync_data()?)))
}

/// Attributes.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_fstat(file: *mut narufs_file, stat: *mut narufs_stat) -> c_int {
    done(|| put(stat, types::stat(&with(file, |file: &File| Ok(file.metadata()?))?)))
}

/// Cuts the file, or makes it longer by a hole.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_ftruncate(file: *mut narufs_file, len: u64) -> c_int {
    done(|| {
        if i64::try_from(len).is_err() {
            return Err(Failure::invalid("a length is 2^63-1 bytes at the most"));
        }
        with(file, |file: &File| Ok(file.set_len(len)?))
    })
}

/// Sets the permissions: the twelve lowest bits of mode.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_fchmod(file: *mut narufs_file, mode: u32) -> c_int {
    done(|| with(file, |file: &File| Ok(file.set_permissions(Permissions::from_mode(mode))?)))
}

/// Sets owner and group; (uint32_t)-1 stays.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_fchown(file: *mut narufs_file, uid: u32, gid: u32) -> c_int {
    done(|| with(file, |file: &File| Ok(file.set_owner(types::owner(uid), types::owner(gid))?)))
}

/// Sets the times of access and change, as narufs_utimens().
#[unsafe(no_mangle)]
pub extern "C" fn narufs_futimens(file: *mut narufs_file, times: *const libc::timespec) -> c_int {
    done(|| {
        let times = types::times(times)?;
        with(file, |file: &File| Ok(file.set_times(times)?))
    })
}
