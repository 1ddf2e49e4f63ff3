//! Absorption (T9): a file's few dirty bytes go into the journal, and home later.
//!
//! An fsync absorbs so that it needs no write home and no flush of its own. What *replaces* other content, by a rename
//! over it or after a truncation to nothing, is absorbed for the sake of order alone: nobody is told that it is durable,
//! but no crash may show the replacement without it. Bytes in a record that is the replacement's own, or comes before it,
//! are recovered wherever that is, and nobody waits for a device. What this leaves to others: which of a file's bytes are
//! dirty, and how they go home in the end (`reclaim`, `writeback`).
//!
//! # The record of an emptied file
//! It drops all old extents, supersedes all absorbed data, maps new blocks, sets the size and holds the new bytes: in
//! one record all of this is there after a crash, or nothing. No flush comes before it, for nothing of the new content
//! is anywhere else; the old blocks are not given out before it is durable (quarantine), so until then the old content
//! is whole, where it lies or in older records (`old_content`).

use crate::buffer_pool;
use crate::cache::Use;
use crate::cache::{Found, FramePool, FrameState};
use crate::device::BLOCK_SIZE;
use crate::file::sync::sectors::{SECTOR, Sectors};
use crate::file::writeback::preallocation::{block_behind, room_ahead};
use crate::file::writeback::{WriteBack, key_of};
use crate::format::{DataKey, Nid, Position};
use crate::inode::InodeObj;
use crate::meta::{Blocks, Change, Insert, MAX_RUNS, Mapping, Meta, Need};
use crate::pages::{FileData, Logging, Marks, OldContentBudget};
use crate::pages::{PAGE, PAGES_END, page_after, page_of};
use crate::planted::{self, Bug, Spot};
use crate::sync::{Arc, LaneCounter, Mutex};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// Pages that one fsync absorbs at most; each costs a record's overhead.
const ABSORB_PAGES: usize = 64;

/// For whom bytes are absorbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::file) enum Absorb {
    /// For an fsync, which waits for room in the ring.
    Synced,
    /// For a replacement: only whole pages' worth of what may be absorbed, and only where the ring has room that nobody
    /// else will want soon. Otherwise they go home at once.
    Replacing,
}

/// What is to be absorbed, as seen before the write-back mutex is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dirty {
    pages: usize,
    /// Extents of the old content that go with the record; none unless the file was emptied.
    dropped: Option<usize>,
}

/// Most bytes of neighbouring pages that are logged as one.
const RUN_BYTES: usize = 8 * BLOCK_SIZE;

/// A page on its way into the journal.
pub(super) struct Taken<'p> {
    page: u64,
    found: Found<'p>,
    new: Option<Blocks>,
}

/// Pages on their way into a data record, until it is clear what became of it.
pub(super) struct Absorbing<'p> {
    pub journal: &'p DataJournal,
    pub inode: &'p Arc<InodeObj>,
    pub pages: Logging<'p>,
}

impl<'p> Absorbing<'p> {
    /// Nothing was logged: the pages are dirty again.
    pub fn failed(&mut self, taken: Vec<Taken<'p>>) {
        for page in taken {
            let latched = page.found.latch();
            page.found.mark_dirty(&latched, 0..BLOCK_SIZE);
            drop(latched);
            if let Some(blocks) = page.new {
                self.journal.meta.release(blocks);
            }
        }
        // Last: should the loop panic, the token's drop makes the rest of the frames dirty.
        self.pages.abort();
    }

    /// The record that ends at `end` has them, and a size; with `truncates` it is that of a pending truncation too.
    pub fn landed(mut self, taken: Vec<Taken<'p>>, end: Position, size: u64, truncates: bool) {
        let (journal, inode) = (self.journal, self.inode);
        inode.data().set_logged_size(size);
        inode.data().set_marks(Marks::Parts);
        journal.counters.pages.add(taken.len() as u64);
        let mut unwanted = 0;
        let nodes = self.pages.finish(end, truncates, |logging| {
            for page in taken {
                if page.new.is_some() {
                    logging.unreserve(1);
                } else if page.found.flags().contains(FrameState::RESERVED) {
                    logging.unreserve(1);
                    unwanted += 1;
                }
                page.found.set(FrameState::MAPPED);
                page.found.clear(FrameState::RESERVED);
                logging.logged(page.page, page.found.flags().contains(FrameState::SYNCED));
            }
        });
        inode.settle_kept();
        if truncates {
            journal.write_back.pending().remove(inode);
        }
        if unwanted + nodes > 0 {
            journal.meta.unreserve(unwanted, nodes);
        }
        journal.write_back.queue().add(inode);
    }
}

