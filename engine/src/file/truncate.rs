//! Changing a file's size, and the rule that replacing content leaves the old or the new.
//!
//! Truncation to nothing of a file that has data is *deferred*: in memory the file is empty at once, but the
//! record that drops the old blocks is logged with the new content: little of that is in the record itself
//! (`sync::data_journal`), more is down before. What of the old content the journal alone has is kept until then (`sync::old_content`). Whoever
//! commits what lies before settles it first, so a truncation that returned before an fsync began is in it. A
//! file of so many extents that the ring has no record for all of them is truncated at once.

use crate::Result;
use crate::cache::FrameState;
use crate::file::data_path::{DataPath, check_size};
use crate::file::sync::data_journal::{Absorb, DataJournal};
use crate::file::sync::fsync::SyncKind;
use crate::file::write::edits::{Content, Edit};
use crate::file::write::reservation::FrameReservation;
use crate::file::writeback::{Order, key_of};
use crate::inode::InodeObj;
use crate::meta::{Change, MAX_RUNS, Mapping, Need};
use crate::pages::{FileData, Marks};
use crate::pages::{PAGE, PAGES_END, page_after, page_of};
use crate::planted::{self, Bug};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use std::ops::Range;

/// What a truncation to nothing drops.
#[derive(Debug, Clone, Copy)]
pub(in crate::file) struct Dropped {
    /// Extents, at the most.
    pub extents: usize,
    /// Blocks of content that are not among those of a truncation which waits already.
    pub blocks: u64,
}

impl DataJournal {
    /// See [`DataPath::settle_deferred`].
    pub fn settle_deferred(&self) -> Result<()> {
        if !self.write_back.pending().any() {
            return Ok(());
        }
        let files: Vec<_> = self.write_back.pending().files();
        let mut result = Ok(());
        for inode in files {
            result = result.and(self.settle(&inode));
        }
        result
    }

    /// Records one file's truncation, if it waits. A thread that does so may have ranges in hand, and neither credits nor
    /// a write-back mutex.
    fn settle(&self, inode: &Arc<InodeObj>) -> Result<()> {
        while inode.data().pages.is_truncate_pending() {
            if self.absorb(inode, Absorb::Replacing, None)?.is_none() {
                self.write_back.write_home(inode)?;
            }
        }
        Ok(())
    }
}

impl DataPath {
    /// Sets the size. What is cut off is gone; what is added reads as zeros.
    pub fn truncate(&self, inode: &Arc<InodeObj>, size: u64) -> Result<()> {
        self.truncate_keeping_times(inode, size)?;
        inode.touch_content();
        self.keep(inode);
        Ok(())
    }

    /// The same for one who changes the times by himself.
    pub fn truncate_keeping_times(&self, inode: &Arc<InodeObj>, size: u64) -> Result<()> {
        check_size(size)?;
        let data = inode.data();
        if size > data.size() {
            self.grow(inode, size)
        } else if size == 0 && data.size() > 0 && self.write_back.keeps() && !planted::is(Bug::EmptiedAtOnce)
        {
            self.empty(inode)
        } else {
            self.cut(inode, size)
        }
    }

    /// Truncation to nothing, recorded later.
    fn empty(&self, inode: &Arc<InodeObj>) -> Result<()> {
        let data = inode.data();
        let (_guards, dropped) = loop {
            let guards = (data.write_range(0..u64::MAX), data.write_back.lock());
            data.check_usable()?;
            let Some(dropped) = self.droppable(inode)? else {
                drop(guards);
                return self.cut(inode, 0);
            };
            // What is absorbed must survive until it is replaced, and its records may be lost meanwhile.
            if self.journal.keep_old_content(inode)? {
                break (guards, dropped);
            }
            drop(guards);
            self.write_back.write_pages(inode, 0..PAGES_END, Order::RECORDED)?;
        };
        data.set_size(0);
        data.pages.begin_truncate(dropped.extents);
        data.set_marks(Marks::Parts);
        // Before the frames go: a successor would take what is mapped for what was written.
        self.keep_truncate(inode);
        self.drop_pages(data, 0..PAGES_END);
        self.write_back.pending().add(inode, dropped.blocks);
        self.write_back.queue().add_emptied(inode);
        Ok(())
    }

