//! Buffers that the kernel may write to while a request is in flight.
//!
//! A buffer begins on a block boundary of memory, as direct I/O asks for, and does not move when it changes
//! hands. It either owns its memory or borrows somebody else's that it keeps alive.

#![allow(unsafe_code, reason = "a leaf module: aligned memory and borrowed parts of it")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use super::BLOCK_SIZE;
use super::chunk::{CHUNK, Chunk};

/// Whose memory it is.
enum Memory {
    /// Allocated here with this many bytes; freed on drop.
    Owned(usize),
    /// A chunk, given back on drop.
    Chunk(Option<Chunk>),
    /// Somebody else's, alive as long as this is held.
    Borrowed { _keep: Arc<dyn Any + Send + Sync> },
}

/// An aligned buffer of bytes.
pub struct IoBuf {
    start: NonNull<u8>,
    len: usize,
    memory: Memory,
}

// SAFETY: the buffer is the only handle to its bytes: owned memory has no other, and any thread that lends memory
// promises the same in `from_raw`. Guarded by `buffers_travel_between_threads`.
unsafe impl Send for IoBuf {}
// SAFETY: a shared reference gives only shared access to the bytes. Guarded by the same test.
unsafe impl Sync for IoBuf {}

impl IoBuf {
    /// Bytes of the longest buffer, below that of a chunk, which holds no more memory than it has bytes: it comes from
    /// the heap.
    pub(crate) const SMALL: usize = 64 << 10;

    /// Bytes of memory that a buffer of `len` bytes holds.
    pub(crate) const fn held(len: usize) -> usize {
        if Self::is_chunk(len) { CHUNK } else { len }
    }

    const fn is_chunk(len: usize) -> bool {
        Self::SMALL < len && len <= CHUNK
    }

