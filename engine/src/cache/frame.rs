//! A frame's state word and what else is known of it.

use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

bitflags::bitflags! {
    /// The flags of a frame; the low bits of the same word count pins.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FrameState: u64 {
        /// The bytes may be written, or copied for write-back, by the holder alone.
        const LATCH = 1 << 32;
        /// The bytes are newer than the home copy.
        const DIRTY = 1 << 33;
        /// A write of these bytes is in flight, or the record that makes it reachable is not yet logged.
        const WRITEBACK = 1 << 34;
        /// Dirty, but a committed record of the journal holds what is new.
        const SYNCED = 1 << 35;
        /// Used since the clock's hand came by.
        const REFERENCED = 1 << 36;
        /// Belongs to one thread and cannot be pinned.
        const BUSY = 1 << 37;
        /// The file has a written block for this page.
        const MAPPED = 1 << 38;
        /// Dirty, without a block: one reserved block is this page's.
        const RESERVED = 1 << 39;
    }
}

const PINS: u64 = (1 << 32) - 1;

/// A frame: type-stable, so any thread may look at any frame at any time.
#[derive(Debug)]
pub(super) struct Frame {
    state: AtomicU64,
    /// The index slot that names the frame; changed only by the holder of `BUSY`.
    pub(super) slot: AtomicPtr<AtomicU32>,
    /// First and last-plus-one dirty byte in 16 bits each; changed only under the latch.
    dirty: AtomicU32,
}

impl Frame {
    pub(super) fn new() -> Frame {
        Frame {
            state: AtomicU64::new(FrameState::BUSY.bits()),
            slot: AtomicPtr::new(std::ptr::null_mut()),
            dirty: AtomicU32::new(0),
        }
    }

    pub(super) fn flags(&self) -> FrameState {
        // Acquire: pairs with the Release of whoever set a flag, so that what the flag says is seen.
        FrameState::from_bits_truncate(self.state.load(Ordering::Acquire) & !PINS)
    }

    /// Adds a pin unless the frame is busy.
    #[inline]
    pub(super) fn pin(&self) -> bool {
        // Relaxed: the exchange below decides.
        let mut seen = self.state.load(Ordering::Relaxed);
        loop {
            if seen & FrameState::BUSY.bits() != 0 {
                return false;
            }
            let new = (seen | FrameState::REFERENCED.bits()) + 1;
            // Acquire: pairs with the Release in `publish`, for the bytes. Relaxed on failure: tried again.
            match self.state.compare_exchange_weak(seen, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    #[inline]
    pub(super) fn unpin(&self) {
        // Release: pairs with the Acquire of `claim`: reads through the pin come before reuse.
        self.state.fetch_sub(1, Ordering::Release);
    }

    /// Makes a busy frame findable, with one pin.
    pub(super) fn publish(&self, flags: FrameState) {
        let state = (flags | FrameState::REFERENCED).bits() + 1;
        // Release: pairs with the Acquire in `pin`, for the bytes and the slot address. A store is enough:
        // nobody else changes the word of a busy frame.
        self.state.store(state, Ordering::Release);
    }

    /// From unpinned, unlatched, with none of `without`, to busy. Gives the flags it had.
    pub(super) fn claim(&self, without: FrameState) -> Option<FrameState> {
        let without = without | FrameState::LATCH | FrameState::WRITEBACK | FrameState::BUSY;
        // Relaxed: the exchange below decides.
        let seen = self.state.load(Ordering::Relaxed);
        if seen & (PINS | without.bits()) != 0 {
            return None;
        }
        // Acquire: pairs with the Release of `unpin` and `unlatch`: their accesses are over. Relaxed on
        // failure: the caller looks again or elsewhere.
        self.state
            .compare_exchange(seen, FrameState::BUSY.bits(), Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(FrameState::from_bits_truncate)
    }

    /// Takes the latch if it is free.
    #[inline]
    pub(super) fn try_latch(&self) -> bool {
        // Acquire: pairs with the Release of `unlatch`, for bytes and dirty range.
        self.state.fetch_or(FrameState::LATCH.bits(), Ordering::Acquire) & FrameState::LATCH.bits() == 0
    }

    #[inline]
    pub(super) fn unlatch(&self) {
        // Release: pairs with the Acquire of `try_latch`.
        self.state.fetch_and(!FrameState::LATCH.bits(), Ordering::Release);
    }

    pub(super) fn set(&self, flags: FrameState) {
        // Release: pairs with the Acquire in `flags` and `claim`: what the flag speaks of is done.
        self.state.fetch_or(flags.bits(), Ordering::Release);
    }

    pub(super) fn clear(&self, flags: FrameState) {
        // Release: as in `set`.
        self.state.fetch_and(!flags.bits(), Ordering::Release);
    }

    pub(super) fn dirty_bytes(&self) -> std::ops::Range<usize> {
        // Relaxed: read and written under the latch, or by the holder of a busy frame.
        let packed = self.dirty.load(Ordering::Relaxed);
        (packed & 0xffff) as usize..(packed >> 16) as usize
    }

    pub(super) fn set_dirty_bytes(&self, range: std::ops::Range<usize>) {
        // Relaxed: as above.
        self.dirty.store(range.start as u32 | (range.end as u32) << 16, Ordering::Relaxed);
    }
}
