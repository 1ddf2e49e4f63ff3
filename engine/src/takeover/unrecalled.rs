//! Inodes of which the kernel may still have pages older than a write that was answered: the write went past its cache, and
//! was answered before the kernel was told to drop them.
//!
//! # Protocol
//! 1. An inode is entered when the write has taken effect, and before it is answered. Killed in between, a server leaves an
//!    entry for nothing: the write is sent again.
//! 2. It is taken out when the kernel has dropped the pages, if no other write of the same inode was answered so meanwhile.
//!    Killed in between, a server leaves an entry for nothing.
//! 3. Where there is no room, that there are *others* is said in the place of the entry: before the answer, and until all of
//!    those are dropped.
//! 4. A successor finds what was left, and recalls it: of each inode that is there all pages, or, where there are others, of
//!    every inode. What it has found stays until that is done, for it may be killed too.
//!
//! So an inode of whose pages nobody has told the kernel is there, or others are, at each instruction that a server may be
//! killed at behind the answer. What is there in vain costs pages that are read anew, and that is all that arbitrary bytes
//! can cause.
//!
//! Memory of an older version has zeros here: nothing to recall. An older successor leaves all as it is, for the next that
//! knows it.
//!
//! One thread at a time changes it; the caller has a lock for that, and counts the writes of each inode.

use super::notices::Notices;
use std::sync::atomic::{AtomicU64, Ordering};

/// As many inodes as there is room for.
pub const MOST_UNRECALLED: usize = 128;

/// See the module. Zero bytes are none.
#[repr(C)]
#[derive(Debug)]
pub struct Unrecalled {
    inodes: Notices<MOST_UNRECALLED>,
    /// Not 0: there are others.
    others: AtomicU64,
}

impl Unrecalled {
    /// Rule 1. False: there is no room (rule 3).
    pub fn put(&self, nid: u64) -> bool {
        self.inodes.put(nid)
    }

    /// Rule 2.
    pub fn take(&self, nid: u64) {
        self.inodes.take(nid);
    }

    /// Rule 3: whether there are others.
    pub fn set_others(&self, are_there: bool) {
        // Release: whether they come or are gone, it is so before what follows.
        self.others.store(u64::from(are_there), Ordering::Release);
    }

    /// What a predecessor has left: inodes, and whether there are others.
    pub fn left(&self) -> (Vec<u64>, bool) {
        // Acquire: pairs with the Release of `set_others`, in another process.
        (self.inodes.left(), self.others.load(Ordering::Acquire) != 0)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::Takeover;
    use super::super::testing::killed;
    use super::*;

    #[test]
    fn what_was_not_recalled_is_left_to_each_that_follows() {
        let memory = Takeover::create(1).expect("memory");
        let unrecalled = memory.unrecalled();
        assert_eq!(unrecalled.left(), (Vec::new(), false));
        let most = MOST_UNRECALLED as u64;
        assert!((1..=most).all(|nid| unrecalled.put(nid)));
        assert!(!unrecalled.put(most + 1));
        unrecalled.set_others(true);
        (3..=most).for_each(|nid| unrecalled.take(nid));
        let next = killed(&memory);
        assert_eq!(next.unrecalled().left(), (vec![1, 2], true));
        next.unrecalled().take(1);
        let last = killed(&next);
        assert_eq!(last.unrecalled().left(), (vec![2], true));
        last.unrecalled().take(2);
        last.unrecalled().set_others(false);
        assert_eq!(killed(&last).unrecalled().left(), (Vec::new(), false));
    }

    #[test]
    fn an_older_version_may_come_before_and_in_between() {
        // It has left this part of the memory as it was made.
        let next = killed(&Takeover::create(1).expect("memory"));
        assert_eq!(next.unrecalled().left(), (Vec::new(), false));
        assert!(next.unrecalled().put(7));
        next.unrecalled().set_others(true);
        // It takes that over, and does not look here.
        let older = killed(&next);
        assert_eq!(killed(&older).unrecalled().left(), (vec![7], true));
    }
}
