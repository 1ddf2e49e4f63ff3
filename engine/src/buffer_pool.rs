//! Buffers that a thread keeps for its next use.
//!
//! What an fsync logs is tens of kibibytes, gathered and given back within microseconds. The heap takes such pieces
//! apart and puts them together again each time, and tidies up behind every large one that comes back.

use std::cell::RefCell;

/// Buffers that a thread keeps.
const KEPT: usize = 4;
/// The smallest and the largest that are kept, in bytes.
const WORTH: std::ops::RangeInclusive<usize> = 2 << 10..=128 << 10;

thread_local! {
    static POOL: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer with room for so many bytes.
pub(crate) fn take(bytes: usize) -> Vec<u8> {
    // A thread that is ending has none.
    let kept = POOL.try_with(|pool| pool.borrow_mut().pop()).ok().flatten();
    let mut buffer = kept.unwrap_or_default();
    buffer.reserve(bytes);
    buffer
}

/// Gives a buffer back that is not needed any more.
pub(crate) fn give(mut buffer: Vec<u8>) {
    if WORTH.contains(&buffer.capacity()) {
        buffer.clear();
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            if pool.len() < KEPT {
                pool.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty_and_only_so_many_are_kept() {
        for n in 0..2 * KEPT {
            give(vec![n as u8; 4096]);
        }
        give(vec![1; 10]);
        give(vec![1; 1 << 20]);
        for n in 0..2 * KEPT {
            let buffer = take(100);
            assert!(buffer.is_empty());
            assert_eq!(buffer.capacity() >= 4096, n < KEPT);
        }
    }
}
