//! Walking an extent tree that may be damaged, and leaving it sound: what cannot be is removed on the way.

use super::image::{self, Base, Image};
use super::issue::{IssueKind, Location};
use super::state::State;
use crate::Result;
use crate::extent::{LOGICAL_END, Run, decode, encode, run_problem};
use crate::format::{
    BLOCK_HEADER_SIZE, BlockKind, EXTENT_ENTRY_SIZE, EXTENT_MAX_DEPTH, EXTENT_NODE_ENTRIES,
    EXTENT_NODE_START, ExtentEntry, ExtentNodeHeader, INODE_INLINE_SIZE, INODE_INLINE_XATTR_SIZE, Inode,
    InodeFlags, Nid,
};
use crate::inode::FileType;
use crate::superblock::Bounds;
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// What the walk asks about each run that is well-formed. It may change the block of the run, and make it shorter.
pub(super) trait Visitor {
    /// A block of the tree; false takes it out.
    fn node(&mut self, state: &mut State<'_>, block: u64) -> bool;
    /// A run; false takes it out.
    fn run(&mut self, state: &mut State<'_>, run: &mut Run) -> Result<bool>;
}

/// Entries of the root of an inode with these flags at the most.
fn capacity(inode: &Inode) -> usize {
    let flags = InodeFlags::from_bits_retain(inode.flags.get());
    let bytes = if flags.contains(InodeFlags::INLINE_SYMLINK) {
        0
    } else if flags.contains(InodeFlags::INLINE_XATTR) {
        INODE_INLINE_SIZE - INODE_INLINE_XATTR_SIZE
    } else {
        INODE_INLINE_SIZE
    };
    bytes / EXTENT_ENTRY_SIZE
}

/// Why the root cannot be one.
pub(super) fn root_problem(inode: &Inode) -> Option<String> {
    let (depth, count) = (inode.extent_depth, usize::from(inode.extent_count));
    let holds = depth <= EXTENT_MAX_DEPTH && count <= capacity(inode) && (depth == 0 || count > 0);
    (!holds).then(|| format!("height {depth} with {count} entries"))
}

fn runs_of(bytes: &[u8], count: usize) -> Vec<Run> {
    let entries = bytes.chunks_exact(EXTENT_ENTRY_SIZE).take(count);
    entries.filter_map(|bytes| ExtentEntry::read_from_bytes(bytes).ok()).map(decode).collect()
}

/// The runs of an inode whose root holds them all, if nothing is wrong with them: [`walk`] would find nothing.
pub(super) fn plain_runs(base: &Base, inode: &Inode) -> Option<Vec<Run>> {
    if inode.extent_depth > 0 || root_problem(inode).is_some() {
        return None;
    }
    let runs = runs_of(&inode.inline, usize::from(inode.extent_count));
    let mut from = 0;
    for run in &runs {
        if run_problem(Bounds::of(&base.sb), run).is_some() || u64::from(run.logical) < from {
            return None;
        }
        from = run.end();
    }
    Some(runs)
}

/// Blocks of metadata that an inode leads to at once.
pub(super) fn leads_to(inode: &Inode) -> Vec<u64> {
    let mut blocks = Vec::new();
    if inode.extent_depth > 0 && root_problem(inode).is_none() {
        let nodes = runs_of(&inode.inline, usize::from(inode.extent_count));
        blocks.extend(nodes.iter().map(|node| node.block));
    }
    blocks.extend(Some(inode.xattr_block.get()).filter(|block| *block > 0));
    blocks
}

/// The first blocks of buckets of a directory whose root holds them.
pub(super) fn first_buckets(inode: &Inode, most: usize) -> Vec<u64> {
    let is_dir = FileType::from_mode(inode.mode.get().into()) == Some(FileType::Directory);
    if !is_dir || inode.extent_depth > 0 || root_problem(inode).is_some() {
        return Vec::new();
    }
    let runs = runs_of(&inode.inline, usize::from(inode.extent_count));
    let blocks = runs.iter().flat_map(|run| run.block..run.block.saturating_add(u64::from(run.len)));
    blocks.take(most).collect()
}

/// Walks the tree of an inode whose root is in bounds; whether the inode was changed.
pub(super) fn walk(state: &mut State<'_>, inode: &mut Inode, visitor: &mut dyn Visitor) -> Result<bool> {
    let owner = (inode.nid.get(), inode.generation.get());
    let mut runs = runs_of(&inode.inline, usize::from(inode.extent_count));
    let mut walk = Walk { owner, visitor };
    let changed = walk.entries(state, &mut runs, inode.extent_depth, 0..LOGICAL_END, 0)?;
    if changed {
        let room = capacity(inode) * EXTENT_ENTRY_SIZE;
        put_entries(&mut inode.inline[..room], &runs);
        inode.extent_count = runs.len() as u8;
        if runs.is_empty() {
            inode.extent_depth = 0;
        }
    }
    Ok(changed)
}

/// Gives an inode a tree of these runs, in new blocks as far as the root does not hold it; false, and nothing is changed,
/// where there are not enough. The blocks of the tree that it had are nobody's then. To be used once every block is
/// claimed.
pub(super) fn build(state: &mut State<'_>, inode: &mut Inode, runs: Vec<Run>) -> Result<bool> {
    let owner = (inode.nid.get(), inode.generation.get());
    let (room, mut level, mut depth) = (capacity(inode), runs, 0);
    let (mut nodes, mut entries) = (0, level.len());
    while entries > room {
        entries = entries.div_ceil(EXTENT_NODE_ENTRIES);
        nodes += entries;
    }
    // Not one is written before all are there: what is written is free for nothing else that this repair does.
    let Some(blocks) = state.allocate_each(nodes)? else { return Ok(false) };
    let mut blocks = blocks.into_iter();
    while level.len() > room {
        let mut above = Vec::with_capacity(level.len().div_ceil(EXTENT_NODE_ENTRIES));
        for (entries, block) in level.chunks(EXTENT_NODE_ENTRIES).zip(&mut blocks) {
            let mut bytes = image::fresh(BlockKind::Extents, owner.0, owner.1);
            put_entries(&mut bytes[EXTENT_NODE_START..], entries);
            bytes[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 2]
                .copy_from_slice(&(entries.len() as u16).to_le_bytes());
            bytes[BLOCK_HEADER_SIZE + 2..BLOCK_HEADER_SIZE + 4]
                .copy_from_slice(&u16::from(depth).to_le_bytes());
            state.image.put(block, BlockKind::Extents, bytes)?;
            let logical = if above.is_empty() { 0 } else { entries[0].logical };
            above.push(Run { logical, len: 0, block, unwritten: false });
        }
        (level, depth) = (above, depth + 1);
    }
    put_entries(&mut inode.inline[..room * EXTENT_ENTRY_SIZE], &level);
    (inode.extent_depth, inode.extent_count) = (depth, level.len() as u8);
    Ok(true)
}

/// Writes entries, and zeros behind them.
fn put_entries(into: &mut [u8], runs: &[Run]) {
    into.fill(0);
    for (bytes, run) in into.chunks_exact_mut(EXTENT_ENTRY_SIZE).zip(runs) {
        bytes.copy_from_slice(encode(run).as_bytes());
    }
}

struct Walk<'v> {
    owner: (Nid, u32),
    visitor: &'v mut dyn Visitor,
}

impl Walk<'_> {
    fn entries(
        &mut self,
        state: &mut State<'_>,
        runs: &mut Vec<Run>,
        depth: u8,
        keys: Range<u64>,
        block: u64,
    ) -> Result<bool> {
        let place =
            if block == 0 { Location::nid(self.owner.0) } else { Location::both(self.owner.0, block) };
        let before = runs.clone();
        let mut from = keys.start;
        let mut kept = Vec::with_capacity(runs.len());
        for (at, run) in before.iter().enumerate() {
            let mut run = *run;
            let logical = u64::from(run.logical);
            let end = if depth == 0 { run.end() } else { logical + 1 };
            if depth == 0
                && let Some(problem) = run_problem(Bounds::of(&state.image.sb), &run)
            {
                let detail = format!("blocks {} of the file: {problem}", run.logical);
                state.found(IssueKind::ExtentBounds, place, detail);
                continue;
            }
            if logical < from || end > keys.end {
                let detail = format!("block {logical} of the file is mapped out of order, or twice");
                state.found(IssueKind::ExtentOrder, place, detail);
                continue;
            }
            if depth == 0 {
                if self.visitor.run(state, &mut run)? {
                    kept.push(run);
                    from = end;
                }
                continue;
            }
            let next = before.get(at + 1).map_or(keys.end, |next| u64::from(next.logical));
            let high = if next > logical { next.min(keys.end) } else { keys.end };
            // Below the first child of a node lies all from the node's own key on: without that the next one comes first.
            let low = if kept.is_empty() { keys.start } else { logical };
            if self.child(state, run.block, depth - 1, low..high)? {
                if at == 0 && low != logical {
                    let detail = format!("the first key is {logical}, and that which leads there {low}");
                    state.found(IssueKind::ExtentOrder, place, detail);
                }
                run.logical = low as u32;
                kept.push(run);
                from = end;
            }
        }
        let changed = kept != before;
        *runs = kept;
        Ok(changed)
    }

