//! A file system on an image, opened and closed by path in one call each.

use super::Files;
use crate::device::{ImageFile, open_device};
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::mkfs::{self, FormatOptions};
use crate::mount::{self, Mounted};
use crate::pmem::EmulationCosts;
use crate::recovery::Outcome;
use crate::scratch::{self, ScratchOptions};
use crate::sync::Arc;
use crate::vfs::{self, AssembleOptions, Running};
use std::path::{Path, PathBuf};

/// How [`Fs::mount`] mounts.
#[derive(Debug, Clone, Default)]
pub struct MountOptions {
    /// Path of a journal outside the image, where it is not the one that the image names.
    pub journal: Option<PathBuf>,
    /// Delays of an emulated journal.
    pub costs: EmulationCosts,
    /// The image: memory for metadata, the interval between commits, read-only mounts, a journal given up.
    pub image: mount::MountOptions,
    /// The files: memory for data, access times, what fsync waits for.
    pub files: AssembleOptions,
}

/// A mounted file system: [`Files`], and the threads and media behind them.
///
/// Dropped without [`Fs::unmount`], it is left as the end of the process leaves it: the next mount recovers.
pub struct Fs {
    files: Files,
    running: Running,
    mounted: Mounted,
}

/// Makes a file system on an image: a file, which is made if `options.blocks` says how large, or a device.
///
/// # Errors
/// [`Error::Refused`], in words, if there is a file system already (see [`FormatOptions::force`]) or too little
/// room; errors of the device.
pub fn format(image: impl AsRef<Path>, options: &FormatOptions) -> Result<Superblock> {
    let file = match options.blocks {
        Some(blocks) => ImageFile::create(image.as_ref(), blocks)?,
        None => ImageFile::open(image.as_ref())?,
    };
    mkfs::format(open_device(file).as_ref(), options)
}

impl Fs {
    /// Mounts an image; after a crash it recovers everything that was committed.
    ///
    /// # Errors
    /// [`Error::InUse`] if another process has it mounted; [`Error::Refused`] in words. A damaged image is
    /// mounted read-only: [`Fs::damage`].
    pub fn mount(image: impl AsRef<Path>, options: &MountOptions) -> Result<Fs> {
        let media = mount::open(image.as_ref(), options.journal.as_deref(), options.costs, &options.image)?;
        let mounted = mount::mount(media, &options.image)?;
        let mut files = options.files.clone();
        files.fs.read_only |= options.image.read_only || mounted.store().failed().is_some();
        let running = Running::start(mounted.store(), &files)?;
        Ok(Fs { files: Files::new(Arc::clone(running.fs())), running, mounted })
    }

    /// Makes a file system in memory that overflows to spill space, and that nothing outlives.
    ///
    /// # Errors
    /// As [`scratch::make`].
    pub fn scratch(options: &ScratchOptions) -> Result<Fs> {
        let (mounted, files) = scratch::make(options)?;
        let running = Running::start(mounted.store(), &files)?;
        Ok(Fs { files: Files::new(Arc::clone(running.fs())), running, mounted })
    }

    /// Writes everything home and marks the image clean. A thread that still has [`Files`] of it can change nothing
    /// afterwards.
    ///
    /// # Errors
    /// EBUSY if a file is still open: everything is written, but the image is left for recovery. Whatever else
    /// fails leaves it so too.
    pub fn unmount(self) -> Result<()> {
        let Fs { files, running, mounted } = self;
        running.stop()?;
        let store = Arc::clone(mounted.store());
        let busy = files.fs.has_open_files();
        let done = if busy { Err(Error::Errno(libc::EBUSY)) } else { mounted.unmount() };
        store.mount_read_only("it is not mounted any more".into());
        done
    }

    /// The same files for another caller than uid 0.
    pub fn acting_as(&self, caller: vfs::Context) -> Files {
        Files::acting_as(Arc::clone(&self.files.fs), caller)
    }

    /// The operations on inodes, as the mount uses them.
    pub fn inodes(&self) -> &Arc<vfs::Fs> {
        &self.files.fs
    }

    /// What recovery has done at this mount.
    pub fn recovery(&self) -> &Outcome {
        self.mounted.recovery()
    }

    /// Why nothing can be changed, if so.
    pub fn damage(&self) -> Option<String> {
        self.mounted.store().failed()
    }
}

impl std::ops::Deref for Fs {
    type Target = Files;
    fn deref(&self) -> &Files {
        &self.files
    }
}

impl std::fmt::Debug for Fs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fs")
            .field("files", &self.files)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}
