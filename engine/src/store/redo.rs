//! What recovery does to pages: the same deltas, without a handle and without a journal.

use super::Store;
use super::delta::Delta;
use super::page::{Page, PageRef};
use crate::device::BLOCK_SIZE;
use crate::format::{BlockKind, Position};
use crate::{Error, Result};

impl Store {
    /// Applies a metadata delta of the record that ends at `end`. Nobody else uses the store.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the delta's block cannot be one of metadata, or does not verify.
    pub(crate) fn redo(&self, delta: &Delta<'_>, end: Position) -> Result<()> {
        let Some(block) = delta.block() else { return Ok(()) };
        if !self.holds_metadata(block) {
            return Err(Error::Corrupt {
                what: "journal record",
                place: format!("block {block}"),
                detail: "no metadata can lie there".into(),
            });
        }
        match *delta {
            Delta::Forget { .. } => self.let_go(block),
            Delta::Init { kind, owner, generation, .. } => {
                self.let_go(block);
                let page = Page::fresh(block, kind, owner, generation);
                page.latch().position = end;
                self.dirty.note(&page, page.mark_dirty());
                self.table.replace(page);
            }
            Delta::Write { kind, .. } => self.redo_on(&self.get(block, kind)?, delta, end),
            Delta::Bits { .. } => self.redo_on(&self.get(block, BlockKind::Bitmap)?, delta, end),
            Delta::Data { .. } | Delta::Supersede { .. } => {}
        }
        Ok(())
    }

    /// Whether the page that a delta changes lies home as a record behind this end has left it. Of a node block nothing
    /// says so.
    pub(crate) fn is_home_beyond(&self, delta: &Delta<'_>, end: Position) -> bool {
        let (block, kind) = match *delta {
            Delta::Init { block, kind, .. } | Delta::Write { block, kind, .. } => (block, kind),
            Delta::Bits { block, .. } => (block, BlockKind::Bitmap),
            Delta::Forget { .. } | Delta::Data { .. } | Delta::Supersede { .. } => return false,
        };
        kind != BlockKind::Node
            && self.holds_metadata(block)
            && self.get(block, kind).is_ok_and(|page| page.header().position.get() > end)
    }

    fn redo_on(&self, page: &PageRef, delta: &Delta<'_>, end: Position) {
        let mut body = page.latch();
        body.apply(delta, end);
        self.dirty.note(page, page.mark_dirty());
    }

    /// Drops whatever page the block had.
    fn let_go(&self, block: u64) {
        if let Some(page) = self.table.find(block) {
            self.dirty.forget(&page);
            self.table.remove(&page);
        }
    }

    /// Whether a block can hold metadata: not the superblock, the ring or the double-write area.
    pub(crate) fn holds_metadata(&self, block: u64) -> bool {
        let sb = self.superblock();
        let within = |start: u64, len: u64| block >= start && block < start.saturating_add(len);
        self.check_block(block).is_ok()
            && !within(sb.ring_start.get(), sb.ring_blocks.get())
            && !within(sb.dw_start.get(), sb.dw_blocks.get())
    }

    /// Whether dirty pages take as much as they may.
    pub(crate) fn is_full_of_dirty(&self) -> bool {
        self.dirty.count() >= self.dirty_limit || self.dirty.count() * BLOCK_SIZE >= self.budget
    }
}
