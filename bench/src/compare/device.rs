//! A real device in the place of the loop device: whether it may be overwritten, which is found out before anybody
//! is asked to type its name, and once more before it is.

use crate::target::mounted_from;
use crate::{Error, Result};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Whether a device can be used: nobody else uses it or a partition of it, it can be written to, and it has
/// `bytes` at the least, so many as the devices in RAM beside it.
///
/// # Errors
/// In words, if not.
pub fn check(path: &Path, bytes: u64) -> Result<()> {
    let refused = |why: String| Err(Error::Refused(format!("{}: {why}", path.display())));
    let found = match std::fs::metadata(path) {
        Ok(found) if found.file_type().is_block_device() => found,
        Ok(_) => return refused("not a block device".into()),
        Err(e) => return refused(e.to_string()),
    };
    // Claimed so, it is nobody else's: no file system's, no swap's, and no partition of it is.
    let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    let device = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(device) => device,
        Err(Errno::BUSY) => return refused(in_use(found.rdev())),
        Err(Errno::ROFS) => return refused("it is read-only".into()),
        Err(e) => return refused(e.to_string()),
    };
    let size = rustix::fs::seek(&device, SeekFrom::End(0));
    match size.map_err(|e| Error::io("measure", &path.display().to_string(), e))? {
        size if size < bytes => refused(format!(
            "too small: it has {} MiB, the comparison takes {}; say less with --size",
            size >> 20,
            bytes.div_ceil(1 << 20)
        )),
        _ => Ok(()),
    }
}

/// Who uses a device, as far as mounts tell.
fn in_use(device: u64) -> String {
    let of = |device: u64| (rustix::fs::major(device), rustix::fs::minor(device));
    let devices = std::iter::once(of(device)).chain(partitions(of(device)));
    let mounts: Vec<PathBuf> = devices.flat_map(mounted_from).collect();
    match mounts.first() {
        Some(at) => {
            format!("in use: it, or a partition of it, is mounted at {}; unmount it first", at.display())
        }
        None => "in use by another process, as swap, or as a part of another device".into(),
    }
}

/// The partitions of a device.
fn partitions((major, minor): (u32, u32)) -> Vec<(u32, u32)> {
    let Ok(entries) = std::fs::read_dir(format!("/sys/dev/block/{major}:{minor}/")) else {
        return Vec::new();
    };
    let number = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        let found =
            std::fs::read_to_string(path.join("dev")).ok().filter(|_| path.join("partition").exists())?;
        let (major, minor) = found.trim_end().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    entries.filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_device_is_refused() {
        for path in ["/dev/null", "/no/such/device", "/tmp"] {
            let said = check(Path::new(path), 1).expect_err(path).to_string();
            assert!(said.starts_with(path) && !said.contains('\n'), "{said}");
        }
    }
}
