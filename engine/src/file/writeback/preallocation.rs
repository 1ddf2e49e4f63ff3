//! Where a file goes on: behind the page before, with room kept ahead of a file that has begun to grow.

use crate::file::data_path::DataPath;
use crate::inode::InodeObj;
use crate::meta::Mapping;
use crate::sync::Arc;

/// A file that is shorter, in pages, gets no room ahead: most files stay small, and lie side by side so that one
/// request writes many of them.
const SMALL: u64 = 16;
/// Most room ahead, in blocks: 8 MiB, behind which a new run costs a disk nothing that counts.
const MOST: u64 = 2048;

/// Blocks to keep behind those of the pages from `page` on: as many as the file has, so that its runs double.
pub(in crate::file) fn room_ahead(page: u64) -> u32 {
    if page < SMALL { 0 } else { page.min(MOST) as u32 }
}

impl DataPath {
    /// The block behind that of the page before, if it has one.
    pub(in crate::file) fn block_behind(&self, inode: &Arc<InodeObj>, page: u64) -> Option<u64> {
        match self.map(inode, page.checked_sub(1)?) {
            Ok(Mapping::Mapped { block, .. }) => Some(block + 1),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::room_ahead;

    #[test]
    fn small_files_get_no_room_and_long_ones_not_too_much() {
        assert_eq!([0, 1, 15].map(room_ahead), [0; 3]);
        assert_eq!([16, 100, 2048, u64::MAX].map(room_ahead), [16, 100, 2048, 2048]);
    }
}
