//! Dirty pages go home: picked, given blocks, copied under the latch, written many at a time, flushed where a
//! record depends on it, recorded. How they are arranged and written is the business of `place` and `submit`.

pub(in crate::file) mod batch;
pub(in crate::file) mod bounce;
mod flusher;
pub(in crate::file) mod place;
pub(in crate::file) mod preallocation;
pub(in crate::file) mod queue;
mod select;
pub(in crate::file) mod submit;

use crate::Result;
use crate::cache::FrameState;
use crate::device::Cause;
use crate::file::data_path::DataPath;
use crate::file::sync::data_journal::Absorb;
use crate::file::writeback::place::{Piece, Place, change_of};
use crate::file::writeback::select::{SPARE_RUNS, need_of, select};
use crate::format::{DataKey, U32, U64};
use crate::inode::InodeObj;
use crate::meta::{Blocks, Need, ROOM_CHANGED, Room};
use crate::pages::FileData;
use crate::pages::{PAGE, PAGES_END, page_after, page_of};
use crate::pages::{Take, UnderWriteBack, WriteBackEnd};
use crate::planted::{self, Bug, Spot};
use crate::sync::Arc;
use std::collections::BTreeSet;
use std::ops::Range;

/// Pages of one batch with a small cache, or of small files.
pub(in crate::file) const BATCH_PAGES: usize = 1024;
/// The same with a large cache: at the end of each batch the device runs dry.
const LARGEST_BATCH_PAGES: usize = 4096;

/// Credits, and what they were taken for.
pub(in crate::file) struct Credits<'a> {
    room: Room<'a>,
    need: Need,
}

/// Pages that were picked and have places, on their way home under their file's write-back mutex.
pub(in crate::file) struct Staged<'p> {
    pub inode: &'p Arc<InodeObj>,
    order: Order,
    room: Option<Credits<'p>>,
    size: u64,
    doomed: bool,
    picked: UnderWriteBack<'p>,
    /// Picked pages that found no room in the record; they are dirty again.
    left: Vec<u64>,
    tail_waits: bool,
    pub pieces: Vec<Piece<'p>>,
    /// The page from which to go on.
    next: Option<u64>,
    result: Result<()>,
}

/// What a write-back is to do.
#[derive(Debug, Clone, Copy)]
pub(in crate::file) struct Order {
    pub take: Take,
    pub cause: Cause,
    /// Record size and times even if nothing else is.
    pub attributes: bool,
}

impl Order {
    /// All of a file, because it is time, or everything is to be synced.
    pub const HOME: Order = Order { take: Take::All, cause: Cause::DataWriteBack, attributes: true };
    /// What an fsync, or a rename, must find down.
    pub const DIRTY: Order = Order { take: Take::Dirty, cause: Cause::DataWriteBack, attributes: false };
    /// What live records hold, before they are lost.
    pub const RECORDED: Order =
        Order { take: Take::Recorded, cause: Cause::DataWriteBack, attributes: false };
    /// Some of a file, because its frames are needed.
    pub const PRESSURE: Order = Order { take: Take::All, cause: Cause::Eviction, attributes: false };
}

impl DataPath {
    /// Writes all dirty pages of a range of pages home, as they were at some moment after the call began.
    pub(in crate::file) fn write_pages(
        &self,
        inode: &Arc<InodeObj>,
        pages: Range<u64>,
        order: Order,
    ) -> Result<()> {
        let mut from = pages.start;
        while let Some(next) = self.write_batch(inode, from..pages.end, order, None)? {
            from = next;
        }
        Ok(())
    }

    /// All of a file that was rewritten from nothing, unless it has been emptied again; or the journal takes it, and it
    /// goes home later.
    pub(in crate::file) fn write_rewritten(&self, inode: &Arc<InodeObj>, rewriting: u64) -> Result<()> {
        let is_pending = inode.data().pages.is_truncate_pending();
        if is_pending && self.absorb(inode, Absorb::Replacing, Some(rewriting))?.is_some() {
            return Ok(());
        }
        let mut from = 0;
        while let Some(next) = self.write_batch(inode, from..PAGES_END, Order::HOME, Some(rewriting))? {
            from = next;
        }
        Ok(())
    }

    /// All of a file, because it is time.
    pub(in crate::file) fn write_home(&self, inode: &Arc<InodeObj>) -> Result<()> {
        self.write_pages(inode, 0..PAGES_END, Order::HOME)
    }

    /// A batch of a file, because its frames are needed: from where the last one ended, so that every page is
    /// left alone for as long as all others.
    pub(in crate::file) fn write_pressed(&self, inode: &Arc<InodeObj>) -> Result<()> {
        let from = inode.data().pages.cursor();
        let next = self.write_batch(inode, from..PAGES_END, Order::PRESSURE, None)?;
        inode.data().pages.set_cursor(next.unwrap_or(0));
        Ok(())
    }

    /// Pages of one batch; a truncated and rewritten file goes in one, however large.
    fn batch_pages(&self) -> usize {
        (self.pool.len() / 32).clamp(BATCH_PAGES, LARGEST_BATCH_PAGES)
    }

