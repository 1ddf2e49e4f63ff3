//! fsync and its kin: by home writes and a flush, or absorbed into the journal.

use crate::cache::Use;
use crate::device::BLOCK_SIZE;
use crate::file::data_path::DataPath;
use crate::file::sync::data_journal::Absorb;
use crate::file::write::{At, Fit, Written};
use crate::file::writeback::{Order, covered_size, key_of};
use crate::format::Position;
use crate::inode::InodeObj;
use crate::journal::Durability;
use crate::meta::{Change, MAX_RUNS, Need};
use crate::pages::{ErrorMark, FileData};
use crate::pages::{PAGE, PAGES_END};
use crate::planted::{self, Bug};
use crate::scoped;
use crate::sync::{Arc, available_cores};
use crate::{Error, Result};

/// Files that make another thread worth its start when all are synced.
const FILES_PER_THREAD: usize = 1024;

/// What a sync must cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncKind {
    /// Data and all attributes.
    All,
    /// Data, and of the attributes those needed to read it.
    Data,
}

/// An fsync whose part in memory and in the journal's front is done.
#[derive(Debug)]
#[must_use = "nothing is promised before the commit, and the end"]
pub struct BegunSync {
    upto: Position,
    written: WrittenHome,
    /// What was written before this server came may be gone, and nobody has been told yet.
    was_lost: bool,
}

impl BegunSync {
    /// Of what has no data: everything below is to be committed, and that is all.
    pub fn of_metadata(upto: Position) -> BegunSync {
        BegunSync { upto, written: WrittenHome::default(), was_lost: false }
    }

    /// Everything below is to be committed.
    pub fn upto(&self) -> Position {
        self.upto
    }
}

/// What was written home, for a flush to cover.
#[derive(Debug, Default)]
struct WrittenHome {
    /// Pages, and the device's count of writes at the time.
    pages: Vec<(u64, u64)>,
    /// Whether more was written before the file came into memory.
    before: bool,
    /// The device's count that a flush must reach.
    last: u64,
}

/// EIO where something may have been lost before this server came.
fn told_of(was_lost: bool) -> Result<()> {
    if was_lost { Err(Error::Errno(libc::EIO)) } else { Ok(()) }
}

impl DataPath {
    /// The first part of an fsync of the file's data, as of the call, and its size: everything that it covers, and every
    /// operation that returned before, is logged or written home. What is to follow are a commit, of everything below
    /// [`BegunSync::upto`], and [`DataPath::end_fsync`].
    pub fn begin_fsync(&self, inode: &Arc<InodeObj>, kind: SyncKind) -> Result<BegunSync> {
        let data = inode.data();
        if !self.write_back.keeps() {
            // A writer is as fast as the device where there is too much for memory.
            self.write_back.queue().await_flusher();
            return Ok(BegunSync::of_metadata(0));
        }
        let entry = self.meta.store().tail();
        self.settle_deferred()?;
        let size = data.size();
        let mut is_home = false;
        loop {
            if self.journal.absorb(inode, Absorb::Synced, None)?.is_none() {
                is_home |= !data.pages.is_synced(&(0..PAGES_END));
                self.write_back.write_pages(inode, 0..PAGES_END, Order::DIRTY)?;
            }
            // Another's write-back of these pages is over once the mutex was free; so is its record.
            drop(data.write_back.lock());
            self.record_rest(inode, kind)?;
            // A writer may have changed the page of the recorded end since it was written; it holds up the size.
            if data.logged_size() >= size.min(data.size()) {
                break;
            }
        }
        if is_home {
            self.syncs_home.add(1);
        }
        let upto = if planted::is(Bug::NoCommit) { 0 } else { entry.max(self.meta.store().tail()) };
        let written = if self.meta.may_lag() && !planted::is(Bug::NoDataFlush) {
            self.leave_to_commit(data)?;
            WrittenHome::default()
        } else {
            self.written(data)
        };
        let was_lost = self.lost_before.as_ref().is_some_and(|lost| lost.is_to_be_told(inode));
        Ok(BegunSync { upto, written, was_lost })
    }

