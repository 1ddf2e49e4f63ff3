//! What an operation is about to change: private copies of ranges of pages, and what else is staged.
//!
//! [`record`] makes a record of them, and carries them out. What both leave to others: the log, and who is told of its
//! outcome. The memory is the thread's: the next operation uses it again, within bounds.
//!
//! Invariants: copies do not overlap; a page is held once, and all else names it by its place.

mod marks;
mod record;
#[cfg(feature = "baselines")]
mod touched;

use std::cell::Cell;
use std::ops::Range;

use self::marks::Marks;
use super::delta::MAX_DATA;
use super::page::PageRef;
use crate::buffer_pool;
use crate::device::BLOCK_SIZE;
use crate::format::{DataKey, Nid, U64};
use crate::sync::Arc;

/// Grain of the comparison between old and new bytes.
pub(super) const GRAIN: usize = 8;
/// Room for the copies of a usual record in bytes, and for what it changes: a creation's.
const USUAL_COPIES: usize = 2048;
const USUAL_EDITS: usize = 8;
/// Runs of bits that are looked through one by one.
const FEW_BITS: usize = 16;
/// The most that a thread keeps of copies and of payload, in bytes, and of everything else, in pieces.
const MOST_KEPT: usize = 128 << 10;
const MOST_PIECES: usize = 256;

thread_local! {
    static KEPT: Cell<Option<Box<Changes>>> = const { Cell::new(None) };
}

/// The changes.
pub(super) struct Changes {
    pages: Vec<PageRef>,
    copies: Vec<Copied>,
    /// What the copies hold, in the order of their making; and what is staged by value.
    bytes: Vec<u8>,
    /// What differs, once that was looked for.
    runs: Vec<Run>,
    staged: Vec<Staged>,
    /// Runs of bits among them, and which those are, once they are more than a few.
    bits: usize,
    marks: Marks,
    fresh: Vec<(PageRef, Nid, u32)>,
    forgotten: Vec<PageRef>,
    payload: Vec<u8>,
}

/// A private copy of a range of a page: from `at` on the bytes as they were, then as they will be.
struct Copied {
    page: usize,
    start: usize,
    len: usize,
    at: usize,
}

/// New bytes of a page.
struct Run {
    page: usize,
    /// Where in the page.
    offset: usize,
    /// Where in [`Changes::bytes`].
    at: usize,
    len: usize,
}

/// What is logged in the order of its staging.
enum Staged {
    Bits { page: usize, first: u32, count: u32, set: bool },
    IfNewer { page: usize, offset: usize, bytes: Range<usize> },
    Data { key: DataKey, bytes: Vec<u8> },
    Supersede { key: DataKey },
}

impl Copied {
    fn end(&self) -> usize {
        self.start + self.len
    }

    /// Where the bytes begin as they will be.
    fn after(&self) -> usize {
        self.at + self.len
    }

    /// Whether it covers the whole range.
    fn holds(&self, page: usize, range: &Range<usize>) -> bool {
        self.page == page && self.start <= range.start && range.end <= self.end()
    }

    /// Whether it shares a byte with the range.
    fn meets(&self, page: usize, range: &Range<usize>) -> bool {
        self.page == page && self.start < range.end && range.start < self.end()
    }
}

impl Changes {
    /// None yet.
    pub fn take() -> Box<Changes> {
        // A thread that is ending has none, nor one that is at another operation.
        KEPT.try_with(Cell::take).ok().flatten().unwrap_or_else(|| {
            Box::new(Changes {
                pages: Vec::with_capacity(USUAL_EDITS),
                copies: Vec::with_capacity(USUAL_EDITS),
                bytes: Vec::with_capacity(USUAL_COPIES),
                runs: Vec::with_capacity(2 * USUAL_EDITS),
                staged: Vec::with_capacity(USUAL_EDITS),
                bits: 0,
                marks: Marks::default(),
                fresh: Vec::new(),
                forgotten: Vec::new(),
                payload: Vec::new(),
            })
        })
    }

