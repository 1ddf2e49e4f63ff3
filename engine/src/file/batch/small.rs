//! The commit of a batch in one record.

use super::StagedFile;
use crate::Result;
use crate::alloc::BITS_DELTA_BYTES;
use crate::cache::{FrameState, Use};
use crate::device::{BLOCK_SIZE, IoBuf};
use crate::file::SyncKind;
use crate::file::data_path::DataPath;
use crate::file::read::fill::zero_beyond;
use crate::file::sync::sectors::Sectors;
use crate::file::sync::several::Joint;
use crate::file::write::edits::{Content, Edit, Ready, ReadyPages};
use crate::file::write::reservation::FrameReservation;
use crate::file::writeback::Order;
use crate::format::Position;
use crate::inode::InodeObj;
use crate::lock::BytesGuard;
use crate::meta::{Mapping, Need};
use crate::pages::{PAGE, PAGES_END, page_after, page_of};
use crate::planted::{self, Bug};
use crate::store::BrokenOff;
use crate::sync::{Arc, MutexGuard};

/// Neighbouring pages that a node of a file's tree takes at least, one after the other.
const NODE_PAGES: usize = 32;

/// What is to be done to one file, under its range.
struct Job<'p> {
    inode: &'p Arc<InodeObj>,
    edits: Vec<Edit>,
    bytes: Vec<u8>,
    ready: Option<ReadyPages<'p>>,
    /// What frames held that were there before, in the order of their pages.
    before: Vec<Before>,
    /// Where the file ends afterwards, if that is beyond where it ends now.
    grown: Option<u64>,
    /// Of a file that was truncated to nothing, and has got nothing since: the extents that go with the batch's record.
    dropped: Option<usize>,
}

/// A page before it changes.
struct Before {
    page: u64,
    /// None if it was not cached.
    bytes: Option<IoBuf>,
    /// The sectors that the record is to hold; none for all that is dirty.
    sectors: Option<Sectors>,
}

/// What came of an attempt.
enum Attempt {
    Committed(Position),
    /// So many frames are needed first.
    Frames(usize),
    /// Others have changed a file meanwhile.
    Again,
    /// No record has room for it.
    TooLarge,
}

impl DataPath {
    /// Makes what is staged the content of the files, in ascending order of their nids: all at once, for who reads them
    /// as for a crash. The end of the record; none if no record has room for so much, and nothing has happened.
    pub fn commit_in_record(&self, files: &[StagedFile]) -> Result<Option<Position>> {
        let pages: usize = files.iter().map(StagedFile::page_count).sum();
        if pages > self.record_pages() {
            return Ok(None);
        }
        for file in files {
            self.flusher.throttle(&file.inode, file.page_count() * BLOCK_SIZE)?;
        }
        let mut frames = FrameReservation::default();
        loop {
            for file in files.iter().filter(|file| !is_empty_again(&file.inode)) {
                self.settle(&file.inode)?;
            }
            match self.attempt(files, &mut frames)? {
                Attempt::Committed(end) => return Ok(Some(end)),
                Attempt::TooLarge => return Ok(None),
                Attempt::Frames(count) => frames = self.reserve_frames(frames, count)?,
                Attempt::Again => {}
            }
        }
    }

    /// Slots of a record with all of these; none if no record may have so many.
    fn slots_for(&self, jobs: &[Job<'_>]) -> Option<u32> {
        let need = |job: &Job<'_>| {
            let (mut runs, mut mapped, mut last) = (0, 0, None);
            for (edit, ready) in job.edits.iter().zip(job.ready.iter().flat_map(|ready| &ready.pages)) {
                let flags = match ready {
                    None => continue,
                    Some(Ready::Cached(found)) => found.flags(),
                    Some(Ready::Fresh { flags, .. }) => *flags,
                };
                if flags.contains(FrameState::MAPPED) {
                    continue;
                }
                // What comes behind one another comes into few nodes.
                let goes_on = edit.page > 0 && last == Some(edit.page - 1);
                runs += if goes_on { usize::from(mapped % NODE_PAGES == 0) } else { 2 };
                mapped += 1;
                last = Some(edit.page);
            }
            let pages = job.edits.len();
            let data = pages * BLOCK_SIZE + mapped * BITS_DELTA_BYTES;
            let dropped = job.dropped.unwrap_or(0);
            Need { runs, dropped, data, superseded: pages, ..Need::default() }
        };
        self.meta.slots_of_several(jobs.iter().map(|job| (job.inode.as_ref(), need(job))))
    }

