//! The pool: where frames come from, and how they are found.
//!
//! What this leaves to others: the memory that indexes take ([`super::retired`]).

#![allow(unsafe_code, reason = "copies of frames by optimistic readers, and slots that outlive frames")]

use super::copy::copy;
use super::evict::Eviction;
use super::frame::{Frame, FrameState, Use};
use super::frame_table::{FrameTable, Inherited};
use super::free::FreeFrames;
use super::guards::{Found, Fresh, Latched, OptimisticRead};
use super::index::Slot;
use super::memory::FrameMemory;
use super::retired::{MOST_HELD, Retired, most_index_bytes};
use super::warm::Warmer;
use crate::Result;
use crate::device::BLOCK_SIZE;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Arc, CachePadded, Gauge, LaneCounter, Mutex, hint, thread};
use crate::takeover::FrameRegion;

/// A bounded number of frames.
#[derive(Debug)]
pub struct FramePool {
    pub(super) memory: Arc<FrameMemory>,
    warmer: Warmer,
    pub(super) frames: FrameTable,
    pub(super) free: FreeFrames,
    pub(super) eviction: Eviction,
    pub(super) retired: Mutex<Retired>,
    /// See [`FramePool::leave`].
    is_left: AtomicBool,
    /// Most frames that are retired.
    pub(super) most_retired: usize,
    pub(super) counters: PoolCounters,
    // What follows is written by all cores, and lies on lines of its own.
    dirty: Gauge,
    /// Bytes of the indexes, frames retired for them, and the bytes above which some are to go.
    pub(super) index_bytes: CachePadded<AtomicUsize>,
    pub(super) retired_count: AtomicUsize,
    pub(super) index_mark: AtomicUsize,
}

#[derive(Debug, Default)]
pub(super) struct PoolCounters {
    pub evicted: LaneCounter,
    pub returned: LaneCounter,
}

/// Bytes that a frame takes with all that is kept about it: its state, its places in the list of free frames, in the
/// two queues of eviction and in a file's index, and in the file's set of dirty pages.
pub const FRAME_BYTES: u64 = (BLOCK_SIZE + Frame::bytes() + 4 + 2 * 4 + 4 + 20) as u64;

/// What the cache is doing.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CacheStats {
    /// Frames of the pool, those not counted whose memory the indexes have.
    pub frames: u64,
    /// Frames that hold bytes newer than the device's.
    pub dirty: u64,
    /// Frames on the free lists.
    pub free: u64,
    /// Clean frames given to other pages so far.
    pub evicted: u64,
    /// Frames of the class that gives way last.
    pub hot: u64,
    /// Pages that came back soon after they were evicted.
    pub returned: u64,
    /// Bytes of the indexes.
    pub index_bytes: u64,
}

/// What a page was when it left the cache.
#[derive(Debug, Clone, Copy)]
pub struct Removed {
    /// Its flags.
    pub flags: FrameState,
}

/// Waits for another thread's few instructions.
pub(super) fn pause(round: &mut u32) {
    *round += 1;
    if *round > 64 { thread::yield_now() } else { hint::spin_loop() }
}

impl FramePool {
    /// A pool of `frames` frames.
    pub fn new(frames: usize) -> Result<FramePool> {
        FramePool::sharing(frames, usize::MAX)
    }

    /// A pool whose free frames keep their memory up to so many; what others have is the system's.
    pub fn sharing(frames: usize, kept: usize) -> Result<FramePool> {
        // A number plus one has 31 bits in a slot.
        let frames = frames.clamp(4, (1 << 31) - 2);
        let memory = FrameMemory::new(frames, kept < frames)?;
        Ok(FramePool::of(memory, FrameTable::new(frames), kept, |_| false))
    }

    /// A pool in memory that outlives this process, with what a predecessor has left there that is nowhere else: each is
    /// to be taken over, or given up.
    pub fn shared(region: &FrameRegion) -> (FramePool, Vec<Inherited>) {
        let (table, inherited) = FrameTable::shared(region);
        let mut used = vec![false; table.len()];
        for one in &inherited {
            used[one.number as usize] = true;
        }
        let memory = FrameMemory::shared(region.clone());
        (FramePool::of(memory, table, usize::MAX, |number| used[number as usize]), inherited)
    }