    /// The old content, if the record which drops it can hold new extents too: only a file in very many
    /// extents, or a tiny ring, says no. One that was truncated before has as many as it had then.
    pub(in crate::file) fn droppable(&self, inode: &Arc<InodeObj>) -> Result<Option<Dropped>> {
        if let Some(extents) = inode.data().pages.summary().truncate_pending {
            return Ok(Some(Dropped { extents, blocks: 0 }));
        }
        let mut dropped = Dropped { extents: 1, blocks: 0 };
        let mut page = 0;
        while page < PAGES_END {
            let mapping = self.meta.map(inode, page)?;
            page += mapping.len();
            if matches!(mapping, Mapping::Mapped { .. }) {
                dropped.extents += 1;
                dropped.blocks += mapping.len();
            }
        }
        let need = Need { runs: MAX_RUNS, dropped: dropped.extents, ..Need::default() };
        Ok((self.meta.fitting(inode, need) > 0).then_some(dropped))
    }

    /// Truncation to less, recorded at once.
    pub(in crate::file) fn cut(&self, inode: &Arc<InodeObj>, size: u64) -> Result<()> {
        self.cut_telling(inode, size, |inode| self.keep(inode))
    }

    /// The same of a file whose slot a predecessor has left, and this process has not taken over yet.
    pub(in crate::file) fn cut_untold(&self, inode: &Arc<InodeObj>, size: u64) -> Result<()> {
        self.cut_telling(inode, size, |_| ())
    }

    fn cut_telling(&self, inode: &Arc<InodeObj>, size: u64, keep: impl Fn(&InodeObj)) -> Result<()> {
        let data = inode.data();
        let mut frames = FrameReservation::default();
        loop {
            let guard = data.write_range(page_of(size) * PAGE..u64::MAX);
            data.check_usable()?;
            let old = data.size();
            if old < size {
                drop(guard);
                return self.grow(inode, size);
            }
            let pages = page_after(size)..PAGES_END;
            let tail = (pages.start * PAGE).min(old).saturating_sub(size) as usize;
            let content = Content::Zeros(tail);
            let edits: Vec<_> = (tail > 0).then(|| Edit::within_page(size, tail)).into_iter().collect();
            let ready = match self.make_ready(inode, &edits, content, old, &mut frames)? {
                Ok(ready) => ready,
                Err(count) => {
                    drop(guard);
                    frames = self.reserve_frames(frames, count)?;
                    continue;
                }
            };
            let _removing = data.removing.lock();
            let credits = self.meta.credits(inode, Need { runs: 1, ..Need::default() })?;
            let write_back = data.write_back.lock();
            data.set_size(size);
            // Before the record: a successor cuts what is longer than this.
            keep(inode);
            inode.settle_kept();
            // The zeroed tail is ordered data: while it is dirty the recorded size cannot grow past it.
            let mut is_cut = false;
            let cut_off = || {
                is_cut = true;
                self.copy_in(inode, &edits, content, ready);
                self.drop_pages(data, pages.clone());
            };
            if data.pages.is_truncate_pending() {
                cut_off();
                return Ok(());
            }
            let mut change = Change { remove: Some(pages.clone()), ..Change::default() };
            let logged = data.logged_size().min(size);
            change.size = (logged != data.logged_size()).then_some(logged);
            if data.pages.has_records(page_of(size)..PAGES_END) {
                change.supersede.push(key_of(inode.as_ref(), size, u64::MAX - size));
            }
            let left = match self.meta.log_after(credits, inode, change, cut_off) {
                Ok(logged) => logged.left,
                Err(e) => {
                    data.set_size(old);
                    // Its slot may have gone, as no longer needed.
                    keep(inode);
                    inode.settle_kept();
                    if is_cut {
                        self.give_up(data, &pages);
                    }
                    return Err(e);
                }
            };
            data.set_logged_size(logged);
            inode.settle_kept();
            data.pages.forget_records(&pages);
            drop(write_back);
            return left.map_or(Ok(()), |left| self.meta.free_rest(inode, left));
        }
    }

    /// Pages are thrown away, and the journal has failed before it had the record that says so: what is mapped there may be
    /// older than what an fsync has answered for, which only the next mount brings back. Nobody reads the file until then.
    /// The caller has the range and the write-back mutex.
    pub(in crate::file) fn give_up(&self, data: &FileData, pages: &Range<u64>) {
        data.poison();
        data.pages.forget_records(pages);
    }

    /// Throws cached pages away. The caller has their range and the write-back mutex.
    pub(in crate::file) fn drop_pages(&self, data: &FileData, pages: Range<u64>) {
        let mut reserved = 0;
        data.index.each(pages.clone(), &mut |_, slot| {
            if let Some(removed) = self.pool.remove(slot)
                && removed.flags.contains(FrameState::RESERVED)
            {
                reserved += 1;
            }
        });
        let nodes = data.pages.remove(&pages, reserved);
        if reserved > 0 {
            self.meta.unreserve(reserved, nodes);
        }
    }

    /// Records every truncation that waits for new content, with what there is of it.
    pub fn settle_deferred(&self) -> Result<()> {
        self.journal.settle_deferred()
    }

