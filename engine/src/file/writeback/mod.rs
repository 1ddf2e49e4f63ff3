//! Dirty pages go home: selected, given blocks, copied under the latch, written many at a time, flushed where a
//! record depends on it, recorded. How they are arranged and written is the business of `place` and `submit`.

mod batch;
mod bounce;
pub(in crate::file) mod flusher;
pub(in crate::file) mod pending;
mod place;
pub(in crate::file) mod preallocation;
pub(in crate::file) mod queue;
mod record;
mod select;
mod submit;
pub(in crate::file) mod throttle;
mod whole_runs;

use crate::Result;
use crate::cache::FramePool;
use crate::device::Cause;
use crate::format::{DataKey, U32, U64};
use crate::inode::InodeObj;
use crate::meta::{Meta, Need, Room};
use crate::pages::{FileData, Marks, PAGE, PAGES_END, Take, UnderWriteBack, page_after, page_of};
use crate::planted::{self, Spot};
use crate::store::Profile;
use crate::sync::{Arc, LaneCounter, Rounds};
use crate::takeover::Takeover;
use bounce::BounceBuffers;
use pending::PendingTruncations;
use place::{Place, WriteExtent};
use queue::WriteBackQueue;
use select::{SPARE_RUNS, need_of, select};
use std::ops::Range;
use throttle::{Levels, Throttle};
use whole_runs::WholeRuns;

/// Pages of one batch with a small cache, or of small files.
pub(in crate::file) const BATCH_PAGES: usize = 1024;
/// The same with a large cache: at the end of each batch the device runs dry.
const LARGEST_BATCH_PAGES: usize = 4096;

/// Credits, and what they were taken for.
pub(in crate::file) struct Credits<'a> {
    room: Room<'a>,
    need: Need,
}

/// Pages that were selected and have places, on their way home under their file's write-back mutex.
pub(in crate::file) struct PreparedWrite<'p> {
    pub inode: &'p Arc<InodeObj>,
    order: Order,
    room: Option<Credits<'p>>,
    size: u64,
    truncates: bool,
    selected: UnderWriteBack<'p>,
    /// Selected pages that found no room in the record; they are dirty again.
    left: Vec<u64>,
    tail_waits: bool,
    pub extents: Vec<WriteExtent<'p>>,
    /// Of what becomes written, what does so as a whole.
    whole: WholeRuns,
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

/// Writes dirty pages home, and knows which files have some.
#[derive(Debug)]
pub(in crate::file) struct WriteBack {
    meta: Arc<Meta>,
    pool: Arc<FramePool>,
    queue: WriteBackQueue,
    throttle: Throttle,
    pending: PendingTruncations,
    bounce: BounceBuffers,
    /// Of [`WriteBack::need_less`].
    promise_rounds: Rounds,
    /// Memory that a successor of this process takes over, if there is any.
    takeover: Option<Arc<Takeover>>,
    /// Pages written home.
    written: LaneCounter,
    /// Writes that failed on the device.
    failures: LaneCounter,
}

impl WriteBack {
    /// Of pages in that pool: with so many pages for copies, and so many files that may wait.
    pub fn new(
        meta: Arc<Meta>,
        pool: Arc<FramePool>,
        takeover: Option<Arc<Takeover>>,
        bounce: usize,
        files: usize,
    ) -> WriteBack {
        WriteBack {
            queue: WriteBackQueue::new(Arc::clone(&meta), Arc::clone(&pool), files),
            throttle: Throttle::default(),
            pending: PendingTruncations::default(),
            bounce: BounceBuffers::new(bounce),
            promise_rounds: Rounds::default(),
            takeover,
            written: LaneCounter::default(),
            failures: LaneCounter::default(),
            meta,
            pool,
        }
    }

    /// The files with something to write.
    pub fn queue(&self) -> &WriteBackQueue {
        &self.queue
    }

    /// What slows writers down.
    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    /// Files whose truncation to nothing is not yet recorded.
    pub fn pending(&self) -> &PendingTruncations {
        &self.pending
    }

    /// The frames of the pages.
    pub fn pool(&self) -> &Arc<FramePool> {
        &self.pool
    }

