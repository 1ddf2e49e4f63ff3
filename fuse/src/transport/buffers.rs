//! The buffers that requests lie in and replies are built in.
//!
//! A mount's threads are as many as the requests that wait, and each buffer has room for the largest of them: so buffers go
//! from thread to thread ([`Kept`]), and what is small and waits among many is moved to where it takes what it is.

use crate::sys::{self, Stay};
use parking_lot::Mutex;

const PAGE: usize = 4096;

/// Buffers that nobody uses: so many are kept.
#[derive(Default)]
pub struct Kept(Mutex<Vec<Placed>>);

impl Kept {
    /// The one that was given back last, or else a new one.
    pub fn take(&self, make: impl FnOnce() -> Placed) -> Placed {
        let kept = self.0.lock().pop();
        kept.unwrap_or_else(make)
    }

    /// Keeps it, unless there are `most` already.
    pub fn give(&self, buffer: Placed, most: usize) {
        let mut kept = self.0.lock();
        if kept.len() < most {
            kept.push(buffer);
        }
    }

    /// Keeps none.
    pub fn clear(&self) {
        let kept = std::mem::take(&mut *self.0.lock());
        drop(kept);
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// Bytes of which the one at a given distance lies on a page boundary.
pub struct Placed {
    memory: Vec<u8>,
    start: usize,
    len: usize,
    is_pinned: bool,
}

impl Placed {
    /// So many bytes, zeros.
    pub fn new(len: usize, before_boundary: usize) -> Self {
        // Zeroed memory comes from the kernel page by page when it is first used, if there is much of it.
        let memory = vec![0u8; len + PAGE];
        Placed { start: start_in(memory.as_ptr(), before_boundary), memory, len, is_pinned: false }
    }

    /// These bytes, the one at a given distance on a page boundary.
    pub fn copy_of(bytes: &[u8], before_boundary: usize) -> Self {
        let mut memory: Vec<u8> = Vec::with_capacity(bytes.len() + PAGE);
        let start = start_in(memory.as_ptr(), before_boundary);
        memory.resize(start, 0);
        memory.extend_from_slice(bytes);
        Placed { start, memory, len: bytes.len(), is_pinned: false }
    }

    /// Has its pages stay in memory.
    pub fn pin(&mut self, stay: Stay) {
        self.is_pinned = true;
        if let Err(e) = sys::pin(self.bytes(), stay) {
            tracing::debug!("a buffer is not locked in memory: {e}");
        }
    }

    /// All of it.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

/// Where bytes are to begin in memory that has room for a page more than they take.
fn start_in(memory: *const u8, before_boundary: usize) -> usize {
    let address = memory.addr() + before_boundary;
    address.next_multiple_of(PAGE) - address
}

impl Drop for Placed {
    fn drop(&mut self) {
        // The heap cannot give back what is locked, nor is what lies there next to be.
        if self.is_pinned
            && let Err(e) = sys::pin(self.bytes(), Stay::No)
        {
            tracing::debug!("a buffer stays locked in memory: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_write_begins_on_a_page() {
        let content: Vec<u8> = (0..3 * PAGE).map(|n| n as u8).collect();
        for before in [0, 80, PAGE - 1, PAGE, PAGE + 1] {
            let mut placed = Placed::new(3 * PAGE, before);
            let bytes = placed.bytes();
            assert_eq!(bytes.len(), 3 * PAGE);
            assert_eq!(bytes[before..].as_ptr().addr() % PAGE, 0);
            let mut copy = Placed::copy_of(&content, before);
            assert_eq!(copy.bytes(), content);
            assert_eq!(copy.bytes()[before..].as_ptr().addr() % PAGE, 0);
        }
    }

    #[test]
    fn no_more_than_that_are_kept() {
        let kept = Kept::default();
        for _ in 0..3 {
            kept.give(Placed::new(PAGE, 0), 2);
        }
        assert_eq!(kept.len(), 2);
        kept.take(|| unreachable!("there is one"));
        assert_eq!(kept.len(), 1);
        kept.clear();
        assert_eq!(kept.len(), 0);
    }
}
