//! One operation on its way: what it will change, and the commit that changes it all at once.
//!
//! A handle collects; nothing but the handle itself sees the changes until [`Handle::commit`]. It leaves all
//! locking to its caller: whoever edits a range holds the lock that protects it, from before the first edit
//! or view until after the commit. Only the words that differ are logged, at a grain of 8 bytes, and only
//! they are applied, so that neighbours in one page do not disturb each other.

use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes, KnownLayout};

use super::Store;
use super::delta::{DELTA_HEADER_SIZE, Delta, MAX_DATA};
use super::log::Allowance;
use super::page::{Page, PageRef};
use crate::Result;
use crate::device::BLOCK_SIZE;
use crate::format::{BlockKind, DataKey, Nid, Position, SLOT_PAYLOAD, U64};
use crate::spare;
use crate::sync::Arc;

/// Grain of the comparison between old and new bytes.
const GRAIN: usize = 8;
/// Room for the payload of a usual record, and for what it changes, in bytes: a creation's.
const USUAL_RECORD: usize = 1024;
/// Ranges that a usual record changes.
const USUAL_EDITS: usize = 8;

/// An operation being built. Dropped without commit, nothing has happened.
pub struct Handle<'s> {
    store: &'s Store,
    allowance: Option<Allowance<'s>>,
    fresh: Vec<(PageRef, Nid, u32)>,
    scratches: Vec<Scratch>,
    /// What the scratches hold, in the order of their making.
    held: Vec<u8>,
    staged: Vec<Staged>,
    forgotten: Vec<PageRef>,
    on_abort: Vec<Box<dyn FnOnce() + 's>>,
    on_commit: Vec<Box<dyn FnOnce(Position) + 's>>,
}

/// A private copy of a range of a page. [`Handle::held`] has its bytes: first as they were, then as they will be.
struct Scratch {
    page: PageRef,
    start: usize,
    len: usize,
    at: usize,
}

/// What is logged in the order of its staging.
enum Staged {
    Bits { page: PageRef, first: u32, count: u32, set: bool },
    IfNewer { page: PageRef, offset: usize, bytes: Vec<u8> },
    Data { key: DataKey, bytes: Vec<u8> },
    Supersede { key: DataKey },
}

