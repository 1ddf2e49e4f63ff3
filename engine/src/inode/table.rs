//! The inodes in memory, by nid; bounded.

use super::InodeObj;
use crate::error::Result;
use crate::format::Nid;
use crate::numbers::NumberMap;
use crate::swept::Swept;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, CachePadded, Mutex, RwLock};

const SHARDS: usize = 64;
/// Inodes that one insertion may look at in order to make room.
const SWEEP: usize = 16;
/// Inodes whose times are logged together.
const BATCH: usize = 64;

/// The table.
///
/// Invariants: a nid has one object at most, so whoever has the `Arc` has *the* inode. An object is evicted
/// only while the table alone refers to it, with the shard locked, so nobody can be about to use it. The
/// lookup counts of an evicted inode stay behind as *parked* counts and come back with it: the kernel may
/// remember millions of inodes that need not be in memory.
#[derive(Debug)]
pub struct InodeTable {
    shards: Box<[CachePadded<Shard>]>,
    shard_limit: usize,
    /// Inodes that could leave but for times that wait to be logged.
    waiting: Mutex<Vec<Arc<InodeObj>>>,
    /// There are [`BATCH`] of them.
    crowded: AtomicBool,
}

#[derive(Debug, Default)]
struct Shard {
    entries: RwLock<Entries>,
    /// Held while an inode is read from media, so that one object is made of it; and while one is freed.
    loading: Mutex<()>,
}

#[derive(Debug, Default)]
struct Entries {
    live: Swept<Arc<InodeObj>>,
    parked: NumberMap<u64>,
}

/// What became of forgotten lookup counts.
pub enum Forgotten {
    /// The inode is in memory.
    Live(Arc<InodeObj>),
    /// It is not; the counts are settled. Such an inode has a name.
    Parked,
    /// It must be loaded, with this many counts left: none, and it may have lost its names.
    Unknown,
}

impl InodeTable {
    /// A table that keeps about `limit` inodes beside those in use.
    pub fn new(limit: usize) -> InodeTable {
        InodeTable {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            shard_limit: (limit / SHARDS).max(4),
            waiting: Mutex::new(Vec::with_capacity(BATCH)),
            crowded: AtomicBool::new(false),
        }
    }

    fn shard(&self, nid: Nid) -> &Shard {
        // Fibonacci hashing: neighbouring nids come from one lane and would otherwise meet in few shards.
        let hash = nid.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &self.shards[hash as usize % SHARDS]
    }

    /// The inode, if it is in memory.
    pub fn get(&self, nid: Nid) -> Option<Arc<InodeObj>> {
        let entries = self.shard(nid).entries.read();
        let found = entries.live.get(nid)?;
        // Relaxed: a hint for the hand.
        if !found.referenced.load(Ordering::Relaxed) {
            found.referenced.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(found))
    }

    /// The inode, made by `load` if it is not in memory (`None`: there is none), with the lookup counts that
    /// the kernel holds on it.
    pub fn get_or_load(
        &self,
        nid: Nid,
        load: impl FnOnce() -> Result<Option<InodeObj>>,
    ) -> Result<Option<Arc<InodeObj>>> {
        if let Some(found) = self.get(nid) {
            return Ok(Some(found));
        }
        let shard = self.shard(nid);
        let _loading = shard.loading.lock();
        if let Some(found) = self.get(nid) {
            return Ok(Some(found));
        }
        let Some(made) = load()? else { return Ok(None) };
        let made = Arc::new(made);
        self.put(shard, Arc::clone(&made));
        Ok(Some(made))
    }

    /// Puts an inode there that is about to be created.
    pub fn insert(&self, inode: Arc<InodeObj>) {
        let shard = self.shard(inode.nid());
        let _loading = shard.loading.lock();
        self.put(shard, inode);
    }