impl Drop for Absorbing<'_> {
    fn drop(&mut self) {
        if !self.pages.is_unfinished() {
            return;
        }
        let data = self.inode.data();
        for page in self.pages.iter() {
            let Some(found) = data.index.get(*page).and_then(|slot| self.journal.pool.find(slot, Use::No))
            else {
                continue;
            };
            if found.flags().contains(FrameState::DIRTY) {
                let latched = found.latch();
                found.mark_dirty(&latched, 0..BLOCK_SIZE);
            }
        }
        self.pages.give_up();
        self.journal.write_back.queue().add(self.inode);
    }
}

/// The way of files' few dirty bytes into the journal, and home before the ring's head passes them.
#[derive(Debug)]
pub(in crate::file) struct DataJournal {
    pub(in crate::file) write_back: Arc<WriteBack>,
    pub(super) meta: Arc<Meta>,
    pub(super) pool: Arc<FramePool>,
    /// Bytes that one fsync absorbs at most.
    limit: usize,
    /// Files with live absorbed records.
    pub(super) files: Mutex<BTreeMap<Nid, Arc<InodeObj>>>,
    pub(super) old_content: OldContentBudget,
    pub(super) counters: Counters,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub pages: LaneCounter,
    syncs: LaneCounter,
    replacements: LaneCounter,
}

/// Takes a file out, and not another that has its number by now.
pub(super) fn take_out(files: &mut BTreeMap<Nid, Arc<InodeObj>>, inode: &Arc<InodeObj>) {
    if files.get(&inode.nid()).is_some_and(|there| Arc::ptr_eq(there, inode)) {
        files.remove(&inode.nid());
    }
}

impl DataJournal {
    /// One fsync absorbs so many bytes at most; so many pages may be kept of what emptied files held.
    pub fn new(meta: Arc<Meta>, write_back: Arc<WriteBack>, limit: usize, kept: usize) -> DataJournal {
        DataJournal {
            meta,
            pool: Arc::clone(write_back.pool()),
            write_back,
            limit,
            files: Mutex::new(BTreeMap::new()),
            old_content: OldContentBudget::beside(kept),
            counters: Counters::default(),
        }
    }

    /// Every file that the journal holds something of.
    pub fn files(&self) -> Vec<Arc<InodeObj>> {
        self.files.lock().values().cloned().collect()
    }

    /// The file is gone.
    pub fn forget(&self, inode: &Arc<InodeObj>) {
        take_out(&mut self.files.lock(), inode);
    }

    /// Adds what was absorbed to the counts: pages, fsyncs, replacements.
    pub fn counts(&self) -> [u64; 3] {
        let Counters { pages, syncs, replacements } = &self.counters;
        [pages, syncs, replacements].map(LaneCounter::get)
    }

