//! The data path of one mounted image: what it is made of, what may be chosen, what it counts.

use crate::cache::{CacheStats, FRAME_BYTES, FramePool, Inherited, PageId, available_memory};
use crate::device::{BLOCK_SIZE, keep_buffers};
use crate::file::write::reservation::Counted;
use crate::file::write::throttle::Pace;
use crate::file::writeback::bounce::BounceBuffers;
use crate::file::writeback::queue::WriteBackWork;
use crate::format::{MAX_FILE_SIZE, Nid};
use crate::inode::InodeObj;
use crate::meta::{Mapping, Meta};
use crate::pages::readahead::ReadaheadBudget;
use crate::pages::{OldContentBudget, PAGE, PAGES_END};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, LaneCounter, Mutex};
use crate::takeover::Takeover;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes of copies on their way to the device, and of buffers that it fills ahead of readers: enough to keep fast ones
/// busy.
const MOST_BOUNCE: u64 = 16 << 20;
/// Memory below which nothing is read ahead.
const LEAST_FOR_AHEAD: u64 = 4 << 20;

/// What may be chosen at mount time.
#[derive(Debug, Clone, Copy)]
pub struct DataOptions {
    /// Frames of the page cache.
    pub frames: usize,
    /// Free frames that keep their memory: all, unless it is for others too.
    pub kept: usize,
    /// Pages of the copies that are on their way to the device.
    pub bounce: usize,
    /// Pages that are read ahead of all readers at the most, in buffers of their own.
    pub ahead: usize,
    /// Bytes that one fsync absorbs into the journal at most.
    pub absorb_limit: usize,
    /// Dirty data is written home after this time.
    pub expire: Duration,
    /// Files with something to write, above which writers help to write: they stay in memory.
    pub files: usize,
}

impl DataOptions {
    /// A page cache of `bytes`, with all that is kept about each page, the indexes, and buffers.
    /// Everything else is as usual.
    pub fn with_memory(bytes: u64) -> DataOptions {
        let bounce = DataOptions::bounce_of(bytes);
        let ahead = DataOptions::ahead_of(bytes);
        let frames = ((bytes - bounce - ahead) / FRAME_BYTES).clamp(16, u64::from(u32::MAX / 2)) as usize;
        DataOptions {
            frames,
            kept: usize::MAX,
            bounce: (bounce / PAGE) as usize,
            ahead: (ahead / PAGE) as usize,
            absorb_limit: crate::file::ABSORB_LIMIT,
            expire: Duration::from_secs(30),
            files: usize::MAX,
        }
    }
}

impl DataOptions {
    /// Of so many bytes, those for copies.
    pub fn bounce_of(bytes: u64) -> u64 {
        (bytes / 32).min(MOST_BOUNCE)
    }

    /// Of so many bytes, those for what is read ahead.
    pub fn ahead_of(bytes: u64) -> u64 {
        if bytes < LEAST_FOR_AHEAD { 0 } else { DataOptions::bounce_of(bytes) }
    }
}

impl Default for DataOptions {
    /// A quarter of the memory that the machine, or the control groups, leave this process; 4 GiB at most.
    fn default() -> DataOptions {
        DataOptions::with_memory((available_memory() / 4).min(4 << 30))
    }
}

/// What the data path has done so far.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DataStats {
    /// The page cache.
    pub cache: CacheStats,
    /// Pages that reads and partial overwrites did not find.
    pub misses: u64,
    /// Pages that were read ahead.
    pub ahead: u64,
    /// Of these, pages of requests that a reader has come for.
    pub ahead_used: u64,
    /// Of these, pages given up to make room for other streams, or because they were overwritten.
    pub ahead_dropped: u64,
    /// Pages written home.
    pub written: u64,
    /// Pages absorbed into the journal.
    pub absorbed: u64,
    /// fsyncs that waited for home writes or a flush of them.
    pub syncs_home: u64,
    /// fsyncs whose data the journal took.
    pub syncs_absorbed: u64,
    /// Replacements, by rename or after truncation, whose new content the journal took.
    pub replaced_absorbed: u64,
    /// Writes that failed on the device.
    pub failures: u64,
}

#[derive(Debug, Default)]
pub(in crate::file) struct Counters {
    pub misses: LaneCounter,
    pub written: LaneCounter,
    pub absorbed: LaneCounter,
    pub syncs_home: LaneCounter,
    pub syncs_absorbed: LaneCounter,
    pub replaced_absorbed: LaneCounter,
    pub failures: LaneCounter,
}

