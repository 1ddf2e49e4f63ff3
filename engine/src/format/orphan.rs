//! Orphans and intents: what recovery must finish.

use super::{BLOCK_HEADER_SIZE, BLOCK_SIZE, MAX_FILE_SIZE, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What is to be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Intent {
    /// The inode has no name: free it once nobody holds it.
    Orphan = 1,
    /// Blocks from `arg0` (bytes) on are to be freed; the size is already set.
    Truncate = 2,
    /// Blocks of the byte range `arg0..arg1` are to be freed.
    Punch = 3,
    /// COLLAPSE_RANGE of `arg0..arg1`: extents move down; `progress` is the first block not yet moved.
    Collapse = 4,
    /// INSERT_RANGE of `arg1` bytes at `arg0`: extents move up; `progress` is the end of what is not moved.
    Insert = 5,
    /// The inode is the staging file of a batch that is committed: runs of its pages move into other files. The manifest
    /// ([`BatchRun`](super::BatchRun)) begins at byte `arg0` and has `arg1` bytes; `progress` is the number of pages that
    /// are moved.
    Batch = 6,
}

/// One entry of an orphan table; all zero where free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OrphanEntry {
    /// The inode; 0 where the entry is free.
    pub nid: U64,
    /// Its generation.
    pub generation: U32,
    /// [`Intent`].
    pub intent: U32,
    /// See [`Intent`].
    pub arg0: U64,
    /// See [`Intent`].
    pub arg1: U64,
    /// See [`Intent`].
    pub progress: U64,
}
const _: () = assert!(size_of::<OrphanEntry>() == ORPHAN_ENTRY_SIZE);

impl OrphanEntry {
    /// What is to be finished; none if that is unknown.
    pub fn what(&self) -> Option<Intent> {
        let all = [
            Intent::Orphan,
            Intent::Truncate,
            Intent::Punch,
            Intent::Collapse,
            Intent::Insert,
            Intent::Batch,
        ];
        all.into_iter().find(|intent| *intent as u32 == self.intent.get())
    }

    /// What is wrong with the range of a collapse or an insertion, of a file of so many bytes.
    pub fn range_problem(&self, size: u64) -> Option<String> {
        let block = BLOCK_SIZE as u64;
        let (from, to, progress) = (self.arg0.get(), self.arg1.get(), self.progress.get());
        let is_within = match self.what() {
            Some(Intent::Collapse) => {
                let last = to.div_ceil(block);
                from / block < last && to <= MAX_FILE_SIZE && (progress == 0 || progress >= last)
            }
            Some(Intent::Insert) => {
                let end = |at: u64| at.checked_add(to).is_some_and(|end| end <= MAX_FILE_SIZE);
                to > 0 && end(from) && end(size)
            }
            _ => true,
        };
        (!is_within).then(|| format!("{from}, {to} and {progress} are no range that is moved"))
    }
}

/// Bytes of [`OrphanEntry`].
pub const ORPHAN_ENTRY_SIZE: usize = 40;
/// Entries in an orphan table.
pub const ORPHANS_PER_BLOCK: usize = (BLOCK_SIZE - BLOCK_HEADER_SIZE) / ORPHAN_ENTRY_SIZE;
/// Tables that the orphan root can point to (8 bytes each).
pub const ORPHAN_TABLES: usize = (BLOCK_SIZE - BLOCK_HEADER_SIZE) / 8;
