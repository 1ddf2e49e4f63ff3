//! Free ids as F2FS has them: one list under one lock, which lanes share, and a semaphore for the whole table.
//!
//! What it takes from F2FS (`fs/f2fs/node.c`, Linux 4.15 and later), by the names there:
//! - `nid_list_lock`: one lock over the list of free ids, first in, first out, the tree that says what is on it, and
//!   `free_nid_count`, how many ids of each block are free. Who makes an inode takes the first; an id comes back when the
//!   record that freed it is durable, however many are listed.
//! - `nat_tree_lock`: a semaphore that is shared to look an entry up, or to scan, and taken alone to change one.
//! - with [`IdsBaseline::Scan`] `build_lock`: one thread at a time looks for free ids when fewer are listed than an
//!   entry block has: first along the counts of all blocks of the table (`scan_free_nid_bits`), then in eight blocks more,
//!   of which nothing is known that would spare a read. Who needs an id meanwhile, or finds the list empty, waits for that.
//! - who makes or removes a file sees to the list first (`f2fs_balance_fs`) while many entries are cached
//!   (`DEF_NAT_CACHE_THRESHOLD`), a block's worth of which are let go by then (`try_to_free_nats`). Those that were
//!   changed since the last checkpoint cannot be let go: so it is with each operation from so many changes on, until the
//!   checkpoint, which comes when a tenth of the table has changed (`DEF_DIRTY_NAT_RATIO_THRESHOLD`).
//!
//! Why it scans at all: while the table has free ids, a scan lists enough for thousands of operations. When fewer are left
//! than a block has, each scan goes along the whole table, and the next operation finds as few. F2FS gives its table a
//! size when the image is made; here it grows, by a block when nothing is free, so that it is nearly full at all times
//! except after many files were removed.
//!
//! Where it has it easier than F2FS: each commit that makes records durable counts as a checkpoint, and costs the table
//! nothing; a scan looks at one word of two bytes for each block and asks the cache of entries nothing; an id that is
//! listed needs no memory of its own; entries are flushed as the engine does it, without the semaphore.
//!
//! With [`IdsBaseline::Global`] nothing is scanned: the summaries of `ids`, and the hints in the index, say what is free.
//! A new table block brings its ids when its record is made; F2FS, whose table has its full size from the start, needs
//! none.

use super::ids::IdBlock;
use super::work::Work;
use super::{Shared, corrupt};
use crate::Result;
use crate::baseline::IdsBaseline;
use crate::format::{BlockKind, NAT_PER_BLOCK, Nid};
use crate::hasher::NumberMap;
use crate::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::VecDeque;

/// Table blocks that a scan reads at a time: `FREE_NID_PAGES`.
const READ_AT_ONCE: u64 = 8;
/// Free ids that a scan lists at the most: `MAX_FREE_NIDS`.
const MOST_LISTED: usize = (READ_AT_ONCE * NAT_PER_BLOCK) as usize;
/// Cached entries from which on operations see to the list first: `DEF_NAT_CACHE_THRESHOLD`. Fewer for the tests, whose
/// tables are small.
const MANY_CACHED: u64 = if cfg!(test) { 1000 } else { 100_000 };
/// The part of the table whose change brings a checkpoint: `DEF_DIRTY_NAT_RATIO_THRESHOLD`.
const CHANGED_PART: u64 = 10;
/// The count of a block that no scan has read: its bit in `nat_block_bitmap` is not set.
const UNREAD: u16 = u16::MAX;

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
    /// How many ids of each block are free. Changed with `free` locked; a scan reads them without.
    // Relaxed: what a count promises is looked for in the block's bits, with `free` locked.
    counts: Box<[AtomicU16]>,
    building: Mutex<()>,
    /// Somebody scans. Relaxed: a hint for who would rather wait.
    is_building: AtomicBool,
    /// Entries that were changed since the last checkpoint.
    table: RwLock<NumberMap<()>>,
    /// How many those are, and how many others are cached. Relaxed: hints.
    changed: AtomicU64,
    unchanged: AtomicU64,
}

impl Listed {
    /// What was chosen, for a table of so many blocks at the most; `None` for the engine's own way.
    pub fn chosen(by: IdsBaseline, capacity: u64) -> Option<Listed> {
        let scans = by == IdsBaseline::Scan;
        let counted = if scans { capacity } else { 0 };
        (by != IdsBaseline::Ours).then(|| Listed {
            scans,
            free: Mutex::default(),
            counts: (0..counted).map(|_| AtomicU16::new(UNREAD)).collect(),
            building: Mutex::default(),
            is_building: AtomicBool::new(false),
            table: RwLock::default(),
            changed: AtomicU64::new(0),
            unchanged: AtomicU64::new(0),
        })
    }

