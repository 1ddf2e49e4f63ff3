//! File systems on simulated media, for one thread: no background work, so that what happens follows from the
//! operations alone.

use narufs::device::BlockDevice;
use narufs::error::{Error, Result};
use narufs::file::DataOptions;
use narufs::format::JournalKind;
use narufs::fsck;
use narufs::journal::{Wanted, ring_bytes};
use narufs::mkfs::{FormatOptions, format_cramped};
use narufs::mount::{Media, MountOptions, Mounted, RingMedia, mount};
use narufs::pmem::Horizon;
use narufs::sim::{PmemSpec, SimMedia};
use narufs::store::StoreOptions;
use narufs::vfs::{AssembleOptions, AtimePolicy, Fs, FsOptions, Running};
use std::sync::Arc;
use std::time::Duration;

/// The journal under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// In the image, staged in memory that a loss of power takes; fsync waits for the image.
    Ssd,
    /// In the image; fsync waits for the staging alone.
    SsdProcess,
    /// In persistent memory.
    Nvm,
}

impl Ring {
    /// Every one.
    pub const ALL: [Ring; 3] = [Ring::Ssd, Ring::SsdProcess, Ring::Nvm];

    /// Whether records lie in memory that survives the loss of power.
    pub fn is_mapped(self) -> bool {
        self == Ring::Nvm
    }
}

/// Sizes of a file system under test.
#[derive(Debug, Clone, Copy)]
pub struct Lab {
    /// The journal.
    pub ring: Ring,
    /// Blocks of the image.
    pub blocks: u64,
    /// Slots of the journal.
    pub slots: u64,
    /// Blocks of the double-write area.
    pub double_write: u64,
    /// Frames of the page cache.
    pub frames: u64,
    /// Pages of metadata that may be dirty before a checkpoint starts.
    pub dirty: usize,
}

impl Lab {
    /// So small that laps, rounds of several batches, eviction and reuse happen within a few operations.
    pub fn tiny(ring: Ring) -> Lab {
        Lab { ring, blocks: 1024, slots: 1024, double_write: 5, frames: 16, dirty: 12 }
    }

    /// Sizes at which nothing is scarce.
    pub fn roomy(ring: Ring) -> Lab {
        Lab { ring, blocks: 16_384, slots: 8192, double_write: 64, frames: 2048, dirty: 4096 }
    }

    fn spec(&self) -> PmemSpec {
        let len = ring_bytes(self.slots).unwrap_or(usize::MAX);
        let horizon = if self.ring.is_mapped() { Horizon::Power } else { Horizon::Process };
        PmemSpec { len, horizon }
    }

    /// Fresh media with a file system.
    pub fn format(&self) -> SimMedia {
        let sim = SimMedia::new(self.blocks, &[self.spec()]);
        self.format_device(sim.device().as_ref());
        sim
    }

    /// A file system of these sizes on any device.
    pub fn format_device(&self, device: &dyn BlockDevice) {
        let options = FormatOptions {
            journal_slots: Some(self.slots),
            double_write_blocks: Some(self.double_write),
            journal: if self.ring.is_mapped() { JournalKind::Pmem } else { JournalKind::Ssd },
            sparse: true,
            uuid: Some([7; 16]),
            ring_uuid: Some([8; 16]),
            hash_key: Some([9; 16]),
            now: 0,
            ..FormatOptions::default()
        };
        format_cramped(device, &options).expect("the device is large enough");
    }

    /// The media as a new process finds them.
    fn media(&self, sim: &SimMedia) -> Media {
        // A loss of power took the staging.
        let memory = sim.pmem(0).or_else(|| sim.pmem(sim.add_pmem(self.spec())));
        let memory = memory.expect("just added");
        let ring = if self.ring.is_mapped() { RingMedia::Mapped(memory) } else { RingMedia::Ssd(memory) };
        Media { device: sim.device(), ring, staging_file: None }
    }

    /// Checks an image that is not mounted.
    ///
    /// # Errors
    /// The issues, one a line.
    pub fn check(&self, sim: &SimMedia) -> Result<(), String> {
        let report =
            fsck::check(&self.media(sim), &fsck::Options::default()).map_err(|e| format!("fsck: {e}"))?;
        let lines: Vec<String> = report.issues.iter().map(|issue| format!("fsck: {issue:?}")).collect();
        if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
    }

    /// Mounts, recovering what a crash has left.
    ///
    /// # Errors
    /// What the mount or the recovery says.
    pub fn mount(&self, sim: &SimMedia) -> Result<Live> {
        let options = MountOptions {
            background: false,
            lanes: 1,
            commit_interval: Duration::MAX,
            store: StoreOptions { budget: 16 << 20, dirty_limit: self.dirty * 4096 },
            ..MountOptions::default()
        };
        let mounted = mount(self.media(sim), &options)?;
        let options = AssembleOptions {
            fs: FsOptions { atime: AtimePolicy::Never, ..FsOptions::default() },
            data: DataOptions::with_memory(self.frames * 4096),
            wanted: if self.ring == Ring::SsdProcess { Wanted::Process } else { Wanted::Power },
            inodes: 64,
            step: 32,
            background: false,
        };
        if let Some(why) = mounted.store().failed() {
            return Err(Error::ReadOnly(why));
        }
        let running = Running::start(mounted.store(), &options)?;
        Ok(Live { running, mounted })
    }
}

/// A mounted file system. Dropped, it is left as a killed process leaves it.
pub struct Live {
    running: Running,
    mounted: Mounted,
}

impl Live {
    /// The operations.
    pub fn fs(&self) -> &Arc<Fs> {
        self.running.fs()
    }

    /// An error if the file system is damaged or failed.
    ///
    /// # Errors
    /// Why it is read-only.
    pub fn sound(&self) -> Result<()> {
        self.mounted.store().check_writable()
    }

    /// Free blocks.
    ///
    /// # Errors
    /// In words.
    pub fn free(&self) -> Result<u64, String> {
        self.fs().statfs().map(|s| s.blocks_free).map_err(|e| format!("statfs: {e}"))
    }

    /// Unmounts cleanly.
    ///
    /// # Errors
    /// What could not be written.
    pub fn unmount(self) -> Result<()> {
        self.running.stop()?;
        self.mounted.unmount()
    }
}
