//! Scratch space that spills as tmpfs does with swap, in so far as that was chosen ([`SpillBaseline`]): each of three
//! ways in which it asks more of the device than narufs.
//!
//! - *A page that comes in loses its copy*: `shmem_getpage` frees the slot in the swap space and makes the page dirty. Here
//!   its block stays its own, so that there is room for it when it goes; that it is written again, and that a reader waits
//!   where too much is dirty, is the same.
//! - *An overwrite reads first*: `shmem_write_begin` brings the page in, even if nothing of it is left afterwards.
//! - *Eight pages are read for one*: `swapin_readahead` asks for the aligned cluster of eight slots (`page-cluster` is 3)
//!   around each, whatever the reader does. Slots of a file that was written in order follow one another, so the cluster
//!   here is one of the file's pages. Nothing else is read ahead then.
//!
//! A read or write of many pages has all of them brought in by one batch, where tmpfs waits for cluster after cluster.
//!
//! Reads that hold nothing (`optimistic`) are left out where pages lose their copies: each use may change a page's state.

use crate::Result;
use crate::baseline::SpillBaseline;
use crate::cache::Use;
use crate::device::{BLOCK_SIZE, Cause, IoBuf, Request};
use crate::file::data_path::{DataPath, step_pages};
use crate::file::read::fill::{places, zero_beyond};
use crate::file::read::{Destination, is_absent};
use crate::file::write::joining::Joining;
use crate::inode::InodeObj;
use crate::pages::{PAGE, page_after, page_of};
use crate::store::Profile;
use crate::sync::Arc;
use std::ops::Range;

/// Pages of a cluster.
const CLUSTER: u64 = 8;

/// What is to be brought in, and for whom.
pub(in crate::file) struct SwapIn<'r> {
    /// In ascending order; none of them is cached.
    pub missing: &'r [u64],
    /// Those whose range the caller has.
    pub covered: &'r Range<u64>,
    /// Of the file.
    pub size: u64,
    pub is_lent: bool,
}

/// The clusters that pages lie in.
pub(in crate::file) fn clusters(pages: &Range<u64>) -> Range<u64> {
    pages.start / CLUSTER * CLUSTER..pages.end.next_multiple_of(CLUSTER)
}

impl DataPath {
    /// What was chosen, where there is anything to spill to.
    pub(in crate::file) fn swap(&self) -> SpillBaseline {
        match self.meta.store().profile() {
            Profile::Spilling { .. } => self.meta.store().baselines().spill,
            _ => SpillBaseline::default(),
        }
    }

    /// Of a write to these bytes, those that its range is to have.
    pub(in crate::file) fn swap_range(&self, bytes: Range<u64>) -> Range<u64> {
        let swap = self.swap();
        if !(swap.read_before_overwrite && swap.blind_readahead) {
            return bytes;
        }
        let pages = clusters(&(page_of(bytes.start)..page_after(bytes.end)));
        pages.start * PAGE..if bytes.end == u64::MAX { u64::MAX } else { pages.end * PAGE }
    }

    /// Brings in what a write of so many bytes is going to overwrite, if that is to be. The caller has the range that
    /// [`DataPath::swap_range`] says.
    pub(in crate::file) fn swap_in_for_write(
        &self,
        inode: &InodeObj,
        offset: u64,
        len: usize,
        size: u64,
    ) -> Result<()> {
        if !self.swap().read_before_overwrite {
            return Ok(());
        }
        let data = inode.data();
        let bytes = offset..(offset + len as u64).min(size).max(offset);
        let pages = page_of(bytes.start)..page_after(bytes.end);
        let missing: Vec<u64> = pages.clone().filter(|page| is_absent(data, *page)).collect();
        self.misses.add(missing.len() as u64);
        self.swap_in(
            inode,
            &SwapIn { missing: &missing, covered: &clusters(&pages), size, is_lent: false },
            None,
        )
    }

    /// Brings pages in, with their clusters if that is to be; gives the reader what it wants.
    pub(in crate::file) fn swap_in(
        &self,
        inode: &InodeObj,
        SwapIn { missing, covered, size, is_lent }: &SwapIn<'_>,
        mut wanted: Option<&mut Destination<'_>>,
    ) -> Result<()> {
        let (data, is_blind) = (inode.data(), self.swap().blind_readahead);
        let is_missing = |page: u64| missing.binary_search(&page).is_ok();
        let mut pages: Vec<u64> = Vec::new();
        for page in missing.iter().copied() {
            let around = if is_blind { clusters(&(page..page + 1)) } else { page..page + 1 };
            let next = pages.last().map_or(0, |last| last + 1);
            pages.extend(around.filter(|near| {
                let is_useful = covered.contains(near) && *near < page_after(*size) && is_absent(data, *near);
                *near >= next && (is_missing(*near) || is_useful)
            }));
        }
        let mut give = |page, bytes: Option<&[u8]>| {
            if let (Some(wanted), true) = (&mut wanted, is_missing(page)) {
                wanted.give(page, bytes);
            }
        };
        let fetches = places(&self.meta, inode, &pages, &mut |page| give(page, None))?;
        let read = |len: u64| IoBuf::unwiped(len as usize * BLOCK_SIZE);
        let batch = fetches.iter().map(|fetch| Request::read(fetch.block, read(fetch.len), Cause::ReadMiss));
        let device = self.meta.store().device();
        let mut outcome = Ok(());
        let done = if fetches.is_empty() { Vec::new() } else { device.wait(device.submit(batch.collect())) };
        for (fetch, done) in fetches.iter().zip(done) {
            if let Err(e) = done.result {
                outcome = outcome.and(Err(e));
                continue;
            }
            let mut buf = done.buf;
            for (page, bytes) in (fetch.page..).zip(buf.chunks_exact_mut(BLOCK_SIZE)) {
                zero_beyond(page, *size, bytes);
                give(page, Some(bytes));
                self.keep_clean(inode, page, bytes, *is_lent, !is_missing(page));
            }
        }
        outcome
    }

    /// Before a read that finds pages absent, which will be dirty: what is dirty gives way. Called with no lock held.
    pub(in crate::file) fn make_room_to_swap_in(&self, inode: &InodeObj, pages: &Range<u64>) {
        let count = (pages.end - pages.start).min(step_pages(&self.pool));
        // No error of the read's: what finds no frame is given, and not kept.
        let _ = self.flusher.throttle(inode, (count * PAGE) as usize);
        let _ = self.flusher.frames(count as usize);
    }

    /// Has pages that a reader has used lose their copies. The reader has their range.
    pub(in crate::file) fn lose_copies(&self, inode: &Arc<InodeObj>, pages: Range<u64>) {
        let data = inode.data();
        let mut joining = Joining::begin(self.write_back.queue(), &self.meta, inode, None);
        for page in pages {
            let found = data.index.get(page).and_then(|slot| self.pool.find(slot, Use::No));
            // A dirty page is where it should be.
            if let Some(found) = found
                && found.mark_dirty(&found.latch(), 0..BLOCK_SIZE)
            {
                joining.pages.push(page);
            }
        }
        joining.join();
    }
}
