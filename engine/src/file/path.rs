//! The data path of one mounted image: its frames, its list of files to write, its threads.

use super::write_back::BATCH_PAGES;
use super::{DataInode, FileData, Home, Mapping};
use crate::cache::{CacheStats, FramePool, Fresh};
use crate::device::BLOCK_SIZE;
use crate::format::{MAX_FILE_SIZE, Nid};
use crate::store::Profile;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, LaneCounter, Mutex, thread};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(super) const PAGE: u64 = BLOCK_SIZE as u64;
/// Tries to get frames by write-back that writes nothing, before scratch space counts as full.
const IDLE_TRIES: usize = 16;
/// Page number after the last that a file can have.
pub(super) const PAGES_END: u64 = MAX_FILE_SIZE / PAGE;

/// What may be chosen at mount time.
#[derive(Debug, Clone, Copy)]
pub struct DataOptions {
    /// Frames of the page cache.
    pub frames: usize,
    /// Bytes that one fsync absorbs into the journal at most.
    pub absorb_limit: usize,
    /// Dirty data is written home after this time.
    pub expire: Duration,
}

impl DataOptions {
    /// A page cache of `bytes`, everything else as usual.
    pub fn with_memory(bytes: u64) -> DataOptions {
        let frames = (bytes / PAGE).clamp(16, u64::from(u32::MAX / 2)) as usize;
        DataOptions { frames, absorb_limit: super::ABSORB_LIMIT, expire: Duration::from_secs(30) }
    }
}

impl Default for DataOptions {
    /// A quarter of the memory that the machine, or the control group, allows; 4 GiB at most.
    fn default() -> DataOptions {
        DataOptions::with_memory((available_memory() / 4).min(4 << 30))
    }
}

/// Bytes of memory that this process may use.
fn available_memory() -> u64 {
    let read = |path| std::fs::read_to_string(path).ok();
    let group = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok());
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    let machine = machine.map_or(1 << 30, |kib| kib << 10);
    machine.min(group.unwrap_or(u64::MAX))
}

/// What the data path has done so far.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct DataStats {
    /// The page cache.
    pub cache: CacheStats,
    /// Pages that reads and partial overwrites did not find.
    pub misses: u64,
    /// Pages written home.
    pub written: u64,
    /// Pages absorbed into the journal.
    pub absorbed: u64,
    /// fsyncs that waited for home writes or a flush of them.
    pub syncs_home: u64,
    /// fsyncs whose data the journal took.
    pub syncs_absorbed: u64,
    /// Writes that failed on the device.
    pub failures: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub misses: LaneCounter,
    pub written: LaneCounter,
    pub absorbed: LaneCounter,
    pub syncs_home: LaneCounter,
    pub syncs_absorbed: LaneCounter,
    pub failures: LaneCounter,
}

/// A file with something to write.
#[derive(Debug)]
struct Listed<I> {
    inode: Arc<I>,
    since: Instant,
}

#[derive(Debug)]
struct Work<I> {
    /// In the order of their listing, or of their last turn, by numbers that only grow.
    files: BTreeMap<u64, Listed<I>>,
    next: u64,
    /// Rewritten files, and which rewriting is to go home.
    urgent: Vec<(Arc<I>, u64)>,
    pressed: bool,
    stop: bool,
}

impl<I> Work<I> {
    /// Puts a file at the end; its state names the number already.
    fn append(&mut self, listed: Listed<I>) {
        self.files.insert(self.next, listed);
        self.next += 1;
    }
}

/// Reads, writes and keeps the content of the regular files of one image.
#[derive(Debug)]
pub struct DataPath<H: Home> {
    pub(super) home: Arc<H>,
    pub(super) pool: Arc<FramePool>,
    pub(super) options: DataOptions,
    pub(super) counters: Counters,
    work: Mutex<Work<H::Inode>>,
    wake: Condvar,
    /// Files whose truncation to nothing is not yet recorded.
    pub(super) deferred: Mutex<BTreeMap<Nid, Arc<H::Inode>>>,
    pub(super) deferred_count: AtomicUsize,
    /// Files with live absorbed records.
    pub(super) absorbed: Mutex<BTreeMap<Nid, Arc<H::Inode>>>,
}

