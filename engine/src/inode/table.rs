//! The inodes in memory, by nid; bounded.

use super::{InodeObj, NidSet};
use crate::error::Result;
use crate::format::Nid;
use crate::hasher::NumberMap;
use crate::rcu_table::{Locked, RcuTable};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, CachePadded, Mutex, OnceLock};

const SHARDS: usize = 64;
/// Inodes that one insertion may look at in order to make room.
const SWEEP: usize = 16;
/// Inodes whose times are logged together.
const BATCH: usize = 64;

/// The table.
///
/// Invariants: a nid has one object at most, so a thread that has the `Arc` has *the* inode. An object is evicted
/// only while the table alone refers to it and nobody can be about to use it (`crate::rcu_table`). The
/// lookup counts of an evicted inode stay behind as *parked* counts and come back with it: the kernel may
/// remember millions of inodes that need not be in memory.
#[derive(Debug)]
pub struct InodeTable {
    live: RcuTable<Arc<InodeObj>, Parked>,
    shard_limit: usize,
    /// Held while an inode is read from media, so that one object is made of it; by nid.
    loading: Box<[CachePadded<Mutex<()>>]>,
    /// Inodes that could leave but for times that wait to be logged.
    waiting: CachePadded<Mutex<Vec<Arc<InodeObj>>>>,
    /// A cache above may hold pages of any inode, though this process has served none of them.
    inherits: AtomicBool,
    /// Nids of inodes that were made here, once anybody asks.
    made: OnceLock<Arc<NidSet>>,
    /// There are [`BATCH`] of them.
    crowded: CachePadded<AtomicBool>,
}

