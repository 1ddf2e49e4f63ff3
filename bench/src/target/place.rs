//! Where a directory lies: its file system, the device behind it, what it survives, and the counters of both.

use super::Survives;
use crate::meter::{Counters, DeviceIo, cpu_of, cpu_with_children_of};
use crate::{Error, Result};
use narufs_fuse::control;
use narufs_fuse::mount::mountinfo::{self, Entry};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug)]
pub(super) struct Place {
    filesystem: String,
    /// Whether it is a mount of narufs.
    is_served: bool,
    /// `/sys/dev/block/...` of the device that is counted.
    device: Option<PathBuf>,
    counted: Option<PathBuf>,
    /// `/sys/dev/block/...` of the device of a journal or log that lies elsewhere.
    log: Option<PathBuf>,
    survives: Survives,
}

/// The mount that a path lies on: the last one listed of those with the longest mount point.
fn mount_of(mounts: Vec<Entry>, path: &Path) -> Option<Entry> {
    let above = mounts.into_iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count())
}

/// Whether something is mounted at a path. Nobody who serves it is asked: they may be dead.
pub fn is_mount_point(path: &Path) -> bool {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return false };
    let Ok(above) = std::fs::canonicalize(above) else { return false };
    mountinfo::find(&above.join(name)).is_ok_and(|found| found.is_some())
}

/// Where something is mounted of the device with this major and minor number.
pub fn mounted_from(device: (u32, u32)) -> Option<PathBuf> {
    let mounts = mountinfo::all().ok()?;
    mounts.into_iter().find(|mount| mount.device == device).map(|mount| mount.point)
}

/// The directory in sysfs of a block device.
fn in_sysfs(device: &Path) -> Option<PathBuf> {
    let found = std::fs::metadata(device).ok().filter(|m| m.file_type().is_block_device())?;
    Some(sysfs_of(found.rdev()))
}

