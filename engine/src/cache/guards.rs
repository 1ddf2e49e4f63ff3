//! The guards through which the bytes of a frame are reached.

#![allow(unsafe_code, reason = "a leaf module: the bytes of frames behind their guards")]

use super::copy::copy;
use super::frame::{Frame, FrameState, PageId, Seen};
use super::index::Slot;
use super::pool::{FramePool, pause};
use crate::device::BLOCK_SIZE;
use crate::sync::atomic::Ordering;
use std::ops::Range;

/// A frame that was found and is pinned.
#[derive(Debug)]
pub struct Found<'p> {
    pub(super) pool: &'p FramePool,
    pub(super) number: u32,
}

/// A page that was looked at without a pin.
#[derive(Debug, Clone, Copy)]
pub struct Glance {
    pub(super) number: u32,
    pub(super) seen: Seen,
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
    pub(super) pool: &'p FramePool,
    pub(super) number: u32,
}

impl<'p> Fresh<'p> {
    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8; BLOCK_SIZE] {
        // SAFETY: rule 1: a busy frame belongs to one thread, and `self` is that ownership. Guarded by
        // cache::tests.
        unsafe { &mut *self.pool.memory.frame(self.number).cast() }
    }

    /// Gives the frame's memory back to the system. It stays busy; its number is the caller's.
    pub(super) fn retire(self) -> u32 {
        let number = self.number;
        // SAFETY: rule 1, as above. Guarded by `indexes_are_paid_for_with_frames`.
        unsafe { self.pool.memory.release(number, 1) };
        std::mem::forget(self);
        number
    }

    /// Puts the frame in the slot of a page, pinned, with these flags and dirty bytes; gives it back if the slot is taken.
    pub fn publish(
        self,
        slot: &Slot,
        page: PageId,
        flags: FrameState,
        dirty: Range<usize>,
    ) -> Result<Found<'p>, Fresh<'p>> {
        let pool = self.pool;
        let frame = &pool.frames[self.number as usize];
        frame.set_dirty_bytes(dirty);
        frame.set_page(page);
        // Relaxed: `publish` below releases it.
        frame.slot.store(std::ptr::from_ref(slot).cast_mut(), Ordering::Relaxed);
        let comes_back = |left| pool.eviction.comes_back_hot(&pool.frames, left);
        let class = match slot.left_at().is_some_and(comes_back) {
            true => FrameState::HOT | FrameState::REFERENCED,
            false => FrameState::empty(),
        };
        if !slot.name(self.number) {
            pool.eviction.left(class);
            return Err(self);
        }
        if flags.contains(FrameState::DIRTY) {
            pool.count_dirty(true);
        }
        if !class.is_empty() {
            pool.counters.returned.add(1);
        }
        frame.publish(flags | class);
        pool.eviction.joins(&pool.frames, self.number);
        let found = Found { pool, number: self.number };
        std::mem::forget(self);
        Ok(found)
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        self.pool.free.give_back(self.number, &self.pool.memory);
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
        unsafe { copy(self.pool.memory.frame(self.number).add(offset), into.as_mut_ptr(), into.len()) }
    }

    /// Waits for the latch, for the length of a copy at most.
    #[inline]
    pub fn latch(&self) -> Latched<'_> {
        let frame = self.frame();
        let mut round = 0;
        while !frame.try_latch() {
            pause(&mut round);
        }
        Latched::new(frame, self.pool.memory.frame(self.number))
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

    /// The kernel has the page in a cache of its own now, or will have: it need not stay here.
    pub fn lend(&self) {
        self.pool.eviction.lend(&self.pool.frames, self.number);
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

impl<'f> Latched<'f> {
    /// The latch that was just taken of a frame with these bytes.
    pub(super) fn new(frame: &'f Frame, bytes: *mut u8) -> Latched<'f> {
        Latched { frame, bytes }
    }

    /// Copies bytes in. The caller has the page's range exclusively.
    #[inline]
    pub fn write(&mut self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= BLOCK_SIZE, "a write within the page");
        // SAFETY: within the frame, as just checked; `from` is another object; rule 6: the latch keeps
        // write-back's copy away, the range everybody else. Guarded by cache::tests.
        unsafe { copy(from.as_ptr(), self.bytes.add(offset), from.len()) }
    }

    /// The flags at this moment.
    #[inline]
    pub fn flags(&self) -> FrameState {
        self.frame.flags()
    }

    /// Adds to the dirty bytes of a page that is dirty, and not synced, already.
    #[inline]
    pub fn stays_dirty(&self, range: Range<usize>) {
        let old = self.frame.dirty_bytes();
        self.frame.set_dirty_bytes(old.start.min(range.start)..old.end.max(range.end));
    }

    /// Zeroes bytes, as `write`.
    pub fn zero(&mut self, range: Range<usize>) {
        self.write(range.start, &[0; BLOCK_SIZE][range]);
    }

    /// Zeroes bytes of an inherited frame that nobody can find yet, and that is not latched.
    pub(super) fn zero_unlatched(mut self, range: Range<usize>) {
        self.zero(range);
        std::mem::forget(self);
    }

    /// Copies bytes out, of whole sectors that no writer is in the middle of.
    pub fn copy(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= BLOCK_SIZE, "a copy within the page");
        // SAFETY: within the frame; rule 6: the latch keeps writers away. Guarded by cache::tests.
        unsafe { std::ptr::copy_nonoverlapping(self.bytes.add(offset), into.as_mut_ptr(), into.len()) }
    }

    /// As [`Latched::copy`], to the end of a buffer.
    pub fn append(&self, bytes: Range<usize>, to: &mut Vec<u8>) {
        assert!(bytes.start <= bytes.end && bytes.end <= BLOCK_SIZE, "a copy within the page");
        let len = bytes.len();
        to.reserve(len);
        let filled = to.len();
        // SAFETY: the source as in `copy`; the target is the room just reserved behind what the buffer holds, and all
        // of it is written before it counts. Guarded by cache::tests.
        unsafe {
            let room = to.spare_capacity_mut().as_mut_ptr().cast::<u8>();
            std::ptr::copy_nonoverlapping(self.bytes.add(bytes.start), room, len);
            to.set_len(filled + len);
        }
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
