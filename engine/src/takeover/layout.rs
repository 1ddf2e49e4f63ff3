//! Where the parts of the memory lie.

use crate::format::BLOCK_SIZE;

/// Bytes of the header.
pub(super) const HEADER: usize = 4096;
/// Bytes of each slot, and of each entry of the frame table.
pub(super) const SLOT: usize = 64;
/// Pages in place that are newer than the journal.
pub(super) const HOMES: u32 = 1 << 14;
const HUGE_PAGE: usize = 2 << 20;
/// More frames than any cache has.
const MOST_FRAMES: u64 = 1 << 31;

/// Where the parts lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub requests: usize,
    pub inodes: usize,
    pub homes: usize,
    pub table: usize,
    pub frames: usize,
    pub end: usize,
}

impl Layout {
    /// Of so many slots and frames. None: no memory is that large.
    pub fn new(requests: u32, inodes: u32, frames: u64) -> Option<Layout> {
        let frames = usize::try_from(frames).ok().filter(|frames| *frames as u64 <= MOST_FRAMES)?;
        let part = |start: usize, count: usize, each: usize| start.checked_add(count.checked_mul(each)?);
        let at = HEADER;
        let inodes_at = part(at, requests as usize, SLOT)?;
        let homes = part(inodes_at, inodes as usize, SLOT)?;
        let table = part(homes, HOMES as usize, SLOT)?;
        let first = part(table, frames, SLOT)?.checked_next_multiple_of(HUGE_PAGE)?;
        let end = part(first, frames, BLOCK_SIZE)?;
        Some(Layout { requests: at, inodes: inodes_at, homes, table, frames: first, end })
    }

    /// Header, requests, inodes, homes, frame table, frames.
    #[cfg(any(all(test, not(any(loom, shuttle))), fuzzing, feature = "sim"))]
    pub fn parts(&self) -> [std::ops::Range<usize>; 6] {
        let Layout { requests, inodes, homes, table, frames, end } = *self;
        [0..requests, requests..inodes, inodes..homes, homes..table, table..frames, frames..end]
    }
}
