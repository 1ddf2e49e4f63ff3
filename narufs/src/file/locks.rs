//! Advisory locks: of a whole file as flock(2), of ranges as fcntl(2). The two kinds do not know of each other.

use super::File;
use crate::engine::{Access, AdvisoryKind, FileHandle, LockRequest, Owner, told};
use crate::error::{Error, Result};
use std::collections::HashSet;
use std::fs::TryLockError;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

/// Who has locks of ranges: equal owners are never in each other's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockOwner(u64);

impl LockOwner {
    /// An owner that differs from every other.
    #[allow(clippy::new_without_default)]
    pub fn new() -> LockOwner {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: they need only differ.
        LockOwner(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// As a number, which is never 0, to be handed on.
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// Of a number that [`LockOwner::to_u64`] has given.
    pub fn from_u64(number: u64) -> LockOwner {
        LockOwner(number)
    }

    fn to_engine(self) -> Owner {
        Owner::Library(self.0)
    }
}

/// Whom a lock leaves beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Others that are shared.
    Shared,
    /// Nobody.
    Exclusive,
}

/// A lock that is in the way of another.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockConflict {
    /// Its bytes; `u64::MAX` as their end stands for the end of the file, wherever that is.
    pub range: Range<u64>,
    /// Whom it leaves beside it.
    pub kind: LockKind,
}

impl LockKind {
    fn to_engine(self) -> Access {
        match self {
            LockKind::Shared => Access::Read,
            LockKind::Exclusive => Access::Write,
        }
    }
}

const ALL: Range<u64> = 0..u64::MAX;

/// Those whose locks of one open file are to be given back when it is closed.
pub(super) struct Owners {
    own: LockOwner,
    others: Mutex<HashSet<LockOwner>>,
}

impl Owners {
    pub(super) fn own(&self) -> Owner {
        self.own.to_engine()
    }

    /// Gives back the locks of ranges.
    pub(super) fn release(&self, engine: &narufs_engine::vfs::Vfs, handle: &FileHandle) {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        for owner in others.iter().chain([&self.own]) {
            engine.locks().release_owner(handle.nid(), AdvisoryKind::Record, owner.to_engine());
        }
    }
}

impl File {
    fn owners(&self) -> &Owners {
        self.owners.get_or_init(|| Box::new(Owners { own: LockOwner::new(), others: Mutex::default() }))
    }

    /// The owner of the locks that this open file has by itself: nobody else's.
    pub fn lock_owner(&self) -> LockOwner {
        self.owners().own
    }

    fn request(&self, owner: LockOwner, kind: LockKind, range: Range<u64>) -> LockRequest {
        LockRequest { owner: owner.to_engine(), pid: std::process::id(), range, access: kind.to_engine() }
    }

    /// For the open file itself. Nothing of it is asked before it is known whose the file system is: a child's parent may
    /// have been about to say it for the first time when it forked.
    fn own_request(&self, kind: LockKind) -> Result<LockRequest> {
        self.session.enter("lock")?;
        Ok(self.request(self.lock_owner(), kind, ALL))
    }

    /// Remembers to give the locks of this owner back, which has been granted one.
    fn remember(&self, owner: LockOwner) {
        let owners = self.owners();
        if owner != owners.own {
            owners.others.lock().unwrap_or_else(PoisonError::into_inner).insert(owner);
        }
    }

    /// Forgets this owner if it has no locks any more. One that is granted a lock at this moment is remembered after that.
    fn forget(&self, engine: &narufs_engine::vfs::Vfs, owner: LockOwner) {
        let Some(owners) = self.owners.get() else { return };
        let mut others = owners.others.lock().unwrap_or_else(PoisonError::into_inner);
        if others.contains(&owner)
            && !engine.locks().holds(self.handle().nid(), AdvisoryKind::Record, owner.to_engine())
        {
            others.remove(&owner);
        }
    }

    fn wait(&self, advisory: AdvisoryKind, request: LockRequest) -> Result<()> {
        let engine = self.session.enter("lock")?;
        let (done, granted) = mpsc::sync_channel(1);
        // The other end waits below.
        let complete = Box::new(move |outcome| done.send(outcome).is_ok());
        engine.locks().lock(self.handle().nid(), advisory, request, complete);
        let outcome = granted.recv().map_err(|_| Error::of_errno("lock", libc::EINTR))?;
        outcome.map_err(|e| told("lock", e))
    }

    fn try_now(&self, advisory: AdvisoryKind, request: &LockRequest) -> Result<(), TryLockError> {
        let engine = self.session.enter("lock").map_err(|e| TryLockError::Error(e.into()))?;
        match engine.locks().try_lock(self.handle().nid(), advisory, request) {
            Ok(()) => Ok(()),
            Err(e) if e.errno() == libc::EAGAIN => Err(TryLockError::WouldBlock),
            Err(e) => Err(TryLockError::Error(told("lock", e).into())),
        }
    }

    /// Locks the file for this open file alone; waits until that can be. A lock that it has already is converted, and
    /// is given up while it waits. As flock(2) and [`std::fs::File::lock`].
    ///
    /// # Errors
    /// ENOLCK if this process has 65,536 locks of this file system.
    pub fn lock(&self) -> Result<()> {
        self.wait(AdvisoryKind::Flock, self.own_request(LockKind::Exclusive)?)
    }

