//! Reads and writes: at an offset, at the cursor, at the end.

#![allow(unsafe_code, reason = "names that C links to")]

use crate::args::{bytes, bytes_mut, put, slices, slices_mut};
use crate::fail::{Failure, Outcome, number};
use crate::handles::with;
use crate::types::narufs_file;
use narufs::{Appended, File};
use std::ffi::{c_int, c_void};
use std::io::{Read, Seek, SeekFrom, Write};

#[inline]
fn of<R>(file: *mut narufs_file, call: impl FnOnce(&File) -> Outcome<R>) -> Outcome<R> {
    with(file, call)
}

/// Reads at an offset, and leaves the cursor. Gives the number of bytes, less than asked for only at the end of the file,
/// or -1.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_pread(
    file: *mut narufs_file,
    into: *mut c_void,
    len: usize,
    offset: u64,
) -> libc::ssize_t {
    number(|| {
        let into = bytes_mut(into.cast(), len)?;
        of(file, |file| Ok(file.read_at(into, offset)?))
    }) as isize
}

/// Writes at an offset, and leaves the cursor; with O_APPEND to the end. Gives the number of bytes, less than asked for
/// only where space has run out, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_pwrite(
    file: *mut narufs_file,
    from: *const c_void,
    len: usize,
    offset: u64,
) -> libc::ssize_t {
    number(|| {
        let from = bytes(from.cast(), len)?;
        of(file, |file| Ok(file.write_at(from, offset)?))
    }) as isize
}

/// As narufs_pread(), into several buffers one after the other: one read, as far as others are concerned.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_preadv(
    file: *mut narufs_file,
    into: *const libc::iovec,
    count: c_int,
    offset: u64,
) -> libc::ssize_t {
    number(|| {
        let mut into = slices_mut(into, count)?;
        of(file, |file| Ok(file.read_vectored_at(&mut into, offset)?))
    }) as isize
}

/// As narufs_pwrite(), of several buffers one after the other: one write, as far as others are concerned.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_pwritev(
    file: *mut narufs_file,
    from: *const libc::iovec,
    count: c_int,
    offset: u64,
) -> libc::ssize_t {
    number(|| {
        let from = slices(from, count)?;
        of(file, |file| Ok(file.write_vectored_at(&from, offset)?))
    }) as isize
}

/// Reads at the cursor, and moves it. Threads that share a file take turns.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_read(file: *mut narufs_file, into: *mut c_void, len: usize) -> libc::ssize_t {
    number(|| {
        let into = bytes_mut(into.cast(), len)?;
        of(file, |mut file| Ok(file.read(into)?))
    }) as isize
}

/// Writes at the cursor, and moves it.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_write(file: *mut narufs_file, from: *const c_void, len: usize) -> libc::ssize_t {
    number(|| {
        let from = bytes(from.cast(), len)?;
        of(file, |mut file| Ok(file.write(from)?))
    }) as isize
}

/// As narufs_read(), into several buffers.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_readv(
    file: *mut narufs_file,
    into: *const libc::iovec,
    count: c_int,
) -> libc::ssize_t {
    number(|| {
        let mut into = slices_mut(into, count)?;
        of(file, |mut file| Ok(file.read_vectored(&mut into)?))
    }) as isize
}

/// As narufs_write(), of several buffers.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_writev(
    file: *mut narufs_file,
    from: *const libc::iovec,
    count: c_int,
) -> libc::ssize_t {
    number(|| {
        let from = slices(from, count)?;
        of(file, |mut file| Ok(file.write_vectored(&from)?))
    }) as isize
}

/// Moves the cursor, and gives where it is then, or -1. whence is SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA or SEEK_HOLE.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_lseek(file: *mut narufs_file, offset: i64, whence: c_int) -> i64 {
    number(|| {
        let negative = |_| Failure::invalid("an offset is negative");
        of(file, |mut file| {
            let to = match whence {
                libc::SEEK_SET => SeekFrom::Start(u64::try_from(offset).map_err(negative)?),
                libc::SEEK_CUR => SeekFrom::Current(offset),
                libc::SEEK_END => SeekFrom::End(offset),
                libc::SEEK_DATA | libc::SEEK_HOLE => {
                    let from = u64::try_from(offset).map_err(negative)?;
                    let sought =
                        if whence == libc::SEEK_DATA { file.seek_data(from)? } else { file.seek_hole(from)? };
                    let none = || Failure::of(libc::ENXIO, "nothing of that kind follows");
                    SeekFrom::Start(sought.ok_or_else(none)?)
                }
                _ => return Err(Failure::invalid("whence is none of SEEK_...")),
            };
            Ok(file.seek(to)?)
        })
    })
}

fn appended(at: Appended, offset: *mut u64) -> Outcome<usize> {
    if !offset.is_null() {
        put(offset, at.offset)?;
    }
    Ok(at.len)
}

/// Writes to the end, and tells where that was unless offset is NULL. Appends of many threads neither overlap nor leave
/// gaps. Gives the number of bytes, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_append(
    file: *mut narufs_file,
    from: *const c_void,
    len: usize,
    offset: *mut u64,
) -> libc::ssize_t {
    number(|| {
        let from = bytes(from.cast(), len)?;
        appended(of(file, |file| Ok(file.append(from)?))?, offset)
    }) as isize
}

/// As narufs_append(), of several buffers.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_appendv(
    file: *mut narufs_file,
    from: *const libc::iovec,
    count: c_int,
    offset: *mut u64,
) -> libc::ssize_t {
    number(|| {
        let from = slices(from, count)?;
        appended(of(file, |file| Ok(file.append_vectored(&from)?))?, offset)
    }) as isize
}
