//! An image that is made, mounted and served for one test, and nothing of it left afterwards.

#![allow(unsafe_code, reason = "one system call that changes the ids of a thread alone")]

use crate::transports::{require_mounts, transport};
use narufs_engine::device::{ImageFile, open_device};
use narufs_engine::mkfs::{FormatOptions, format};
use narufs_engine::pmem::EmulationCosts;
use narufs_engine::vfs::Vfs;
use narufs_engine::volume::{self, Mounted};
use narufs_engine::volume::{AssembleOptions, Running};
use narufs_fuse::mount::{FuseOptions, IfBusy, mountinfo, unmount};
use narufs_fuse::{Caching, EngineOperations, Server, control, serve};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const IMAGE_BYTES: u64 = 256 << 20;
/// Bytes of a block, and of a page.
pub const BLOCK: u64 = 4096;

/// A user without an account, and one more.
pub const FIRST_USER: u32 = 64101;
pub const SECOND_USER: u32 = 64102;

/// A served image.
pub struct Served {
    server: Option<Server<EngineOperations>>,
    running: Option<Running>,
    mounted: Option<Mounted>,
    pub point: PathBuf,
    _dir: TempDir,
}

/// An image served as `narufs mount` does.
pub fn served() -> Served {
    served_with(Caching::Exclusive, |_| {})
}

pub fn served_with(caching: Caching, change: impl FnOnce(&mut FuseOptions)) -> Served {
    served_as(caching, AssembleOptions::default(), change)
}

pub fn served_as(caching: Caching, files: AssembleOptions, change: impl FnOnce(&mut FuseOptions)) -> Served {
    try_served_as(caching, files, change).expect("a mount")
}

/// Why such a mount is refused.
pub fn refused_with(caching: Caching, change: impl FnOnce(&mut FuseOptions)) -> std::io::Error {
    let served = try_served_as(caching, AssembleOptions::default(), change);
    served.err().expect("it must be refused")
}

fn try_served_as(
    caching: Caching,
    files: AssembleOptions,
    change: impl FnOnce(&mut FuseOptions),
) -> std::io::Result<Served> {
    require_mounts();
    let dir = TempDir::new().expect("a temporary directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("own directory");
    let point = dir.path().canonicalize().expect("the directory").join("mnt");
    fs::create_dir(&point).expect("a mount point");
    let image = dir.path().join("image");
    let file = fs::File::create(&image).expect("the image");
    file.set_len(IMAGE_BYTES).expect("its size");
    drop(file);
    let device = open_device(ImageFile::open(&image).expect("the image"));
    let options = FormatOptions { journal_slots: Some(16384), sparse: true, ..FormatOptions::default() };
    format(device.as_ref(), &options).expect("a new file system");
    drop(device);
    // Nothing is committed but what a test asks for.
    let hour = Duration::from_secs(3600);
    let options = volume::ImageOptions { commit_interval: hour, ..volume::ImageOptions::default() };
    let media = volume::open(&image, None, EmulationCosts::default(), &options).expect("the media");
    let mounted = volume::mount(media, &options).expect("a good image");
    let running = Running::start(mounted.checkpointer(), &files).expect("a good image");
    let mut options = FuseOptions::new("image");
    options.transport = transport();
    options.suid = true;
    options.dev = true;
    change(&mut options);
    let engine = Arc::clone(running.fs());
    // Whatever becomes of it, the image is unmounted.
    let mut served =
        Served { server: None, running: Some(running), mounted: Some(mounted), point, _dir: dir };
    served.server = Some(serve(engine, &served.point, &options, caching)?);
    fs::set_permissions(&served.point, fs::Permissions::from_mode(0o777)).expect("the root directory");
    Ok(served)
}

impl Served {
    /// The counters, as a program beside the server reads them.
    pub fn stats(&self) -> serde_json::Value {
        serde_json::from_str(&control::stats(&self.point).expect("a live mount")).expect("JSON")
    }

    /// The same and more, as the server reads them.
    pub fn counters(&self) -> serde_json::Value {
        self.server.as_ref().expect("it runs until it is dropped").counters().read().expect("counters")
    }

    /// The file system, for the library.
    pub fn fs(&self) -> &Arc<Vfs> {
        self.running.as_ref().expect("it runs until it is dropped").fs()
    }

    /// Takes the mount away, whoever uses it.
    pub fn end_mount(&mut self) {
        drop(self.server.take());
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.server.take());
        let stopped = self.running.take().map(Running::stop);
        let unmounted = self.mounted.take().map(Mounted::unmount);
        while let Ok(Some(_)) = mountinfo::find(&self.point) {
            if unmount(&self.point, IfBusy::Abort).is_err() {
                break;
            }
        }
        if !std::thread::panicking() {
            stopped.expect("it ran").expect("everything goes down");
            unmounted.expect("it was mounted").expect("a clean unmount");
        }
    }
}

/// Runs `work` as another user without privilege; the user of a thread is its own.
pub fn as_user<R: Send>(uid: u32, work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the raw call changes the ids of this thread alone, which ends here, and touches no memory.
            // Guarded by the tests of permissions, which would see root.
            let changed = unsafe {
                libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) == 0
                    && libc::syscall(libc::SYS_setresgid, uid, uid, uid) == 0
                    && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
            };
            assert!(changed, "root may become another user");
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| ((at * 31 + seed * 7919) >> 3) as u8).collect()
}

/// Bytes at an address that O_DIRECT takes.
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    pub fn of(data: &[u8]) -> Aligned {
        let mut memory = vec![0; data.len() + BLOCK as usize];
        let start = memory.as_ptr().align_offset(BLOCK as usize);
        memory[start..start + data.len()].copy_from_slice(data);
        Aligned { memory, start, len: data.len() }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}
