//! The pool: free lists, the clock, and the guards through which bytes are reached.

use super::frame::{Frame, FrameState};
use super::memory::FrameMemory;
use crate::Result;
use crate::device::BLOCK_SIZE;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::sync::{CachePadded, LaneCounter, Mutex, available_cores, hint, thread};
use std::ops::Range;

/// A bounded number of frames.
#[derive(Debug)]
pub struct FramePool {
    memory: FrameMemory,
    frames: Box<[Frame]>,
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

/// A frame that was found and is pinned.
#[derive(Debug)]
pub struct Found<'p> {
    pool: &'p FramePool,
    number: u32,
}

/// The latch of a found frame.
#[derive(Debug)]
pub struct Latched<'f> {
    frame: &'f Frame,
    bytes: *mut u8,
}

/// A frame that nobody else can see. Its bytes are whatever they were: fill them before publishing.
#[derive(Debug)]
pub struct Fresh<'p> {
    pool: &'p FramePool,
    number: u32,
}

/// What a page was when it left the cache.
#[derive(Debug, Clone, Copy)]
pub struct Removed {
    /// Its flags.
    pub flags: FrameState,
}

/// Waits for another thread's few instructions.
fn pause(round: &mut u32) {
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

    fn count_dirty(&self, more: bool) {
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

    fn give_back(&self, number: u32) {
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

impl<'p> Fresh<'p> {
    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8; BLOCK_SIZE] {
        // SAFETY: rule 1: a busy frame belongs to one thread, and `self` is that ownership. Guarded by
        // cache::tests.
        unsafe { &mut *self.pool.memory.frame(self.number).cast() }
    }

    /// Puts the frame in a slot, pinned, with these flags and dirty bytes; gives it back if the slot is taken.
    pub fn publish(
        self,
        slot: &AtomicU32,
        flags: FrameState,
        dirty: Range<usize>,
    ) -> Result<Found<'p>, Fresh<'p>> {
        let frame = &self.pool.frames[self.number as usize];
        frame.set_dirty_bytes(dirty);
        // Relaxed: `publish` below releases it.
        frame.slot.store(std::ptr::from_ref(slot).cast_mut(), Ordering::Relaxed);
        // Release: pairs with the Acquire in `find`: who sees the number sees the frame busy or published,
        // never its state from before it was taken. Relaxed on failure: nothing was read through the slot.
        if slot.compare_exchange(0, self.number + 1, Ordering::Release, Ordering::Relaxed).is_err() {
            return Err(self);
        }
        if flags.contains(FrameState::DIRTY) {
            self.pool.count_dirty(true);
        }
        frame.publish(flags);
        let found = Found { pool: self.pool, number: self.number };
        std::mem::forget(self);
        Ok(found)
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        self.pool.give_back(self.number);
    }
}

impl Found<'_> {
    #[inline]
    fn frame(&self) -> &Frame {
        &self.pool.frames[self.number as usize]
    }

    /// The flags at this moment.
    pub fn flags(&self) -> FrameState {
        self.frame().flags()
    }

    /// Copies bytes out. The caller shares the page's range, so that nobody writes them.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= BLOCK_SIZE, "a read within the page");
        // SAFETY: within the frame, as just checked; `into` is another object; rule 6 keeps writers away.
        // Guarded by cache::tests.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.pool.memory.frame(self.number).add(offset),
                into.as_mut_ptr(),
                into.len(),
            );
        }
    }

    /// Waits for the latch, for the length of a copy at most.
    #[inline]
    pub fn latch(&self) -> Latched<'_> {
        let frame = self.frame();
        let mut round = 0;
        while !frame.try_latch() {
            pause(&mut round);
        }
        Latched { frame, bytes: self.pool.memory.frame(self.number) }
    }

    /// Sets `DIRTY` for these bytes and takes `SYNCED` away; true if the page was clean or synced, so that it
    /// must join the file's dirty pages. Under the latch.
    #[inline]
    pub fn mark_dirty(&self, latched: &Latched<'_>, range: Range<usize>) -> bool {
        let flags = latched.frame.flags();
        let clean = !flags.contains(FrameState::DIRTY);
        let fresh = clean || flags.contains(FrameState::SYNCED);
        // What an absorbed record holds is no longer what is to be logged next.
        let union = if fresh {
            range
        } else {
            let old = latched.frame.dirty_bytes();
            old.start.min(range.start)..old.end.max(range.end)
        };
        latched.frame.set_dirty_bytes(union);
        if flags.contains(FrameState::SYNCED) {
            latched.frame.clear(FrameState::SYNCED);
        }
        if clean {
            latched.frame.set(FrameState::DIRTY);
            self.pool.count_dirty(true);
        }
        fresh
    }

    /// Takes `DIRTY` and `SYNCED` away and sets `WRITEBACK`. Under the latch, of a dirty page.
    pub fn start_write_back(&self, latched: &Latched<'_>) {
        latched.frame.set(FrameState::WRITEBACK);
        latched.frame.clear(FrameState::DIRTY | FrameState::SYNCED);
        self.pool.count_dirty(false);
    }

    /// The write is over and, where needed, recorded: the page has a written block.
    pub fn end_write_back(&self) {
        let frame = self.frame();
        frame.set(FrameState::MAPPED);
        frame.clear(FrameState::WRITEBACK | FrameState::RESERVED);
    }

    /// The write failed: the whole page is dirty, whatever came meanwhile.
    pub fn fail_write_back(&self) {
        let latched = self.latch();
        self.mark_dirty(&latched, 0..BLOCK_SIZE);
        latched.frame.clear(FrameState::WRITEBACK);
    }

    /// Sets flags that the caller's locks protect.
    pub fn set(&self, flags: FrameState) {
        self.frame().set(flags);
    }

    /// Clears flags that the caller's locks protect.
    pub fn clear(&self, flags: FrameState) {
        self.frame().clear(flags);
    }
}

impl Drop for Found<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frame().unpin();
    }
}

impl Latched<'_> {
    /// Copies bytes in. The caller has the page's range exclusively.
    #[inline]
    pub fn write(&mut self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= BLOCK_SIZE, "a write within the page");
        // SAFETY: within the frame, as just checked; `from` is another object; rule 6: the latch keeps
        // write-back's copy away, the range everybody else. Guarded by cache::tests.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.bytes.add(offset), from.len()) }
    }

    /// Zeroes bytes, as `write`.
    pub fn zero(&mut self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= BLOCK_SIZE, "zeros within the page");
        // SAFETY: as in `write`.
        unsafe { std::ptr::write_bytes(self.bytes.add(range.start), 0, range.len()) }
    }

    /// Copies bytes out, of whole sectors that no writer is in the middle of.
    pub fn copy(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= BLOCK_SIZE, "a copy within the page");
        // SAFETY: within the frame; rule 6: the latch keeps writers away. Guarded by cache::tests.
        unsafe { std::ptr::copy_nonoverlapping(self.bytes.add(offset), into.as_mut_ptr(), into.len()) }
    }

    /// The bytes that are newer than the home copy, or than the absorbed one.
    pub fn dirty_bytes(&self) -> Range<usize> {
        self.frame.dirty_bytes()
    }
}

impl Drop for Latched<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frame.unlatch();
    }
}