    /// As [`File::lock`], beside others that are shared.
    ///
    /// # Errors
    /// As [`File::lock`].
    pub fn lock_shared(&self) -> Result<()> {
        self.wait(AdvisoryKind::Flock, self.own_request(LockKind::Shared)?)
    }

    /// As [`File::lock`], without waiting.
    ///
    /// ```
    /// # use narufs::{Fs, ScratchOptions};
    /// # let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
    /// let (one, other) = (fs.create("/f")?, fs.open("/f")?);
    /// one.lock()?;
    /// assert!(matches!(other.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)));
    /// drop(one);
    /// assert!(other.try_lock().is_ok());
    /// # Ok::<(), narufs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another open file's is in the way; else as [`File::lock`].
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        let request = self.own_request(LockKind::Exclusive).map_err(|e| TryLockError::Error(e.into()))?;
        self.try_now(AdvisoryKind::Flock, &request)
    }

    /// As [`File::try_lock`], beside others that are shared.
    ///
    /// # Errors
    /// As [`File::try_lock`].
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        let request = self.own_request(LockKind::Shared).map_err(|e| TryLockError::Error(e.into()))?;
        self.try_now(AdvisoryKind::Flock, &request)
    }

    /// Gives the lock of the whole file back; so does closing the file.
    ///
    /// # Errors
    /// None of its own.
    pub fn unlock(&self) -> Result<()> {
        let engine = self.session.enter("unlock")?;
        engine.locks().release_owner(self.handle().nid(), AdvisoryKind::Flock, self.owners().own());
        Ok(())
    }

    /// Locks bytes for an owner; waits until that can be. What the owner has there already is replaced. An end of
    /// `u64::MAX` stands for the end of the file, wherever that is.
    ///
    /// The locks of an owner are given back by [`File::unlock_range`], or when an open file through which it has taken
    /// some of this file's is closed. With [`File::lock_owner`] they are those of this open file alone.
    ///
    /// # Errors
    /// EDEADLK if owners would wait for each other in a circle; ENOLCK if this process has 65,536 locks of this
    /// file system; EINVAL for an empty range.
    pub fn lock_range(&self, owner: LockOwner, kind: LockKind, range: Range<u64>) -> Result<()> {
        self.wait(AdvisoryKind::Record, self.request(owner, kind, range))?;
        self.remember(owner);
        Ok(())
    }

    /// As [`File::lock_range`], without waiting.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another owner's is in the way; else as [`File::lock_range`].
    pub fn try_lock_range(
        &self,
        owner: LockOwner,
        kind: LockKind,
        range: Range<u64>,
    ) -> Result<(), TryLockError> {
        self.try_now(AdvisoryKind::Record, &self.request(owner, kind, range))?;
        self.remember(owner);
        Ok(())
    }

    /// Gives what an owner has of these bytes back.
    ///
    /// # Errors
    /// ENOLCK if what it keeps would be one more lock than [`File::lock_range`] allows.
    pub fn unlock_range(&self, owner: LockOwner, range: Range<u64>) -> Result<()> {
        let engine = self.session.enter("unlock")?;
        let unlocked =
            engine.locks().unlock(self.handle().nid(), AdvisoryKind::Record, owner.to_engine(), range);
        unlocked.map_err(|e| told("unlock", e))?;
        self.forget(engine, owner);
        Ok(())
    }

    /// The lock that would be in the way of one of these bytes, if any.
    ///
    /// # Errors
    /// None of its own.
    pub fn test_lock_range(
        &self,
        owner: LockOwner,
        kind: LockKind,
        range: Range<u64>,
    ) -> Result<Option<LockConflict>> {
        let engine = self.session.enter("test_lock")?;
        let request = self.request(owner, kind, range);
        let conflict = engine.locks().test(self.handle().nid(), AdvisoryKind::Record, &request);
        Ok(conflict.map(|conflict| LockConflict {
            range: conflict.range,
            kind: match conflict.access {
                Access::Read => LockKind::Shared,
                Access::Write => LockKind::Exclusive,
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fs, ScratchOptions};

    /// An owner for each transaction: those that have given everything back, or have been refused, are kept no longer.
    #[test]
    fn owners_without_locks_are_not_kept() {
        let fs = Fs::scratch(&ScratchOptions::new(64 << 20)).expect("memory");
        let file = fs.create("/f").expect("room");
        let kept = || file.owners().others.lock().expect("no panic").len();
        let first = LockOwner::new();
        file.lock_range(first, LockKind::Exclusive, 0..20).expect("nobody else's");
        for _ in 0..100 {
            let owner = LockOwner::new();
            assert!(file.try_lock_range(owner, LockKind::Shared, 10..11).is_err());
            file.lock_range(owner, LockKind::Shared, 100..200).expect("shared");
            file.unlock_range(owner, 100..150).expect("it is the owner's");
            assert_eq!(kept(), 2);
            file.unlock_range(owner, 150..u64::MAX).expect("the rest");
            assert_eq!(kept(), 1);
        }
        let other = fs.open("/f").expect("there");
        assert!(other.try_lock_range(LockOwner::new(), LockKind::Shared, 0..1).is_err());
        drop(file);
        other.try_lock_range(LockOwner::new(), LockKind::Shared, 0..20).expect("given back with the file");
    }
}