    /// Blocks that such truncations hold: not free yet, but free before a full image says so.
    pub fn held_by_truncations(&self) -> u64 {
        self.write_back.pending().blocks()
    }

    /// Records one file's truncation, if it waits.
    pub(in crate::file) fn settle(&self, inode: &Arc<InodeObj>) -> Result<()> {
        self.journal.settle(inode)
    }

    /// Before a rename puts this file in another's place: its content and size are down, or in a record that comes before.
    /// Little is absorbed, so that nobody waits for a device.
    pub fn settle_for_rename(&self, inode: &Arc<InodeObj>) -> Result<()> {
        if !self.write_back.keeps() || planted::is(Bug::RenameNotSettled) {
            return Ok(());
        }
        self.settle(inode)?;
        if self.journal.absorb(inode, Absorb::Replacing, None)?.is_none() {
            self.write_back.write_pages(inode, 0..PAGES_END, Order::DIRTY)?;
        }
        // Another's write-back of these pages is over once the mutex was free.
        drop(inode.data().write_back.lock());
        self.record_rest(inode, SyncKind::Data)?;
        // The rename is recorded after this.
        if self.meta.may_lag() { self.leave_to_commit(inode.data()) } else { self.flush_data(inode) }
    }

    /// Somebody opens a file for writing.
    pub fn opened(&self, inode: &Arc<InodeObj>) {
        // Relaxed: whoever opens a file is not yet closing it.
        inode.writers().fetch_add(1, Ordering::Relaxed);
    }

    /// A file that was [`opened`](Self::opened) is closed. If it was rewritten from nothing and nobody else writes it,
    /// its content is recorded: at once if the journal takes it, else by the background; but not that of a later generation, which may only have begun.
    pub fn closed(&self, inode: &Arc<InodeObj>) {
        // AcqRel: the last to close sees what those wrote who closed before.
        if inode.writers().fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let rewritten = inode.made_data().and_then(|data| {
            let pages = data.pages.summary();
            // Relaxed: a generation that has begun by then was begun by one who counted itself in before it took the
            // lock that the summary takes.
            let is_last = inode.writers().load(Ordering::Relaxed) == 0;
            (pages.truncate_pending.is_some() && is_last).then_some(pages.generation)
        });
        let Some(generation) = rewritten else { return };
        match self.journal.absorb(inode, Absorb::Replacing, Some(generation)) {
            Ok(Some(_)) => self.write_back.queue().remove_written(std::slice::from_ref(inode)),
            // A failure is met again, and told.
            Ok(None) | Err(_) => self.write_back.queue().expedite(inode, generation),
        }
    }

    /// The file is gone: nothing of it is written any more. Its blocks may be freed afterwards.
    pub fn discard(&self, inode: &Arc<InodeObj>) {
        let _quiet = inode.made_data().map(|data| self.quiet(data));
        self.discard_quiet(inode);
    }

    /// Until it is dropped nobody reads the file, writes it, or writes it back.
    fn quiet<'d>(&self, data: &'d FileData) -> impl Sized + use<'d> {
        (data.write_range(0..u64::MAX), data.write_back.lock())
    }

    /// The same if nobody does so now. Where nobody has asked for the file's data there is nothing to lock:
    /// [`Quiet::lasts`] says whether that is still so.
    pub(crate) fn try_quiet<'d>(&self, inode: &'d InodeObj) -> Option<Quiet<impl Sized + use<'d>>> {
        let lock =
            |data: &'d FileData| Some((data.try_write_range(0..u64::MAX)?, data.write_back.try_lock()?));
        match inode.made_data() {
            Some(data) => lock(data).map(|held| Quiet(Some(held))),
            None => Some(Quiet(None)),
        }
    }

    /// [`DataPath::discard`] by a caller for whom the file is quiet.
    pub(crate) fn discard_quiet(&self, inode: &Arc<InodeObj>) {
        let Some(data) = inode.made_data() else { return };
        self.drop_pages(data, 0..PAGES_END);
        data.set_size(0);
        data.set_logged_size(0);
        data.pages.discard();
        inode.forget_kept();
        self.write_back.pending().remove(inode);
        self.journal.forget(inode);
        self.write_back.queue().remove_quiet(data);
    }
}

/// A file that nobody reads, writes or writes back.
pub(crate) struct Quiet<G>(Option<G>);

impl<G> Quiet<G> {
    /// Whether the file stays so. To be asked once nobody can open it any more: who opened it meanwhile, and has closed
    /// it again, may have left data behind.
    pub(crate) fn lasts(&self, inode: &InodeObj) -> bool {
        self.0.is_some() || inode.made_data().is_none()
    }
}
