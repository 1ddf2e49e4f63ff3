//! What holds an inode: kernel lookups and open files, in one word.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Lookup counts: bits 0..40.
const LOOKUPS: u64 = (1 << 40) - 1;
/// One open file; bits 40..63 count them.
const OPEN: u64 = 1 << 40;
/// The inode is not there yet, or not any more.
const GONE: u64 = 1 << 63;

/// The counts. Once GONE is set by [`Holds::retire`] nobody can hold the inode again.
///
/// Invariant: GONE and a count above 0 never stand together.
#[derive(Debug)]
pub struct Holds(AtomicU64);

impl Holds {
    /// Held by `lookups` counts of the kernel.
    pub fn new(lookups: u64) -> Holds {
        Holds(AtomicU64::new(lookups.min(LOOKUPS)))
    }

    /// Of an inode whose creation is not committed yet: it cannot be held until [`Holds::publish`].
    pub fn unpublished() -> Holds {
        Holds(AtomicU64::new(GONE))
    }

    /// The creation is committed.
    pub fn publish(&self) {
        // Release: pairs with the Acquire in `add`; a thread that holds it sees what was made.
        self.0.store(0, Ordering::Release);
    }

    /// What one open file counts in [`Holds::publish_with`]; a lookup count is 1.
    pub const ONE_OPEN: u64 = OPEN;

    /// The creation is committed, and its maker holds the inode so much.
    pub fn publish_with(&self, holds: u64) {
        // Release: as in `publish`.
        self.0.store(holds, Ordering::Release);
    }

    /// Adds one lookup count; false: the inode is gone.
    pub fn look_up(&self) -> bool {
        self.add(1)
    }

    /// Adds one open file; false: the inode is gone.
    pub fn open(&self) -> bool {
        self.add(OPEN)
    }

    /// Gives an inode that came back to memory the lookup counts that it left behind.
    pub fn restore(&self, lookups: u64) {
        self.add(lookups.min(LOOKUPS));
    }

    fn add(&self, what: u64) -> bool {
        // Acquire: pairs with `publish`. Relaxed on failure: nothing is done then.
        let added = self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, |held| {
            (held & GONE == 0).then_some(held + what)
        });
        added.is_ok()
    }

    /// Takes up to `n` lookup counts away; true if nothing holds the inode now.
    pub fn forget(&self, n: u64) -> bool {
        self.take(|held| held - (held & LOOKUPS).min(n))
    }

    /// Takes one open file away; true if nothing holds the inode now.
    pub fn close(&self) -> bool {
        self.take(|held| if held & !GONE >= OPEN { held - OPEN } else { held })
    }

    fn take(&self, less: impl Fn(u64) -> u64) -> bool {
        // AcqRel: the last to leave sees what all others did, which `retire` then hands on.
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
            Some(if held & GONE == 0 { less(held) } else { held })
        });
        before.is_ok_and(|held| held & GONE == 0 && less(held) == 0)
    }

    /// Whether nothing holds the inode now; [`Holds::retire`] makes sure that it stays so.
    pub fn is_free(&self) -> bool {
        // Relaxed: a hint.
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Marks the inode as gone if nothing holds it: true for one caller, which frees it.
    pub fn retire(&self) -> bool {
        // AcqRel: pairs with `take`; Relaxed on failure: nothing is done then.
        self.0.compare_exchange(0, GONE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Undoes [`Holds::retire`] or ends a creation that failed to be freed.
    pub fn revive(&self) {
        self.publish();
    }

    /// Whether it is gone.
    pub fn is_gone(&self) -> bool {
        // Acquire: pairs with `publish` and `retire`.
        self.0.load(Ordering::Acquire) & GONE != 0
    }

    /// Lookup counts.
    pub fn lookups(&self) -> u64 {
        // Relaxed: the caller excludes changes, or only looks.
        let held = self.0.load(Ordering::Relaxed);
        if held & GONE == 0 { held & LOOKUPS } else { 0 }
    }

    /// Open files.
    pub fn opens(&self) -> u64 {
        // Relaxed: as in `lookups`.
        (self.0.load(Ordering::Relaxed) & !GONE) / OPEN
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_last_hold_is_noticed_once_and_nothing_holds_what_is_gone() {
        let holds = Holds::unpublished();
        assert!(!holds.look_up());
        holds.publish();
        assert!(holds.look_up() && holds.look_up() && holds.open());
        assert!(!holds.retire());
        assert!(!holds.forget(1));
        assert!(!holds.close());
        assert!(holds.forget(5), "counts that were never given are ignored");
        assert!(holds.retire());
        assert!(!holds.retire());
        assert!(!holds.open() && !holds.forget(1) && !holds.close());
    }

    #[test]
    fn one_of_many_frees() {
        let holds = Holds::new(0);
        for _ in 0..100 {
            assert!(holds.open());
        }
        let freed = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..25 {
                        if holds.close() && holds.retire() {
                            freed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(freed.into_inner(), 1);
    }
}
