//! Whether this process is the one that has opened a file system.
//!
//! A child that is forked has the parent's memory, but neither its threads nor its journal: whatever it did would be
//! done behind the parent's back. The C library calls a handler in each child, which counts one generation more; a
//! file system remembers the generation that it was opened in, and each call compares: one load of a word that is
//! never written in between. The handler also closes what the parent has open, whose locks the child would share: an
//! image is locked as long as its process has it open, and not as long as some child lives.
//!
//! Nor can such a child open a file system of its own: threads of its parent were asleep in locks when it was made, and
//! libraries below (parking_lot's table of sleepers) keep, in memory that the child has a copy of, lists of sleepers
//! that it has not. One that goes to sleep beside them may never wake.

#![allow(unsafe_code, reason = "a leaf module: asks the C library to call a handler in each child")]

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many file systems are open, or about to be.
static OPEN: AtomicU32 = AtomicU32::new(0);

/// Whether this process was forked from one that had a file system open.
static AMID: AtomicBool = AtomicBool::new(false);

extern "C" fn in_the_child() {
    // Relaxed: the child has one thread.
    GENERATION.fetch_add(1, Ordering::Relaxed);
    if OPEN.load(Ordering::Relaxed) > 0 {
        AMID.store(true, Ordering::Relaxed);
    }
    // SAFETY: this is a child just forked, and from now on no file system is of its generation: none of them is entered,
    // and dropping forgets them. Guarded by tests/fork_locks.rs.
    unsafe { narufs_engine::fork::let_go() };
}

/// A generation of processes: that of the one in which a file system was opened. Its children know that they were forked
/// amid its use, as long as this is there.
#[derive(Debug)]
pub(crate) struct Generation(u32);

impl Generation {
    /// This process's, from now on told apart from that of its children; None where no file system can be opened, for
    /// one was open when this process was forked.
    pub(crate) fn of_this_process() -> Option<Generation> {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: the handler does nothing but use atomics and system calls, which any child may do, also of a
            // process of many threads; and it lives as long as the library does.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
            assert_eq!(failed, 0, "the C library has no memory for a handler of forks");
        });
        if AMID.load(Ordering::Relaxed) {
            return None;
        }
        // Relaxed: a fork copies all of memory at one instant, and only a child made after this one is spoken of.
        OPEN.fetch_add(1, Ordering::Relaxed);
        Some(Generation(GENERATION.load(Ordering::Relaxed)))
    }

    /// Whether this is still the process where it was taken.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
