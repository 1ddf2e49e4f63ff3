//! Bytes that a batch has been given, page by page.

use crate::device::BLOCK_SIZE;
use crate::file::read::overlap;
use crate::inode::InodeObj;
use crate::pages::{PAGE, page_after, page_of};
use crate::sync::Arc;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of one page.
#[derive(Debug, Clone)]
pub(in crate::file) struct StagedPage {
    pub bytes: Box<[u8; BLOCK_SIZE]>,
    /// Which of them are staged, in ascending order, no two touching.
    pub ranges: Vec<Range<usize>>,
}

impl StagedPage {
    /// Whether all of its bytes are staged.
    pub fn is_whole(&self) -> bool {
        self.ranges.as_slice() == std::slice::from_ref(&(0..BLOCK_SIZE))
    }

    /// The page as it is with what is staged in the place of what it holds.
    pub fn over(mut self, base: &[u8]) -> Box<[u8; BLOCK_SIZE]> {
        let mut from = 0;
        for range in self.ranges.iter().chain([&(BLOCK_SIZE..BLOCK_SIZE)]) {
            self.bytes[from..range.start].copy_from_slice(&base[from..range.start]);
            from = range.end;
        }
        self.bytes
    }

    /// A page of which these bytes are staged; without any ranges all of them.
    pub fn new(bytes: &[u8], ranges: &[Range<usize>]) -> StagedPage {
        let mut page = StagedPage { bytes: Box::new([0; BLOCK_SIZE]), ranges: Vec::new() };
        let all = 0..BLOCK_SIZE;
        for range in if ranges.is_empty() { std::slice::from_ref(&all) } else { ranges } {
            page.put(range.clone(), &bytes[range.clone()]);
        }
        page
    }

    /// What was staged before, with this over it.
    pub fn over_staged(&self, mut older: StagedPage) -> StagedPage {
        for range in &self.ranges {
            older.put(range.clone(), &self.bytes[range.clone()]);
        }
        older
    }

    fn put(&mut self, within: Range<usize>, from: &[u8]) {
        self.bytes[within.clone()].copy_from_slice(from);
        let mut all = within;
        self.ranges.retain(|range| {
            let touches = range.start <= all.end && all.start <= range.end;
            if touches {
                all = all.start.min(range.start)..all.end.max(range.end);
            }
            !touches
        });
        let at = self.ranges.partition_point(|range| range.start < all.start);
        self.ranges.insert(at, all);
    }
}

/// Where a page lies that has been brought into the staging file.
#[derive(Debug)]
pub(in crate::file) struct Spilled {
    /// The page there.
    pub source: u64,
    /// Which of its bytes are staged, as of a [`StagedPage`]; none: all of them.
    pub ranges: Vec<Range<usize>>,
}

/// What a batch writes to one file.
#[derive(Debug)]
pub struct StagedFile {
    pub(in crate::file) inode: Arc<InodeObj>,
    pub(in crate::file) pages: BTreeMap<u64, StagedPage>,
    /// Pages that lie in the staging file, and where; what `pages` has of them is newer.
    pub(in crate::file) spilled: BTreeMap<u64, Spilled>,
    /// The end of the last byte.
    pub(in crate::file) end: u64,
}

impl StagedFile {
    /// Nothing yet, for this file.
    pub fn of(inode: &Arc<InodeObj>) -> StagedFile {
        StagedFile { inode: Arc::clone(inode), pages: BTreeMap::new(), spilled: BTreeMap::new(), end: 0 }
    }

    /// The file.
    pub fn inode(&self) -> &Arc<InodeObj> {
        &self.inode
    }

    /// Pages that are staged in memory, whole or in part.
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Whether a page is staged, wherever it lies.
    pub(in crate::file) fn has(&self, page: u64) -> bool {
        self.pages.contains_key(&page) || self.spilled.contains_key(&page)
    }

    /// Stages a page as the file has it.
    pub(in crate::file) fn stage_nothing(&mut self, page: u64) {
        self.pages.insert(page, StagedPage { bytes: Box::new([0; BLOCK_SIZE]), ranges: Vec::new() });
    }

    /// How many more pages there would be with so many bytes there, and how many more in memory.
    pub fn new_pages(&self, offset: u64, len: usize) -> (usize, usize) {
        let pages = page_of(offset)..page_after(offset + len as u64);
        let kept = (pages.end - pages.start) as usize - self.pages.range(pages.clone()).count();
        (pages.filter(|page| !self.has(*page)).count(), kept)
    }

    /// First byte and length of what lies between the first and the last page.
    pub fn span(&self) -> (u64, u64) {
        let firsts = [self.pages.keys().next(), self.spilled.keys().next()];
        let first = firsts.into_iter().flatten().min().map_or(0, |page| page * PAGE);
        (first, self.end.saturating_sub(first))
    }

    /// Pages that are staged in part, and lie in the staging file alone.
    pub(in crate::file) fn partly_spilled(&self) -> Vec<u64> {
        let is_part =
            |page: &u64, spilled: &Spilled| !spilled.ranges.is_empty() && !self.pages.contains_key(page);
        self.spilled.iter().filter(|(page, spilled)| is_part(page, spilled)).map(|(page, _)| *page).collect()
    }

    /// Stages bytes; what was staged there before is overwritten.
    pub fn stage(&mut self, offset: u64, bytes: &[u8]) {
        for page in page_of(offset)..page_after(offset + bytes.len() as u64) {
            let (within, part) = overlap(page, offset, bytes.len());
            let fresh = || StagedPage { bytes: Box::new([0; BLOCK_SIZE]), ranges: Vec::new() };
            self.pages.entry(page).or_insert_with(fresh).put(within, &bytes[part]);
        }
        self.end = self.end.max(offset + bytes.len() as u64);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let fresh = || StagedPage { bytes: Box::new([0; BLOCK_SIZE]), ranges: Vec::new() };
        let mut page = fresh();
        for range in [10..20, 40..50, 30..40, 5..10] {
            page.put(range.clone(), &vec![range.start as u8; range.len()]);
        }
        assert_eq!(page.ranges, [5..20, 30..50]);
        page.put(0..4096, &[1; 4096]);
        assert_eq!(page.ranges.as_slice(), std::slice::from_ref(&(0..4096)));
        let mut page = fresh();
        page.put(0..4, &[1; 4]);
        page.put(2..6, &[2; 4]);
        assert_eq!(page.bytes[..7], [1, 1, 2, 2, 2, 2, 0]);
        let mut older = fresh();
        older.put(4..10, &[3; 6]);
        let both = page.over_staged(older);
        assert_eq!(both.ranges.as_slice(), std::slice::from_ref(&(0..10)));
        assert_eq!(both.bytes[..11], [1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 0]);
    }
}