    /// One batch; gives the page from which to go on. With `rewriting` only if the file was emptied so many times.
    fn write_batch(
        &self,
        inode: &Arc<InodeObj>,
        pages: Range<u64>,
        order: Order,
        rewriting: Option<u64>,
    ) -> Result<Option<u64>> {
        let data = inode.data();
        let room = match order.take {
            Take::Recorded => None,
            Take::Dirty if data.pages.is_synced(&pages) => return Ok(None),
            _ => self.room(inode, true)?,
        };
        // Whoever empties the file holds it too.
        let _guard = data.write_back.lock();
        if rewriting.is_some_and(|rewriting| rewriting != data.pages.summary().generation) {
            return Ok(None);
        }
        let result = self.write_locked(inode, pages, order, room);
        if result.is_err() {
            self.note_failure(data);
        }
        result
    }

    /// Notes that something of a file did not go home: each open file is told once.
    pub(in crate::file) fn note_failure(&self, data: &FileData) {
        data.pages.note_failure();
        self.counters.failures.add(1);
    }

    /// Room for a record about the file's dirty pages; `None` if it would have to wait, and is not to.
    pub(in crate::file) fn room(&self, inode: &InodeObj, waits: bool) -> Result<Option<Credits<'_>>> {
        let need = need_of(inode.data());
        let runs = self.meta.fitting(inode, need).max(1);
        let need = Need { runs, ..need };
        let room = match waits {
            true => Some(self.meta.credits(inode, need)?),
            false => self.meta.try_credits(inode, need)?,
        };
        Ok(room.map(|room| Credits { room, need }))
    }

    /// A batch, under the write-back mutex.
    pub(in crate::file) fn write_locked<'p>(
        &'p self,
        inode: &'p Arc<InodeObj>,
        pages: Range<u64>,
        order: Order,
        room: Option<Credits<'p>>,
    ) -> Result<Option<u64>> {
        let from = pages.start;
        let Some(mut staged) = self.stage(inode, pages, order, room, None) else {
            return Ok(Some(from));
        };
        self.write_pieces(&mut staged.pieces.iter_mut().collect::<Vec<_>>(), order.cause);
        planted::panic_at(Spot::Written);
        self.record(staged, self.meta.device().writes_completed())
    }

    /// Picks pages and gives them places, new ones from `goal` on if that can be. The caller holds the write-back
    /// mutex until it has had them recorded. `None`: the room is for something else, because a truncation, or its
    /// record, came between.
    pub(in crate::file) fn stage<'p>(
        &'p self,
        inode: &'p Arc<InodeObj>,
        pages: Range<u64>,
        order: Order,
        room: Option<Credits<'p>>,
        goal: Option<u64>,
    ) -> Option<Staged<'p>> {
        let data = inode.data();
        // Before the pages are picked: every dirty page below this size is in the sets by now.
        let size = data.size();
        let doomed = data.pages.is_truncate_pending();
        if room.as_ref().is_some_and(|room| doomed != (room.need.dropped > 0)) {
            return None;
        }
        let most_runs = room.as_ref().map_or(1, |room| room.need.runs.saturating_sub(SPARE_RUNS).max(1));
        let logged = if doomed { 0 } else { data.logged_size() };
        // The record that drops the old content holds all of the new, whatever part was asked for.
        let pages = if doomed { 0..PAGES_END } else { pages };
        let most = if doomed { usize::MAX } else { self.batch_pages() };
        let (picked, tail_waits) = select(data, pages, (size, logged), order.take, most);
        let mut next = (picked.len() >= most).then(|| picked.last().map_or(0, |p| p + 1));

        planted::panic_at(Spot::Picked);
        let mut result = Ok(());
        let arranged = self.arrange(inode, &picked, most_runs, goal);
        let (pieces, left) = (arranged.pieces, arranged.left);
        if let Some(e) = arranged.error {
            result = Err(e);
        }
        picked.put_back(&arranged.stays);
        if let Some(&first) = left.first() {
            picked.put_back(&left);
            if result.is_ok() {
                next = Some(first);
            }
        }
        Some(Staged { inode, order, room, size, doomed, picked, left, tail_waits, pieces, next, result })
    }

    /// Records what was written, once it is flushed, and lets go of the pages. `completed` is the device's count of
    /// writes after the last of them. Gives the page from which to go on.
    pub(in crate::file) fn record(&self, staged: Staged<'_>, completed: u64) -> Result<Option<u64>> {
        let Staged {
            inode,
            order,
            room,
            size,
            doomed,
            picked,
            left,
            tail_waits,
            mut pieces,
            mut next,
            mut result,
        } = staged;
        let data = inode.data();
        let logged = if doomed { 0 } else { data.logged_size() };
        data.wrote(completed);
        let arrived = pieces.iter().filter(|piece| piece.result.is_ok());
        self.counters.written.add(arrived.map(|piece| piece.frames.len() as u64).sum());

        let bad: BTreeSet<u64> = pieces
            .iter()
            .filter(|piece| piece.result.is_err())
            .flat_map(|piece| piece.page..piece.page + piece.frames.len() as u64)
            .collect();
        for piece in &pieces {
            if let Err(e) = &piece.result
                && result.is_ok()
            {
                result = Err(e.clone());
            }
        }
        let tail = page_of(logged);
        let tail_is_down = logged % PAGE == 0
            || if picked.contains(&tail) {
                !bad.contains(&tail) && !left.contains(&tail)
            } else {
                !tail_waits
            };
        if !tail_is_down && let Err(e) = &result {
            // Nothing may be mapped as written beyond the recorded size, which cannot grow.
            for piece in pieces.iter_mut().filter(|piece| piece.place != Place::Mapped) {
                piece.result = Err(e.clone());
            }
        }
        let mut change = change_of(&pieces);
        let mut down = if tail_is_down { size.max(logged) } else { logged };
        if doomed && let Some(first) = left.first() {
            // More pieces than one record has room for: the file grows by what follows.
            down = down.min(first * PAGE);
        }
        let is_down = |piece: &&Piece<'_>| piece.result.is_ok();
        let end = pieces.iter().filter(is_down).map(|piece| piece.page + piece.frames.len() as u64).max();
        if !doomed && data.pages.has_dirty(page_of(logged)..page_after(size)) {
            // Dirty pages stay behind: the size goes no further than what is down, lest zeros stand for them.
            down = down.min(logged.max(end.map_or(0, |end| end * PAGE)));
        }
        change.size = (down != data.logged_size()).then_some(down);
        if doomed {
            change.remove = Some(0..PAGES_END);
            change.supersede.push(key_of(inode.as_ref(), 0, u64::MAX));
        }
        let wants_times = order.attributes && inode.has_lazy_times() && result.is_ok();
        if doomed && let Err(e) = &result {
            // The old content stays until all of the new is down.
            for piece in &mut pieces {
                piece.result = Err(e.clone());
            }
        } else if (!change.is_empty() || wants_times)
            && let Some(room) = room
        {
            // An emptied file of which nothing was written shows nothing that might not be down.
            let early = doomed && pieces.is_empty() || planted::is(Bug::MappedBeforeFlush);
            let flushed = if early { Ok(()) } else { self.meta.order_after(completed) };
            let recorded = flushed.and_then(|()| self.meta.log(room.room, inode, change));
            match recorded {
                Ok(_) => {
                    data.set_logged_size(down);
                    if doomed {
                        data.pages.truncate_recorded();
                        self.undefer(inode.nid());
                    }
                    inode.settle_kept();
                }
                Err(e) => {
                    for piece in &mut pieces {
                        if piece.place != Place::Mapped && piece.result.is_ok() {
                            piece.result = Err(e.clone());
                        }
                    }
                    if e == ROOM_CHANGED {
                        next = picked.first().copied();
                    } else {
                        result = Err(e);
                    }
                }
            }
        }
        planted::panic_at(Spot::Recorded);
        self.finish(picked, pieces, completed);
        result.map(|()| next)
    }

    /// Lets go of the pages, as clean or as dirty again.
    fn finish(&self, picked: UnderWriteBack<'_>, pieces: Vec<Piece<'_>>, completed: u64) {
        picked.finish(self.meta.device().writes_flushed(), |end| {
            for piece in pieces {
                self.finish_piece(end, piece, completed);
            }
        });
    }

    fn finish_piece(&self, end: &mut WriteBackEnd<'_>, piece: Piece<'_>, completed: u64) {
        let pages = piece.page..piece.page + piece.frames.len() as u64;
        let count = pages.end - pages.start;
        if piece.result.is_err() {
            for (page, found) in pages.zip(&piece.frames) {
                found.fail_write_back();
                end.failed(page);
            }
            if piece.place == Place::New {
                self.meta.release(Blocks { start: piece.block, len: count as u32 });
            }
            return;
        }
        let mut unwanted = 0;
        for ((page, found), unsynced) in pages.zip(&piece.frames).zip(&piece.unsynced) {
            if piece.place == Place::Unwritten && found.flags().contains(FrameState::RESERVED) {
                unwanted += 1;
            }
            end.written(page, *unsynced, (piece.place == Place::Mapped).then_some(completed));
            found.end_write_back();
        }
        match piece.place {
            Place::New => end.unreserve(count),
            Place::Unwritten if unwanted > 0 => {
                end.unreserve(unwanted);
                self.meta.unreserve(unwanted);
            }
            _ => {}
        }
    }
}

/// The size that may be recorded while nothing is in flight: the whole, unless the page of the recorded end,
/// whose tail may hold anything, is still dirty.
pub(in crate::file) fn covered_size(data: &FileData, size: u64) -> u64 {
    let logged = data.logged_size();
    let tail = (!logged.is_multiple_of(PAGE)).then_some(page_of(logged));
    if data.pages.holds_up_size(tail) { logged } else { size }
}

/// The key of absorbed bytes.
pub(in crate::file) fn key_of(inode: &InodeObj, offset: u64, len: u64) -> DataKey {
    DataKey {
        nid: U64::new(inode.nid()),
        offset: U64::new(offset),
        len: U64::new(len),
        generation: U32::new(inode.generation()),
        reserved: U32::ZERO,
    }
}
