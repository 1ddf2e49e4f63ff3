//! The index of one file's cached pages: radix trees of slots that only grow.
//!
//! A lookup walks nodes that are made once and never moved, so it needs no lock and no retry. Small page
//! numbers have short ways: there is one tree for each height, and the page number says which.
//!
//! What the nodes take is counted with the pool, which has so many frames less.

use super::pool::FramePool;
use crate::sync::OnceLock;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::ops::Range;

const BITS: u32 = 6;
const FANOUT: usize = 1 << BITS;
/// Trees of heights 0 to 5 hold 2^36 pages, more than a file can have.
const HEIGHTS: usize = 6;

/// The place of a page: the frame that has it, if one has, or when it left the cache.
#[derive(Debug)]
pub struct Slot(AtomicU32);

/// Set in a slot whose page has left; the other bits are the time.
const LEFT: u32 = 1 << 31;

impl Slot {
    pub(super) fn new() -> Slot {
        Slot(AtomicU32::new(0))
    }

    /// Whether a frame has the page.
    pub fn is_cached(&self) -> bool {
        self.named() != 0
    }

    /// The number of the frame that has the page, plus one; 0 if none has.
    #[inline]
    pub(super) fn named(&self) -> u32 {
        // Acquire: pairs with the Release in `name` and `leave`, so that the frame's state is the published one or
        // newer, and that nobody uses the slot any more when it names none.
        let word = self.0.load(Ordering::Acquire);
        if word & LEFT == 0 { word } else { 0 }
    }

    /// When the page left the cache, if it has been there.
    pub(super) fn left_at(&self) -> Option<u32> {
        // Relaxed: a number to compare with others.
        let word = self.0.load(Ordering::Relaxed);
        (word & LEFT != 0).then_some(word & !LEFT)
    }

    /// Names a frame; false if there is one.
    pub(super) fn name(&self, number: u32) -> bool {
        // Relaxed: the exchange decides.
        let word = self.0.load(Ordering::Relaxed);
        // Release: pairs with the Acquire in `named`: a thread that sees the number sees the frame busy or published,
        // never its state from before it was taken (the fence of `claim` or `taken_over` would do alone). Relaxed on
        // failure: nothing was read through the slot.
        (word == 0 || word & LEFT != 0)
            && self.0.compare_exchange(word, number + 1, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Names none any more. `time`: the page was evicted then; otherwise there is no such page now.
    pub(super) fn leave(&self, time: Option<u32>) {
        // Release: pairs with the Acquire in `named`.
        self.0.store(time.map_or(0, |time| LEFT | time), Ordering::Release);
    }
}

/// Leaves are a quarter of the size of the others, and all that most files have: each kind in a box of its own.
#[derive(Debug)]
enum Node {
    Leaf(Box<[Slot; FANOUT]>),
    Inner(Box<[OnceLock<Node>; FANOUT]>),
}

impl Node {
    fn new(height: u32) -> Node {
        if height == 0 {
            Node::Leaf(Box::new(std::array::from_fn(|_| Slot::new())))
        } else {
            Node::Inner(Box::new([const { OnceLock::new() }; FANOUT]))
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Node::Leaf(_) => FANOUT * size_of::<Slot>(),
            Node::Inner(_) => FANOUT * size_of::<OnceLock<Node>>(),
        }
    }
}

/// Slots by page number. A slot belongs to the protocol of [`super`].
#[derive(Debug, Default)]
pub struct PageIndex {
    trees: [OnceLock<Node>; HEIGHTS],
    bytes: AtomicUsize,
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
    pub fn get(&self, page: u64) -> Option<&Slot> {
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

    /// The slot of a page below 2^36, for a frame of this pool.
    pub fn slot(&self, page: u64, pool: &FramePool) -> &Slot {
        let (slot, made) = self.make(page);
        if made > 0 {
            // Relaxed: a sum, read when the index goes.
            self.bytes.fetch_add(made, Ordering::Relaxed);
            pool.charge(made);
        }
        slot
    }

    /// Bytes of its nodes.
    pub fn bytes(&self) -> usize {
        // Relaxed: as above.
        self.bytes.load(Ordering::Relaxed)
    }

    /// The slot, and the bytes of nodes made for it.
    fn make(&self, page: u64) -> (&Slot, usize) {
        let mut made = 0;
        let mut new = |height| {
            let node = Node::new(height);
            made += node.bytes();
            node
        };
        let mut height = height(page);
        let mut node = self.trees[height as usize].get_or_init(|| new(height));
        loop {
            match node {
                Node::Leaf(slots) => return (&slots[digit(page, 0)], made),
                Node::Inner(children) => {
                    let child = &children[digit(page, height)];
                    height -= 1;
                    node = child.get_or_init(|| new(height));
                }
            }
        }
    }

    /// Calls `f` with each existing slot of the pages in `range`, in ascending order.
    pub fn each<'a>(&'a self, range: Range<u64>, f: &mut dyn FnMut(u64, &'a Slot)) {
        for (height, tree) in self.trees.iter().enumerate() {
            if let Some(node) = tree.get() {
                walk(node, height as u32, 0, &range, f);
            }
        }
    }
}

fn walk<'a>(node: &'a Node, height: u32, base: u64, range: &Range<u64>, f: &mut dyn FnMut(u64, &'a Slot)) {
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

    #[test]
    fn slots_are_found_again_at_every_height_and_walked_in_order() {
        let index = PageIndex::default();
        let pages = [0, 1, 63, 64, 65, 4095, 4096, 1 << 18, (1 << 24) + 5, 1 << 30, (1 << 31) - 100];
        for page in pages {
            assert!(index.make(page).0.name(page as u32 ^ 77));
        }
        for page in pages {
            let slot = index.get(page).expect("made above");
            assert_eq!(slot.named(), (page as u32 ^ 77) + 1);
        }
        assert!(index.get(1 << 20).is_none());
        let mut seen = Vec::new();
        index.each(1..1 << 32, &mut |page, slot| {
            if slot.is_cached() {
                seen.push(page);
            }
        });
        assert_eq!(seen, pages[1..]);
    }

    #[test]
    fn a_slot_tells_when_its_page_left() {
        let index = PageIndex::default();
        let (slot, made) = index.make(70);
        assert!(made > FANOUT * size_of::<Slot>(), "an inner node and a leaf");
        assert_eq!(index.make(71).1, 0);
        assert!(!slot.is_cached() && slot.left_at().is_none());
        assert!(slot.name(5) && !slot.name(6));
        slot.leave(Some(9));
        assert_eq!((slot.named(), slot.left_at()), (0, Some(9)));
        assert!(slot.name(0) && slot.is_cached());
        slot.leave(None);
        assert!(slot.left_at().is_none());
    }
}