    /// The last part of an fsync: its outcome, with that of the commit. A failure since the `mark` of the open file was
    /// last told is told once.
    pub fn end_fsync(
        &self,
        inode: &Arc<InodeObj>,
        begun: Result<BegunSync>,
        committed: Result<()>,
        mark: &ErrorMark,
    ) -> Result<()> {
        // The commit's own flush has mostly covered the data already; then this returns at once.
        let was_lost = begun.as_ref().is_ok_and(|begun| begun.was_lost);
        let result =
            begun.and_then(|begun| committed.and_then(|()| self.flush_written(inode, begun.written)));
        if result.is_ok() {
            self.write_back.queue().remove_written(std::slice::from_ref(inode));
        }
        let told = inode.data().check(mark);
        result.and(told).and(told_of(was_lost))
    }

    /// An fsync against the end of the process alone: its first part. What that has written home is still to be flushed by
    /// the next.
    pub fn sync_process(&self, inode: &Arc<InodeObj>, mark: &ErrorMark) -> Result<()> {
        let begun = self.begin_fsync(inode, SyncKind::Data);
        let told = inode.data().check(mark);
        begun.and_then(|begun| told_of(begun.was_lost)).and(told)
    }

    /// Records what fsync owes beyond the data: superseded records, size, times.
    pub(in crate::file) fn record_rest(&self, inode: &Arc<InodeObj>, kind: SyncKind) -> Result<()> {
        let data = inode.data();
        let owes = || {
            let stale = data.pages.summary().stale > 0;
            let times = kind == SyncKind::All && inode.has_lazy_times();
            stale || times || data.size() != data.logged_size()
        };
        if !owes() {
            return Ok(());
        }
        let named = MAX_RUNS.min(data.pages.summary().stale + 1);
        let credits = self.meta.credits(inode, Need { runs: named, ..Need::default() })?;
        let _guard = data.write_back.lock();
        let size = data.size();
        let mut change = Change::default();
        let covered = covered_size(data, size);
        if covered != data.logged_size() {
            change.size = Some(covered);
        }
        let mut stale: Vec<u64> = data.pages.stale();
        if stale.len() > named {
            // Too many to name. What they held besides is dirty or home.
            stale.clear();
            self.write_live(inode)?;
            change.supersede.push(key_of(inode.as_ref(), 0, u64::MAX));
        }
        for page in &stale {
            change.supersede.push(key_of(inode.as_ref(), page * PAGE, PAGE));
        }
        let all = stale.is_empty() && !change.supersede.is_empty();
        let early = planted::is(Bug::SupersedeBeforeFlush);
        if !early && (!change.supersede.is_empty() || covered > data.logged_size()) {
            // The record that still holds an older version may go only when the newer one is down; and the page of
            // the recorded end may have been written home with what the new size shows of it.
            self.meta.order_after(data.last_write())?;
        }
        let superseded = !change.supersede.is_empty();
        self.meta.log(credits, inode, change)?;
        data.set_logged_size(covered.max(data.logged_size()));
        inode.settle_kept();
        if superseded {
            if all {
                data.pages.forget_records(&(0..PAGES_END));
            }
            data.pages.forget_records_of(&stale);
        }
        Ok(())
    }

    /// What of a file was written home up to now.
    fn written(&self, data: &FileData) -> WrittenHome {
        let pages = data.pages.unflushed();
        let before = data.was_written_before();
        let last = if before { self.meta.store().device().writes_completed() } else { data.last_write() };
        WrittenHome { pages, before, last }
    }

    /// Whether all of a file that is in place is durable there. The caller has the write-back mutex.
    pub(in crate::file) fn is_flushed(&self, data: &FileData) -> bool {
        let device = self.meta.store().device();
        if data.was_written_before() {
            data.dated(device.writes_completed());
        }
        data.last_write() <= device.writes_flushed()
    }

    /// Leaves the flush of what was written home to the commit that covers the next record, or promise: should it
    /// fail, the journal fails with it.
    pub(in crate::file) fn leave_to_commit(&self, data: &FileData) -> Result<()> {
        let WrittenHome { before, last, .. } = self.written(data);
        self.meta.order_after(last)?;
        if before {
            data.dated(last);
        }
        data.pages.flushed(self.meta.store().device().writes_flushed());
        Ok(())
    }

    /// Flushes what was written home. If that fails it is dirty again, and to be written once more.
    pub(in crate::file) fn flush_data(&self, inode: &Arc<InodeObj>) -> Result<()> {
        self.flush_written(inode, self.written(inode.data()))
    }

