//! The index of one file's cached pages: radix trees of slots that only grow.
//!
//! A lookup walks nodes that are made once and never moved, so it needs no lock and no retry. Small page
//! numbers have short ways: there is one tree for each height, and the page number says which.

use crate::sync::OnceLock;
use crate::sync::atomic::AtomicU32;
use std::ops::Range;

const BITS: u32 = 6;
const FANOUT: usize = 1 << BITS;
/// Trees of heights 0 to 5 hold 2^36 pages, more than a file can have.
const HEIGHTS: usize = 6;

/// Leaves are a quarter of the size of the others, and all that most files have: each kind in a box of its own.
#[derive(Debug)]
enum Node {
    Leaf(Box<[AtomicU32; FANOUT]>),
    Inner(Box<[OnceLock<Node>; FANOUT]>),
}

impl Node {
    fn new(height: u32) -> Node {
        if height == 0 {
            Node::Leaf(Box::new(std::array::from_fn(|_| AtomicU32::new(0))))
        } else {
            Node::Inner(Box::new([const { OnceLock::new() }; FANOUT]))
        }
    }
}

/// Slots by page number. A slot belongs to the protocol of [`super`].
#[derive(Debug, Default)]
pub struct PageIndex {
    trees: [OnceLock<Node>; HEIGHTS],
}

/// Height of the tree that holds a page.
fn height(page: u64) -> u32 {
    let bits = u64::BITS - page.leading_zeros();
    bits.saturating_sub(1) / BITS
}

fn digit(page: u64, height: u32) -> usize {
    (page >> (BITS * height)) as usize & (FANOUT - 1)
}

impl PageIndex {
    /// The slot of a page if the index has come that far.
    #[inline]
    pub fn get(&self, page: u64) -> Option<&AtomicU32> {
        let mut height = height(page);
        let mut node = self.trees.get(height as usize)?.get()?;
        loop {
            match node {
                Node::Leaf(slots) => return Some(&slots[digit(page, 0)]),
                Node::Inner(children) => {
                    node = children[digit(page, height)].get()?;
                    height -= 1;
                }
            }
        }
    }

    /// The slot of a page below 2^36.
    pub fn slot(&self, page: u64) -> &AtomicU32 {
        let mut height = height(page);
        let mut node = self.trees[height as usize].get_or_init(|| Node::new(height));
        loop {
            match node {
                Node::Leaf(slots) => return &slots[digit(page, 0)],
                Node::Inner(children) => {
                    let child = &children[digit(page, height)];
                    height -= 1;
                    node = child.get_or_init(|| Node::new(height));
                }
            }
        }
    }

    /// Calls `f` with each existing slot of the pages in `range`, in ascending order.
    pub fn each<'a>(&'a self, range: Range<u64>, f: &mut dyn FnMut(u64, &'a AtomicU32)) {
        for (height, tree) in self.trees.iter().enumerate() {
            if let Some(node) = tree.get() {
                walk(node, height as u32, 0, &range, f);
            }
        }
    }
}

fn walk<'a>(
    node: &'a Node,
    height: u32,
    base: u64,
    range: &Range<u64>,
    f: &mut dyn FnMut(u64, &'a AtomicU32),
) {
    let span = 1u64 << (BITS * height);
    for i in 0..FANOUT {
        let first = base + i as u64 * span;
        if first >= range.end || first + span <= range.start {
            continue;
        }
        match node {
            Node::Leaf(slots) => f(first, &slots[i]),
            Node::Inner(children) => {
                if let Some(child) = children[i].get() {
                    walk(child, height - 1, first, range, f);
                }
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::atomic::Ordering;

    #[test]
    fn slots_are_found_again_at_every_height_and_walked_in_order() {
        let index = PageIndex::default();
        let pages = [0, 1, 63, 64, 65, 4095, 4096, 1 << 18, (1 << 24) + 5, 1 << 31, (1 << 32) - 1];
        for page in pages {
            index.slot(page).store(page as u32 ^ 77, Ordering::Relaxed);
        }
        for page in pages {
            let slot = index.get(page).expect("made above");
            assert_eq!(slot.load(Ordering::Relaxed), page as u32 ^ 77);
        }
        assert!(index.get(1 << 20).is_none());
        let mut seen = Vec::new();
        index.each(1..1 << 32, &mut |page, slot| {
            if slot.load(Ordering::Relaxed) != 0 {
                seen.push(page);
            }
        });
        assert_eq!(seen, pages[1..]);
    }
}
