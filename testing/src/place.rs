//! An image and a directory to mount it at, of one test; nothing is left of either, nor of mounts, staging and
//! rings in shared memory, when the test ends, however it ends.

use crate::lab::Ring;
use narufs_engine::device::{ImageFile, open_device};
use narufs_engine::error::Result;
use narufs_engine::format::{JournalKind, Superblock};
use narufs_engine::fsck;
use narufs_engine::mkfs::{FormatOptions, format};
use narufs_engine::pmem::EmulationCosts;
use narufs_engine::volume::{ImageOptions, open, staging_path};
use narufs_fuse::mount::{IfBusy, mountinfo, unmount};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The place; what is mounted there is taken away when it goes.
#[derive(Debug)]
pub struct Place {
    dir: TempDir,
    /// Files in shared memory that the image may have.
    shared: Vec<PathBuf>,
}

/// Why nothing can be mounted here, if so.
pub fn cannot_mount() -> Option<&'static str> {
    match () {
        () if !rustix::process::geteuid().is_root() => Some("mounting needs root"),
        () if !Path::new("/dev/fuse").exists() => Some("mounting needs /dev/fuse"),
        () => None,
    }
}

/// Says what is missing where nothing can be mounted. Tests that mount are ignored unless they are asked for; who asks
/// is not to be told that they have passed.
///
/// # Panics
/// If this is not root, or has no `/dev/fuse`.
pub fn require_mounts() {
    assert_eq!(cannot_mount(), None, "something is missing");
}

/// The same for loop devices.
///
/// # Panics
/// If this is not root, or has no loop devices.
pub fn require_loop_devices() {
    assert!(rustix::process::geteuid().is_root(), "missing: root, for loop devices");
    assert!(Path::new("/dev/loop-control").exists(), "missing: loop devices");
}

impl Place {
    /// Makes a directory below `parent`, in it an empty mount point and a file system.
    ///
    /// # Errors
    /// Those of the directory and of mkfs.
    pub fn make(parent: &Path, ring: Ring, image_bytes: u64, slots: u64) -> Result<Place> {
        let errno = |e: std::io::Error| narufs_engine::Error::Errno(e.raw_os_error().unwrap_or(libc::EIO));
        let dir = TempDir::new_in(parent).map_err(errno)?;
        let mut place = Place { dir, shared: Vec::new() };
        fs::create_dir(place.point()).map_err(errno)?;
        File::create(place.image()).and_then(|image| image.set_len(image_bytes)).map_err(errno)?;
        let mut options =
            FormatOptions { journal_slots: Some(slots), sparse: true, ..FormatOptions::default() };
        if ring.is_mapped() {
            let name = place.dir.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
            let path = Path::new("/dev/shm").join(format!("narufs-test-{name}"));
            options.journal = JournalKind::Emulated;
            options.journal_path = Some(path.display().to_string());
            place.shared.push(path);
        }
        let sb: Superblock = format(open_device(ImageFile::open(&place.image())?).as_ref(), &options)?;
        place.shared.push(staging_path(&sb.uuid));
        Ok(place)
    }

    /// The image.
    pub fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Where it is to be mounted.
    pub fn point(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Takes away what is mounted, whoever uses it.
    ///
    /// # Errors
    /// Those of umount(2).
    pub fn detach(&self) -> std::io::Result<()> {
        let point = self.point();
        while mountinfo::find(&point)?.is_some() {
            unmount(&point, IfBusy::Abort)?;
        }
        Ok(())
    }

    /// As a loss of power does it: what lies in shared memory is gone.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub fn lose_memory(&self) -> std::io::Result<()> {
        self.shared.iter().filter(|path| path.exists()).try_for_each(fs::remove_file)
    }

    /// Files in shared memory that are there.
    pub fn shared_files(&self) -> usize {
        self.shared.iter().filter(|path| path.exists()).count()
    }

    /// Checks the image, which is not mounted.
    ///
    /// # Errors
    /// The issues, one a line.
    pub fn check(&self) -> Result<(), String> {
        let media = open(&self.image(), None, EmulationCosts::default(), &ImageOptions::default());
        let report = media.and_then(|media| fsck::check(&media, &fsck::Options::default()));
        let issues = report.map_err(|e| format!("fsck: {e}"))?.issues;
        let lines: Vec<String> = issues.iter().map(|issue| format!("fsck: {issue:?}")).collect();
        if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The test has its verdict; what cannot be taken away is named, not hidden.
        if let Err(e) = self.detach() {
            eprintln!("{} stays mounted: {e}", self.point().display());
        }
        let _ = self.lose_memory();
    }
}
