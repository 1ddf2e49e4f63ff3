//! What tells a file or block device from all others of this machine, as long as that runs: copies have the content, and
//! not this.
//!
//! A file keeps it when it is renamed within its file system; one that is made later has another, its inode's number used
//! again or not. So has a device that is attached again. A loop device over the whole of a file has the file's, for it
//! is the same image.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, StatxFlags, makedev, statx};

use super::device_error;
use crate::Result;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Whether it is a block device.
    pub is_device: bool,
    /// Number of the device, or of the one that the file is on.
    pub device: u64,
    /// Of a file its inode, of a device the count of those that were attached before.
    pub number: u64,
    /// When the file was made, in nanoseconds since 1970; 0: its file system does not tell.
    pub born: u64,
}

impl Identity {
    /// That of an open file or device.
    ///
    /// # Errors
    /// Those of statx(2).
    pub fn of(file: impl AsFd) -> Result<Identity> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found =
            statx(file, c"", AtFlags::EMPTY_PATH, wanted).map_err(|e| device_error("stat the image", e))?;
        if !FileType::from_raw_mode(found.stx_mode.into()).is_block_device() {
            let has_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
            let since =
                i128::from(found.stx_btime.tv_sec) * 1_000_000_000 + i128::from(found.stx_btime.tv_nsec);
            return Ok(Identity {
                is_device: false,
                device: makedev(found.stx_dev_major, found.stx_dev_minor),
                number: found.stx_ino,
                born: u64::try_from(since).ok().filter(|_| has_birth).unwrap_or(0),
            });
        }
        let (major, minor) = (found.stx_rdev_major, found.stx_rdev_minor);
        let about = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        if let Some(file) = behind_loop(&about) {
            return Identity::of(file);
        }
        // A partition is attached with its disk. Before Linux 5.15 nothing tells.
        let number = number_in(&about.join("diskseq")).or_else(|| number_in(&about.join("../diskseq")));
        let device = makedev(major, minor);
        Ok(Identity { is_device: true, device, number: number.unwrap_or(0), born: 0 })
    }
}

/// The file that a loop device shows the whole of; `about` is what the kernel tells of the device.
pub(super) fn behind_loop(about: &Path) -> Option<File> {
    if number_in(&about.join("loop/offset"))? != 0 {
        return None;
    }
    let path = std::fs::read_to_string(about.join("loop/backing_file")).ok()?;
    // Looked at, not opened.
    File::options().read(true).custom_flags(libc::O_PATH).open(path.strip_suffix('\n')?).ok()
}

fn number_in(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_identity_under_another_name_and_no_copy_has_it() {
        let dir = tempfile::tempdir().expect("room");
        let of = |name: &str| Identity::of(File::open(dir.path().join(name)).expect("there")).expect("told");
        std::fs::write(dir.path().join("one"), "content").expect("room");
        let one = of("one");
        assert!(!one.is_device);
        std::fs::rename(dir.path().join("one"), dir.path().join("two")).expect("there");
        assert_eq!(of("two"), one);
        std::fs::copy(dir.path().join("two"), dir.path().join("copy")).expect("room");
        assert_ne!(of("copy"), one);
        // Where the number of its inode is used again, too.
        std::fs::remove_file(dir.path().join("two")).expect("there");
        std::fs::write(dir.path().join("one"), "content").expect("room");
        assert_ne!(of("one"), one);
    }

    #[test]
    fn a_loop_device_over_a_part_of_a_file_is_not_that_file() {
        let about = tempfile::tempdir().expect("room");
        let (file, told) = (about.path().join("file"), about.path().join("loop"));
        std::fs::create_dir(&told).expect("room");
        std::fs::write(&file, "content").expect("room");
        std::fs::write(told.join("backing_file"), format!("{}\n", file.display())).expect("room");
        let behind = |offset: &str| {
            std::fs::write(told.join("offset"), offset).expect("room");
            behind_loop(about.path()).map(|found| Identity::of(found).expect("told"))
        };
        assert_eq!(behind("0\n"), Some(Identity::of(File::open(&file).expect("there")).expect("told")));
        assert_eq!(behind("4096\n"), None);
        std::fs::remove_file(&file).expect("there");
        assert_eq!(behind("0\n"), None);
    }
}
