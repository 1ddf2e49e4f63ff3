//! Extent blocks that pages without a block may need once they are written home.
//!
//! Each page may become an extent of its own. One that is put into a leaf that is full splits it, and then, if they are full
//! too, what is above it; 63 more can come before the next split. So what counts is how many leaves that may be full a write
//! meets: each of them is split once by the first extent, and they all once more for every 63 others. The same holds of the
//! blocks above, into which each leaf that is made is put.
//!
//! Pages side by side with no extent between them meet two leaves: a leaf begins at its key, which lies amid a hole where the
//! extent that it was made for has gone; and what is put behind the last leaf leaves that full. Others meet a leaf for as
//! many pages as a full one maps, and two more.

use std::ops::Range;

/// Entries that an extent block has room for at least once it is split.
const ROOM_AFTER_SPLIT: u64 = 63;
/// Pages that a leaf which is full maps at the least.
const PAGES_OF_LEAF: u64 = 126;
/// Entries that every root has room for.
const ROOM_IN_ROOT: u64 = 4;

/// Pages of one write that are dirty and have no blocks: what was set aside for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delayed {
    /// The first page and the one behind the last.
    first: u64,
    end: u64,
    /// Blocks set aside, one for each page that has none.
    blocks: u64,
    /// They are all of these pages: no extents lie between them.
    is_whole: bool,
    /// Leaves that they meet, each of which one of them may split at once.
    met: u64,
    /// Levels of extent blocks: none where the root holds the extents.
    levels: u64,
    kept: bool,
}

/// Blocks that are split by so many entries, of which the first ones split so many.
fn made(splits: u64, entries: u64) -> u64 {
    splits + entries.saturating_sub(splits) / ROOM_AFTER_SPLIT
}

/// Extent blocks that so many extents take, of which the first ones split so many leaves, in a tree so high: leaves, what is
/// above them, and what a root makes that overflows.
pub(super) fn nodes(splits: u64, extents: u64, levels: u64) -> u64 {
    let mut entries = made(splits, extents);
    let mut nodes = entries;
    for _ in 1..levels {
        entries = made(splits.min(entries), entries);
        nodes += entries;
    }
    let mut room = if levels == 0 { ROOM_IN_ROOT } else { 0 };
    while entries > room {
        entries = made(1, entries);
        nodes += entries;
        room = ROOM_IN_ROOT;
    }
    nodes
}

impl Delayed {
    /// So many of these pages have no blocks, in a file whose tree of extents is so high. Unless they are `kept` they need no
    /// extent blocks before there is room for them.
    pub fn new(pages: Range<u64>, blocks: u64, depth: u8, kept: bool) -> Delayed {
        let len = pages.end - pages.start;
        let is_whole = blocks == len;
        let met = match is_whole {
            true if depth == 0 => 1,
            true => 2,
            false => 2 + len / PAGES_OF_LEAF,
        };
        Delayed { first: pages.start, end: pages.end, blocks, is_whole, met, levels: depth.into(), kept }
    }

    /// The same where only so many of them are left.
    pub fn with_blocks(self, blocks: u64) -> Delayed {
        Delayed { blocks, ..self }
    }

    /// The pages, and what may lie between them.
    pub fn pages(&self) -> Range<u64> {
        self.first..self.end
    }

    /// Blocks for the pages.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Extent blocks that they need at the most.
    pub fn nodes(&self) -> u64 {
        if self.kept { nodes(self.met.min(self.blocks), self.blocks, self.levels) } else { 0 }
    }

    /// Leaves that they meet, with pages right before them that have met so many.
    pub(super) fn met_after(&self, met: u64) -> u64 {
        if self.is_whole { self.met.max(met) } else { self.met + met }
    }

