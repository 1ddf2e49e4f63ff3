//! Ranges of a file: allocated, cleared, moved and copied.

#![allow(unsafe_code, reason = "names that C links to")]

use crate::fail::{Failure, done, number};
use crate::handles::with;
use crate::types::narufs_file;
use narufs::File;
use std::ffi::c_int;

const PUNCH: c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

/// As fallocate(2). mode is 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
/// FALLOC_FL_COLLAPSE_RANGE or FALLOC_FL_INSERT_RANGE; else EOPNOTSUPP.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_fallocate(file: *mut narufs_file, mode: c_int, offset: u64, len: u64) -> c_int {
    done(|| {
        with(file, |file: &File| {
            match mode {
                0 => file.allocate(offset, len)?,
                libc::FALLOC_FL_KEEP_SIZE => file.reserve(offset, len)?,
                PUNCH => file.punch_hole(offset, len)?,
                libc::FALLOC_FL_ZERO_RANGE => file.zero_range(offset, len)?,
                libc::FALLOC_FL_COLLAPSE_RANGE => file.collapse_range(offset, len)?,
                libc::FALLOC_FL_INSERT_RANGE => file.insert_range(offset, len)?,
                _ => return Err(Failure::of(libc::EOPNOTSUPP, "a mode of fallocate that there is not")),
            }
            Ok(())
        })
    })
}

/// Copies up to len bytes to another file of the same file system, or elsewhere in this, as copy_file_range(2); gives how
/// many, less at the end of the file, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_copy_range(
    file: *mut narufs_file,
    offset: u64,
    to: *mut narufs_file,
    to_offset: u64,
    len: u64,
) -> i64 {
    number(|| {
        with(file, |file: &File| with(to, |to: &File| Ok(file.copy_range(offset, to, to_offset, len)?)))
    })
}
