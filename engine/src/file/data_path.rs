//! The data path of one mounted image: what it is made of, what may be chosen, what it counts.

#[cfg(feature = "baselines")]
use crate::baseline::DataBaseline;
use crate::blocking;
use crate::cache::{CacheStats, FRAME_BYTES, FramePool, Inherited, PageId, available_memory, most_memory};
use crate::device::{BLOCK_SIZE, keep_buffers};
use crate::file::read::readahead::Readahead;
use crate::file::sync::data_journal::DataJournal;
use crate::file::sync::lost_before::LostBefore;
use crate::file::write::reservation::{FrameReservation, FrameReservations};
use crate::file::writeback::WriteBack;
use crate::file::writeback::flusher::Flusher;
use crate::format::{MAX_FILE_SIZE, Position};
use crate::inode::InodeObj;
use crate::meta::Meta;
use crate::pages::PAGE;
use crate::sync::{Arc, LaneCounter, Mutex};
use crate::takeover::Takeover;
use crate::{Error, Result};
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
    /// A page cache of `bytes`, with all that is kept about each page, the indexes, and buffers; not larger than
    /// the machine's memory. Everything else is as usual.
    pub fn with_memory(bytes: u64) -> DataOptions {
        let bytes = bytes.min(most_memory());
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
    /// Dirty pages that writers are held back at, ever longer; `None`: they are not.
    pub dirty_limit: Option<u64>,
    /// Writes that were held back.
    pub throttled: u64,
    /// Nanoseconds that they were.
    pub throttled_ns: u64,
}

/// Reads, writes and keeps the content of the regular files of one image.
#[derive(Debug)]
pub struct DataPath {
    pub(in crate::file) meta: Arc<Meta>,
    pub(in crate::file) pool: Arc<FramePool>,
    pub(in crate::file) readahead: Readahead,
    pub(in crate::file) write_back: Arc<WriteBack>,
    pub(in crate::file) journal: Arc<DataJournal>,
    pub(in crate::file) flusher: Flusher,
    pub(in crate::file) reservations: FrameReservations,
    /// Pages that reads and partial overwrites did not find.
    pub(in crate::file) misses: LaneCounter,
    /// fsyncs that waited for writes in place.
    pub(in crate::file) syncs_home: LaneCounter,
    /// Memory that a successor of this process takes over, if there is any.
    pub(in crate::file) takeover: Option<Arc<Takeover>>,
    pub(in crate::file) lost_before: Option<LostBefore>,
    /// Held by who has inodes leave memory for their indexes: where the table is looked at next.
    pub(in crate::file) relieving: Mutex<usize>,
    /// What a predecessor has left in frames, until that is taken over.
    pub(in crate::file) inherited: Mutex<Vec<Inherited>>,
}

impl DataPath {
    /// A data path without threads; see [`DataPath::run_background`].
    pub fn new(meta: Arc<Meta>, options: DataOptions, takeover: Option<Arc<Takeover>>) -> Result<DataPath> {
        let (pool, inherited) = match &takeover {
            Some(memory) => FramePool::shared(&memory.frame_region()),
            None => (FramePool::sharing(options.frames, options.kept)?, Vec::new()),
        };
        // Who changes nothing reads into the frames that are free, and leaves all else to one that can.
        let takeover = takeover.filter(|_| !meta.is_read_only());
        keep_buffers((options.bounce + options.ahead) * BLOCK_SIZE);
        let pool = Arc::new(pool);
        let write_back = Arc::new(WriteBack::new(
            Arc::clone(&meta),
            Arc::clone(&pool),
            takeover.clone(),
            options.bounce,
            options.files,
        ));
        let (limit, kept) = (options.absorb_limit, options.bounce);
        #[cfg(feature = "baselines")]
        let limit = match meta.store().baselines().data {
            DataBaseline::Ours => limit,
            DataBaseline::Ordered => 0,
        };
        let journal = Arc::new(DataJournal::new(Arc::clone(&meta), Arc::clone(&write_back), limit, kept));
        let emptied = Arc::downgrade(&journal);
        meta.alloc.set_record_frees(Box::new(move || {
            // A failure is met again, and told.
            let _ = emptied.upgrade().map(|journal| journal.settle_deferred());
        }));
        Ok(DataPath {
            readahead: Readahead::new(Arc::clone(&meta), options.ahead),
            flusher: Flusher::new(Arc::clone(&write_back), Arc::clone(&journal), options.expire),
            reservations: FrameReservations::of(pool.len()),
            misses: LaneCounter::default(),
            syncs_home: LaneCounter::default(),
            lost_before: LostBefore::of(takeover.as_deref(), &meta.table),
            meta,
            pool,
            write_back,
            journal,
            takeover,
            relieving: Mutex::new(0),
            inherited: Mutex::new(inherited),
        })
    }