    /// Gives the memory back to the thread.
    pub fn give(mut self: Box<Self>) {
        self.clear();
        if self.is_worth_keeping() {
            let _ = KEPT.try_with(|kept| kept.set(Some(self)));
        }
    }

    fn clear(&mut self) {
        self.pages.clear();
        self.copies.clear();
        self.bytes.clear();
        self.runs.clear();
        self.bits = 0;
        self.marks.clear();
        self.fresh.clear();
        self.forgotten.clear();
        self.payload.clear();
        for staged in self.staged.drain(..) {
            if let Staged::Data { bytes, .. } = staged {
                buffer_pool::give(bytes);
            }
        }
    }

    fn is_worth_keeping(&self) -> bool {
        let pieces = [
            self.pages.capacity(),
            self.copies.capacity(),
            self.runs.capacity(),
            self.staged.capacity(),
            self.fresh.capacity(),
            self.forgotten.capacity(),
        ];
        self.bytes.capacity().max(self.payload.capacity()) <= MOST_KEPT
            && pieces.into_iter().all(|pieces| pieces <= MOST_PIECES)
    }

    /// The place of a page that was named before.
    fn place(&self, page: &PageRef) -> Option<usize> {
        self.pages.iter().position(|known| Arc::ptr_eq(known, page))
    }

    fn name(&mut self, page: &PageRef) -> usize {
        self.place(page).unwrap_or_else(|| {
            self.pages.push(Arc::clone(page));
            self.pages.len() - 1
        })
    }

    /// A private copy of a range, to be changed at will; the same one for a range within it.
    pub fn edit(&mut self, page: &PageRef, range: Range<usize>) -> &mut [u8] {
        debug_assert!(range.start.is_multiple_of(GRAIN) && range.end <= BLOCK_SIZE, "{range:?}");
        let page = self.name(page);
        let from = match self.copies.iter().find(|copy| copy.holds(page, &range)) {
            Some(copy) => copy.after() + range.start - copy.start,
            None => self.copy(page, &range),
        };
        &mut self.bytes[from..from + range.len()]
    }

    /// Adds a copy that covers the range and every copy that meets it; where the range lies in it.
    fn copy(&mut self, page: usize, range: &Range<usize>) -> usize {
        let meets = |copy: &Copied| copy.meets(page, range);
        let met = || self.copies.iter().filter(|copy| meets(copy));
        let start = met().map(|copy| copy.start).fold(range.start, usize::min);
        let end = met().map(Copied::end).fold(range.end, usize::max);
        let (at, len) = (self.bytes.len(), end - start);
        self.pages[page].read(|bytes| self.bytes.extend_from_slice(&bytes[start..end]));
        self.bytes.extend_from_within(at..);
        if len > range.len() || self.copies.iter().any(meets) {
            for old in self.copies.extract_if(.., |copy| meets(copy)) {
                let from = old.after();
                self.bytes.copy_within(from..from + old.len, at + len + old.start - start);
            }
        }
        self.copies.push(Copied { page, start, len, at });
        at + len + range.start - start
    }

    /// Whether a page has private copies.
    pub fn edits(&self, page: &PageRef) -> bool {
        self.place(page).is_some_and(|page| self.copies.iter().any(|copy| copy.page == page))
    }

    /// The bytes of a range as the operation sees them.
    pub fn view(&self, page: &PageRef, range: Range<usize>) -> Vec<u8> {
        let mut bytes = page.read(|bytes| bytes[range.clone()].to_vec());
        let Some(place) = self.place(page) else { return bytes };
        for copy in self.copies.iter().filter(|copy| copy.meets(place, &range)) {
            let (from, to) = (copy.start.max(range.start), copy.end().min(range.end));
            let after = &self.bytes[copy.after()..][from - copy.start..to - copy.start];
            bytes[from - range.start..to - range.start].copy_from_slice(after);
        }
        bytes
    }

