//! One lock for a file and the loop device that shows the whole of it.
//!
//! They are one image with two locks: the file's, and the claim of the device, which the kernel has too while it has a file
//! system of it mounted. Who opens the device locks the file as well; who opens the file looks whether a device over it is
//! claimed. What cannot be looked at without more rights is let pass: the staging of the journal, which has a lock of its own,
//! keeps two servers apart all the same.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::file::{in_use, io_error, lock, patiently};
use super::identity::behind_loop;
use super::path_of;
use crate::fork::{KeptFromChildren, beyond_standard};
use crate::{Error, Result};

/// Locks the file behind a loop device, if `file` is one that shows the whole of it; it stays locked as long as that is
/// kept.
pub(super) fn lock_behind(file: &File, path: &Path) -> Result<Option<(KeptFromChildren, File)>> {
    let number = file.metadata().map_err(|e| io_error("stat the image", &e))?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let about = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let Some(behind) = behind_loop(&about) else { return Ok(None) };
    let Ok(behind) = File::open(path_of(&behind)) else { return Ok(None) };
    let behind = File::from(beyond_standard(behind.into()).map_err(|e| Error::Errno(e.raw_os_error()))?);
    let kept = KeptFromChildren::enter(&behind);
    lock(&behind, path)?;
    Ok(Some((kept, behind)))
}

/// Whether nobody has a loop device claimed that shows the whole of a regular file.
pub(super) fn check_over(file: &File, path: &Path) -> Result<()> {
    let own = file.metadata().map_err(|e| io_error("stat the image", &e))?;
    let Ok(devices) = std::fs::read_dir("/sys/block") else { return Ok(()) };
    for device in
        devices.flatten().filter(|device| device.file_name().as_encoded_bytes().starts_with(b"loop"))
    {
        let Some(Ok(behind)) = behind_loop(&device.path()).map(|behind| behind.metadata()) else { continue };
        if (behind.dev(), behind.ino()) != (own.dev(), own.ino()) {
            continue;
        }
        let over = Path::new("/dev").join(device.file_name());
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Of a killed server that is let go a little after its end.
        let claimed = patiently(Errno::BUSY, || rustix::fs::open(&over, flags, Mode::empty()));
        if claimed.is_err_and(|e| e == Errno::BUSY) {
            return Err(in_use(path));
        }
    }
    Ok(())
}
