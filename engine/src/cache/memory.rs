//! The bytes of all frames: one anonymous mapping, of huge pages if the kernel has any; or a part of the memory that a
//! successor of this process takes over.

#![allow(unsafe_code, reason = "a leaf module: the mapping that frames lie in")]

use crate::device::BLOCK_SIZE;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::takeover::FrameRegion;
use crate::{Error, Result};
use std::ptr::NonNull;

/// A private mapping of whole frames, zeroed at first.
#[derive(Debug)]
pub(super) struct FrameMemory {
    base: NonNull<u8>,
    frames: usize,
    /// Huge pages are not wanted.
    is_small: AtomicBool,
    /// What it is a part of, if it is no mapping of its own.
    region: Option<FrameRegion>,
}

// SAFETY: the mapping belongs to this value alone and has no thread affinity; access to the bytes is ordered
// by the protocol of the module, which the pool's tests exercise with many threads.
unsafe impl Send for FrameMemory {}
// SAFETY: as above.
unsafe impl Sync for FrameMemory {}

impl FrameMemory {
    /// Maps `frames` frames. Memory is taken from the system as frames are first used; in huge pages, where there are
    /// any, if it is not to go back frame by frame.
    pub(super) fn new(frames: usize, goes_back: bool) -> Result<FrameMemory> {
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
        if !goes_back {
            // SAFETY: this is the mapping just made, whole; its bytes stay as they are. A kernel without huge pages
            // refuses, which harms nothing. Guarded by cache::tests.
            let _ = unsafe { rustix::mm::madvise(base, len, rustix::mm::Advice::LinuxHugepage) };
        }
        let base = NonNull::new(base.cast()).expect("a mapping is not at address 0");
        Ok(FrameMemory { base, frames, is_small: AtomicBool::new(goes_back), region: None })
    }

    /// The frames of a region that outlives this process.
    pub(super) fn shared(region: FrameRegion) -> FrameMemory {
        let (base, frames) = (region.bytes(), region.frames());
        FrameMemory { base, frames, is_small: AtomicBool::new(false), region: Some(region) }
    }

    /// No more huge pages from now on: the kernel would fill what went back again to make one.
    pub(super) fn stay_small(&self) {
        // Relaxed: a span that is populated meanwhile may be huge; it lies ahead of all that went back.
        self.is_small.store(true, Ordering::Relaxed);
        // SAFETY: this is the mapping of `new`, whole; its bytes stay as they are. A failure leaves it as it was.
        // Guarded by `indexes_are_paid_for_with_frames`.
        let _ = unsafe {
            let len = self.frames.max(1) * BLOCK_SIZE;
            rustix::mm::madvise(self.base.as_ptr().cast(), len, rustix::mm::Advice::LinuxNoHugepage)
        };
    }

    /// The frame with which the next aligned run of `span` frames begins, or the end. Frames of one run lie in one huge
    /// page.
    pub(super) fn end_of_span(&self, number: u32, span: usize) -> usize {
        let ahead = self.base.as_ptr().addr() / BLOCK_SIZE % span;
        let number = number as usize;
        (number + span - (number + ahead) % span).min(self.frames)
    }

    /// Says in which pages frames that have no memory get some: in huge ones, if there are any, or in small ones.
    pub(super) fn advise(&self, first: u32, count: usize, huge: bool) {
        use rustix::mm::Advice;
        // Relaxed: a span that is populated meanwhile may be huge; it lies ahead of all that went back.
        if !self.is_small.load(Ordering::Relaxed) {
            self.tell(first, count, if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage });
        }
    }

    /// Gives frames that have none memory; their bytes stay as they are.
    pub(super) fn populate(&self, first: u32, count: usize) {
        self.tell(first, count, rustix::mm::Advice::LinuxPopulateWrite);
    }

    /// `advice` is one that changes no byte.
    fn tell(&self, first: u32, count: usize, advice: rustix::mm::Advice) {
        assert!(first as usize + count <= self.frames, "frame numbers come from the pool");
        // SAFETY: the frames lie within the mapping, as just checked, and the advice changes no byte, so it may meet
        // any use of them. A kernel that does not know it refuses, which harms nothing. Guarded by
        // `what_is_in_use_has_warm_frames_before_it_and_no_more_than_that`.
        let _ = unsafe {
            let start = self.base.as_ptr().add(first as usize * BLOCK_SIZE);
            rustix::mm::madvise(start.cast(), count * BLOCK_SIZE, advice)
        };
    }

    /// The first byte of a frame.
    pub(super) fn frame(&self, number: u32) -> *mut u8 {
        assert!((number as usize) < self.frames, "frame numbers come from the pool");
        // SAFETY: the frame lies within the mapping, as just checked. Guarded by cache::tests.
        unsafe { self.base.as_ptr().add(number as usize * BLOCK_SIZE) }
    }

    /// Gives the memory of `count` frames back to the system; they read as zeros then.
    ///
    /// # Safety
    /// The frames are busy, and the caller has them.
    pub(super) unsafe fn release(&self, first: u32, count: usize) {
        assert!(first as usize + count <= self.frames, "frame numbers come from the pool");
        if let Some(region) = &self.region {
            return region.release(first as usize, count);
        }
        // The kernel gives back whole pages of its own, and counts one that is begun as whole.
        if rustix::param::page_size() != BLOCK_SIZE {
            return;
        }
        // SAFETY: the frames lie within the mapping, as just checked, and nobody has bytes of theirs that count, as
        // the caller has promised: a thread that copies without a pin finds the frame busy afterwards. A failure leaves
        // the memory where it is. Guarded by `frames_that_are_not_kept_go_back_to_the_system`.
        let _ = unsafe {
            let start = self.base.as_ptr().add(first as usize * BLOCK_SIZE);
            rustix::mm::madvise(start.cast(), count * BLOCK_SIZE, rustix::mm::Advice::LinuxDontNeed)
        };
    }

    /// Frames that have memory of the system's.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn resident(&self) -> usize {
        self.resident_from(0)
    }

    /// Those from this one on.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn resident_from(&self, first: u32) -> usize {
        let mut present = vec![0u8; self.frames - first as usize];
        // SAFETY: the mapping is this value's, and there is a byte for each page of it from there on; nothing is
        // changed but those. Guarded by the tests that call it.
        let done = unsafe {
            libc::mincore(self.frame(first).cast(), present.len() * BLOCK_SIZE, present.as_mut_ptr())
        };
        assert_eq!(done, 0, "the mapping is there");
        present.iter().filter(|byte| **byte & 1 != 0).count()
    }
}

/// Gives what the heap has free back to the system, if that is more than so many bytes. It is worth its while before
/// much new memory is taken for something else: a heap that has grown keeps what it has.
pub(super) fn trim_heap(beyond: usize) {
    #[cfg(target_env = "gnu")]
    // SAFETY: both take the heap's own locks and touch no memory that is in use. Guarded by
    // `frames_that_are_not_kept_go_back_to_the_system`.
    unsafe {
        if libc::mallinfo2().fordblks > beyond {
            libc::malloc_trim(0);
        }
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = beyond;
}

impl Drop for FrameMemory {
    fn drop(&mut self) {
        if self.region.is_some() {
            return;
        }
        let len = self.frames.max(1) * BLOCK_SIZE;
        // SAFETY: this is the mapping of `new`, whole, and nobody borrows from it any more. A failure would
        // leave it mapped, which harms nothing.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), len) };
    }
}
