//! Which image a mount is of, and whether anybody else has had it since.
//!
//! A killed server's lock goes with it, and the next one takes the image's only once it has begun: in between somebody else
//! may mount the image, or repair it. What was left in memory speaks of the image as it was then. So a server says, before
//! the superblock does, which mount of the image its own is (the *epoch*, which each mount that writes makes another), and
//! its successor refuses an image that is of a later one. A server that is killed while it mounts has not made its epoch
//! known to the ring yet, and another may come to have the same: until it has, the number of the superblock's writes bounds
//! what may be its own.

use crate::format::Superblock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of what tells the image from others.
pub(crate) const IMAGE_WORDS: usize = 6;
/// Writes of the superblock by which a server begins.
const WRITES: u64 = 2;

/// A part of the memory's header. Memory of an older version has zeros in what it does not know.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct OfImage {
    /// Whether `words` counts.
    is_noted: AtomicU64,
    words: [AtomicU64; IMAGE_WORDS],
    /// The epoch that this server, or the last one that came so far, has found.
    found: AtomicU64,
    /// Its own; 0: none has come so far.
    own: AtomicU64,
    /// The highest number that the superblock can have by its writes alone.
    writes: AtomicU64,
}

impl OfImage {
    /// Whether the mount is of this image. That of its first server is.
    pub fn is_of(&self, image: [u64; IMAGE_WORDS]) -> bool {
        // Acquire: pairs with the Release below.
        if self.is_noted.load(Ordering::Acquire) != 0 {
            return image.iter().zip(&self.words).all(|(word, noted)| noted.load(Ordering::Relaxed) == *word);
        }
        for (word, to) in image.iter().zip(&self.words) {
            to.store(*word, Ordering::Relaxed);
        }
        // Release: rule 2.
        self.is_noted.store(1, Ordering::Release);
        true
    }

    /// Whether nobody else has mounted the image since the server before, by its superblock.
    pub fn is_as_left(&self, sb: &Superblock) -> bool {
        // Acquire: pairs with the Release below.
        let (own, epoch) = (self.own.load(Ordering::Acquire), sb.epoch.get());
        let is_one_of = own == 0 || epoch == own || epoch == self.found.load(Ordering::Relaxed);
        is_one_of && (own == 0 || sb.sequence.get() <= self.writes.load(Ordering::Relaxed))
    }

    /// Before a server writes the superblock of its mount: as that was found, and the mount's epoch.
    pub fn mounts(&self, found: &Superblock, own: u64) {
        // Killed in between, its successor finds what it has found: that fits each of the steps.
        self.found.store(found.epoch.get(), Ordering::Relaxed);
        self.writes.store(found.sequence.get().saturating_add(WRITES), Ordering::Relaxed);
        // Release: rule 2.
        self.own.store(own, Ordering::Release);
    }

    /// Its ring has the epoch: nobody else comes to have that.
    pub fn has_mounted(&self) {
        self.writes.store(u64::MAX, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::Takeover;
    use super::*;
    use zerocopy::FromZeros;

    fn at(epoch: u64, sequence: u64) -> Superblock {
        let mut sb = Superblock::new_zeroed();
        sb.epoch.set(epoch);
        sb.sequence.set(sequence);
        sb
    }

    #[test]
    fn a_server_that_was_killed_while_it_mounted_is_told_from_another_mount() {
        let memory = Takeover::create(1).expect("memory");
        let image = memory.image();
        assert!(image.is_as_left(&at(4, 10)), "nobody has come so far");
        image.mounts(&at(4, 10), 5);
        for (epoch, sequence) in [(4, 10), (5, 11), (5, 12)] {
            assert!(image.is_as_left(&at(epoch, sequence)), "{epoch}, {sequence}");
        }
        // Whose ring had the epoch before, and who had the same next one.
        for (epoch, sequence) in [(5, 13), (5, 14), (5, 15), (6, 12)] {
            assert!(!image.is_as_left(&at(epoch, sequence)), "{epoch}, {sequence}");
        }
        image.has_mounted();
        assert!(image.is_as_left(&at(5, 100)) && !image.is_as_left(&at(6, 15)));
    }
}
