//! A metadata page in memory.
//!
//! A page knows its bytes, the highest journal position applied to it, and what is to be done with it. It
//! does not know the table that finds it, nor when it is written.
//!
//! # States
//! | bits | meaning | on a dirty list |
//! | --- | --- | --- |
//! | none | clean: the home copy has these bytes | no |
//! | DIRTY | changed since its last image was taken | yes |
//! | WRITEBACK | claimed: an image of it is on its way home | no |
//! | DIRTY, WRITEBACK | changed again meanwhile | no: put there when the write is over |
//!
//! FORGOTTEN is set once, when the block is freed: it leaves its list, and is never claimed again, nor marked dirty, not
//! even should a write of it that was under way fail.
//! Invariants: bytes and position change only under the exclusive latch, and DIRTY is set before that latch
//! is dropped; whoever changes CLEAN to DIRTY puts the page on a list, exactly once; an image is copied after
//! the claim, so a change that it lacks finds DIRTY clear and sets it.

use std::fmt;

use zerocopy::FromBytes;

use super::delta::{self, Delta};
use super::dirty::Seat;
use crate::device::BLOCK_SIZE;
use crate::format::{BlockHeader, BlockKind, Position};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, RwLock, RwLockWriteGuard};

const DIRTY: u32 = 1;
const WRITEBACK: u32 = 2;
const FORGOTTEN: u32 = 4;
const REFERENCED: u32 = 8;
const LOADED: u32 = 16;

/// A page, shared.
pub type PageRef = Arc<Page>;

/// One metadata block in memory.
pub struct Page {
    block: u64,
    kind: BlockKind,
    state: AtomicU32,
    seat: Seat,
    latch: RwLock<Body>,
}

/// What the latch protects. Bytes come first and begin with a cache line: inodes of a node block, which have lines of
/// their own on media, then have them in memory too.
#[repr(C, align(64))]
pub(crate) struct Body {
    /// The block's bytes. Checksums and the header's position are those of the last image, not of these bytes.
    pub bytes: [u8; BLOCK_SIZE],
    /// End (exclusive) of the highest record applied.
    pub position: Position,
    /// For each place written by [`Body::write_if_newer`]: end of the record that wrote it last.
    newest: Vec<(u16, Position)>,
}

impl Body {
    /// Applies a delta of the record that ends at `end`.
    pub fn apply(&mut self, delta: &Delta<'_>, end: Position) {
        delta.apply(&mut self.bytes);
        self.position = self.position.max(end);
    }

    /// Writes bytes unless a later record has written them this way: two records that do not exclude each
    /// other may be applied in either order, but redo applies them by position.
    pub fn write_if_newer(&mut self, offset: usize, bytes: &[u8], end: Position) {
        match self.newest.iter_mut().find(|(at, _)| usize::from(*at) == offset) {
            Some((_, newest)) if *newest > end => return,
            Some((_, newest)) => *newest = end,
            None => self.newest.push((offset as u16, end)),
        }
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.position = self.position.max(end);
    }
}

impl Page {
    fn with_state(block: u64, kind: BlockKind, state: u32) -> PageRef {
        let body = Body { bytes: [0; BLOCK_SIZE], position: 0, newest: Vec::new() };
        Arc::new(Page {
            block,
            kind,
            state: AtomicU32::new(state),
            seat: Seat::here(),
            latch: RwLock::new(body),
        })
    }

    /// A page whose bytes are still to be read.
    pub(super) fn unloaded(block: u64, kind: BlockKind) -> PageRef {
        Page::with_state(block, kind, REFERENCED)
    }

    /// A fresh page: zeros and a header.
    pub(super) fn fresh(block: u64, kind: BlockKind, owner: u64, generation: u32) -> PageRef {
        let page = Page::with_state(block, kind, REFERENCED | LOADED);
        delta::head(&mut page.latch.write().bytes, kind, owner, generation);
        page
    }

    /// Its block.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// What it holds.
    pub fn kind(&self) -> BlockKind {
        self.kind
    }

    /// Where it is listed when it is dirty.
    pub(super) fn seat(&self) -> &Seat {
        &self.seat
    }

    /// Reads under the shared latch. `f` is short, takes no lock and reads no other page.
    pub fn read<R>(&self, f: impl FnOnce(&[u8; BLOCK_SIZE]) -> R) -> R {
        f(&self.latch.read().bytes)
    }

    /// A copy of the structure at `offset`, which must lie within the page.
    pub fn read_as<T: FromBytes>(&self, offset: usize) -> T {
        self.read(|bytes| {
            T::read_from_prefix(&bytes[offset..])
                .map_or_else(|_| unreachable!("past the page's end"), |t| t.0)
        })
    }

    /// The block header; of no meaning in a node block.
    pub fn header(&self) -> BlockHeader {
        self.read_as(0)
    }

    /// End (exclusive) of the highest record applied to it in this mount.
    pub fn position(&self) -> Position {
        self.latch.read().position
    }

