//! The byte locks that redb asks for, in the file system's own table.
//!
//! An owner there is refused what could make owners wait for each other in a circle (EDEADLK). The threads of one database
//! share what it has locked, so that such a circle need not be one: each range has an owner of its own here, which
//! holds nothing while it waits. redb never asks for what overlaps with what it has, so they never meet.

use narufs::{File, LockKind, LockOwner};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::TryLockError;
use std::io;
use std::ops::{Bound, Range};

/// No file is as long.
const BEYOND_FILES: u64 = 1 << 62;

/// What one database has locked.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    ranges: HashMap<Range<u64>, (LockOwner, LockKind)>,
    /// Owners of nothing.
    free: Vec<LockOwner>,
}

/// The last byte that a range may name, and the most that it may have, as in redb's own file backend: those of the longest
/// file.
const LAST: u64 = i64::MAX as u64;

/// Bytes as the file system has them: an end of `u64::MAX` is that of the file, wherever that is.
fn range(start: Bound<u64>, end: Bound<u64>) -> io::Result<Range<u64>> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "a range of locks that is none");
    let start = match start {
        Bound::Unbounded => 0,
        Bound::Included(first) => first,
        Bound::Excluded(before) => before.checked_add(1).ok_or_else(invalid)?,
    };
    let end = match end {
        Bound::Unbounded => None,
        Bound::Included(last) => Some(last.checked_add(1).ok_or_else(invalid)?),
        Bound::Excluded(end) => Some(end),
    };
    let is_named = |end: u64| start < end && end - 1 <= LAST && end - start <= LAST;
    if start <= LAST && end.is_none_or(is_named) {
        Ok(start..end.unwrap_or(u64::MAX))
    } else {
        Err(invalid())
    }
}

/// An error of a lock. Unsupported means to redb that there are no locks at all, and that it may go on without.
fn told(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::Unsupported { io::Error::other(error) } else { error }
}

impl Locks {
    fn owner(&self) -> LockOwner {
        self.held.lock().free.pop().unwrap_or_else(LockOwner::new)
    }

    /// Takes a range at once; says whether that could be.
    pub(crate) fn try_lock(
        &self,
        file: &File,
        kind: LockKind,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> io::Result<bool> {
        let range = range(start, end)?;
        let owner = self.owner();
        let taken = match file.try_lock_range(owner, kind, range.clone()) {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(e)) => Err(told(e)),
        };
        self.note(range, owner, kind, matches!(taken, Ok(true)));
        taken
    }

    /// Takes a range when it can be had.
    pub(crate) fn lock(
        &self,
        file: &File,
        kind: LockKind,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> io::Result<()> {
        let range = range(start, end)?;
        let owner = self.owner();
        let taken = file.lock_range(owner, kind, range.clone()).map_err(|e| told(e.into()));
        self.note(range, owner, kind, taken.is_ok());
        taken
    }

    fn note(&self, range: Range<u64>, owner: LockOwner, kind: LockKind, taken: bool) {
        let mut held = self.held.lock();
        if taken {
            held.ranges.insert(range, (owner, kind));
        } else {
            held.free.push(owner);
        }
    }

    /// Gives back a range that was taken.
    pub(crate) fn unlock(&self, file: &File, start: Bound<u64>, end: Bound<u64>) -> io::Result<()> {
        let range = range(start, end)?;
        let mut held = self.held.lock();
        let Some((owner, _)) = held.ranges.get(&range).copied() else { return Ok(()) };
        file.unlock_range(owner, range.clone()).map_err(|e| told(e.into()))?;
        held.ranges.remove(&range);
        held.free.push(owner);
        Ok(())
    }

    /// Gives back everything.
    pub(crate) fn unlock_all(&self, file: &File) -> io::Result<()> {
        let mut held = self.held.lock();
        let mut outcome = Ok(());
        for (range, (owner, _)) in held.ranges.drain() {
            // One that cannot be given back keeps none of the others.
            outcome = outcome.and(file.unlock_range(owner, range).map_err(|e| told(e.into())));
        }
        outcome
    }

    /// Whether a lock that somebody else has is in the way of an exclusive one.
    pub(crate) fn is_locked_elsewhere(
        &self,
        file: &File,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> io::Result<bool> {
        let owner = self.owner();
        let tested = file.test_lock_range(owner, LockKind::Exclusive, range(start, end)?);
        self.held.lock().free.push(owner);
        Ok(tested.map_err(|e| told(e.into()))?.is_some())
    }

    /// Whether it has the whole content exclusively, but for a range that is to be given back.
    pub(crate) fn has_content_without(&self, leaves: Option<(Bound<u64>, Bound<u64>)>) -> bool {
        let leaves = leaves.and_then(|(start, end)| range(start, end).ok());
        let is_content = |range: &Range<u64>| range.start == 0 && range.end >= BEYOND_FILES;
        let held = self.held.lock();
        held.ranges.iter().any(|(range, (_, kind))| {
            *kind == LockKind::Exclusive && is_content(range) && leaves.as_ref() != Some(range)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Bound::{Excluded, Included, Unbounded};

    #[test]
    fn bounds_are_ranges_of_bytes() {
        let of = |start, end| range(start, end).ok();
        assert_eq!(of(Unbounded, Unbounded), Some(0..u64::MAX));
        assert_eq!(of(Included(3), Included(3)), Some(3..4));
        assert_eq!(of(Excluded(3), Excluded(5)), Some(4..5));
        assert_eq!(of(Included(3), Excluded(3)), None);
        assert_eq!(of(Excluded(u64::MAX), Unbounded), None);
        assert_eq!(of(Included(0), Included(u64::MAX)), None);
        assert_eq!(of(Included(1), Excluded(1 << 63)), Some(1..1 << 63));
        assert_eq!(of(Included(0), Excluded(1 << 63)), None);
        assert_eq!(of(Included(1 << 63), Included(1 << 63)), None);
    }
}
