//! The lock order, and what waiting for each class of lock costs.
//!
//! Every lock of the engine that can be held while another is taken has a [`Rank`]: its class, then an order
//! within the class. A thread may *wait* only for a lock that ranks above all it holds. A thread that only tries may
//! take locks in any order, since it never waits; what it took counts as held.
//!
//! Debug builds check the rule at every acquisition and panic on an inversion, whether or not it would have
//! met its counterpart. Release builds compile the check away.

use std::marker::PhantomData;
use std::time::Instant;

use crate::sync::LaneCounter;

/// The classes of locks, in the order in which they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum LockClass {
    /// Giving a directory room for names, by nid.
    Growth,
    /// Byte range of a file, by nid.
    Range,
    /// Room in the journal.
    Credits,
    /// The one lock over moving a directory to another parent.
    DirectoryMove,
    /// Inodes and directory buckets, by nid; an inode comes before its own buckets.
    Inode,
    /// The latch of one page.
    Page,
    /// Allocation groups, NAT lanes and their like: held briefly, nothing is taken below them.
    Allocator,
}

impl LockClass {
    /// Every class, in lock order.
    pub const ALL: [LockClass; 7] = [
        LockClass::Growth,
        LockClass::Range,
        LockClass::Credits,
        LockClass::DirectoryMove,
        LockClass::Inode,
        LockClass::Page,
        LockClass::Allocator,
    ];

    /// The name that `stats` shows.
    pub const fn name(self) -> &'static str {
        match self {
            LockClass::Growth => "growth",
            LockClass::Range => "range",
            LockClass::Credits => "credits",
            LockClass::DirectoryMove => "directory-move",
            LockClass::Inode => "inode",
            LockClass::Page => "page",
            LockClass::Allocator => "allocator",
        }
    }

    /// Runs `wait`, which waits for a lock of this class, and accounts for the time.
    pub fn wait<T>(self, wait: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let got = wait();
        let counters = &WAITS[self as usize];
        counters.waits.add(1);
        counters.ns.add(began.elapsed().as_nanos() as u64);
        got
    }
}

struct Waits {
    waits: LaneCounter,
    ns: LaneCounter,
}

static WAITS: [Waits; LockClass::ALL.len()] =
    [const { Waits { waits: LaneCounter::new(), ns: LaneCounter::new() } }; LockClass::ALL.len()];

/// What waiting for one class of locks has cost this process so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LockWaits {
    /// The class.
    pub class: LockClass,
    /// Acquisitions that did not succeed at once.
    pub waits: u64,
    /// Nanoseconds that they took, summed over threads.
    pub wait_ns: u64,
}

/// The costs of waiting, class by class in lock order.
pub fn lock_waits() -> [LockWaits; LockClass::ALL.len()] {
    LockClass::ALL.map(|class| {
        let counters = &WAITS[class as usize];
        LockWaits { class, waits: counters.waits.get(), wait_ns: counters.ns.get() }
    })
}

/// A lock's place in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The class.
    pub class: LockClass,
    /// The order among locks of the class: a nid, a block number, a group.
    pub id: u64,
    /// The order among locks of one id.
    pub part: u32,
}

impl Rank {
    /// The place of a lock that its class and id identify.
    pub const fn new(class: LockClass, id: u64) -> Self {
        Rank { class, id, part: 0 }
    }

    /// The place of the buckets of a directory: after its inode, before the next inode.
    pub const fn buckets(directory: u64) -> Self {
        Rank { class: LockClass::Inode, id: directory, part: 1 }
    }

    /// Checks that waiting for this lock cannot close a cycle, and notes it as held until the result is
    /// dropped. Call it *before* the wait. A guard keeps the result.
    ///
    /// # Panics
    /// In debug builds, when the thread holds a lock of this rank or above.
    #[inline]
    pub fn waiting(self) -> Held {
        #[cfg(debug_assertions)]
        checker::check(self);
        self.tried()
    }

    /// Notes the lock as held, without a check: it was had without waiting.
    #[inline]
    pub fn tried(self) -> Held {
        #[cfg(debug_assertions)]
        checker::push(self);
        Held {
            #[cfg(debug_assertions)]
            rank: self,
            not_send: PhantomData,
        }
    }
}

/// A lock noted as held by this thread; it stays on the thread.
#[derive(Debug)]
#[must_use = "the lock counts as held while this lives"]
pub struct Held {
    #[cfg(debug_assertions)]
    rank: Rank,
    not_send: PhantomData<*const ()>,
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        checker::pop(self.rank);
    }
}

#[cfg(debug_assertions)]
#[allow(clippy::missing_const_for_thread_local, reason = "loom's macro takes no const block")]
mod checker {
    use super::Rank;
    use std::cell::RefCell;

    crate::sync::thread_local! {
        static HELD: RefCell<Vec<Rank>> = RefCell::new(Vec::new());
    }

    pub(super) fn check(rank: Rank) {
        let above = HELD.try_with(|held| held.borrow().iter().copied().filter(|h| *h >= rank).max());
        // A thread that is ending, whose variables are gone, is not looked at.
        if let Ok(Some(above)) = above {
            panic!("lock order: waiting for {rank:?} while holding {above:?}");
        }
    }

    pub(super) fn push(rank: Rank) {
        let _ = HELD.try_with(|held| held.borrow_mut().push(rank));
    }

    pub(super) fn pop(rank: Rank) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|h| *h == rank) {
                held.swap_remove(at);
            }
        });
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_enum_is_the_order() {
        assert!(LockClass::ALL.is_sorted());
        for (i, class) in LockClass::ALL.iter().enumerate() {
            assert_eq!(*class as usize, i);
        }
    }

    #[test]
    fn ascending_ranks_are_accepted() {
        let _range = Rank::new(LockClass::Range, 9).waiting();
        let _inode = Rank::new(LockClass::Inode, 3).waiting();
        let _buckets = Rank::buckets(3).waiting();
        let _next = Rank::new(LockClass::Inode, 4).waiting();
        let _page = Rank::new(LockClass::Page, 0).waiting();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order")]
    fn an_inversion_panics() {
        let _inode = Rank::new(LockClass::Inode, 3).waiting();
        let _range = Rank::new(LockClass::Range, 3).waiting();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order")]
    fn waiting_for_what_one_holds_panics() {
        let _one = Rank::new(LockClass::Inode, 3).waiting();
        let _again = Rank::new(LockClass::Inode, 3).waiting();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order")]
    fn what_was_tried_counts_as_held() {
        let _page = Rank::new(LockClass::Page, 1).waiting();
        let _inode = Rank::new(LockClass::Inode, 3).tried();
        drop(_page);
        let _range = Rank::new(LockClass::Range, 3).waiting();
    }

    #[test]
    fn released_locks_may_be_taken_again() {
        for _ in 0..2 {
            let _inode = Rank::new(LockClass::Inode, 3).waiting();
        }
        let _range = Rank::new(LockClass::Range, 3).waiting();
    }

    #[test]
    fn waits_are_counted() {
        let before = lock_waits()[LockClass::DirectoryMove as usize];
        assert_eq!(LockClass::DirectoryMove.wait(|| 7), 7);
        let after = lock_waits()[LockClass::DirectoryMove as usize];
        assert_eq!(after.waits, before.waits + 1);
        assert!(after.wait_ns >= before.wait_ns);
    }
}
