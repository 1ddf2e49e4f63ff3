//! Inodes on their way out: they have no name any more, and their last holders are about to let go.
//!
//! The kernel tells of the close of a file, and of the inode that it has dropped, only after close(2) and
//! unlink(2) have returned. A thread that then finds the image full, or asks how full it is, waits here, so that
//! what a program has removed is free when it looks.
//!
//! What this leaves to others: freeing the inodes.
//!
//! # Invariants
//! A wait is bounded, and each inode is waited for in vain once at most: something may hold it for as long as
//! it likes (an open file, a working directory, a descriptor opened with O_PATH). That its last file was closed
//! makes it worth another wait. Nobody waits where the end of a use cannot be heard of.

use crate::format::Nid;
use crate::inode::InodeObj;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Inodes that leave at the same time seldom meet in a shard.
const SHARDS: usize = 16;
/// How long to wait for the end of an inode that is not open: far longer than the kernel takes to tell.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How long a thread that only asks waits for that of one whose file may have been closed just now, or not.
pub(super) const AT_ONCE: Duration = Duration::from_millis(300);

/// Why an inode is here.
#[derive(Debug, Clone, Copy)]
struct Expected {
    /// Its place in the order of arrival; a thread that waits does so for those that came before.
    order: u64,
    /// A file of it was open then.
    open: bool,
    /// Somebody has waited for it in vain.
    in_vain: bool,
}

#[derive(Debug, Default)]
struct Inodes {
    expected: HashMap<Nid, Expected>,
    arrived: u64,
}

#[derive(Debug, Default)]
struct Shard {
    inodes: Mutex<Inodes>,
    /// Woken when one is gone.
    gone: Condvar,
}

/// The inodes of one file system that are on their way out.
#[derive(Debug, Default)]
pub(super) struct PendingEviction {
    shards: [Shard; SHARDS],
    /// Whether any may be open, though nobody has told.
    maybe_open: AtomicBool,
    /// Nobody hears yet what the kernel tells: to wait would be in vain.
    is_unheard: AtomicBool,
}

impl PendingEviction {
    /// Whether what the kernel tells is heard. Not while a successor answers what its predecessor had read: it reads nothing
    /// else, and frees nothing that it has not made.
    pub fn hear(&self, is_heard: bool) {
        // Relaxed: it is set before anybody waits; who does not see it cleared waits for nothing.
        self.is_unheard.store(!is_heard, Ordering::Relaxed);
    }

    fn shard(&self, nid: Nid) -> &Shard {
        &self.shards[nid as usize % SHARDS]
    }

    fn insert(&self, nid: Nid, open: bool, unless: impl FnOnce() -> bool) {
        let mut inodes = self.shard(nid).inodes.lock();
        if !unless() {
            inodes.arrived += 1;
            // A thread that waits for it already goes on doing so.
            let order = inodes.expected.get(&nid).map_or(inodes.arrived, |e| e.order);
            inodes.expected.insert(nid, Expected { order, open, in_vain: false });
        }
    }

    /// From now on any may be open, though nobody tells.
    pub fn closes_are_not_told(&self) {
        self.maybe_open.store(true, Ordering::Relaxed);
    }

    /// The caller frees the inode, which is marked as gone.
    pub fn frees(&self, nid: Nid) {
        self.insert(nid, false, || false);
    }

    /// Somebody still holds an inode that was unlinked or closed just now: if it has no names, that may end soon.
    pub fn held(&self, inode: &InodeObj) {
        if inode.nlink() == 0 {
            // Relaxed: it is set before anybody can hold an inode so.
            let open = inode.holds.opens() > 0 || self.maybe_open.load(Ordering::Relaxed);
            // If it is gone by now, a thread that frees it is here already, or has been.
            self.insert(inode.nid(), open, || inode.holds.is_gone());
        }
    }

    /// The inode is freed, or stays after all.
    pub fn left(&self, nid: Nid) {
        let shard = self.shard(nid);
        if shard.inodes.lock().expected.remove(&nid).is_some() {
            shard.gone.notify_all();
        }
    }

    /// Waits until those are freed that are on their way out now: for a while, and for those that were open for
    /// `if_open` at most. No lock of an inode may be held, and no credits: freeing takes both.
    pub fn wait(&self, if_open: Duration) {
        // A fuzzer has one thread, and nobody frees anything while that sleeps.
        if cfg!(fuzzing) || self.is_unheard.load(Ordering::Relaxed) {
            return;
        }
        let mut began = None;
        for shard in &self.shards {
            let mut inodes = shard.inodes.lock();
            let until = inodes.arrived;
            loop {
                let mut longest = None;
                for e in inodes.expected.values_mut().filter(|e| !e.in_vain && e.order <= until) {
                    let now = Instant::now();
                    let patience = if e.open { if_open.min(PATIENCE) } else { PATIENCE };
                    let left = (*began.get_or_insert(now) + patience).saturating_duration_since(now);
                    e.in_vain = left.is_zero();
                    longest = longest.max(Some(left).filter(|left| !left.is_zero()));
                }
                let Some(longest) = longest else { break };
                shard.gone.wait_for(&mut inodes, longest);
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn in_vain(pending_eviction: &PendingEviction, nid: Nid) -> Option<bool> {
        pending_eviction.shard(nid).inodes.lock().expected.get(&nid).map(|expected| expected.in_vain)
    }

    #[test]
    fn nothing_is_waited_for_while_nobody_hears_of_it() {
        let pending_eviction = PendingEviction::default();
        pending_eviction.hear(false);
        pending_eviction.insert(7, true, || false);
        pending_eviction.wait(Duration::ZERO);
        assert_eq!(in_vain(&pending_eviction, 7), Some(false));
        pending_eviction.hear(true);
        pending_eviction.wait(Duration::ZERO);
        assert_eq!(in_vain(&pending_eviction, 7), Some(true));
    }

    #[test]
    fn what_stays_is_waited_for_once() {
        let pending_eviction = PendingEviction::default();
        pending_eviction.insert(7, true, || false);
        assert_eq!(in_vain(&pending_eviction, 7), Some(false));
        pending_eviction.wait(Duration::ZERO);
        assert_eq!(in_vain(&pending_eviction, 7), Some(true));
        pending_eviction.frees(7);
        assert_eq!(in_vain(&pending_eviction, 7), Some(false), "it was closed");
        pending_eviction.left(7);
        pending_eviction.wait(Duration::ZERO);
        assert_eq!(in_vain(&pending_eviction, 7), None);
        pending_eviction.insert(7, true, || true);
        assert_eq!(in_vain(&pending_eviction, 7), None, "it had gone before");
    }

    #[test]
    fn a_wait_ends_with_the_last_that_came_before() {
        let pending_eviction = PendingEviction::default();
        for nid in 0..100 {
            pending_eviction.insert(nid, nid % 2 == 0, || false);
        }
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pending_eviction.wait(PATIENCE));
            for nid in 0..100 {
                pending_eviction.left(nid);
            }
            waiter.join().expect("no panic");
        });
        assert!((0..100).all(|nid| in_vain(&pending_eviction, nid).is_none()));
    }
}
