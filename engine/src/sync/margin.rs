//! Distance between objects of the heap.

use std::fmt;
use std::mem::MaybeUninit;

/// A cache line of nothing: first and last in a `repr(C)` structure, it keeps what the structure has in between out
/// of the lines of its neighbours in memory. Aligned to a line it would be so too, but memory that is aligned costs
/// the allocator several times as many instructions.
pub struct Margin(#[expect(dead_code, reason = "it is there to take room")] MaybeUninit<[u8; 64]>);

impl Margin {
    /// One of them; nothing is written.
    pub const fn new() -> Margin {
        Margin(MaybeUninit::uninit())
    }
}

impl Default for Margin {
    fn default() -> Self {
        Margin::new()
    }
}

impl fmt::Debug for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Margin")
    }
}
