//! What the data path keeps for one regular file.

use crate::cache::{FramePool, PageIndex};
use crate::file::data_path::{page_after, page_of};
use crate::file::read::inflight::Fetching;
use crate::file::read::streams::Streams;
use crate::file::sync::old_content::Kept;
use crate::format::{Nid, Position};
use crate::lock::{FileLock, RangeGuard, RangeLock};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Margin, Mutex, OnceLock};
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The volatile side of a regular file's content. No two files share a cache line: the lock of each is written
/// all the time.
#[derive(Debug)]
#[repr(C)]
pub struct FileData {
    _before: Margin,
    pub(in crate::file) range: RangeLock,
    pub(in crate::file) index: PageIndex,
    /// The pool whose frames the index names, once it names any.
    pub(in crate::file) pool: OnceLock<Arc<FramePool>>,
    /// Bytes, as `stat` shows them. Changed under the range from the smaller of both sizes on.
    size: AtomicU64,
    /// Bytes, as the newest record says. Changed under the write-back mutex.
    logged_size: AtomicU64,
    /// Device writes completed when the last home write of this file was.
    last_write: AtomicU64,
    /// Whether the file was written home before it came into memory, nobody knows when.
    written_before: AtomicBool,
    /// An operation of many records was given up between two of them.
    stuck: AtomicBool,
    errors: ErrorLog,
    /// The page that the reader met last goes on with, or in.
    pub(in crate::file) expected: AtomicU64,
    /// Where its readers are that have found pages absent.
    pub(in crate::file) streams: Mutex<Streams>,
    /// What readers have asked the device for.
    pub(in crate::file) fetching: Fetching,
    /// Held while blocks are freed in more than one record: there is one intent of that kind a file.
    pub(in crate::file) removing: Mutex<()>,
    /// Held while pages are written home or thrown away.
    pub(in crate::file) write_back: Mutex<()>,
    pub(in crate::file) state: Mutex<FileState>,
    _behind: Margin,
}

/// Sets of pages, changed for a few instructions at a time.
#[derive(Debug, Default)]
pub(in crate::file) struct FileState {
    /// Pages with bytes that are neither home nor absorbed.
    pub dirty: BTreeSet<u64>,
    /// Dirty pages whose bytes are absorbed.
    pub synced: BTreeSet<u64>,
    /// Pages are in the hands of the holder of the write-back mutex, in no set; some may come back.
    pub in_hands: bool,
    /// Pages of live data records.
    pub live: BTreeMap<u64, Live>,
    /// A data record is being logged: what `live` says lags behind the journal, and its pages are in no set.
    pub absorbing: bool,
    /// Pages of live records whose home copy is newer than the record.
    pub stale: BTreeSet<u64>,
    /// Pages written home in place, with the device's count of writes then: to be written again should the
    /// flush that was to cover them fail.
    pub unflushed: BTreeMap<u64, u64>,
    /// How many of those there are when it is worth looking which a flush has covered by now.
    pub unflushed_limit: usize,
    /// A flush failed for a page that has left the cache since: its bytes are gone.
    pub lost: bool,
    /// Blocks set aside for dirty pages without a block.
    pub reserved: u64,
    /// The file was truncated to nothing, and the record of that waits for the new content: what is mapped
    /// is doomed and must not be read.
    pub doomed: bool,
    /// Extents that are doomed, at most.
    pub doomed_extents: usize,
    /// What it held before, where the journal alone has that durably.
    pub kept: Kept,
    /// Truncations to nothing so far: tells one rewriting from the next.
    pub rewritings: u64,
    /// Where the next write-back for want of frames begins.
    pub pressed_upto: u64,
    /// Its number on the list of files to write, changed with that list locked.
    pub listed: Option<u64>,
}

/// The data records of a page that the ring holds.
#[derive(Debug, Clone, Copy)]
pub(in crate::file) struct Live {
    /// Position after the oldest whose bytes are not home; `Position::MAX` if all are.
    pub first: Position,
    /// Position after the newest.
    pub last: Position,
}

/// Failures of write-back, counted so that each open file is told once.
#[derive(Debug)]
struct ErrorLog {
    failures: AtomicU64,
}

