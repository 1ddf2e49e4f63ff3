//! Memory for large buffers: mapped, and kept for the next one.
//!
//! Write-back copies megabytes at a time, on many threads. From the heap, aligned pieces of that size leave holes
//! that nothing else fits, several times what is ever in use. Here they are all of one size, so that any serves
//! any other, and what is kept is bounded.

#![allow(unsafe_code, reason = "a leaf module: mappings that serve as large buffers")]

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::Mutex;

/// Bytes of a chunk.
pub(super) const CHUNK: usize = 256 << 10;
/// Chunks that are kept while nobody has them, unless more are asked for.
const KEPT: usize = 4;
/// Most that are kept: 32 MiB.
const MOST_KEPT: usize = 128;

/// A mapping of [`CHUNK`] bytes, aligned to a page.
#[derive(Debug)]
pub(super) struct Chunk(NonNull<u8>);

// SAFETY: the mapping belongs to this value alone and has no thread affinity. Guarded by
// `chunks_come_back_zeroed`.
unsafe impl Send for Chunk {}
// SAFETY: a shared reference gives the address and no access.
unsafe impl Sync for Chunk {}

fn free() -> &'static Mutex<Vec<Chunk>> {
    static FREE: OnceLock<Mutex<Vec<Chunk>>> = OnceLock::new();
    FREE.get_or_init(|| Mutex::new(Vec::with_capacity(MOST_KEPT)))
}

/// Chunks that are kept. Relaxed: a bound that only grows.
static KEEP: AtomicUsize = AtomicUsize::new(KEPT);

/// Keeps large buffers of so many bytes together, once they have been used, for the next thread that asks.
pub fn keep_buffers(bytes: usize) {
    KEEP.fetch_max((bytes / CHUNK).min(MOST_KEPT), Ordering::Relaxed);
}

impl Chunk {
    /// A chunk whose first `len` bytes are zero; none if the system gives no memory.
    pub fn zeroed(len: usize) -> Option<Chunk> {
        assert!(len <= CHUNK, "a chunk has one size");
        // The lock is not held while the bytes are zeroed.
        let kept = free().lock().pop();
        if let Some(chunk) = kept {
            // SAFETY: the mapping is this value's alone and has at least `len` bytes. Guarded by
            // `chunks_come_back_zeroed`.
            unsafe { chunk.0.as_ptr().write_bytes(0, len) };
            return Some(chunk);
        }
        Self::mapped()
    }

    /// A chunk of zeros, or of what its last holder left there; none if the system gives no memory.
    pub fn any() -> Option<Chunk> {
        let kept = free().lock().pop();
        kept.or_else(Self::mapped)
    }

    /// A chunk fresh from the system: zeros.
    fn mapped() -> Option<Chunk> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nobody's memory. Guarded by
        // `chunks_come_back_zeroed`.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                CHUNK,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::PRIVATE,
            )
        };
        NonNull::new(mapped.ok()?.cast()).map(Chunk)
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.0
    }

    /// Keeps it for the next thread that asks, or gives it back to the system.
    pub fn give(self) {
        let mut free = free().lock();
        if free.len() < KEEP.load(Ordering::Relaxed) {
            free.push(self);
            return;
        }
        drop(free);
        // SAFETY: the mapping of `zeroed`, whole; a thread that gives it up has no pointer into it any more. A failure
        // would leave it mapped, which harms nothing. Guarded by `chunks_come_back_zeroed`.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), CHUNK) };
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::device::IoBuf;

    #[test]
    fn chunks_come_back_zeroed() {
        for round in 0..3u8 {
            let mut many: Vec<IoBuf> = (0..MOST_KEPT + 9).map(|n| IoBuf::zeroed(CHUNK - n * 512)).collect();
            for buf in &mut many {
                assert!(buf.iter().all(|byte| *byte == 0));
                buf.fill(round + 1);
            }
        }
        assert!(free().lock().len() <= MOST_KEPT);
    }
}
