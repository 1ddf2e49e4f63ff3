//! Pages whose copy in place is newer than what the journal holds of them.
//!
//! A page that an fsync has absorbed may be written again without another fsync, and go home so: in place lies what a
//! write has answered, and the journal still holds what was synced before. After a loss of power that is what counts, and
//! redo puts it in place. A killed server's successor must not: nobody has lost anything, and a write that was answered
//! would be undone. So who writes such a page home says so here, before its frame counts as clean; from the beginning of
//! its write to that moment the frame counts as dirty, and is taken over.
//!
//! An entry speaks of records below a position. When the head of the ring has passed that, redo knows of none of them, and
//! the entry is free.

#![allow(unsafe_code, reason = "a leaf module: entries of a mapping that lives as long as this")]

use super::Takeover;
use crate::format::{Nid, Position};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// One page. Zero bytes are a free entry.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct HomeSlot {
    /// The file's number; 0: free.
    nid: AtomicU64,
    page: AtomicU64,
    epoch: AtomicU64,
    upto: AtomicU64,
    generation: AtomicU32,
    /// Of the first entry: from this number on none was ever used. Pages beyond are not touched: they take no memory.
    used: AtomicU32,
}

/// A page that redo is to leave as it lies in place, but for later records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NewerHome {
    /// What records that end here, or before, hold of it is older.
    pub upto: Position,
    /// The file.
    pub nid: Nid,
    /// The generation of its number.
    pub generation: u32,
    /// The page's number.
    pub page: u64,
}

/// The entries.
#[derive(Debug)]
pub struct Homes {
    /// In the memory of `Takeover`, which this value is a part of and does not outlive.
    slots: *const [HomeSlot],
    place: Mutex<Place>,
}

/// Where a free entry is looked for.
#[derive(Debug, Default)]
struct Place {
    next: usize,
    /// All entries were in use when the head was here.
    full_at: Option<(u64, Position)>,
}

// SAFETY: the entries are atomic words of a mapping that lives as long as this value; all else is behind a lock. Guarded
// by the test of this module.
unsafe impl Send for Homes {}
// SAFETY: as above.
unsafe impl Sync for Homes {}

impl Homes {
    pub(super) fn new(slots: &[HomeSlot]) -> Homes {
        Homes { slots, place: Mutex::default() }
    }

    fn slots(&self) -> &[HomeSlot] {
        // SAFETY: the mapping lives as long as this value, which is a part of its owner. Guarded by this module's test.
        unsafe { &*self.slots }
    }

    /// The page is in place, newer than what records of this epoch up to `home.upto` hold; the ring's head is at `head`.
    /// False: there is no room, and the page is to stay dirty.
    pub fn note(&self, home: NewerHome, epoch: u64, head: Position) -> bool {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if place.full_at == Some((epoch, head)) {
            return false;
        }
        let slots = self.slots();
        let is_free = |slot: &HomeSlot| {
            // Relaxed: one process has the memory, and the mutex orders its threads.
            slot.nid.load(Ordering::Relaxed) == 0
                || slot.epoch.load(Ordering::Relaxed) != epoch
                || slot.upto.load(Ordering::Relaxed) <= head
        };
        let in_turn = (0..slots.len()).map(|nth| (place.next + nth) % slots.len());
        let Some(at) = in_turn.into_iter().find(|at| is_free(&slots[*at])) else {
            place.full_at = Some((epoch, head));
            return false;
        };
        (place.next, place.full_at) = (at + 1, None);
        // Relaxed: it is there before the entry counts, which is Release.
        slots[0].used.fetch_max(at as u32 + 1, Ordering::Relaxed);
        let slot = &slots[at];
        // Release, here and at the end: rule 2 of the module above.
        slot.nid.store(0, Ordering::Release);
        slot.page.store(home.page, Ordering::Relaxed);
        slot.generation.store(home.generation, Ordering::Relaxed);
        slot.epoch.store(epoch, Ordering::Relaxed);
        slot.upto.store(home.upto, Ordering::Relaxed);
        slot.nid.store(home.nid, Ordering::Release);
        true
    }

    /// What a predecessor has left about records of this epoch, by their position.
    pub fn left(&self, epoch: u64) -> Vec<NewerHome> {
        let look = |slot: &HomeSlot| {
            // Acquire: pairs with the Release of `note`, in another process.
            let nid = slot.nid.load(Ordering::Acquire);
            (nid != 0 && slot.epoch.load(Ordering::Relaxed) == epoch).then(|| NewerHome {
                upto: slot.upto.load(Ordering::Relaxed),
                nid,
                generation: slot.generation.load(Ordering::Relaxed),
                page: slot.page.load(Ordering::Relaxed),
            })
        };
        let used = self.slots().first().map_or(0, |first| first.used.load(Ordering::Relaxed) as usize);
        let mut left: Vec<_> = self.slots().iter().take(used).filter_map(look).collect();
        left.sort_unstable();
        left
    }
}

/// What a predecessor has left, if there was one, and if what lies in place is there.
pub fn homes_left(takeover: Option<&Takeover>, epoch: u64) -> Vec<NewerHome> {
    let inherited = takeover.filter(|memory| memory.incarnation() > 0 && !memory.is_place_in_doubt());
    inherited.map_or_else(Vec::new, |memory| memory.homes().left(epoch))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::layout::HOMES;
    use super::super::testing::killed;
    use super::*;

    fn home(page: u64, upto: Position) -> NewerHome {
        NewerHome { upto, nid: 5, generation: 2, page }
    }

    #[test]
    fn entries_are_there_until_the_head_has_passed_their_records() {
        let memory = Takeover::create(1).expect("memory");
        let homes = memory.homes();
        let most = u64::from(HOMES);
        assert!((0..most).all(|page| homes.note(home(page, 100 + page), 3, 0)));
        assert!(!homes.note(home(7, 900_000), 3, 0) && !homes.note(home(7, 900_000), 3, 99));
        assert!(homes.note(home(most, 900_000), 3, 101));
        assert!(homes.note(home(most + 1, 900_000), 3, 101));
        assert!(!homes.note(home(7, 900_000), 3, 101));
        assert!(homes_left(Some(&memory), 3).is_empty(), "nobody came before");
        let next = killed(&memory);
        let left = homes_left(Some(&next), 3);
        assert_eq!(left.len() as u64, most);
        assert_eq!((left[0], left[1]), (home(2, 102), home(3, 103)));
        assert_eq!(left.last(), Some(&home(most + 1, 900_000)));
        assert!(homes_left(Some(&next), 4).is_empty() && homes_left(None, 3).is_empty());
        // What another epoch has left is in nobody's way.
        assert!(next.homes().note(home(1, 5), 4, 0));
        assert_eq!(homes_left(Some(&next), 4), [home(1, 5)]);
    }
}
