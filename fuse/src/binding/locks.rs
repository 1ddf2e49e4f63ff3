//! Locks in common: programs that come through the mount, and the one that uses the library, are in each other's way.
//!
//! Elsewhere the kernel keeps locks to itself, which costs nothing. Here it asks for each (`FuseOptions::shares_locks`),
//! and what it asks for goes into the file system's own table (`Vfs::locks`). An owner is a number of the kernel's. The
//! table tells it from those of the library, and has room for either side that the other cannot take.
//!
//! *What ends a lock.* With each close of a descriptor the kernel sends FLUSH with the owner that closes: what that has
//! on the file by fcntl(2) goes, through whichever descriptor it was taken. The end of a process closes what it has open.
//! A lock of an open file description, by flock(2) or F_OFD_SETLK, has no owner that a FLUSH names, and goes with
//! RELEASE. So each open file remembers who has got locks through it ([`Owners`](super::handles::Owners)), before that
//! is told: until then the kernel has it open, whoever has closed it while a thread waited, and its RELEASE comes later.
//! FLUSH takes the owner from the list. Who waits then, and is granted the lock later, has it no more if its descriptor is
//! gone: some kernels give it back by themselves, others look at locks of their own alone. So RELEASE gives it back, and
//! nothing else of that owner's, who may have taken more by another descriptor. RELEASE may come late: what else it gives
//! back must not be what the same owner has taken anew since, and is not, for it has closed that open file before.
//!
//! *What waits* holds no thread: the reply is kept with the request in the table. A signal has it answered with EINTR; a
//! lock that is granted to a caller who is gone goes on to the next.
//!
//! Invariant: a request is in `waits` until it is answered.

