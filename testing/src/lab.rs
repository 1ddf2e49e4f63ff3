//! File systems on simulated media, for one thread: no background work, so that what happens follows from the
//! operations alone.

#[cfg(feature = "baselines")]
use narufs_engine::baseline::Baselines;
use narufs_engine::clock::Clock;
use narufs_engine::device::{BlockDevice, Cause, Request};
use narufs_engine::error::{Error, Result};
use narufs_engine::file::DataOptions;
use narufs_engine::format::{JournalKind, Position};
use narufs_engine::fsck;
use narufs_engine::journal::{Durability, ring_bytes};
use narufs_engine::mkfs::{FormatOptions, format_cramped};
use narufs_engine::pmem::DurabilityLevel;
use narufs_engine::sim::{Event, PmemSpec, SimMedia};
use narufs_engine::store::{Observer, StoreOptions, WriteHome};
use narufs_engine::sync::Counter;
use narufs_engine::takeover::Takeover;
use narufs_engine::vfs::{AtimePolicy, Vfs, VfsOptions};
use narufs_engine::volume::{AssembleOptions, Running};
use narufs_engine::volume::{ImageOptions, Media, Mounted, RingMedia, mount};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The window of [`Ring::SsdWindow`].
pub const WINDOW: Duration = Duration::from_millis(100);

/// The journal under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// In the image, staged in memory that a loss of power takes; fsync waits for the image.
    Ssd,
    /// In the image; fsync waits for the image where that lags by [`WINDOW`], else for the staging alone.
    SsdWindow,
    /// In the image; fsync waits for the staging alone.
    SsdProcess,
    /// In persistent memory.
    Nvm,
}

impl Ring {
    /// Every one.
    pub const ALL: [Ring; 4] = [Ring::Ssd, Ring::SsdWindow, Ring::SsdProcess, Ring::Nvm];

    /// Whether records lie in memory that survives the loss of power.
    pub fn is_mapped(self) -> bool {
        self == Ring::Nvm
    }

    /// What fsync waits for.
    pub fn durability(self) -> Durability {
        match self {
            Ring::Ssd | Ring::Nvm => Durability::Power,
            Ring::SsdWindow => Durability::Window(WINDOW),
            Ring::SsdProcess => Durability::Process,
        }
    }

    /// Whether an fsync may be answered before it survives a loss of power.
    pub fn may_lag(self) -> bool {
        self.durability() != Durability::Power
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
    /// Threads that write home, at the most: with more than one not everything follows from the operations alone.
    pub writers: usize,
    /// What is done in the old way.
    #[cfg(feature = "baselines")]
    pub baselines: Baselines,
}

impl Lab {
    /// So small that laps, rounds of several batches, eviction and reuse happen within a few operations.
    pub fn tiny(ring: Ring) -> Lab {
        Lab {
            ring,
            blocks: 1024,
            slots: 1024,
            double_write: 5,
            frames: 16,
            dirty: 12,
            writers: 1,
            #[cfg(feature = "baselines")]
            baselines: Baselines::default(),
        }
    }

    /// Sizes at which nothing is scarce.
    pub fn roomy(ring: Ring) -> Lab {
        Lab { blocks: 16_384, slots: 8192, double_write: 64, frames: 2048, dirty: 4096, ..Lab::tiny(ring) }
    }

    /// Whether an operation that has returned, and was not synced, may be lost with the process.
    pub fn keeps_in_memory(&self) -> bool {
        #[cfg(feature = "baselines")]
        return self.baselines.journal.keeps_in_memory();
        #[cfg(not(feature = "baselines"))]
        false
    }

    fn spec(&self) -> PmemSpec {
        let len = ring_bytes(self.slots).unwrap_or(usize::MAX);
        let durability =
            if self.ring.is_mapped() { DurabilityLevel::Power } else { DurabilityLevel::Process };
        PmemSpec { len, durability }
    }

    /// Fresh media with a file system.
    pub fn format(&self) -> SimMedia {
        let sim = SimMedia::new(self.blocks, &[self.spec()]);
        // What was on the device before is no zeros: who shows it is noticed.
        let blocks = self.blocks.try_into().expect("labs are small");
        let old = Request::discard(0, blocks, Cause::Superblock);
        sim.device().run(vec![old]).expect("the simulated device has no fault");
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
        Media { device: sim.device(), ring, staging_file: None, owner: None }
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
        self.mount_with(sim, None)
    }

