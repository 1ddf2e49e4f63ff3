//! Byte-addressable memory that outlives the process, and perhaps the machine's loss of power.
//!
//! The contract of stores: a store is persistent once a write-back of its cache line was issued after it and
//! a fence after that. Without both it may or may not survive, line by line, in any order.

mod flush;
mod heap;
mod mapped;
mod words;

use std::path::Path;

pub use flush::{EmulationCosts, Instruction, LINE};
pub use heap::HeapMemory;
pub(crate) use mapped::Found;
pub use mapped::{MappedMemory, Medium, unlink, unlink_unused};

/// How far a persisted store has travelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum DurabilityLevel {
    /// It survives the end of the process, not of the machine.
    Process,
    /// It survives the machine's loss of power.
    Power,
}

/// Persistent memory, written by explicit copies so that simulated media can see every store.
///
/// Callers write disjoint ranges at a time, or order their writes themselves; a read that races with a write
/// may see torn bytes and must verify what it read.
pub trait PersistentMemory: Send + Sync {
    /// Bytes.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies `data` to `offset`.
    fn write(&self, offset: usize, data: &[u8]);
    /// Stores eight bytes, aligned, at once: never torn.
    fn write_u64(&self, offset: usize, value: u64);
    /// Copies from `offset`.
    fn read(&self, offset: usize, into: &mut [u8]);
    /// Starts the write-back of the cache lines of a range.
    fn write_back(&self, offset: usize, len: usize);
    /// Orders all earlier write-backs of this thread before what follows: they are persistent on return.
    fn fence(&self);
    /// How far a persisted store has travelled.
    fn durability(&self) -> DurabilityLevel;
    /// The file that it lies in.
    fn path(&self) -> Option<&Path> {
        None
    }
    /// Write-backs (lines) and fences so far.
    fn counts(&self) -> (u64, u64);
    /// Writes back a range and fences.
    fn persist(&self, offset: usize, len: usize) {
        self.write_back(offset, len);
        self.fence();
    }
}
