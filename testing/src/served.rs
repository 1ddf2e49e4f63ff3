//! An image served at a directory by this process, as `narufs mount` assembles it.

use crate::lab::Ring;
use crate::place::Place;
use narufs_engine::file::DataOptions;
use narufs_engine::pmem::EmulationCosts;
use narufs_engine::store::StoreOptions;
use narufs_engine::vfs::{AtimePolicy, VfsOptions};
use narufs_engine::volume::{AssembleOptions, Running};
use narufs_engine::volume::{ImageOptions, Mounted, mount, open};
use narufs_fuse::mount::{Atime, IfBusy, Transport};
use narufs_fuse::transport::uring::can_be_had;
use narufs_fuse::{Caching, EngineOperations, Server, serve};
use std::path::Path;
use std::time::{Duration, Instant};

/// For so long somebody else may look at a mount that is to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// The server's memory; `None` is what `narufs mount` takes by itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    /// Bytes of the page cache.
    pub data: Option<u64>,
    /// Bytes of the cache of metadata.
    pub metadata: Option<usize>,
}

/// A mount. Dropped, it is left as a killed process leaves it.
pub struct Served<'p> {
    // In this order: nobody asks any more when the engine goes.
    server: Server<EngineOperations>,
    running: Running,
    mounted: Mounted,
    place: &'p Place,
}

/// The ways in which requests reach a server. Root turns io_uring on by asking for it.
///
/// # Errors
/// What is missing on this machine.
pub fn transports() -> Result<[Transport; 2], String> {
    if can_be_had() {
        Ok([Transport::Device, Transport::Uring])
    } else {
        Err("missing: FUSE over io_uring (Linux 6.14), and leave to turn it on".into())
    }
}

/// Mounts for this process, recovering what a crash has left, as `narufs mount` does.
///
/// # Errors
/// What the mount says.
pub fn assemble(image: &Path, ring: Ring, memory: Memory) -> Result<(Mounted, Running), String> {
    assemble_with(image, ring, memory, AtimePolicy::Never)
}

fn assemble_with(
    image: &Path,
    ring: Ring,
    memory: Memory,
    atime: AtimePolicy,
) -> Result<(Mounted, Running), String> {
    let mut options = ImageOptions::default();
    if let Some(bytes) = memory.metadata {
        options.store = StoreOptions { budget: bytes, dirty_limit: bytes / 4, ..StoreOptions::default() };
    }
    let media = open(image, None, EmulationCosts::default(), &options);
    let mounted = media.and_then(|media| mount(media, &options)).map_err(|e| format!("mount: {e}"))?;
    let options = AssembleOptions {
        fs: VfsOptions { atime, ..VfsOptions::default() },
        data: memory.data.map_or_else(DataOptions::default, DataOptions::with_memory),
        durability: ring.durability(),
        ..AssembleOptions::default()
    };
    let running = Running::start(mounted.checkpointer(), &options).map_err(|e| format!("assembly: {e}"))?;
    Ok((mounted, running))
}

impl Served<'_> {
    /// Serves the file system of a place at its directory.
    ///
    /// # Errors
    /// What the mount says.
    pub fn start(
        place: &Place,
        ring: Ring,
        memory: Memory,
        transport: Transport,
    ) -> Result<Served<'_>, String> {
        let (mounted, running) = assemble(&place.image(), ring, memory)?;
        let mut kernel = narufs_fuse::mount::FuseOptions::new("image");
        kernel.transport = transport;
        kernel.atime = Atime::Never;
        Served::with(place, mounted, running, &kernel)
    }

    /// The same as `narufs mount` does it when it is told nothing but the way of requests.
    ///
    /// # Errors
    /// What the mount says.
    pub fn start_usual(place: &Place, ring: Ring, transport: Transport) -> Result<Served<'_>, String> {
        let (mounted, running) =
            assemble_with(&place.image(), ring, Memory::default(), AtimePolicy::Relative)?;
        let mut kernel = narufs_fuse::mount::FuseOptions::new("image");
        kernel.transport = transport;
        Served::with(place, mounted, running, &kernel)
    }

    fn with<'p>(
        place: &'p Place,
        mounted: Mounted,
        running: Running,
        kernel: &narufs_fuse::mount::FuseOptions,
    ) -> Result<Served<'p>, String> {
        let server = serve(running.fs().clone(), &place.point(), kernel, Caching::Exclusive)
            .map_err(|e| format!("serve: {e}"))?;
        Ok(Served { server, running, mounted, place })
    }

    /// Whether the kernel and the server have O_TMPFILE (Linux 6.1).
    pub fn has_tmpfile(&self) -> bool {
        use rustix::fs::{Mode, OFlags, open};
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        open(self.place.point(), flags, Mode::RUSR).is_ok()
    }

    /// Unmounts as users do: refused while somebody uses it; everything is down on return.
    ///
    /// # Errors
    /// Of the unmount, or what could not be written.
    pub fn stop(self) -> Result<(), String> {
        let Served { server, running, mounted, .. } = self;
        // Whoever looks at the mounts of this machine has each for a moment.
        let begin = Instant::now();
        while let Err(e) = server.unmount(IfBusy::Refuse) {
            if e.kind() != std::io::ErrorKind::ResourceBusy || begin.elapsed() > PATIENCE {
                return Err(format!("umount: {e}"));
            }
            std::thread::yield_now();
        }
        server.wait();
        drop(server);
        running.stop().and_then(|()| mounted.unmount()).map_err(|e| format!("last words: {e}"))
    }
}
