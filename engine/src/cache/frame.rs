//! A frame's state word and what else is known of it.
//!
//! Where a mount outlives its server the table of frames lies in memory that a successor takes over: what is said there
//! of a dirty frame, and its bytes, are all that is left of unsynced data. So `DIRTY` or `WRITEBACK` stands in the word for
//! as long as the frame may hold what neither the device nor the journal has, and the page is stored before either.

use super::index::Slot;
use crate::format::Nid;
use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

bitflags::bitflags! {
    /// The flags of a frame. The bits below them in the same word count pins, those above are its version.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FrameState: u64 {
        /// The bytes may be written, or copied for write-back, by the holder alone.
        const LATCH = 1 << 20;
        /// The bytes are newer than the home copy.
        const DIRTY = 1 << 21;
        /// A write of these bytes is in flight, or the record that makes it reachable is not yet logged.
        const WRITEBACK = 1 << 22;
        /// Dirty, but a committed record of the journal holds what is new.
        const SYNCED = 1 << 23;
        /// Used again since it came in, or since the hand came by.
        const REFERENCED = 1 << 24;
        /// Belongs to one thread and cannot be pinned.
        const BUSY = 1 << 25;
        /// The file has a written block for this page.
        const MAPPED = 1 << 26;
        /// Dirty, without a block: one reserved block is this page's.
        const RESERVED = 1 << 27;
        /// Of the class that gives way last.
        const HOT = 1 << 28;
        /// Read before anybody asked for it: the next use is the first.
        const AHEAD = 1 << 29;
        /// The kernel has a copy of its own.
        const LENT = 1 << 30;
    }
}

/// More than there can be threads.
const PINS: u64 = (1 << 20) - 1;
/// One change of the bytes, or of the page that they are of. Four thousand million of them pass by before a
/// version comes again; a thread that looks at bytes without a pin has long looked away.
const VERSION: u64 = 1 << 32;

/// The version of a frame when it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen(u64);

/// What a look at a page is, for eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// None: the page is written home, or another part of it is read by a thread that has just read one.
    No,
    /// A use.
    Yes,
    /// The kernel asks for a cache of its own: a use only if it has asked before.
    ByKernel,
}

impl Use {
    /// The state word after it.
    #[inline]
    fn change(self, word: u64) -> u64 {
        let asked_before = FrameState::LENT | FrameState::HOT;
        if self == Use::No {
            word
        } else if word & FrameState::AHEAD.bits() != 0 {
            word & !FrameState::AHEAD.bits()
        } else if self == Use::Yes || word & asked_before.bits() != 0 {
            word | FrameState::REFERENCED.bits()
        } else {
            word
        }
    }
}

/// Which page of which file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageId {
    /// The file.
    pub nid: Nid,
    /// The generation of its number.
    pub generation: u32,
    /// The page's number.
    pub page: u64,
}

/// A frame: type-stable, so any thread may look at any frame at any time. It has a cache line to itself: its
/// neighbours are often other files' and other cores'.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Frame {
    state: AtomicU64,
    /// The index slot that names the frame; changed only by the holder of `BUSY`.
    pub(super) slot: AtomicPtr<Slot>,
    /// First and last-plus-one dirty byte in 16 bits each; changed only under the latch.
    dirty: AtomicU32,
    /// The page that it holds, for a successor of this process; changed only by the holder of `BUSY`.
    generation: AtomicU32,
    nid: AtomicU64,
    page: AtomicU64,
    /// Marks of the queues of [`super::evict`].
    pub(super) in_cold: AtomicBool,
    pub(super) in_lent: AtomicBool,
}

/// To be called by a thread that got a busy frame from another thread, before it writes the bytes.
#[inline]
pub(super) fn taken_over() {
    // Release: as in `claim`, whose fence was another thread's and says nothing of what this one writes. Pairs with the
    // Acquire fence of `validate`.
    fence(Ordering::Release);
}

impl Frame {
    pub(super) const fn bytes() -> usize {
        size_of::<Frame>()
    }

    pub(super) fn new() -> Frame {
        Frame {
            state: AtomicU64::new(FrameState::BUSY.bits()),
            slot: AtomicPtr::new(std::ptr::null_mut()),
            dirty: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            nid: AtomicU64::new(0),
            page: AtomicU64::new(0),
            in_cold: AtomicBool::new(false),
            in_lent: AtomicBool::new(false),
        }
    }