    fn attempt<'p>(&'p self, files: &'p [StagedFile], frames: &mut FrameReservation<'p>) -> Result<Attempt> {
        let (mut ranges, mut jobs) = (Vec::new(), Vec::new());
        for file in files {
            let Some(range) = self.range_of(&file.inode, file.span().0, file.end)? else {
                return Ok(Attempt::Again);
            };
            if file.inode.data().pages.is_truncate_pending() && !is_empty_again(&file.inode) {
                return Ok(Attempt::Again);
            }
            ranges.push(range);
        }
        for file in files {
            let job = self.job_of(file)?;
            if planted::is(Bug::BatchPageHomeEarly) && jobs.is_empty() {
                self.write_early(&job, frames)?;
            }
            jobs.push(job);
        }
        let count = jobs.iter().map(|job| job.edits.len()).sum();
        for job in &mut jobs {
            let (inode, content) = (job.inode, Content::Bytes(&job.bytes));
            match self.make_ready(inode, &job.edits, content, inode.data().size(), frames)? {
                Ok(ready) => job.ready = Some(ready),
                Err(_) => return Ok(Attempt::Frames(count)),
            }
        }
        if !self.write_back.keeps() {
            for job in &mut jobs {
                self.copy_job(job);
                self.show_job(job);
            }
            return Ok(Attempt::Committed(0));
        }
        loop {
            let Some(slots) = self.slots_for(&jobs) else { return Ok(Attempt::TooLarge) };
            let handle = self.meta.begin(slots)?;
            let mutexes = match lock_all(&jobs) {
                Ok(mutexes) => mutexes,
                Err(busy) => {
                    // Whoever has it may wait for credits of others.
                    drop(handle);
                    drop(busy.data().write_back.lock());
                    continue;
                }
            };
            if jobs.iter().any(|job| job.dropped != dropped_of(job.inode)) {
                // It was recorded meanwhile that the file was emptied.
                return Ok(Attempt::Again);
            }
            jobs.iter_mut().for_each(|job| self.remember(job));
            // It is in memory, and may be in no record.
            let _half = BrokenOff::watch(self.meta.store(), "a batch broke off before its record");
            jobs.iter_mut().for_each(|job| self.copy_job(job));
            let joint = jobs.iter().map(|job| Joint {
                inode: job.inode,
                pages: job.before.iter().map(|before| (before.page, before.sectors)).collect(),
                grown: job.grown,
                emptied: job.dropped.is_some(),
            });
            let logged = self.journal.log_several(handle, joint.collect());
            match logged {
                Ok(end) => {
                    jobs.iter().for_each(|job| self.show_job(job));
                    drop(mutexes);
                    return Ok(Attempt::Committed(end));
                }
                Err(e) => {
                    jobs.iter().for_each(|job| self.undo(job));
                    return Err(e);
                }
            }
        }
    }

    /// The range of a file that its part of the batch needs, from the page at `first` to `end`; none if others have changed
    /// the file meanwhile. A truncation may wait to be recorded.
    pub(super) fn range_of<'a>(
        &self,
        inode: &'a Arc<InodeObj>,
        first: u64,
        end: u64,
    ) -> Result<Option<BytesGuard<'a>>> {
        let data = inode.data();
        let now = || {
            let (size, logged) = (data.size(), data.logged_size());
            let grows = end > size.min(logged);
            let start = if grows { first.min(size).min(logged) } else { first };
            page_of(start) * PAGE..if grows { u64::MAX } else { page_after(end) * PAGE }
        };
        let bytes = now();
        let guard = data.write_range(bytes.clone());
        data.check_usable()?;
        let is_enough = bytes.start <= now().start && bytes.end >= now().end;
        Ok(is_enough.then_some(guard))
    }

    /// Has whatever grew the file before recorded before a batch grows it to `end`, by one who has the range.
    pub(super) fn settle_size(&self, inode: &Arc<InodeObj>, end: u64) -> Result<()> {
        let data = inode.data();
        let is_due = end > data.logged_size() && data.size() != data.logged_size();
        if self.write_back.keeps() && is_due && !data.pages.is_truncate_pending() {
            self.write_back.write_pages(inode, 0..PAGES_END, Order::HOME)?;
            self.record_rest(inode, SyncKind::Data)?;
        }
        Ok(())
    }

    /// Which bytes of which pages, by one who has the range.
    fn job_of<'p>(&self, file: &'p StagedFile) -> Result<Job<'p>> {
        let (inode, data) = (&file.inode, file.inode.data());
        self.settle_size(inode, file.end)?;
        // Of a file that does not grow others may change it behind the pages of the batch: it is theirs to record.
        let size = data.size();
        let grown = (file.end > size.min(data.logged_size())).then_some(file.end);
        let mut edits = Vec::with_capacity(file.pages.len() + 1);
        let mut bytes = Vec::with_capacity(file.pages.len() * BLOCK_SIZE);
        if file.end > size && !size.is_multiple_of(PAGE) && !file.pages.contains_key(&page_of(size)) {
            // Beyond the old end lies whatever was there before: zeros come with the size.
            edits.push(Edit { page: page_of(size), within: (size % PAGE) as usize..BLOCK_SIZE, part: 0..0 });
        }
        for (page, staged) in &file.pages {
            let from = bytes.len();
            // Of the page where the file ends, what lies behind that is whatever was there before, and becomes zeros.
            let zeros_follow =
                *page == page_of(size) && !size.is_multiple_of(PAGE) && file.end > (page + 1) * PAGE;
            let within = match staged.ranges.as_slice() {
                [one] if !zeros_follow => {
                    bytes.extend_from_slice(&staged.bytes[one.clone()]);
                    one.clone()
                }
                several => {
                    let mut whole = self.page_now(inode, *page, size)?;
                    for range in several {
                        whole[range.clone()].copy_from_slice(&staged.bytes[range.clone()]);
                    }
                    let valid = size.max(file.end).saturating_sub(page * PAGE).min(PAGE) as usize;
                    bytes.extend_from_slice(&whole[..valid]);
                    0..valid
                }
            };
            edits.push(Edit { page: *page, within, part: from..bytes.len() });
        }
        edits.sort_by_key(|edit| edit.page);
        let dropped = dropped_of(inode);
        Ok(Job { inode, edits, bytes, ready: None, before: Vec::new(), grown, dropped })
    }

    /// What a page of a file of `size` bytes holds, for one who has its range.
    pub(super) fn page_now(&self, inode: &InodeObj, page: u64, size: u64) -> Result<IoBuf> {
        let data = inode.data();
        if let Some(found) = data.index.get(page).and_then(|slot| self.pool.find(slot, Use::No)) {
            let mut bytes = IoBuf::zeroed(BLOCK_SIZE);
            found.read(0, &mut bytes);
            zero_beyond(page, size, &mut bytes);
            return Ok(bytes);
        }
        match self.meta.map(inode, page)? {
            Mapping::Mapped { block, unwritten: false, .. } => self.fetch_page(page, block, size),
            _ => Ok(IoBuf::zeroed(BLOCK_SIZE)),
        }
    }

    /// Keeps what the frames hold that are about to change, and sees what of it changes. The caller has the range and the
    /// write-back mutex.
    fn remember(&self, job: &mut Job<'_>) {
        let Some(ready) = &job.ready else { return };
        let data = job.inode.data();
        let recorded = data.size().min(data.logged_size());
        let is_flushed = self.is_flushed(data) || planted::is(Bug::ChangedOverUnflushed);
        for (edit, ready) in job.edits.iter().zip(&ready.pages) {
            let page = edit.page;
            let (mut content, mut sectors) = (None, None);
            match ready {
                None => continue,
                Some(Ready::Fresh { .. }) => {}
                Some(Ready::Cached(found)) => {
                    let mut bytes = IoBuf::unwiped(BLOCK_SIZE);
                    found.read(0, &mut bytes);
                    let flags = found.flags();
                    let is_dirty = flags.contains(FrameState::DIRTY) && !flags.contains(FrameState::SYNCED);
                    let is_there = !is_dirty || planted::is(Bug::ChangedOverUnsynced);
                    if is_flushed && is_there && (page + 1) * PAGE <= recorded {
                        let new = &job.bytes[edit.part.clone()];
                        sectors = Some(Sectors::that_change(&bytes, edit.within.start, new));
                    }
                    content = Some(bytes);
                }
            }
            job.before.push(Before { page, bytes: content, sectors });
        }
    }

    fn copy_job(&self, job: &mut Job<'_>) {
        if let Some(ready) = job.ready.take() {
            self.copy_in(job.inode, &job.edits, Content::Bytes(&job.bytes), ready);
            job.inode.touch_content();
        }
    }

    /// The size, and what a successor is to know.
    fn show_job(&self, job: &Job<'_>) {
        let data = job.inode.data();
        if let Some(size) = job.grown.filter(|size| *size > data.size()) {
            data.set_size(size);
        }
        self.keep(job.inode);
        self.write_back.queue().add(job.inode);
    }

    /// Nothing was logged: the frames get back what they held. The caller has the range and the write-back mutex.
    fn undo(&self, job: &Job<'_>) {
        let data = job.inode.data();
        for Before { page, bytes, .. } in &job.before {
            let found = data.index.get(*page).and_then(|slot| self.pool.find(slot, Use::No));
            match (bytes, found) {
                (Some(bytes), Some(found)) => {
                    let mut latched = found.latch();
                    latched.write(0, bytes);
                    if found.mark_dirty(&latched, 0..BLOCK_SIZE) {
                        data.pages.dirtied(vec![*page]);
                    }
                }
                (_, found) => {
                    // Whoever throws a page away waits for its pins.
                    drop(found);
                    self.drop_pages(data, *page..*page + 1);
                }
            }
        }
        self.write_back.queue().add(job.inode);
    }

    /// The planted bug: a page goes home before the record.
    #[cold]
    fn write_early<'p>(&'p self, job: &Job<'_>, frames: &mut FrameReservation<'p>) -> Result<()> {
        let Some(edit) = job.edits.first() else { return Ok(()) };
        let content = Content::Bytes(&job.bytes);
        let size = job.inode.data().size();
        if let Ok(ready) = self.make_ready(job.inode, std::slice::from_ref(edit), content, size, frames)? {
            self.copy_in(job.inode, std::slice::from_ref(edit), content, ready);
        }
        self.write_back.write_pages(job.inode, edit.page..edit.page + 1, Order::HOME)
    }
}

/// Whether a file was truncated to nothing, which waits to be recorded, and has got nothing since.
fn is_empty_again(inode: &InodeObj) -> bool {
    let (data, now) = (inode.data(), inode.data().pages.summary());
    now.truncate_pending.is_some() && now.dirty == 0 && data.size() == 0
}

/// Extents that go with the record of such a file.
fn dropped_of(inode: &InodeObj) -> Option<usize> {
    inode.data().pages.summary().truncate_pending.map(|extents| extents.max(1))
}

/// The write-back mutexes of all files: waits for the first, and for no other; the file whose mutex another has.
fn lock_all<'p>(jobs: &[Job<'p>]) -> std::result::Result<Vec<MutexGuard<'p, ()>>, &'p Arc<InodeObj>> {
    let mut mutexes = Vec::with_capacity(jobs.len());
    for job in jobs {
        let mutex = &job.inode.data().write_back;
        let taken = if mutexes.is_empty() { Some(mutex.lock()) } else { mutex.try_lock() };
        mutexes.push(taken.ok_or(job.inode)?);
    }
    Ok(mutexes)
}
