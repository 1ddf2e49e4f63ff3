//! Free ids: a summary for each NAT block that was looked into, and which lane draws from it.
//!
//! A bit is set while its id is in use, picked by an operation under way, or in quarantine. Bits are taken
//! and given by atomics alone. A block is *listed* while its owner's list (or, without an owner, the common
//! one) has it; a full block leaves the list when the owner finds it full and comes back with the next id
//! that is given.

use super::count::Counts;
#[cfg(feature = "baselines")]
use super::{listed::Listed, work::Work};
use crate::alloc::Queue;
use crate::format::{BLOCK_HEADER_SIZE, NAT_ENTRY_SIZE, NAT_PER_BLOCK, Position};
use crate::hasher::NumberMap;
use crate::lane;
use crate::planted::{self, Bug};
use crate::store::PageRef;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{Arc, CachePadded, Mutex};
use std::ops::Range;

const WORDS: usize = NAT_PER_BLOCK.div_ceil(64) as usize;
const SHARDS: usize = 32;
/// No lane.
const NOBODY: usize = usize::MAX;

/// What is known of one NAT block.
#[derive(Debug)]
pub(super) struct IdBlock {
    pub index: u64,
    pub block: u64,
    taken: [AtomicU64; WORDS],
    owner: AtomicUsize,
    listed: AtomicBool,
}

impl IdBlock {
    /// The summary of a NAT page. Nid 0 is never free.
    pub(super) fn load(index: u64, page: &PageRef) -> IdBlock {
        let mut taken = [0u64; WORDS];
        page.read(|bytes| {
            for (id, entry) in bytes[BLOCK_HEADER_SIZE..].chunks_exact(NAT_ENTRY_SIZE).enumerate() {
                let in_use = entry[..8] != [0; 8] || index == 0 && id == 0;
                taken[id / 64] |= u64::from(in_use) << (id % 64);
            }
        });
        let past_the_end = u64::MAX << (NAT_PER_BLOCK % 64);
        taken[WORDS - 1] |= past_the_end;
        IdBlock {
            index,
            block: page.block(),
            taken: taken.map(AtomicU64::new),
            owner: AtomicUsize::new(NOBODY),
            listed: AtomicBool::new(false),
        }
    }

    /// Takes the lowest free id.
    pub(super) fn take(&self) -> Option<u32> {
        for (at, word) in self.taken.iter().enumerate() {
            // Relaxed: a guess, settled by the read-modify-write.
            let mut seen = word.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = seen.trailing_ones();
                // Acquire: pairs with the Release of `give`: what its last user did with the id is over.
                seen = word.fetch_or(1 << bit, Ordering::Acquire);
                if seen & 1 << bit == 0 {
                    return Some(at as u32 * 64 + bit);
                }
            }
        }
        None
    }

    /// Takes a free id, if it still is.
    #[cfg(feature = "baselines")]
    pub(super) fn mark(&self, id: u32) -> bool {
        let bit = 1 << (id % 64);
        // Acquire: as in `take`.
        self.taken[id as usize / 64].fetch_or(bit, Ordering::Acquire) & bit == 0
    }

    /// An id is free again.
    pub(super) fn clear(&self, id: u32) {
        // Release: pairs with the Acquire of `take`.
        self.taken[id as usize / 64].fetch_and(!(1 << (id % 64)), Ordering::Release);
    }

    /// The ids that are free just now.
    #[cfg(feature = "baselines")]
    pub(super) fn each_free(&self, mut f: impl FnMut(u32)) {
        for (at, word) in (0u32..).zip(&self.taken) {
            // Relaxed: a guess, which who takes one settles.
            let mut free = !word.load(Ordering::Relaxed);
            while free != 0 {
                f(at * 64 + free.trailing_zeros());
                free &= free - 1;
            }
        }
    }

    #[cfg(feature = "baselines")]
    pub(super) fn nid(&self, id: u32) -> u64 {
        self.index * NAT_PER_BLOCK + u64::from(id)
    }

    pub(super) fn is_full(&self) -> bool {
        // Relaxed: see the fences of those that need more.
        self.taken.iter().all(|word| word.load(Ordering::Relaxed) == u64::MAX)
    }

    /// Number of ids that are taken by inodes, or wait for a commit.
    pub(super) fn in_use(&self) -> u16 {
        // The first of the table is nobody's.
        self.used() - u16::from(self.index == 0)
    }

    /// Number of ids that are taken.
    pub(super) fn used(&self) -> u16 {
        // Relaxed: a hint.
        let ones: u32 = self.taken.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum();
        (ones - (WORDS as u32 * 64 - NAT_PER_BLOCK as u32)) as u16
    }
}