    /// The exclusive latch.
    pub(crate) fn latch(&self) -> RwLockWriteGuard<'_, Body> {
        self.latch.write()
    }

    /// Copies the bytes and their position.
    pub(crate) fn copy_to(&self, into: &mut [u8]) -> Position {
        let body = self.latch.read();
        into.copy_from_slice(&body.bytes);
        body.position
    }

    /// Whether the bytes are there.
    pub(super) fn is_loaded(&self) -> bool {
        // Acquire: pairs with the Release of `set_loaded`; the latch orders the bytes as well.
        self.state.load(Ordering::Acquire) & LOADED != 0
    }

    /// Says that the bytes are there.
    pub(super) fn set_loaded(&self) {
        // Release: pairs with `is_loaded`.
        self.state.fetch_or(LOADED, Ordering::Release);
    }

    /// Waits for whoever loads it.
    pub(super) fn wait_loaded(&self) {
        drop(self.latch.read());
    }

    /// Marks it changed. The caller holds the exclusive latch, and has the change counted.
    pub(crate) fn mark_dirty(&self) -> Moved {
        // Relaxed: the latch, held by the caller and taken by whoever copies an image, orders the bytes.
        let old = self.state.fetch_or(DIRTY | REFERENCED, Ordering::Relaxed);
        debug_assert!(old & FORGOTTEN == 0, "block {} is changed after it was freed", self.block);
        Moved { old, new: old | DIRTY }
    }

    /// Claims a dirty page for writing: one caller gets it.
    pub(crate) fn claim(&self) -> Option<Moved> {
        let claimed = |state| state & !DIRTY | WRITEBACK;
        // Relaxed on both: the latch orders the bytes, the round's own channel orders claim and finish.
        let old = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
            (state & (DIRTY | WRITEBACK | FORGOTTEN) == DIRTY).then(|| claimed(state))
        });
        old.ok().map(|old| Moved { old, new: claimed(old) })
    }

    /// Ends the write-back; `failed` leaves it dirty, unless its block was freed meanwhile.
    pub(crate) fn finish(&self, failed: bool) -> Moved {
        let again = |state| if failed && state & FORGOTTEN == 0 { DIRTY } else { 0 };
        self.change(|state| state & !WRITEBACK | again(state))
    }

    /// Its block was freed: it is not written any more.
    pub(crate) fn forget(&self) -> Moved {
        self.change(|state| state & !DIRTY | FORGOTTEN)
    }

    fn change(&self, to: impl Fn(u32) -> u32) -> Moved {
        // Relaxed: as in `claim`, which is a read-modify-write of the same word.
        let old = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| Some(to(state)));
        let (Ok(old) | Err(old)) = old;
        Moved { old, new: to(old) }
    }

    /// Whether its block was freed.
    pub fn is_forgotten(&self) -> bool {
        // Relaxed: the caller holds the lock under which the block is reached, or only guesses.
        self.state.load(Ordering::Relaxed) & FORGOTTEN != 0
    }

    /// Whether it waits for a checkpoint or is being written.
    pub fn is_dirty(&self) -> bool {
        // Relaxed: eviction holds the table's lock and the only reference; others only look.
        self.state.load(Ordering::Relaxed) & (DIRTY | WRITEBACK) != 0
    }

    /// Notes a use for the second chance.
    pub(super) fn touch(&self) {
        // Relaxed: a hint. Looked at first, so that hot pages do not bounce between cores.
        if self.state.load(Ordering::Relaxed) & REFERENCED == 0 {
            self.state.fetch_or(REFERENCED, Ordering::Relaxed);
        }
    }

    /// Takes the note away and says whether it was there.
    pub(super) fn take_touch(&self) -> bool {
        // Relaxed: a hint.
        self.state.fetch_and(!REFERENCED, Ordering::Relaxed) & REFERENCED != 0
    }
}

/// A change of state, for [`super::dirty`] to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) struct Moved {
    old: u32,
    new: u32,
}

impl Moved {
    /// What it adds to the number of dirty pages, and to that of pages that are on their way home and not dirty.
    pub fn adds(self) -> (i64, i64) {
        let dirty = |state: u32| i64::from(state & DIRTY != 0);
        let in_flight = |state: u32| i64::from(state & (DIRTY | WRITEBACK) == WRITEBACK);
        (dirty(self.new) - dirty(self.old), in_flight(self.new) - in_flight(self.old))
    }

    /// Whether the page is to be put on a dirty list.
    pub fn lists(self) -> bool {
        is_listed(self.new) && !is_listed(self.old)
    }

    /// Whether the page has no place on a dirty list any more.
    pub fn unlists(self) -> bool {
        is_listed(self.old) && !is_listed(self.new)
    }
}

/// Whether a page in this state is on a dirty list, or about to be put there, or in the hands of who has drained it.
fn is_listed(state: u32) -> bool {
    state & (DIRTY | WRITEBACK) == DIRTY
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: for people.
        let state = self.state.load(Ordering::Relaxed);
        f.debug_struct("Page")
            .field("block", &self.block)
            .field("kind", &self.kind)
            .field("state", &format_args!("{state:#b}"))
            .finish_non_exhaustive()
    }
}
