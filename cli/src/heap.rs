//! The program's heap.
//!
//! Objects of one size come and go by the hundred thousand each second, from all threads: the C library's heap took a
//! fifth of a create, half of it system calls to grow. mimalloc takes a tenth. But it keeps memory of each size that a
//! thread has used for that thread, and of large pieces that is much: a server that had been told how much memory it may
//! have took 15 MiB more. So large pieces are the C library's, which gives them back.
#![allow(unsafe_code)]

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout, System};

/// Bytes of the largest piece that is mimalloc's.
const SMALL: usize = 2 << 10;

/// See the module.
pub struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

fn is_small(size: usize) -> bool {
    size <= SMALL
}

// SAFETY: each piece goes back to the heap that it came from, for its layout says which: who frees or changes it names
// the layout with which it was taken, and one that changes sides is taken anew. Guarded by the test below, and by all
// that runs.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, handed on with the same layout.
        unsafe { if is_small(layout.size()) { MiMalloc.alloc(layout) } else { System.alloc(layout) } }
    }

    #[inline]
    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, handed on with the same layout.
        unsafe {
            if is_small(layout.size()) {
                MiMalloc.dealloc(piece, layout)
            } else {
                System.dealloc(piece, layout)
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, handed on with the same layout.
        unsafe {
            if is_small(layout.size()) { MiMalloc.alloc_zeroed(layout) } else { System.alloc_zeroed(layout) }
        }
    }

    #[inline]
    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise, handed on; the new piece has the bytes that are copied, and so has the old one.
        unsafe {
            match (is_small(layout.size()), is_small(size)) {
                (true, true) => MiMalloc.realloc(piece, layout, size),
                (false, false) => System.realloc(piece, layout, size),
                _ => {
                    let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                    if !moved.is_null() {
                        std::ptr::copy_nonoverlapping(piece, moved, layout.size().min(size));
                        self.dealloc(piece, layout);
                    }
                    moved
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_and_shrinks_across_the_bound_keeps_its_bytes() {
        let mut bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let first = bytes.clone();
        for size in [SMALL - 1, SMALL, SMALL + 1, 100 * SMALL, SMALL + 1, SMALL, 2000] {
            bytes.resize(size, 7);
            bytes.shrink_to_fit();
            assert_eq!(bytes[..1000], first);
            assert!(bytes[1000..].iter().all(|byte| *byte == 7));
        }
        assert!(vec![0u8; 3 * SMALL].iter().chain(&[0u8; 9]).all(|byte| *byte == 0));
    }
}