impl<H: Home> DataPath<H> {
    /// A data path without threads; see [`DataPath::run_background`].
    pub fn new(home: Arc<H>, options: DataOptions) -> Result<DataPath<H>> {
        Ok(DataPath {
            home,
            pool: Arc::new(FramePool::new(options.frames)?),
            options,
            counters: Counters::default(),
            work: Mutex::new(Work {
                files: BTreeMap::new(),
                next: 0,
                urgent: Vec::new(),
                pressed: false,
                stop: false,
            }),
            wake: Condvar::new(),
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
            written: self.counters.written.get(),
            absorbed: self.counters.absorbed.get(),
            syncs_home: self.counters.syncs_home.get(),
            syncs_absorbed: self.counters.syncs_absorbed.get(),
            failures: self.counters.failures.get(),
        }
    }

    /// What a file's content lies in. Of a file that was truncated and whose record waits: nothing.
    pub(super) fn map(&self, inode: &H::Inode, page: u64) -> Result<Mapping> {
        if inode.data().state.lock().doomed {
            return Ok(Mapping::Hole { len: PAGES_END.saturating_sub(page).max(1) });
        }
        self.home.map(inode, page)
    }

    /// Pages of one step of a write or read: so few that a step never needs more than a share of the pool.
    pub(super) fn step_pages(&self) -> u64 {
        (self.pool.len() as u64 / 4).clamp(1, 257)
    }

    /// Puts a file on the list of those to write, once.
    pub(super) fn list(&self, inode: &Arc<H::Inode>) {
        if inode.data().state.lock().listed.is_some() {
            return;
        }
        let mut work = self.work.lock();
        let mut state = inode.data().state.lock();
        if state.listed.is_none() {
            state.listed = Some(work.next);
            drop(state);
            work.append(Listed { inode: Arc::clone(inode), since: Instant::now() });
            if work.files.len() == 1 {
                self.wake.notify_one();
            }
        }
    }

    /// Notes that a file is on the list no more, if nothing of it is left to write.
    fn leaves_list(inode: &H::Inode) -> bool {
        // Pages in the hands of a write-back are in no set, and come back if it fails.
        let nothing_in_flight = inode.data().write_back.try_lock();
        nothing_in_flight.is_some() && Self::leaves_list_quiet(inode.data())
    }

    /// The same by a caller who has the write-back mutex.
    fn leaves_list_quiet(data: &FileData) -> bool {
        let mut state = data.state.lock();
        let idle = state.dirty.is_empty()
            && state.synced.is_empty()
            && !state.doomed
            && data.size() == data.logged_size();
        if idle {
            state.listed = None;
        }
        idle
    }

    /// Has the background write a rewritten file home soon, unless it is emptied once more before that.
    pub(super) fn hurry(&self, inode: &Arc<H::Inode>, rewriting: u64) {
        self.work.lock().urgent.push((Arc::clone(inode), rewriting));
        self.wake.notify_one();
    }

    /// Whether anything is to be found after the mount.
    pub(super) fn keeps(&self) -> bool {
        self.home.profile().keeps()
    }

    /// Dirty pages above which writers help to write: three quarters of the pool. In the scratch profile all that
    /// read misses and partial overwrites can spare, for there is nothing to be gained by writing earlier.
    fn dirty_limit(&self) -> usize {
        match self.home.profile() {
            Profile::Durable => self.pool.len() * 3 / 4,
            Profile::Spilling { .. } => self.pool.len() * 7 / 8,
            Profile::InMemory => usize::MAX,
        }
    }

    /// Dirty pages that the background leaves.
    fn dirty_target(&self) -> usize {
        match self.home.profile() {
            Profile::Durable => self.pool.len() / 2,
            Profile::Spilling { .. } | Profile::InMemory => {
                let limit = self.dirty_limit();
                limit - (limit / 8).min(2 * BATCH_PAGES)
            }
        }
    }

    /// Keeps dirty pages below their limit. Called with no lock held.
    pub(super) fn throttle(&self) -> Result<()> {
        let limit = self.dirty_limit();
        if self.pool.dirty() > limit {
            self.work.lock().pressed = true;
            self.wake.notify_one();
            let mut failed = None;
            for _ in 0..4 {
                if self.pool.dirty() <= limit {
                    return Ok(());
                }
                match self.relieve() {
                    Ok(_) => failed = None,
                    Err(e) => failed = Some(e),
                }
            }
            return failed.map_or(Ok(()), Err);
        }
        Ok(())
    }

    /// `count` frames, writing dirty pages home to get them. Called with no lock held.
    ///
    /// # Errors
    /// What kept all files from being written; ENOSPC if there is neither memory nor spill space.
    pub(super) fn frames(&self, count: usize) -> Result<Vec<Fresh<'_>>> {
        let (mut failures, mut idle) = (0, 0);
        let mut written = self.counters.written.get();
        loop {
            if let Some(taken) = self.pool.take_many(count) {
                return Ok(taken);
            }
            let files = self.work.lock().files.len();
            match self.relieve() {
                Ok(true) => failures = 0,
                Ok(false) => thread::yield_now(),
                Err(e) if failures > files => return Err(e),
                Err(_) => failures += 1,
            }
            let now = self.counters.written.get();
            idle = if now == written { idle + 1 } else { 0 };
            written = now;
            if !self.keeps() && idle > IDLE_TRIES + 2 * self.pool.len().div_ceil(BATCH_PAGES) + files {
                return Err(Error::Errno(libc::ENOSPC));
            }
        }
    }