    /// What outlives the mount.
    pub fn profile(&self) -> Profile {
        self.meta.store().profile()
    }

    /// Whether anything is to be found after the mount.
    pub fn keeps(&self) -> bool {
        self.profile().keeps()
    }

    /// Levels of dirty pages.
    pub fn levels(&self) -> Levels {
        Levels::of(self.profile(), self.pool.len())
    }

    /// Pages written home so far, and let go: those that are dirty again, for no record names them, are none. Who waits for
    /// frames takes it for what there is to wait for.
    pub fn written(&self) -> u64 {
        self.written.get()
    }

    /// Pages were written home in another way.
    pub fn note_written(&self, pages: u64) {
        self.written.add(pages);
    }

    /// Writes that have failed so far.
    pub fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// Writes all dirty pages of a range of pages home, as they were at some moment after the call began.
    pub fn write_pages(&self, inode: &Arc<InodeObj>, pages: Range<u64>, order: Order) -> Result<()> {
        self.write_generation(inode, pages, order, None)
    }

    /// The same; with a generation, unless the file has been emptied since that began.
    pub fn write_generation(
        &self,
        inode: &Arc<InodeObj>,
        pages: Range<u64>,
        order: Order,
        generation: Option<u64>,
    ) -> Result<()> {
        let mut from = pages.start;
        while let Some(next) = self.write_batch(inode, from..pages.end, order, generation)? {
            from = next;
        }
        Ok(())
    }

    /// Writes home what waits with more extent blocks promised than it will need, so that others have them. Of those who
    /// want that at a time one does it.
    pub fn need_less(&self) {
        let Some(round) = self.promise_rounds.begin() else { return };
        let files = self.queue.files();
        for inode in files.iter().filter(|inode| inode.data().pages.reserved() > 0) {
            // Whoever syncs that file is told.
            if let Err(e) = self.write_home(inode) {
                tracing::debug!("what waits is written for the sake of room: {e}");
            }
        }
        round.end();
    }

    /// All of a file, because it is time.
    pub fn write_home(&self, inode: &Arc<InodeObj>) -> Result<()> {
        self.write_pages(inode, 0..PAGES_END, Order::HOME)
    }

    /// A batch of a file, because its frames are needed: from where the last one ended, so that every page is
    /// left alone for as long as all others.
    pub fn write_under_pressure(&self, inode: &Arc<InodeObj>) -> Result<()> {
        let from = inode.data().pages.cursor();
        let next = self.write_batch(inode, from..PAGES_END, Order::PRESSURE, None)?;
        inode.data().pages.set_cursor(next.unwrap_or(0));
        Ok(())
    }

    /// Pages of one batch; a truncated and rewritten file goes in one, however large.
    fn batch_pages(&self) -> usize {
        (self.pool.len() / 32).clamp(BATCH_PAGES, LARGEST_BATCH_PAGES)
    }

    /// One batch; gives the page from which to go on. With a generation, nothing if another has begun.
    fn write_batch(
        &self,
        inode: &Arc<InodeObj>,
        pages: Range<u64>,
        order: Order,
        generation: Option<u64>,
    ) -> Result<Option<u64>> {
        let data = inode.data();
        let room = match order.take {
            Take::Recorded => None,
            Take::Dirty if data.pages.is_synced(&pages) => return Ok(None),
            _ => self.room(inode, true)?,
        };
        // Whoever empties the file holds it too.
        let _guard = data.write_back.lock();
        if generation.is_some_and(|generation| generation != data.pages.summary().generation) {
            return Ok(None);
        }
        let result = self.write_locked(inode, pages, order, room);
        if result.is_err() {
            self.note_failure(data);
        }
        result
    }

    /// Notes that something of a file did not go home: each open file is told once.
    pub fn note_failure(&self, data: &FileData) {
        data.pages.note_failure();
        self.failures.add(1);
    }

