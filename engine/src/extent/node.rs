//! One extent block: its bytes, and what must hold of them before they are used.

use zerocopy::{FromBytes, IntoBytes};

use super::{LOGICAL_END, Root, Run};
use crate::device::BLOCK_SIZE;
use crate::format::{
    BLOCKS_PER_GROUP, BlockHeader, BlockKind, EXTENT_ENTRY_SIZE, EXTENT_NODE_ENTRIES, EXTENT_NODE_START,
    EXTENT_UNWRITTEN, ExtentEntry, ExtentNodeHeader, Nid, U16, U32, U64,
};
use crate::store::{Handle, PageRef, Store};
use crate::superblock::Bounds;
use crate::{Error, Result};

/// Where pages are read: the store, or a handle that sees its own edits besides.
pub(crate) trait Source {
    /// The store.
    fn store(&self) -> &Store;
    /// The page of an extent block.
    fn extents_page(&self, block: u64) -> Result<PageRef>;
    /// Reads it.
    fn read_page<R>(&self, page: &PageRef, f: impl FnOnce(&[u8]) -> R) -> R;
}

impl Source for Store {
    fn store(&self) -> &Store {
        self
    }

    fn extents_page(&self, block: u64) -> Result<PageRef> {
        self.get(block, BlockKind::Extents)
    }

    fn read_page<R>(&self, page: &PageRef, f: impl FnOnce(&[u8]) -> R) -> R {
        page.read(|bytes| f(bytes))
    }
}

impl Source for Handle<'_> {
    fn store(&self) -> &Store {
        Handle::store(self)
    }

    fn extents_page(&self, block: u64) -> Result<PageRef> {
        self.get(block, BlockKind::Extents)
    }

    fn read_page<R>(&self, page: &PageRef, f: impl FnOnce(&[u8]) -> R) -> R {
        self.read(page, f)
    }
}

/// An entry as it is on media.
pub(crate) fn encode(run: &Run) -> ExtentEntry {
    let flag = if run.unwritten { EXTENT_UNWRITTEN } else { 0 };
    ExtentEntry { logical: U32::new(run.logical), len: U32::new(run.len | flag), block: U64::new(run.block) }
}

/// An entry from media, not verified.
pub(crate) fn decode(entry: ExtentEntry) -> Run {
    let len = entry.len.get();
    Run {
        logical: entry.logical.get(),
        len: len & !EXTENT_UNWRITTEN,
        block: entry.block.get(),
        unwritten: len & EXTENT_UNWRITTEN != 0,
    }
}

/// Why a run from media cannot be.
pub(crate) fn run_problem(bounds: Bounds, run: &Run) -> Option<&'static str> {
    if run.len == 0 {
        return Some("a run of no blocks");
    }
    if run.end() > LOGICAL_END {
        return Some("a run past the end of all files");
    }
    let Some(offset) = run.block.checked_sub(bounds.groups_start).map(|offset| offset % BLOCKS_PER_GROUP)
    else {
        return Some("a run outside the groups");
    };
    if offset == 0 || offset + u64::from(run.len) > BLOCKS_PER_GROUP {
        return Some("a run that covers a bitmap");
    }
    if run.block.saturating_add(u64::from(run.len)) > bounds.blocks {
        return Some("a run past the end of the image");
    }
    None
}

/// A damaged tree.
pub(super) fn damaged(root: &Root, block: u64, detail: impl Into<String>) -> Error {
    damaged_of(root.nid, block, detail)
}

/// The damaged tree of an inode.
pub(super) fn damaged_of(nid: Nid, block: u64, detail: impl Into<String>) -> Error {
    let place = match block {
        0 => format!("inode {nid}"),
        _ => format!("block {block} of inode {nid}"),
    };
    Error::Corrupt { what: "extent tree", place, detail: detail.into() }
}

/// An extent block's entries, in place.
pub(super) struct NodeView<'a> {
    entries: &'a [u8],
}

impl<'a> NodeView<'a> {
    /// The node, if it belongs to the root's inode and has the height expected.
    pub(super) fn new(bytes: &'a [u8], root: &Root, depth: u8) -> Result<NodeView<'a>, &'static str> {
        NodeView::of(bytes, (root.nid, root.generation), depth)
    }

    /// The node, if it belongs to this inode and has the height expected.
    pub(super) fn of(bytes: &'a [u8], owner: (Nid, u32), depth: u8) -> Result<NodeView<'a>, &'static str> {
        let Ok((header, rest)) = BlockHeader::read_from_prefix(bytes) else { return Err("it is cut short") };
        if (header.owner.get(), header.generation.get()) != owner {
            return Err("the block belongs to another inode");
        }
        let Ok((node, entries)) = ExtentNodeHeader::read_from_prefix(rest) else {
            return Err("it is cut short");
        };
        if node.depth.get() != u16::from(depth) {
            return Err("the block has another height");
        }
        match usize::from(node.count.get()) {
            0 => Err("the block has no entries"),
            count if count > EXTENT_NODE_ENTRIES => Err("more entries than fit"),
            count => Ok(NodeView { entries: &entries[..count * EXTENT_ENTRY_SIZE] }),
        }
    }

    /// Entries of the node.
    pub(super) fn len(&self) -> usize {
        self.entries.len() / EXTENT_ENTRY_SIZE
    }

    /// The entry at a place, if there is one.
    pub(super) fn get(&self, at: usize) -> Option<Run> {
        let bytes = self.entries.get(at * EXTENT_ENTRY_SIZE..(at + 1) * EXTENT_ENTRY_SIZE)?;
        ExtentEntry::read_from_bytes(bytes).ok().map(decode)
    }

    /// All entries, in ascending order.
    pub(super) fn runs(&self) -> Vec<Run> {
        (0..self.len()).filter_map(|at| self.get(at)).collect()
    }

    /// Number of entries that start at or before block `logical`.
    pub(super) fn upto(&self, logical: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle) {
                Some(run) if u64::from(run.logical) <= logical => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }
}

/// Writes height and entries of a node that this handle may edit. What lies past the last entry is left as it
/// is, so that it need not be logged.
pub(super) fn write_node(h: &mut Handle<'_>, page: &PageRef, depth: u8, runs: &[Run]) {
    let bytes = h.edit(page, EXTENT_NODE_START - size_of::<ExtentNodeHeader>()..BLOCK_SIZE);
    let header = ExtentNodeHeader {
        count: U16::new(runs.len() as u16),
        depth: U16::new(u16::from(depth)),
        reserved: [U32::ZERO; 3],
    };
    let (head, entries) = bytes.split_at_mut(size_of::<ExtentNodeHeader>());
    head.copy_from_slice(header.as_bytes());
    for (bytes, run) in entries.chunks_exact_mut(EXTENT_ENTRY_SIZE).zip(runs) {
        bytes.copy_from_slice(encode(run).as_bytes());
    }
}