    fn put(&self, shard: &Shard, inode: Arc<InodeObj>) {
        let mut entries = shard.entries.write();
        if let Some(lookups) = entries.parked.remove(&inode.nid()) {
            inode.holds.restore(lookups);
        }
        entries.live.insert(inode.nid(), inode);
        let waiting = entries.sweep(self.shard_limit);
        drop(entries);
        if !waiting.is_empty() {
            let mut all = self.waiting.lock();
            let room = BATCH - all.len();
            all.extend(waiting.into_iter().take(room));
            if all.len() == BATCH {
                // Relaxed: a hint; the list is behind its lock.
                self.crowded.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Inodes that could leave memory but for times that wait to be logged, once there are many. The caller
    /// logs them; a later sweep evicts them.
    pub fn take_waiting(&self) -> Vec<Arc<InodeObj>> {
        // Relaxed: as where it is set.
        if !self.crowded.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut all = self.waiting.lock();
        self.crowded.store(false, Ordering::Relaxed);
        std::mem::take(&mut *all)
    }

    /// Takes an inode out that is freed or was not created after all.
    pub fn remove(&self, inode: &Arc<InodeObj>) {
        let mut entries = self.shard(inode.nid()).entries.write();
        if entries.live.get(inode.nid()).is_some_and(|found| Arc::ptr_eq(found, inode)) {
            entries.live.remove(inode.nid());
        }
    }

    /// Settles forgotten lookup counts as far as the table can.
    pub fn forget_parked(&self, nid: Nid, n: u64) -> Forgotten {
        let mut entries = self.shard(nid).entries.write();
        if let Some(found) = entries.live.get(nid) {
            return Forgotten::Live(Arc::clone(found));
        }
        match entries.parked.get_mut(&nid) {
            Some(count) if *count > n => {
                *count -= n;
                Forgotten::Parked
            }
            Some(_) => {
                entries.parked.remove(&nid);
                Forgotten::Parked
            }
            None => Forgotten::Unknown,
        }
    }

    /// Takes the unused inodes whose times wait to be logged, up to `most` of them, for eviction.
    pub fn stale(&self, most: usize) -> Vec<Arc<InodeObj>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let entries = shard.entries.read();
            let waiting = entries.live.values().filter(|i| i.has_lazy_times());
            found.extend(waiting.take(most - found.len()).map(Arc::clone));
            if found.len() == most {
                break;
            }
        }
        found
    }

    /// Every inode in memory.
    pub fn all(&self) -> Vec<Arc<InodeObj>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.entries.read().live.values().map(Arc::clone));
        }
        all
    }

    /// Drops all parked counts: the kernel is gone.
    pub fn forget_all_parked(&self) {
        for shard in &self.shards {
            shard.entries.write().parked.clear();
        }
    }

    /// Number of inodes in memory.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.entries.read().live.len()).sum()
    }

    /// Whether none is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Entries {
    /// Makes room: looks at a few inodes from the hand on. Those that only their times keep are handed out.
    fn sweep(&mut self, limit: usize) -> Vec<Arc<InodeObj>> {
        let mut waiting = Vec::new();
        let Entries { live, parked } = self;
        live.sweep(limit, SWEEP, |nid, inode| {
            // Relaxed: a hint.
            if inode.referenced.swap(false, Ordering::Relaxed) || !unused(inode) {
                return false;
            }
            if inode.has_lazy_times() {
                waiting.push(Arc::clone(inode));
                return false;
            }
            let lookups = inode.holds.lookups();
            if lookups > 0 {
                parked.insert(nid, lookups);
            }
            true
        });
        waiting
    }
}

/// Whether the table alone knows the inode, and media know all that it knows but times.
fn unused(inode: &Arc<InodeObj>) -> bool {
    Arc::strong_count(inode) == 1
        && inode.holds.opens() == 0
        && !inode.holds.is_gone()
        && inode.nlink() > 0
        && inode.is_idle()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::inode::{FileType, Holds, Place, fresh_image};

    fn object(nid: Nid, lookups: u64) -> InodeObj {
        let mut image = fresh_image(nid, 1, libc::S_IFREG | 0o644, 0, 0, 0);
        image.nlink.set(1);
        InodeObj::new(Place { block: 1, slot: 0 }, FileType::Regular, image, Holds::new(lookups))
    }

    #[test]
    fn unused_inodes_make_room_and_their_lookup_counts_come_back() {
        let table = InodeTable::new(SHARDS * 4);
        for nid in 1..5000 {
            let found =
                table.get_or_load(nid, || Ok(Some(object(nid, 0)))).expect("loads").expect("is there");
            assert!(found.holds.look_up());
        }
        assert!(table.len() < 1000, "{} inodes stay in memory", table.len());
        for nid in 1..5000 {
            let found = table.get_or_load(nid, || Ok(Some(object(nid, 0)))).expect("loads");
            assert_eq!(found.expect("is there").holds.lookups(), 1);
        }
    }

    #[test]
    fn what_is_in_use_stays() {
        let table = InodeTable::new(0);
        let open = table.get_or_load(1, || Ok(Some(object(1, 0)))).expect("loads").expect("there");
        assert!(open.holds.open());
        let weak = Arc::downgrade(&open);
        drop(open);
        let lazy = table.get_or_load(2, || Ok(Some(object(2, 0)))).expect("loads").expect("there");
        lazy.touch_content();
        drop(lazy);
        for nid in 3..3000 {
            table.get_or_load(nid, || Ok(Some(object(nid, 0)))).expect("loads");
        }
        assert!(weak.upgrade().is_some());
        assert!(table.get(2).is_some());
        assert_eq!(table.stale(10).len(), 1);
    }

    /// What the shards keep beside inodes: nothing that grows with how many there have been.
    #[test]
    fn inodes_that_come_and_go_leave_nothing_behind() {
        let table = InodeTable::new(1 << 20);
        for nid in 1..100_000 {
            let inode = Arc::new(object(nid, 0));
            table.insert(Arc::clone(&inode));
            table.remove(&inode);
        }
        assert!(table.is_empty());
        let kept = |shard: &Shard| shard.entries.read().live.queued();
        let most = table.shards.iter().map(|shard| kept(shard)).max();
        assert!(most < Some(64), "a shard remembers {most:?} inodes that are gone");
    }

    #[test]
    fn counts_are_forgotten_without_a_load() {
        let table = InodeTable::new(0);
        table.get_or_load(1, || Ok(Some(object(1, 3)))).expect("loads");
        for nid in 2..3000 {
            table.get_or_load(nid, || Ok(Some(object(nid, 0)))).expect("loads");
        }
        assert!(table.get(1).is_none());
        assert!(matches!(table.forget_parked(1, 2), Forgotten::Parked));
        assert!(matches!(table.forget_parked(1, 2), Forgotten::Parked));
        assert!(matches!(table.forget_parked(1, 1), Forgotten::Unknown));
    }
}
