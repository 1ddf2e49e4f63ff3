//! The read-write lock of an inode.

use std::ops::{Deref, DerefMut};

use super::{Held, LockClass, Rank};
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What an inode holds in memory, and the lock over it.
#[derive(Debug)]
pub struct InodeLock<T> {
    nid: u64,
    lock: RwLock<T>,
}

/// A share of an inode.
#[derive(Debug)]
#[must_use = "the inode is unlocked when the guard is dropped"]
pub struct InodeReadGuard<'a, T> {
    inode: RwLockReadGuard<'a, T>,
    _held: Held,
}

/// A whole inode.
#[derive(Debug)]
#[must_use = "the inode is unlocked when the guard is dropped"]
pub struct InodeWriteGuard<'a, T> {
    inode: RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> InodeLock<T> {
    /// The lock of the inode `nid`, held by nobody.
    pub fn new(nid: u64, inode: T) -> Self {
        InodeLock { nid, lock: RwLock::new(inode) }
    }

    /// Whose lock this is.
    pub fn nid(&self) -> u64 {
        self.nid
    }

    /// The inode, which nobody else can reach now.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }

    pub(super) fn rank(&self) -> Rank {
        Rank::new(LockClass::Inode, self.nid)
    }

    /// Waits for a share. For several inodes take a [`LockSet`](super::LockSet).
    pub fn read(&self) -> InodeReadGuard<'_, T> {
        let held = self.rank().waiting();
        let inode = self.lock.try_read().unwrap_or_else(|| LockClass::Inode.wait(|| self.lock.read()));
        InodeReadGuard { inode, _held: held }
    }

    /// Waits for the whole. For several inodes take a [`LockSet`](super::LockSet).
    pub fn write(&self) -> InodeWriteGuard<'_, T> {
        let held = self.rank().waiting();
        let inode = self.lock.try_write().unwrap_or_else(|| LockClass::Inode.wait(|| self.lock.write()));
        InodeWriteGuard { inode, _held: held }
    }

    /// Takes a share without waiting.
    pub fn try_read(&self) -> Option<InodeReadGuard<'_, T>> {
        let inode = self.lock.try_read()?;
        Some(InodeReadGuard { inode, _held: self.rank().tried() })
    }

    /// Takes the whole without waiting.
    pub fn try_write(&self) -> Option<InodeWriteGuard<'_, T>> {
        let inode = self.lock.try_write()?;
        Some(InodeWriteGuard { inode, _held: self.rank().tried() })
    }
}

impl<T> Deref for InodeReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inode
    }
}

impl<T> Deref for InodeWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inode
    }
}

impl<T> DerefMut for InodeWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inode
    }
}
