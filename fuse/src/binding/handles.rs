//! Open files by the numbers that the kernel calls them.
//!
//! A number says which server of the mount has given it out. What an earlier one had open its successor does not know;
//! the kernel vouches for it, and the file is borrowed for each request ([`files`](super::files)).
//!
//! Invariants: a number given out is not given out again before it has been removed; an open file goes back to
//! the engine once, when it has been removed and the last request on it is done.

use crate::types::{Errno, Result};
use narufs_engine::lock::{AdvisoryKind, Owner};
use narufs_engine::vfs::{FileHandle, Vfs};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Shards, so that opens on different cores do not meet; a power of two.
const SHARDS: usize = 16;

/// Who has locks that may have to go with an open file.
#[derive(Debug, Default)]
pub struct Owners {
    /// Of flock(2): the open file itself.
    flock: Option<Owner>,
    /// Of fcntl(2).
    record: Vec<Owner>,
    /// Who asks for one by fcntl(2), and has closed no descriptor since; once for each request.
    asking: Vec<Owner>,
    /// What was granted by fcntl(2) to who had closed a descriptor meanwhile.
    late: Vec<(Owner, Range<u64>)>,
}

impl Owners {
    /// This one asks for a lock: [`Owners::answered`] follows.
    pub fn asks(&mut self, owner: Owner, kind: AdvisoryKind) {
        if kind == AdvisoryKind::Record {
            self.asking.push(owner);
        }
    }

    /// It has got bytes, or has not. What one gets who has closed a descriptor meanwhile is given back alone: what the same
    /// owner holds besides may have been taken through another open file since.
    pub fn answered(&mut self, owner: Owner, kind: AdvisoryKind, granted: Option<Range<u64>>) {
        if kind == AdvisoryKind::Flock {
            self.flock = granted.map(|_| owner).or(self.flock);
            return;
        }
        let asked = self.asking.iter().position(|asks| *asks == owner).map(|at| self.asking.swap_remove(at));
        match (asked, granted) {
            (_, None) => {}
            (None, Some(range)) => self.late.push((owner, range)),
            (Some(_), Some(_)) if self.record.contains(&owner) => {}
            (Some(_), Some(_)) => self.record.push(owner),
        }
    }

    /// What this one has by fcntl(2) has been given back: it has closed a descriptor.
    pub fn forget(&mut self, owner: Owner) {
        self.record.retain(|other| *other != owner);
        self.asking.retain(|other| *other != owner);
        self.late.retain(|(other, _)| *other != owner);
    }
}

/// An open file or directory, and the way back for it.
#[derive(Debug)]
pub struct Open {
    fs: Arc<Vfs>,
    /// `None` only while it is being dropped.
    handle: Option<FileHandle>,
    directory: bool,
    owners: Mutex<Owners>,
}

impl Open {
    /// Whose locks go with it.
    pub fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock()
    }
}

impl Deref for Open {
    type Target = FileHandle;

    fn deref(&self) -> &FileHandle {
        self.handle.as_ref().expect("the handle is taken only by drop")
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        if self.directory {
            self.fs.releasedir(handle);
        } else {
            let owners = self.owners.get_mut();
            for (owner, range) in owners.late.drain(..) {
                // Where the kernel has given them back by itself there is nothing left to do.
                let _ = self.fs.locks().unlock(handle.nid(), AdvisoryKind::Record, owner, range);
            }
            for owner in owners.record.drain(..) {
                self.fs.locks().release_owner(handle.nid(), AdvisoryKind::Record, owner);
            }
            self.fs.release(handle, owners.flock);
        }
    }
}

#[derive(Debug, Default)]
struct Shard {
    open: Vec<Option<Arc<Open>>>,
    free: Vec<usize>,
}

/// Bits of a number that count; above them is which server of the mount has given it out.
const COUNT_BITS: u32 = 40;

/// All open files of a mount.
#[derive(Debug, Default)]
pub struct Handles {
    shards: [RwLock<Shard>; SHARDS],
    /// The upper bits of each number given out here.
    origin: u64,
}

