//! The page cache: a bounded pool of 4 KiB frames, and for each file an index that finds them without a lock.
//!
//! It knows bytes, pins and states; what a page of a file means, where it lies and when it is written is the
//! business of [`crate::file`], whose range lock keeps readers and writers of one page apart.
//!
//! # Protocol
//! Fields: a frame's *state word* (pins, latch, flags, version), its *slot address* (the place in a file's index that
//! names it) and its bytes; an index *slot* names a frame or none.
//!
//! 1. A frame whose state has `BUSY` belongs to one thread, which alone touches its bytes and its slot
//!    address: it is on a free list, being filled, or being taken out of an index.
//! 2. *Publish* (holder of `BUSY`): fill the bytes, store the slot address, change the slot from none to the
//!    number, then store a state without `BUSY` and with one pin (Release). If the slot named one the frame
//!    stays with its holder.
//! 3. *Find*: load the slot; none is a miss. Add a pin by compare-and-swap (Acquire) unless the state has
//!    `BUSY`, then look at the slot again: if it still names the frame, the pin is good; otherwise take it back
//!    and start again. `BUSY` means that the frame comes or goes within a few instructions: start again.
//! 4. *Evict*, *remove*: by compare-and-swap from a state without pins, latch and `WRITEBACK` (to evict, also
//!    without `DIRTY`) to `BUSY`, then take the number out of the slot (Release), which after an eviction tells when
//!    that was. From then on the slot address is not used.
//! 5. A slot that names a frame is changed only by the holder of its `BUSY`; so a frame that is found in a
//!    slot, pinned and found again in the slot is the page of that slot, whatever it was in between.
//! 6. Bytes of a published frame are written under its latch by a thread that has a pin and the page's range
//!    exclusively. Readers hold a pin and share the range; write-back, which holds no range, copies under the
//!    latch. The latch is never held across a sleep.
//!    A latch taken without a pin holds the frame as a pin does: it cannot be claimed.
//! 7. An index lives until its slots name none ([`FramePool::remove`] of each); a holder of `BUSY` that took
//!    the frame from a slot touches the slot while it names the frame, never after. So slot addresses never dangle.
//! 8. *Optimistic read*: to read without a pin, and so without a write to anything shared, load the slot, then the state;
//!    latched or `BUSY` is a refusal; load the slot again: it must name the frame still. Copy the bytes. Then
//!    look at the state again: if the version is the same, with neither latch nor `BUSY`, the bytes are those of
//!    the page at the moment of the first look. The version changes when the latch is given back and when a
//!    frame is taken out of an index; a fence (Release) follows the taking of either, and another thread's taking over
//!    of a free frame, and one (Acquire) precedes the last look, so a thread that has read a byte that was written
//!    later sees the latch, `BUSY` or the version.

mod available;
mod copy;
mod evict;
mod frame;
mod frame_table;
mod free;
mod guards;
mod index;
#[cfg(all(test, loom))]
mod loom_models;
mod memory;
#[cfg(all(test, not(any(loom, shuttle))))]
mod policy;
mod pool;
mod retired;
mod ring;
#[cfg(all(test, not(loom)))]
mod tests;
mod warm;

pub use available::{available_memory, most_memory};
pub use frame::{FrameState, PageId, Use};
pub use frame_table::Inherited;
pub use guards::{Found, Fresh, Latched, OptimisticRead};
pub use index::{PageIndex, Slot};
pub use pool::{CacheStats, FRAME_BYTES, FramePool, Removed};