    /// Walks a node below the root; whether it stays.
    fn child(&mut self, state: &mut State<'_>, block: u64, depth: u8, keys: Range<u64>) -> Result<bool> {
        let place = Location::both(self.owner.0, block);
        let (bytes, count) = match open(state.image, self.owner, block, depth) {
            Ok(node) => node,
            Err(detail) => {
                state.found(IssueKind::ExtentNode, place, detail);
                return Ok(false);
            }
        };
        if !self.visitor.node(state, block) {
            state.found(IssueKind::ExtentNode, place, "something else uses the block already".into());
            return Ok(false);
        }
        let mut runs = runs_of(&bytes[EXTENT_NODE_START..], count);
        if !self.entries(state, &mut runs, depth, keys, block)? {
            return Ok(true);
        }
        if runs.is_empty() {
            return Ok(false);
        }
        let mut bytes = bytes;
        put_entries(&mut bytes[EXTENT_NODE_START..], &runs);
        bytes[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 2].copy_from_slice(&(runs.len() as u16).to_le_bytes());
        state.image.put(block, BlockKind::Extents, bytes)?;
        Ok(true)
    }
}

/// The bytes and the number of entries of a node that belongs there.
fn open(
    image: &Image,
    owner: (Nid, u32),
    block: u64,
    depth: u8,
) -> Result<(crate::device::IoBuf, usize), String> {
    if !image.holds(block) {
        return Err("it lies outside of what can be allocated".into());
    }
    let bytes = image.get(block, BlockKind::Extents)?;
    if let Some(why) = image::foreign(&bytes, owner.0, owner.1) {
        return Err(why);
    }
    let (node, _) =
        ExtentNodeHeader::read_from_prefix(&bytes[BLOCK_HEADER_SIZE..]).map_err(|_| "it is cut short")?;
    let count = usize::from(node.count.get());
    if node.depth.get() != u16::from(depth) {
        return Err(format!("it has height {}, not {depth}", node.depth));
    }
    if count == 0 || count > EXTENT_NODE_ENTRIES {
        return Err(format!("it has {count} entries"));
    }
    Ok((bytes, count))
}