    /// Logs the dirty bytes of a file if they are few and there is a journal, and with them the truncation of an emptied
    /// file. None: write them home, or, with a generation, the file is in another.
    pub fn absorb(
        &self,
        inode: &Arc<InodeObj>,
        why: Absorb,
        generation: Option<u64>,
    ) -> Result<Option<Position>> {
        let data = inode.data();
        if self.limit == 0 || self.meta.store().journal().is_none() {
            return Ok(None);
        }
        let few = |most: usize| {
            let now = data.pages.summary();
            let dropped = now.truncate_pending.map(|extents| extents.max(1));
            let pages = now.dirty;
            let most = match dropped {
                // Each is absorbed whole.
                Some(_) => most.min(self.limit / BLOCK_SIZE).min(MAX_RUNS),
                None => most,
            };
            let is_meant = generation.is_none_or(|generation| generation == now.generation);
            let is_there = dropped.is_some() || pages > 0;
            (is_meant && is_there && pages <= most).then_some(Dirty { pages, dropped })
        };
        let most = match why {
            Absorb::Synced => ABSORB_PAGES,
            Absorb::Replacing => (self.limit / BLOCK_SIZE).min(ABSORB_PAGES),
        };
        let Some(dirty) = few(most) else { return Ok(None) };
        let for_pages = |pages: usize| {
            let need = Need {
                runs: pages.clamp(1, MAX_RUNS),
                dropped: dirty.dropped.unwrap_or(0),
                data: (pages * BLOCK_SIZE).min(self.limit + BLOCK_SIZE),
                ..Need::default()
            };
            (pages, need)
        };
        // Others may make more of them dirty before the mutex is taken.
        let wants = [for_pages((dirty.pages + 3).min(most)), for_pages(dirty.pages)];
        let fits = |(_, need): &(usize, Need)| self.meta.fitting(inode, *need) == need.runs;
        let Some((most, need)) = wants.into_iter().find(fits) else { return Ok(None) };
        let mut credits = match why {
            Absorb::Synced => self.meta.credits(inode, need)?,
            Absorb::Replacing => match self.meta.ample_credits(inode, need)? {
                Some(credits) => credits,
                None => return Ok(None),
            },
        };
        let _guard = data.write_back.lock();
        if few(most).is_none_or(|now| now.dropped != dirty.dropped) {
            return Ok(None);
        }
        let truncates = dirty.dropped.is_some();
        let size = data.size();
        // Before the record is logged: a checkpoint that lets the head pass it must find the file, and wait.
        let mut absorbing =
            Absorbing { journal: self, inode, pages: data.pages.begin_logging(page_after(size)) };
        self.files.lock().insert(inode.nid(), Arc::clone(inode));
        let mut taken = Vec::new();
        let mut change = Change::default();
        let most = (need.runs, self.limit);
        let all_dirty = |_| None;
        let outcome = self
            .take_in(inode, &absorbing.pages, all_dirty, (size, most), &mut taken, &mut change)
            .map(|fits| fits && (truncates || !grows_over_clean(data, size, &taken)));
        planted::panic_at(Spot::Taken);
        let fits = matches!(outcome, Ok(true));
        let logged = if fits {
            let stale = !change.supersede.is_empty();
            // Every dirty page below the size is in this record, and that of the recorded end, if the file grows over it.
            change.size = (size != data.logged_size()).then_some(size);
            if truncates {
                change.remove = Some(0..PAGES_END);
                change.supersede.push(key_of(inode.as_ref(), 0, u64::MAX));
            }
            if truncates && planted::is(Bug::RewrittenInTwo) {
                let bytes = std::mem::take(&mut change.data);
                self.meta.log(credits, inode, std::mem::take(&mut change))?;
                change.data = bytes;
                credits = self.meta.credits(inode, need)?;
            }
            let waits = stale && !planted::is(Bug::SupersedeBeforeFlush);
            let flushed = if waits { self.meta.order_after(data.last_write()) } else { Ok(()) };
            flushed.and_then(|()| self.meta.log(credits, inode, change)).map(|logged| Some(logged.end))
        } else {
            outcome.map(|_| None)
        };
        if let Ok(Some(end)) = logged {
            absorbing.pages.record_logged(end);
        }
        planted::panic_at(Spot::Absorbed);
        let Ok(Some(end)) = logged else {
            absorbing.failed(taken);
            // A write home has another way where there is no block for extents.
            return if logged == Err(Error::Errno(libc::ENOSPC)) { Ok(None) } else { logged };
        };
        match why {
            Absorb::Synced => self.counters.syncs.add(1),
            Absorb::Replacing => self.counters.replacements.add(1),
        }
        absorbing.landed(taken, end, size, truncates);
        Ok(Some(end))
    }