fn sysfs_of(device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// Whether a device is memory, itself or through the file of a loop device.
fn is_memory(sysfs: &Path) -> bool {
    let real = std::fs::canonicalize(sysfs).unwrap_or_default();
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name.starts_with("ram") || name.starts_with("zram") {
        return true;
    }
    let Ok(file) = std::fs::read_to_string(sysfs.join("loop/backing_file")) else { return false };
    rustix::fs::statfs(file.trim_end()).is_ok_and(|found| found.f_type == libc::TMPFS_MAGIC)
}

impl Place {
    /// The place of a directory. `counted` is a device to count instead of its own.
    pub fn of(dir: &Path, counted: Option<&Path>) -> Result<Place> {
        let said = |e: std::io::Error| Error::Refused(format!("{}: {e}", dir.display()));
        let real = std::fs::canonicalize(dir).map_err(said)?;
        let mount = mount_of(mountinfo::all().map_err(said)?, &real)
            .ok_or_else(|| Error::Refused(format!("{}: it lies on no mount", dir.display())))?;
        let is_served = control::server_pid(&real).is_ok();
        let own = in_sysfs(Path::new(&mount.source)).or_else(|| {
            let sysfs = sysfs_of(std::fs::metadata(&real).ok()?.dev());
            sysfs.exists().then_some(sysfs)
        });
        let survives = match (mount.kind.as_str(), &own) {
            _ if is_served => narufs_survives(&real),
            ("tmpfs" | "ramfs", _) => Survives::Nothing,
            (_, Some(device)) if !is_memory(device) => Survives::Power,
            // Memory of the kernel, or a server about which nothing is known.
            _ => Survives::Process,
        };
        let device = match counted {
            Some(path) => Some(in_sysfs(path).ok_or_else(|| {
                Error::Refused(format!("{}: not a block device, so it cannot be counted", path.display()))
            })?),
            None => own,
        };
        let filesystem = if is_served { "narufs".into() } else { mount.kind };
        Ok(Place { filesystem, is_served, device, counted: counted.map(Path::to_owned), log: None, survives })
    }

    /// The same with a journal or log on another device, which is counted by itself.
    pub fn with_log(self, log: Option<&Path>) -> Place {
        Place { log: log.and_then(in_sysfs), ..self }
    }

    pub fn filesystem(&self) -> &str {
        &self.filesystem
    }

    pub fn survives(&self) -> Survives {
        self.survives
    }

    /// The device that is counted instead of the own one.
    pub fn counted(&self) -> Option<&Path> {
        self.counted.as_deref()
    }

    /// Makes everything durable.
    pub fn sync(&self, dir: &Path) -> Result<()> {
        let at = |e: std::io::Error| Error::io("sync", &dir.display().to_string(), e);
        if self.is_served {
            return control::sync(dir).map_err(at);
        }
        let fd = std::fs::File::open(dir).map_err(at)?;
        rustix::fs::syncfs(fd).map_err(|e| at(e.into()))
    }

    /// What has happened so far.
    pub fn counters(&self, dir: &Path) -> Result<Counters> {
        let at = |e: std::io::Error| Error::io("counters", &dir.display().to_string(), e);
        let mut counters = Counters::default();
        if self.is_served {
            let stats = control::stats(dir).map_err(at)?;
            let stats = serde_json::from_str(&stats).map_err(|e| at(e.into()))?;
            counters = Counters::of_narufs(&stats);
            counters.server_cpu_s = server_cpu(dir).map_err(at)?;
        }
        if (!self.is_served || self.counted.is_some())
            && let Some(sysfs) = &self.device
        {
            counters.device = DeviceIo::read(sysfs).map_err(at)?;
            counters.flushes = counters.flushes.or_else(|| DeviceIo::flushes(sysfs));
        }
        if let Some(sysfs) = &self.log {
            counters.log = Some(DeviceIo::read(sysfs).map_err(at)?);
        }
        Ok(counters)
    }
}

/// Processor seconds of who serves the mount at `dir`: of the server, of the supervisor that starts the next one if
/// this ends, and of the servers that have ended under it. A supervisor that has followed another knows only those that
/// it has started.
fn server_cpu(dir: &Path) -> std::io::Result<f64> {
    loop {
        let server = control::server_pid(dir)?;
        // A server of an earlier version does not know that question.
        let supervisor = control::supervisor_pid(dir).ok().flatten();
        let seconds =
            cpu_of(server).and_then(|own| Ok(own + supervisor.map_or(Ok(0.0), cpu_with_children_of)?));
        // One that has ended in between would be missing, or be counted twice.
        if control::server_pid(dir)? == server {
            return seconds;
        }
    }
}

fn narufs_survives(dir: &Path) -> Survives {
    let stats = control::stats(dir).ok().and_then(|s| serde_json::from_str::<serde_json::Value>(&s).ok());
    let Some(stats) = stats else { return Survives::Process };
    match stats["durability"].as_str() {
        _ if stats["scratch"] == true => Survives::Nothing,
        Some("power") => Survives::Power,
        _ => Survives::Process,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_counts_and_the_last_of_equal_ones() {
        let table = b"\
            1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
            2 1 0:5 / /mnt rw - tmpfs none rw\n\
            3 1 7:0 / /mnt/a\\040b rw,noatime shared:1 - xfs /dev/loop0 rw\n\
            4 1 7:1 / /mnt/a\\040b rw - btrfs /dev/loop1 rw\n";
        let of = |path: &str| mount_of(mountinfo::parse(table), Path::new(path)).expect("mounted").kind;
        assert_eq!(of("/home"), "ext4");
        assert_eq!(of("/mnt/x"), "tmpfs");
        assert_eq!(of("/mnt/a b/c"), "btrfs");
        assert_eq!(of("/mnt/a bc"), "tmpfs");
    }

    #[test]
    fn mount_points_are_known_by_their_names() {
        assert!(is_mount_point(Path::new("/dev/shm")) && is_mount_point(Path::new("/dev/../proc")));
        assert!(
            !is_mount_point(Path::new("/dev/shm/nothing")) && !is_mount_point(Path::new("/no/such/place"))
        );
    }

    #[test]
    fn memory_survives_nothing() {
        let place = Place::of(Path::new("/dev/shm"), None).expect("every machine has it");
        assert_eq!((place.filesystem(), place.survives()), ("tmpfs", Survives::Nothing));
        assert_eq!(place.counters(Path::new("/dev/shm")).expect("readable").device, DeviceIo::default());
        assert!(Place::of(Path::new("/dev/shm"), Some(Path::new("/dev/null"))).is_err());
    }
}
