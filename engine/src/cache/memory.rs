//! The bytes of all frames: one anonymous mapping, given to the kernel's huge pages if it likes.

use crate::device::BLOCK_SIZE;
use crate::{Error, Result};
use std::ptr::NonNull;

/// A private mapping of whole frames, zeroed at first.
#[derive(Debug)]
pub(super) struct FrameMemory {
    base: NonNull<u8>,
    frames: usize,
}

// SAFETY: the mapping belongs to this value alone and has no thread affinity; access to the bytes is ordered
// by the protocol of the module, which the pool's tests exercise with many threads.
unsafe impl Send for FrameMemory {}
// SAFETY: as above.
unsafe impl Sync for FrameMemory {}

impl FrameMemory {
    /// Maps `frames` frames. Memory is taken from the system as frames are first used.
    pub(super) fn new(frames: usize) -> Result<FrameMemory> {
        let len = frames.max(1) * BLOCK_SIZE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nobody's memory; the
        // length is not 0. Guarded by cache::tests.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::NORESERVE,
            )
        }
        .map_err(|e| Error::Refused(format!("cannot map {len} bytes for the page cache: {e}")))?;
        let base = NonNull::new(base.cast()).expect("a mapping is not at address 0");
        Ok(FrameMemory { base, frames })
    }

    /// The first byte of a frame.
    pub(super) fn frame(&self, number: u32) -> *mut u8 {
        assert!((number as usize) < self.frames, "frame numbers come from the pool");
        // SAFETY: the frame lies within the mapping, as just checked. Guarded by cache::tests.
        unsafe { self.base.as_ptr().add(number as usize * BLOCK_SIZE) }
    }
}

impl Drop for FrameMemory {
    fn drop(&mut self) {
        let len = self.frames.max(1) * BLOCK_SIZE;
        // SAFETY: this is the mapping of `new`, whole, and nobody borrows from it any more. A failure would
        // leave it mapped, which harms nothing.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), len) };
    }
}