    fn of(memory: FrameMemory, table: FrameTable, kept: usize, is_used: impl Fn(u32) -> bool) -> FramePool {
        let (memory, frames) = (Arc::new(memory), table.len());
        // Frames that are held back for indexes stay without memory.
        let warm = if kept < frames { 0 } else { frames - frames / MOST_HELD };
        let most_retired = if kept < frames { 0 } else { frames / 8 };
        FramePool {
            warmer: Warmer::new(&memory, warm),
            memory,
            frames: table,
            free: FreeFrames::new(frames, kept, is_used),
            eviction: Eviction::new(frames),
            retired: Mutex::new(Retired::default()),
            is_left: AtomicBool::new(false),
            most_retired,
            counters: PoolCounters::default(),
            dirty: Gauge::new((frames / 2048).clamp(1, 16) as u32),
            index_bytes: CachePadded::new(AtomicUsize::new(0)),
            retired_count: AtomicUsize::new(0),
            index_mark: AtomicUsize::new(most_index_bytes(most_retired)),
        }
    }

    /// Takes an inherited frame over, for the page that it holds: puts it in the slot, dirty, pinned. The bytes beyond
    /// `valid` become zeros, for no page holds any beyond its file's end. None if the slot has a frame.
    pub fn take_over(
        &self,
        one: &Inherited,
        slot: &Slot,
        flags: FrameState,
        valid: usize,
    ) -> Option<Found<'_>> {
        let frame = &self.frames[one.number as usize];
        if !slot.name(one.number) {
            return None;
        }
        Latched::new(frame, self.memory.frame(one.number)).zero_unlatched(valid..BLOCK_SIZE);
        // Relaxed: `take_over` releases it.
        frame.slot.store(std::ptr::from_ref(slot).cast_mut(), Ordering::Relaxed);
        frame.set_dirty_bytes(0..BLOCK_SIZE);
        frame.take_over(flags);
        self.count_dirty(true);
        self.eviction.joins(&self.frames, one.number);
        Some(Found { pool: self, number: one.number })
    }

    /// Gives an inherited frame up: what it holds belongs to nothing that is there.
    pub fn give_up(&self, one: &Inherited) {
        self.frames[one.number as usize].reset();
        self.free.give_back(one.number, &self.memory);
    }

    /// Number of frames that are not retired.
    pub fn len(&self) -> usize {
        // Relaxed: limits are derived from it.
        self.frames.len() - self.retired_count.load(Ordering::Relaxed)
    }

    /// Never so.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// About how many frames are dirty: right to a share of them that no limit depends on.
    pub fn dirty(&self) -> usize {
        self.dirty.about() as usize
    }

    pub(super) fn count_dirty(&self, more: bool) {
        self.dirty.add(if more { 1 } else { -1 });
    }

    /// Frames that have memory of the system's.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn resident(&self) -> usize {
        self.memory.resident()
    }

    /// Counters.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            frames: self.len() as u64,
            dirty: self.dirty.get(),
            free: self.free.len() as u64,
            evicted: self.counters.evicted.get(),
            hot: self.eviction.hot() as u64,
            returned: self.counters.returned.get(),
            index_bytes: self.index_bytes() as u64,
        }
    }

    /// A free frame, or one that held a clean page. None when all are dirty or in use.
    pub fn take(&self) -> Option<Fresh<'_>> {
        let number = self.free.take().or_else(|| self.evict())?;
        self.warmer.taken(number);
        Some(Fresh { pool: self, number })
    }

    /// `count` frames or none at all.
    pub fn take_many(&self, count: usize) -> Option<Vec<Fresh<'_>>> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            taken.push(self.take()?);
        }
        Some(taken)
    }

    fn evict(&self) -> Option<u32> {
        let number = self.eviction.next(&self.frames)?;
        self.leave_slot(&self.frames[number as usize], Some(self.eviction.tick()));
        self.counters.evicted.add(1);
        Some(number)
    }

    /// Takes a frame that this thread just made busy out of the slot that names it; `time` if it is evicted.
    fn leave_slot(&self, frame: &Frame, time: Option<u32>) {
        // Relaxed: stored before `publish`, read after `claim`, which pair.
        let slot = frame.slot.load(Ordering::Relaxed);
        assert!(!slot.is_null(), "a published frame has a slot");
        // SAFETY: rule 7 of the protocol: the index outlives the frame's presence in the slot, and the slot
        // names the frame until this store. Guarded by cache::tests.
        let slot = unsafe { &*slot };
        slot.leave(time);
    }

    /// The frame that a slot names, pinned.
    #[inline]
    pub fn find(&self, slot: &Slot, by: Use) -> Option<Found<'_>> {
        let mut round = 0;
        loop {
            let named = slot.named();
            if named == 0 {
                return None;
            }
            let number = named - 1;
            let frame = &self.frames[number as usize];
            if frame.pin(by) {
                // Not to be moved before the pin, which is an Acquire. If it still names the frame, the frame cannot
                // leave before the pin does.
                if slot.named() == named {
                    return Some(Found { pool: self, number });
                }
                frame.unpin();
            }
            pause(&mut round);
        }
    }

    /// Looks at the page that a slot names, to read it without a pin (rule 8). None: it is not there, or is
    /// being changed.
    #[inline]
    pub fn begin_optimistic(&self, slot: &Slot, by: Use) -> Option<OptimisticRead> {
        let named = slot.named();
        let number = named.checked_sub(1)?;
        let seen = self.frames[number as usize].see(by)?;
        // Not to be moved before `see`, whose Acquire keeps it behind. A frame that the slot names after it was seen
        // was the slot's when seen, or its version changes before the bytes do.
        (slot.named() == named).then_some(OptimisticRead { number, seen })
    }

    /// The kernel has a page that was looked at in a cache of its own now. Should the frame have got another page
    /// meanwhile, that one is taken for it, which costs a read at the worst.
    pub fn lend(&self, read: OptimisticRead) {
        self.eviction.lend(&self.frames, read.number);
    }

    /// Copies bytes of a page that was looked at. They count only if [`FramePool::validate`] says so.
    #[inline]
    pub fn copy_unpinned(&self, read: OptimisticRead, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= BLOCK_SIZE, "a read within the page");
        // SAFETY: within the frame, as just checked; `into` is another object. A thread that writes meanwhile does so
        // through `copy`, or has taken the frame out of its slot; either way the version tells, and the bytes are
        // not used. Guarded by cache::tests.
        unsafe { copy(self.memory.frame(read.number).add(offset), into.as_mut_ptr(), into.len()) }
    }

    /// Whether the page, and its bytes, have stayed what they were when looked at.
    #[inline]
    pub fn validate(&self, read: OptimisticRead) -> bool {
        self.frames[read.number as usize].validate(read.seen)
    }

    /// Latches the page that a slot names if it is there and nobody else has the latch. The caller has the
    /// page's range exclusively.
    #[inline]
    pub fn latch(&self, slot: &Slot) -> Option<Latched<'_>> {
        let named = slot.named();
        let number = named.checked_sub(1)?;
        let frame = &self.frames[number as usize];
        if !frame.try_latch_unpinned() {
            return None;
        }
        let latched = Latched::new(frame, self.memory.frame(number));
        // As in `find`. While the latch is held the frame cannot leave.
        (slot.named() == named).then_some(latched)
    }

    /// What lies in frames is for the next that tries to take them over: nobody looks for a frame of this pool any more, and
    /// files that are dropped leave theirs as they are.
    pub fn leave(&self) {
        // Release: who drops a file after this sees it, on whatever thread.
        self.is_left.store(true, Ordering::Release);
    }

    /// Whether they do.
    pub fn is_left(&self) -> bool {
        // Acquire: pairs with `leave`.
        self.is_left.load(Ordering::Acquire)
    }

    /// Takes the page out of the cache without writing it. Waits for pins to go: the caller has the page's
    /// range exclusively and no write-back of the file is running.
    pub fn remove(&self, slot: &Slot) -> Option<Removed> {
        let mut round = 0;
        loop {
            let named = slot.named();
            if named == 0 {
                return None;
            }
            let frame = &self.frames[(named - 1) as usize];
            // The slot may be left, and the frame reused, between the load and the pin: it is looked at again, and a frame
            // of another page is never claimed, for a successor would find it as one that holds nothing.
            if frame.pin(Use::No) {
                if slot.named() == named
                    && let Some(flags) = frame.claim_pinned()
                {
                    self.leave_slot(frame, None);
                    self.eviction.left(flags);
                    if flags.contains(FrameState::DIRTY) {
                        self.count_dirty(false);
                    }
                    self.free.give_back(named - 1, &self.memory);
                    return Some(Removed { flags });
                }
                frame.unpin();
            }
            pause(&mut round);
        }
    }
}
