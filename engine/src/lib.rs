//! narufs, the engine: a crash-consistent, multi-core-scalable file system in user space.
//!
//! **There is no promise of stability.** It stands behind the crate `narufs`, which is what a program uses, and behind
//! the mount and the tools; what is public here is public for them, and may change with any version.
//!
//! A program that wants files uses [`format`](fn@format) and [`Fs`]; see [`path`].
//!
//! The modules stand in the order of ARCHITECTURE.md, top to bottom; each uses only those after it.

pub mod path;
pub mod fsck;
pub mod volume;
pub mod mkfs;
pub mod stats;
mod recovery;
pub mod vfs;
pub mod file;
pub mod meta;
mod dir;
mod xattr;
pub mod inode;
mod acl;
mod pages;
pub mod cache;
pub mod lock;
mod orphan;
mod extent;
mod nat;
pub mod alloc;
pub mod checkpoint;
pub mod scratch;
pub mod store;
pub mod superblock;
pub mod journal;
pub mod pmem;
pub mod device;
pub mod takeover;
pub mod format;
mod rcu_table;
mod buffer_pool;
mod hasher;
mod scoped;
mod unwinding;
pub mod fork;
pub mod clock;
pub mod lane;
pub mod planted;
#[cfg(feature = "baselines")]
pub mod baseline;
pub mod error;
pub mod sync;
pub mod blocking;
pub mod deferred;

// For tests.
#[cfg(any(all(test, not(any(loom, shuttle))), feature = "sim"))]
pub mod conformance;
#[cfg(any(all(test, not(any(loom, shuttle))), fuzzing, feature = "sim"))]
pub mod fuzzing;
#[cfg(any(test, feature = "sim"))]
pub mod sim;

pub use error::{Error, Result};
pub use mkfs::FormatOptions;
pub use path::{Files, Fs, format};
pub use scratch::SpillOptions;
pub use volume::{ScratchOptions, VolumeOptions};
