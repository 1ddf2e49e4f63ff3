//! What a file system at work has done so far: every counter in one place, for whoever watches it.

use crate::checkpoint::CheckpointStats;
use crate::device::CauseCount;
use crate::file::DataStats;
use crate::format::{JournalKind, SLOT_SIZE};
use crate::journal::{Durability, JournalStats};
use crate::lock::{LockWaits, lock_waits};
use crate::vfs::{StatFs, Vfs};
use crate::{Result, pmem::DurabilityLevel};

/// Counters since the mount; sizes in bytes.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Stats {
    /// Why nothing can be changed, if so.
    pub read_only: Option<String>,
    /// Whether that is because of damage, or a failure of the device.
    pub failed: bool,
    /// Whether this is scratch space, which nothing outlives: it has no journal and no durability.
    pub scratch: bool,
    /// Where the journal lies.
    pub journal_kind: Option<JournalKind>,
    /// What survives what when fsync has returned: an emulated journal survives the process alone, whatever
    /// was asked for.
    pub durability: Option<DurabilityLevel>,
    /// With `durability=window`, how many nanoseconds the power durability may lag before fsyncs wait for it.
    pub window_ns: Option<u64>,
    /// Bytes of records that a loss of power would take back now, or leave unrecoverable.
    pub power_lag_bytes: u64,
    /// The journal; none where the mount is read-only.
    pub journal: Option<JournalStats>,
    /// Checkpoint rounds, and where their time goes.
    pub checkpoint: CheckpointStats,
    /// Device reads and writes by cause.
    pub device: Vec<CauseCount>,
    /// Flushes of the device.
    pub flushes: u64,
    /// The data path.
    pub data: DataStats,
    /// Metadata pages in memory.
    pub metadata_pages: usize,
    /// Those of them that wait for a checkpoint.
    pub metadata_dirty: usize,
    /// Bytes of them that are kept, about; `None`: nothing bounds them but memory.
    pub metadata_limit: Option<usize>,
    /// Waits by lock class, in lock order; of the whole process.
    pub locks: Vec<LockWaits>,
    /// Room and use.
    pub room: StatFs,
}

impl Stats {
    /// The counters of a file system.
    ///
    /// # Errors
    /// Those of [`Vfs::statfs`].
    pub fn of(fs: &Vfs) -> Result<Stats> {
        let store = fs.meta().store();
        let journal = store.journal().map(|j| j.stats());
        let (metadata_pages, metadata_dirty) = store.pages();
        let journal_kind =
            JournalKind::from_u32(store.superblock().journal_kind.get()).unwrap_or(JournalKind::Ssd);
        let keeps = store.profile().keeps();
        let emulated = journal_kind == JournalKind::Emulated;
        let lag =
            journal.map_or(0, |j| j.tail.saturating_sub(if emulated { j.head } else { j.committed_power }));
        let durability = fs.meta().durability();
        let window_ns = match durability {
            Durability::Window(window) => Some(window.as_nanos() as u64),
            Durability::Process | Durability::Power => None,
        };
        let power = durability == Durability::Power && !emulated;
        Ok(Stats {
            read_only: store.failed().or_else(|| fs.options().read_only.then(|| "mounted so".into())),
            failed: store.is_broken(),
            scratch: !keeps,
            journal_kind: keeps.then_some(journal_kind),
            durability: keeps.then_some(if power {
                DurabilityLevel::Power
            } else {
                DurabilityLevel::Process
            }),
            window_ns,
            power_lag_bytes: lag * SLOT_SIZE as u64,
            journal,
            checkpoint: fs.checkpointer().stats(),
            device: store.device().counters(),
            flushes: store.device().flushes(),
            data: fs.data().stats(),
            metadata_pages,
            metadata_dirty,
            metadata_limit: Some(store.budget()).filter(|_| keeps),
            locks: lock_waits().to_vec(),
            room: fs.statfs()?,
        })
    }
}
