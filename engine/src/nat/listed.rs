//! Free ids as F2FS has them: one list under one lock, which lanes share, and a semaphore for the whole table.
//!
//! What it takes from F2FS (`fs/f2fs/node.c`, Linux 4.12 and later), by the names there:
//! - `nid_list_lock`: one lock over the list of free ids, first in, first out, and the tree that says what is on it. Who
//!   makes an inode takes the first; an id comes back when the record that freed it is durable.
//! - `nat_tree_lock`: a semaphore that is shared to look an entry up, and taken alone to change one.
//! - with [`IdsBaseline::Scan`] `build_lock`: one thread at a time looks for free ids when fewer are listed than an
//!   entry block has: first among all blocks that were read before, by their bits, passing full ones by
//!   (`scan_free_nid_bits`), then in eight blocks more, of which nothing is known that would spare a read. Who finds the
//!   list empty waits for that. Once so many entries are cached as make F2FS balance itself, each making and removing
//!   of a file sees to it first.
//!
//! With [`IdsBaseline::Global`] nothing is scanned: the summaries of `ids`, and the hints in the index, say what is free.
//! A new table block brings its ids when its record is made; F2FS, whose table has its full size from the start, needs
//! none. In both the entries are flushed as the engine does it, without the semaphore, which F2FS holds meanwhile.

use super::ids::IdBlock;
use super::{Shared, corrupt};
use crate::Result;
use crate::baseline::IdsBaseline;
use crate::format::{BlockKind, NAT_PER_BLOCK};
use crate::hasher::NumberMap;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::VecDeque;

/// Table blocks that a scan reads at a time: `FREE_NID_PAGES`.
const READ_AT_ONCE: u64 = 8;
/// Free ids that a scan lists at the most: `MAX_FREE_NIDS`.
const MOST_LISTED: usize = (READ_AT_ONCE * NAT_PER_BLOCK) as usize;
/// Cached entries above which operations see to the list first: `DEF_NAT_CACHE_THRESHOLD`.
const MANY_CACHED: u64 = 100_000;

/// The free ids that are listed.
#[derive(Default)]
struct FreeList {
    ids: VecDeque<(Arc<IdBlock>, u32)>,
    /// Which those are.
    members: NumberMap<()>,
}

impl FreeList {
    fn push(&mut self, block: &Arc<IdBlock>, id: u32) {
        if self.members.insert(block.nid(id), ()).is_none() {
            self.ids.push_back((Arc::clone(block), id));
        }
    }

    fn pop(&mut self) -> Option<(Arc<IdBlock>, u32)> {
        let (block, id) = self.ids.pop_front()?;
        self.members.remove(&block.nid(id));
        Some((block, id))
    }
}

/// The list of one image, and its locks.
pub(super) struct Listed {
    scans: bool,
    free: Mutex<FreeList>,
    /// The blocks that a scan goes through, in the order in which they were read.
    building: Mutex<Vec<Arc<IdBlock>>>,
    /// Those that have been made since the last scan.
    made: Mutex<Vec<Arc<IdBlock>>>,
    table: RwLock<()>,
    /// Entries that were looked up or made.
    cached: AtomicU64,
}

impl Listed {
    /// What was chosen; `None` for the engine's own way.
    pub fn chosen(by: IdsBaseline) -> Option<Listed> {
        (by != IdsBaseline::Ours).then(|| Listed {
            scans: by == IdsBaseline::Scan,
            free: Mutex::default(),
            building: Mutex::default(),
            made: Mutex::default(),
            table: RwLock::new(()),
            cached: AtomicU64::new(0),
        })
    }

    /// To look an entry up.
    pub fn reading(&self) -> RwLockReadGuard<'_, ()> {
        self.note_cached();
        self.table.read()
    }

    /// To change an entry.
    pub fn writing(&self) -> RwLockWriteGuard<'_, ()> {
        self.table.write()
    }

    /// An entry was looked up or made.
    pub fn note_cached(&self) {
        if self.scans {
            // Relaxed: a hint.
            self.cached.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The first free id.
    pub fn take(&self) -> Option<(Arc<IdBlock>, u32)> {
        loop {
            let (block, id) = self.free.lock().pop()?;
            if block.mark(id) {
                return Some((block, id));
            }
        }
    }

    /// An id of a block has come back.
    pub fn give(&self, block: &Arc<IdBlock>, id: u32) {
        self.free.lock().push(block, id);
    }

    /// Lists the free ids of a block.
    pub fn offer(&self, block: &Arc<IdBlock>) -> usize {
        let mut free = self.free.lock();
        block.each_free(|id| free.push(block, id));
        free.ids.len()
    }

    /// A block was made by an operation that is done.
    pub fn add_new(&self, block: &Arc<IdBlock>) {
        if self.scans {
            self.made.lock().push(Arc::clone(block));
        }
        self.offer(block);
    }

    fn has_few(&self) -> bool {
        self.free.lock().ids.len() < NAT_PER_BLOCK as usize
    }

    /// Before a file is made or removed: with many entries cached, the list is seen to. A failure is met by who needs an
    /// id.
    pub fn balance(&self, shared: &Shared) {
        // Relaxed: a hint.
        if self.scans && self.cached.load(Ordering::Relaxed) >= MANY_CACHED {
            let _ = self.build(shared);
        }
    }

    /// Looks for free ids until one is listed; false if there is none, or nothing is ever scanned.
    pub fn search(&self, shared: &Shared) -> Result<Option<bool>> {
        if !self.scans {
            return Ok(None);
        }
        loop {
            let may_go_on = self.build(shared)?;
            let has_some = !self.free.lock().ids.is_empty();
            if has_some || !may_go_on {
                return Ok(Some(has_some));
            }
        }
    }

    /// One scan; false once all of the table is known.
    fn build(&self, shared: &Shared) -> Result<bool> {
        let mut blocks = self.building.lock();
        if !self.has_few() {
            return Ok(true);
        }
        blocks.append(&mut self.made.lock());
        for block in blocks.iter().filter(|block| !block.is_full()) {
            if self.offer(block) >= MOST_LISTED {
                break;
            }
        }
        if !self.has_few() {
            return Ok(true);
        }
        let Some(indexes) = shared.ids.next_unknown(READ_AT_ONCE) else { return Ok(false) };
        let mut there = Vec::new();
        for index in indexes {
            let block = shared.pointer(index)?.2.block();
            there.extend((block != 0).then_some((index, block)));
        }
        let pages: Vec<_> = there.iter().map(|(_, block)| (*block, BlockKind::Nat)).collect();
        // A failure is met again below, with the one block that it is about.
        let _ = shared.store.get_many(&pages);
        for (index, _) in there {
            let block = shared.id_block(index)?;
            let block = block.ok_or_else(|| corrupt(index * NAT_PER_BLOCK, "its NAT block has gone"))?;
            self.offer(&block);
            blocks.push(block);
        }
        Ok(true)
    }
}
