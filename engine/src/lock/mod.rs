//! The locks that a request holds: their order, byte ranges of files, inodes, directory buckets; and the
//! advisory locks that programs ask for.
//!
//! This module knows what may be held together and in which order ([`LockClass`]); which operation needs
//! which locks is the business of `vfs`. A thread never leaves a guard to another thread.

mod advisory;
mod buckets;
mod chosen;
mod class;
mod inode_lock;
mod lock_set;
#[cfg(all(test, loom))]
mod loom_models;
mod one_word;
mod range;
mod ranked;
#[cfg(all(test, shuttle))]
mod shuttle_models;
mod slot;
mod span;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(feature = "baselines")]
mod tree;
#[cfg(feature = "baselines")]
mod whole_file;

pub use advisory::{AdvisoryKind, AdvisoryLocks, Completion, Conflict, LockRequest, Owner, WaitId};
pub use buckets::{BucketGuard, BucketLocks, StripeSet};
pub use chosen::{BytesGuard, BytesLock};
pub use class::{Held, LockClass, LockWaits, Rank, lock_waits};
pub use inode_lock::{InodeLock, InodeReadGuard, InodeWriteGuard};
pub use lock_set::{LockSet, Want};
pub use range::{RangeGuard, RangeLock};
pub use ranked::{RankedMutex, RankedMutexGuard, RankedReadGuard, RankedRwLock, RankedWriteGuard};
#[cfg(feature = "baselines")]
pub use tree::{TreeGuard, TreeLock};
#[cfg(feature = "baselines")]
pub use whole_file::{WholeFileGuard, WholeFileLock};

use std::ops::Range;

/// Whether a lock is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Shared with other readers.
    Read,
    /// Exclusive.
    Write,
}

/// The lock over the bytes of one file: the seam between the engine and what a benchmark puts in its place.
///
/// Ranges are half open; an end of `u64::MAX` means to infinity. An empty range counts as one byte. Readers
/// of overlapping ranges share, writers exclude. Nobody starves. A thread holds at most one range of a file;
/// an operation that needs two takes one that covers both. Guards stay on their thread.
pub trait FileLock: Send + Sync {
    /// Releases the range when dropped.
    type Guard<'a>
    where
        Self: 'a;

    /// The lock of the file `nid`, held by nobody.
    fn for_file(nid: u64) -> Self;

    /// Waits for a share of the range.
    fn read(&self, range: Range<u64>) -> Self::Guard<'_>;

    /// Waits for the range.
    fn write(&self, range: Range<u64>) -> Self::Guard<'_>;

    /// Takes a share of the range without waiting. It may fail while other ranges of the file are held,
    /// overlapping or not, but not otherwise.
    fn try_read(&self, range: Range<u64>) -> Option<Self::Guard<'_>>;

    /// Takes the range without waiting, or fails as [`FileLock::try_read`] may.
    fn try_write(&self, range: Range<u64>) -> Option<Self::Guard<'_>>;

    /// Whether a writer may hold some of the range just now. False says that during the call there was, for each
    /// part of the range, a moment at which no writer held it; what writers did before it is visible.
    fn is_written(&self, range: Range<u64>) -> bool {
        let _ = range;
        true
    }
}
