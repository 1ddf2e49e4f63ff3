//! The index of a write-ahead log, in the memory of this process, and its locks.
//!
//! SQLite's connections share it by a file that all map. Here all connections are of this process, and share memory.
//! Others that come through a mount would map a file of their own and know nothing of it. So the first connection makes
//! the file `-shm` and locks, for as long as there is one, the byte that SQLite's own VFS locks while it has that file
//! mapped: whoever comes through the mount is told that the database is busy, and where such a one was here first, this
//! process is.

use crate::ffi::{
    Answer, BUSY, BUSY_RECOVERY, IOERR_SHMLOCK, IOERR_SHMMAP, IOERR_SHMOPEN, SHM_EXCLUSIVE, SHM_LOCK,
    SHM_NLOCK, SHM_SHARED, log,
};
use crate::mount::{Mount, locked};
use crate::open::{give_to_owner, mode_of};
use narufs::{File, LockKind, OpenOptions};
use std::ffi::c_int;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};

/// The byte of the file that whoever maps it has locked (UNIX_SHM_DMS).
const IN_USE: std::ops::Range<u64> = 128..129;

/// What the connections to one database share.
pub struct Shared {
    state: Mutex<State>,
    path: String,
    /// Open as long as this is there, for the lock that tells others.
    _file: File,
}

#[derive(Default)]
struct State {
    /// Pieces of the index: they stay where they are until the last connection goes.
    regions: Vec<Box<[AtomicU64]>>,
    /// For each lock: how many share it, or -1.
    locks: [i32; SHM_NLOCK as usize],
}

/// What one connection has of it.
pub struct Part {
    shared: Arc<Shared>,
    /// Locks that it shares, and that it has alone.
    shares: u16,
    alone: u16,
}

impl Part {
    /// Joins, or begins.
    pub fn join(mount: &Arc<Mount>, db: &File, path: &str) -> Answer<Part> {
        let beside = db.metadata().map_err(|_| IOERR_SHMOPEN)?;
        let ino = beside.ino();
        let mut all = locked(&mount.shared);
        if let Some(shared) = all.get(&ino).and_then(Weak::upgrade) {
            return Ok(Part { shared, shares: 0, alone: 0 });
        }
        all.retain(|_, shared| shared.strong_count() > 0);
        let path = format!("{path}-shm");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).no_follow(true).mode(mode_of(&beside));
        let opened = mount.fs.open_with(&path, &options);
        let file = opened.and_then(|file| give_to_owner(&file, &beside).map(|()| file)).map_err(|e| {
            log(IOERR_SHMOPEN, &e.to_string());
            IOERR_SHMOPEN
        })?;
        if file.try_lock_range(file.lock_owner(), LockKind::Exclusive, IN_USE).is_err() {
            log(
                BUSY_RECOVERY,
                &format!(
                    "{path}: another process uses this database in WAL mode through a mount; close it there, or use \
                     journal_mode=DELETE or locking_mode=EXCLUSIVE"
                ),
            );
            // A plain SQLITE_BUSY it would take for a moment's, and try for ten seconds before it asks the busy handler.
            return Err(BUSY_RECOVERY);
        }
        let shared = Arc::new(Shared { state: Mutex::default(), path, _file: file });
        all.insert(ino, Arc::downgrade(&shared));
        Ok(Part { shared, shares: 0, alone: 0 })
    }

    /// A piece of the index; none if it is not there and is not to be made.
    pub fn region(&self, number: usize, bytes: usize, make: bool) -> Answer<Option<*const AtomicU64>> {
        let mut state = locked(&self.shared.state);
        while make && state.regions.len() <= number {
            let mut region = Vec::new();
            region.try_reserve_exact(bytes / 8).map_err(|_| IOERR_SHMMAP)?;
            region.resize_with(bytes / 8, AtomicU64::default);
            state.regions.push(region.into_boxed_slice());
        }
        Ok(state.regions.get(number).map(|region| region.as_ptr()))
    }

    /// Takes or gives back locks.
    pub fn lock(&mut self, first: c_int, n: c_int, flags: c_int) -> Answer {
        let range = (0..=SHM_NLOCK).contains(&first) && n > 0 && first + n <= SHM_NLOCK;
        if !range {
            return Err(IOERR_SHMLOCK);
        }
        let slots = first as usize..(first + n) as usize;
        let mask = slots.clone().fold(0u16, |mask, slot| mask | 1 << slot);
        let mut state = locked(&self.shared.state);
        let locks = &mut state.locks[slots];
        if flags & SHM_LOCK == 0 {
            give_back(locks, first, &mut self.shares, &mut self.alone, mask);
        } else if flags & SHM_SHARED != 0 {
            if self.shares & mask == 0 {
                if locks[0] < 0 {
                    return Err(BUSY);
                }
                locks[0] += 1;
                self.shares |= mask;
            }
        } else if flags & SHM_EXCLUSIVE != 0 {
            if locks.iter().any(|lock| *lock != 0) {
                return Err(BUSY);
            }
            locks.fill(-1);
            self.alone |= mask;
        }
        Ok(())
    }

    /// Leaves. The last removes the file, if that is asked for.
    pub fn leave(mut self, mount: &Mount, remove: bool) {
        let mut all = locked(&mount.shared);
        self.let_go();
        let path = self.shared.path.clone();
        if Arc::strong_count(&self.shared) == 1 {
            all.retain(|_, shared| !std::ptr::eq(shared.as_ptr(), Arc::as_ptr(&self.shared)));
            if remove {
                // That it stays does no harm: what is in it nobody reads.
                let _ = mount.fs.remove_file(path);
            }
        }
        // The lock goes while others that look for it wait.
        drop(self);
    }

    fn let_go(&mut self) {
        let mut state = locked(&self.shared.state);
        give_back(&mut state.locks, 0, &mut self.shares, &mut self.alone, u16::MAX);
    }
}

fn give_back(locks: &mut [i32], first: c_int, shares: &mut u16, alone: &mut u16, mask: u16) {
    for (slot, lock) in (first as usize..).zip(locks) {
        let bit = 1u16 << slot & mask;
        if *shares & bit != 0 {
            *lock -= 1;
        } else if *alone & bit != 0 {
            *lock = 0;
        }
    }
    *shares &= !mask;
    *alone &= !mask;
}

impl Drop for Part {
    fn drop(&mut self) {
        self.let_go();
    }
}
