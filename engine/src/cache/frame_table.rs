//! The table of all frames: of this process alone, or in memory that its successor takes over.

#![allow(unsafe_code, reason = "a leaf module: the table in memory that outlives the process")]

use super::frame::{Frame, PageId};
use crate::takeover::FrameRegion;
use std::ops::Deref;

/// A page that a predecessor has left in a frame, and that may be nowhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inherited {
    pub(super) number: u32,
    /// The page that it holds.
    pub page: PageId,
}

/// All frames, by number.
#[derive(Debug)]
pub(super) enum FrameTable {
    Own(Box<[Frame]>),
    Shared(FrameRegion),
}

impl FrameTable {
    /// So many free frames.
    pub fn new(frames: usize) -> FrameTable {
        FrameTable::Own((0..frames).map(|_| Frame::new()).collect())
    }

    /// The frames of a region; all are free but those that hold what is nowhere else.
    pub fn shared(region: &FrameRegion) -> (FrameTable, Vec<Inherited>) {
        let table = FrameTable::Shared(region.clone());
        let mut inherited = Vec::new();
        for (number, frame) in (0..).zip(table.iter()) {
            match frame.inherited().filter(|_| region.is_inherited()) {
                Some(page) => inherited.push(Inherited { number, page }),
                None => frame.reset(),
            }
        }
        (table, inherited)
    }
}

impl Deref for FrameTable {
    type Target = [Frame];

    #[inline]
    fn deref(&self) -> &[Frame] {
        match self {
            FrameTable::Own(frames) => frames,
            FrameTable::Shared(region) => {
                // SAFETY: the region has an entry of 64 bytes, on a boundary of 64, for each of its frames, mapped as long
                // as it is held; `Frame` has that size (below) and is made of atomic words and flags. The flags are
                // bytes of 0 or 1: no other process has the memory now, and what a predecessor has left is reset before
                // anything else reads it. Guarded by `what_is_dirty_is_taken_over_and_the_rest_is_free`.
                unsafe {
                    std::slice::from_raw_parts(region.table().cast::<Frame>().as_ptr(), region.frames())
                }
            }
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Frame>() == 64 && align_of::<Frame>() == 64);
