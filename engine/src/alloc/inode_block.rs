//! Single metadata blocks of an inode: of its attributes, and of buckets that overflow.

use super::{Alloc, Class, Extent};
use crate::error::Result;
use crate::format::Inode;
use crate::store::Handle;

impl Alloc {
    /// A metadata block for an inode.
    pub(crate) fn take_block(&self, h: &mut Handle<'_>, image: &mut Inode, goal: Option<u64>) -> Result<u64> {
        let extent = self.allocate(h, 1, goal, Class::Metadata, None)?;
        image.blocks += 1;
        Ok(extent.start)
    }

    /// Frees a metadata block of an inode.
    pub(crate) fn give_block(&self, h: &mut Handle<'_>, image: &mut Inode, block: u64) -> Result<()> {
        self.free(h, Extent { start: block, len: 1 }, true)?;
        image.blocks.set(image.blocks.get().saturating_sub(1));
        Ok(())
    }
}
