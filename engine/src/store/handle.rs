//! One operation on its way: what it will change, and the commit that changes it all at once.
//!
//! A handle collects; nothing but the handle itself sees the changes until [`Handle::commit`]. It leaves all
//! locking to its caller: whoever edits a range holds the lock that protects it, from before the first edit
//! or view until after the commit. Only the words that differ are logged, at a grain of 8 bytes, and only
//! they are applied, so that neighbours in one page do not disturb each other.

use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes, KnownLayout};

use super::Store;
use super::changes::Changes;
use super::log::Allowance;
use super::page::{Page, PageRef};
use crate::Result;
use crate::device::BLOCK_SIZE;
use crate::format::{BlockKind, DataKey, Nid, Position, SLOT_PAYLOAD};
use crate::sync::Arc;

/// Those who want to know how a usual operation ends.
const USUAL_ENDS: usize = 4;

/// Called with the end of the record, or with none if the operation was given up.
type AtEnd<'s> = Box<dyn FnOnce(Option<Position>) + 's>;

/// An operation being built. Dropped without commit, nothing has happened.
pub struct Handle<'s> {
    store: &'s Store,
    allowance: Option<Allowance<'s>>,
    /// There from the first change on: one who has begun many operations changes things in one at a time.
    changes: Option<Box<Changes>>,
    at_end: Vec<AtEnd<'s>>,
}

impl<'s> Handle<'s> {
    /// An operation that has changed nothing yet.
    pub(super) fn new(store: &'s Store, allowance: Allowance<'s>) -> Handle<'s> {
        Handle { store, allowance: Some(allowance), changes: None, at_end: Vec::with_capacity(USUAL_ENDS) }
    }

    /// The store it works on.
    pub fn store(&self) -> &'s Store {
        self.store
    }

    fn changes_mut(&mut self) -> &mut Changes {
        self.changes.get_or_insert_with(Changes::take)
    }

    /// A private copy of `range` of a page, to be changed at will. Editing within a range that was edited
    /// before gives the same copy. The range starts at a multiple of 8 and holds whole fields only.
    pub fn edit(&mut self, page: &PageRef, range: Range<usize>) -> &mut [u8] {
        self.changes_mut().edit(page, range)
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
        match &self.changes {
            Some(changes) => changes.view(page, range),
            None => page.read(|bytes| bytes[range].to_vec()),
        }
    }

    /// Reads a whole page as this operation sees it, under the shared latch where it has changed nothing: `f` is
    /// short, takes no lock and reads no other page.
    pub fn read<R>(&self, page: &PageRef, f: impl FnOnce(&[u8]) -> R) -> R {
        if self.changes.as_ref().is_some_and(|changes| changes.edits(page)) {
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
        self.changes_mut().init(Arc::clone(&page), owner, generation);
        Ok(page)
    }

    /// The page of a block as this operation sees it: one it made itself, or the store's.
    pub fn get(&self, block: u64, kind: BlockKind) -> Result<PageRef> {
        let mut made = self.changes.iter().flat_map(|changes| changes.made());
        match made.find(|page| page.block() == block && page.kind() == kind) {
            Some(page) => Ok(Arc::clone(page)),
            None => self.store.get(block, kind),
        }
    }

    /// Sets bits of a bitmap page, bit 0 being the first after the header.
    pub fn set_bits(&mut self, bitmap: &PageRef, first: u32, count: u32) {
        self.changes_mut().bits(bitmap, first, count, true);
    }

    /// Clears bits of a bitmap page.
    pub fn clear_bits(&mut self, bitmap: &PageRef, first: u32, count: u32) {
        self.changes_mut().bits(bitmap, first, count, false);
    }

    /// Whether this operation sets or clears any of these bits of a bitmap page.
    pub fn stages_bits(&self, bitmap: &PageRef, bits: &Range<u32>) -> bool {
        self.changes.as_ref().is_some_and(|changes| changes.stages_bits(bitmap, bits))
    }

    /// The bits of a bitmap page that this operation sets or clears, in the order of that.
    pub fn staged_bits(&self, bitmap: &PageRef) -> impl DoubleEndedIterator<Item = (Range<u32>, bool)> {
        self.changes.iter().flat_map(move |changes| changes.staged_bits(bitmap))
    }

    /// Writes bytes at the commit unless an operation with a higher position has written this offset of the
    /// page in this way: for fields that operations change without excluding each other (directory times).
    pub fn write_if_newer(&mut self, page: &PageRef, offset: usize, bytes: &[u8]) {
        self.changes_mut().write_if_newer(page, offset, bytes);
    }

    /// The page's block is freed: at the commit it leaves the table, and it is not written any more.
    pub fn forget(&mut self, page: &PageRef) {
        self.changes_mut().forget(page);
    }

    /// Logs file data; `key.len` is the number of bytes.
    pub fn data(&mut self, key: DataKey, bytes: Vec<u8>) {
        self.changes_mut().data(key, bytes);
    }

    /// Earlier data records within the key's range count no more.
    pub fn supersede(&mut self, key: DataKey) {
        self.changes_mut().supersede(key);
    }

    /// Runs `f` once with what becomes of the operation: the end of the record, once it is applied and before it is
    /// sealed, when `f` must not block; or none if the handle is dropped without commit, or its commit fails.
    pub fn at_end(&mut self, f: impl FnOnce(Option<Position>) + 's) {
        self.at_end.push(Box::new(f));
    }

    /// [`Handle::at_end`] for one who asks about failure alone.
    pub fn on_abort(&mut self, f: impl FnOnce() + 's) {
        self.at_end(|end| {
            if end.is_none() {
                f();
            }
        });
    }

    /// [`Handle::at_end`] for one who asks about success alone.
    pub fn on_commit(&mut self, f: impl FnOnce(Position) + 's) {
        self.at_end(|end| {
            if let Some(end) = end {
                f(end);
            }
        });
    }

    /// Slots that a commit would take now.
    pub fn slots_needed(&self) -> u32 {
        let len = self.changes.as_ref().map_or(0, |changes| changes.encoded_len());
        len.div_ceil(SLOT_PAYLOAD) as u32
    }

    /// Logs the operation, applies it to the pages, and seals it; the end (exclusive) of its record. It fails
    /// only if the journal has failed (or the handle asked for too few slots); then nothing has happened.
    pub fn commit(mut self) -> Result<Position> {
        let store = self.store;
        let changed = self.changes.as_deref_mut().and_then(|changes| changes.compare().then_some(changes));
        let Some(changes) = changed else {
            let end = store.log.tail();
            self.tell(Some(end));
            return Ok(end);
        };
        if !store.log.only_counts() {
            changes.encode();
        }
        let Some(allowance) = self.allowance.take() else { unreachable!("a handle commits once") };
        let (changes, at_end) = (&*changes, &mut self.at_end);
        let end = store.log.log(allowance, changes.record(), |_, end| {
            changes.apply(store, end);
            at_end.drain(..).for_each(|f| f(Some(end)));
        })?;
        store.signal.uncommitted();
        Ok(end)
    }

    fn tell(&mut self, end: Option<Position>) {
        self.at_end.drain(..).for_each(|f| f(end));
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        self.tell(None);
        if let Some(changes) = self.changes.take() {
            changes.give();
        }
    }
}
