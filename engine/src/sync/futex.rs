//! A futex word: sleep if the word still has the value last seen. Models replace the kernel's part.

use std::time::Duration;

use super::atomic::AtomicU32;

/// A word to sleep on. The kernel compares and goes to sleep in one step with respect to [`Futex::wake`].
#[derive(Debug)]
pub(super) struct Futex {
    pub(super) word: AtomicU32,
    #[cfg(any(loom, shuttle))]
    queue: (super::Mutex<()>, super::Condvar),
}

#[cfg(not(any(loom, shuttle)))]
impl Futex {
    pub(super) const fn new() -> Self {
        Futex { word: AtomicU32::new(0) }
    }

    /// Sleeps unless the word differs from `seen`. It may return early; the caller looks again.
    pub(super) fn wait(&self, seen: u32, timeout: Option<Duration>) {
        use rustix::thread::futex;
        // A timeout that does not fit (centuries) is none. Errors are EAGAIN, EINTR, ETIMEDOUT: look again.
        let timeout = timeout.and_then(|t| t.try_into().ok());
        let _ = futex::wait(&self.word, futex::Flags::PRIVATE, seen, timeout.as_ref());
    }

    /// Wakes up to `n` sleepers.
    pub(super) fn wake(&self, n: u32) {
        use rustix::thread::futex;
        // It can fail only for an address or flag that is not valid.
        let _ = futex::wake(&self.word, futex::Flags::PRIVATE, n);
    }
}

#[cfg(any(loom, shuttle))]
impl Futex {
    pub(super) fn new() -> Self {
        Futex { word: AtomicU32::new(0), queue: (super::Mutex::new(()), super::Condvar::new()) }
    }

    pub(super) fn wait(&self, seen: u32, _timeout: Option<Duration>) {
        let mut queue = self.queue.0.lock();
        // Relaxed: as in the kernel, the lock of the queue orders this with a wake.
        if self.word.load(super::atomic::Ordering::Relaxed) == seen {
            self.queue.1.wait(&mut queue);
        }
    }

    pub(super) fn wake(&self, n: u32) {
        let _queue = self.queue.0.lock();
        if n == 1 {
            self.queue.1.notify_one();
        } else {
            self.queue.1.notify_all();
        }
    }
}
