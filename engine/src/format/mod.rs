//! Every persisted type: layout only, no logic beyond encoding, checksums and bounds.
//!
//! All integers are little-endian, all sizes are held by constant assertions, all types can be read from
//! arbitrary bytes without harm; whoever reads them verifies checksum, owner and bounds before use.
//! docs/FORMAT.md describes the same bytes in words.

mod batch;
mod block;
mod dentry;
#[cfg(all(test, not(any(loom, shuttle))))]
mod documented_tests;
mod double_write;
mod extent;
mod features;
mod file_type;
mod inode;
mod nat;
mod orphan;
mod slot;
mod superblock;
mod xattr;

pub use batch::*;
pub use block::*;
pub use dentry::*;
pub use double_write::*;
pub use extent::*;
pub use features::{Access, Compat, Features, Incompat, RoCompat};
pub use file_type::FileType;
pub use inode::*;
pub use nat::*;
pub use orphan::*;
pub use slot::*;
pub use superblock::*;
pub use xattr::*;

/// Little-endian integers as they lie on media.
pub use zerocopy::little_endian::{I64, U16, U32, U64};

/// Bytes in a block.
pub const BLOCK_SIZE: usize = 4096;

/// The identity of an inode: what `st_ino` shows. 0 is never one.
pub type Nid = u64;

/// The root directory.
pub const ROOT_NID: Nid = 1;

/// A position in the journal: it counts slots, grows for ever and never wraps.
pub type Position = u64;

/// No position lies beyond; a lap number of a ring of the least size then fits a seal word.
pub const MAX_POSITION: Position = 1 << 52;

/// No counter of writes, mounts or rounds goes beyond: it is never reached by counting, and what media claim above it is
/// not believed, for it could not be counted on from.
pub const MAX_COUNT: u64 = u64::MAX >> 1;
