//! A volume in one piece: opened and closed in one call each.

use super::scratch::{self, ScratchOptions};
use super::{AssembleOptions, ImageOptions, Mounted, Running};
use crate::error::{Error, Result};
use crate::pmem::EmulationCosts;
use crate::recovery::Outcome;
use crate::sync::Arc;
use crate::vfs::Vfs;
use std::path::{Path, PathBuf};

/// How [`Volume::mount`] mounts.
#[derive(Debug, Clone, Default)]
pub struct VolumeOptions {
    /// Path of a journal outside the image, where it is not the one that the image names.
    pub journal: Option<PathBuf>,
    /// Delays of an emulated journal.
    pub costs: EmulationCosts,
    /// The image: memory for metadata, the interval between commits, read-only mounts, a journal given up.
    pub image: ImageOptions,
    /// The files: memory for data, access times, what fsync waits for.
    pub files: AssembleOptions,
}

/// A file system at work, with the threads and media behind it.
///
/// Dropped without [`Volume::unmount`], it is left as the end of the process leaves it: the next mount recovers.
#[derive(Debug)]
pub struct Volume {
    running: Running,
    mounted: Mounted,
}

impl Volume {
    /// Mounts an image; after a crash it recovers everything that was committed.
    ///
    /// # Errors
    /// [`Error::InUse`] if another process has it mounted; [`Error::Refused`] in words. A damaged image is
    /// mounted read-only: [`Volume::damage`].
    pub fn mount(image: &Path, options: &VolumeOptions) -> Result<Volume> {
        let media = super::open(image, options.journal.as_deref(), options.costs, &options.image)?;
        let mounted = super::mount(media, &options.image)?;
        let mut files = options.files.clone();
        files.fs.read_only |= options.image.read_only || mounted.store().failed().is_some();
        Volume::over(mounted, &files)
    }

    /// Makes a file system in memory that overflows to spill space, and that nothing outlives.
    ///
    /// # Errors
    /// As [`scratch::make`].
    pub fn scratch(options: &ScratchOptions) -> Result<Volume> {
        let (mounted, files) = scratch::make(options)?;
        Volume::over(mounted, &files)
    }

    /// The same over what is mounted already.
    ///
    /// # Errors
    /// As [`Running::start`].
    pub fn over(mounted: Mounted, files: &AssembleOptions) -> Result<Volume> {
        Ok(Volume { running: Running::start(mounted.store(), files)?, mounted })
    }

    /// The operations on inodes.
    pub fn fs(&self) -> &Arc<Vfs> {
        self.running.fs()
    }

    /// What recovery has done at this mount.
    pub fn recovery(&self) -> &Outcome {
        self.mounted.recovery()
    }

    /// Why nothing can be changed, if so.
    pub fn damage(&self) -> Option<String> {
        self.mounted.store().failed()
    }

    /// Writes everything home and marks the image clean. Whoever still has the files can change nothing afterwards.
    ///
    /// # Errors
    /// EBUSY if a file is still open: everything is written, but the image is left for recovery. Whatever else
    /// fails leaves it so too.
    pub fn unmount(self) -> Result<()> {
        let Volume { running, mounted } = self;
        let fs = Arc::clone(running.fs());
        running.stop()?;
        let store = Arc::clone(mounted.store());
        let done = if fs.has_open_files() { Err(Error::Errno(libc::EBUSY)) } else { mounted.unmount() };
        store.mount_read_only("it is not mounted any more".into());
        done
    }
}