impl<'s> Handle<'s> {
    /// An operation that has changed nothing yet.
    pub(super) fn new(store: &'s Store, allowance: Allowance<'s>) -> Handle<'s> {
        Handle {
            store,
            allowance: Some(allowance),
            fresh: Vec::new(),
            scratches: Vec::with_capacity(USUAL_EDITS),
            held: Vec::with_capacity(USUAL_RECORD),
            staged: Vec::new(),
            forgotten: Vec::new(),
            on_abort: Vec::new(),
            on_commit: Vec::new(),
        }
    }

    /// The store it works on.
    pub fn store(&self) -> &'s Store {
        self.store
    }

    /// A private copy of `range` of a page, to be changed at will. Editing within a range that was edited
    /// before gives the same copy. The range starts at a multiple of 8 and holds whole fields only.
    pub fn edit(&mut self, page: &PageRef, range: Range<usize>) -> &mut [u8] {
        debug_assert!(range.start.is_multiple_of(GRAIN) && range.end <= BLOCK_SIZE, "{range:?}");
        let at = match self.scratches.iter().position(|scratch| scratch.holds(page, &range)) {
            Some(at) => at,
            None => self.add_scratch(page, range.clone()),
        };
        let scratch = &self.scratches[at];
        let from = scratch.at + scratch.len + range.start - scratch.start;
        &mut self.held[from..from + range.len()]
    }

    /// [`Handle::edit`] of the structure at `offset`.
    pub fn edit_as<T: FromBytes + IntoBytes + KnownLayout>(
        &mut self,
        page: &PageRef,
        offset: usize,
    ) -> &mut T {
        let bytes = self.edit(page, offset..offset + size_of::<T>());
        T::mut_from_bytes(bytes).unwrap_or_else(|_| unreachable!("persisted types have no alignment"))
    }

    /// The bytes of a range as this operation sees them.
    pub fn view(&self, page: &PageRef, range: Range<usize>) -> Vec<u8> {
        let mut bytes = match self.scratches.iter().find(|scratch| scratch.holds(page, &range)) {
            Some(scratch) => {
                let after = scratch.after(&self.held);
                return after[range.start - scratch.start..range.end - scratch.start].to_vec();
            }
            None => page.read(|bytes| bytes[range.clone()].to_vec()),
        };
        for scratch in self.scratches.iter().filter(|scratch| scratch.meets(page, &range)) {
            let (from, to) = scratch.shared(&range);
            bytes[from - range.start..to - range.start]
                .copy_from_slice(&scratch.after(&self.held)[from - scratch.start..to - scratch.start]);
        }
        bytes
    }

    /// Reads a whole page as this operation sees it, under the shared latch where it has changed nothing: `f` is
    /// short, takes no lock and reads no other page.
    pub fn read<R>(&self, page: &PageRef, f: impl FnOnce(&[u8]) -> R) -> R {
        if self.scratches.iter().any(|scratch| Arc::ptr_eq(&scratch.page, page)) {
            f(&self.view(page, 0..BLOCK_SIZE))
        } else {
            page.read(|bytes| f(bytes))
        }
    }

    /// [`Handle::view`] of the structure at `offset`.
    pub fn view_as<T: FromBytes>(&self, page: &PageRef, offset: usize) -> T {
        T::read_from_bytes(&self.view(page, offset..offset + size_of::<T>()))
            .unwrap_or_else(|_| unreachable!("the view has the type's size"))
    }

    /// A fresh page for a block that was just allocated: zeros, and a header unless it is a node block.
    /// Others find it once the handle is committed.
    pub fn init(&mut self, block: u64, kind: BlockKind, owner: Nid, generation: u32) -> Result<PageRef> {
        self.store.check_block(block)?;
        let page = Page::fresh(block, kind, owner, generation);
        self.fresh.push((Arc::clone(&page), owner, generation));
        Ok(page)
    }

    /// The page of a block as this operation sees it: one it made itself, or the store's.
    pub fn get(&self, block: u64, kind: BlockKind) -> Result<PageRef> {
        match self.fresh.iter().find(|(page, ..)| page.block() == block && page.kind() == kind) {
            Some((page, ..)) => Ok(Arc::clone(page)),
            None => self.store.get(block, kind),
        }
    }

    /// Sets bits of a bitmap page, bit 0 being the first after the header.
    pub fn set_bits(&mut self, bitmap: &PageRef, first: u32, count: u32) {
        self.staged.push(Staged::Bits { page: Arc::clone(bitmap), first, count, set: true });
    }

    /// Clears bits of a bitmap page.
    pub fn clear_bits(&mut self, bitmap: &PageRef, first: u32, count: u32) {
        self.staged.push(Staged::Bits { page: Arc::clone(bitmap), first, count, set: false });
    }

    /// Writes bytes at the commit unless an operation with a higher position has written this offset of the
    /// page in this way: for fields that operations change without excluding each other (directory times).
    pub fn write_if_newer(&mut self, page: &PageRef, offset: usize, bytes: &[u8]) {
        self.staged.push(Staged::IfNewer { page: Arc::clone(page), offset, bytes: bytes.to_vec() });
    }

    /// The page's block is freed: at the commit it leaves the table, and it is not written any more.
    pub fn forget(&mut self, page: &PageRef) {
        self.forgotten.push(Arc::clone(page));
    }

    /// Logs file data; `key.len` is the number of bytes.
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

    /// Earlier data records within the key's range count no more.
    pub fn supersede(&mut self, key: DataKey) {
        self.staged.push(Staged::Supersede { key });
    }

    /// Runs `f` if the handle is dropped without commit, or its commit fails.
    pub fn on_abort(&mut self, f: impl FnOnce() + 's) {
        self.on_abort.push(Box::new(f));
    }

    /// Runs `f` with the end of the record once it is applied and before it is sealed. It must not block.
    pub fn on_commit(&mut self, f: impl FnOnce(Position) + 's) {
        self.on_commit.push(Box::new(f));
    }

    /// Slots that a commit would take now.
    pub fn slots_needed(&self) -> u32 {
        let mut bytes = 0;
        self.for_each_delta(|delta| bytes += delta.encoded_len());
        bytes.div_ceil(SLOT_PAYLOAD) as u32
    }

    /// Logs the operation, applies it to the pages, and seals it; the end (exclusive) of its record. It fails
    /// only if the journal has failed (or the handle asked for too few slots); then nothing has happened.
    pub fn commit(mut self) -> Result<Position> {
        let store = self.store;
        let mut payload = Vec::new();
        let mut changes_nothing = true;
        if store.log.only_counts() {
            self.for_each_delta(|_| changes_nothing = false);
        } else {
            let data = |staged: &Staged| match staged {
                Staged::Data { bytes, .. } => DELTA_HEADER_SIZE + size_of::<DataKey>() + bytes.len() + GRAIN,
                _ => 0,
            };
            payload = spare::take(USUAL_RECORD + self.staged.iter().map(data).sum::<usize>());
            self.for_each_delta(|delta| delta.encode(&mut payload));
            changes_nothing = payload.is_empty();
        }
        if changes_nothing {
            let end = store.log.tail();
            self.applied(end);
            return Ok(end);
        }
        let Some(allowance) = self.allowance.take() else { unreachable!("a handle commits once") };
        let end = store.log.log(allowance, &payload, |_, end| {
            self.apply(end);
            self.applied(end);
        })?;
        spare::give(payload);
        for staged in self.staged.drain(..) {
            if let Staged::Data { bytes, .. } = staged {
                spare::give(bytes);
            }
        }
        store.signal.uncommitted();
        Ok(end)
    }

    /// Changes the pages. Nothing here may fail or sleep: the record is already on its way.
    fn apply(&self, end: Position) {
        for (page, ..) in &self.fresh {
            page.latch().position = end;
            self.store.table.replace(Arc::clone(page));
            self.store.dirty.note(page, page.mark_dirty());
        }
        for scratch in self.scratches.iter().filter(|scratch| !self.forgets(&scratch.page)) {
            let mut changed = false;
            let after = scratch.after(&self.held);
            let mut body = scratch.page.latch();
            for_each_run(scratch.before(&self.held), after, |range| {
                let at = scratch.start + range.start;
                body.bytes[at..at + range.len()].copy_from_slice(&after[range]);
                changed = true;
            });
            if changed {
                body.position = body.position.max(end);
                self.store.dirty.note(&scratch.page, scratch.page.mark_dirty());
            }
        }
        for staged in &self.staged {
            let page = match staged {
                Staged::Bits { page, .. } | Staged::IfNewer { page, .. } if !self.forgets(page) => page,
                _ => continue,
            };
            let mut body = page.latch();
            match staged {
                Staged::IfNewer { offset, bytes, .. } => body.write_if_newer(*offset, bytes, end),
                _ => body.apply(&staged.delta(), end),
            }
            self.store.dirty.note(page, page.mark_dirty());
        }
        for page in &self.forgotten {
            self.store.dirty.forget(page);
            self.store.table.remove(page);
        }
    }

    /// Tells those who wait for the commit.
    fn applied(&mut self, end: Position) {
        self.on_abort.clear();
        for f in std::mem::take(&mut self.on_commit) {
            f(end);
        }
    }

    /// Every delta of the record, in the order of redo.
    fn for_each_delta(&self, mut f: impl FnMut(&Delta<'_>)) {
        for (page, owner, generation) in &self.fresh {
            let (block, kind) = (page.block(), page.kind());
            f(&Delta::Init { block, kind, owner: *owner, generation: *generation });
        }
        for scratch in self.scratches.iter().filter(|scratch| !self.forgets(&scratch.page)) {
            let (block, kind) = (scratch.page.block(), scratch.page.kind());
            let after = scratch.after(&self.held);
            for_each_run(scratch.before(&self.held), after, |range| {
                let offset = scratch.start + range.start;
                f(&Delta::Write { block, kind, offset, bytes: &after[range] });
            });
        }
        for staged in &self.staged {
            f(&staged.delta());
        }
        for page in &self.forgotten {
            f(&Delta::Forget { block: page.block() });
        }
    }

    fn forgets(&self, page: &PageRef) -> bool {
        self.forgotten.iter().any(|forgotten| Arc::ptr_eq(forgotten, page))
    }

    /// Adds a private copy that covers the range and every copy that meets it.
    fn add_scratch(&mut self, page: &PageRef, range: Range<usize>) -> usize {
        let met: Vec<_> = self.scratches.extract_if(.., |scratch| scratch.meets(page, &range)).collect();
        let start = met.iter().map(|scratch| scratch.start).fold(range.start, usize::min);
        let end = met.iter().map(Scratch::end).fold(range.end, usize::max);
        let at = self.held.len();
        page.read(|bytes| self.held.extend_from_slice(&bytes[start..end]));
        self.held.extend_from_within(at..);
        for scratch in met {
            let from = scratch.at + scratch.len;
            self.held.copy_within(from..from + scratch.len, at + end - start + scratch.start - start);
        }
        self.scratches.push(Scratch { page: Arc::clone(page), start, len: end - start, at });
        self.scratches.len() - 1
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        for f in std::mem::take(&mut self.on_abort) {
            f();
        }
    }
}

