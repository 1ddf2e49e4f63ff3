//! Places to mount at and mounts of the file system in memory, and nothing of them left afterwards.

use crate::memfs::MemFs;
use crate::transports::transport;
use narufs_fuse::mount::{self, FuseOptions, IfBusy, mountinfo};
use narufs_fuse::wire::OpenFlags;
use narufs_fuse::{Server, ServerConfig};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// A directory with nothing mounted on it any more when it goes.
pub struct Place(TempDir);

impl Place {
    /// `None`, and says so, where mounts cannot be made.
    pub fn new() -> Option<Place> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: this test needs root and /dev/fuse");
            return None;
        }
        let dir = TempDir::new().expect("a temporary directory");
        // Another user must reach the mount.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("own directory");
        fs::create_dir(dir.path().join("mnt")).expect("a mount point");
        Some(Place(dir))
    }

    pub fn point(&self) -> PathBuf {
        self.0.path().canonicalize().expect("the directory").join("mnt")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let point = self.point();
        while let Ok(Some(_)) = mountinfo::find(&point) {
            if mount::unmount(&point, IfBusy::Abort).is_err() {
                return;
            }
        }
    }
}

pub struct Mounted {
    // Dropped before the place that it is mounted at.
    pub server: Server<MemFs>,
    pub fs: Arc<MemFs>,
    pub point: PathBuf,
    pub _place: Place,
}

/// The options of a mount for this test.
pub fn options(source: &str) -> FuseOptions {
    let mut options = FuseOptions::new(source);
    options.transport = transport();
    options
}

pub fn mounted_with(flags: OpenFlags, config: ServerConfig) -> Option<Mounted> {
    mounted_as(flags, &options("memory"), config)
}

pub fn mounted_as(flags: OpenFlags, options: &FuseOptions, config: ServerConfig) -> Option<Mounted> {
    let place = Place::new()?;
    let point = place.point();
    let fs = Arc::new(MemFs::new(flags));
    let server = Server::start(Arc::clone(&fs), &point, options, &config).expect("a mount");
    Some(Mounted { server, fs, point, _place: place })
}

pub fn mounted() -> Option<Mounted> {
    mounted_with(OpenFlags::empty(), ServerConfig::default())
}

/// Serves everything from one core: a request that sleeps would stall all others if it kept its lane.
pub fn on_one_core() -> ServerConfig {
    let cores = rustix::thread::sched_getaffinity(None).expect("own cores");
    ServerConfig {
        cores: Some((0..1024).filter(|&core| cores.is_set(core)).take(1).collect()),
        ..Default::default()
    }
}

pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| ((at * 31 + seed * 7919) >> 3) as u8).collect()
}
