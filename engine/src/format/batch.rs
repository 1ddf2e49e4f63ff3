//! What a large batch has to move: the manifest, behind the staged pages in the staging file.

use super::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The manifest begins with it; the runs follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct BatchHeader {
    /// CRC32C of all that follows in the manifest, `count` included.
    pub crc: U32,
    /// Runs.
    pub count: U32,
}
const _: () = assert!(size_of::<BatchHeader>() == 8);

/// Pages that follow one another in the staging file and in the file that they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct BatchRun {
    /// The file that they are for.
    pub nid: U64,
    /// Its generation.
    pub generation: U32,
    /// How many pages.
    pub pages: U32,
    /// The first page in that file.
    pub target: U64,
    /// The first page in the staging file.
    pub source: U64,
    /// Bytes that the file has at the least once they are there; 0: they do not make it longer.
    pub size: U64,
}
const _: () = assert!(size_of::<BatchRun>() == 40);

/// Runs of a manifest at the most.
pub const MAX_BATCH_RUNS: usize = 1 << 20;
