//! narufs, the engine: a crash-consistent, multi-core-scalable file system in user space.
//!
//! A program that wants files uses [`format`](fn@format) and [`Fs`]; see [`path`].
//!
//! The modules read in the order of a request's way through the system; each uses only those after it.

pub mod acl;
pub mod alloc;
pub mod blocking;
mod buffer_pool;
pub mod cache;
pub mod checkpoint;
pub mod clock;
pub mod deferred;
pub mod device;
pub mod dir;
pub mod error;
pub mod extent;
pub mod file;
pub mod format;
pub mod fsck;
#[cfg(any(all(test, not(any(loom, shuttle))), fuzzing, feature = "sim"))]
pub mod fuzzing;
mod hasher;
pub mod inode;
pub mod journal;
pub mod lane;
pub mod lock;
pub mod mkfs;
pub mod mount;
pub mod nat;
pub mod orphan;
pub mod path;
pub mod planted;
pub mod pmem;
mod rcu_table;
pub mod recovery;
mod scoped;
pub mod scratch;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod stats;
pub mod store;
pub mod superblock;
pub mod sync;
pub mod vfs;
pub mod xattr;

pub use error::{Error, Result};
pub use mkfs::FormatOptions;
pub use path::{Files, Fs, MountOptions, format};
pub use scratch::{ScratchOptions, SpillOptions};
