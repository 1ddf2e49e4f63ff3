//! The locks of loom and shuttle, which have the standard library's interface, under that of [`super`].

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::blocking::about_to_block;

#[cfg(loom)]
use loom::sync as raw;
#[cfg(shuttle)]
use shuttle::sync as raw;

pub use raw::{RwLockReadGuard, RwLockWriteGuard};

const POISON: &str = "a model that panicked is over";

/// A mutual exclusion lock.
#[derive(Default)]
pub struct Mutex<T>(raw::Mutex<T>);

/// The right to use what a [`Mutex`] guards.
pub struct MutexGuard<'a, T>(Option<raw::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub fn new(value: T) -> Self {
        Mutex(raw::Mutex::new(value))
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.0.into_inner().expect(POISON)
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect(POISON)))
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|g| MutexGuard(Some(g)))
    }

    /// The value, which nobody else can reach now.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(POISON)
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("only a wait takes the guard, and gives it back")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("only a wait takes the guard, and gives it back")
    }
}

/// A lock that readers share.
#[derive(Default)]
pub struct RwLock<T>(raw::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub fn new(value: T) -> Self {
        RwLock(raw::RwLock::new(value))
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.0.into_inner().expect(POISON)
    }

    /// Waits for a share of the lock.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().expect(POISON)
    }

    /// Waits for the whole lock.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().expect(POISON)
    }

    /// Takes a share if no writer holds the lock.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.0.try_read().ok()
    }

    /// Takes the lock if it is free.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.0.try_write().ok()
    }

    /// The value, which nobody else can reach now.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(POISON)
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RwLock")
    }
}

/// A condition variable; wake-ups may be spurious.
pub struct Condvar(raw::Condvar);

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}

impl Condvar {
    /// One that nobody waits for.
    pub fn new() -> Self {
        Condvar(raw::Condvar::new())
    }

    /// Releases the lock, sleeps until notified, takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        about_to_block();
        let held = guard.0.take().expect("a guard outside a wait holds the lock");
        guard.0 = Some(self.0.wait(held).expect(POISON));
    }

    /// As [`Condvar::wait`]: time does not pass in a model.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) -> bool {
        self.wait(guard);
        false
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
