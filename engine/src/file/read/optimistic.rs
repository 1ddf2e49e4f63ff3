//! Reads that hold nothing: no range, no pin, no write to memory that threads share.
//!
//! Many threads that read one file, or one page, would otherwise pass the cache lines of its lock and of its
//! frames from core to core, which costs more than the copy.
//!
//! # Protocol
//! A read of few pages, all of them cached and within the file,
//! 1. looks at each page ([`FramePool::begin_optimistic`]), which notes its version,
//! 2. then asks whether anybody holds some of the range for writing ([`FileLock::is_written`]), and then for the
//!    size of the file,
//! 3. copies, and
//! 4. looks at each page again. If none has changed, what was copied counts; else it is wiped, and the read is
//!    done with the range in hand.
//!
//! *Whole*: let W be a write, truncation or the like; it holds its range from before its first change until after
//! its last. If the read has seen a change of W at 1, then at 2 it sees that W's range is held, and fails, or that
//! it was given back; then all changes of W came before 2, and a page that was looked at before W changed it is
//! found changed at 4. If the read has seen no change of W at 1, then by 4 it has read none. So it returns the
//! file as it was at 2, with all of W or nothing of it; and as each read asks at 2, none falls behind an earlier
//! one that has seen W.
//!
//! *The end of the file*: who makes the file shorter holds the range from the new end on, so that a read that
//! sees the longer size comes before the change, or finds the pages changed.
//!
//! [`FramePool::begin_optimistic`]: crate::cache::FramePool::begin_optimistic

use crate::cache::{OptimisticRead, Use};
use crate::device::BLOCK_SIZE;
use crate::file::data_path::DataPath;
use crate::file::read::overlap;
use crate::inode::InodeObj;
use crate::lock::FileLock;
use crate::pages::FileData;
use crate::pages::{PAGE, page_after, page_of};

/// Pages of a read that is tried so: beyond, the range costs little beside the copy.
const MOST_PAGES: usize = 8;

impl DataPath {
    /// Reads all of `buf` from `offset` on if memory has it, nobody writes there, and so nobody is waited for; else false,
    /// and `buf` is anything. Of what is more than a few pages each few are whole.
    pub fn read_cached(&self, inode: &InodeObj, offset: u64, buf: &mut [u8]) -> bool {
        let mut at = offset;
        // One page less: it may begin in the midst of one.
        buf.chunks_mut((MOST_PAGES - 1) * BLOCK_SIZE).all(|part| {
            let is_read = self.read_optimistic(inode.data(), at, part, [Use::Yes; 2]);
            // Where that is beyond all files nothing was read.
            at = at.saturating_add(part.len() as u64);
            is_read
        })
    }

    /// Reads all of `buf` from `offset` on; false if that takes the range. `by` is what that is to the pages, but
    /// for the first, to which it is `first`.
    #[inline]
    pub(in crate::file) fn read_optimistic(
        &self,
        data: &FileData,
        offset: u64,
        buf: &mut [u8],
        [first, by]: [Use; 2],
    ) -> bool {
        let Some(end) = offset.checked_add(buf.len() as u64) else { return false };
        let pages = page_of(offset)..page_after(end);
        let count = (pages.end - pages.start) as usize;
        if count == 0 || count > MOST_PAGES {
            return false;
        }
        let mut begun: [Option<OptimisticRead>; MOST_PAGES] = [None; MOST_PAGES];
        for (read, page) in begun.iter_mut().zip(pages.clone()) {
            let by = if page == pages.start { first } else { by };
            *read = data.index.get(page).and_then(|slot| self.pool.begin_optimistic(slot, by));
            if read.is_none() {
                return false;
            }
        }
        let reads = || pages.clone().zip(begun.iter().flatten().copied());
        if data.range.is_written(pages.start * PAGE..pages.end * PAGE)
            || end > data.size()
            || data.check_usable().is_err()
        {
            return false;
        }
        let len = buf.len();
        for (page, read) in reads() {
            let (within, part) = overlap(page, offset, len);
            self.pool.copy_unpinned(read, within.start, &mut buf[part]);
        }
        let whole = reads().all(|(_, read)| self.pool.validate(read));
        if !whole {
            // It may be anything, of any file.
            buf.fill(0);
        }
        if by == Use::ByKernel {
            reads().for_each(|(_, read)| self.pool.lend(read));
        }
        whole
    }
}