impl Scratch {
    fn end(&self) -> usize {
        self.start + self.len
    }

    fn before<'h>(&self, held: &'h [u8]) -> &'h [u8] {
        &held[self.at..self.at + self.len]
    }

    fn after<'h>(&self, held: &'h [u8]) -> &'h [u8] {
        &held[self.at + self.len..self.at + 2 * self.len]
    }

    /// Whether it covers the whole range.
    fn holds(&self, page: &PageRef, range: &Range<usize>) -> bool {
        Arc::ptr_eq(&self.page, page) && self.start <= range.start && range.end <= self.end()
    }

    /// Whether it shares a byte with the range.
    fn meets(&self, page: &PageRef, range: &Range<usize>) -> bool {
        Arc::ptr_eq(&self.page, page) && self.start < range.end && range.start < self.end()
    }

    /// First and end of what it shares with the range, which it meets.
    fn shared(&self, range: &Range<usize>) -> (usize, usize) {
        (self.start.max(range.start), self.end().min(range.end))
    }
}

/// The runs of words that differ; two runs become one where the gap costs less than a delta of its own.
fn for_each_run(before: &[u8], after: &[u8], mut f: impl FnMut(Range<usize>)) {
    let (old, old_rest) = before.as_chunks::<GRAIN>();
    let (new, new_rest) = after.as_chunks::<GRAIN>();
    let mut run: Option<Range<usize>> = None;
    let mut differs = |word: Range<usize>| match &mut run {
        Some(run) if word.start - run.end <= DELTA_HEADER_SIZE => run.end = word.end,
        other => {
            if let Some(done) = other.replace(word) {
                f(done);
            }
        }
    };
    for (index, (old, new)) in old.iter().zip(new).enumerate() {
        if u64::from_ne_bytes(*old) != u64::from_ne_bytes(*new) {
            differs(index * GRAIN..(index + 1) * GRAIN);
        }
    }
    if old_rest != new_rest {
        differs(new.len() * GRAIN..after.len());
    }
    if let Some(run) = run {
        f(run);
    }
}

impl Staged {
    fn delta(&self) -> Delta<'_> {
        match self {
            Staged::Bits { page, first, count, set } => {
                Delta::Bits { block: page.block(), first: *first, count: *count, set: *set }
            }
            Staged::IfNewer { page, offset, bytes } => {
                Delta::Write { block: page.block(), kind: page.kind(), offset: *offset, bytes }
            }
            Staged::Data { key, bytes } => Delta::Data { key: *key, bytes },
            Staged::Supersede { key } => Delta::Supersede { key: *key },
        }
    }
}