    /// Levels of extent blocks.
    pub(super) fn levels(&self) -> u64 {
        self.levels
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Result;
    use crate::alloc::testing::image;
    use crate::alloc::{Alloc, Class};
    use crate::extent::{Root, insert, lookup_block, remove};
    use crate::format::Inode;
    use crate::store::{Handle, Store};
    use proptest::prelude::*;
    use zerocopy::FromZeros;

    /// A file whose pages get single blocks, none of which continues another.
    struct Scattered {
        store: Store,
        alloc: Alloc,
        root: Root,
    }

    impl Scattered {
        fn new() -> Scattered {
            let store = image(40_000);
            let alloc = Alloc::load(&store).expect("a fresh image");
            Scattered { store, alloc, root: Root::new(7, 1) }
        }

        fn edit<T>(&mut self, edit: impl FnOnce(&mut Handle<'_>, &Alloc, &mut Root) -> Result<T>) -> T {
            let mut handle = self.store.begin(1000).expect("slots");
            let value = edit(&mut handle, &self.alloc, &mut self.root).expect("room, and a good tree");
            handle.commit().expect("committed");
            value
        }

        fn insert(&mut self, pages: &[u64]) {
            for some in pages.chunks(20) {
                self.edit(|h, alloc, root| {
                    some.iter().try_for_each(|page| {
                        let extent = alloc.allocate(h, 1, Some(20_000 - page * 2), Class::Data, None)?;
                        insert(h, alloc, root, *page as u32, extent, false, None)
                    })
                });
            }
        }

        fn remove(&mut self, pages: Range<u64>) {
            let mut end = pages.end;
            while let progress = self.edit(|h, alloc, root| remove(h, alloc, root, pages.start..end, 40))
                && !progress.done
            {
                end = progress.next;
            }
        }

        fn holes(&self, pages: Range<u64>) -> Vec<u64> {
            let mut inode = Inode::new_zeroed();
            inode.nid.set(self.root.nid);
            inode.generation.set(self.root.generation);
            self.root.store(&mut inode);
            let block = |page| lookup_block(&self.store, &inode, page as u32).expect("a good tree");
            pages.filter(|page| block(*page).is_none()).collect()
        }

        /// The blocks that these get, in this order: what was promised for them, and what they took.
        fn write(&mut self, holes: &[u64], order: impl Iterator<Item = usize>) -> (u64, u64) {
            let (first, last) = (holes[0], holes[holes.len() - 1]);
            let count = holes.len() as u64;
            let promised = Delayed::new(first..last + 1, count, self.root.depth(), true).nodes();
            let before = self.root.blocks;
            self.insert(&order.map(|at| holes[at]).collect::<Vec<_>>());
            (promised, self.root.blocks - before - count)
        }
    }

    #[test]
    fn a_hole_that_two_full_leaves_share_splits_both() {
        let mut file = Scattered::new();
        file.insert(&(0..1500).map(|n| n * 3).collect::<Vec<_>>());
        // The second leaf begins here, and keeps its key; another page fills it again.
        file.remove(759..760);
        file.insert(&[763]);
        let holes = file.holes(757..762);
        assert_eq!(holes, [757, 758, 759, 760, 761]);
        assert_eq!(file.write(&holes, [0, 4, 2, 1, 3].into_iter()), (3, 2));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn no_write_takes_more_extent_blocks_than_it_was_promised(
            (extents, apart) in (0..2500u64, 2..4u64),
            removed in proptest::collection::vec((0..9000u64, 1..9u64), 0..12),
            writes in proptest::collection::vec((0..9000u64, 1..300u64, 1..97usize), 1..12),
        ) {
            let mut file = Scattered::new();
            file.insert(&(0..extents).map(|n| n * apart).collect::<Vec<_>>());
            for (first, len) in removed {
                file.remove(first..first + len);
            }
            for (first, len, stride) in writes {
                let holes = file.holes(first..first + len);
                let count = holes.len();
                if count == 0 {
                    continue;
                }
                // In an order of its own: each is reached once.
                let stride = (stride..).find(|stride| are_coprime(*stride, count)).expect("a prime is");
                let (promised, taken) = file.write(&holes, (0..count).map(|n| n * stride % count));
                prop_assert!(taken <= promised, "{taken} instead of {promised}");
            }
        }
    }

    fn are_coprime(a: usize, b: usize) -> bool {
        if b == 0 { a <= 1 } else { are_coprime(b, a % b) }
    }
}
