//! The part of the memory that the page cache has its frames in.

use super::Takeover;
use crate::format::BLOCK_SIZE;
use std::ptr::NonNull;
use std::sync::Arc;

/// Where the frames of a page cache lie, with their table: valid as long as the memory is mapped.
#[derive(Debug, Clone)]
pub struct FrameRegion {
    memory: Arc<Takeover>,
}

impl FrameRegion {
    /// Their number.
    pub fn frames(&self) -> usize {
        self.memory.frames()
    }

    /// The first entry of the table: 64 zero bytes each at first, on a boundary of as many.
    pub fn table(&self) -> NonNull<u8> {
        self.memory.at(self.memory.layout.table)
    }

    /// The first frame.
    pub fn bytes(&self) -> NonNull<u8> {
        self.memory.at(self.memory.layout.frames)
    }

    /// Whether a predecessor has left something there.
    pub fn is_inherited(&self) -> bool {
        self.memory.incarnation() > 0
    }

    /// Gives the memory of frames back to the system; they read as zeros then. Frames beyond the end are none.
    pub fn release(&self, first: usize, count: usize) {
        let end = (first + count).min(self.frames());
        let start = self.memory.layout.frames + first.min(end) * BLOCK_SIZE;
        let len = (end - first.min(end)) * BLOCK_SIZE;
        if len > 0 {
            use rustix::fs::FallocateFlags;
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A failure leaves the memory where it is.
            let _ = rustix::fs::fallocate(&self.memory.file, flags, start as u64, len as u64);
        }
    }
}

impl Takeover {
    /// The room for frames.
    pub fn frame_region(self: &Arc<Self>) -> FrameRegion {
        FrameRegion { memory: Arc::clone(self) }
    }
}
