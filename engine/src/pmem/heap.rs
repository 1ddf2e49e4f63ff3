//! Memory of this process in the place of persistent memory, for tests: nothing survives.

#![allow(unsafe_code, reason = "a leaf module: memory that serves as persistent memory")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use super::flush::{LINE, LineCounts, lines};
use super::words::Words;
use super::{DurabilityLevel, PersistentMemory};

/// Memory of this process in the place of persistent memory.
#[derive(Debug)]
pub struct HeapMemory {
    words: Words,
    layout: Layout,
    counts: LineCounts,
    durability: DurabilityLevel,
}

impl HeapMemory {
    /// Zeros that claim to survive the loss of power.
    pub fn new(len: usize) -> Self {
        Self::with_durability(len, DurabilityLevel::Power)
    }

    /// Zeros that claim to survive what `durability` says.
    pub fn with_durability(len: usize, durability: DurabilityLevel) -> Self {
        let layout = Layout::from_size_align(len.max(1), LINE).expect("the memory fits the address space");
        // SAFETY: the layout has a size above 0. Guarded by `copies_match_a_plain_array`.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: aligned to a line, and valid until the drop of `self`, which alone uses it.
        let words = unsafe { Words::new(start, len) };
        Self { words, layout, counts: LineCounts::default(), durability }
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `with_durability` with this layout; no access outlives `self`.
        unsafe { dealloc(self.words.start().as_ptr(), self.layout) };
    }
}

impl PersistentMemory for HeapMemory {
    fn len(&self) -> usize {
        self.words.len()
    }

    fn write(&self, offset: usize, data: &[u8]) {
        self.words.write(offset, data);
    }

    fn write_u64(&self, offset: usize, value: u64) {
        self.words.write_u64(offset, value);
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        self.words.read(offset, into);
    }

    fn write_back(&self, offset: usize, len: usize) {
        self.words.at(offset, len);
        self.counts.write_back(lines(offset, len));
    }

    fn fence(&self) {
        self.counts.fence();
    }

    fn durability(&self) -> DurabilityLevel {
        self.durability
    }

    fn counts(&self) -> (u64, u64) {
        self.counts.get()
    }
}
