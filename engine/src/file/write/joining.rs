//! Pages that a writer has made dirty and that are in no set yet: should the writer panic they join the set, as of a
//! write that came no further.

use crate::file::writeback::queue::WriteBackQueue;
use crate::inode::InodeObj;
use crate::meta::Meta;
use crate::pages::Delayed;
use crate::sync::Arc;
use crate::unwinding::Unwinding;

/// Pages that a writer has made dirty, until they are in the set.
pub(in crate::file) struct Joining<'p> {
    pub queue: &'p WriteBackQueue,
    pub meta: &'p Meta,
    pub inode: &'p Arc<InodeObj>,
    pub pages: Vec<u64>,
    /// What is set aside for them.
    pub delayed: Option<Delayed>,
    /// How far the content has come, in bytes of the file.
    pub upto: u64,
    unwinding: Unwinding,
}

impl<'p> Joining<'p> {
    /// None yet, of a file for which blocks are set aside.
    pub fn begin(
        queue: &'p WriteBackQueue,
        meta: &'p Meta,
        inode: &'p Arc<InodeObj>,
        delayed: Option<Delayed>,
    ) -> Joining<'p> {
        let (pages, unwinding) = (Vec::new(), Unwinding::watch());
        Joining { queue, meta, inode, pages, delayed, upto: 0, unwinding }
    }

    /// They are in the set now.
    pub fn join(&mut self) {
        let (pages, delayed) = (std::mem::take(&mut self.pages), self.delayed.take());
        if delayed.is_none() && pages.is_empty() {
            return;
        }
        let states = &self.inode.data().pages;
        match delayed {
            Some(delayed) => self.meta.need_fewer_nodes(states.delayed(pages, &delayed)),
            None => states.dirtied(pages),
        }
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