    /// Copies dirty bytes into a record, of a page that was nowhere but in its place or in records these sectors alone,
    /// and gives new pages their blocks; false if they are too many.
    pub(super) fn take_in<'p>(
        &'p self,
        inode: &Arc<InodeObj>,
        pages: &[u64],
        sectors: impl Fn(u64) -> Option<Sectors>,
        (size, (most_runs, most_bytes)): (u64, (usize, usize)),
        taken: &mut Vec<Taken<'p>>,
        change: &mut Change,
    ) -> Result<bool> {
        let data = inode.data();
        let mut sum = 0;
        let mut behind: Option<(u64, u64)> = None;
        for &page in pages {
            let Some(found) = data.index.get(page).and_then(|slot| self.pool.find(slot, Use::No)) else {
                continue;
            };
            if !found.flags().contains(FrameState::DIRTY) {
                continue;
            }
            let stale = !planted::is(Bug::AbsorbedOverStale) && data.pages.is_stale(page);
            let mut new = None;
            let mut unwritten = false;
            if !found.flags().contains(FrameState::MAPPED) {
                match self.meta.map(inode, page)? {
                    Mapping::Hole { .. } => {
                        let near = behind.map(|(_, block)| block);
                        let goal = match behind {
                            Some((before, _)) if before + 1 == page => near,
                            _ => block_behind(&self.meta, inode, page).or(near),
                        };
                        let blocks = self.meta.allocate(1, room_ahead(page), goal)?;
                        behind = Some((page, blocks.start + 1));
                        new = Some(blocks);
                    }
                    Mapping::Mapped { unwritten: u, .. } => unwritten = u,
                }
            }
            let whole = new.is_some() || unwritten || stale;
            let latched = found.latch();
            let dirty = latched.dirty_bytes();
            // Behind the recorded end the home copy may hold what was cut off.
            let recorded = (data.logged_size() % PAGE) as usize;
            let is_last = page == page_of(data.logged_size());
            let start = if is_last { dirty.start.min(recorded) } else { dirty.start };
            // A writer may have come further than the size, which it sets afterwards: the page counts as absorbed
            // with those bytes too.
            let valid = (size.saturating_sub(page * PAGE).min(PAGE) as usize).max(dirty.end);
            // Whole sectors: redo may meet a home copy that is newer, and must not mix the two within one.
            let dirty_sectors = start / SECTOR * SECTOR..dirty.end.next_multiple_of(SECTOR).min(valid);
            let changed = sectors(page).filter(|_| !whole);
            let dirty = if whole { 0..BLOCK_SIZE } else { dirty_sectors };
            let dirty = (changed.is_none() && !dirty.is_empty()).then_some(dirty);
            for range in dirty.into_iter().chain(changed.into_iter().flat_map(Sectors::runs)) {
                sum += range.len();
                let at = page * PAGE + range.start as u64;
                let goes_on = |(key, bytes): &(DataKey, Vec<u8>)| {
                    key.offset.get() + bytes.len() as u64 == at && bytes.len() + range.len() <= RUN_BYTES
                };
                if !change.data.last().is_some_and(goes_on) {
                    let room = (pages.len() * BLOCK_SIZE).min(RUN_BYTES);
                    change.data.push((key_of(inode.as_ref(), at, 0), buffer_pool::take(room)));
                }
                if let Some((key, bytes)) = change.data.last_mut() {
                    latched.append(range, bytes);
                    key.len.set(bytes.len() as u64);
                }
            }
            found.set(FrameState::SYNCED);
            drop(latched);
            if let Some(blocks) = new {
                change.insert.push(Insert { page, blocks, unwritten: false });
            }
            if unwritten {
                match change.mark_written.last_mut() {
                    Some(last) if last.end == page => last.end += 1,
                    _ => change.mark_written.push(page..page + 1),
                }
            }
            if stale {
                change.supersede.push(key_of(inode.as_ref(), page * PAGE, PAGE));
            }
            taken.push(Taken { page, found, new });
            let runs = change.insert.len() + change.mark_written.len() + change.supersede.len();
            if sum > most_bytes || runs > most_runs {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether the file grows over a page that it ended in and that is not taken with it: a write home has it, which may not be
/// flushed, and live records may hold less of it. A size beyond would show what its place had held before.
fn grows_over_clean(data: &FileData, size: u64, taken: &[Taken<'_>]) -> bool {
    let logged = data.logged_size();
    let page = page_of(logged);
    size > logged
        && !logged.is_multiple_of(PAGE)
        && size > page * PAGE
        && taken.iter().all(|it| it.page != page)
}
