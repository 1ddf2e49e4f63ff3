//! Pages that a writer has made dirty and that are in no set yet: should the writer panic they join the set, as of a
//! write that came no further.

use crate::file::writeback::queue::WriteBackQueue;
use crate::inode::InodeObj;
use crate::sync::Arc;
use crate::unwinding::Unwinding;

/// Pages that a writer has made dirty, until they are in the set.
pub(in crate::file) struct Joining<'p> {
    pub queue: &'p WriteBackQueue,
    pub inode: &'p Arc<InodeObj>,
    pub pages: Vec<u64>,
    /// Blocks set aside for them.
    pub reserved: u64,
    /// How far the content has come, in bytes of the file.
    pub upto: u64,
    unwinding: Unwinding,
}

impl<'p> Joining<'p> {
    /// None yet, of a file for which so many blocks are set aside.
    pub fn begin(queue: &'p WriteBackQueue, inode: &'p Arc<InodeObj>, reserved: u64) -> Joining<'p> {
        Joining { queue, inode, pages: Vec::new(), reserved, upto: 0, unwinding: Unwinding::watch() }
    }

    /// They are in the set now.
    pub fn join(&mut self) {
        let (pages, reserved) = (std::mem::take(&mut self.pages), std::mem::take(&mut self.reserved));
        if reserved == 0 && pages.is_empty() {
            return;
        }
        self.inode.data().pages.dirtied(pages, reserved);
        self.queue.add(self.inode);
    }
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        if !self.unwinding.has_begun() {
            return;
        }
        self.join();
        // Beyond the size there is nothing but zeros.
        let data = self.inode.data();
        if self.upto > data.size() {
            data.set_size(self.upto);
        }
    }
}
