//! Locks that know their place in the lock order: checked in debug builds, waits accounted for.

use std::ops::{Deref, DerefMut};

use super::{Held, Rank};
use crate::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A mutual exclusion lock with a place in the lock order.
#[derive(Debug)]
pub struct RankedMutex<T> {
    rank: Rank,
    lock: Mutex<T>,
}

/// The right to use what a [`RankedMutex`] guards.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct RankedMutexGuard<'a, T> {
    value: MutexGuard<'a, T>,
    _held: Held,
}

/// A lock that readers share, with a place in the lock order.
#[derive(Debug)]
pub struct RankedRwLock<T> {
    rank: Rank,
    lock: RwLock<T>,
}

/// A share of what a [`RankedRwLock`] guards.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct RankedReadGuard<'a, T> {
    value: RwLockReadGuard<'a, T>,
    _held: Held,
}

/// The whole of what a [`RankedRwLock`] guards.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct RankedWriteGuard<'a, T> {
    value: RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RankedMutex<T> {
    /// An unlocked mutex.
    pub fn new(rank: Rank, value: T) -> Self {
        RankedMutex { rank, lock: Mutex::new(value) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> RankedMutexGuard<'_, T> {
        let held = self.rank.waiting();
        let value = self.lock.try_lock().unwrap_or_else(|| self.rank.class.wait(|| self.lock.lock()));
        RankedMutexGuard { value, _held: held }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<RankedMutexGuard<'_, T>> {
        let value = self.lock.try_lock()?;
        Some(RankedMutexGuard { value, _held: self.rank.tried() })
    }

    /// The value, which nobody else can reach now.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }
}

impl<T> RankedRwLock<T> {
    /// An unlocked lock.
    pub fn new(rank: Rank, value: T) -> Self {
        RankedRwLock { rank, lock: RwLock::new(value) }
    }

    /// Its place in the order.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Waits for a share.
    pub fn read(&self) -> RankedReadGuard<'_, T> {
        let held = self.rank.waiting();
        let value = self.lock.try_read().unwrap_or_else(|| self.rank.class.wait(|| self.lock.read()));
        RankedReadGuard { value, _held: held }
    }

    /// Waits for the whole.
    pub fn write(&self) -> RankedWriteGuard<'_, T> {
        let held = self.rank.waiting();
        let value = self.lock.try_write().unwrap_or_else(|| self.rank.class.wait(|| self.lock.write()));
        RankedWriteGuard { value, _held: held }
    }

    /// Takes a share if no writer holds the lock or waits for it.
    pub fn try_read(&self) -> Option<RankedReadGuard<'_, T>> {
        let value = self.lock.try_read()?;
        Some(RankedReadGuard { value, _held: self.rank.tried() })
    }

    /// Takes the whole if it is free.
    pub fn try_write(&self) -> Option<RankedWriteGuard<'_, T>> {
        let value = self.lock.try_write()?;
        Some(RankedWriteGuard { value, _held: self.rank.tried() })
    }

    /// The value, which nobody else can reach now.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }
}

impl<T> Deref for RankedMutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for RankedMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Deref for RankedReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Deref for RankedWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for RankedWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
