//! An image of its own, and what of it lies in shared memory: both go with this.

use anyhow::{Context, Result, bail};
use narufs::{FormatOptions, Fs};
use narufs_engine::device::{ImageFile, open_device};
use narufs_engine::fsck::{self, Options};
use narufs_engine::volume::{self, Origin};
use narufs_engine::{Error, superblock};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SIZE: u64 = 1 << 30;

/// The image.
pub struct Place {
    dir: TempDir,
    /// What the names of its files in shared memory begin with.
    shared: PathBuf,
}

impl Place {
    /// Makes it below a directory.
    ///
    /// # Errors
    /// Those of the directory and of narufs.
    pub fn make(work: &Path) -> Result<Place> {
        let dir = TempDir::new_in(work).with_context(|| work.display().to_string())?;
        let image = dir.path().join("image");
        Fs::format(&image, &FormatOptions::new().size(SIZE))?;
        let superblock = superblock::read(open_device(ImageFile::open(&image)?).as_ref())?;
        Ok(Place { dir, shared: volume::staging_path(&superblock.uuid) })
    }

    /// Where it is.
    pub fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// What fsck finds, which is to be nothing.
    ///
    /// # Errors
    /// What it has found.
    pub fn check(&self) -> Result<()> {
        let media = loop {
            match volume::open_for_check(&self.image(), None, false, Origin::Unknown) {
                // The kernel lets go of it once the last requests of a killed process are over.
                Err(Error::InUse(_)) => std::thread::yield_now(),
                opened => break opened.context("open it for fsck")?,
            }
        };
        let report = fsck::check(&media, &Options::default()).context("fsck")?;
        if let Some(issue) = report.issues.first() {
            bail!("fsck: {issue}, and {} more", report.issues.len() - 1);
        }
        Ok(())
    }

    /// Takes away what a loss of power takes.
    ///
    /// # Errors
    /// Those of the files.
    pub fn lose_memory(&self) -> Result<()> {
        let (Some(memory), Some(name)) = (self.shared.parent(), self.shared.file_name()) else {
            return Ok(());
        };
        for entry in std::fs::read_dir(memory)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&*name.to_string_lossy()) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(e) = self.lose_memory() {
            eprintln!("narufs-slatedb: {} is left: {e}", self.shared.display());
        }
    }
}
