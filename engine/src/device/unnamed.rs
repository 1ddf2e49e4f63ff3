//! Files for images that have no name, or none yet: what becomes of them is settled with one call, and a kill leaves nothing.

use super::file::{device_error, io_error};
use super::{ImageFile, path_of};
use crate::{Error, Result};
use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// The directory that a path's last name is in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that has no name yet.
pub(crate) struct Unnamed(File);

impl Unnamed {
    /// Gives it a name that nothing else has.
    ///
    /// # Errors
    /// [`Error::Refused`] if something has; errors of the file system.
    pub(crate) fn name(&self, path: &Path) -> Result<()> {
        match rustix::fs::linkat(CWD, path_of(&self.0), CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Err(Errno::EXIST) => {
                let why = "another file has got that name meanwhile; look at it, then choose another name";
                Err(Error::Refused(format!("{}: {why}", path.display())))
            }
            named => named.map_err(|e| device_error("name the image", e)),
        }
    }
}

impl ImageFile {
    /// A file without a name in a directory. `None`: the file system can do no such thing.
    fn nameless(directory: &Path) -> Result<Option<Self>> {
        match Self::open_with(directory, OFlags::RDWR | OFlags::TMPFILE) {
            Err(Error::Errno(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Makes a regular file for that path, `blocks` long, its space reserved unless `sparse`, which gets the name by
    /// [`Unnamed::name`]: nothing of it is there if that never comes. `None`: the file system, or this process, can do no such
    /// thing.
    ///
    /// # Errors
    /// As [`ImageFile::create`].
    pub(crate) fn create_unnamed(path: &Path, blocks: u64, sparse: bool) -> Result<Option<(Self, Unnamed)>> {
        let Some(mut image) = Self::nameless(directory_of(path))? else { return Ok(None) };
        let unnamed = Unnamed(image.file.try_clone().map_err(|e| io_error("keep the image's file", &e))?);
        if !path_of(&unnamed.0).exists() {
            return Ok(None);
        }
        path.clone_into(&mut image.path);
        if sparse {
            image.lengthen(blocks)?
        } else {
            image.reserve(blocks)?
        }
        image.blocks.store(blocks, Relaxed);
        Ok(Some((image, unnamed)))
    }

    /// Makes a file without a name in a directory, `blocks` long, its space reserved: it goes with its last
    /// descriptor.
    pub(crate) fn unnamed(directory: &Path, blocks: u64) -> Result<Self> {
        let image = match Self::nameless(directory)? {
            Some(image) => image,
            None => {
                let path = directory.join(format!(".narufs-{}", uuid::Uuid::new_v4()));
                let image = Self::open_with(&path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
                std::fs::remove_file(&path)
                    .map_err(|e| io_error("remove the name of a temporary file", &e))?;
                image
            }
        };
        image.reserve(blocks)?;
        image.blocks.store(blocks, Relaxed);
        Ok(image)
    }
}
