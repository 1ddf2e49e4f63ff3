//! A table by number that is looked at without a lock, and from which a sweeping hand lets go what nobody uses:
//! metadata pages by block, inodes by id. Such numbers lie close together.
//!
//! What this leaves to others: what an entry is, which may go, and how many there may be.
//!
//! A number's upper bits say its *leaf*, the lowest four its place there. A leaf belongs to a *shard*, whose
//! *directory* finds it; a place has a pointer, with one count of the entry's own. An entry can be *marked*: it is
//! about to leave. Unlinked is what cannot be reached any more from the shard.
//!
//! # Protocol
//! 1. Places, directories and leaves are changed by a thread that holds the shard's lock, and an entry's count of the
//!    table's is given up by it alone.
//! 2. A reader enters [`Readers`], goes from the shard to the place, adds one to the count of the entry that it finds,
//!    and leaves: it waits for nobody, and writes nothing that is not its core's or the entry's. A marked entry it does
//!    not touch: it leaves and asks again with the lock held.
//! 3. What is *removed or replaced* (entries, empty leaves, outgrown directories) is unlinked first, and kept in
//!    [`limbo`] for a grace period: a reader may be about to count itself in.
//! 4. A thread that *sweeps* looks for entries that the table alone refers to and that may go, and marks them. When a
//!    grace period has passed, no reader is about to count itself in with one of them, and none will: what the count
//!    says holds for as long as the lock is held. Those that are still marked, that the table alone refers to and that
//!    may go are unlinked and given up; the others lose their marks.
//! 5. A thread that finds a marked entry with the lock held takes the mark away, and the entry stays. So that nothing
//!    is marked anew within the period of another mark, a shard marks only while none of its marks waits.
//! 6. Nobody waits for a grace period. What comes in meanwhile comes on top of the limit; a reader is held up by the
//!    scheduler alone, so that is what comes in while a thread is off its core.
//!
//! A key that is removed and inserted again beside a reader is found, or was not there at some moment of the look: it
//! is looked for in one leaf, and leaves for one number follow each other. Models: `loom_models.rs`.

#![allow(unsafe_code, reason = "a reader that is inside looks at a shard")]

mod leaf;
mod limbo;
#[cfg(all(test, loom))]
mod loom_models;
mod own;
mod shard;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub(crate) use own::Counted;
pub(crate) use shard::Locked;

use crate::sync::Readers;
use shard::{OptimisticRead, Shard};
use std::fmt;

/// The table. `S`: what each shard's lock guards beside its entries.
pub(crate) struct RcuTable<R: Counted, S = ()> {
    readers: Readers,
    shards: Box<[Shard<R, S>]>,
}

impl<R: Counted, S: Default> RcuTable<R, S> {
    /// An empty table of so many shards, a power of two.
    pub fn new(shards: usize) -> RcuTable<R, S> {
        assert!(shards.is_power_of_two());
        RcuTable { readers: Readers::new(), shards: (0..shards).map(|_| Shard::new()).collect() }
    }
}

impl<R: Counted, S> RcuTable<R, S> {
    fn shard(&self, key: u64) -> &Shard<R, S> {
        // The upper half: the lower is for the shard's directory.
        let spread = leaf::spread(leaf::number_of(key)) >> 32;
        &self.shards[spread as usize & (self.shards.len() - 1)]
    }

    /// The entry of a key.
    pub fn get(&self, key: u64) -> Option<R> {
        let shard = self.shard(key);
        let reading = self.readers.enter();
        // SAFETY: the readers are those that all that is unlinked in this table waits for. Guarded by `loom_models`.
        let read = unsafe { shard.optimistic_read(key) };
        drop(reading);
        match read {
            OptimisticRead::Found(entry) => Some(entry),
            OptimisticRead::Nothing => None,
            OptimisticRead::Leaving => shard.lock(&self.readers).get(key),
        }
    }

    /// The shard of a key, locked.
    pub fn lock(&self, key: u64) -> Locked<'_, R, S> {
        self.shard(key).lock(&self.readers)
    }

    /// A shard by its number, locked.
    pub fn lock_shard(&self, number: usize) -> Locked<'_, R, S> {
        self.shards[number].lock(&self.readers)
    }

    /// Each shard in turn, locked.
    pub fn each_locked(&self) -> impl Iterator<Item = Locked<'_, R, S>> {
        self.shards.iter().map(|shard| shard.lock(&self.readers))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.each_locked().map(|shard| shard.len()).sum()
    }
}

impl<R: Counted, S> fmt::Debug for RcuTable<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcuTable").field("entries", &self.len()).finish_non_exhaustive()
    }
}
