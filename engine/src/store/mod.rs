//! The store: metadata pages by block number, and the operations that change them.
//!
//! It brings pages into memory once, verified; bounds what they take; lets a [`Handle`] change several of
//! them atomically through the journal; and knows which are dirty. It knows nothing of what the pages mean,
//! and takes no lock on behalf of its callers. Writing pages home is the checkpoint's.

mod begin;
mod broken_off;
#[cfg(feature = "baselines")]
mod buffer;
mod changes;
mod delta;
mod dirty;
mod failures;
mod handle;
mod load;
mod log;
#[cfg(all(test, loom))]
mod loom_models;
mod make_room;
mod observers;
mod page;
mod profile;
mod redo;
mod signal;
mod table;
mod throttle;

pub use delta::{DELTA_HEADER_SIZE, Delta, Deltas, Encoder, MAX_DATA, decode};
pub use handle::Handle;
pub use log::Log;
pub use observers::Observer;
pub use page::{Page, PageRef};
pub use profile::Profile;
pub use signal::Signal;

pub(crate) use broken_off::BrokenOff;
pub(crate) use delta::fill_bits;
pub(crate) use load::verify;
pub(crate) use make_room::{MakeRoom, Short};
pub(crate) use signal::Woken;

#[cfg(feature = "baselines")]
use crate::baseline::Baselines;
use crate::device::{BLOCK_SIZE, BlockDevice};
use crate::format::{Position, Superblock, checksum_seed};
use crate::journal::{Done, Durability, MountJournal};
use crate::pmem::DurabilityLevel;
use crate::superblock::Bounds;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use crate::{Error, Result};

use dirty::DirtyPages;
use failures::Failures;
use observers::Observers;
use table::PageTable;

/// What a store may use.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Bytes of metadata pages kept in memory (dirty ones may exceed it).
    pub budget: usize,
    /// Bytes of dirty pages at which a checkpoint starts; at twice as many, operations wait.
    pub dirty_limit: usize,
    /// What outlives the mount.
    pub profile: Profile,
    /// How checkpoint rounds write.
    pub write_home: WriteHome,
    /// What is done in the old way.
    #[cfg(feature = "baselines")]
    pub baselines: Baselines,
}

/// How checkpoint rounds write pages home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteHome {
    /// Threads at the most; without, as many as keep the device busy ([`BlockDevice::submitters`]).
    pub threads: Option<usize>,
    /// Neighbouring pages that share a request, at the most.
    pub neighbours: usize,
}

impl Default for WriteHome {
    fn default() -> Self {
        WriteHome { threads: None, neighbours: 64 }
    }
}

impl StoreOptions {
    /// Pages within about `bytes`, the dirty ones among them: their limit is such that operations wait in time.
    pub fn with_memory(bytes: usize) -> StoreOptions {
        let usual = StoreOptions::default();
        StoreOptions { budget: bytes, dirty_limit: usual.dirty_limit.min(bytes / 5 * 2), ..usual }
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            budget: 256 << 20,
            dirty_limit: 64 << 20,
            profile: Profile::Durable,
            write_home: WriteHome::default(),
            #[cfg(feature = "baselines")]
            baselines: Baselines::default(),
        }
    }
}

/// Why a file system is read-only that was to be.
pub(crate) const MOUNTED_SO: &str = "it was mounted so";

/// The metadata pages of one image; shared through an [`Arc`].
pub struct Store {
    device: Arc<dyn BlockDevice>,
    superblock: Superblock,
    /// As media hold it; locked while it is written.
    on_media: Mutex<Superblock>,
    /// Blocks of the image: grown by [`Store::set_blocks`].
    blocks: AtomicU64,
    seed: u32,
    log: Log,
    table: PageTable,
    pub(crate) dirty: DirtyPages,
    pub(crate) dirty_limit: usize,
    budget: usize,
    profile: Profile,
    write_home: WriteHome,
    #[cfg(feature = "baselines")]
    baselines: Baselines,
    observers: Observers,
    pub(crate) failures: Failures,
    make_room: OnceLock<Weak<dyn MakeRoom>>,
    signal: Arc<Signal>,
    read_only: OnceLock<String>,
}

