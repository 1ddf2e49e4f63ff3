//! Copies to and from memory that other threads and processes may touch at the same time.
//!
//! Every access is atomic (whole words in the middle, bytes at the edges), so that a reader that races with a
//! writer gets torn bytes at worst, as the seam says, and never undefined behaviour. The standard library's
//! atomics are used even under a model checker: the memory lies outside the program.

#![allow(unsafe_code, reason = "a leaf module: atomic accesses to mapped memory")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// A range of memory, aligned to a page, that stays mapped as long as its owner keeps it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: every access through it is atomic. Guarded by `disjoint_writers_do_not_disturb_each_other`.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// # Safety
    /// `start` is aligned to eight bytes and valid for reads and writes of `len` bytes for as long as this or
    /// a copy of it is used; nothing in this process accesses the memory otherwise.
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }

    /// Bytes of the memory.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where the memory begins.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Address of a byte, after a check of the whole range.
    pub fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "range {offset}+{len} lies outside of {} bytes",
            self.len
        );
        self.start.as_ptr().wrapping_add(offset)
    }

    /// Copies bytes in, word by word.
    pub fn write(&self, offset: usize, data: &[u8]) {
        let to = self.at(offset, data.len());
        let (head, words) = split(offset, data.len());
        // Relaxed throughout: the order in which stores persist is made by write-backs and fences, the order in
        // which threads see them by whatever hands the range over.
        for (i, byte) in data[..head].iter().enumerate() {
            // SAFETY: inside the range checked above. Guarded by `copies_match_a_plain_array`.
            unsafe { AtomicU8::from_ptr(to.add(i)) }.store(*byte, Ordering::Relaxed);
        }
        let (middle, tail) = data[head..].split_at(words * WORD);
        for (i, word) in middle.chunks_exact(WORD).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().expect("a chunk is a word"));
            // SAFETY: inside the range, and aligned: `split` counts the head up to a word's boundary. Guarded
            // by the same test.
            unsafe { AtomicU64::from_ptr(to.add(head + i * WORD).cast()) }.store(word, Ordering::Relaxed);
        }
        for (i, byte) in tail.iter().enumerate() {
            // SAFETY: inside the range. Guarded by the same test.
            unsafe { AtomicU8::from_ptr(to.add(head + words * WORD + i)) }.store(*byte, Ordering::Relaxed);
        }
    }

    /// Stores one aligned word.
    pub fn write_u64(&self, offset: usize, value: u64) {
        assert_eq!(offset % WORD, 0, "an untorn store is aligned");
        let to = self.at(offset, WORD);
        // Release: pairs with the Acquire in `read` of a process or thread that polls this word, so that it
        // sees what was written before it.
        // SAFETY: inside the range and aligned. Guarded by `copies_match_a_plain_array`.
        unsafe { AtomicU64::from_ptr(to.cast()) }.store(value.to_le(), Ordering::Release);
    }

    /// Copies bytes out, word by word.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        let (head, words) = split(offset, into.len());
        for (i, byte) in into[..head].iter_mut().enumerate() {
            // SAFETY: inside the range checked above. Guarded by `copies_match_a_plain_array`.
            *byte = unsafe { AtomicU8::from_ptr(from.add(i)) }.load(Ordering::Relaxed);
        }
        let (middle, tail) = into[head..].as_chunks_mut::<WORD>();
        for (i, word) in middle.iter_mut().enumerate() {
            // Acquire: pairs with the Release in `write_u64`.
            // SAFETY: inside the range and aligned, as in `write`. Guarded by the same test.
            let value =
                unsafe { AtomicU64::from_ptr(from.add(head + i * WORD).cast()) }.load(Ordering::Acquire);
            *word = value.to_ne_bytes();
        }
        for (i, byte) in tail.iter_mut().enumerate() {
            // SAFETY: inside the range. Guarded by the same test.
            *byte = unsafe { AtomicU8::from_ptr(from.add(head + words * WORD + i)) }.load(Ordering::Relaxed);
        }
    }
}

/// Bytes before the first word's boundary and whole words after it.
fn split(offset: usize, len: usize) -> (usize, usize) {
    let head = offset.next_multiple_of(WORD).saturating_sub(offset).min(len);
    (head, (len - head) / WORD)
}

#[cfg(test)]
mod tests {
    use super::super::{HeapMemory, PersistentMemory};

    #[test]
    fn copies_match_a_plain_array() {
        let memory = HeapMemory::new(128);
        let mut model = [0u8; 128];
        for offset in 0..24 {
            for len in 0..40 {
                let data: Vec<u8> = (0..len).map(|i| (offset * 7 + i * 3 + len) as u8).collect();
                memory.write(offset, &data);
                model[offset..offset + len].copy_from_slice(&data);
                let mut seen = vec![0; 128 - offset];
                memory.read(offset, &mut seen);
                assert_eq!(seen, model[offset..]);
            }
        }
        memory.write_u64(120, 0x0102_0304_0506_0708);
        let mut seen = [0; 8];
        memory.read(120, &mut seen);
        assert_eq!(seen, 0x0102_0304_0506_0708_u64.to_le_bytes());
    }

    #[test]
    fn disjoint_writers_do_not_disturb_each_other() {
        let memory = HeapMemory::new(8 * 13);
        std::thread::scope(|scope| {
            for n in 0..8usize {
                let memory = &memory;
                scope.spawn(move || {
                    for round in 0..200u8 {
                        memory.write(n * 13, &[round.wrapping_add(n as u8); 13]);
                        let mut seen = [0; 13];
                        memory.read(n * 13, &mut seen);
                        assert_eq!(seen, [round.wrapping_add(n as u8); 13]);
                    }
                });
            }
        });
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn a_range_beyond_the_end_is_a_bug_of_the_caller() {
        HeapMemory::new(64).write(60, &[0; 8]);
    }
}