    /// The same by a server that others have come before, or may come after.
    ///
    /// # Errors
    /// As [`Lab::mount`].
    pub fn mount_with(&self, sim: &SimMedia, takeover: Option<Arc<Takeover>>) -> Result<Live> {
        let time = Arc::new(Counter::new());
        let options = ImageOptions {
            clock: Clock::moved_by(Arc::clone(&time)),
            background: false,
            lanes: 1,
            commit_interval: Duration::MAX,
            takeover: takeover.clone(),
            store: StoreOptions {
                budget: 16 << 20,
                dirty_limit: self.dirty * 4096,
                write_home: WriteHome { threads: Some(self.writers), ..WriteHome::default() },
                #[cfg(feature = "baselines")]
                baselines: self.baselines,
                ..StoreOptions::default()
            },
            ..ImageOptions::default()
        };
        let mounted = mount(self.media(sim), &options)?;
        let options = AssembleOptions {
            fs: VfsOptions { atime: AtimePolicy::Never, ..VfsOptions::default() },
            data: DataOptions::with_memory(self.frames * 4096),
            durability: self.ring.durability(),
            inodes: 64,
            step: 32,
            background: false,
            takeover,
        };
        if let Some(why) = mounted.store().failed() {
            return Err(Error::ReadOnly(why));
        }
        let running = Running::start(mounted.checkpointer(), &options)?;
        let in_round = Arc::new(InRound::default());
        mounted.store().observe(&in_round);
        Ok(Live { running, mounted, in_round, time })
    }
}

/// What is to be done in the midst of a checkpoint round.
#[derive(Default)]
struct InRound {
    what: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// At the beginning.
    first: AtomicBool,
}

impl InRound {
    fn set(&self, first: bool, what: Box<dyn FnOnce() + Send>) {
        *self.what.lock() = Some(what);
        // Relaxed: one thread.
        self.first.store(first, Ordering::Relaxed);
    }

    fn run(&self) {
        let what = self.what.lock().take();
        if let Some(what) = what {
            what();
        }
    }
}

impl Observer for InRound {
    fn pre_checkpoint(&self, _upto: Position) -> Result<()> {
        // Relaxed: one thread.
        if self.first.load(Ordering::Relaxed) {
            self.run();
        }
        Ok(())
    }
}

/// A mounted file system. Dropped, it is left as a killed process leaves it.
pub struct Live {
    running: Running,
    mounted: Mounted,
    in_round: Arc<InRound>,
    time: Arc<Counter>,
}

impl Live {
    /// The operations.
    pub fn fs(&self) -> &Arc<Vfs> {
        self.running.fs()
    }

    /// An error if the file system is damaged or failed.
    ///
    /// # Errors
    /// Why it is read-only.
    pub fn sound(&self) -> Result<()> {
        self.mounted.store().check_writable()
    }

    /// A checkpoint round.
    ///
    /// # Errors
    /// What could not be written.
    pub fn checkpoint(&self) -> Result<()> {
        self.mounted.checkpointer().checkpoint()
    }

    /// The time since the mount, which passes only where it is made to.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.time.get())
    }

    /// Lets time pass.
    pub fn pass(&self, time: Duration) {
        self.time.add(time.as_nanos() as u64);
    }

    /// What the streaming thread would do now.
    ///
    /// # Errors
    /// What could not be written.
    pub fn stream(&self) -> Result<()> {
        let store = self.mounted.store();
        let lag = store.journal().map_or(0, |journal| journal.stats().power_lag_ns);
        if Duration::from_nanos(lag) < WINDOW / 2 { Ok(()) } else { store.keep_promises() }
    }

    /// Runs a checkpoint round, and something in its midst: after the commit to whose end the head will move and
    /// before anything goes home, or where so many writes of images, the double-write area's first, were issued.
    /// (Not within a commit or where file data goes home: what runs could wait for the very thread it runs on.)
    ///
    /// # Errors
    /// What could not be written.
    pub fn in_round(
        &self,
        sim: &SimMedia,
        writes: usize,
        what: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let in_round = Arc::clone(&self.in_round);
        in_round.set(writes == 0, Box::new(what));
        let sb = self.mounted.store().superblock();
        let area = self.double_write();
        let ring = sb.ring_start.get()..sb.ring_start.get() + sb.ring_blocks.get();
        let issued = AtomicUsize::new(0);
        sim.set_hook(Some(Arc::new(move |_, event| {
            let Event::WriteIssued { block, .. } = event else { return };
            // Relaxed: one thread.
            let counts = area.contains(block) || issued.load(Ordering::Relaxed) > 0 && !ring.contains(block);
            if counts && issued.fetch_add(1, Ordering::Relaxed) + 1 == writes {
                in_round.run();
            }
        })));
        let done = self.mounted.checkpointer().checkpoint();
        sim.set_hook(None);
        // A round that has nothing to do asks nobody.
        self.in_round.run();
        done
    }

    /// The blocks of the double-write area.
    pub fn double_write(&self) -> std::ops::Range<u64> {
        let sb = self.mounted.store().superblock();
        sb.dw_start.get()..sb.dw_start.get() + sb.dw_blocks.get()
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
