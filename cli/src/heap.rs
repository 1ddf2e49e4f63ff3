//! The program's heap.
//!
//! Objects of one size come and go by the hundred thousand each second, from all threads: the C library's heap took a
//! fifth of a create, half of it system calls to grow. mimalloc takes a tenth. But it keeps memory of each size that a
//! thread has used for that thread, and of large pieces that is much: a server that had been told how much memory it may
//! have took 15 MiB more. So large pieces are the C library's, which gives them back.
//!
//! What mimalloc gives back of a huge page stays with the process until the kernel divides that page, and is counted
//! nowhere but against the limit of a control group (40 to 90 MiB, in a server that had been told to keep to 24). So who
//! serves says which pages it is to have ([`use_pages`]): huge ones where memory is in plenty, for they save a mail
//! server's calls a tenth of their time.

#![allow(unsafe_code, reason = "a leaf module: the global allocator")]

use mimalloc::MiMalloc;
use rustix::mm::{Advice, madvise};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::Range;

/// Bytes of the largest piece that is mimalloc's.
const SMALL: usize = 2 << 10;

/// See the module.
pub struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

fn is_small(size: usize) -> bool {
    size <= SMALL
}

/// Pages of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// The processor's.
    Small,
    /// Those of 2 MiB.
    Huge,
}

/// Says in which pages small pieces are to lie, as far as the heap has its addresses by now. Where that fails they lie
/// in those that the kernel gives to everybody.
pub fn use_pages(pages: Pages) {
    let advice = match pages {
        Pages::Small => Advice::LinuxNoHugepage,
        Pages::Huge => Advice::LinuxHugepage,
    };
    let piece = Box::new(0u64);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    if let Some(mapping) = mapping_of(&maps, std::ptr::from_ref(&*piece).addr()) {
        let start = std::ptr::with_exposed_provenance_mut(mapping.start);
        // SAFETY: the bytes of a mapping stay as they are, whatever pages they lie in. Guarded by the test below.
        let _ = unsafe { madvise(start, mapping.len(), advice) };
    }
}

/// The mapping that an address lies in.
fn mapping_of(maps: &str, address: usize) -> Option<Range<usize>> {
    let range = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
    };
    maps.lines().filter_map(range).find(|mapping| mapping.contains(&address))
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
    #[ignore = "needs a kernel with transparent huge pages"]
    fn small_pieces_lie_in_the_pages_that_were_asked_for() {
        let piece = Box::new(0u64);
        let has = |wanted: &str| {
            let smaps = std::fs::read_to_string("/proc/self/smaps").expect("the kernel tells");
            let mapping = mapping_of(&smaps, std::ptr::from_ref(&*piece).addr()).expect("it is mapped");
            let before = |line: &&str| !line.starts_with(&format!("{:x}-", mapping.start));
            let mut lines = smaps.lines().skip_while(before);
            let flags = lines.find_map(|line| line.strip_prefix("VmFlags:")).expect("each has some");
            flags.split_whitespace().any(|flag| flag == wanted)
        };
        let pages = std::path::Path::new("/sys/kernel/mm/transparent_hugepage");
        assert!(pages.exists(), "missing: transparent huge pages");
        assert!(!has("hg"), "nobody has asked");
        use_pages(Pages::Small);
        assert!(has("nh") && !has("hg"));
        use_pages(Pages::Huge);
        assert!(has("hg") && !has("nh"));
    }

    #[test]
    fn an_address_is_found_in_its_mapping() {
        let maps = "1000-3000 rw-p 00000000 00:00 0\n7f0000-7f1000 r--p 00000000 00:00 0 [vdso]\nnonsense\n";
        assert_eq!(mapping_of(maps, 0x2fff), Some(0x1000..0x3000));
        assert_eq!((mapping_of(maps, 0x3000), mapping_of("", 0)), (None, None));
    }

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
