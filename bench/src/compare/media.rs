//! What contenders lie on: one device for all, one device in RAM, and a mount point; undone when dropped.

use super::{call, device};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A loop device.
#[derive(Debug)]
struct Loop {
    device: PathBuf,
}

impl Loop {
    fn new(file: &Path, direct: bool) -> Result<Loop> {
        let shown = file.display().to_string();
        let direct = if direct { "--direct-io=on" } else { "--direct-io=off" };
        let device = call("losetup", &["--find", "--show", direct, &shown])?;
        Ok(Loop { device: device.into() })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(e) = call("losetup", &["--detach", &self.device.display().to_string()]) {
            tracing::warn!("{e}");
        }
    }
}

/// A directory that goes with everything in it.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new(below: &Path) -> Result<Scratch> {
        let path = below.join(format!("narufs-compare.{}", std::process::id()));
        std::fs::create_dir(&path)
            .map_err(|e| Error::Refused(format!("{}: cannot write here: {e}", below.display())))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("{}: {e}", self.0.display());
        }
    }
}

/// Where media are: what making and mounting a file system takes, in this process or in another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Places {
    /// The device that all share.
    pub device: PathBuf,
    /// A device of the same size in RAM, if somebody lies on it.
    pub ram: Option<PathBuf>,
    /// A small device in RAM, for journals and logs, likewise.
    pub journal: Option<PathBuf>,
    /// A file in shared memory that stands for NVM; it is not made yet.
    pub nvm: PathBuf,
    /// Where to mount.
    pub mount: PathBuf,
    /// Bytes of the devices that were made.
    pub bytes: u64,
}

/// See the module. Devices go before the directories with their files.
#[derive(Debug)]
pub struct Media {
    disk: Option<Loop>,
    _in_ram: [Option<Loop>; 2],
    _memory: Scratch,
    _work: Scratch,
    places: Places,
}

/// The devices in RAM that somebody lies on: memory for the others would be gone for nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InRam {
    /// One of the size of the main device.
    pub everything: bool,
    /// One for journals and logs.
    pub journal: bool,
}

/// Bytes of the device in RAM for journals and logs.
const JOURNAL: u64 = 256 << 20;

/// A file whose every block is there, so that nobody pays for its first writing.
fn written(path: &Path, bytes: u64, stop: &crate::stop::Stop) -> Result<()> {
    let failed = |e: std::io::Error| match e.raw_os_error() {
        Some(libc::ENOSPC) => {
            Error::Refused(format!("{}: too little space for {} MiB", path.display(), bytes >> 20))
        }
        _ => Error::io("write", &path.display().to_string(), e),
    };
    let mut file = File::create(path).map_err(failed)?;
    let piece = vec![0; 4 << 20];
    for _ in 0..bytes.div_ceil(piece.len() as u64) {
        stop.check()?;
        file.write_all(&piece).map_err(failed)?;
    }
    file.sync_all().map_err(failed)
}

impl Media {
    /// Makes them: the main device of `bytes` is a file in `work` behind a loop device with direct I/O, or
    /// `device`.
    ///
    /// # Errors
    /// In words, if there is no right or no room for them.
    pub fn new(
        work: &Path,
        device: Option<&Path>,
        bytes: u64,
        in_ram: InRam,
        stop: &crate::stop::Stop,
    ) -> Result<Media> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Refused("loop devices and mounts need root: run it with sudo".into()));
        }
        let (scratch, memory) = (Scratch::new(work)?, Scratch::new(Path::new("/dev/shm"))?);
        let disk = match device {
            Some(path) => {
                device::check(path, bytes)?;
                None
            }
            None => {
                let file = scratch.0.join("disk");
                written(&file, bytes, stop)?;
                Some(Loop::new(&file, true)?)
            }
        };
        let in_memory = |name: &str, bytes: u64| {
            let file = memory.0.join(name);
            written(&file, bytes, stop)?;
            Loop::new(&file, false)
        };
        let ram = in_ram.everything.then(|| in_memory("ram", bytes)).transpose()?;
        let journal = in_ram.journal.then(|| in_memory("journal", JOURNAL)).transpose()?;
        let mount = scratch.0.join("mount");
        std::fs::create_dir(&mount).map_err(|e| Error::io("mkdir", &mount.display().to_string(), e))?;
        let main = device.map(Path::to_owned).or_else(|| disk.as_ref().map(|d| d.device.clone()));
        let places = Places {
            device: main.unwrap_or_default(),
            ram: ram.as_ref().map(|ram| ram.device.clone()),
            journal: journal.as_ref().map(|journal| journal.device.clone()),
            nvm: memory.0.join("nvm"),
            mount,
            bytes,
        };
        Ok(Media { disk, _in_ram: [ram, journal], _memory: memory, _work: scratch, places })
    }

    /// Where they are.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Whether the device of all is a loop device.
    pub fn is_loop(&self) -> bool {
        self.disk.is_some()
    }
}