/// A regular file's inode, as far as its data go.
pub trait DataInode: Send + Sync + 'static {
    /// Its number.
    fn nid(&self) -> Nid;
    /// The generation of its number.
    fn generation(&self) -> u32;
    /// Its data, made now if need be.
    fn data(&self) -> &FileData;
    /// Its data, if somebody has asked for them.
    fn made_data(&self) -> Option<&FileData>;
    /// How many have the file open for writing.
    fn writers(&self) -> &AtomicU32;
    /// The content changed: modification and change time become now, in memory. Called for every write.
    fn touch(&self);
    /// Whether times have changed in memory that no record holds yet.
    fn attributes_dirty(&self) -> bool;
}

/// What an open file has been told of failures.
#[derive(Debug)]
pub struct ErrorMark {
    told: AtomicU64,
}

impl ErrorMark {
    /// The mark of an open file: it hears of failures from now on. Data that nobody has asked for have had none.
    pub fn of(data: Option<&FileData>) -> ErrorMark {
        ErrorMark { told: AtomicU64::new(data.map_or(0, |data| data.errors.seen())) }
    }
}

impl FileData {
    /// The data of a file of `size` bytes, all of them home.
    pub fn new(nid: Nid, size: u64) -> FileData {
        FileData {
            _before: Margin::new(),
            range: RangeLock::for_file(nid),
            index: PageIndex::default(),
            pool: OnceLock::new(),
            size: AtomicU64::new(size),
            logged_size: AtomicU64::new(size),
            last_write: AtomicU64::new(0),
            written_before: AtomicBool::new(size > 0),
            stuck: AtomicBool::new(false),
            errors: ErrorLog { failures: AtomicU64::new(0) },
            expected: AtomicU64::new(0),
            streams: Mutex::new(Streams::default()),
            fetching: Fetching::new(),
            removing: Mutex::new(()),
            write_back: Mutex::new(()),
            state: Mutex::new(FileState::default()),
            _behind: Margin::new(),
        }
    }

    /// Waits for a range of bytes, and gives up what is being read ahead of them. Every change of the content, and
    /// of what is mapped, is made with a range that was taken so, or by [`FileData::try_write_range`].
    pub(in crate::file) fn write_range(&self, bytes: Range<u64>) -> RangeGuard<'_> {
        let pages = page_of(bytes.start)..page_after(bytes.end);
        let guard = self.range.write(bytes);
        self.fetching.cancel(&pages);
        guard
    }

    /// The same without waiting.
    pub(in crate::file) fn try_write_range(&self, bytes: Range<u64>) -> Option<RangeGuard<'_>> {
        let pages = page_of(bytes.start)..page_after(bytes.end);
        let guard = self.range.try_write(bytes)?;
        self.fetching.cancel(&pages);
        Some(guard)
    }

    /// Bytes, as `stat` shows them.
    pub fn size(&self) -> u64 {
        // Acquire: pairs with the Release in `set_size`: who sees the size finds the pages.
        self.size.load(Ordering::Acquire)
    }

    pub(in crate::file) fn set_size(&self, size: u64) {
        // Release: pairs with the Acquire in `size`.
        self.size.store(size, Ordering::Release);
    }

    /// Bytes, as the newest record says.
    pub fn logged_size(&self) -> u64 {
        // Acquire: pairs with the Release in `set_logged_size`.
        self.logged_size.load(Ordering::Acquire)
    }

    pub(in crate::file) fn set_logged_size(&self, size: u64) {
        // Release: pairs with the Acquire in `logged_size`.
        self.logged_size.store(size, Ordering::Release);
    }

    /// The device's count of completed writes that covers this file's.
    pub(in crate::file) fn last_write(&self) -> u64 {
        // Acquire: pairs with the AcqRel in `wrote`.
        self.last_write.load(Ordering::Acquire)
    }

    /// Whether a flush must cover every write that the device knows of: none has, since the file came into
    /// memory.
    pub(in crate::file) fn was_written_before(&self) -> bool {
        // Acquire: pairs with the Release in `all_flushed`.
        self.written_before.load(Ordering::Acquire)
    }

    /// A flush has covered what was written before the file came into memory.
    pub(in crate::file) fn all_flushed(&self) {
        // Release: pairs with the Acquire in `was_written_before`: who sees it comes after the flush.
        self.written_before.store(false, Ordering::Release);
    }

    pub(in crate::file) fn wrote(&self, completed: u64) {
        // AcqRel: pairs with the Acquire in `last_write`.
        self.last_write.fetch_max(completed, Ordering::AcqRel);
    }

    /// Blocks that dirty pages will take: to be added to what the inode has.
    pub fn delayed_blocks(&self) -> u64 {
        self.state.lock().reserved
    }

    /// Whether the volatile side holds nothing that would be missed. What is home but has a live record in the
    /// ring counts: a later home write must know of it.
    pub fn is_idle(&self) -> bool {
        // Who asks holds the lock of a table: he does not wait for somebody who may be about to ask for that.
        let Some(state) = self.state.try_lock() else { return false };
        state.dirty.is_empty()
            && state.synced.is_empty()
            && state.live.is_empty()
            && !state.doomed
            && state.listed.is_none()
            // An fsync is to tell of it.
            && self.errors.seen() == 0
            && self.check_usable().is_ok()
            && self.size() == self.logged_size()
    }

    /// An operation of many records has failed between two of them; the intent that it has logged is acted on by the
    /// next mount. Until then what the file holds is neither the old nor the new, and what would be written there
    /// would be freed or moved: nobody reads or changes it any more.
    pub fn stick(&self) {
        // Relaxed: whoever fails has the range; its release publishes it.
        self.stuck.store(true, Ordering::Relaxed);
    }

    /// EIO after [`FileData::stick`].
    pub fn check_usable(&self) -> Result<()> {
        // Relaxed: looked at again, or for the first time, with the range in hand.
        if self.stuck.load(Ordering::Relaxed) { Err(Error::Errno(libc::EIO)) } else { Ok(()) }
    }

    /// Notes a failure, to be told to every open file.
    pub(in crate::file) fn note_failure(&self) {
        // Release: pairs with the Acquire in `seen`.
        self.errors.failures.fetch_add(1, Ordering::Release);
    }

    /// EIO, once, if there was a failure since the mark.
    pub fn check(&self, mark: &ErrorMark) -> Result<()> {
        let seen = self.errors.seen();
        // Relaxed: the mark is a counter of its own; two fsyncs of one open file may share one telling.
        if mark.told.swap(seen, Ordering::Relaxed) < seen {
            return Err(Error::Errno(libc::EIO));
        }
        Ok(())
    }
}

