//! Orphans and intents: what was begun in one record and must be finished by later ones, crash or not.
//!
//! An entry is added, changed and removed on the very handle of the operation that it belongs to: dropping
//! the last name adds an orphan in the record that drops it, a long truncate adds an intent in the record
//! that sets the size, each of its steps moves `progress`. After a crash, recovery reads all entries and
//! finishes them. Each lane fills tables of its own, made when they are needed; they are kept when empty.
//!
//! What this leaves to others: what an entry means, and finishing it.
//!
//! # Invariants
//! An entry belongs to one operation at a time: whoever changes it holds the inode's lock.

use crate::alloc::{Alloc, Class};
use crate::format::{
    BLOCK_HEADER_SIZE, BlockKind, ORPHAN_ENTRY_SIZE, ORPHAN_TABLES, ORPHANS_PER_BLOCK, OrphanEntry, U64,
};
use crate::lane;
use crate::store::{Handle, PageRef, Store};
use crate::sync::{Arc, CachePadded, Mutex};
use crate::{Error, Result};
use zerocopy::FromZeros;

#[cfg(test)]
mod tests;

/// Where an entry lies.
#[derive(Debug, Clone)]
pub(crate) struct OrphanId {
    table: Arc<Table>,
    index: u8,
}

/// One table block.
#[derive(Debug)]
struct Table {
    block: u64,
    /// Entries in use, or picked by operations under way.
    taken: Mutex<u128>,
}

impl Table {
    fn take(&self) -> Option<u8> {
        let mut taken = self.taken.lock();
        let index = taken.trailing_ones();
        ((index as usize) < ORPHANS_PER_BLOCK).then(|| {
            *taken |= 1 << index;
            index as u8
        })
    }

    fn give(&self, index: u8) {
        *self.taken.lock() &= !(1 << index);
    }
}

/// The tables of one image; cheap to clone.
#[derive(Clone)]
pub(crate) struct Orphans {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<Store>,
    alloc: Alloc,
    lanes: Box<[CachePadded<Mutex<Vec<Arc<Table>>>>]>,
    /// Places in the root without a table, the first at the end.
    free_places: Mutex<Vec<usize>>,
}

impl std::fmt::Debug for Orphans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Orphans").finish_non_exhaustive()
    }
}

fn pointer_at(place: usize) -> usize {
    BLOCK_HEADER_SIZE + place * 8
}

fn entry_at(index: u8) -> usize {
    BLOCK_HEADER_SIZE + usize::from(index) * ORPHAN_ENTRY_SIZE
}

fn is_free(page: &PageRef, index: u8) -> bool {
    page.read_as::<OrphanEntry>(entry_at(index)).nid.get() == 0
}

impl Orphans {
    /// Reads the tables.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the root or a table does not verify.
    pub(crate) fn load(store: &Arc<Store>, alloc: &Alloc) -> Result<Orphans> {
        let root = store.get(store.superblock().orphan_root.get(), BlockKind::OrphanRoot)?;
        let lanes: Box<[_]> = (0..lane::count()).map(|_| CachePadded::new(Mutex::new(Vec::new()))).collect();
        let mut free_places = Vec::new();
        for place in (0..ORPHAN_TABLES).rev() {
            let block = root.read_as::<U64>(pointer_at(place)).get();
            if block == 0 {
                free_places.push(place);
                continue;
            }
            let page = if alloc.holds(block) { Some(store.get(block, BlockKind::Orphans)?) } else { None };
            let Some(page) = page.filter(|page| page.header().owner.get() == place as u64) else {
                return Err(Error::Corrupt {
                    what: "orphan root",
                    place: format!("entry {place}"),
                    detail: format!("block {block} is not a table of orphans that belongs there"),
                });
            };
            let in_use = (0..ORPHANS_PER_BLOCK as u8).filter(|index| !is_free(&page, *index));
            let taken = in_use.fold(0u128, |taken, index| taken | 1 << index);
            lanes[place % lanes.len()].lock().push(Arc::new(Table { block, taken: Mutex::new(taken) }));
        }
        Ok(Orphans::over(store, alloc, lanes, free_places))
    }

    /// None at all, and no room for any.
    pub(crate) fn none(store: &Arc<Store>, alloc: &Alloc) -> Orphans {
        let lanes = (0..lane::count()).map(|_| CachePadded::new(Mutex::new(Vec::new()))).collect();
        Orphans::over(store, alloc, lanes, Vec::new())
    }

