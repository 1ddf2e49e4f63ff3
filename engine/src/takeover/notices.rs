//! Inodes of which the kernel is to be told something a while later, so that a successor tells it where this server comes
//! no more to it.
//!
//! One thread at a time puts and takes; the caller has a lock for that. Invariant: what was put is left to a successor until
//! it is taken.

use std::sync::atomic::{AtomicU64, Ordering};

/// As many as there is room for, beside what is [not recalled](super::unrecalled).
pub const MOST_NOTICES: usize = 256;

/// See the module. Zero bytes are none.
#[repr(C)]
#[derive(Debug)]
pub struct Notices<const MOST: usize> {
    /// 0: free.
    nids: [AtomicU64; MOST],
}

impl<const MOST: usize> Notices<MOST> {
    /// The kernel is to be told of this inode. False: there is no room; it stays with the caller.
    pub fn put(&self, nid: u64) -> bool {
        let free = self.nids.iter().find(|entry| entry.load(Ordering::Relaxed) == 0);
        if let Some(entry) = free {
            // Release: a successor that finds it finds what it is about.
            entry.store(nid, Ordering::Release);
        }
        free.is_some()
    }

    /// It was told: what was put once is over.
    pub fn take(&self, nid: u64) {
        if let Some(entry) = self.nids.iter().find(|entry| entry.load(Ordering::Relaxed) == nid) {
            // Release: it was told before.
            entry.store(0, Ordering::Release);
        }
    }

    /// What a predecessor has left.
    pub fn left(&self) -> Vec<u64> {
        // Acquire: pairs with the Release of `put`, in another process.
        self.nids.iter().map(|entry| entry.load(Ordering::Acquire)).filter(|nid| *nid != 0).collect()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::testing::killed;
    use crate::takeover::{MOST_NOTICES, Takeover};

    #[test]
    fn what_was_not_told_is_left_to_the_next() {
        let memory = Takeover::create(1).expect("memory");
        let notices = memory.notices();
        assert!((1..=MOST_NOTICES as u64).all(|nid| notices.put(nid)));
        assert!(!notices.put(7));
        (1..=MOST_NOTICES as u64).filter(|nid| nid % 100 != 0).for_each(|nid| notices.take(nid));
        notices.take(7);
        assert!(notices.put(100));
        let mut left = killed(&memory).notices().left();
        left.sort_unstable();
        assert_eq!(left, [100, 100, 200]);
    }
}