impl Handles {
    /// None yet; so many servers were there before.
    pub fn new(incarnation: u32) -> Handles {
        Handles { origin: u64::from(incarnation) << COUNT_BITS, ..Handles::default() }
    }

    /// A number that an earlier server may have given out, for what it had opened without saying so.
    pub fn foreign(&self) -> u64 {
        self.origin.wrapping_sub(1 << COUNT_BITS)
    }

    /// Whether a number was given out by an earlier server of the mount: what was open went with it.
    pub fn is_foreign(&self, fh: u64) -> bool {
        fh >> COUNT_BITS != self.origin >> COUNT_BITS
    }

    /// Gives an open file a number.
    pub fn insert(&self, fs: &Arc<Vfs>, handle: FileHandle) -> u64 {
        self.add(fs, handle, false)
    }

    /// Gives an open directory a number.
    pub fn insert_directory(&self, fs: &Arc<Vfs>, handle: FileHandle) -> u64 {
        self.add(fs, handle, true)
    }

    fn add(&self, fs: &Arc<Vfs>, handle: FileHandle, directory: bool) -> u64 {
        let open = Open { fs: Arc::clone(fs), handle: Some(handle), directory, owners: Mutex::default() };
        let number = rustix::thread::sched_getcpu() % SHARDS;
        let mut shard = self.shards[number].write();
        let index = shard.free.pop().unwrap_or_else(|| {
            shard.open.push(None);
            shard.open.len() - 1
        });
        shard.open[index] = Some(Arc::new(open));
        self.origin | (index * SHARDS + number) as u64
    }

    /// The open file of this number. EBADF: there is none.
    pub fn get(&self, fh: u64) -> Result<Arc<Open>> {
        if self.is_foreign(fh) {
            return Err(Errno(libc::EBADF));
        }
        let (shard, index) = self.place(fh);
        shard.read().open.get(index).cloned().flatten().ok_or(Errno(libc::EBADF))
    }

    /// Takes a number back; the file is released when the last request on it is done.
    pub fn remove(&self, fh: u64, flock_owner: Option<Owner>) {
        if self.is_foreign(fh) {
            return;
        }
        let (shard, index) = self.place(fh);
        let removed = {
            let mut shard = shard.write();
            let removed = shard.open.get_mut(index).and_then(Option::take);
            if removed.is_some() {
                shard.free.push(index);
            }
            removed
        };
        if let (Some(open), Some(owner)) = (removed, flock_owner) {
            open.owners().answered(owner, AdvisoryKind::Flock, Some(0..u64::MAX));
        }
    }

    /// Takes all back: the kernel is gone.
    pub fn clear(&self) {
        for shard in &self.shards {
            let all = std::mem::take(&mut *shard.write());
            drop(all);
        }
    }

    fn place(&self, fh: u64) -> (&RwLock<Shard>, usize) {
        let count = (fh & ((1 << COUNT_BITS) - 1)) as usize;
        (&self.shards[count % SHARDS], count / SHARDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_closed_a_descriptor_while_waiting_gives_back_what_was_granted_then() {
        let [owner, other] = [1, 2].map(Owner::Mount);
        let mut owners = Owners::default();
        owners.asks(owner, AdvisoryKind::Record);
        owners.asks(other, AdvisoryKind::Record);
        owners.forget(owner);
        owners.answered(owner, AdvisoryKind::Record, Some(0..10));
        owners.answered(other, AdvisoryKind::Record, Some(20..30));
        assert_eq!((&owners.record[..], &owners.asking[..]), (&[other][..], &[][..]));
        assert_eq!(owners.late, [(owner, 0..10)]);
        for is_granted in [false, true, true] {
            owners.asks(owner, AdvisoryKind::Record);
            owners.answered(owner, AdvisoryKind::Record, is_granted.then_some(0..10));
        }
        assert_eq!((&owners.record[..], &owners.asking[..]), (&[other, owner][..], &[][..]));
        owners.forget(owner);
        assert!(owners.late.is_empty());
    }
}