    /// A page that nobody else knows yet.
    pub fn init(&mut self, page: PageRef, owner: Nid, generation: u32) {
        self.fresh.push((page, owner, generation));
    }

    /// The pages that the operation has made.
    pub fn made(&self) -> impl Iterator<Item = &PageRef> {
        self.fresh.iter().map(|(page, ..)| page)
    }

    /// Bits of a bitmap page.
    pub fn bits(&mut self, bitmap: &PageRef, first: u32, count: u32, set: bool) {
        let page = self.name(bitmap);
        self.staged.push(Staged::Bits { page, first, count, set });
        self.bits += 1;
        if self.bits > FEW_BITS {
            let new = if self.bits == FEW_BITS + 1 { 0 } else { self.staged.len() - 1 };
            for staged in &self.staged[new..] {
                if let Staged::Bits { page, first, count, .. } = staged {
                    self.marks.add(*page, *first..*first + *count);
                }
            }
        }
    }

    /// Whether any of these bits of a bitmap page is to be set or cleared.
    pub fn stages_bits(&self, bitmap: &PageRef, bits: &Range<u32>) -> bool {
        if self.bits > FEW_BITS {
            return self.place(bitmap).is_some_and(|page| self.marks.meet(page, bits));
        }
        self.staged_bits(bitmap).any(|(staged, _)| staged.start < bits.end && bits.start < staged.end)
    }

    /// The bits of a bitmap page that are to be set or cleared, in the order of their staging.
    pub fn staged_bits(&self, bitmap: &PageRef) -> impl DoubleEndedIterator<Item = (Range<u32>, bool)> {
        let place = self.place(bitmap);
        self.staged.iter().filter_map(move |staged| match staged {
            Staged::Bits { page, first, count, set } if Some(*page) == place => {
                Some((*first..first + count, *set))
            }
            _ => None,
        })
    }

    /// Bytes that a later record's keep out.
    pub fn write_if_newer(&mut self, page: &PageRef, offset: usize, bytes: &[u8]) {
        let page = self.name(page);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.staged.push(Staged::IfNewer { page, offset, bytes: at..self.bytes.len() });
    }

    /// A page whose block is freed.
    pub fn forget(&mut self, page: &PageRef) {
        self.forgotten.push(Arc::clone(page));
    }

    /// File data.
    pub fn data(&mut self, key: DataKey, bytes: Vec<u8>) {
        debug_assert_eq!(key.len.get(), bytes.len() as u64);
        if bytes.len() <= MAX_DATA {
            self.staged.push(Staged::Data { key, bytes });
            return;
        }
        let mut offset = key.offset.get();
        for part in bytes.chunks(MAX_DATA) {
            let key = DataKey { offset: U64::new(offset), len: U64::new(part.len() as u64), ..key };
            offset += part.len() as u64;
            self.staged.push(Staged::Data { key, bytes: part.to_vec() });
        }
    }

    /// Earlier data counts no more.
    pub fn supersede(&mut self, key: DataKey) {
        self.staged.push(Staged::Supersede { key });
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::format::BlockKind;
    use crate::store::Page;

    #[test]
    fn a_thread_keeps_the_memory_of_one_operation_within_bounds() {
        let page = Page::fresh(7, BlockKind::Node, 0, 0);
        let first = Changes::take();
        let mut second = Changes::take();
        second.edit(&page, 0..64).fill(1);
        assert!(second.compare());
        second.encode();
        let at = second.bytes.as_ptr();
        first.give();
        second.give();
        assert_eq!(Arc::strong_count(&page), 1, "a page is not kept");
        let mut again = Changes::take();
        assert_eq!(again.bytes.as_ptr(), at);
        assert!(again.payload.is_empty() && !again.compare() && !again.edits(&page));
        again.bytes.reserve(MOST_KEPT + 1);
        again.give();
        assert!(Changes::take().bytes.capacity() < MOST_KEPT);
    }
}
