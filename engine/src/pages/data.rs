//! What is kept in memory for the content of one regular file: its pages, and what readers and writers of them share.

use crate::cache::{FramePool, PageIndex};
use crate::lock::{BytesGuard, BytesLock, FileLock};
use crate::pages::readahead::{Fetching, Streams};
use crate::pages::{PageStates, page_after, page_of};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crate::sync::{Arc, Margin, Mutex, OnceLock};
use crate::takeover::KeptSlot;
use crate::{Error, Result};
use std::ops::Range;

/// The volatile side of a regular file's content. No two files share a cache line: the lock of each is written
/// all the time.
#[derive(Debug)]
#[repr(C)]
pub struct FileData {
    _before: Margin,
    pub(crate) range: BytesLock,
    pub(crate) index: PageIndex,
    /// The pool whose frames the index names, once it names any.
    pub(crate) pool: OnceLock<Arc<FramePool>>,
    /// Bytes, as `stat` shows them. Changed under the range from the smaller of both sizes on.
    size: AtomicU64,
    /// Bytes, as the newest record says. Changed under the write-back mutex.
    logged_size: AtomicU64,
    /// Device writes completed when the last home write of this file was.
    last_write: AtomicU64,
    /// Whether the file was written home before it came into memory, nobody knows when.
    written_before: AtomicBool,
    /// Records that map its pages need not wait for what those hold.
    unordered: AtomicBool,
    /// An operation of many records was given up between two of them.
    poisoned: AtomicBool,
    /// How what becomes written of an unwritten run does so: [`Marks`].
    marks: AtomicU8,
    /// The page that the reader met last goes on with, or in.
    pub(crate) expected: AtomicU64,
    /// Where its readers are that have found pages absent.
    pub(crate) streams: Mutex<Streams>,
    /// What readers have asked the device for.
    pub(crate) fetching: Fetching,
    /// Held while blocks are freed in more than one record: there is one intent of that kind a file.
    pub(crate) removing: Mutex<()>,
    /// Held while pages are written home or thrown away.
    pub(crate) write_back: Mutex<()>,
    pub(crate) pages: PageStates,
    /// Where a successor of this process finds what runs ahead of the journal; see [`crate::inode::InodeObj::keep`].
    pub(crate) kept: Mutex<Option<KeptSlot>>,
    _behind: Margin,
}

/// How what becomes written of an unwritten run does so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marks {
    /// By itself.
    Parts,
    /// With all of the run, up to the end of the file: there was no block for the extents of parts.
    UptoEnd,
    /// With all of the run: there was none for the two of that either.
    Runs,
}

impl Marks {
    /// What takes fewer extents.
    pub fn wider(self) -> Option<Marks> {
        match self {
            Marks::Parts => Some(Marks::UptoEnd),
            Marks::UptoEnd => Some(Marks::Runs),
            Marks::Runs => None,
        }
    }
}

/// What an open file has been told of failures.
#[derive(Debug)]
pub struct ErrorMark {
    told: AtomicU64,
}

impl ErrorMark {
    /// The mark of an open file: it hears of failures from now on. Data that nobody has asked for have had none.
    pub fn of(data: Option<&FileData>) -> ErrorMark {
        ErrorMark { told: AtomicU64::new(data.map_or(0, |data| data.pages.failures())) }
    }
}

impl FileData {
    /// The data of a file of `size` bytes, all of them home, and the lock over them.
    pub fn new(range: BytesLock, size: u64) -> FileData {
        FileData {
            _before: Margin::new(),
            range,
            index: PageIndex::default(),
            pool: OnceLock::new(),
            size: AtomicU64::new(size),
            logged_size: AtomicU64::new(size),
            last_write: AtomicU64::new(0),
            written_before: AtomicBool::new(size > 0),
            unordered: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            marks: AtomicU8::new(0),
            expected: AtomicU64::new(0),
            streams: Mutex::new(Streams::default()),
            fetching: Fetching::new(),
            removing: Mutex::new(()),
            write_back: Mutex::new(()),
            pages: PageStates::default(),
            kept: Mutex::new(None),
            _behind: Margin::new(),
        }
    }

