//! Finding a place in a tree, and changing one place: the one edit that all operations are made of.

use super::node::{NodeView, damaged, run_problem, write_node};
use super::{LOGICAL_END, Root, Run, Source};
use crate::Result;
use crate::alloc::{Alloc, Class, Extent, Reservation};
use crate::format::{BlockKind, EXTENT_MAX_DEPTH, EXTENT_NODE_ENTRIES};
use crate::store::{Handle, PageRef};

/// Where a search in one node leads.
enum Step {
    /// To this child; the key right of it, and the key of the child itself unless it is the first.
    Child { block: u64, right: Option<u32>, left: Option<u32> },
    /// In a leaf: the last run that starts at or before the block, and the one after.
    Leaf { before: Option<Run>, after: Option<Run> },
}

fn step(len: usize, upto: usize, depth: u8, get: impl Fn(usize) -> Option<Run>) -> Option<Step> {
    if depth == 0 {
        let before = upto.checked_sub(1).and_then(&get);
        return Some(Step::Leaf { before, after: if upto < len { get(upto) } else { None } });
    }
    let child = upto.saturating_sub(1);
    Some(Step::Child {
        block: get(child)?.block,
        right: get(child + 1).filter(|_| child + 1 < len).map(|run| run.logical),
        left: if child > 0 { get(child).map(|run| run.logical) } else { None },
    })
}

/// The neighbourhood of a block: the last run that starts at or before it and the first after it within one
/// leaf, and the keys that lead to the leaves beside it.
struct Neighbours {
    before: Option<Run>,
    after: Option<Run>,
    right: Option<u32>,
    left: Option<u32>,
}

fn neighbours(source: &impl Source, root: &Root, logical: u64) -> Result<Neighbours> {
    let upto = root.runs.partition_point(|run| u64::from(run.logical) <= logical);
    let mut found = step(root.runs.len(), upto, root.depth, |at| root.runs.get(at).copied());
    let (mut right, mut left) = (None, None);
    let mut depth = root.depth;
    loop {
        match found {
            None => return Err(damaged(root, 0, "an inner node without entries")),
            Some(Step::Leaf { before, after }) => {
                for run in before.iter().chain(&after) {
                    if let Some(problem) = run_problem(source.store().bounds(), run) {
                        return Err(damaged(root, 0, problem));
                    }
                }
                return Ok(Neighbours { before, after, right, left });
            }
            Some(Step::Child { block, right: r, left: l }) => {
                right = r.or(right);
                left = l.or(left);
                depth -= 1;
                let page = source.extents_page(block)?;
                found = source
                    .read_page(&page, |bytes| {
                        let node = NodeView::new(bytes, root, depth)?;
                        Ok(step(node.len(), node.upto(logical), depth, |at| node.get(at)))
                    })
                    .map_err(|problem: &str| damaged(root, block, problem))?;
            }
        }
    }
}

/// The run that covers `logical`, or else the first after it.
pub(super) fn seek(source: &impl Source, root: &Root, mut logical: u64) -> Result<Option<Run>> {
    loop {
        let place = neighbours(source, root, logical)?;
        if let Some(run) = place.before.filter(|run| run.end() > logical).or(place.after) {
            return Ok(Some(run));
        }
        // Keys only grow, so that this ends whatever the tree looks like.
        match place.right.map(u64::from) {
            Some(right) if right > logical => logical = right,
            Some(_) => return Err(damaged(root, 0, "keys out of order")),
            None => return Ok(None),
        }
    }
}

/// The last run that starts before `logical`.
pub(super) fn seek_last(source: &impl Source, root: &Root, mut logical: u64) -> Result<Option<Run>> {
    while let Some(at) = logical.checked_sub(1) {
        let place = neighbours(source, root, at)?;
        if place.before.is_some() {
            return Ok(place.before);
        }
        // Keys only fall, so that this ends whatever the tree looks like.
        match place.left.map(u64::from) {
            Some(left) if left < logical => logical = left,
            Some(_) => return Err(damaged(root, 0, "keys out of order")),
            None => break,
        }
    }
    Ok(None)
}

/// The block from which on the last leaf has all runs.
pub(super) fn last_leaf(source: &impl Source, root: &Root) -> Result<u32> {
    // No node is empty, so that the last leaf has the last run. In a damaged tree that may lie before the leaf's key: who
    // goes on from here always meets it.
    let place = neighbours(source, root, LOGICAL_END - 1)?;
    let run = place.before.map_or(0, |run| run.logical);
    Ok(place.left.map_or(0, |key| key.min(run)))
}

/// What an edit needs: the operation, where blocks come from, and the tree.
pub(super) struct Edit<'e, 's> {
    pub h: &'e mut Handle<'s>,
    pub alloc: &'e Alloc,
    pub root: &'e mut Root,
    pub reservation: Option<&'e mut Reservation>,
}

/// One node on the way to a leaf.
struct Level {
    /// The node's page; none for the root.
    page: Option<PageRef>,
    runs: Vec<Run>,
    /// The child that the way leads through.
    child: usize,
}

/// The way to a leaf, every node on it verified.
pub(super) struct Path {
    levels: Vec<Level>,
    /// Runs of the leaf start at or after this block.
    pub low: u64,
    /// Runs of the leaf end at or before this block.
    pub high: u64,
}

impl Path {
    /// The runs of the leaf.
    pub(super) fn leaf(&self) -> &[Run] {
        self.levels.last().map_or(&[], |level| &level.runs)
    }
}