    /// Room for a record about the file's dirty pages; `None` if it would have to wait, and is not to.
    pub fn room(&self, inode: &InodeObj, waits: bool) -> Result<Option<Credits<'_>>> {
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
    pub fn write_locked<'p>(
        &'p self,
        inode: &'p Arc<InodeObj>,
        pages: Range<u64>,
        order: Order,
        room: Option<Credits<'p>>,
    ) -> Result<Option<u64>> {
        let from = pages.start;
        let Some(mut prepared) = self.prepare(inode, pages, order, room, None) else {
            return Ok(Some(from));
        };
        let extents = &mut prepared.extents.iter_mut().collect::<Vec<_>>();
        self.submit(extents, inode.data().pages.batched_upto(), order.cause);
        planted::panic_at(Spot::Written);
        self.record(prepared, self.meta.store().device().writes_completed())
    }

    /// Selects pages and gives them places, new ones from `goal` on if that can be. The caller holds the write-back
    /// mutex until it has had them recorded. `None`: the room is for something else, because a truncation, or its
    /// record, came between.
    pub fn prepare<'p>(
        &'p self,
        inode: &'p Arc<InodeObj>,
        pages: Range<u64>,
        order: Order,
        room: Option<Credits<'p>>,
        goal: Option<u64>,
    ) -> Option<PreparedWrite<'p>> {
        let data = inode.data();
        // Before the pages are selected: every dirty page below this size is in the sets by now.
        let size = data.size();
        let truncates = data.pages.is_truncate_pending();
        if room.as_ref().is_some_and(|room| truncates != (room.need.dropped > 0)) {
            return None;
        }
        // What replaces old content goes in one record, or in as few as can be.
        let marks = if truncates { Marks::Parts } else { data.marks() };
        let most_runs = match (&room, marks) {
            (Some(room), Marks::Parts) => room.need.runs.saturating_sub(SPARE_RUNS).max(1),
            // One run may be all that can be zeroed in one breath.
            _ => 1,
        };
        let logged = if truncates { 0 } else { data.logged_size() };
        // The record that drops the old content holds all of the new, whatever part was asked for.
        let pages = if truncates { 0..PAGES_END } else { pages };
        let most = if truncates { usize::MAX } else { self.batch_pages() };
        let (selected, tail_waits) = select(data, pages, (size, logged), order.take, most);
        let mut next = (selected.len() >= most).then(|| selected.last().map_or(0, |p| p + 1));

        planted::panic_at(Spot::Selected);
        let mut result = Ok(());
        let arranged = self.arrange(inode, &selected, most_runs, goal);
        let (mut extents, mut left) = (arranged.extents, arranged.left);
        if let Some(e) = arranged.error {
            result = Err(e);
        }
        selected.put_back(&arranged.stays);
        let mut whole = WholeRuns::default();
        if room.is_some() && marks != Marks::Parts {
            let upto = if marks == Marks::Runs { PAGES_END } else { page_after(size) };
            match self.zero_rest_of_runs(inode, &extents, upto, order.cause) {
                Ok(runs) => whole = runs,
                Err(e) => {
                    let failed = extents.extract_if(.., |extent| extent.place == Place::Unwritten);
                    let pages = failed.flat_map(|one| one.page..one.page + one.frames.len() as u64);
                    let pages: Vec<_> = pages.collect();
                    left.splice(0..0, pages);
                    // Where there is room again by then, nothing is to be zeroed.
                    data.set_marks(Marks::Parts);
                    result = Err(e);
                }
            }
        }
        if let Some(&first) = left.first() {
            selected.put_back(&left);
            if result.is_ok() {
                next = Some(first);
            }
        }
        Some(PreparedWrite {
            inode,
            order,
            room,
            size,
            truncates,
            selected,
            left,
            tail_waits,
            extents,
            whole,
            next,
            result,
        })
    }
}

/// The size that may be recorded while nothing is under write-back: the whole, unless the page of the recorded end,
/// whose tail may hold anything, is still dirty.
pub fn covered_size(data: &FileData, size: u64) -> u64 {
    let logged = data.logged_size();
    let tail = (!logged.is_multiple_of(PAGE)).then_some(page_of(logged));
    if data.pages.holds_up_size(tail) { logged } else { size }
}

/// The key of absorbed bytes.
pub fn key_of(inode: &InodeObj, offset: u64, len: u64) -> DataKey {
    DataKey {
        nid: U64::new(inode.nid()),
        offset: U64::new(offset),
        len: U64::new(len),
        generation: U32::new(inode.generation()),
        reserved: U32::ZERO,
    }
}
