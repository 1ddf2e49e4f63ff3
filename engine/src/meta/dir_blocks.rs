//! The blocks of directories: buckets by their extents, and what overflows.

use super::Meta;
use crate::alloc::Class;
use crate::dir::{DirBlocks, GROUP};
use crate::error::{Error, Result};
use crate::extent::{self, Root};
use crate::format::Inode;
use crate::store::Handle;

impl DirBlocks for Meta {
    fn block_of(&self, h: Option<&Handle<'_>>, image: &Inode, bucket: u32) -> Result<u64> {
        let found = match h {
            Some(h) => extent::lookup_block(h, image, bucket)?,
            None => extent::lookup_block(&*self.store, image, bucket)?,
        };
        found.ok_or_else(|| Error::Corrupt {
            what: "directory",
            place: format!("nid {}", image.nid),
            detail: format!("bucket {bucket} has no block"),
        })
    }

    fn add_bucket(&self, h: &mut Handle<'_>, image: &mut Inode, bucket: u32) -> Result<u64> {
        let goal = match bucket.checked_sub(1) {
            Some(last) => Some(self.block_of(Some(h), image, last)? + 1),
            None => None,
        };
        let mut root = Root::load(image)?;
        let extent = self.alloc.allocate(h, 1, goal, Class::Metadata, None)?;
        extent::insert(h, &self.alloc, &mut root, bucket, extent, false, None)?;
        root.store(image);
        Ok(extent.start)
    }

    fn drop_buckets(&self, h: &mut Handle<'_>, image: &mut Inode, first: u32) -> Result<()> {
        let mut root = Root::load(image)?;
        let range = u64::from(first)..extent::LOGICAL_END;
        while !extent::remove(h, &self.alloc, &mut root, range.clone(), GROUP)?.done {}
        root.store(image);
        Ok(())
    }

    fn add_overflow(&self, h: &mut Handle<'_>, image: &mut Inode, goal: u64) -> Result<u64> {
        self.alloc.take_block(h, image, Some(goal))
    }

    fn free_overflow(&self, h: &mut Handle<'_>, image: &mut Inode, block: u64) -> Result<()> {
        self.alloc.give_block(h, image, block)
    }
}
