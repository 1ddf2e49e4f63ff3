//! The nodes of a table: leaves of consecutive keys, and the directory that finds a shard's leaves by number.
//!
//! Readers look at both without a lock; changes are made with the shard's lock held, and each shows as one store.

#![allow(unsafe_code, reason = "a leaf module: nodes that readers reach without a lock")]

use super::own::Node;
use crate::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::ptr::{null_mut, without_provenance_mut};

/// Bits of a key that choose its place in a leaf. Models need few places.
pub(super) const BITS: u32 = if cfg!(loom) { 1 } else { 4 };
/// Keys of a leaf.
pub(super) const KEYS: usize = 1 << BITS;

/// The leaf of a key.
pub(super) fn number_of(key: u64) -> u64 {
    key >> BITS
}

/// Its place there.
pub(super) fn index_of(key: u64) -> usize {
    key as usize % KEYS
}

/// The places of consecutive keys. Its lines are its own: neighbours in memory may belong to other cores.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Leaf {
    number: u64,
    /// Bit by place: taken. Changed and read with the lock held.
    taken: AtomicU32,
    /// Where the shard has it. Changed and read with the lock held.
    seat: AtomicU32,
    places: [AtomicPtr<()>; KEYS],
}

/// What a place has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// The pointer of a [`super::own::Counted`].
    Entry(*mut ()),
    /// The same of an entry that is to leave: readers do not touch it.
    Leaving(*mut ()),
}

const LEAVING: usize = 1;

impl Leaf {
    /// An empty leaf for the keys of one number.
    pub fn new(number: u64, seat: usize) -> Leaf {
        Leaf {
            number,
            taken: AtomicU32::new(0),
            seat: AtomicU32::new(seat as u32),
            places: std::array::from_fn(|_| AtomicPtr::new(null_mut())),
        }
    }

    /// The number of its keys.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The key of a place.
    pub fn key(&self, place: usize) -> u64 {
        self.number << BITS | place as u64
    }

    /// What is at a place.
    pub fn look(&self, place: usize) -> Found {
        // Acquire: pairs with the Release of `show`: what the pointer leads to is seen as it was shown.
        let pointer = self.places[place].load(Ordering::Acquire);
        match (pointer.is_null(), pointer.addr() & LEAVING != 0) {
            (true, _) => Found::Nothing,
            (_, false) => Found::Entry(pointer),
            (_, true) => Found::Leaving(pointer.map_addr(|addr| addr & !LEAVING)),
        }
    }

    /// Changes a place, with the lock held.
    pub fn show(&self, place: usize, found: Found) {
        let pointer = match found {
            Found::Nothing => null_mut(),
            Found::Entry(pointer) => pointer,
            Found::Leaving(pointer) => pointer.map_addr(|addr| addr | LEAVING),
        };
        let bit = 1 << place;
        // Relaxed, here and in the three below: they are the lock's.
        let taken = self.taken.load(Ordering::Relaxed);
        let taken = if found == Found::Nothing { taken & !bit } else { taken | bit };
        self.taken.store(taken, Ordering::Relaxed);
        // Release: pairs with the Acquire of `look`.
        self.places[place].store(pointer, Ordering::Release);
    }

    /// The first place from this on that is taken, with the lock held.
    pub fn taken_from(&self, place: usize) -> Option<usize> {
        let rest = u64::from(self.taken.load(Ordering::Relaxed)) >> place;
        (rest != 0).then(|| place + rest.trailing_zeros() as usize)
    }

    /// Its place among the shard's leaves.
    pub fn seat(&self) -> usize {
        self.seat.load(Ordering::Relaxed) as usize
    }

    /// Gives it a place among the shard's leaves.
    pub fn sit(&self, seat: usize) {
        self.seat.store(seat as u32, Ordering::Relaxed);
    }
}

/// Leaves by number: open addressing with linear probing. Half of the places at least are empty; a leaf that went
/// leaves its place behind as *gone*, for what lies behind it must be found all the same.
#[derive(Debug)]
pub(super) struct Directory {
    places: Box<[AtomicPtr<Node<Leaf>>]>,
}

fn gone() -> *mut Node<Leaf> {
    without_provenance_mut(1)
}

impl Directory {
    /// Fewest places.
    pub const FEWEST: usize = if cfg!(loom) { 2 } else { 8 };

    /// Places for so many leaves, four times as many.
    pub fn with_room_for(leaves: usize) -> Directory {
        let places = (4 * leaves).next_power_of_two().max(Directory::FEWEST);
        Directory { places: (0..places).map(|_| AtomicPtr::new(null_mut())).collect() }
    }

    /// Number of places.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    fn way(&self, number: u64) -> impl Iterator<Item = &AtomicPtr<Node<Leaf>>> {
        let first = spread(number) as usize;
        (0..self.places.len()).map(move |step| &self.places[(first + step) & (self.places.len() - 1)])
    }

    /// The leaf of a number.
    ///
    /// # Safety
    /// No leaf that is or was in the directory is freed before the result is used for the last time, but those that
    /// were taken out before the caller entered as a reader or took the lock.
    pub unsafe fn find(&self, number: u64) -> Option<*mut Node<Leaf>> {
        for place in self.way(number) {
            // Acquire: pairs with the Release of `put`.
            let leaf = place.load(Ordering::Acquire);
            if leaf.is_null() {
                return None;
            }
            // SAFETY: the caller's.
            if leaf != gone() && unsafe { Node::at(leaf) }.number() == number {
                return Some(leaf);
            }
        }
        None
    }

    /// Puts a leaf there whose number has none, with the lock held; true if it took an empty place.
    pub fn put(&self, number: u64, leaf: *mut Node<Leaf>) -> bool {
        for place in self.way(number) {
            // Relaxed: the lock's holder alone changes it.
            let there = place.load(Ordering::Relaxed);
            if there.is_null() || there == gone() {
                // Release: pairs with the Acquire of `find`.
                place.store(leaf, Ordering::Release);
                return there.is_null();
            }
        }
        unreachable!("half of the places are empty")
    }

    /// Takes a leaf out, with the lock held.
    pub fn take(&self, number: u64, leaf: *mut Node<Leaf>) {
        // Relaxed on both: as in `put`; there is nothing to be seen behind it.
        if let Some(place) = self.way(number).find(|place| place.load(Ordering::Relaxed) == leaf) {
            place.store(gone(), Ordering::Relaxed);
        }
    }
}

/// Spreads numbers over all bits: Knuth's odd multiplier, folded, for neighbours shall go apart in the low bits too.
pub(super) fn spread(number: u64) -> u64 {
    let product = u128::from(number) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}
