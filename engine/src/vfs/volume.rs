//! The file system as a whole: its room, making it larger, and telling the device what is free.

use super::{StatFs, Vfs, pending_eviction};
use crate::device::BLOCK_SIZE;
use crate::format::MAX_NAME;
use crate::{Error, Result};
use std::ops::Range;

const BLOCK: u64 = BLOCK_SIZE as u64;

impl Vfs {
    /// Room and use. What was removed counts as free, even if the kernel is still to tell of the end of its use:
    /// that is waited for. So does what truncations hold that are not recorded yet: they are before a full image says so,
    /// and nothing is recorded for an answer here. What is kept back for operations that make room, and for extents, counts
    /// as not there: everything that is free can be had by [`Vfs::fallocate`], if it lies in fewer pieces than a hundred
    /// thousand (of scratch space, what is free on the device it spills to).
    pub fn statfs(&self) -> Result<StatFs> {
        self.pending_eviction.wait(pending_eviction::AT_ONCE);
        let alloc = &self.meta.alloc;
        let blocks = alloc.total().saturating_sub(alloc.kept_back());
        // One that is being recorded may be counted twice, or not at all, for that moment.
        let free = alloc.statfs_free();
        let free = (free + self.data.held_by_truncations()).saturating_sub(alloc.kept_back()).min(blocks);
        let (used, possible) = self.meta.space.count_inodes(free);
        Ok(StatFs {
            block_size: BLOCK_SIZE as u32,
            blocks,
            blocks_free: free,
            blocks_available: free,
            files: used + possible,
            files_free: possible,
            name_max: MAX_NAME as u32,
        })
    }

    /// Size of the file system in bytes: of its image, journal and metadata included.
    pub fn size(&self) -> u64 {
        self.meta.store.bounds().blocks * BLOCK
    }

    /// Makes the file system `bytes` long (whole blocks of 4 KiB), without interrupting anybody; a regular file is
    /// made longer, its space reserved unless `sparse`. `None` takes what the device has. Gives the size, which is
    /// durable then; a crash before leaves the file system with the size of before.
    ///
    /// The number of inodes stays bounded by what the image was made for: sixteen for each of its first blocks.
    ///
    /// # Errors
    /// [`Error::Refused`], saying why, if the size is less than what there is or more than the device can have;
    /// EROFS; errors of the device. The size that it has already is no change.
    pub fn resize(&self, bytes: Option<u64>, sparse: bool) -> Result<u64> {
        let store = &self.meta.store;
        if bytes == Some(self.size()) {
            return Ok(self.size());
        }
        self.check_changeable()?;
        let blocks = match bytes {
            Some(bytes) => bytes / BLOCK,
            // Less than what it was opened with is no reason to become smaller.
            None => store.device().measure()?.max(store.device().blocks()),
        };
        self.meta.alloc.grow(store, blocks, sparse)?;
        Ok(self.size())
    }

    /// Tells the device of every free run of at least `least` bytes within a range of its bytes, so that it can use
    /// the space for something else; gives the number of bytes. What was freed is made durable before.
    ///
    /// # Errors
    /// EROFS; EINVAL if the range begins behind the end or is shorter than a block; errors of the device.
    pub fn trim(&self, range: Range<u64>, least: u64) -> Result<u64> {
        self.check_changeable()?;
        let length = range.end.saturating_sub(range.start);
        if range.start >= self.size() || length < BLOCK {
            return Err(Error::Errno(libc::EINVAL));
        }
        self.meta.alloc.make_room()?;
        let least = u32::try_from(least.div_ceil(BLOCK)).unwrap_or(u32::MAX).max(1);
        let blocks = range.start.div_ceil(BLOCK)..range.end / BLOCK;
        Ok(self.meta.alloc.trim(self.meta.store.device().as_ref(), blocks, least)? * BLOCK)
    }

    fn check_changeable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::Errno(libc::EROFS));
        }
        self.meta.store.check_writable()
    }
}