    pub(super) fn flags(&self) -> FrameState {
        // Acquire: pairs with the Release of any thread that set a flag, so that what the flag says is seen.
        FrameState::from_bits_truncate(self.state.load(Ordering::Acquire))
    }

    /// Adds a pin unless the frame is busy.
    #[inline]
    pub(super) fn pin(&self, by: Use) -> bool {
        // Relaxed: the exchange below decides.
        let mut seen = self.state.load(Ordering::Relaxed);
        loop {
            if seen & FrameState::BUSY.bits() != 0 {
                return false;
            }
            let new = by.change(seen) + 1;
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
        // Relaxed: this thread holds the frame, and nobody else changes its word.
        let version = self.state.load(Ordering::Relaxed) / VERSION * VERSION;
        let state = version + flags.bits() + 1;
        // Release: pairs with the Acquire in `pin`, for the bytes and the slot address. A store is enough:
        // nobody else changes the word of a busy frame.
        self.state.store(state, Ordering::Release);
    }

    /// From unpinned, unlatched, with none of `without`, to busy. Gives the flags it had.
    pub(super) fn claim(&self, without: FrameState) -> Option<FrameState> {
        self.claim_with(0, without)
    }

    /// The same by the only one who has a pin, which goes.
    pub(super) fn claim_pinned(&self) -> Option<FrameState> {
        self.claim_with(1, FrameState::empty())
    }

    fn claim_with(&self, pins: u64, without: FrameState) -> Option<FrameState> {
        let without = without | FrameState::LATCH | FrameState::WRITEBACK | FrameState::BUSY;
        // Relaxed: the exchange below decides.
        let seen = self.state.load(Ordering::Relaxed);
        if seen & (PINS | without.bits()) != pins {
            return None;
        }
        let busy = (seen / VERSION).wrapping_add(1).wrapping_mul(VERSION) | FrameState::BUSY.bits();
        // Acquire: pairs with the Release of `unpin` and `unlatch`: their accesses are over. Relaxed on
        // failure: the caller looks again or elsewhere.
        let claimed = self.state.compare_exchange(seen, busy, Ordering::Acquire, Ordering::Relaxed);
        let flags = claimed.ok().map(FrameState::from_bits_truncate);
        // Release: pairs with the Acquire fence of `validate`: a thread that reads what is written from here on sees
        // that the frame is busy.
        fence(Ordering::Release);
        flags
    }

    /// Takes the latch if it is free and the frame is not busy, without a pin: while it is latched it cannot be
    /// claimed. Its page is known only after another look at the slot.
    #[inline]
    pub(super) fn try_latch_unpinned(&self) -> bool {
        let not = FrameState::LATCH | FrameState::BUSY;
        // Relaxed: the exchange decides.
        let seen = self.state.load(Ordering::Relaxed);
        let latched = seen | FrameState::LATCH.bits();
        // Acquire: as in `try_latch` and `pin`. Relaxed on failure: the caller looks again.
        let got = seen & not.bits() == 0
            && self.state.compare_exchange(seen, latched, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Release: as in `try_latch`.
        fence(Ordering::Release);
        got
    }

    /// Takes the latch if it is free. The caller has a pin.
    #[inline]
    pub(super) fn try_latch(&self) -> bool {
        // Acquire: pairs with the Release of `unlatch`, for bytes and dirty range.
        let got = self.state.fetch_or(FrameState::LATCH.bits(), Ordering::Acquire);
        // Release: pairs with the Acquire fence of `validate`: a thread that reads what is written under the latch
        // sees that it is held, or that the version has changed.
        fence(Ordering::Release);
        got & FrameState::LATCH.bits() == 0
    }

    /// Gives the latch back, with the next version.
    #[inline]
    pub(super) fn unlatch(&self) {
        // Release: pairs with the Acquire of `try_latch`, `see` and `flags`.
        self.state.fetch_add(VERSION - FrameState::LATCH.bits(), Ordering::Release);
    }

    /// Looks at a frame that is to be read without a pin. None: its bytes are being changed.
    #[inline]
    pub(super) fn see(&self, by: Use) -> Option<Seen> {
        // Acquire: pairs with the Release of `publish` and `unlatch`, for the bytes and for what the writer's
        // range says.
        let state = self.state.load(Ordering::Acquire);
        if state & (FrameState::LATCH | FrameState::BUSY).bits() != 0 {
            return None;
        }
        if by.change(state) != state {
            // Relaxed: hints for eviction. Once for each of its rounds, so that readers write nothing else.
            if state & FrameState::AHEAD.bits() != 0 {
                self.state.fetch_and(!FrameState::AHEAD.bits(), Ordering::Relaxed);
            } else {
                self.state.fetch_or(FrameState::REFERENCED.bits(), Ordering::Relaxed);
            }
        }
        Some(Seen(state / VERSION))
    }

    /// Whether the bytes read since the frame was seen are those of one version.
    #[inline]
    pub(super) fn validate(&self, seen: Seen) -> bool {
        // Acquire: pairs with the Release fences of `claim` and `try_latch`: bytes that a later holder wrote show
        // the holder.
        fence(Ordering::Acquire);
        // Relaxed: the fence orders it.
        let state = self.state.load(Ordering::Relaxed);
        state & (FrameState::LATCH | FrameState::BUSY).bits() == 0 && state / VERSION == seen.0
    }

    /// Changes flags of its class, of a frame that is not busy and has none of `without`; false if it is, or has.
    fn reclass(&self, without: FrameState, add: FrameState, remove: FrameState) -> bool {
        let without = (without | FrameState::BUSY).bits();
        // Relaxed: the exchange below decides.
        let mut seen = self.state.load(Ordering::Relaxed);
        while seen & without == 0 {
            let new = (seen | add.bits()) & !remove.bits();
            // Relaxed: its class says nothing of anything else; what others released stays released, for this changes
            // the word in one step.
            match self.state.compare_exchange_weak(seen, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// From cold and used to hot; false if it has been taken meanwhile.
    pub(super) fn warm(&self) -> bool {
        self.reclass(FrameState::HOT, FrameState::HOT, FrameState::LENT)
    }

    /// From hot to cold; false if it is not hot any more.
    pub(super) fn cool(&self) -> bool {
        // Relaxed: the exchange below decides.
        let was = self.state.load(Ordering::Relaxed);
        let hot = FrameState::HOT.bits();
        was & hot != 0
            && was & FrameState::BUSY.bits() == 0
            // Relaxed: as in `reclass`. The mark of the queue orders what follows.
            && self.state.compare_exchange(was, was & !hot, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Notes that the kernel has a copy; false if that is known, or the page is hot.
    pub(super) fn lend(&self) -> bool {
        self.reclass(FrameState::HOT | FrameState::LENT, FrameState::LENT, FrameState::empty())
    }

    pub(super) fn set(&self, flags: FrameState) {
        // Release: pairs with the Acquire in `flags` and `claim`: what the flag speaks of is done.
        self.state.fetch_or(flags.bits(), Ordering::Release);
    }

    pub(super) fn clear(&self, flags: FrameState) {
        // Release: as in `set`.
        self.state.fetch_and(!flags.bits(), Ordering::Release);
    }

    /// Notes the page that a busy frame is about to hold.
    #[inline]
    pub(super) fn set_page(&self, id: PageId) {
        // Relaxed, all: `publish` releases them.
        self.nid.store(id.nid, Ordering::Relaxed);
        self.generation.store(id.generation, Ordering::Relaxed);
        self.page.store(id.page, Ordering::Relaxed);
    }

    /// The page that a predecessor has left here, if it may be nowhere else. What is synced counts: the flag is set before
    /// the record is logged. And all of its bytes: those that a record was to hold are not among the dirty ones any more.
    pub(super) fn inherited(&self) -> Option<PageId> {
        let flags = self.flags();
        let is_newer = flags.intersects(FrameState::DIRTY | FrameState::WRITEBACK);
        // Relaxed, all: nobody else has the memory.
        (is_newer && !flags.contains(FrameState::BUSY)).then(|| PageId {
            nid: self.nid.load(Ordering::Relaxed),
            generation: self.generation.load(Ordering::Relaxed),
            page: self.page.load(Ordering::Relaxed),
        })
    }

    /// Takes over an inherited frame, with one pin. Not for a moment is it not dirty.
    pub(super) fn take_over(&self, flags: FrameState) {
        self.in_cold.store(false, Ordering::Relaxed);
        self.in_lent.store(false, Ordering::Relaxed);
        // Release: as in `publish`.
        self.state.store((flags | FrameState::DIRTY).bits() + 1, Ordering::Release);
    }

    /// Makes a frame of a predecessor's a free one.
    pub(super) fn reset(&self) {
        self.state.store(FrameState::BUSY.bits(), Ordering::Relaxed);
        self.slot.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.in_cold.store(false, Ordering::Relaxed);
        self.in_lent.store(false, Ordering::Relaxed);
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