type List = Mutex<Vec<Arc<IdBlock>>>;

/// One lane's share.
struct Share {
    /// Blocks of the lane that had free ids when last looked at; the last is drawn from.
    owned: List,
    quarantine: Queue<(Arc<IdBlock>, u32)>,
}

/// The free ids of one image.
pub(super) struct Ids {
    known: Box<[CachePadded<Mutex<NumberMap<Arc<IdBlock>>>>]>,
    lanes: Box<[CachePadded<Share>]>,
    /// Blocks with free ids that belong to no lane yet.
    unowned: List,
    /// NAT blocks from here to `end` have not been looked into.
    // Relaxed: each number is given to one caller; nothing is published.
    unknown: AtomicU64,
    end: u64,
    /// The next place for a new NAT block; before it those that were not used after all.
    new: Mutex<(Vec<u64>, u64)>,
    pub counts: Counts,
    /// One list for all lanes, in place of their own.
    #[cfg(feature = "baselines")]
    pub listed: Option<Listed>,
    #[cfg(feature = "baselines")]
    pub work: Work,
}

impl Ids {
    /// A table whose NAT blocks before `end` are there.
    pub(super) fn new(end: u64) -> Ids {
        let share = || Share { owned: Mutex::new(Vec::new()), quarantine: Queue::new() };
        Ids {
            known: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            lanes: (0..lane::count()).map(|_| CachePadded::new(share())).collect(),
            unowned: Mutex::new(Vec::new()),
            unknown: AtomicU64::new(0),
            end,
            new: Mutex::new((Vec::new(), end)),
            counts: Counts::default(),
            #[cfg(feature = "baselines")]
            listed: None,
            #[cfg(feature = "baselines")]
            work: Work::new(),
        }
    }

    fn shard(&self, index: u64) -> &Mutex<NumberMap<Arc<IdBlock>>> {
        &self.known[index as usize % SHARDS]
    }

    /// A block that was looked into.
    pub(super) fn find(&self, index: u64) -> Option<Arc<IdBlock>> {
        self.shard(index).lock().get(&index).cloned()
    }

