//! Pointers that C gives: the one place where they are followed.
//!
//! What a pointer leads to is the caller's word, as `narufs.h` asks for it: strings end with a zero byte, buffers are as
//! long as is said, and nothing else changes them before the call returns. What can be seen to be wrong is EINVAL: a
//! null pointer where something is to be, lengths that no buffer has.

#![allow(
    unsafe_code,
    reason = "a leaf module: follows pointers of C; guarded by tests/c/every.c and tests/c/hostile.c"
)]

use crate::fail::{Failure, Outcome};
use crate::types::{narufs_format_options, narufs_mount_options, narufs_scratch_options};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Buffers of one call, as of readv(2).
const MOST_PARTS: c_int = 1024;

/// A string that may be missing.
pub(crate) fn maybe_text<'a>(text: *const c_char) -> Option<&'a OsStr> {
    // SAFETY: not null, and the caller says that it ends with a zero byte and stays for the call.
    (!text.is_null()).then(|| OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()))
}

pub(crate) fn text<'a>(text: *const c_char) -> Outcome<&'a OsStr> {
    maybe_text(text).ok_or_else(|| Failure::invalid("a string is NULL"))
}

pub(crate) fn path<'a>(path: *const c_char) -> Outcome<&'a Path> {
    text(path).map(Path::new)
}

fn check(is_null: bool, len: usize) -> Outcome<()> {
    if (is_null && len > 0) || isize::try_from(len).is_err() {
        return Err(Failure::invalid("a buffer is NULL or longer than any can be"));
    }
    Ok(())
}

/// A buffer to be read.
#[inline]
pub(crate) fn bytes<'a, T>(from: *const T, len: usize) -> Outcome<&'a [T]> {
    check(from.is_null(), len.saturating_mul(size_of::<T>()))?;
    // SAFETY: not null, of a length that can be, and the caller says that it is that long and stays for the call.
    Ok(if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(from, len) } })
}

/// A buffer to be filled.
#[inline]
pub(crate) fn bytes_mut<'a>(into: *mut u8, len: usize) -> Outcome<&'a mut [u8]> {
    check(into.is_null(), len)?;
    // SAFETY: as `bytes`; nobody else uses it before the call returns.
    Ok(if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(into, len) } })
}

fn vectors<'a>(parts: *const libc::iovec, count: c_int) -> Outcome<&'a [libc::iovec]> {
    if !(0..=MOST_PARTS).contains(&count) {
        return Err(Failure::invalid("there are less than 0 or more than 1024 buffers"));
    }
    let parts = bytes(parts, count.unsigned_abs() as usize)?;
    let all = parts.iter().try_fold(0_usize, |all, part| all.checked_add(part.iov_len));
    check(false, all.unwrap_or(usize::MAX))?;
    Ok(parts)
}

/// Buffers to be read.
pub(crate) fn slices<'a>(parts: *const libc::iovec, count: c_int) -> Outcome<Vec<IoSlice<'a>>> {
    let slice = |part: &libc::iovec| bytes(part.iov_base.cast(), part.iov_len).map(IoSlice::new);
    vectors(parts, count)?.iter().map(slice).collect()
}

/// Buffers to be filled.
pub(crate) fn slices_mut<'a>(parts: *const libc::iovec, count: c_int) -> Outcome<Vec<IoSliceMut<'a>>> {
    let slice = |part: &libc::iovec| bytes_mut(part.iov_base.cast(), part.iov_len).map(IoSliceMut::new);
    vectors(parts, count)?.iter().map(slice).collect()
}

/// Fills a place.
pub(crate) fn put<T>(place: *mut T, value: T) -> Outcome<()> {
    if place.is_null() {
        return Err(Failure::invalid("the place for the answer is NULL"));
    }
    // SAFETY: not null, and the caller says that it is one of this type.
    unsafe { place.write(value) };
    Ok(())
}

/// Copies bytes into a buffer and gives their number, as getxattr(2): with a length of 0 the number alone.
///
/// # Errors
/// ERANGE if there is too little room.
pub(crate) fn put_bytes(from: &[u8], into: *mut u8, len: usize) -> Outcome<usize> {
    if len > 0 {
        let room = bytes_mut(into, len)?.get_mut(..from.len());
        let few = || {
            Failure::of(
                libc::ERANGE,
                "the buffer is too small: with a length of 0 the call tells what it takes",
            )
        };
        room.ok_or_else(few)?.copy_from_slice(from);
    }
    Ok(from.len())
}

/// Memory for C, which gives it back.
pub(crate) struct Room {
    /// Of malloc.
    at: *mut u8,
    len: usize,
}

fn no_memory() -> Failure {
    Failure::of(libc::ENOMEM, "there is no memory for the answer")
}

impl Room {
    /// So many bytes, and one behind.
    pub(crate) fn new(len: usize) -> Outcome<Room> {
        let size = len.checked_add(1).ok_or_else(no_memory)?;
        // SAFETY: the call touches no memory that anybody has.
        let at = unsafe { libc::calloc(size, 1) }.cast::<u8>();
        if at.is_null() { Err(no_memory()) } else { Ok(Room { at, len }) }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: it is so long, written by calloc or `grow`, and nobody else's.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }

    /// Makes it longer.
    pub(crate) fn grow(&mut self, len: usize) -> Outcome<()> {
        let mut more = Room::new(len)?;
        more.bytes()[..self.len].copy_from_slice(self.bytes());
        *self = more;
        Ok(())
    }

    /// Gives so many of the bytes to C, and a zero byte behind.
    pub(crate) fn give(self, len: usize) -> *mut u8 {
        let len = len.min(self.len);
        // SAFETY: there is one byte more than `self.len`.
        unsafe { self.at.add(len).write(0) };
        std::mem::ManuallyDrop::new(self).at
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: it is of calloc, and nobody else's.
        unsafe { libc::free(self.at.cast()) }
    }
}

/// A struct of options, of which the program may know less than the library, or more: what it does not know is 0, and
/// what the library does not know must be 0. NULL stands for all 0.
///
/// # Errors
/// E2BIG, as of clone3(2), if something is asked for that this library does not know.
pub(crate) fn options<T: Options>(from: *const T) -> Outcome<T> {
    // SAFETY: that is what being options means.
    let mut options: T = unsafe { std::mem::zeroed() };
    if from.is_null() {
        return Ok(options);
    }
    // SAFETY: not null, and the first field of each is its size.
    let size = unsafe { from.cast::<usize>().read() };
    if !(size_of::<usize>()..=4096).contains(&size) {
        return Err(Failure::invalid("options are not initialised: use NARUFS_..._OPTIONS_INIT"));
    }
    let given = bytes(from.cast::<u8>(), size)?;
    let (known, unknown) = given.split_at(size.min(size_of::<T>()));
    if unknown.iter().any(|byte| *byte != 0) {
        return Err(Failure::of(
            libc::E2BIG,
            "options ask for what this version of the library does not know",
        ));
    }
    // SAFETY: structs of numbers and pointers, of which any bytes are some, and no more than there are.
    unsafe { (&raw mut options).cast::<u8>().copy_from_nonoverlapping(known.as_ptr(), known.len()) };
    Ok(options)
}

/// A struct of C whose first field is its size in bytes.
///
/// # Safety
/// It has nothing but numbers and pointers, of which any bytes are some.
pub(crate) unsafe trait Options: Copy {}

// SAFETY: they have nothing else.
unsafe impl Options for narufs_format_options {}
// SAFETY: they have nothing else.
unsafe impl Options for narufs_mount_options {}
// SAFETY: they have nothing else.
unsafe impl Options for narufs_scratch_options {}