impl FileState {
    /// A data record of a page was logged.
    pub fn absorbed(&mut self, page: u64, end: Position) {
        let live = self.live.entry(page).or_insert(Live { first: end, last: end });
        live.first = live.first.min(end);
        live.last = end;
    }

    /// Whether an fsync finds nothing to write in these pages, nor anything that may come back to be written.
    pub fn nothing_unsynced(&self, pages: &Range<u64>) -> bool {
        let may_come_back = self.in_hands || self.absorbing;
        !self.doomed && !may_come_back && self.dirty.range(pages.clone()).next().is_none()
    }

    /// Whether a write-back of everything finds nothing to do, and nothing that may come back to it.
    pub fn is_written(&self) -> bool {
        self.nothing_unsynced(&(0..u64::MAX)) && self.synced.is_empty()
    }

    /// Gives back the memory of sets that have become empty: most files in memory have nothing to write.
    pub fn shrink(&mut self) {
        for set in [&mut self.dirty, &mut self.synced] {
            if set.is_empty() {
                *set = BTreeSet::new();
            }
        }
    }

    /// Pages of which live records alone are durable, with the position after the oldest.
    pub fn held_live(&self) -> Vec<(u64, Position)> {
        let held = |page| self.synced.contains(page) || self.dirty.contains(page);
        let held = self.live.iter().filter(|(page, live)| live.first != Position::MAX && held(page));
        held.map(|(page, live)| (*page, live.first)).collect()
    }

    /// A record has put the new content of an emptied file in the place of the old one.
    pub fn replaced(&mut self) {
        self.doomed = false;
        self.live.clear();
        self.stale.clear();
        self.kept.clear();
    }
}

impl ErrorLog {
    fn seen(&self) -> u64 {
        // Acquire: pairs with the Release in `note_failure`.
        self.failures.load(Ordering::Acquire)
    }
}

impl Drop for FileData {
    fn drop(&mut self) {
        // Frames name slots of this index: they leave before it does.
        if let Some(pool) = self.pool.get() {
            self.index.each(0..u64::MAX, &mut |_, slot| {
                pool.remove(slot);
            });
            pool.discharge(self.index.bytes());
        }
    }
}