    /// Every block that was looked into.
    pub(super) fn known(&self) -> Vec<Arc<IdBlock>> {
        self.known.iter().flat_map(|shard| shard.lock().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Takes note of a NAT block. Only noted blocks are drawn from, so that nothing is under way in its page
    /// when the first note is made.
    pub(super) fn insert_loaded(&self, index: u64, page: &PageRef, hint: u16) -> Arc<IdBlock> {
        let mut shard = self.shard(index).lock();
        Arc::clone(shard.entry(index).or_insert_with(|| {
            let block = IdBlock::load(index, page);
            // Hints are counted of blocks that were there when the table was loaded.
            self.counts.looked_into(block.in_use(), if index < self.end { hint } else { 0 });
            Arc::new(block)
        }))
    }

    /// Takes note of a block that a lane has made.
    pub(super) fn insert_new(&self, block: &Arc<IdBlock>, lane: usize) {
        self.shard(block.index).lock().insert(block.index, Arc::clone(block));
        #[cfg(feature = "baselines")]
        if let Some(listed) = &self.listed {
            listed.offer(block);
            return;
        }
        self.adopt(block, lane);
    }

    /// Gives a block to a lane, unless another has it.
    pub(super) fn adopt(&self, block: &Arc<IdBlock>, lane: usize) {
        #[cfg(feature = "baselines")]
        if let Some(listed) = &self.listed {
            listed.offer(block);
            return;
        }
        // Relaxed: a thread that owns a block only decides which list it is on.
        if block.owner.compare_exchange(NOBODY, lane, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.list(block);
        }
    }

    /// Puts a block on the list where it belongs, if it is on none.
    fn list(&self, block: &Arc<IdBlock>) {
        // Relaxed: the list's lock orders the rest.
        if !block.listed.swap(true, Ordering::Relaxed) {
            let list = match block.owner.load(Ordering::Relaxed) {
                NOBODY => &self.unowned,
                lane => &self.lanes[lane].owned,
            };
            list.lock().push(Arc::clone(block));
        }
    }

    /// A free id of the lane's blocks, or of blocks that nobody owns yet.
    pub(super) fn take(&self, lane: usize) -> Option<(Arc<IdBlock>, u32)> {
        #[cfg(feature = "baselines")]
        if let Some(listed) = &self.listed {
            return listed.take(&self.work);
        }
        loop {
            {
                let mut owned = self.lanes[lane].owned.lock();
                while let Some(block) = owned.last() {
                    if let Some(id) = block.take() {
                        return Some((Arc::clone(block), id));
                    }
                    let Some(block) = owned.pop() else { break };
                    self.unlist(&mut owned, block);
                }
            }
            let block = self.unowned.lock().pop()?;
            // Relaxed: as in `adopt` and `list`.
            block.listed.store(false, Ordering::Relaxed);
            let _ = block.owner.compare_exchange(NOBODY, lane, Ordering::Relaxed, Ordering::Relaxed);
            self.list(&block);
        }
    }

    /// Gives the lane a block of another lane that has free ids in several: threads that used to draw from them may
    /// have gone, and a table that is large enough must not grow. `left` of them stay with the other. False if there is
    /// none.
    pub(super) fn take_over(&self, lane: usize, left: usize) -> bool {
        let others = (1..self.lanes.len()).map(|ahead| &self.lanes[(lane + ahead) % self.lanes.len()]);
        let found = others.into_iter().find_map(|other| {
            let mut owned = other.owned.lock();
            // The last is the one that the other draws from.
            (owned.len() > left).then(|| owned.remove(0))
        });
        let Some(block) = found else { return false };
        // Relaxed: as in `adopt` and `list`. A thread that gives an id back before the block is listed again leaves the
        // listing to us; a thread that does after that lists it, and we do not.
        block.owner.store(lane, Ordering::Relaxed);
        block.listed.store(false, Ordering::Relaxed);
        self.list(&block);
        true
    }

    /// A full block has left its owner's list, unless an id came back just now.
    fn unlist(&self, owned: &mut Vec<Arc<IdBlock>>, block: Arc<IdBlock>) {
        block.listed.store(false, Ordering::Relaxed);
        // Pairs with the fence of `give`: one of the two sees what the other has written.
        fence(Ordering::SeqCst);
        if !block.is_full() && !block.listed.swap(true, Ordering::Relaxed) {
            owned.insert(0, block);
        }
    }

    /// Gives an id back.
    pub(super) fn give(&self, block: &Arc<IdBlock>, id: u32) {
        #[cfg(feature = "baselines")]
        if let Some(listed) = &self.listed {
            return listed.give(block, id);
        }
        block.clear(id);
        // Pairs with the fence of `unlist`.
        fence(Ordering::SeqCst);
        if !block.listed.load(Ordering::Relaxed) {
            self.list(block);
        }
    }

    /// Takes in an id that the record which ends at `end` has freed.
    pub(super) fn quarantine(&self, end: Position, block: Arc<IdBlock>, id: u32) {
        match planted::is(Bug::IdReusedEarly) {
            true => self.give(&block, id),
            false => self.lanes[lane::current()].quarantine.push(end, (block, id)),
        }
    }

    /// Whether ids wait for the records that have freed them.
    pub(super) fn are_waiting(&self) -> bool {
        self.lanes.iter().any(|share| !share.quarantine.is_empty())
    }

    /// Gives back the ids freed by records that end at or below `upto`.
    pub(super) fn durable(&self, upto: Position) {
        #[cfg(feature = "baselines")]
        let begun = self.work.now();
        let mut out = Vec::new();
        for share in &self.lanes {
            share.quarantine.pop(upto, &mut out);
        }
        for (block, id) in out {
            self.give(&block, id);
        }
        #[cfg(feature = "baselines")]
        {
            self.listed.iter().for_each(Listed::checkpointed);
            self.work.add_since(|done| &done.freed_ns, begun);
        }
    }

    /// NAT blocks before this number were there when the table was loaded.
    pub(super) fn loaded(&self) -> u64 {
        self.end
    }

    /// How many there are besides.
    pub(super) fn made_here(&self) -> u64 {
        let new = self.new.lock();
        new.1.saturating_sub(self.end + new.0.len() as u64)
    }

    /// How many places of the table were used, or were to be.
    #[cfg(feature = "baselines")]
    pub(super) fn made(&self) -> u64 {
        self.new.lock().1
    }

    /// Up to so many NAT blocks of an earlier mount that nobody has looked into.
    pub(super) fn next_unknown(&self, most: u64) -> Option<Range<u64>> {
        if self.unknown.load(Ordering::Relaxed) >= self.end {
            return None;
        }
        let first = self.unknown.fetch_add(most, Ordering::Relaxed);
        Some(first..(first + most).min(self.end)).filter(|found| !found.is_empty())
    }

    /// The place for a new NAT block, below `capacity`.
    pub(super) fn next_new(&self, capacity: u64) -> Option<u64> {
        let mut new = self.new.lock();
        if let Some(index) = new.0.pop() {
            return Some(index);
        }
        let index = new.1;
        (index < capacity).then(|| {
            new.1 += 1;
            index
        })
    }

    /// A place was not used.
    pub(super) fn not_new(&self, index: u64) {
        self.new.lock().0.push(index);
    }
}