impl Store {
    /// A store over a device whose superblock says what is where.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        superblock: Superblock,
        log: Log,
        options: &StoreOptions,
    ) -> Store {
        let dirty_limit = (options.dirty_limit / BLOCK_SIZE).max(1);
        Store {
            seed: checksum_seed(&superblock.uuid),
            table: PageTable::new(options.budget),
            dirty: DirtyPages::new(dirty_limit),
            dirty_limit,
            budget: options.budget,
            profile: options.profile,
            write_home: WriteHome { neighbours: options.write_home.neighbours.max(1), ..options.write_home },
            #[cfg(feature = "baselines")]
            baselines: options.baselines,
            observers: Observers::default(),
            failures: Failures::default(),
            make_room: OnceLock::new(),
            signal: Arc::default(),
            read_only: OnceLock::new(),
            device,
            on_media: Mutex::new(superblock),
            blocks: AtomicU64::new(superblock.blocks.get()),
            superblock,
            log,
        }
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// The superblock as it was at the mount: identity, and the geometry of all that does not grow.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The superblock that media hold: whoever writes it keeps the lock meanwhile.
    pub(crate) fn superblock_on_media(&self) -> MutexGuard<'_, Superblock> {
        self.on_media.lock()
    }

    /// Where blocks can be that belong to files and directories.
    pub fn bounds(&self) -> Bounds {
        // Acquire: pairs with the Release of `set_blocks`.
        let blocks = self.blocks.load(Ordering::Acquire);
        Bounds { groups_start: self.superblock.groups_start.get(), blocks }
    }

    /// The image has grown: media say so, and the bitmaps of the groups that are new lie there.
    pub(crate) fn set_blocks(&self, blocks: u64) {
        // Release: the bitmaps are there for who reads the bound.
        self.blocks.store(blocks, Ordering::Release);
    }

    /// What outlives the mount.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// How checkpoint rounds write.
    pub(crate) fn write_home(&self) -> WriteHome {
        self.write_home
    }

    /// What is done in the old way.
    #[cfg(feature = "baselines")]
    pub(crate) fn baselines(&self) -> Baselines {
        self.baselines
    }

    /// The seed of the image's checksums.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// The journal; none in the scratch profile, or where the mount is read-only for want of one.
    pub fn journal(&self) -> Option<&Arc<MountJournal>> {
        self.log.journal()
    }

    /// Gives the store its journal, once, after recovery: from now on it can be changed.
    pub(crate) fn attach(&self, journal: Arc<MountJournal>) {
        if let Log::Durable(place) = &self.log
            && place.set(journal).is_err()
        {
            unreachable!("the journal is attached once, by the mount");
        }
    }

    /// The next position to be reserved: what is logged from now on lies at or above it, and every operation
    /// that returned before lies below.
    pub fn tail(&self) -> Position {
        self.log.tail()
    }

    /// Returns once every record below `upto` is durable as wanted; may sleep. One commit serves many.
    pub fn commit_upto(&self, upto: Position, durability: Durability) -> Result<()> {
        self.log.commit_upto(upto, durability)?;
        self.tell_durable();
        Ok(())
    }

    /// Returns once every operation that has returned, of those below `upto`, is durable as wanted; may sleep. See
    /// [`MountJournal::settle_upto`].
    pub fn settle_upto(&self, upto: Position, durability: Durability) -> Result<()> {
        self.log.settle_upto(upto, durability)?;
        self.tell_durable();
        Ok(())
    }

    /// As [`Store::settle_upto`], but does not wait for another's commit: `done` is called with the outcome, see
    /// [`MountJournal::commit_then`].
    pub fn commit_then(self: &Arc<Self>, upto: Position, durability: Durability, done: Done) {
        let Some(journal) = self.journal() else { return done(self.settle_upto(upto, durability)) };
        let store = Arc::clone(self);
        let told = move |outcome: Result<()>| {
            if outcome.is_ok() {
                store.tell_durable();
            }
            done(outcome);
        };
        journal.commit_then(upto, durability, Box::new(told));
    }

    /// Returns once everything is durable against a loss of power that an fsync was answered for.
    pub fn keep_promises(&self) -> Result<()> {
        let Some(journal) = self.journal() else { return Ok(()) };
        journal.keep_promises()?;
        self.tell_durable();
        Ok(())
    }

    /// The same by one whose locks others wait for; every record below `upto` is durable, too.
    pub fn keep_promises_briefly(&self, upto: Position) -> Result<()> {
        let Some(journal) = self.journal() else { return Ok(()) };
        journal.keep_promises_briefly(upto)?;
        self.tell_durable();
        Ok(())
    }

    /// Every record below is durable at this level.
    pub fn committed(&self, durability: DurabilityLevel) -> Position {
        self.log.committed(durability)
    }

    /// What wakes the background thread.
    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// Makes the file system read-only until it is mounted anew; the first reason counts. One failure is told of once: what
    /// follows from one of the journal's is not another.
    pub fn fail(&self, why: impl Into<String>) {
        let mut why = why.into();
        let is_first = match self.journal() {
            Some(journal) => {
                let is_first = journal.stop(why.clone());
                // Whoever is woken by its end may be here first: the reason is the journal's all the same.
                why = journal.failed().unwrap_or(why);
                let _ = self.read_only.set(why.clone());
                is_first
            }
            None => self.read_only.set(why.clone()).is_ok(),
        };
        if is_first {
            tracing::error!(reason = %why, "it goes read-only: save what is not elsewhere, unmount, run narufs fsck");
        }
        self.signal.wake_throttled();
    }

    /// Makes it read-only from the start, with the reason that changes will be answered with.
    pub(crate) fn mount_read_only(&self, why: String) {
        // Already set: then for an older reason, which stays.
        let _ = self.read_only.set(why);
    }

    /// Why it is read-only, if it is.
    pub fn failed(&self) -> Option<String> {
        self.read_only.get().cloned().or_else(|| self.log.failed())
    }

    /// Whether that is because of damage or a failure, and nobody asked for it.
    pub fn is_broken(&self) -> bool {
        self.failed().is_some_and(|why| why != MOUNTED_SO)
    }

    /// An error if the file system is read-only.
    pub fn check_writable(&self) -> Result<()> {
        match self.failed() {
            Some(why) => Err(Error::ReadOnly(why)),
            None => Ok(()),
        }
    }

    /// Metadata pages in memory, and how many of them are dirty.
    pub fn pages(&self) -> (usize, usize) {
        (self.table.len(), self.dirty.count())
    }

    /// Bytes of pages that are kept in memory, about.
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// An error if a block number from media lies outside the image.
    fn check_block(&self, block: u64) -> Result<()> {
        let blocks = self.bounds().blocks;
        if block < blocks && block > 1 {
            return Ok(());
        }
        Err(Error::Corrupt {
            what: "pointer to a metadata block",
            place: format!("block {block}"),
            detail: format!("it lies outside blocks 2 to {}", blocks.saturating_sub(1)),
        })
    }
}

#[cfg(test)]
mod tests;
