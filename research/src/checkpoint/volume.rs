//! A file system whose rounds are called for, on an image of its own. Its ring is staged in this process's memory: no
//! file is left outside the image, whatever becomes of the run.

use narufs_engine::Result;
use narufs_engine::checkpoint::CheckpointStats;
use narufs_engine::device::{BlockDevice, ImageFile, PlainDevice, open_device};
use narufs_engine::journal::ring_bytes;
use narufs_engine::mkfs::{self, FormatOptions};
use narufs_engine::pmem::{DurabilityLevel, HeapMemory};
use narufs_engine::store::{StoreOptions, WriteHome};
use narufs_engine::superblock;
use narufs_engine::vfs::Vfs;
use narufs_engine::volume::{self, ImageOptions, Media, Mounted, RingMedia};
use narufs_engine::volume::{AssembleOptions, Running};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Metadata in memory, all of which may be dirty: rounds are called for.
const METADATA: usize = 1 << 30;

/// How the image is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// As a mount does it: by io_uring where the kernel offers it.
    Usual,
    /// By pread and pwrite.
    Plain,
}

impl How {
    /// Opens an image.
    ///
    /// # Errors
    /// What the image says.
    pub fn open(self, image: &Path) -> Result<Arc<dyn BlockDevice>> {
        let image = ImageFile::open(image)?;
        Ok(match self {
            How::Usual => open_device(image),
            How::Plain => Arc::new(PlainDevice::new(image)),
        })
    }
}

/// A mounted file system.
pub struct Volume {
    mounted: Mounted,
    running: Running,
}

impl Volume {
    /// Makes an image of so many blocks, with a journal of so many slots in it.
    ///
    /// # Errors
    /// What mkfs says.
    pub fn format(image: &Path, how: How, blocks: u64, slots: u64) -> Result<()> {
        drop(ImageFile::create(image, blocks)?);
        let options = FormatOptions { journal_slots: Some(slots), ..FormatOptions::default() };
        mkfs::format(&*how.open(image)?, &options).map(drop)
    }

    /// Mounts it, with the threads of a mount or without.
    ///
    /// # Errors
    /// What the mount says.
    pub fn mount(image: &Path, how: How, write_home: WriteHome, background: bool) -> Result<Volume> {
        let device = how.open(image)?;
        let slots = superblock::read(&*device)?.ring_slots.get();
        let len = ring_bytes(slots).unwrap_or(usize::MAX);
        let ring = RingMedia::Ssd(Arc::new(HeapMemory::with_durability(len, DurabilityLevel::Process)));
        let options = ImageOptions {
            store: StoreOptions {
                budget: METADATA,
                dirty_limit: METADATA,
                write_home,
                ..StoreOptions::default()
            },
            commit_interval: Duration::from_secs(3600),
            background,
            ..ImageOptions::default()
        };
        let mounted = volume::mount(Media { device, ring, staging_file: None, owner: None }, &options)?;
        let options = AssembleOptions { background, ..AssembleOptions::default() };
        let running = Running::start(mounted.checkpointer(), &options)?;
        Ok(Volume { mounted, running })
    }

    /// The operations.
    pub fn fs(&self) -> &Arc<Vfs> {
        self.running.fs()
    }

    /// Runs a checkpoint round.
    ///
    /// # Errors
    /// What could not be written.
    pub fn checkpoint(&self) -> Result<()> {
        self.mounted.checkpointer().checkpoint()
    }

    /// What rounds have done.
    pub fn stats(&self) -> CheckpointStats {
        self.mounted.checkpointer().stats()
    }

    /// Writes everything home.
    ///
    /// # Errors
    /// What could not be written.
    pub fn unmount(self) -> Result<()> {
        self.running.stop()?;
        self.mounted.unmount()
    }
}
