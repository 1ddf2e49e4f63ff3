//! Extent trees: which block of the device holds which block of a file.
//!
//! The root lies in the inode; with more extents than fit there it becomes a B+tree of extent blocks. All
//! functions are pure over a [`Root`] and a [`Handle`](crate::store::Handle): a caller copies the root out of
//! its inode object, edits it under a handle, writes it back into the inode's slot with the same handle
//! ([`Root::store`]) and publishes the copy after the commit. An abort just drops the copy.
//!
//! What this leaves to others: locking (a thread that edits a tree excludes its readers), the pages of the file,
//! and repetition: what may touch many extents does a bounded part and says whether it is done.
//!
//! # Invariants
//! - Runs are sorted and do not overlap; within a node, neighbours that continue each other are one run.
//! - In an inner node the key of a child is at most the first block of anything below it, and at least the
//!   key of the node itself; the keys along the left edge are 0. A run lies wholly below the next key.
//! - No node is empty, only the root may be.
//! - A node belongs to its file: owner and generation in its header are those of the inode. Height falls by
//!   one with every step, so that no crafted tree is walked for ever.
//! - Every run that is handed out lies within one allocation group and covers no bitmap block, whatever the
//!   image says.
//!
//! # Slots
//! An edit of a tree takes at most [`edit_slots`] slots, credits for which are taken before the inode's lock: with
//! the height that was seen before, which may meanwhile have grown by one (that is counted in).

#[cfg(test)]
mod check;
mod node;
mod ops;
mod root;
mod tree;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use check::{Item, walk};
pub(crate) use node::Source;
use node::{NodeView, damaged_of};
pub(crate) use node::{decode, encode, run_problem};
#[cfg(test)]
pub(crate) use ops::mark_unwritten;
pub(crate) use ops::{Progress, insert, mark_written, remove, remove_within, shift_down, shift_up, take};
pub(crate) use root::{Root, stays_in_root};

use crate::Result;
use crate::alloc::BITS_DELTA_BYTES;
use crate::format::{EXTENT_MAX_DEPTH, Inode, SLOT_PAYLOAD};

/// End of the highest block number that a file can have.
pub(crate) const LOGICAL_END: u64 = 1 << 32;

/// Bytes that one node adds to a record at most: its shifted half, the new node that takes the other half,
/// the headers of both and the new node's bit.
const NODE_EDIT_BYTES: usize = 4096 + 256;

/// A run of a file's blocks that lie in a row on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// First block of the file.
    pub logical: u32,
    /// Number of blocks.
    pub len: u32,
    /// First block on the device.
    pub block: u64,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

impl Run {
    /// The file's block after the last.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.len)
    }

    /// The part from block `from` of the file to block `to`, which both lie within.
    fn part(&self, from: u64, to: u64) -> Run {
        let skipped = from - u64::from(self.logical);
        Run { logical: from as u32, len: (to - from) as u32, block: self.block + skipped, ..*self }
    }

    /// Whether `next` continues this run in the file and on the device.
    fn continues_in(&self, next: &Run) -> bool {
        self.end() == u64::from(next.logical)
            && self.block + u64::from(self.len) == next.block
            && self.unwritten == next.unwritten
    }
}

/// What a block of a file is mapped to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// Nothing, for `len` blocks.
    Hole {
        /// Blocks up to the next run, or to the end of all files.
        len: u64,
    },
    /// Blocks of the device.
    Mapped {
        /// The one that holds the block asked for.
        block: u64,
        /// Blocks from there to the end of the run.
        len: u32,
        /// Allocated, but reads as zeros.
        unwritten: bool,
    },
}

/// What block `logical` of the file is mapped to. Through a store it sees what is committed, through a handle
/// also what the handle has edited.
pub(crate) fn lookup(source: &impl Source, root: &Root, logical: u32) -> Result<Mapping> {
    let at = u64::from(logical);
    Ok(match next_run(source, root, at)? {
        Some(run) if u64::from(run.logical) <= at => {
            let rest = run.part(at, run.end());
            Mapping::Mapped { block: rest.block, len: rest.len, unwritten: rest.unwritten }
        }
        Some(run) => Mapping::Hole { len: u64::from(run.logical) - at },
        None => Mapping::Hole { len: LOGICAL_END - at },
    })
}

/// The device's block behind block `logical` of the file, if there is one: what [`lookup`] finds, read in place where a
/// root of its own would cost more than the search.
pub(crate) fn lookup_block(source: &impl Source, inode: &Inode, logical: u32) -> Result<Option<u64>> {
    let owner = (inode.nid.get(), inode.generation.get());
    let mut depth = inode.extent_depth;
    if depth > EXTENT_MAX_DEPTH {
        return Err(damaged_of(owner.0, 0, "the tree is higher than it can be"));
    }
    let mut found = root::runs_of(inode).take_while(|run| run.logical <= logical).last();
    while let Some(child) = found.filter(|_| depth > 0) {
        depth -= 1;
        let page = source.extents_page(child.block)?;
        let before = source.read_page(&page, |bytes| {
            let node = NodeView::of(bytes, owner, depth)?;
            Ok(node.upto(logical.into()).checked_sub(1).and_then(|at| node.get(at)))
        });
        found = before.map_err(|problem: &str| damaged_of(owner.0, child.block, problem))?;
    }
    let Some(run) = found.filter(|run| u64::from(logical) < run.end()) else { return Ok(None) };
    match run_problem(source.store().bounds(), &run) {
        Some(problem) => Err(damaged_of(owner.0, 0, problem)),
        None => Ok(Some(run.block + u64::from(logical - run.logical))),
    }
}

/// The run that covers block `from` of the file, or else the first after it. Calling it again with the end of
/// what it gave iterates over the file (SEEK_HOLE, SEEK_DATA, FIEMAP).
pub(crate) fn next_run(source: &impl Source, root: &Root, from: u64) -> Result<Option<Run>> {
    tree::seek(source, root, from)
}

/// The block of the file from which on the last leaf has all that is mapped: what [`remove`] of a range that begins there or
/// behind does not reach with one call, it leaves for its budget alone.
pub(crate) fn last_leaf(source: &impl Source, root: &Root) -> Result<u32> {
    tree::last_leaf(source, root)
}

/// Slots that one call of an editing function takes at most: `depth` is the height of the tree as seen before
/// the locks were taken, `budget` the number of extents that the call may touch (1 for an insert). The
/// inode's own slot is not counted.
pub(crate) const fn edit_slots(depth: u8, budget: u32) -> u32 {
    let levels = if depth < EXTENT_MAX_DEPTH { depth as usize + 1 } else { EXTENT_MAX_DEPTH as usize };
    // A call works on one leaf and its ancestors; one that moves runs also on the leaf that receives them.
    // Beyond its first, each further extent of the budget moves the edit by one entry within these nodes.
    let nodes = if depth == 0 { 1 } else { 2 * levels };
    (nodes * NODE_EDIT_BYTES + budget as usize * BITS_DELTA_BYTES).div_ceil(SLOT_PAYLOAD) as u32
}