    /// Writes a batch of the file that waits longest; false if there is none.
    fn relieve(&self) -> Result<bool> {
        if self.home.profile() == Profile::InMemory {
            return Ok(false);
        }
        let inode = {
            let mut work = self.work.lock();
            let Some((_, listed)) = work.files.pop_first() else { return Ok(false) };
            let inode = Arc::clone(&listed.inode);
            inode.data().state.lock().listed = Some(work.next);
            work.append(listed);
            inode
        };
        let result = self.write_pressed(&inode);
        self.unlist(&inode);
        result.map(|()| true)
    }

    /// Takes a file off the list, should it be idle.
    fn unlist(&self, inode: &H::Inode) {
        let mut work = self.work.lock();
        let listed = inode.data().state.lock().listed;
        if let Some(number) = listed
            && Self::leaves_list(inode)
        {
            work.files.remove(&number);
        }
    }

    /// The same by a caller who has the write-back mutex.
    pub(super) fn unlist_quiet(&self, data: &FileData) {
        let mut work = self.work.lock();
        let listed = data.state.lock().listed;
        if let Some(number) = listed
            && Self::leaves_list_quiet(data)
        {
            work.files.remove(&number);
        }
    }

    /// Every file with something to write, for a sync of all.
    pub(super) fn listed(&self) -> Vec<Arc<H::Inode>> {
        self.work.lock().files.values().map(|listed| Arc::clone(&listed.inode)).collect()
    }

    /// Takes idle files off the list.
    pub(super) fn tidy(&self) {
        self.work.lock().files.retain(|_, listed| !Self::leaves_list(&listed.inode));
    }

    /// Writes old, urgent and pressing data home until [`DataPath::stop`]; to be run by a thread of its own.
    /// It sleeps while there is nothing to write.
    pub fn run_background(&self) {
        loop {
            let (rewritten, due, pressed) = {
                let mut work = self.work.lock();
                loop {
                    if work.stop {
                        return;
                    }
                    let rewritten = std::mem::take(&mut work.urgent);
                    let mut due = Vec::new();
                    let now = Instant::now();
                    let expire = self.options.expire;
                    for listed in work.files.values_mut().filter(|_| self.keeps()) {
                        if now.duration_since(listed.since) < expire {
                            continue;
                        }
                        // What was emptied since then may be half rewritten; and nothing of it is older.
                        let emptied = listed.inode.data().state.lock().emptied_at;
                        match emptied.filter(|at| now.duration_since(*at) < expire) {
                            Some(emptied) => listed.since = emptied,
                            None => {
                                due.push(Arc::clone(&listed.inode));
                                listed.since = now;
                            }
                        }
                    }
                    let pressed = std::mem::take(&mut work.pressed);
                    if !rewritten.is_empty() || !due.is_empty() || pressed {
                        break (rewritten, due, pressed);
                    }
                    match work.files.values().map(|listed| listed.since).min() {
                        Some(since) if self.keeps() => {
                            self.wake.wait_for(&mut work, (since + expire).duration_since(now));
                        }
                        _ => self.wake.wait(&mut work),
                    }
                }
            };
            // A failure is noted in the file and told to whoever syncs it; the pages stay dirty.
            for (inode, rewriting) in rewritten {
                let _ = self.write_rewritten(&inode, rewriting);
            }
            for inode in due {
                let _ = self.write_home(&inode);
            }
            let target = self.dirty_target();
            while pressed && self.pool.dirty() > target {
                if !matches!(self.relieve(), Ok(true)) {
                    break;
                }
            }
            self.tidy();
        }
    }

    /// Ends [`DataPath::run_background`].
    pub fn stop(&self) {
        self.work.lock().stop = true;
        self.wake.notify_all();
    }

    /// Whether some truncation waits to be recorded.
    pub(super) fn has_deferred(&self) -> bool {
        // Acquire: pairs with the Release of the increment in `defer`: a truncation that returned before an
        // fsync began is seen by it.
        self.deferred_count.load(Ordering::Acquire) > 0
    }

    pub(super) fn defer(&self, inode: &Arc<H::Inode>) {
        let mut deferred = self.deferred.lock();
        deferred.insert(inode.nid(), Arc::clone(inode));
        // Release: pairs with `has_deferred`.
        self.deferred_count.store(deferred.len(), Ordering::Release);
    }

    pub(super) fn undefer(&self, nid: Nid) {
        let mut deferred = self.deferred.lock();
        deferred.remove(&nid);
        // Release: pairs with `has_deferred`.
        self.deferred_count.store(deferred.len(), Ordering::Release);
    }
}

/// The page of a byte.
pub(super) fn page_of(offset: u64) -> u64 {
    offset / PAGE
}

/// The first page that begins at or after a byte.
pub(super) fn page_after(offset: u64) -> u64 {
    offset.div_ceil(PAGE)
}

/// EFBIG unless a file may be as long.
pub(super) fn check_size(size: u64) -> Result<()> {
    if size > MAX_FILE_SIZE { Err(Error::Errno(libc::EFBIG)) } else { Ok(()) }
}
