//! What a file held before it was emptied, where only data records of the journal have that durably.
//!
//! An emptied file has its old blocks until the record of its new content, and shows the old content after a crash
//! before that. What of this is absorbed lies in records that the ring's head may come to meanwhile. So copies of these
//! pages are kept: a checkpoint that is to pass the records writes them home first, and the record of the new content
//! drops the others, which then have cost no write at all.
//!
//! # Invariants
//! 1. Copies are made, written and dropped under the file's write-back mutex. A file that has some is emptied and among
//!    those with absorbed data; the blocks that its copies name are its own until the record that drops them all.
//! 2. Files keep few pages each, and together an eighth of what copies on their way home may take: beyond that, and
//!    where a page cannot be copied, what is absorbed goes home before the file is emptied.

use crate::Result;
use crate::cache::Use;
use crate::device::{BLOCK_SIZE, Cause, IoBuf, Op, Request};
use crate::file::data_path::DataPath;
use crate::file::{DataInode, Home, Mapping};
use crate::format::Position;
use crate::planted::{self, Bug};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Pages that one file keeps at the most.
const MOST_OF_FILE: usize = 32;

/// Pages that may be kept of all files together.
#[derive(Debug)]
pub(in crate::file) struct KeptPages {
    most: usize,
    // Relaxed: a number to compare with; it orders nothing.
    taken: Arc<AtomicUsize>,
}

impl KeptPages {
    /// Beside `staging` pages for copies on their way to the device.
    pub fn of(staging: usize) -> KeptPages {
        KeptPages { most: (staging / 8).max(MOST_OF_FILE), taken: Arc::default() }
    }

    fn share(&self, pages: usize) -> Option<Share> {
        let more = |taken: usize| (taken + pages <= self.most).then_some(taken + pages);
        let taken = pages <= MOST_OF_FILE && self.taken.fetch_update(Relaxed, Relaxed, more).is_ok();
        taken.then(|| Share { of: Arc::clone(&self.taken), pages })
    }
}

/// So many pages, until this is dropped.
#[derive(Debug)]
struct Share {
    of: Arc<AtomicUsize>,
    pages: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.fetch_sub(self.pages, Relaxed);
    }
}

#[derive(Debug)]
struct KeptPage {
    block: u64,
    /// Position after the oldest record whose bytes are not home.
    first: Position,
    bytes: Box<[u8]>,
}

/// What one file keeps.
#[derive(Debug, Default)]
pub(in crate::file) struct Kept {
    pages: Vec<KeptPage>,
    share: Option<Share>,
}

impl Kept {
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Whether records up to `upto` alone hold some of it.
    pub fn is_below(&self, upto: Position) -> bool {
        self.pages.iter().any(|page| page.first <= upto)
    }

    pub fn clear(&mut self) {
        *self = Kept::default();
    }

    /// What is below is home.
    fn is_home(&mut self, upto: Position) {
        self.pages.retain(|page| page.first > upto);
        if self.pages.is_empty() {
            self.share = None;
        }
    }
}

impl<H: Home> DataPath<H> {
    /// Copies what live records alone hold of a file that is about to be emptied; false if that is too much. The caller
    /// has the file to himself, and its write-back mutex.
    pub(in crate::file) fn keep_live(&self, inode: &Arc<H::Inode>) -> Result<bool> {
        let data = inode.data();
        let held = data.state.lock().held_live();
        if held.is_empty() {
            return Ok(true);
        }
        let Some(share) = self.kept.share(held.len()) else { return Ok(false) };
        let mut pages = Vec::with_capacity(held.len());
        for (page, first) in held {
            let found = data.index.get(page).and_then(|slot| self.pool.find(slot, Use::No));
            let Some(found) = found else { return Ok(false) };
            let Mapping::Mapped { block, unwritten: false, .. } = self.home.map(inode, page)? else {
                return Ok(false);
            };
            let mut bytes = vec![0; BLOCK_SIZE].into_boxed_slice();
            found.latch().copy(0, &mut bytes);
            pages.push(KeptPage { block, first, bytes });
        }
        pages.sort_unstable_by_key(|page| page.block);
        data.state.lock().kept = Kept { pages, share: Some(share) };
        Ok(true)
    }

    /// Writes what is kept, and lies in records up to `upto`, to its old place.
    pub(in crate::file) fn write_kept(&self, inode: &Arc<H::Inode>, upto: Position) -> Result<()> {
        let data = inode.data();
        let _guard = data.write_back.lock();
        let requests: Vec<_> = {
            let state = data.state.lock();
            let due = state.kept.pages.iter().filter(|page| page.first <= upto);
            let write = |page: &KeptPage| Request {
                op: Op::Write,
                block: page.block,
                buf: IoBuf::from_slice(&page.bytes),
                cause: Cause::DataWriteBack,
            };
            due.map(write).collect()
        };
        if requests.is_empty() {
            return Ok(());
        }
        let count = requests.len() as u64;
        // It may be younger than an fsync that was answered already.
        let kept = if planted::is(Bug::HomeBeforePromised) { Ok(()) } else { self.home.keep_promises() };
        let written = kept.and_then(|()| self.home.device().run(requests).map(drop));
        data.wrote(self.home.device().writes_completed());
        if written.is_err() {
            self.note_failure(data);
            return written;
        }
        self.counters.written.add(count);
        data.state.lock().kept.is_home(upto);
        Ok(())
    }
}