/// Reads, writes and keeps the content of the regular files of one image.
#[derive(Debug)]
pub struct DataPath {
    pub(in crate::file) meta: Arc<Meta>,
    pub(in crate::file) pool: Arc<FramePool>,
    pub(in crate::file) options: DataOptions,
    pub(in crate::file) bounce: BounceBuffers,
    pub(in crate::file) counters: Counters,
    pub(in crate::file) work: WriteBackWork,
    pub(in crate::file) stashed: Counted,
    pub(in crate::file) old_content: OldContentBudget,
    pub(in crate::file) pace: Pace,
    pub(in crate::file) budget: Arc<ReadaheadBudget>,
    /// Files whose truncation to nothing is not yet recorded.
    pub(in crate::file) deferred: Mutex<BTreeMap<Nid, Arc<InodeObj>>>,
    pub(in crate::file) deferred_count: AtomicUsize,
    /// Files with live absorbed records.
    pub(in crate::file) absorbed: Mutex<BTreeMap<Nid, Arc<InodeObj>>>,
    /// Memory that a successor of this process takes over, if there is any.
    pub(in crate::file) takeover: Option<Arc<Takeover>>,
    /// What a predecessor has left in frames, until that is taken over.
    pub(in crate::file) inherited: Mutex<Vec<Inherited>>,
}

impl DataPath {
    /// A data path without threads; see [`DataPath::run_background`].
    pub fn new(
        meta: Arc<Meta>,
        mut options: DataOptions,
        takeover: Option<Arc<Takeover>>,
    ) -> Result<DataPath> {
        let (pool, inherited) = match &takeover {
            Some(memory) => FramePool::shared(&memory.frame_region()),
            None => (FramePool::sharing(options.frames, options.kept)?, Vec::new()),
        };
        if takeover.is_some() {
            options.frames = pool.len();
        }
        keep_buffers((options.bounce + options.ahead) * BLOCK_SIZE);
        Ok(DataPath {
            meta,
            pool: Arc::new(pool),
            takeover,
            inherited: Mutex::new(inherited),
            bounce: BounceBuffers::new(options.bounce),
            old_content: OldContentBudget::beside(options.bounce),
            options,
            counters: Counters::default(),
            work: WriteBackWork::default(),
            stashed: Counted::default(),
            pace: Pace::default(),
            budget: Arc::new(ReadaheadBudget::default()),
            deferred: Mutex::new(BTreeMap::new()),
            deferred_count: AtomicUsize::new(0),
            absorbed: Mutex::new(BTreeMap::new()),
        })
    }

    /// Counters.
    pub fn stats(&self) -> DataStats {
        DataStats {
            cache: self.pool.stats(),
            misses: self.counters.misses.get(),
            ahead: self.budget.asked.get(),
            ahead_used: self.budget.used.get(),
            ahead_dropped: self.budget.dropped.get(),
            written: self.counters.written.get(),
            absorbed: self.counters.absorbed.get(),
            syncs_home: self.counters.syncs_home.get(),
            syncs_absorbed: self.counters.syncs_absorbed.get(),
            replaced_absorbed: self.counters.replaced_absorbed.get(),
            failures: self.counters.failures.get(),
        }
    }

    /// What a file's content lies in. Of a file that was truncated and whose record waits: nothing.
    pub(in crate::file) fn map(&self, inode: &InodeObj, page: u64) -> Result<Mapping> {
        if inode.data().pages.is_truncate_pending() {
            return Ok(Mapping::Hole { len: PAGES_END.saturating_sub(page).max(1) });
        }
        self.meta.map(inode, page)
    }

    /// Whether anything is to be found after the mount.
    pub(in crate::file) fn keeps(&self) -> bool {
        self.meta.profile().keeps()
    }

    /// Pages of one step of a write or read: so few that a step never needs more than a share of the pool.
    pub(in crate::file) fn step_pages(&self) -> u64 {
        (self.pool.len() as u64 / 4).clamp(1, 257)
    }

    /// Whether some truncation waits to be recorded.
    pub(in crate::file) fn has_deferred(&self) -> bool {
        // Acquire: pairs with the Release of the increment in `defer`: a truncation that returned before an
        // fsync began is seen by it.
        self.deferred_count.load(Ordering::Acquire) > 0
    }

    pub(in crate::file) fn defer(&self, inode: &Arc<InodeObj>) {
        let mut deferred = self.deferred.lock();
        deferred.insert(inode.nid(), Arc::clone(inode));
        // Release: pairs with `has_deferred`.
        self.deferred_count.store(deferred.len(), Ordering::Release);
    }

    pub(in crate::file) fn undefer(&self, nid: Nid) {
        let mut deferred = self.deferred.lock();
        deferred.remove(&nid);
        // Release: pairs with `has_deferred`.
        self.deferred_count.store(deferred.len(), Ordering::Release);
    }
}

/// EFBIG unless a file may be as long.
pub(in crate::file) fn check_size(size: u64) -> Result<()> {
    if size > MAX_FILE_SIZE { Err(Error::Errno(libc::EFBIG)) } else { Ok(()) }
}

/// What a frame says of a page that it holds.
pub(in crate::file) fn page_id(inode: &InodeObj, page: u64) -> PageId {
    PageId { nid: inode.nid(), generation: inode.generation(), page }
}