    fn flush_written(&self, inode: &Arc<InodeObj>, written: WrittenHome) -> Result<()> {
        let data = inode.data();
        let device = self.meta.store().device();
        let WrittenHome { pages: pending, before, last } = written;
        if pending.is_empty() && !data.pages.is_lost() && !before && device.writes_flushed() >= last {
            return Ok(());
        }
        let result = if planted::is(Bug::NoDataFlush) { Ok(()) } else { device.flush_upto(last) };
        if before && result.is_ok() {
            data.all_flushed();
        }
        let lost = data.pages.flush_ended(pending, result.is_ok(), |page| {
            let found = data.index.get(page).and_then(|slot| self.pool.find(slot, Use::No))?;
            let latched = found.latch();
            Some(found.mark_dirty(&latched, 0..BLOCK_SIZE))
        });
        if result.is_err() {
            self.write_back.note_failure(data);
            self.write_back.queue().add(inode);
        }
        if lost { result.and(Err(Error::Errno(libc::EIO))) } else { result }
    }

    /// Writes what live records hold home; the caller has the write-back mutex.
    fn write_live(&self, inode: &Arc<InodeObj>) -> Result<()> {
        let mut from = 0;
        while let Some(next) = self.write_back.write_locked(inode, from..PAGES_END, Order::RECORDED, None)? {
            from = next;
        }
        Ok(())
    }

    /// Writes a range home, however small it is, and returns once it is on the device (not flushed): O_DIRECT's
    /// way.
    pub fn write_direct(&self, inode: &Arc<InodeObj>, at: At, bytes: &[u8], fit: Fit) -> Result<Written> {
        let written = self.write_fit(inode, at, bytes, fit)?;
        if !self.write_back.keeps() {
            return Ok(written);
        }
        let order = Order { attributes: false, ..Order::HOME };
        let end = written.offset + written.len as u64;
        self.write_back.write_pages(inode, written.offset / PAGE..end.div_ceil(PAGE), order)?;
        Ok(written)
    }

    /// Writes these home and records what they owe; many of them by several threads, each from the first to the last of
    /// its part: while one waits for the device another is at work.
    fn sync_listed(&self, listed: &[Arc<InodeObj>]) -> Result<()> {
        let threads = (listed.len() / FILES_PER_THREAD).min(available_cores()).max(1);
        let one_part = |part: &[Arc<InodeObj>]| {
            self.write_back.write_batches(part, Order::HOME);
            let synced = part.iter().map(|inode| self.sync_one(inode)).fold(Ok(()), Result::and);
            self.write_back.queue().remove_idle(part);
            synced
        };
        if threads == 1 {
            return one_part(listed);
        }
        let parts: Vec<_> = listed.chunks(listed.len().div_ceil(threads)).collect();
        let own = || parts.first().map_or(Ok(()), |own| one_part(own));
        let (others, own) = scoped::beside(parts.len().saturating_sub(1), |n| one_part(parts[n + 1]), own);
        others.into_iter().fold(own, Result::and)
    }

    /// Writes a file home and records what it owes.
    fn sync_one(&self, inode: &Arc<InodeObj>) -> Result<()> {
        let data = inode.data();
        // Another's write-back of its pages is over once the mutex was free; so is its record.
        drop(data.write_back.lock());
        let owes = !data.pages.is_written() || data.size() != data.logged_size();
        if owes || inode.has_lazy_times() {
            self.write_back.write_home(inode)?;
        }
        self.record_rest(inode, SyncKind::All)
    }

    /// Writes everything home that is dirty, has `rest` logged, which the records of written files may have made less,
    /// flushes and commits, against a loss of power: syncfs and unmount.
    pub fn sync_all(&self, rest: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.write_back.keeps() {
            self.write_back.queue().await_flusher();
            return rest();
        }
        let entry = self.meta.store().tail();
        self.settle_deferred()?;
        let mut result = self.sync_listed(&self.write_back.queue().files());
        let files: Vec<_> = self.journal.files();
        for inode in &files {
            result = result.and(self.record_rest(inode, SyncKind::Data));
        }
        result.and(rest()).and(self.meta.store().device().flush())?;
        let store = self.meta.store();
        store.commit_upto(entry.max(store.tail()), Durability::Power)
    }
}
