//! The read-write lock of an inode.

use super::{LockClass, Rank, RankedReadGuard, RankedRwLock, RankedWriteGuard};

/// What an inode holds in memory, and the lock over it. For several inodes take a
/// [`LockSet`](super::LockSet).
#[derive(Debug)]
pub struct InodeLock<T>(RankedRwLock<T>);

/// A share of an inode.
pub type InodeReadGuard<'a, T> = RankedReadGuard<'a, T>;

/// A whole inode.
pub type InodeWriteGuard<'a, T> = RankedWriteGuard<'a, T>;

impl<T> InodeLock<T> {
    /// The lock of the inode `nid`, held by nobody.
    pub fn new(nid: u64, inode: T) -> Self {
        InodeLock(RankedRwLock::new(Rank::new(LockClass::Inode, nid), inode))
    }

    /// Whose lock this is.
    pub fn nid(&self) -> u64 {
        self.0.rank().id
    }

    pub(super) fn rank(&self) -> Rank {
        self.0.rank()
    }

    /// The inode, which nobody else can reach now.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// Waits for a share.
    pub fn read(&self) -> InodeReadGuard<'_, T> {
        self.0.read()
    }

    /// Waits for the whole.
    pub fn write(&self) -> InodeWriteGuard<'_, T> {
        self.0.write()
    }

    /// Takes a share without waiting.
    pub fn try_read(&self) -> Option<InodeReadGuard<'_, T>> {
        self.0.try_read()
    }

    /// Takes the whole without waiting.
    pub fn try_write(&self) -> Option<InodeWriteGuard<'_, T>> {
        self.0.try_write()
    }
}
