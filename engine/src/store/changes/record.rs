//! What becomes of the changes: what differs is found, encoded as the record's payload, and carried over to the pages.

use std::ops::Range;

use super::{Changes, GRAIN, Run, Staged};
use crate::format::{DataKey, Position};
use crate::store::Store;
use crate::store::delta::{DELTA_HEADER_SIZE, Delta, Encoder, FURTHER_HEADER_SIZE};
use crate::sync::Arc;

/// Bytes that are compared at once before their words are: most of what is copied stays as it is.
const STRIDE: usize = 64;
/// Room for the payload of a usual record in bytes: a creation's.
const USUAL_RECORD: usize = 1024;

impl Changes {
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
        let (mut runs, mut payload) = (Vec::new(), Vec::new());
        self.runs(&mut runs);
        let mut encoder = Encoder::new(&mut payload);
        self.for_each_delta(&runs, |delta| encoder.add(delta));
        payload.len()
    }

    /// The payload of the record; [`Changes::compare`] comes first.
    pub fn encode(&mut self) {
        let data = |staged: &Staged| match staged {
            Staged::Data { bytes, .. } => DELTA_HEADER_SIZE + size_of::<DataKey>() + bytes.len() + GRAIN,
            _ => 0,
        };
        let mut payload = std::mem::take(&mut self.payload);
        payload.reserve(USUAL_RECORD + self.staged.iter().map(data).sum::<usize>());
        let mut encoder = Encoder::new(&mut payload);
        self.for_each_delta(&self.runs, |delta| encoder.add(delta));
        self.payload = payload;
    }

    /// What [`Changes::encode`] has made.
    #[cfg(not(feature = "baselines"))]
    pub fn record(&self) -> &[u8] {
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

    pub(super) fn delta<'d>(&'d self, staged: &'d Staged) -> Delta<'d> {
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

/// The runs of words that differ; two runs become one where the gap costs no more than a delta of its own.
fn for_each_run(before: &[u8], after: &[u8], mut f: impl FnMut(Range<usize>)) {
    let mut run: Option<Range<usize>> = None;
    let mut differs = |word: Range<usize>| match &mut run {
        Some(run) if word.start - run.end <= FURTHER_HEADER_SIZE => run.end = word.end,
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
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_all_that_differs(len in 0usize..300, changed in proptest::collection::vec(0usize..300, 0..20)) {
            let before = vec![0u8; len];
            let mut after = before.clone();
            changed.iter().filter(|at| **at < len).for_each(|at| after[*at] = 1);
            let (mut redone, mut end) = (before.clone(), None);
            for_each_run(&before, &after, |range| {
                assert!(range.start % GRAIN == 0 && end.is_none_or(|end| range.start > end + FURTHER_HEADER_SIZE));
                end = Some(range.end);
                redone[range.clone()].copy_from_slice(&after[range]);
            });
            prop_assert_eq!(redone, after);
        }
    }
}
