//! The root of a tree, as it is held in memory and as it lies in the inode.

use zerocopy::{FromBytes, IntoBytes};

use super::Run;
use super::node::{decode, encode};
use crate::format::{
    EXTENT_ENTRY_SIZE, EXTENT_MAX_DEPTH, ExtentEntry, INODE_INLINE_SIZE, INODE_INLINE_XATTR_SIZE, Inode,
    InodeFlags, Nid, U64,
};
use crate::{Error, Result};

/// The root of one inode's extents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    /// The inode.
    pub nid: Nid,
    /// Its generation.
    pub generation: u32,
    /// [`Inode::blocks`]: the tree's own functions keep count of data and extent blocks; a thread that gives the
    /// inode other blocks (overflow buckets, attributes) adds them here.
    pub blocks: u64,
    /// Whether what the runs map is metadata: the buckets of a directory.
    pub(super) maps_metadata: bool,
    pub(super) depth: u8,
    pub(super) capacity: usize,
    pub(super) runs: Vec<Run>,
}

/// Bytes of the inline area that are left to extents.
fn area(flags: u16) -> usize {
    let flags = InodeFlags::from_bits_retain(flags);
    if flags.contains(InodeFlags::INLINE_SYMLINK) {
        0
    } else if flags.contains(InodeFlags::INLINE_XATTR) {
        INODE_INLINE_SIZE - INODE_INLINE_XATTR_SIZE
    } else {
        INODE_INLINE_SIZE
    }
}

/// The runs that an inode itself holds, as many as its area has room for.
pub(super) fn runs_of(inode: &Inode) -> impl Iterator<Item = Run> {
    let held = usize::from(inode.extent_count) * EXTENT_ENTRY_SIZE;
    let entries = &inode.inline[..held.min(area(inode.flags.get()))];
    let entries = entries.chunks_exact(EXTENT_ENTRY_SIZE);
    entries.filter_map(|bytes| ExtentEntry::read_from_bytes(bytes).ok()).map(decode)
}

/// Whether an inode has room in itself for so many more runs.
pub(crate) fn stays_in_root(inode: &Inode, more: usize) -> bool {
    let count = usize::from(inode.extent_count) + more;
    inode.extent_depth == 0 && count * EXTENT_ENTRY_SIZE <= area(inode.flags.get())
}

impl Root {
    /// Extent blocks that the insertion of one run takes at the most: a leaf, what is above it, and what a root makes that
    /// overflows.
    pub(crate) fn most_nodes_of_insert(&self) -> u64 {
        1 + u64::from(self.depth)
    }

    /// The root of a file without extents.
    #[cfg(test)]
    pub(crate) fn new(nid: Nid, generation: u32) -> Root {
        Root {
            nid,
            generation,
            blocks: 0,
            maps_metadata: false,
            depth: 0,
            capacity: crate::format::EXTENT_ROOT_ENTRIES,
            runs: Vec::new(),
        }
    }

    /// The root that an inode holds.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if its height or number of entries cannot be.
    pub(crate) fn load(inode: &Inode) -> Result<Root> {
        let area = area(inode.flags.get());
        let (depth, count) = (inode.extent_depth, usize::from(inode.extent_count));
        if depth > EXTENT_MAX_DEPTH || count * EXTENT_ENTRY_SIZE > area || depth > 0 && count == 0 {
            return Err(Error::Corrupt {
                what: "extent root",
                place: format!("inode {}", inode.nid.get()),
                detail: format!("height {depth} with {count} entries"),
            });
        }
        let runs = runs_of(inode).collect();
        Ok(Root {
            nid: inode.nid.get(),
            generation: inode.generation.get(),
            blocks: inode.blocks.get(),
            maps_metadata: u32::from(inode.mode.get()) & libc::S_IFMT == libc::S_IFDIR,
            depth,
            capacity: area / EXTENT_ENTRY_SIZE,
            runs,
        })
    }

    /// Writes root and number of blocks into an inode; what else lies in its inline area is left alone.
    pub(crate) fn store(&self, inode: &mut Inode) {
        inode.extent_depth = self.depth;
        inode.extent_count = self.runs.len() as u8;
        inode.blocks = U64::new(self.blocks);
        let area = self.capacity * EXTENT_ENTRY_SIZE;
        for (at, bytes) in inode.inline[..area].chunks_exact_mut(EXTENT_ENTRY_SIZE).enumerate() {
            match self.runs.get(at) {
                Some(run) => bytes.copy_from_slice(encode(run).as_bytes()),
                None => bytes.fill(0),
            }
        }
    }

    /// Height of the tree: 0 where the root holds the runs themselves.
    #[cfg(test)]
    pub(crate) fn depth(&self) -> u8 {
        self.depth
    }

    /// Whether nothing is mapped.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}
