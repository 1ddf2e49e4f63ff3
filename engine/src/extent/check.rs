//! Looking at a whole tree, whatever state it is in: for fsck, which must go on past the first problem.

use super::node::{NodeView, run_problem};
use super::tree::order_problem;
use super::{LOGICAL_END, Root, Run, Source};
use crate::Error;

/// What [`walk`] finds on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// An extent block that belongs to the tree.
    Node {
        /// The block.
        block: u64,
    },
    /// A run that is well-formed.
    Run(Run),
    /// Something that does not hold. What lies below it is not visited.
    Problem(Problem),
}

/// What can be wrong with a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The extent block cannot be read or does not verify.
    Unreadable {
        /// The block.
        block: u64,
        /// Why.
        error: Error,
    },
    /// The extent block is not one of this tree at this height, or its count cannot be.
    Foreign {
        /// The block.
        block: u64,
        /// Why.
        detail: &'static str,
    },
    /// Entries out of order, overlapping, or outside the keys that lead to them.
    Order {
        /// The block; 0 for the root.
        block: u64,
        /// Why.
        detail: &'static str,
    },
    /// A run that leads outside of what can be allocated, or outside of any file.
    BadRun {
        /// The run.
        run: Run,
        /// Why.
        detail: &'static str,
    },
}

/// Visits every node and every run of a tree, in the order of the file. It ends on any tree, and soon:
/// below entries out of order it does not go, and no node has entries between the keys of two places.
pub(crate) fn walk(source: &impl Source, root: &Root, visit: &mut dyn FnMut(Item)) {
    visit_entries(source, root, &root.runs, Node { block: 0, depth: root.depth }, 0..LOGICAL_END, visit);
}

/// The node whose entries are visited.
#[derive(Clone, Copy)]
struct Node {
    block: u64,
    depth: u8,
}

fn visit_entries(
    source: &impl Source,
    root: &Root,
    runs: &[Run],
    node: Node,
    keys: std::ops::Range<u64>,
    visit: &mut dyn FnMut(Item),
) {
    if let Some(detail) = order_problem(runs, node.depth == 0, keys.start, keys.end) {
        visit(Item::Problem(Problem::Order { block: node.block, detail }));
        if node.depth > 0 {
            return;
        }
    }
    for (at, run) in runs.iter().enumerate() {
        if node.depth == 0 {
            visit(match run_problem(source.store().bounds(), run) {
                Some(detail) => Item::Problem(Problem::BadRun { run: *run, detail }),
                None => Item::Run(*run),
            });
            continue;
        }
        let child = Node { block: run.block, depth: node.depth - 1 };
        let high = runs.get(at + 1).map_or(keys.end, |next| u64::from(next.logical));
        let entries = source.extents_page(child.block).map(|page| {
            source.read_page(&page, |bytes| NodeView::new(bytes, root, child.depth).map(|node| node.runs()))
        });
        match entries {
            Err(error) => visit(Item::Problem(Problem::Unreadable { block: child.block, error })),
            Ok(Err(detail)) => visit(Item::Problem(Problem::Foreign { block: child.block, detail })),
            Ok(Ok(entries)) => {
                visit(Item::Node { block: child.block });
                visit_entries(source, root, &entries, child, u64::from(run.logical)..high, visit);
            }
        }
    }
}