    /// Waits for a range of bytes, and gives up what is being read ahead of them. Every change of the content, and
    /// of what is mapped, is made with a range that was taken so, or by [`FileData::try_write_range`].
    pub(crate) fn write_range(&self, bytes: Range<u64>) -> BytesGuard<'_> {
        let pages = page_of(bytes.start)..page_after(bytes.end);
        let guard = self.range.write(bytes);
        self.fetching.cancel(&pages);
        guard
    }

    /// The same without waiting.
    pub(crate) fn try_write_range(&self, bytes: Range<u64>) -> Option<BytesGuard<'_>> {
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

    pub(crate) fn set_size(&self, size: u64) {
        // Release: pairs with the Acquire in `size`.
        self.size.store(size, Ordering::Release);
    }

    /// Bytes, as the newest record says.
    pub fn logged_size(&self) -> u64 {
        // Acquire: pairs with the Release in `set_logged_size`.
        self.logged_size.load(Ordering::Acquire)
    }

    pub(crate) fn set_logged_size(&self, size: u64) {
        // Release: pairs with the Acquire in `logged_size`.
        self.logged_size.store(size, Ordering::Release);
    }

    /// The device's count of completed writes that covers this file's.
    pub(crate) fn last_write(&self) -> u64 {
        // Acquire: pairs with the AcqRel in `wrote`.
        self.last_write.load(Ordering::Acquire)
    }

    /// Whether a flush must cover every write that the device knows of: none has, since the file came into
    /// memory.
    pub(crate) fn was_written_before(&self) -> bool {
        // Acquire: pairs with the Release in `all_flushed`.
        self.written_before.load(Ordering::Acquire)
    }

    /// A flush has covered what was written before the file came into memory.
    pub(crate) fn all_flushed(&self) {
        // Release: pairs with the Acquire in `was_written_before`: who sees it comes after the flush.
        self.written_before.store(false, Ordering::Release);
    }

    /// What was written before the file came into memory counts as written with so many completed: a flush of these
    /// covers it.
    pub(crate) fn dated(&self, completed: u64) {
        self.wrote(completed);
        self.all_flushed();
    }

    pub(crate) fn wrote(&self, completed: u64) {
        // AcqRel: pairs with the Acquire in `last_write`.
        self.last_write.fetch_max(completed, Ordering::AcqRel);
    }

    /// Blocks that dirty pages will take: to be added to what the inode has.
    pub fn delayed_blocks(&self) -> u64 {
        self.pages.reserved()
    }

    /// Whether the volatile side holds nothing that would be missed. What is home but has a live record in the
    /// ring counts: a later home write must know of it.
    pub fn is_idle(&self) -> bool {
        // Who asks holds the lock of a table: he does not wait for somebody who may be about to ask for that.
        self.pages.is_idle() && self.check_usable().is_ok() && self.size() == self.logged_size()
    }

    /// Nobody reads the file before somebody has flushed all of it, after a crash either: what is mapped may be anything
    /// until then.
    pub(crate) fn needs_no_order(&self) {
        // Relaxed: said before the first write, by who alone knows of the file.
        self.unordered.store(true, Ordering::Relaxed);
    }

    /// Whether a record that maps pages is to come after what they hold.
    pub(crate) fn is_ordered(&self) -> bool {
        // Relaxed: see above.
        !self.unordered.load(Ordering::Relaxed)
    }

    /// An operation of many records has failed between two of them, or one whose pages are gone before its record: the next
    /// mount acts on the intent that was logged, or brings the pages back. Until then what the file holds is neither the old nor the new, and what would be written there
    /// would be freed or moved: nobody reads or changes it any more.
    pub fn poison(&self) {
        // Relaxed: whoever fails has the range; its release publishes it.
        self.poisoned.store(true, Ordering::Relaxed);
    }

    /// How what becomes written of an unwritten run does so. The caller has the write-back mutex.
    pub(crate) fn marks(&self) -> Marks {
        // Relaxed: the mutex orders it.
        match self.marks.load(Ordering::Relaxed) {
            0 => Marks::Parts,
            1 => Marks::UptoEnd,
            _ => Marks::Runs,
        }
    }

    /// Says how. The caller has the write-back mutex.
    pub(crate) fn set_marks(&self, marks: Marks) {
        self.marks.store(marks as u8, Ordering::Relaxed);
    }

    /// EIO after [`FileData::poison`].
    pub fn check_usable(&self) -> Result<()> {
        // Relaxed: looked at again, or for the first time, with the range in hand.
        if self.poisoned.load(Ordering::Relaxed) { Err(Error::Errno(libc::EIO)) } else { Ok(()) }
    }

    /// EIO, once, if there was a failure since the mark.
    pub fn check(&self, mark: &ErrorMark) -> Result<()> {
        let seen = self.pages.failures();
        // Relaxed: the mark is a counter of its own; two fsyncs of one open file may share one telling.
        if mark.told.swap(seen, Ordering::Relaxed) < seen {
            return Err(Error::Errno(libc::EIO));
        }
        Ok(())
    }
}

impl Drop for FileData {
    fn drop(&mut self) {
        // Frames name slots of this index: they leave before it does. Where they are left nobody looks for a frame any more.
        if let Some(pool) = self.pool.get().filter(|pool| !pool.is_left()) {
            self.index.each(0..u64::MAX, &mut |_, slot| {
                pool.remove(slot);
            });
            pool.discharge(self.index.bytes());
        }
    }
}
