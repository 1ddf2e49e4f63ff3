//! What a successor of this process is told of a regular file that runs ahead of the journal.
//!
//! A file has a slot ([`KeptSlot`]) from its first change that no record holds until records hold its size and times, and no
//! truncation is pending. Whoever changes one of these stores it there before its caller is answered, and, where others
//! may see the change before that, before its range is given back.
//!
//! # Invariants
//! 1. The slot is changed with its mutex held, from what the file says then: of two that change it the later one stores
//!    what both have done.
//! 2. It is given back with the mutex held, after a look at all that it is for: a change that the look has missed stores
//!    itself anew, for it takes the mutex after it has been made.

use super::InodeObj;
use crate::sync::Arc;
use crate::takeover::{KeptInode, KeptSlot, Takeover};

impl InodeObj {
    /// Stores what runs ahead of the journal, in memory that a successor takes over.
    pub fn keep(&self, memory: &Arc<Takeover>) {
        let data = self.data();
        let mut kept = data.kept.lock();
        if kept.is_none() {
            *kept = KeptSlot::take(memory, self.nid(), self.generation(), data.size());
        }
        match &*kept {
            Some(slot) => self.store(slot),
            None => tracing::debug!(nid = self.nid(), "too many files run ahead of the journal"),
        }
    }

    fn store(&self, slot: &KeptSlot) {
        let [_, mtime, ctime] = self.times();
        slot.set_times(mtime, ctime);
        slot.set_size(self.data().size());
    }

    /// As [`InodeObj::keep`], when the file has been emptied and the record that drops its old content is to come.
    pub fn keep_truncate(&self, memory: &Arc<Takeover>) {
        self.keep(memory);
        if let Some(slot) = &*self.data().kept.lock() {
            slot.set_truncate_pending(true);
        }
    }

    /// The next record that this thread logs drops the file's old content.
    pub fn decides_truncation(&self) {
        if let Some(data) = self.made_data()
            && let Some(slot) = &*data.kept.lock()
        {
            slot.decides();
        }
    }

    /// Records hold more of the file than before: the slot says what they do not hold, or is given back.
    pub fn settle_kept(&self) {
        let Some(data) = self.made_data() else { return };
        let mut kept = data.kept.lock();
        let Some(slot) = &*kept else { return };
        let is_pending = data.pages.is_truncate_pending();
        if !is_pending && data.size() == data.logged_size() && !self.has_lazy_times() {
            *kept = None;
            return;
        }
        if !is_pending {
            slot.set_truncate_pending(false);
        }
        self.store(slot);
    }

    /// The file is gone.
    pub fn forget_kept(&self) {
        if let Some(data) = self.made_data() {
            *data.kept.lock() = None;
        }
    }

    /// Goes on with the slot of a predecessor.
    pub fn inherit_kept(&self, memory: &Arc<Takeover>, kept: &KeptInode) {
        *self.data().kept.lock() = Some(KeptSlot::inherit(memory, kept));
    }
}
