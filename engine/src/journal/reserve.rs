//! The tail and the seal words: which operation has which slots, and which of them are done.

use super::ring::Geometry;
use crate::format::Position;
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The order of reservations, and the seals of their records.
pub(crate) struct Sequence {
    ring: Geometry,
    tail: CachePadded<AtomicU64>,
    /// Everything below is sealed: where the last walk ended. Behind at times, never ahead.
    sealed: CachePadded<AtomicU64>,
    words: Box<[AtomicU64]>,
}

impl Sequence {
    pub(crate) fn new(ring: &Geometry, start: Position) -> Sequence {
        Sequence {
            ring: *ring,
            tail: CachePadded::new(AtomicU64::new(start)),
            sealed: CachePadded::new(AtomicU64::new(start)),
            words: (0..ring.slots).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) fn tail(&self) -> Position {
        // Relaxed: an operation that returned before is ordered before this load by whatever told the caller
        // of it, and coherence does the rest.
        self.tail.load(Ordering::Relaxed)
    }

    /// Takes the next `count` slots. The caller has credits for them.
    pub(crate) fn reserve(&self, count: u16) -> Position {
        // AcqRel: pairs with itself. The credits for these very slots may have reached another thread first,
        // which reserved before; its Release passes on that the slots' readers are done.
        self.tail.fetch_add(u64::from(count), Ordering::AcqRel)
    }

    /// Takes the slots from the next one to a multiple of the ring's pad, one at the least.
    pub(crate) fn reserve_padded(&self) -> (Position, u16) {
        if self.ring.pad == 1 {
            return (self.reserve(1), 1);
        }
        // Relaxed: the exchange verifies it.
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            let end = (tail + 1).next_multiple_of(self.ring.pad);
            // AcqRel: as in `reserve`. Relaxed on failure: only a new guess.
            match self.tail.compare_exchange_weak(tail, end, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return (tail, (end - tail) as u16),
                Err(now) => tail = now,
            }
        }
    }

    /// Says that the record from `first` on is done.
    pub(crate) fn seal(&self, first: Position, count: u16) {
        // Release: pairs with the Acquire in `walk`: a thread that sees the seal sees the slots' bytes.
        self.words[self.ring.index(first)].store(self.ring.seal(first, count), Ordering::Release);
    }

    /// How far everything is sealed, looking no further than `upto`. `committed` is a position below which
    /// slots may be in use for the next lap already.
    pub(crate) fn walk(&self, committed: Position, upto: Position) -> Position {
        // Acquire: pairs with the Release below: passes on what the walker before has seen.
        let before = self.sealed.load(Ordering::Acquire);
        let mut at = before.max(committed);
        while at < upto {
            // Acquire: pairs with the Release in `seal`.
            let word = self.words[self.ring.index(at)].load(Ordering::Acquire);
            match self.ring.sealed(at, word) {
                Some(count) => at += count,
                None => break,
            }
        }
        if at > before {
            // Release: pairs with the Acquire above.
            self.sealed.fetch_max(at, Ordering::Release);
        }
        at
    }
}
