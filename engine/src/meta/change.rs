//! One record about a file, what it may need, and what its pages are mapped to.

use crate::Error;
use crate::format::{DataKey, Position};
use std::ops::Range;

/// Consecutive blocks on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// The first.
    pub start: u64,
    /// How many.
    pub len: u32,
}

/// What lies at a page of a file, and for how many pages from there on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Nothing: it reads as zeros.
    Hole {
        /// Pages of the hole from here on; at least 1.
        len: u64,
    },
    /// Blocks.
    Mapped {
        /// Block of the page asked for.
        block: u64,
        /// Pages that follow one another on the device, this one among them; at least 1.
        len: u64,
        /// Allocated, but it reads as zeros.
        unwritten: bool,
    },
}

impl Mapping {
    /// Pages that the answer covers.
    pub fn len(&self) -> u64 {
        match self {
            Mapping::Hole { len } | Mapping::Mapped { len, .. } => *len,
        }
    }

    /// Never so: every answer covers a page.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A run of pages that becomes reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Insert {
    /// First page of the file.
    pub page: u64,
    /// Where it lies: blocks of one answer of [`super::Meta::allocate`].
    pub blocks: Blocks,
    /// Whether it reads as zeros.
    pub unwritten: bool,
}

/// One record about a file: everything in it happens, or nothing. Times that changed in memory go with it.
#[derive(Debug, Default)]
pub struct Change {
    /// Pages whose blocks are freed, before anything is inserted. What does not fit the record is left to
    /// [`super::Meta::free_rest`], unless the credits were taken for dropping the whole file. One range: a file has
    /// one such intent.
    pub remove: Option<Range<u64>>,
    /// Runs that become reachable, in ascending order.
    pub insert: Vec<Insert>,
    /// Unwritten pages that now hold data.
    pub mark_written: Vec<Range<u64>>,
    /// The new size in bytes.
    pub size: Option<u64>,
    /// Absorbed data.
    pub data: Vec<(DataKey, Vec<u8>)>,
    /// Absorbed data that counts no more.
    pub supersede: Vec<DataKey>,
}

impl Change {
    /// Whether there is nothing to record (times apart).
    pub fn is_empty(&self) -> bool {
        self.remove.is_none()
            && self.insert.is_empty()
            && self.mark_written.is_empty()
            && self.size.is_none()
            && self.data.is_empty()
            && self.supersede.is_empty()
    }
}

/// What a record about a file may have to hold: its credits are taken for so much.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Need {
    /// Runs inserted or marked, and ranges superseded.
    pub runs: usize,
    /// Extents, all that the file has, that are dropped before the runs are inserted; 0: nothing of the kind.
    pub dropped: usize,
    /// Bytes of absorbed data.
    pub data: usize,
    /// Ranges superseded, beside those that count as runs.
    pub superseded: usize,
    /// The caller begins anew after [`ROOM_CHANGED`]: the room may be what the change takes in the file as it is now,
    /// and need not allow for all that others may do to it meanwhile.
    pub again: bool,
}

/// What [`super::Meta::log`] answers if others have changed a file such that the room taken for it ([`Need::again`]) is too
/// little by now. Nothing has happened.
pub const ROOM_CHANGED: Error = Error::Errno(libc::EAGAIN);

/// A change that was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Position after the record.
    pub end: Position,
    /// Pages whose blocks are still to be freed: the record names them as an intent, and the caller lets go of
    /// the write-back mutex and calls [`super::Meta::free_rest`].
    pub left: Option<Range<u64>>,
}

/// Runs (inserted, marked and superseded together) in one [`Change`].
pub const MAX_RUNS: usize = 32;

/// The same where a file's whole old content is replaced: the new must go in one record if it can.
pub const MAX_NEW_RUNS: usize = 4096;
