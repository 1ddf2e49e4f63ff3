//! The end of inodes: their blocks, slots and nids are free again.

use super::Meta;
use crate::alloc::Extent;
use crate::device::BLOCK_SIZE;
use crate::error::Result;
use crate::extent::{self, Root};
use crate::format::{Inode, InodeFlags, Intent};
use crate::inode::{InodeObj, now};
use crate::store::Handle;
use crate::sync::Arc;
use crate::xattr;

/// Extents that an inode holds itself.
const INLINE_EXTENTS: u32 = crate::format::EXTENT_ROOT_ENTRIES as u32;
/// Slots that freeing an inode takes beside its blocks.
pub(crate) const FREE_SLOTS: u32 = 10;

impl Meta {
    /// Stages the end of an inode without extent or attribute blocks: its blocks, slot and nid are free.
    pub(crate) fn stage_end<'s>(
        &'s self,
        h: &mut Handle<'s>,
        inode: &InodeObj,
        image: &mut Inode,
    ) -> Result<()> {
        if image.flags.get() & InodeFlags::INLINE_SYMLINK.bits() == 0 {
            let mut root = Root::load(image)?;
            while !extent::remove(h, &self.alloc, &mut root, 0..extent::LOGICAL_END, INLINE_EXTENTS)?.done {}
            root.store(image);
        }
        let node = self.node(inode)?;
        self.space.free(h, inode.nid(), &node, inode.place().slot)
    }

    /// Frees an inode that [`crate::inode::Holds::retire`] was won for. It has no name; its data is discarded. A failure
    /// leaves it to recovery: the orphan table names it.
    pub(crate) fn free_inode(&self, inode: &Arc<InodeObj>) -> Result<()> {
        let budget = self.step();
        loop {
            let slots = {
                let image = inode.lock.read();
                // The bits of each extent or bucket, and the blocks of attributes.
                let tree =
                    if image.extent_depth > 0 { extent::edit_slots(image.extent_depth, budget) } else { 4 };
                let attributes = if image.xattr_block.get() > 0 { xattr::slots(0) } else { 0 };
                tree + attributes + FREE_SLOTS + if inode.is_dir() { budget } else { 0 }
            };
            let mut h = self.begin_rest(slots)?;
            let mut image = inode.lock.write();
            let mut draft = inode.draft(&image);
            let mut root = Root::load(&draft.image)?;
            let mut from = 0;
            if inode.is_dir() {
                let buckets = draft.image.buckets.get();
                // What is unmapped at a time ends with a leaf of the tree. A bucket that is mapped beyond the last, whose overflow
                // is gone, would be damage to a check that comes after a crash.
                let leaf = extent::last_leaf(&h, &root)?;
                let keep = buckets.saturating_sub(budget.div_ceil(4)).max(leaf).min(buckets);
                from = u64::from(keep);
                for bucket in keep..buckets {
                    for (i, page) in self.dir(inode).chain(Some(&h), &image, bucket)?.iter().enumerate() {
                        h.forget(page);
                        if i > 0 {
                            self.alloc.free(&mut h, Extent { start: page.block(), len: 1 }, true)?;
                            root.blocks = root.blocks.saturating_sub(1);
                        }
                    }
                }
                draft.image.buckets.set(keep);
                draft.image.size.set(u64::from(keep) * BLOCK_SIZE as u64);
            }
            let progress = extent::remove(&mut h, &self.alloc, &mut root, from..extent::LOGICAL_END, budget)?;
            root.store(&mut draft.image);
            if progress.done && from == 0 {
                xattr::stage(&self.alloc, &mut h, &mut draft.image, &[])?;
                let node = self.node(inode)?;
                self.space.free(&mut h, inode.nid(), &node, inode.place().slot)?;
                // The others are those of operations that were given up.
                for intent in
                    [Intent::Orphan, Intent::Truncate, Intent::Punch, Intent::Collapse, Intent::Insert]
                {
                    self.space.end_intent(&mut h, inode.nid(), intent)?;
                }
                let installing = self.commit(h)?;
                *image = draft.image;
                // A thread that still has the object, to write its data home or to log its times, finds it freed.
                image.nid.set(0);
                drop(installing);
                drop(image);
                self.table.remove(inode);
                return Ok(());
            }
            draft.image.ctime.set(now());
            self.stage(&mut h, inode, &draft.image)?;
            let _installing = self.commit(h)?;
            inode.install(&mut image, &draft);
        }
    }
}