use super::engine::EngineOperations;
use crate::session::LockReply;
use crate::types::{Errno, Lock, Result};
use narufs_engine::format::Nid;
use narufs_engine::lock::{Access, AdvisoryKind, LockRequest, Owner, WaitId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The last byte that the kernel knows; a lock that ends there has no end.
const LAST: u64 = i64::MAX as u64;

/// How far a request that waits has come.
#[derive(Debug)]
enum Wait {
    /// It is about to be put into the table.
    Begins,
    /// It is there by this name.
    Waits(WaitId),
}

/// The requests that wait, by the kernel's numbers for them.
#[derive(Debug, Default)]
pub(super) struct Waits(Arc<Mutex<HashMap<u64, Wait>>>);

/// The bytes that a lock is about. EINVAL: there are none.
fn range_of(lock: &Lock) -> Result<Range<u64>> {
    let end = if lock.end >= LAST { u64::MAX } else { lock.end + 1 };
    if lock.start < end { Ok(lock.start..end) } else { Err(Errno(libc::EINVAL)) }
}

fn kind_of(lock: &Lock) -> AdvisoryKind {
    if lock.flock { AdvisoryKind::Flock } else { AdvisoryKind::Record }
}

fn owner_of(lock: &Lock) -> Owner {
    Owner::Mount(lock.owner)
}

fn request_of(lock: &Lock) -> Result<LockRequest> {
    let access = match lock.kind {
        libc::F_RDLCK => Access::Read,
        libc::F_WRLCK => Access::Write,
        _ => return Err(Errno(libc::EINVAL)),
    };
    Ok(LockRequest { owner: owner_of(lock), pid: lock.pid, range: range_of(lock)?, access })
}

impl EngineOperations {
    fn waits(&self) -> Result<&Waits> {
        self.waits.as_ref().ok_or(Errno(libc::ENOSYS))
    }

    /// F_GETLK.
    pub(super) fn test_lock(&self, nid: Nid, lock: &Lock) -> Result<Lock> {
        self.waits()?;
        let conflict = self.fs.locks().test(nid, kind_of(lock), &request_of(lock)?);
        Ok(conflict.map_or(Lock { kind: libc::F_UNLCK, ..*lock }, |conflict| Lock {
            start: conflict.range.start.min(LAST),
            end: if conflict.range.end > LAST { LAST } else { conflict.range.end - 1 },
            kind: if conflict.access == Access::Read { libc::F_RDLCK } else { libc::F_WRLCK },
            pid: conflict.pid,
            ..*lock
        }))
    }

    /// Takes a lock that is free, or gives one back.
    pub(super) fn try_lock(&self, nid: Nid, lock: &Lock) -> Result<()> {
        self.waits()?;
        if lock.kind == libc::F_UNLCK {
            return Ok(self.fs.locks().unlock(nid, kind_of(lock), owner_of(lock), range_of(lock)?)?);
        }
        let request = request_of(lock)?;
        let open = self.open.get(lock.fh)?;
        let (kind, owner) = (kind_of(lock), request.owner);
        open.owners().asks(owner, kind);
        let taken = self.fs.locks().try_lock(nid, kind, &request);
        open.owners().answered(owner, kind, taken.is_ok().then_some(request.range));
        Ok(taken?)
    }

    /// Takes a lock as soon as it is free, and answers then.
    pub(super) fn lock_then(&self, nid: Nid, lock: &Lock, reply: LockReply) {
        // flock(2) unlocks by this as well.
        if lock.kind == libc::F_UNLCK {
            match self.try_lock(nid, lock) {
                Ok(()) => {
                    // There is nothing to undo if it is not taken.
                    let _ = reply.granted();
                }
                Err(e) => reply.error(e),
            }
            return;
        }
        let asked = self.waits().and_then(|waits| Ok((waits, request_of(lock)?)));
        let asked = asked.and_then(|(waits, request)| Ok((waits, request, self.open.get(lock.fh)?)));
        let (waits, request, open) = match asked {
            Ok(asked) => asked,
            Err(e) => return reply.error(e),
        };
        let unique = reply.unique();
        waits.0.lock().insert(unique, Wait::Begins);
        let all = Arc::clone(&waits.0);
        let (kind, owner, range) = (kind_of(lock), request.owner, request.range.clone());
        open.owners().asks(owner, kind);
        let answer = move |outcome: narufs_engine::Result<()>| {
            all.lock().remove(&unique);
            open.owners().answered(owner, kind, outcome.is_ok().then_some(range));
            match outcome {
                Ok(()) => reply.granted(),
                Err(e) => {
                    reply.error(e.into());
                    true
                }
            }
        };
        let id = self.fs.locks().lock(nid, kind, request, Box::new(answer));
        // It is not there any more if it was answered meanwhile.
        if let Some(wait) = waits.0.lock().get_mut(&unique) {
            *wait = Wait::Waits(id);
        }
    }

    /// Ends a wait with EINTR. False: this one does not wait, or not yet.
    pub(super) fn interrupt_lock(&self, unique: u64) -> bool {
        let id = self.waits.as_ref().and_then(|waits| match waits.0.lock().get(&unique) {
            Some(Wait::Waits(id)) => Some(*id),
            _ => None,
        });
        id.is_some_and(|id| self.fs.locks().cancel(id))
    }

    /// A descriptor was closed: what its process has of the file by fcntl(2) goes.
    pub(super) fn closed_by(&self, nid: Nid, fh: u64, owner: u64) -> Result<()> {
        self.waits()?;
        let owner = Owner::Mount(owner);
        self.open.get(fh)?.owners().forget(owner);
        self.fs.locks().release_owner(nid, AdvisoryKind::Record, owner);
        Ok(())
    }

    /// Ends all waits: nobody waits for an answer any more.
    pub(super) fn end_waits(&self) {
        let Some(waits) = &self.waits else { return };
        let all: Vec<WaitId> = waits
            .0
            .lock()
            .values()
            .filter_map(|wait| if let Wait::Waits(id) = wait { Some(*id) } else { None })
            .collect();
        for id in all {
            self.fs.locks().cancel(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(start: u64, end: u64) -> Lock {
        Lock { fh: 0, owner: 1, start, end, kind: libc::F_WRLCK, pid: 7, flock: false }
    }

    #[test]
    fn bytes_are_counted_with_the_last_and_the_last_of_all_is_no_end() {
        assert_eq!(range_of(&lock(0, 0)), Ok(0..1));
        assert_eq!(range_of(&lock(5, LAST - 1)), Ok(5..LAST));
        assert_eq!(range_of(&lock(5, LAST)), Ok(5..u64::MAX));
        assert_eq!(range_of(&lock(5, u64::MAX)), Ok(5..u64::MAX));
        assert_eq!(range_of(&lock(5, 4)), Err(Errno(libc::EINVAL)));
        assert_eq!(range_of(&lock(u64::MAX, u64::MAX)), Err(Errno(libc::EINVAL)));
        assert_eq!(request_of(&Lock { kind: 77, ..lock(0, 1) }), Err(Errno(libc::EINVAL)));
    }
}