/// Whether entries are sorted and lie between the keys that lead to them.
pub(super) fn order_problem(runs: &[Run], leaf: bool, low: u64, high: u64) -> Option<&'static str> {
    let mut from = low;
    for run in runs {
        if u64::from(run.logical) < from {
            return Some("entries out of order, or overlapping");
        }
        from = if leaf { run.end() } else { u64::from(run.logical) + 1 };
    }
    (from > high).then_some("entries past the next key")
}

impl<'s> Edit<'_, 's> {
    /// The handle as a source of pages.
    pub(super) fn source(&self) -> &Handle<'s> {
        self.h
    }

    /// The way to the leaf where block `logical` belongs.
    pub(super) fn descend(&self, logical: u64) -> Result<Path> {
        let root = &*self.root;
        let mut levels = vec![Level { page: None, runs: root.runs.clone(), child: 0 }];
        let (mut low, mut high) = (0, LOGICAL_END);
        let mut depth = root.depth;
        loop {
            let level = levels.last_mut().expect("the root at least");
            let block = level.page.as_ref().map_or(0, |page| page.block());
            if let Some(problem) = order_problem(&level.runs, depth == 0, low, high) {
                return Err(damaged(root, block, problem));
            }
            if depth == 0 {
                let bounds = self.h.store().bounds();
                match level.runs.iter().find_map(|run| run_problem(bounds, run)) {
                    Some(problem) => return Err(damaged(root, block, problem)),
                    None => return Ok(Path { levels, low, high }),
                }
            }
            let upto = level.runs.partition_point(|run| u64::from(run.logical) <= logical);
            level.child = upto.saturating_sub(1);
            let Some(child) = level.runs.get(level.child).copied() else {
                return Err(damaged(root, block, "an inner node without entries"));
            };
            low = u64::from(child.logical);
            high = level.runs.get(level.child + 1).map_or(high, |next| u64::from(next.logical));
            depth -= 1;
            let page = self.h.extents_page(child.block)?;
            let runs = self
                .h
                .read_page(&page, |bytes| NodeView::new(bytes, root, depth).map(|node| node.runs()))
                .map_err(|problem| damaged(root, child.block, problem))?;
            levels.push(Level { page: Some(page), runs, child: 0 });
        }
    }

    /// Replaces `count` runs of the leaf from `at` on by others, joins neighbours, and mends the nodes above.
    pub(super) fn splice(&mut self, mut path: Path, at: usize, count: usize, new: &[Run]) -> Result<()> {
        let mut level = path.levels.pop().expect("a path has a leaf");
        // Behind the last run of all, not of the leaf: what comes there downwards would be given a leaf each.
        let appends = at + count == level.runs.len() && path.high == LOGICAL_END;
        level.runs.splice(at..at + count, new.iter().copied());
        let mut from = at.saturating_sub(1);
        let mut upto = (at + new.len()).min(level.runs.len().saturating_sub(1));
        while from < upto {
            if level.runs[from].continues_in(&level.runs[from + 1]) {
                level.runs[from].len += level.runs[from + 1].len;
                level.runs.remove(from + 1);
                upto -= 1;
            } else {
                from += 1;
            }
        }
        let mut depth = 0;
        while let Some(mut parent) = path.levels.pop() {
            let page = level.page.take().expect("only the root has no page");
            let child = parent.child;
            if level.runs.is_empty() {
                self.h.forget(&page);
                self.alloc.free(self.h, Extent { start: page.block(), len: 1 }, true)?;
                self.root.blocks = self.root.blocks.saturating_sub(1);
                let key = parent.runs.remove(child).logical;
                // The first key of a node stays what its parent says.
                if child == 0
                    && let Some(first) = parent.runs.first_mut()
                {
                    first.logical = key;
                }
            } else if level.runs.len() > EXTENT_NODE_ENTRIES {
                // A file that is written front to back fills its leaves; elsewhere both halves have room.
                let cut = if appends { EXTENT_NODE_ENTRIES } else { level.runs.len() / 2 };
                let right = level.runs.split_off(cut);
                let block = self.new_node(depth, &right)?;
                write_node(self.h, &page, depth, &level.runs);
                parent.runs.insert(child + 1, key_of(right[0].logical, block));
            } else {
                write_node(self.h, &page, depth, &level.runs);
                return Ok(());
            }
            level = parent;
            depth += 1;
        }
        if level.runs.is_empty() {
            self.root.depth = 0;
        } else if level.runs.len() > self.root.capacity {
            let block = self.new_node(depth, &level.runs)?;
            level.runs = vec![key_of(0, block)];
            self.root.depth = depth + 1;
        }
        self.root.runs = level.runs;
        Ok(())
    }

    /// Moves the root's runs into a node of their own if there are more than `capacity` of them.
    #[cfg(test)]
    pub(super) fn set_capacity(&mut self, capacity: usize) -> Result<()> {
        if self.root.runs.len() > capacity {
            let (depth, runs) = (self.root.depth, std::mem::take(&mut self.root.runs));
            let block = self.new_node(depth, &runs)?;
            self.root.runs = vec![key_of(0, block)];
            self.root.depth = depth + 1;
        }
        self.root.capacity = capacity;
        Ok(())
    }

    fn new_node(&mut self, depth: u8, runs: &[Run]) -> Result<u64> {
        if depth >= EXTENT_MAX_DEPTH {
            return Err(damaged(self.root, 0, "the tree is higher than it can be"));
        }
        let reservation = self.reservation.as_deref_mut();
        let block = self.alloc.allocate(self.h, 1, None, Class::MakingRoom, reservation)?.start;
        let page = self.h.init(block, BlockKind::Extents, self.root.nid, self.root.generation)?;
        write_node(self.h, &page, depth, runs);
        self.root.blocks += 1;
        Ok(block)
    }
}

fn key_of(logical: u32, block: u64) -> Run {
    Run { logical, len: 0, block, unwritten: false }
}