    fn over(
        store: &Arc<Store>,
        alloc: &Alloc,
        lanes: Box<[CachePadded<Mutex<Vec<Arc<Table>>>>]>,
        free_places: Vec<usize>,
    ) -> Orphans {
        let shared = Shared {
            store: Arc::clone(store),
            alloc: alloc.clone(),
            lanes,
            free_places: Mutex::new(free_places),
        };
        Orphans { shared: Arc::new(shared) }
    }

    /// Every entry: what recovery is to finish. To be called before anything is added.
    pub(crate) fn entries(&self) -> Result<Vec<(OrphanId, OrphanEntry)>> {
        let mut found = Vec::new();
        for table in self.shared.lanes.iter().flat_map(|lane| lane.lock().clone()) {
            let page = self.shared.store.get(table.block, BlockKind::Orphans)?;
            for index in 0..ORPHANS_PER_BLOCK as u8 {
                let entry = page.read_as::<OrphanEntry>(entry_at(index));
                if entry.nid.get() != 0 {
                    found.push((OrphanId { table: Arc::clone(&table), index }, entry));
                }
            }
        }
        Ok(found)
    }

    /// Adds an entry with this operation's record; its place, to be kept with the inode.
    ///
    /// # Errors
    /// ENOSPC if there is no room for another table: at most 508 of them with 101 entries each.
    pub(crate) fn add(&self, h: &mut Handle<'_>, entry: OrphanEntry) -> Result<OrphanId> {
        let lane = lane::current();
        let lanes = &self.shared.lanes;
        let mine = lanes[lane].lock().iter().find_map(pick);
        let elsewhere = || lanes.iter().find_map(|tables| tables.lock().iter().find_map(pick));
        let full = || self.shared.free_places.lock().is_empty();
        let id = match mine {
            Some(id) => id,
            None => match full().then(elsewhere).flatten() {
                Some(id) => id,
                None => match self.add_to_new_table(h, lane, entry) {
                    // Other lanes' tables may have room all the same.
                    Err(Error::Errno(libc::ENOSPC)) => elsewhere().ok_or(Error::Errno(libc::ENOSPC))?,
                    made => return made,
                },
            },
        };
        let aborted = id.clone();
        h.on_abort(move || aborted.table.give(aborted.index));
        self.update(h, &id, entry)?;
        Ok(id)
    }

    fn add_to_new_table(&self, h: &mut Handle<'_>, lane: usize, entry: OrphanEntry) -> Result<OrphanId> {
        let Some(place) = self.shared.free_places.lock().pop() else {
            return Err(Error::Errno(libc::ENOSPC));
        };
        let give_back = move |shared: &Shared| shared.free_places.lock().push(place);
        // Whoever asks may go on without a table of its own.
        let made = self.shared.alloc.allocate(h, 1, None, Class::MakingRoom, None);
        let block = made.inspect_err(|_| give_back(&self.shared))?.start;
        let shared = Arc::clone(&self.shared);
        h.on_abort(move || give_back(&shared));
        let page = h.init(block, BlockKind::Orphans, place as u64, 0)?;
        *h.edit_as(&page, entry_at(0)) = entry;
        let root =
            self.shared.store.get(self.shared.store.superblock().orphan_root.get(), BlockKind::OrphanRoot)?;
        *h.edit_as(&root, pointer_at(place)) = U64::new(block);
        let table = Arc::new(Table { block, taken: Mutex::new(1) });
        let (shared, made) = (Arc::clone(&self.shared), Arc::clone(&table));
        h.on_commit(move |_| shared.lanes[lane].lock().push(made));
        Ok(OrphanId { table, index: 0 })
    }

    /// Replaces an entry with this operation's record.
    pub(crate) fn update(&self, h: &mut Handle<'_>, id: &OrphanId, entry: OrphanEntry) -> Result<()> {
        let page = h.get(id.table.block, BlockKind::Orphans)?;
        *h.edit_as(&page, entry_at(id.index)) = entry;
        Ok(())
    }

    /// Removes an entry with this operation's record: what it stood for is finished.
    pub(crate) fn remove(&self, h: &mut Handle<'_>, id: OrphanId) -> Result<()> {
        self.update(h, &id, OrphanEntry::new_zeroed())?;
        h.on_commit(move |_| id.table.give(id.index));
        Ok(())
    }
}

fn pick(table: &Arc<Table>) -> Option<OrphanId> {
    table.take().map(|index| OrphanId { table: Arc::clone(table), index })
}
