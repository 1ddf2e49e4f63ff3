//! Inodes that the kernel may hold by lookup counts of a predecessor.
//!
//! The kernel forgets an inode with all the counts that it was given, whoever has given them; but a process that took
//! a mount over knows its own alone. So it does not free an inode without names on its count alone: it asks the kernel,
//! from a thread that serves no request. What the kernel has not is freed. What it has will be forgotten one day, and that
//! it is forgotten brings the question up again ([`Vfs::forget`]).
//!
//! A count that the predecessor had read, and lost, brings up no question; the next successor asks for all that have no
//! names. Inodes that this process has made itself are counted as ever.
//!
//! What this leaves to others: the asking ([`Prober`]), and freeing.
//!
//! # Invariants
//! 1. The kernel takes an inode out of its table before it says that it has forgotten it, or makes whoever looks for it
//!    wait until it is out: so the answer to a question that follows the forgetting is no, unless it was looked up again.
//! 2. Nothing is asked before what was in flight is answered: an inode that was made, and whose maker has not been told,
//!    the kernel does not have yet.

use super::{Entry, Vfs};
use crate::format::Nid;
use crate::inode::InodeObj;
use crate::planted::{self, Bug};
use crate::sync::{Arc, Condvar, Mutex};
use crate::takeover::Prober;
use crate::{Error, Result};
use std::collections::VecDeque;
use std::ops::Range;

/// Inodes without names to ask the kernel about.
#[derive(Debug, Default)]
pub(super) struct InheritedHolds {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    to_ask: VecDeque<Arc<InodeObj>>,
    is_over: bool,
}

impl Vfs {
    /// What a predecessor has made for a caller that it has not answered: with or without a name, it is held for the kernel
    /// from now on. To be called before [`Vfs::ask_kernel`].
    pub fn made_before(&self, nid: Nid) -> Result<Entry> {
        let inode = self.hold(self.meta.inode(nid)?)?;
        Ok(self.entry(&inode))
    }

    /// Whether all that hold an inode are counted here.
    pub(super) fn counts_all_holds(&self, inode: &InodeObj) -> bool {
        self.inherited.is_none() || inode.is_made_here() || planted::is(Bug::KernelNotAsked)
    }

    /// Whether the kernel is to be asked first about an inode that is to be freed; it is.
    pub(super) fn asks_first(&self, inode: &Arc<InodeObj>) -> bool {
        let Some(inherited) = self.inherited.as_ref().filter(|_| !self.counts_all_holds(inode)) else {
            return false;
        };
        let mut queue = inherited.queue.lock();
        if queue.is_over || !inode.holds.is_free() {
            return false;
        }
        queue.to_ask.push_back(Arc::clone(inode));
        inherited.wake.notify_one();
        true
    }

    /// Has the kernel asked about inodes without names, by a thread of its own, until [`Vfs::forget_all`]. Where nothing is
    /// inherited there is nothing to ask.
    pub fn ask_kernel(self: &Arc<Self>, prober: Arc<dyn Prober>) -> Result<()> {
        if self.inherited.is_none() {
            return Ok(());
        }
        self.pending_eviction.hear(true);
        let fs = Arc::clone(self);
        let ask = move || {
            while let Some(inode) = fs.next_to_ask() {
                if !prober.kernel_holds(inode.nid()) {
                    fs.free_unheld(&inode);
                }
            }
        };
        let thread = std::thread::Builder::new().name("narufs-ask".into()).spawn(ask);
        thread.map(drop).map_err(|e| Error::Errno(e.raw_os_error().unwrap_or(libc::EAGAIN)))
    }

    /// Every nid that an inode may have which the kernel knows from a predecessor, in parts that are numbered from 0 on; some
    /// are empty, and `None` is behind the last.
    pub fn possible_nids(&self, part: u64) -> Option<Range<Nid>> {
        self.meta.space.possible_nids(part)
    }

    fn next_to_ask(&self) -> Option<Arc<InodeObj>> {
        let inherited = self.inherited.as_ref()?;
        let mut queue = inherited.queue.lock();
        loop {
            if queue.is_over {
                return None;
            }
            if let Some(inode) = queue.to_ask.pop_front() {
                return Some(inode);
            }
            inherited.wake.wait(&mut queue);
        }
    }

    /// The kernel is gone, and holds nothing.
    pub(super) fn end_asking(&self) {
        let Some(inherited) = &self.inherited else { return };
        let to_ask = {
            let mut queue = inherited.queue.lock();
            queue.is_over = true;
            std::mem::take(&mut queue.to_ask)
        };
        inherited.wake.notify_all();
        to_ask.iter().for_each(|inode| self.free_unheld(inode));
    }
}
