//! The atomic batch: writes to several files of which a crash leaves all or none. docs/DESIGN.md, "The atomic batch", has
//! the protocol.
//!
//! What this leaves to others: who may write, which files are open, and when a commit is durable (`vfs::batch`).

mod large;
mod manifest;
mod small;
mod staged;

pub use large::SpillFile;
#[cfg(any(test, fuzzing, feature = "sim"))]
pub(crate) use manifest::encode as encode_manifest;
pub(crate) use manifest::{MOST_MANIFEST_BYTES, manifest_runs};
pub use staged::StagedFile;

use crate::file::data_path::DataPath;

/// Pages of a batch at the most that go into one record.
const RECORD_PAGES: usize = 1024;
/// Slots of a record for each of them: its bytes, and something for new places.
const SLOTS_OF_PAGE: u32 = 20;
/// Such a batch has this part of all frames at the most, for they are its own until the record is logged.
const FRAMES_PART: usize = 8;

impl DataPath {
    /// Pages of a batch at the most that one record may take, if its files allow for it.
    pub fn record_pages(&self) -> usize {
        let journal = self.meta.store().journal();
        let fitting = journal.map_or(u32::MAX, |journal| journal.max_record_slots() / SLOTS_OF_PAGE) as usize;
        (self.pool.len() / FRAMES_PART).min(fitting).clamp(1, RECORD_PAGES)
    }
}
