//! The conformance suite of the file lock's seam, on the range lock and on what it replaces.

use std::ops::Range;

use narufs_engine::conformance::file_lock::check;
use narufs_engine::lock::{FileLock, RangeLock};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// One lock for the whole file, as file systems use the inode's.
struct WholeFile(RwLock<()>);

enum WholeGuard<'a> {
    Read(#[expect(dead_code, reason = "unlocks when dropped")] RwLockReadGuard<'a, ()>),
    Write(#[expect(dead_code, reason = "unlocks when dropped")] RwLockWriteGuard<'a, ()>),
}

impl FileLock for WholeFile {
    type Guard<'a> = WholeGuard<'a>;

    fn for_file(_nid: u64) -> Self {
        WholeFile(RwLock::new(()))
    }

    fn read(&self, _range: Range<u64>) -> WholeGuard<'_> {
        WholeGuard::Read(self.0.read())
    }

    fn write(&self, _range: Range<u64>) -> WholeGuard<'_> {
        WholeGuard::Write(self.0.write())
    }

    fn try_read(&self, _range: Range<u64>) -> Option<WholeGuard<'_>> {
        self.0.try_read().map(WholeGuard::Read)
    }

    fn try_write(&self, _range: Range<u64>) -> Option<WholeGuard<'_>> {
        self.0.try_write().map(WholeGuard::Write)
    }
}

#[test]
fn the_range_lock_conforms() {
    check::<RangeLock>();
}

#[test]
fn a_whole_file_lock_conforms() {
    check::<WholeFile>();
}

/// What a mount can have in place of the range lock.
#[cfg(feature = "baselines")]
#[test]
fn baselines_conform() {
    use narufs_engine::lock::{TreeLock, WholeFileLock};
    check::<WholeFileLock>();
    check::<TreeLock>();
}
