//! What kernel file systems have in place of a range lock: one reader-writer semaphore for each file, whatever the
//! range. Writers are alone in the file, as under the kernel's inode lock.
//!
//! Readers share it, as in XFS: the buffered readers of ext4 and F2FS take no lock, and see halves of writes, which
//! narufs has promised that nobody does. Where nobody writes, a reader need not take it: [`FileLock::is_written`].

use std::ops::Range;

use super::{FileLock, LockClass, Rank, RankedReadGuard, RankedRwLock, RankedWriteGuard};
use crate::sync::atomic::{AtomicBool, Ordering};

/// The lock of one file.
#[derive(Debug)]
pub struct WholeFileLock {
    lock: RankedRwLock<()>,
    is_written: AtomicBool,
}

/// The file, shared or alone; given back when dropped.
#[derive(Debug)]
#[must_use = "the file is given back when the guard is dropped"]
pub enum WholeFileGuard<'a> {
    /// Shared.
    Read(RankedReadGuard<'a, ()>),
    /// Alone.
    Write(Writing<'a>),
}

/// A file that is written.
#[derive(Debug)]
pub struct Writing<'a> {
    lock: &'a WholeFileLock,
    _alone: RankedWriteGuard<'a, ()>,
}

impl<'a> Writing<'a> {
    fn guard(lock: &'a WholeFileLock, alone: RankedWriteGuard<'a, ()>) -> WholeFileGuard<'a> {
        // Relaxed: who has seen a change that this writer goes on to make sees this before it.
        lock.is_written.store(true, Ordering::Relaxed);
        WholeFileGuard::Write(Writing { lock, _alone: alone })
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `is_written`. The lock itself is given up behind this.
        self.lock.is_written.store(false, Ordering::Release);
    }
}

impl FileLock for WholeFileLock {
    type Guard<'a> = WholeFileGuard<'a>;

    fn for_file(nid: u64) -> Self {
        let lock = RankedRwLock::new(Rank::new(LockClass::Range, nid), ());
        WholeFileLock { lock, is_written: AtomicBool::new(false) }
    }

    fn read(&self, _range: Range<u64>) -> WholeFileGuard<'_> {
        WholeFileGuard::Read(self.lock.read())
    }

    fn write(&self, _range: Range<u64>) -> WholeFileGuard<'_> {
        Writing::guard(self, self.lock.write())
    }

    fn try_read(&self, _range: Range<u64>) -> Option<WholeFileGuard<'_>> {
        self.lock.try_read().map(WholeFileGuard::Read)
    }

    fn try_write(&self, _range: Range<u64>) -> Option<WholeFileGuard<'_>> {
        self.lock.try_write().map(|alone| Writing::guard(self, alone))
    }

    fn is_written(&self, _range: Range<u64>) -> bool {
        // Acquire: pairs with the Release of the last writer.
        self.is_written.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn it_conforms() {
        crate::conformance::file_lock::check::<WholeFileLock>();
    }

    #[test]
    fn a_writer_has_the_whole_file_and_readers_share_it() {
        let lock = WholeFileLock::for_file(1);
        let held = lock.write(0..1);
        assert!(lock.is_written(1 << 30..2 << 30) && lock.try_write(1 << 30..2 << 30).is_none());
        drop(held);
        let readers = (lock.read(0..1), lock.try_read(0..u64::MAX).expect("readers share"));
        assert!(!lock.is_written(0..1) && lock.try_write(1 << 30..2 << 30).is_none());
        drop(readers);
        assert!(lock.try_write(0..1).is_some());
    }
}
