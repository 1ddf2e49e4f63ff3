//! What an operation is about to change: private copies of ranges of pages, and what else is staged.
//!
//! What this leaves to others: the log, and who is told of its outcome. The memory is the thread's: the next
//! operation uses it again, within bounds.
//!
//! Invariants: copies do not overlap; a page is held once, and all else names it by its place.

use std::cell::Cell;
use std::ops::Range;

use super::Store;
use super::delta::{DELTA_HEADER_SIZE, Delta, MAX_DATA};
use super::page::PageRef;
use crate::device::BLOCK_SIZE;
use crate::format::{DataKey, Nid, Position, U64};
use crate::spare;
use crate::sync::Arc;

/// Grain of the comparison between old and new bytes.
pub(super) const GRAIN: usize = 8;
/// Bytes that are compared at once before their words are: most of what is copied stays as it is.
const STRIDE: usize = 64;
/// Room for the payload of a usual record in bytes, for its copies, and for what it changes: a creation's.
const USUAL_RECORD: usize = 1024;
const USUAL_COPIES: usize = 2048;
const USUAL_EDITS: usize = 8;
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
        self.fresh.clear();
        self.forgotten.clear();
        self.payload.clear();
        for staged in self.staged.drain(..) {
            if let Staged::Data { bytes, .. } = staged {
                spare::give(bytes);
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

    fn forgets(&self, page: usize) -> bool {
        self.forgotten.iter().any(|forgotten| Arc::ptr_eq(forgotten, &self.pages[page]))
    }

    /// Finds what differs, for the record and for the pages; whether anything does.
    pub fn compare(&mut self) -> bool {
        let mut runs = std::mem::take(&mut self.runs);
        self.runs(&mut runs);
        self.runs = runs;
        !(self.fresh.is_empty()
            && self.runs.is_empty()
            && self.staged.is_empty()
            && self.forgotten.is_empty())
    }

    fn runs(&self, into: &mut Vec<Run>) {
        for copy in self.copies.iter().filter(|copy| !self.forgets(copy.page)) {
            let (before, after) = self.bytes[copy.at..copy.after() + copy.len].split_at(copy.len);
            for_each_run(before, after, |range| {
                let (offset, at) = (copy.start + range.start, copy.after() + range.start);
                into.push(Run { page: copy.page, offset, at, len: range.len() });
            });
        }
    }

    /// Bytes that the record would take now.
    pub fn encoded_len(&self) -> usize {
        let (mut runs, mut bytes) = (Vec::new(), 0);
        self.runs(&mut runs);
        self.for_each_delta(&runs, |delta| bytes += delta.encoded_len());
        bytes
    }

    /// The payload of the record; [`Changes::compare`] comes first.
    pub fn encode(&mut self) {
        let data = |staged: &Staged| match staged {
            Staged::Data { bytes, .. } => DELTA_HEADER_SIZE + size_of::<DataKey>() + bytes.len() + GRAIN,
            _ => 0,
        };
        let mut payload = std::mem::take(&mut self.payload);
        payload.reserve(USUAL_RECORD + self.staged.iter().map(data).sum::<usize>());
        self.for_each_delta(&self.runs, |delta| delta.encode(&mut payload));
        self.payload = payload;
    }

    /// What [`Changes::encode`] has made.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Every delta of the record, in the order of redo.
    fn for_each_delta(&self, runs: &[Run], mut f: impl FnMut(&Delta<'_>)) {
        for (page, owner, generation) in &self.fresh {
            let (block, kind) = (page.block(), page.kind());
            f(&Delta::Init { block, kind, owner: *owner, generation: *generation });
        }
        for run in runs {
            let page = &self.pages[run.page];
            let bytes = &self.bytes[run.at..run.at + run.len];
            f(&Delta::Write { block: page.block(), kind: page.kind(), offset: run.offset, bytes });
        }
        for staged in &self.staged {
            f(&self.delta(staged));
        }
        for page in &self.forgotten {
            f(&Delta::Forget { block: page.block() });
        }
    }

    fn delta<'d>(&'d self, staged: &'d Staged) -> Delta<'d> {
        match staged {
            Staged::Bits { page, first, count, set } => {
                Delta::Bits { block: self.pages[*page].block(), first: *first, count: *count, set: *set }
            }
            Staged::IfNewer { page, offset, bytes } => {
                let (page, bytes) = (&self.pages[*page], &self.bytes[bytes.clone()]);
                Delta::Write { block: page.block(), kind: page.kind(), offset: *offset, bytes }
            }
            Staged::Data { key, bytes } => Delta::Data { key: *key, bytes },
            Staged::Supersede { key } => Delta::Supersede { key: *key },
        }
    }

    /// Changes the pages as the record that ends at `end` says; [`Changes::compare`] comes first. Nothing here may
    /// fail or sleep: the record is already on its way.
    pub fn apply(&self, store: &Store, end: Position) {
        for (page, ..) in &self.fresh {
            page.latch().position = end;
            store.table.replace(Arc::clone(page));
            store.dirty.note(page, page.mark_dirty());
        }
        for runs in self.runs.chunk_by(|a, b| a.page == b.page) {
            let page = &self.pages[runs[0].page];
            let mut body = page.latch();
            for run in runs {
                let bytes = &self.bytes[run.at..run.at + run.len];
                body.bytes[run.offset..run.offset + run.len].copy_from_slice(bytes);
            }
            body.position = body.position.max(end);
            store.dirty.note(page, page.mark_dirty());
        }
        for staged in &self.staged {
            let (Staged::Bits { page, .. } | Staged::IfNewer { page, .. }) = staged else { continue };
            if self.forgets(*page) {
                continue;
            }
            let page = &self.pages[*page];
            let mut body = page.latch();
            match staged {
                Staged::IfNewer { offset, bytes, .. } => {
                    body.write_if_newer(*offset, &self.bytes[bytes.clone()], end);
                }
                _ => body.apply(&self.delta(staged), end),
            }
            store.dirty.note(page, page.mark_dirty());
        }
        for page in &self.forgotten {
            store.dirty.forget(page);
            store.table.remove(page);
        }
    }
}

/// The runs of words that differ; two runs become one where the gap costs less than a delta of its own.
fn for_each_run(before: &[u8], after: &[u8], mut f: impl FnMut(Range<usize>)) {
    let mut run: Option<Range<usize>> = None;
    let mut differs = |word: Range<usize>| match &mut run {
        Some(run) if word.start - run.end <= DELTA_HEADER_SIZE => run.end = word.end,
        other => {
            if let Some(done) = other.replace(word) {
                f(done);
            }
        }
    };
    let mut compare = |from: usize, old: &[u8], new: &[u8]| {
        let (old, old_rest) = old.as_chunks::<GRAIN>();
        let (new, new_rest) = new.as_chunks::<GRAIN>();
        for (index, (old, new)) in old.iter().zip(new).enumerate() {
            if u64::from_ne_bytes(*old) != u64::from_ne_bytes(*new) {
                differs(from + index * GRAIN..from + (index + 1) * GRAIN);
            }
        }
        if old_rest != new_rest {
            differs(from + new.len() * GRAIN..from + new.len() * GRAIN + new_rest.len());
        }
    };
    let (old, old_rest) = before.as_chunks::<STRIDE>();
    let (new, new_rest) = after.as_chunks::<STRIDE>();
    for (index, (old, new)) in old.iter().zip(new).enumerate() {
        if old != new {
            compare(index * STRIDE, old, new);
        }
    }
    compare(new.len() * STRIDE, old_rest, new_rest);
    if let Some(run) = run {
        f(run);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::format::BlockKind;
    use crate::store::Page;
    use proptest::prelude::*;

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
        assert!(again.payload().is_empty() && !again.compare() && !again.edits(&page));
        again.bytes.reserve(MOST_KEPT + 1);
        again.give();
        assert!(Changes::take().bytes.capacity() < MOST_KEPT);
    }

    proptest! {
        #[test]
        fn runs_are_all_that_differs(len in 0usize..300, changed in proptest::collection::vec(0usize..300, 0..20)) {
            let before = vec![0u8; len];
            let mut after = before.clone();
            changed.iter().filter(|at| **at < len).for_each(|at| after[*at] = 1);
            let (mut redone, mut end) = (before.clone(), None);
            for_each_run(&before, &after, |range| {
                assert!(range.start % GRAIN == 0 && end.is_none_or(|end| range.start > end + DELTA_HEADER_SIZE));
                end = Some(range.end);
                redone[range.clone()].copy_from_slice(&after[range]);
            });
            prop_assert_eq!(redone, after);
        }
    }
}
