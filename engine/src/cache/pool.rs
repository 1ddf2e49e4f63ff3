//! The pool: free lists, the clock, and how a frame is found.

use super::copy::copy;
use super::frame::{self, Frame, FrameState};
use super::guards::{Found, Fresh, Glance, Latched};
use super::memory::FrameMemory;
use crate::Result;
use crate::device::BLOCK_SIZE;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::sync::{CachePadded, LaneCounter, Mutex, available_cores, hint, thread};

/// A bounded number of frames.
#[derive(Debug)]
pub struct FramePool {
    pub(super) memory: FrameMemory,
    pub(super) frames: Box<[Frame]>,
    free: Box<[CachePadded<Mutex<Vec<u32>>>]>,
    hand: AtomicUsize,
    dirty: AtomicUsize,
    evicted: LaneCounter,
}

/// What the cache is doing.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct CacheStats {
    /// Frames of the pool.
    pub frames: u64,
    /// Frames that hold bytes newer than the device's.
    pub dirty: u64,
    /// Frames on the free lists.
    pub free: u64,
    /// Clean frames given to other pages so far.
    pub evicted: u64,
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
        let frames = frames.clamp(4, (u32::MAX - 1) as usize);
        let lanes = if frames < 256 { 1 } else { available_cores().clamp(1, 64) };
        let free = (0..lanes)
            .map(|lane| {
                // Descending, so that a lane gives out its lowest frames first.
                let own = (lane as u32..frames as u32).step_by(lanes).collect::<Vec<_>>();
                CachePadded::new(Mutex::new(own.into_iter().rev().collect()))
            })
            .collect();
        Ok(FramePool {
            memory: FrameMemory::new(frames)?,
            frames: (0..frames).map(|_| Frame::new()).collect(),
            free,
            hand: AtomicUsize::new(0),
            dirty: AtomicUsize::new(0),
            evicted: LaneCounter::new(),
        })
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Never so.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Number of dirty frames as of some recent moment.
    pub fn dirty(&self) -> usize {
        // Relaxed: a threshold is compared with it, nothing is read through it.
        self.dirty.load(Ordering::Relaxed)
    }

    pub(super) fn count_dirty(&self, more: bool) {
        // Relaxed: as in `dirty`.
        if more {
            self.dirty.fetch_add(1, Ordering::Relaxed);
        } else {
            self.dirty.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counters.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            frames: self.len() as u64,
            dirty: self.dirty() as u64,
            free: self.free.iter().map(|lane| lane.lock().len() as u64).sum(),
            evicted: self.evicted.get(),
        }
    }

    fn lane(&self) -> usize {
        if self.free.len() == 1 { 0 } else { rustix::thread::sched_getcpu() % self.free.len() }
    }

    /// A free frame, or one that held a clean page. None when all are dirty or in use.
    pub fn take(&self) -> Option<Fresh<'_>> {
        let own = self.lane();
        let lanes = self.free.len();
        // A statement of its own, so that the list is unlocked before the clock runs.
        let free = (0..lanes).find_map(|i| self.free[(own + i) % lanes].lock().pop());
        if free.is_some() {
            frame::taken_over();
        }
        let number = free.or_else(|| self.evict())?;
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

    /// Second chance: the hand passes over used frames once before it takes one.
    fn evict(&self) -> Option<u32> {
        let count = self.frames.len();
        for _ in 0..2 * count {
            // Relaxed: the hand is a hint where to look.
            let at = self.hand.fetch_add(1, Ordering::Relaxed) % count;
            let frame = &self.frames[at];
            let flags = frame.flags();
            if flags.intersects(FrameState::DIRTY | FrameState::WRITEBACK | FrameState::BUSY) {
                continue;
            }
            if flags.contains(FrameState::REFERENCED) {
                frame.clear(FrameState::REFERENCED);
                continue;
            }
            if frame.claim(FrameState::DIRTY).is_some() {
                self.leave_slot(frame);
                self.evicted.add(1);
                return Some(at as u32);
            }
        }
        None
    }

    /// Takes a frame that this thread just made busy out of the slot that names it.
    fn leave_slot(&self, frame: &Frame) {
        // Relaxed: stored before `publish`, read after `claim`, which pair.
        let slot = frame.slot.load(Ordering::Relaxed);
        assert!(!slot.is_null(), "a published frame has a slot");
        // SAFETY: rule 7 of the protocol: the index outlives the frame's presence in the slot, and the slot
        // names the frame until this store. Guarded by cache::tests.
        let slot = unsafe { &*slot };
        // Release: pairs with the Acquire loads of the slot in `find` and `remove`.
        slot.store(0, Ordering::Release);
    }

    pub(super) fn give_back(&self, number: u32) {
        self.free[self.lane()].lock().push(number);
    }

    /// The frame that a slot names, pinned.
    #[inline]
    pub fn find(&self, slot: &AtomicU32) -> Option<Found<'_>> {
        let mut round = 0;
        loop {
            // Acquire: pairs with the Release in `publish`, so that the state is the published one or newer.
            let named = slot.load(Ordering::Acquire);
            if named == 0 {
                return None;
            }
            let number = named - 1;
            let frame = &self.frames[number as usize];
            if frame.pin() {
                // Acquire: not to be moved before the pin; pairs as above. If it still names the frame, the
                // frame cannot leave before the pin does.
                if slot.load(Ordering::Acquire) == named {
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
    pub fn glance(&self, slot: &AtomicU32) -> Option<Glance> {
        // Acquire: pairs as in `find`.
        let named = slot.load(Ordering::Acquire);
        let number = named.checked_sub(1)?;
        let seen = self.frames[number as usize].see()?;
        // Acquire: not to be moved before `see`, whose Acquire keeps it behind. A frame that the slot names after
        // it was seen was the slot's when seen, or its version changes before the bytes do.
        (slot.load(Ordering::Acquire) == named).then_some(Glance { number, seen })
    }

    /// Copies bytes of a page that was looked at. They count only if [`FramePool::is_as_seen`] says so.
    #[inline]
    pub fn copy_unpinned(&self, glance: Glance, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= BLOCK_SIZE, "a read within the page");
        // SAFETY: within the frame, as just checked; `into` is another object. Who writes meanwhile does so
        // through `copy`, or has taken the frame out of its slot; either way the version tells, and the bytes are
        // not used. Guarded by cache::tests.
        unsafe { copy(self.memory.frame(glance.number).add(offset), into.as_mut_ptr(), into.len()) }
    }

    /// Whether the page, and its bytes, have stayed what they were when looked at.
    #[inline]
    pub fn is_as_seen(&self, glance: Glance) -> bool {
        self.frames[glance.number as usize].is_as_seen(glance.seen)
    }

    /// Latches the page that a slot names if it is there and nobody else has the latch. The caller has the
    /// page's range exclusively.
    #[inline]
    pub fn latch(&self, slot: &AtomicU32) -> Option<Latched<'_>> {
        // Acquire: pairs as in `find`.
        let named = slot.load(Ordering::Acquire);
        let number = named.checked_sub(1)?;
        let frame = &self.frames[number as usize];
        if !frame.try_latch_unpinned() {
            return None;
        }
        let latched = Latched::new(frame, self.memory.frame(number));
        // Acquire: as in `find`. While the latch is held the frame cannot leave.
        (slot.load(Ordering::Acquire) == named).then_some(latched)
    }

    /// Takes the page out of the cache without writing it. Waits for pins to go: the caller has the page's
    /// range exclusively and no write-back of the file is running.
    pub fn remove(&self, slot: &AtomicU32) -> Option<Removed> {
        let mut round = 0;
        loop {
            // Acquire: pairs with the Release in `leave_slot`: at 0 nobody uses the slot any more.
            let named = slot.load(Ordering::Acquire);
            if named == 0 {
                return None;
            }
            let frame = &self.frames[(named - 1) as usize];
            // The slot may be left, and the frame reused, between the load and the claim: then the frame's
            // slot is another one, and it is put back as it was.
            if let Some(flags) = frame.claim(FrameState::empty()) {
                // Relaxed: this thread holds the frame.
                if std::ptr::eq(frame.slot.load(Ordering::Relaxed), slot) {
                    self.leave_slot(frame);
                    if flags.contains(FrameState::DIRTY) {
                        self.count_dirty(false);
                    }
                    self.give_back(named - 1);
                    return Some(Removed { flags });
                }
                frame.publish(flags);
                frame.unpin();
            }
            pause(&mut round);
        }
    }
}