    /// Counters.
    pub fn stats(&self) -> DataStats {
        let [ahead, ahead_used, ahead_dropped] = self.readahead.counts();
        let [absorbed, syncs_absorbed, replaced_absorbed] = self.journal.counts();
        let [throttled, throttled_ns] = self.write_back.throttle().counts();
        let limit = self.write_back.levels().limit;
        DataStats {
            cache: self.pool.stats(),
            misses: self.misses.get(),
            ahead,
            ahead_used,
            ahead_dropped,
            written: self.write_back.written(),
            absorbed,
            syncs_home: self.syncs_home.get(),
            syncs_absorbed,
            replaced_absorbed,
            failures: self.write_back.failures(),
            dirty_limit: (limit != usize::MAX).then_some(limit as u64),
            throttled,
            throttled_ns,
        }
    }

    /// Writes old, urgent and pressing data home until [`DataPath::stop`]; to be run by a thread of its own.
    pub fn run_background(&self) {
        self.flusher.run();
    }

    /// Gives back the memory of what was read ahead and cancelled, as soon as the device is done with it, until
    /// [`DataPath::stop`]; to be run by a thread of its own.
    pub fn run_settling(&self) {
        self.readahead.run_settling();
    }

    /// Ends [`DataPath::run_background`] and [`DataPath::run_settling`].
    pub fn stop(&self) {
        self.readahead.stop();
        self.flusher.stop();
    }

    /// Before the ring's head passes `upto`: what is absorbed below it goes home; the flush is the round's. Takes no
    /// credits and no range.
    pub fn pre_checkpoint(&self, upto: Position) -> Result<()> {
        self.journal.pre_checkpoint(upto)
    }

    /// Has inodes that nobody uses leave memory, where the indexes of files take more of it than the pool has for them. Called
    /// with no lock held.
    pub fn relieve_indexes(&self) {
        if !self.pool.has_much_index() {
            return;
        }
        let Some(mut next) = self.relieving.try_lock() else { return };
        // Many frames leave with the indexes: that is as long as a sleep.
        blocking::about_to_block();
        // The second time without times that wait to be logged.
        for _ in 0..2 {
            let enough = || self.pool.excess_index() == 0;
            let waiting = self.meta.table.let_indexes_go(&mut next, self.pool.excess_index(), enough);
            if waiting.is_empty() {
                break;
            }
            self.meta.log_times_of(&waiting);
        }
        self.pool.settle_for_index();
    }

    /// `count` frames instead of `old` ones, for a writer that then waits for its range. Called with no lock held.
    pub(in crate::file) fn reserve_frames<'p>(
        &'p self,
        old: FrameReservation<'p>,
        count: usize,
    ) -> Result<FrameReservation<'p>> {
        drop(old);
        self.reservations.reserve(count, || self.flusher.frames(count))
    }
}

/// Pages of one step of a write or read: so few that a step never needs more than a share of the pool.
pub(in crate::file) fn step_pages(pool: &FramePool) -> u64 {
    (pool.len() as u64 / 4).clamp(1, 257)
}

/// EFBIG unless a file may be as long.
pub(in crate::file) fn check_size(size: u64) -> Result<()> {
    if size > MAX_FILE_SIZE { Err(Error::Errno(libc::EFBIG)) } else { Ok(()) }
}

/// What a frame says of a page that it holds.
pub(in crate::file) fn page_id(inode: &InodeObj, page: u64) -> PageId {
    PageId { nid: inode.nid(), generation: inode.generation(), page }
}
