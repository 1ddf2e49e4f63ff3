//! parking_lot's locks, which announce a sleep before they sleep.

use std::fmt;
use std::time::Duration;

use super::spin;
use crate::blocking::about_to_block;

pub use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// How long readers of a lock usually have it, at the most.
const BRIEFLY: Duration = Duration::from_micros(20);

/// A mutual exclusion lock.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if let Some(guard) = self.0.try_lock() {
            return guard;
        }
        let mut found = None;
        if spin(|| {
            if !self.0.is_locked() {
                found = self.0.try_lock();
            }
            found.is_some()
        }) && let Some(guard) = found
        {
            return guard;
        }
        about_to_block();
        self.0.lock()
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// The value, which nobody else can reach now.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A lock that readers share.
#[derive(Default)]
pub struct RwLock<T: ?Sized>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        RwLock(parking_lot::RwLock::new(value))
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits for a share of the lock.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        if let Some(guard) = self.0.try_read() {
            return guard;
        }
        let mut found = None;
        if spin(|| {
            found = self.0.try_read();
            found.is_some()
        }) && let Some(guard) = found
        {
            return guard;
        }
        about_to_block();
        self.0.read()
    }

    /// Waits for the whole lock. Readers that come one after the other leave no moment at which nobody holds it: a
    /// thread that finds readers alone says that it waits, which lets no more in, for as long as readers usually take;
    /// and gives that up before it sleeps.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let mut found = self.0.try_write();
        if found.is_none() {
            spin(|| {
                if !self.0.is_locked_exclusive() {
                    found = self.0.try_write_for(BRIEFLY);
                    return true;
                }
                false
            });
        }
        found.unwrap_or_else(|| {
            about_to_block();
            self.0.write()
        })
    }

    /// Takes a share if no writer holds the lock or waits for it.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.0.try_read()
    }

    /// Takes the lock if it is free.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.0.try_write()
    }

    /// The value, which nobody else can reach now.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A condition variable; wake-ups may be spurious.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// One that nobody waits for.
    pub const fn new() -> Self {
        Condvar(parking_lot::Condvar::new())
    }

    /// Releases the lock, sleeps until notified, takes the lock again.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        about_to_block();
        self.0.wait(guard);
    }

    /// The same for at most `timeout`; true says that the time ran out.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        about_to_block();
        self.0.wait_for(guard, timeout).timed_out()
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
