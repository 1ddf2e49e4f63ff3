//! The content of regular files: reads, writes, and the way of dirty pages to their home places.
//!
//! What this leaves to others: where blocks lie and how that is recorded (`meta`), names, permissions and
//! attributes (`vfs`), frames (`crate::cache`), the states of pages (`pages`).
//!
//! # Parts
//! A [`DataPath`] is made of parts with state of their own, each of which knows only those behind it: the
//! `Flusher`, which has files written in time and gives writers frames; the
//! `DataJournal`, which takes few dirty bytes;
//! `WriteBack`, which brings pages home, with the queue of files that have some, the throttle
//! of writers and the truncations that are pending. `Readahead` and
//! `FrameReservations` stand alone.
//!
//! # Invariants
//! 1. A page is read and written under its range (in whole pages), or by an optimistic read (`read::optimistic`),
//!    which fails if anybody has the range for writing; what the cache holds is what a read gives, and bytes of a
//!    cached page beyond the file's size are zero.
//! 2. *Ordered*: a record that makes blocks reachable, clears *unwritten* or grows the logged size is logged
//!    only after a flush that covers the data. Until then the mapping is volatile.
//! 3. At most one write of a page is under way, and none while its blocks are freed: writes, and the removal of
//!    pages, happen under the file's write-back mutex.
//! 4. Nothing is mapped as written beyond the recorded size, and growing that size needs the zeroed tail of its
//!    last page to be down.
//! 5. A page is dirty, or under write-back, until its bytes are home or absorbed. A failed write makes it dirty again.
//! 6. While the ring holds a live data record of a page, either the home copy equals it, or the page is dirty,
//!    or the page is in `stale` and no fsync that needs the newer content returns before a supersede.
//!
//! In the scratch profile 2, 4 and 6 fall away: nothing is flushed, absorbed or deferred, and pages go home only for
//! want of frames. What finds no block then stays in memory, dirty.
//!
//! Lock order: range, `removing`, credits, write-back mutex, then `state` and what `meta` takes, one at a time.
//! A checkpoint takes write-back mutexes and neither ranges nor credits. So who waits for credits, or for space,
//! may have a range in hand but no write-back mutex, and who has credits waits for no range. Who has one write-back
//! mutex takes those of other files only if they are free (`writeback::batch`).

mod batch;
mod copy;
mod data_path;
mod fallocate;
mod inherit;
mod read;
mod seek;
mod sync;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod truncate;
mod write;
mod writeback;

pub use crate::pages::ErrorMark;
#[cfg(any(test, fuzzing, feature = "sim"))]
pub(crate) use batch::encode_manifest;
pub(crate) use batch::{MOST_MANIFEST_BYTES, manifest_runs};
pub use batch::{SpillFile, StagedFile};
pub use data_path::{DataOptions, DataPath, DataStats};
pub use fallocate::FallocateMode;
pub use read::Keep;
pub use seek::SeekTo;
pub use sync::fsync::{BegunSync, SyncKind};
pub use write::{At, Fit, Written};

/// Most bytes that one fsync absorbs into the journal.
pub const ABSORB_LIMIT: usize = 64 << 10;
