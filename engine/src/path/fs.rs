//! A file system on an image, opened and closed by path in one call each.

use super::Files;
use crate::device::{ImageFile, directory_of, open_device};
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::mkfs::{self, FormatOptions, Held};
use crate::recovery::Outcome;
use crate::sync::Arc;
use crate::vfs;
use crate::volume::{ScratchOptions, Volume, VolumeOptions};
use std::path::{Path, PathBuf};

/// A mounted file system: [`Files`], and the [`Volume`] that they are on.
///
/// Dropped without [`Fs::unmount`], it is left as the end of the process leaves it: the next mount recovers.
pub struct Fs {
    files: Files,
    volume: Volume,
}

/// What a symbolic link leads to has its name elsewhere.
fn resolved(image: &Path) -> PathBuf {
    image.canonicalize().unwrap_or_else(|_| image.to_owned())
}

/// Makes a file system on an image: a file, which is made if `options.blocks` says how large, or a device. On return it is
/// durable, as is the name of a file that was made.
///
/// # Errors
/// [`Error::Refused`], in words, and it is as it was then: if it holds data already (see [`FormatOptions::force`]), if the
/// options contradict each other, or for too little room; errors of the device.
pub fn format(image: impl AsRef<Path>, options: &FormatOptions) -> Result<Superblock> {
    let image = image.as_ref();
    // Before the image is given another size.
    let errno = |e: std::io::Error| {
        let refused = || Error::Refused(format!("{}: {e}", image.display()));
        e.raw_os_error().map_or_else(refused, Error::Errno)
    };
    if !options.force && mkfs::held(image).map_err(errno)? != Held::Nothing {
        mkfs::check_unused(open_device(ImageFile::open(image)?).as_ref())?;
        return Err(Error::Refused(format!(
            "{}: it holds data already; use --force to destroy them",
            image.display()
        )));
    }
    if let Some(blocks) = options.blocks {
        mkfs::check(blocks, options)?;
    }
    let was_there = image.exists();
    let is_new = image.symlink_metadata().is_err();
    let unnamed = match options.blocks {
        Some(blocks) if is_new => ImageFile::create_unnamed(image, blocks, options.sparse)?,
        _ => None,
    };
    let (file, unnamed) = match (unnamed, options.blocks) {
        (Some((file, unnamed)), _) => (file, Some(unnamed)),
        (None, Some(blocks)) if options.sparse => (ImageFile::create_sparse(image, blocks)?, None),
        (None, Some(blocks)) => (ImageFile::create(image, blocks)?, None),
        (None, None) => (ImageFile::open(image)?, None),
    };
    let made = mkfs::format(open_device(file).as_ref(), options).inspect_err(|_| {
        // What was begun would be taken for an image that is there; without a name it goes by itself.
        if unnamed.is_none()
            && !was_there
            && let Err(e) = std::fs::remove_file(resolved(image))
        {
            tracing::debug!("{} is left: {e}", image.display());
        }
    })?;
    // What is killed before leaves nothing: a program that makes its image can make it again.
    if let Some(unnamed) = unnamed {
        unnamed.name(image)?;
    }
    // Of a file that was made just now the name is to last, too; where directories cannot be synced, it does or does not.
    match std::fs::File::open(directory_of(&resolved(image))).and_then(|directory| directory.sync_all()) {
        Err(e) if e.raw_os_error() == Some(libc::EIO) => Err(errno(e)),
        synced => {
            if let Err(e) = synced {
                tracing::debug!("the directory of {} is not synced: {e}", image.display());
            }
            Ok(made)
        }
    }
}

impl Fs {
    /// Mounts an image; after a crash it recovers everything that was committed.
    ///
    /// # Errors
    /// As [`Volume::mount`].
    pub fn mount(image: impl AsRef<Path>, options: &VolumeOptions) -> Result<Fs> {
        Volume::mount(image.as_ref(), options).map(Fs::over)
    }

    /// Makes a file system in memory that overflows to spill space, and that nothing outlives.
    ///
    /// # Errors
    /// As [`Volume::scratch`].
    pub fn scratch(options: &ScratchOptions) -> Result<Fs> {
        Volume::scratch(options).map(Fs::over)
    }

    /// The files of a volume that is at work already.
    pub fn over(volume: Volume) -> Fs {
        Fs { files: Files::new(Arc::clone(volume.fs())), volume }
    }

    /// Writes everything home and marks the image clean. Whoever still has [`Files`] of it can change nothing
    /// afterwards.
    ///
    /// # Errors
    /// As [`Volume::unmount`].
    pub fn unmount(self) -> Result<()> {
        self.volume.unmount()
    }

    /// The same files for another caller than uid 0.
    pub fn acting_as(&self, caller: vfs::Context) -> Files {
        Files::acting_as(Arc::clone(&self.files.fs), caller)
    }

    /// The operations on inodes, as the mount uses them.
    pub fn inodes(&self) -> &Arc<vfs::Vfs> {
        &self.files.fs
    }

    /// What recovery has done at this mount.
    pub fn recovery(&self) -> &Outcome {
        self.volume.recovery()
    }

    /// Why nothing can be changed, if so.
    pub fn damage(&self) -> Option<String> {
        self.volume.damage()
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
        f.debug_struct("Fs").field("files", &self.files).field("volume", &self.volume).finish()
    }
}
