//! The data path of one mounted image: its frames, its list of files to write, its threads.

use super::{DataInode, Home, Mapping};
use crate::cache::{CacheStats, FramePool, Fresh};
use crate::device::BLOCK_SIZE;
use crate::format::{MAX_FILE_SIZE, Nid};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, LaneCounter, Mutex, thread};
use crate::{Error, Result};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

pub(super) const PAGE: u64 = BLOCK_SIZE as u64;
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
    files: VecDeque<Listed<I>>,
    /// Rewritten files, and which rewriting is to go home.
    urgent: Vec<(Arc<I>, u64)>,
    pressed: bool,
    stop: bool,
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
                files: VecDeque::new(),
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
        let mut state = inode.data().state.lock();
        if !std::mem::replace(&mut state.listed, true) {
            drop(state);
            let mut work = self.work.lock();
            work.files.push_back(Listed { inode: Arc::clone(inode), since: Instant::now() });
            if work.files.len() == 1 {
                self.wake.notify_one();
            }
        }
    }

    /// Takes a file off the list if nothing of it is left to write.
    fn unlist_idle(work: &mut Work<H::Inode>) {
        work.files.retain(|listed| {
            let data = listed.inode.data();
            // Pages in the hands of a write-back are in no set, and come back if it fails.
            let Some(_nothing_in_flight) = data.write_back.try_lock() else { return true };
            let mut state = data.state.lock();
            let idle = state.dirty.is_empty()
                && state.synced.is_empty()
                && !state.doomed
                && data.size() == data.logged_size();
            if idle {
                state.listed = false;
            }
            !idle
        });
    }

    /// Has the background write a rewritten file home soon, unless it is emptied once more before that.
    pub(super) fn hurry(&self, inode: &Arc<H::Inode>, rewriting: u64) {
        self.work.lock().urgent.push((Arc::clone(inode), rewriting));
        self.wake.notify_one();
    }

    /// Keeps dirty pages below three quarters of the pool. Called with no lock held.
    pub(super) fn throttle(&self) -> Result<()> {
        let limit = self.pool.len() * 3 / 4;
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
    pub(super) fn frames(&self, count: usize) -> Result<Vec<Fresh<'_>>> {
        let mut failures = 0;
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
        }
    }

    /// Writes a batch of the file that waits longest; false if there is none.
    fn relieve(&self) -> Result<bool> {
        let inode = {
            let mut work = self.work.lock();
            let Some(listed) = work.files.pop_front() else { return Ok(false) };
            let inode = Arc::clone(&listed.inode);
            work.files.push_back(listed);
            inode
        };
        let result = self.write_pressed(&inode);
        Self::unlist_idle(&mut self.work.lock());
        result.map(|()| true)
    }

    /// Every file with something to write, for a sync of all.
    pub(super) fn listed(&self) -> Vec<Arc<H::Inode>> {
        self.work.lock().files.iter().map(|listed| Arc::clone(&listed.inode)).collect()
    }

    /// Takes idle files off the list.
    pub(super) fn tidy(&self) {
        Self::unlist_idle(&mut self.work.lock());
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
                    for listed in &mut work.files {
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
                    match work.files.iter().map(|listed| listed.since).min() {
                        None => self.wake.wait(&mut work),
                        Some(since) => {
                            self.wake.wait_for(&mut work, (since + expire).duration_since(now));
                        }
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
            let target = self.pool.len() / 2;
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