    /// A buffer without bytes, for requests that move none.
    pub const fn empty() -> Self {
        Self { start: NonNull::dangling(), len: 0, memory: Memory::Owned(0) }
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Self::empty();
        }
        let layout = Self::layout(len);
        if Self::is_chunk(len) {
            let Some(chunk) = Chunk::zeroed(len) else { handle_alloc_error(layout) };
            return Self { start: chunk.start(), len, memory: Memory::Chunk(Some(chunk)) };
        }
        // SAFETY: the layout has a size above 0. Guarded by `buffers_are_aligned_and_zero`.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, len, memory: Memory::Owned(len) }
    }

    /// A buffer of `len` bytes that are zeros, or what an earlier buffer of this process held: for a thread that
    /// overwrites all of them before anybody looks. Zeroing megabytes costs as much as the copy that follows.
    pub fn unwiped(len: usize) -> Self {
        if !Self::is_chunk(len) {
            return Self::zeroed(len);
        }
        let Some(chunk) = Chunk::any() else { handle_alloc_error(Self::layout(len)) };
        Self { start: chunk.start(), len, memory: Memory::Chunk(Some(chunk)) }
    }

    /// A buffer that holds a copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut buf = Self::unwiped(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// A buffer over memory that belongs to `keep`, which lives at least as long as the buffer.
    ///
    /// # Safety
    /// `start` is aligned to [`BLOCK_SIZE`], valid for reads and writes of `len` initialised bytes as long as
    /// `keep` is held, and nothing else reads or writes them while the buffer may write them (or writes them
    /// while the buffer may read them).
    pub unsafe fn from_raw(start: NonNull<u8>, len: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        assert_eq!(start.addr().get() % BLOCK_SIZE, 0, "direct I/O needs an aligned buffer");
        Self { start, len, memory: Memory::Borrowed { _keep: keep } }
    }

    /// Cuts pieces of these lengths out of the buffer, one behind the other from `at` on. What lies before and behind
    /// them is in none, and the memory is given back with the last of them. All are multiples of [`BLOCK_SIZE`].
    pub(crate) fn divide(self, at: usize, lens: &[usize]) -> Vec<IoBuf> {
        let (start, end) = (self.start, self.len);
        let keep: Arc<dyn Any + Send + Sync> = Arc::new(self);
        let mut next = at;
        let piece = |len: &usize| {
            let from = next;
            next += len;
            assert!(next <= end, "the pieces lie within the buffer");
            // SAFETY: the piece lies within the memory that `keep` holds, which is initialised; no other piece has a
            // byte of it, and the buffer itself is reached through `keep` alone, which nobody looks into. Guarded by
            // `pieces_of_a_buffer_are_apart`.
            unsafe { Self::from_raw(start.add(from), *len, Arc::clone(&keep)) }
        };
        lens.iter().map(piece).collect()
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, BLOCK_SIZE).expect("a buffer fits the address space")
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        match &mut self.memory {
            // SAFETY: allocated in `zeroed` with this layout. Guarded by `buffers_are_aligned_and_zero`.
            Memory::Owned(len @ 1..) => unsafe { dealloc(self.start.as_ptr(), Self::layout(*len)) },
            Memory::Chunk(chunk) => {
                if let Some(chunk) = chunk.take() {
                    chunk.give();
                }
            }
            Memory::Owned(_) | Memory::Borrowed { .. } => {}
        }
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` initialised bytes (or dangling for none), and the borrow of the
        // buffer keeps writers away. Guarded by `buffers_are_aligned_and_zero`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the exclusive borrow keeps readers away.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Default for IoBuf {
    fn default() -> Self {
        Self::empty()
    }
}

impl Clone for IoBuf {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_zero() {
        for len in [0, 1, 512, BLOCK_SIZE, 3 * BLOCK_SIZE, IoBuf::SMALL + 1, CHUNK, CHUNK + 1] {
            let buf = IoBuf::zeroed(len);
            assert_eq!(buf.len(), len);
            assert!(buf.iter().all(|b| *b == 0));
            assert!(len == 0 || buf.as_ptr().addr().is_multiple_of(BLOCK_SIZE));
        }
        assert_eq!(&*IoBuf::from_slice(b"block"), b"block");
        for len in [0, 1, BLOCK_SIZE, IoBuf::SMALL + 1, CHUNK, CHUNK + 1] {
            let mut buf = IoBuf::unwiped(len);
            assert!(buf.len() == len && (len == 0 || buf.as_ptr().addr().is_multiple_of(BLOCK_SIZE)));
            buf.fill(1);
        }
    }

    #[test]
    fn buffers_travel_between_threads() {
        let mut buf = IoBuf::from_slice(&[7; BLOCK_SIZE]);
        let buf = std::thread::spawn(move || {
            buf[0] = 1;
            buf
        })
        .join()
        .expect("the thread does not panic");
        assert_eq!((buf[0], buf[1]), (1, 7));
    }

    #[test]
    fn pieces_of_a_buffer_are_apart() {
        for blocks in [7, CHUNK / BLOCK_SIZE, CHUNK / BLOCK_SIZE + 1] {
            let mut buf = IoBuf::zeroed(blocks * BLOCK_SIZE);
            buf[3 * BLOCK_SIZE] = 3;
            let start = buf.as_ptr().addr();
            let lens = [BLOCK_SIZE, 2 * BLOCK_SIZE, BLOCK_SIZE];
            let mut pieces = buf.divide(BLOCK_SIZE, &lens);
            let found: Vec<_> =
                pieces.iter().map(|piece| (piece.as_ptr().addr() - start, piece.len())).collect();
            assert_eq!(found, [1, 2, 4].map(|n| n * BLOCK_SIZE).into_iter().zip(lens).collect::<Vec<_>>());
            assert_eq!(pieces[1][BLOCK_SIZE], 3);
            pieces.iter_mut().zip(1..).for_each(|(piece, n)| piece.fill(n));
            // In any order, by any thread.
            let last = pieces.pop();
            drop(pieces);
            let sum =
                std::thread::spawn(move || last.map(|piece| piece.iter().map(|b| usize::from(*b)).sum()));
            assert_eq!(sum.join().expect("no panic"), Some(3 * BLOCK_SIZE));
        }
    }

    #[test]
    fn lent_memory_is_written_in_place_and_kept_alive() {
        #[repr(C, align(4096))]
        struct Frame(std::cell::UnsafeCell<[u8; BLOCK_SIZE]>);
        // SAFETY: the test reaches the bytes only through the one buffer, then only after its drop.
        unsafe impl Sync for Frame {}
        let frame = Arc::new(Frame(std::cell::UnsafeCell::new([0; BLOCK_SIZE])));
        let start = NonNull::new(frame.0.get().cast::<u8>()).expect("memory is not at 0");
        // SAFETY: aligned, valid while the frame is held, and reached through nothing else meanwhile.
        let mut buf = unsafe { IoBuf::from_raw(start, BLOCK_SIZE, frame.clone()) };
        buf[5] = 9;
        assert_eq!(Arc::strong_count(&frame), 2);
        drop(buf);
        assert_eq!(Arc::strong_count(&frame), 1);
        // SAFETY: the buffer is gone.
        assert_eq!(unsafe { (*frame.0.get())[5] }, 9);
    }
}
