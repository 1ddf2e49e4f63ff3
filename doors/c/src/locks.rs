//! Advisory locks: of a whole file as flock(2), of ranges as fcntl(2). The two kinds do not know of each other.

#![allow(unsafe_code, reason = "names that C links to")]

use crate::args::put;
use crate::fail::{Failure, Outcome, done, guarded};
use crate::handles::with_ours as with;
use crate::types::{narufs_file, narufs_lock};
use narufs::{File, LockKind, LockOwner};
use std::ffi::c_int;
use std::ops::Range;

/// Beside others that are shared.
pub const NARUFS_LOCK_SHARED: c_int = 0;
/// Beside no other.
pub const NARUFS_LOCK_EXCLUSIVE: c_int = 1;

/// As flock(2): LOCK_SH, LOCK_EX or LOCK_UN, and LOCK_NB not to wait: EWOULDBLOCK.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_flock(file: *mut narufs_file, operation: c_int) -> c_int {
    done(|| {
        let waits = operation & libc::LOCK_NB == 0;
        with(file, |file: &File| {
            match (operation & !libc::LOCK_NB, waits) {
                (libc::LOCK_SH, true) => file.lock_shared()?,
                (libc::LOCK_SH, false) => file.try_lock_shared()?,
                (libc::LOCK_EX, true) => file.lock()?,
                (libc::LOCK_EX, false) => file.try_lock()?,
                (libc::LOCK_UN, _) => file.unlock()?,
                _ => return Err(Failure::invalid("none of LOCK_SH, LOCK_EX and LOCK_UN")),
            }
            Ok(())
        })
    })
}

/// An owner of locks of ranges that differs from every other; equal owners are never in each other's way.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_lock_owner() -> u64 {
    guarded(0, || Ok(LockOwner::new().to_u64()))
}

fn kind(kind: c_int) -> Outcome<LockKind> {
    match kind {
        NARUFS_LOCK_SHARED => Ok(LockKind::Shared),
        NARUFS_LOCK_EXCLUSIVE => Ok(LockKind::Exclusive),
        _ => Err(Failure::invalid("none of NARUFS_LOCK_SHARED and NARUFS_LOCK_EXCLUSIVE")),
    }
}

fn range(start: u64, len: u64) -> Outcome<Range<u64>> {
    let end = if len == 0 { Some(u64::MAX) } else { start.checked_add(len) };
    Ok(start..end.ok_or_else(|| Failure::invalid("a range ends beyond 2^64"))?)
}

/// An owner by its number; 0 is the open file's own.
fn owner(number: u64, file: &File) -> LockOwner {
    if number == 0 { file.lock_owner() } else { LockOwner::from_u64(number) }
}

/// Locks bytes for an owner, 0 being this open file itself; waits until that can be. What the owner has there already is
/// replaced. A len of 0 is up to the end of the file, wherever that is. kind is NARUFS_LOCK_....
///
/// The locks of an owner are given back by narufs_unlock_range(), or when an open file through which it has taken some is
/// closed. EDEADLK: owners would wait for each other in a circle.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_lock_range(
    file: *mut narufs_file,
    owner: u64,
    kind: c_int,
    start: u64,
    len: u64,
) -> c_int {
    done(|| {
        let (kind, range) = (self::kind(kind)?, range(start, len)?);
        with(file, |file: &File| Ok(file.lock_range(self::owner(owner, file), kind, range)?))
    })
}

/// As narufs_lock_range(), without waiting: EWOULDBLOCK.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_try_lock_range(
    file: *mut narufs_file,
    owner: u64,
    kind: c_int,
    start: u64,
    len: u64,
) -> c_int {
    done(|| {
        let (kind, range) = (self::kind(kind)?, range(start, len)?);
        with(file, |file: &File| Ok(file.try_lock_range(self::owner(owner, file), kind, range)?))
    })
}

/// Gives what an owner has of these bytes back.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_unlock_range(file: *mut narufs_file, owner: u64, start: u64, len: u64) -> c_int {
    done(|| {
        let range = range(start, len)?;
        with(file, |file: &File| Ok(file.unlock_range(self::owner(owner, file), range)?))
    })
}

/// Whether a lock would be in the way of one of these bytes: 1, and which, 0, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_test_lock_range(
    file: *mut narufs_file,
    owner: u64,
    kind: c_int,
    start: u64,
    len: u64,
    conflict: *mut narufs_lock,
) -> c_int {
    guarded(-1, || {
        let (kind, range) = (self::kind(kind)?, range(start, len)?);
        let found =
            with(file, |file: &File| Ok(file.test_lock_range(self::owner(owner, file), kind, range)?))?;
        let Some(found) = found else { return Ok(0) };
        let to_end = found.range.end == u64::MAX;
        put(
            conflict,
            narufs_lock {
                start: found.range.start,
                len: if to_end { 0 } else { found.range.end - found.range.start },
                kind: match found.kind {
                    LockKind::Shared => NARUFS_LOCK_SHARED,
                    LockKind::Exclusive => NARUFS_LOCK_EXCLUSIVE,
                },
                reserved: [0; 3],
            },
        )?;
        Ok(1)
    })
}