/// Lookup counts of inodes that are not in memory.
type Parked = NumberMap<u64>;
type Shard<'a> = Locked<'a, Arc<InodeObj>, Parked>;

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
            live: RcuTable::new(SHARDS),
            shard_limit: (limit / SHARDS).max(4),
            loading: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            inherits: AtomicBool::new(false),
            made: OnceLock::new(),
            waiting: CachePadded::new(Mutex::new(Vec::with_capacity(BATCH))),
            crowded: CachePadded::new(AtomicBool::new(false)),
        }
    }

    /// From now on a cache above may hold pages of each inode that comes into memory: a predecessor has served them.
    pub fn may_be_cached(&self) {
        // Relaxed: set before anybody uses the table.
        self.inherits.store(true, Ordering::Relaxed);
    }

    /// A set that gets the nids of inodes that are made from now on.
    pub fn note_made(&self) -> Arc<NidSet> {
        Arc::clone(self.made.get_or_init(Arc::default))
    }

    /// The inode, if it is in memory.
    pub fn get(&self, nid: Nid) -> Option<Arc<InodeObj>> {
        let found = self.live.get(nid)?;
        // Relaxed: a hint for the hand.
        if !found.referenced.load(Ordering::Relaxed) {
            found.referenced.store(true, Ordering::Relaxed);
        }
        Some(found)
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
        let _loading = self.loading(nid).lock();
        if let Some(found) = self.get(nid) {
            return Ok(Some(found));
        }
        let Some(made) = load()? else { return Ok(None) };
        let made = Arc::new(made);
        self.put(Arc::clone(&made));
        Ok(Some(made))
    }

    /// Puts an inode there that is about to be created.
    pub fn insert(&self, inode: Arc<InodeObj>) {
        if let Some(made) = self.made.get() {
            made.insert(inode.nid());
        }
        let _loading = self.loading(inode.nid()).lock();
        self.put(inode);
    }

    fn loading(&self, nid: Nid) -> &Mutex<()> {
        // Fibonacci hashing: neighbouring nids come from one lane and would otherwise meet in few places.
        let hash = nid.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &self.loading[hash as usize % SHARDS]
    }

    fn put(&self, inode: Arc<InodeObj>) {
        let mut shard = self.live.lock(inode.nid());
        if let Some(lookups) = shard.beside().remove(&inode.nid()) {
            inode.holds.restore(lookups);
            // A thread that counts may have kept pages of it since it left.
            inode.lent.lend();
        } else if self.inherits.load(Ordering::Relaxed) && !inode.is_made_here() {
            // As above, of a predecessor. Relaxed: see `may_be_cached`.
            inode.lent.lend();
        }
        shard.insert(inode.nid(), inode);
        let waiting = sweep(&mut shard, self.shard_limit, |_| true);
        drop(shard);
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

    /// Lets inodes leave whose data's indexes take memory, however few inodes there are, until that is `enough`: from the
    /// shard `from` on, each looked at twice at the most, for those that were used since the hand passed are spared once.
    /// Of those that only their times keep, as many as have `excess` bytes are handed out: the caller logs these.
    pub fn let_indexes_go(
        &self,
        from: &mut usize,
        excess: usize,
        enough: impl Fn() -> bool,
    ) -> Vec<Arc<InodeObj>> {
        let bytes = |inode: &InodeObj| inode.made_data().map_or(0, |data| data.index.bytes());
        let (mut waiting, mut waits) = (Vec::new(), 0);
        for _ in 0..2 * SHARDS {
            let mut left = usize::MAX;
            while left > 0 {
                if enough() {
                    return waiting;
                }
                let mut shard = self.live.lock_shard(*from);
                left = left.min(shard.len()).saturating_sub(SWEEP);
                let found = sweep(&mut shard, 0, |inode| bytes(inode) > 0);
                drop(shard);
                for inode in found {
                    if waits < excess {
                        waits += bytes(&inode);
                        waiting.push(inode);
                    }
                }
            }
            *from = (*from + 1) % SHARDS;
        }
        waiting
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
        self.live.lock(inode.nid()).remove_if(inode.nid(), |found| Arc::ptr_eq(found, inode));
    }

    /// Settles forgotten lookup counts as far as the table can.
    pub fn forget_parked(&self, nid: Nid, n: u64) -> Forgotten {
        let mut shard = self.live.lock(nid);
        if let Some(found) = shard.get(nid) {
            return Forgotten::Live(found);
        }
        match shard.beside().get_mut(&nid) {
            Some(count) if *count > n => {
                *count -= n;
                Forgotten::Parked
            }
            Some(_) => {
                shard.beside().remove(&nid);
                Forgotten::Parked
            }
            None => Forgotten::Unknown,
        }
    }

    /// Takes the unused inodes whose times wait to be logged, up to `most` of them, for eviction.
    pub fn stale(&self, most: usize) -> Vec<Arc<InodeObj>> {
        let mut found = Vec::new();
        for shard in self.live.each_locked() {
            found.extend(shard.entries().filter(|i| i.has_lazy_times()).take(most - found.len()));
            if found.len() == most {
                break;
            }
        }
        found
    }

    /// Every inode in memory.
    pub fn all(&self) -> Vec<Arc<InodeObj>> {
        let mut all = Vec::new();
        self.live.each_locked().for_each(|shard| all.extend(shard.entries()));
        all
    }

    /// Drops all parked counts: the kernel is gone.
    pub fn forget_all_parked(&self) {
        self.live.each_locked().for_each(|mut shard| shard.beside().clear());
    }

    /// Number of inodes in memory.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether none is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Makes room: looks at a few inodes from the hand on, and lets those go that are `meant`. Those that only their times keep
/// are handed out.
fn sweep(shard: &mut Shard<'_>, limit: usize, meant: impl Fn(&InodeObj) -> bool) -> Vec<Arc<InodeObj>> {
    let mut waiting = Vec::new();
    let may_go = |inode: &Arc<InodeObj>| {
        // Relaxed: a hint.
        if !meant(inode) || inode.referenced.swap(false, Ordering::Relaxed) || !unused(inode) {
            return false;
        }
        if inode.has_lazy_times() {
            waiting.push(Arc::clone(inode));
            return false;
        }
        true
    };
    shard.sweep(limit, SWEEP, may_go, |parked, nid, inode| {
        let lookups = inode.holds.lookups();
        if lookups > 0 {
            parked.insert(nid, lookups);
        }
    });
    waiting
}

/// Whether media know all that it knows but times, and nothing but lookups holds it.
fn unused(inode: &InodeObj) -> bool {
    inode.holds.opens() == 0 && !inode.holds.is_gone() && inode.nlink() > 0 && inode.is_idle()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::inode::{FileType, Holds, InodeLocation, Recall, fresh_image};

    fn object(nid: Nid, lookups: u64) -> InodeObj {
        let mut image = fresh_image(nid, 1, libc::S_IFREG | 0o644, 0, 0, 0);
        image.nlink.set(1);
        InodeObj::new(InodeLocation { block: 1, slot: 0 }, FileType::Regular, image, Holds::new(lookups))
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
    fn what_comes_back_with_lookup_counts_may_be_cached_by_who_counts() {
        let table = InodeTable::new(SHARDS);
        let load =
            |nid| table.get_or_load(nid, || Ok(Some(object(nid, 0)))).expect("loads").expect("is there");
        let known = load(1);
        assert!(known.holds.look_up());
        assert_eq!(known.lent.recall(), Recall::Nothing);
        drop(known);
        (2..5000).for_each(|nid| drop(load(nid)));
        assert_eq!(load(1).lent.recall(), Recall::Written);
        assert_eq!(load(2).lent.recall(), Recall::Nothing);
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
        let kept = |(leaves, places, limbo)| leaves + places + limbo;
        let most = table.live.each_locked().map(|shard| kept(shard.sizes())).max();
        assert!(most < Some(64), "a shard remembers {most:?} things that are gone");
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