    /// To look an entry up, which is cached from then on.
    pub fn reading(&self) -> RwLockReadGuard<'_, NumberMap<()>> {
        if self.scans {
            self.unchanged.fetch_add(1, Ordering::Relaxed);
        }
        self.table.read()
    }

    /// To change an entry; what it gives is held meanwhile.
    pub fn writing(&self, nid: Nid) -> RwLockWriteGuard<'_, NumberMap<()>> {
        let mut changed = self.table.write();
        if self.scans && changed.insert(nid, ()).is_none() {
            self.changed.fetch_add(1, Ordering::Relaxed);
        }
        changed
    }

    /// Records have become durable: nothing counts as changed any more.
    pub fn checkpointed(&self) {
        if self.scans {
            let mut changed = self.table.write();
            self.unchanged.fetch_add(changed.len() as u64, Ordering::Relaxed);
            self.changed.store(0, Ordering::Relaxed);
            changed.clear();
        }
    }

    /// Adds to the count of a block that a scan knows.
    fn count(&self, block: &IdBlock, change: impl FnOnce(u16) -> u16) {
        if let Some(count) = self.counts.get(block.index as usize) {
            let old = count.load(Ordering::Relaxed);
            if old != UNREAD {
                count.store(change(old), Ordering::Relaxed);
            }
        }
    }

    /// The first free id. While somebody scans, what he has listed so far may be stale: it is waited for.
    pub fn take(&self, work: &Work) -> Option<(Arc<IdBlock>, u32)> {
        let _built = self.is_building.load(Ordering::Relaxed).then(|| self.lock_building(work));
        let mut free = self.free.lock();
        loop {
            let (block, id) = free.pop()?;
            if block.mark(id) {
                self.count(&block, |n| n.saturating_sub(1));
                return Some((block, id));
            }
        }
    }

    /// An id of a block has come back.
    pub fn give(&self, block: &Arc<IdBlock>, id: u32) {
        let mut free = self.free.lock();
        block.clear(id);
        self.count(block, |n| n + 1);
        free.push(block, id);
    }

    /// Lists the free ids of a block, which is known from then on; how many are listed.
    pub fn offer(&self, block: &Arc<IdBlock>) -> usize {
        let mut free = self.free.lock();
        let mut found = 0;
        block.each_free(|id| {
            found += 1;
            free.push(block, id);
        });
        if let Some(count) = self.counts.get(block.index as usize) {
            count.store(found, Ordering::Relaxed);
        }
        free.ids.len()
    }

    fn has_few(&self) -> bool {
        self.free.lock().ids.len() < NAT_PER_BLOCK as usize
    }

    /// Before a file is made or removed: with many entries cached, some are let go and the list is seen to. A failure is
    /// met by who needs an id.
    pub fn balance(&self, shared: &Shared) {
        if !self.scans {
            return;
        }
        let (changed, unchanged) =
            (self.changed.load(Ordering::Relaxed), self.unchanged.load(Ordering::Relaxed));
        if changed + unchanged < MANY_CACHED {
            return;
        }
        // Two threads may let go of more than there are: then none are left.
        self.unchanged.store(unchanged.saturating_sub(NAT_PER_BLOCK), Ordering::Relaxed);
        let _ = self.build(shared);
        if changed >= shared.ids.made() * NAT_PER_BLOCK / CHANGED_PART {
            self.checkpointed();
        }
    }

    /// Looks for free ids until one is listed; false if there is none, `None` if nothing is ever scanned.
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

    fn lock_building(&self, work: &Work) -> MutexGuard<'_, ()> {
        self.building.try_lock().unwrap_or_else(|| {
            work.add(|done| &done.waits, 1);
            self.building.lock()
        })
    }

    /// One scan; false once all of the table is known.
    fn build(&self, shared: &Shared) -> Result<bool> {
        let _building = self.lock_building(&shared.ids.work);
        if !self.has_few() {
            return Ok(true);
        }
        self.is_building.store(true, Ordering::Relaxed);
        let outcome = self.scan(shared);
        self.is_building.store(false, Ordering::Relaxed);
        outcome
    }

    fn scan(&self, shared: &Shared) -> Result<bool> {
        let work = &shared.ids.work;
        work.add(|done| &done.scans, 1);
        {
            let _table = self.table.read();
            let made = usize::try_from(shared.ids.made()).unwrap_or(usize::MAX).min(self.counts.len());
            let mut passed = 0;
            for (index, count) in (0..).zip(&self.counts[..made]) {
                passed += 1;
                let free = count.load(Ordering::Relaxed);
                if free != 0
                    && free != UNREAD
                    && let Some(block) = shared.ids.find(index)
                    && self.offer(&block) >= MOST_LISTED
                {
                    break;
                }
            }
            work.add(|done| &done.passed, passed);
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
        work.add(|done| &done.read, there.len() as u64);
        let pages: Vec<_> = there.iter().map(|(_, block)| (*block, BlockKind::Nat)).collect();
        // A failure is met again below, with the one block that it is about.
        let _ = shared.store.get_many(&pages);
        for (index, _) in there {
            let block = shared.id_block(index)?;
            let block = block.ok_or_else(|| corrupt(index * NAT_PER_BLOCK, "its NAT block has gone"))?;
            self.offer(&block);
        }
        Ok(true)
    }
}
