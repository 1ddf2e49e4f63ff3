//! The groups of an image, of which there may become more while others look blocks up in them.
//!
//! Groups are only ever added at the end, and never move: those of the mount lie in one slice, later ones in
//! chunks, each twice as long as the one before. A reader takes no lock; one thread at a time adds.

use super::group::Group;
use crate::sync::OnceLock;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Chunks: more than an image of 2^64 bytes could fill.
const CHUNKS: usize = 48;
/// Groups of the first chunk.
const FIRST_CHUNK: usize = 64;

/// A list of groups that grows.
#[derive(Debug)]
pub(super) struct Groups {
    first: Box<[Group]>,
    chunks: [OnceLock<Box<[OnceLock<Group>]>>; CHUNKS],
    len: AtomicUsize,
}

/// Chunk and place in it of the group that is `index` behind the first slice.
fn place(index: usize) -> (usize, usize) {
    let chunk = (index / FIRST_CHUNK + 1).ilog2() as usize;
    (chunk, index - FIRST_CHUNK * ((1 << chunk) - 1))
}

impl Groups {
    /// The groups that are there at the mount.
    pub fn new(first: Vec<Group>) -> Groups {
        Groups {
            len: AtomicUsize::new(first.len()),
            first: first.into(),
            chunks: [const { OnceLock::new() }; CHUNKS],
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        // Acquire: pairs with the Release of `push`.
        self.len.load(Ordering::Acquire)
    }

    /// The group with this number.
    pub fn get(&self, index: usize) -> Option<&Group> {
        match index.checked_sub(self.first.len()) {
            None => self.first.get(index),
            Some(_) if index >= self.len() => None,
            Some(later) => {
                let (chunk, at) = place(later);
                self.chunks.get(chunk)?.get()?.get(at)?.get()
            }
        }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Group> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Adds one at the end. One thread at a time.
    pub fn push(&self, group: Group) {
        let len = self.len();
        let (chunk, at) = place(len - self.first.len());
        let made = || (0..FIRST_CHUNK << chunk).map(|_| OnceLock::new()).collect();
        if let Some(slots) = self.chunks.get(chunk)
            && let Some(slot) = slots.get_or_init(made).get(at)
            && slot.set(group).is_ok()
        {
            // Release: a thread that sees the number finds the group.
            self.len.store(len + 1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::bits::Bits;

    #[test]
    fn what_is_added_is_found_under_its_number_and_nothing_else_is() {
        let group = |index: u64| Group::new(index, Bits::from_block(&[0; 4096], 8), 8);
        for initial in [0, 1, 5] {
            let groups = Groups::new((0..initial).map(group).collect());
            for index in initial..initial + 10 * FIRST_CHUNK as u64 {
                assert!(groups.get(index as usize).is_none());
                groups.push(group(index));
                assert_eq!(groups.get(index as usize).map(|group| group.start), Some(index));
            }
            let numbers: Vec<u64> = groups.iter().map(|group| group.start).collect();
            assert_eq!(numbers, (0..initial + 10 * FIRST_CHUNK as u64).collect::<Vec<_>>());
        }
    }
}
