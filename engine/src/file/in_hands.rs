//! Pages that have left the sets of their file, and whose they are if the one who took them panics.
//!
//! A page that is being written home, or logged, is in no set: who finds none there takes the file for written. The
//! serving thread outlives a panic, so what was taken out must come back, and be told of. Dropped by unwinding:
//! - [`InHands`], [`Absorbing`] put all their pages back among the dirty ones, whatever became of them (one that is
//!   clean by now is passed over by the next write-back), and note a failure of write-back, which each open file is told
//!   of by its next fsync, as of one by the device;
//! - a [`Piece`] ends the write-back of its frames, which are wholly dirty again;
//! - [`InFlight`] waits for the device, lest a request write over what is written to its blocks later.
//!
//! All of this happens under the file's write-back mutex, whose guard outlives these. Blocks that were given to new pages
//! are not given back, for they may be mapped by then: those that are not are free again after the next mount. Pages
//! whose data record is logged are pages of a live record: it is superseded before it may stand for newer bytes, and the
//! head does not pass it before they are home. (Who panics within the logging itself leaves a read-only file system.)
//!
//! A writer has pages in hand, too, under its range: those that it has made dirty and that are in no set yet
//! ([`Joining`]). They join the set, as of a write that came no further.

use crate::cache::{FrameState, Use};
use crate::device::{BLOCK_SIZE, BlockDevice, Completion, Ticket};
use crate::file::data_path::DataPath;
use crate::file::writeback::place::Piece;
use crate::file::{DataInode, FileData, Home};
use crate::format::Position;
use crate::sync::Arc;
use std::collections::VecDeque;
use std::ops::Deref;
use std::thread::panicking;

/// Pages picked by a write-back, until they are let go of.
pub(in crate::file) struct InHands<'d> {
    data: &'d FileData,
    pages: Vec<u64>,
}

impl<'d> InHands<'d> {
    /// The pages were taken out of the sets, with the state locked.
    pub fn new(data: &'d FileData, pages: Vec<u64>) -> InHands<'d> {
        InHands { data, pages }
    }

    /// Each has gone home or is in a set again.
    pub fn let_go(mut self) {
        self.pages.clear();
    }
}

impl Deref for InHands<'_> {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.pages
    }
}

impl Drop for InHands<'_> {
    fn drop(&mut self) {
        if !panicking() {
            return;
        }
        let mut state = self.data.state.lock();
        state.in_hands = false;
        state.dirty.extend(&self.pages);
        drop(state);
        self.data.note_failure();
    }
}

/// Pages on their way into a data record, until it is clear what became of it.
pub(in crate::file) struct Absorbing<'p, H: Home> {
    path: &'p DataPath<H>,
    inode: &'p Arc<H::Inode>,
    pub pages: Vec<u64>,
    /// The end of their record, once it is logged.
    pub logged: Option<Position>,
}

impl<'p, H: Home> Absorbing<'p, H> {
    /// The pages were taken out of the set of dirty ones, and [`absorbing`](crate::file::data::FileState::absorbing) is set.
    pub fn new(path: &'p DataPath<H>, inode: &'p Arc<H::Inode>, pages: Vec<u64>) -> Absorbing<'p, H> {
        Absorbing { path, inode, pages, logged: None }
    }
}

impl<H: Home> Drop for Absorbing<'_, H> {
    fn drop(&mut self) {
        if !panicking() {
            return;
        }
        let data = self.inode.data();
        for page in &self.pages {
            let Some(found) = data.index.get(*page).and_then(|slot| self.path.pool.find(slot, Use::No))
            else {
                continue;
            };
            if found.flags().contains(FrameState::DIRTY) {
                let latched = found.latch();
                found.mark_dirty(&latched, 0..BLOCK_SIZE);
            }
        }
        let mut state = data.state.lock();
        for page in &self.pages {
            state.dirty.insert(*page);
            if let Some(end) = self.logged {
                state.absorbed(*page, end);
            }
        }
        state.absorbing = false;
        drop(state);
        data.note_failure();
        self.path.list(self.inode);
    }
}

/// Pages that a writer has made dirty, until they are in the set.
pub(in crate::file) struct Joining<'p, H: Home> {
    pub path: &'p DataPath<H>,
    pub inode: &'p Arc<H::Inode>,
    pub pages: Vec<u64>,
    /// Blocks set aside for them.
    pub reserved: u64,
    /// How far the content has come, in bytes of the file.
    pub upto: u64,
}

impl<H: Home> Joining<'_, H> {
    /// They are in the set now.
    pub fn join(&mut self) {
        let (pages, reserved) = (std::mem::take(&mut self.pages), std::mem::take(&mut self.reserved));
        if reserved == 0 && pages.is_empty() {
            return;
        }
        let mut state = self.inode.data().state.lock();
        state.reserved += reserved;
        state.dirty.extend(pages);
        drop(state);
        self.path.list(self.inode);
    }
}

impl<H: Home> Drop for Joining<'_, H> {
    fn drop(&mut self) {
        if !panicking() {
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

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        if !panicking() {
            return;
        }
        for found in self.frames.iter().filter(|found| found.flags().contains(FrameState::WRITEBACK)) {
            found.fail_write_back();
        }
    }
}

/// Requests that the device has, in order, each with what is to be done when it is over.
pub(in crate::file) struct InFlight<'d, T> {
    device: &'d dyn BlockDevice,
    requests: VecDeque<(Ticket, T)>,
}

impl<'d, T> InFlight<'d, T> {
    /// None.
    pub fn new(device: &'d dyn BlockDevice) -> InFlight<'d, T> {
        InFlight { device, requests: VecDeque::new() }
    }

    pub fn push(&mut self, ticket: Ticket, with: T) {
        self.requests.push_back((ticket, with));
    }

    /// Waits for the oldest.
    pub fn wait(&mut self) -> Option<(Vec<Completion>, T)> {
        let (ticket, with) = self.requests.pop_front()?;
        Some((self.device.wait(ticket), with))
    }
}

impl<T> Drop for InFlight<'_, T> {
    fn drop(&mut self) {
        // None are left but by unwinding.
        while self.wait().is_some() {}
    }
}
