//! Inodes on their way out: they have no name any more, and their last holders are about to let go.
//!
//! The kernel tells of the close of a file, and of the inode that it has dropped, only after close(2) and
//! unlink(2) have returned. Whoever then finds the image full, or asks how full it is, waits here, so that
//! what a program has removed is free when it looks.
//!
//! What this leaves to others: freeing the inodes.
//!
//! # Invariants
//! A wait is bounded, and each inode is waited for in vain once at most: something may hold it for as long as
//! it likes (a working directory, a descriptor opened with O_PATH). Another sign that it is about to go (its
//! last file was closed) makes it worth another wait.

use crate::format::Nid;
use crate::inode::InodeObj;
use crate::sync::{Condvar, Mutex};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Inodes that leave at the same time seldom meet in a shard.
const SHARDS: usize = 16;
/// How long somebody waits who finds the image full: far longer than the kernel takes to tell.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why an inode is here.
#[derive(Debug, Clone, Copy)]
struct Expected {
    /// Its place in the order of arrival; who waits does so for those that came before.
    order: u64,
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
#[derive(Debug)]
pub(super) struct Departing {
    shards: [Shard; SHARDS],
    patience: Duration,
}

impl Default for Departing {
    fn default() -> Departing {
        Departing { shards: Default::default(), patience: PATIENCE }
    }
}

impl Departing {
    fn shard(&self, nid: Nid) -> &Shard {
        &self.shards[nid as usize % SHARDS]
    }

    /// An inode without names, of which the caller is about to free what it has, or will be told when somebody
    /// else does.
    fn insert(&self, nid: Nid, unless: impl FnOnce() -> bool) {
        let mut inodes = self.shard(nid).inodes.lock();
        if !unless() {
            inodes.arrived += 1;
            let order = inodes.arrived;
            inodes.expected.insert(nid, Expected { order, in_vain: false });
        }
    }

    /// The caller frees the inode, which is marked as gone.
    pub fn frees(&self, nid: Nid) {
        self.insert(nid, || false);
    }

    /// Somebody still holds an inode without names: if that will end soon it is to be waited for.
    pub fn held(&self, inode: &InodeObj) {
        if inode.nlink() == 0 && (inode.holds.opens() == 0 || inode.was_flushed()) {
            // If it is gone by now, whoever frees it is here already, or has been.
            self.insert(inode.nid(), || inode.holds.is_gone());
        }
    }

    /// The inode is freed, or stays after all.
    pub fn left(&self, nid: Nid) {
        let shard = self.shard(nid);
        if shard.inodes.lock().expected.remove(&nid).is_some() {
            shard.gone.notify_all();
        }
    }

    /// Waits until those are freed that are on their way out now, for a while. No lock of an inode may be held,
    /// and no credits: freeing takes both.
    pub fn wait(&self) {
        let mut deadline = None;
        for shard in &self.shards {
            let mut inodes = shard.inodes.lock();
            let until = inodes.arrived;
            let waits_for = |e: &Expected| !e.in_vain && e.order <= until;
            while inodes.expected.values().any(waits_for) {
                let now = Instant::now();
                let left = deadline.get_or_insert(now + self.patience).saturating_duration_since(now);
                if left.is_zero() {
                    inodes.expected.values_mut().filter(|e| waits_for(e)).for_each(|e| e.in_vain = true);
                } else {
                    shard.gone.wait_for(&mut inodes, left);
                }
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn in_vain(departing: &Departing, nid: Nid) -> Option<bool> {
        departing.shard(nid).inodes.lock().expected.get(&nid).map(|expected| expected.in_vain)
    }

    #[test]
    fn what_stays_is_waited_for_once() {
        let departing = Departing { patience: Duration::ZERO, ..Departing::default() };
        departing.frees(7);
        assert_eq!(in_vain(&departing, 7), Some(false));
        departing.wait();
        assert_eq!(in_vain(&departing, 7), Some(true));
        departing.frees(7);
        assert_eq!(in_vain(&departing, 7), Some(false), "a new sign of its end");
        departing.left(7);
        departing.wait();
        assert_eq!(in_vain(&departing, 7), None);
    }

    #[test]
    fn a_wait_ends_with_the_last_that_came_before() {
        let departing = Departing { patience: Duration::MAX / 4, ..Departing::default() };
        for nid in 0..100 {
            departing.frees(nid);
        }
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| departing.wait());
            for nid in 0..100 {
                departing.left(nid);
            }
            waiter.join().expect("no panic");
        });
    }
}
