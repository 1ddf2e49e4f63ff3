//! Whole files and whole trees in one call, as the functions of [`std::fs`].

use super::Dir;
use crate::error::{Error, Result};
use crate::file::File;
use crate::open_options::OpenOptions;
use std::path::Path;

/// Bytes that are read at once, beyond what a file's size promises.
const PART: usize = 32 << 10;

impl Dir {
    /// The whole content of a file.
    ///
    /// # Errors
    /// EISDIR, and as [`Dir::open`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        self.open(path)?.read_whole().map_err(|e| e.at(path))
    }

    /// The whole content of a file of UTF-8.
    ///
    /// # Errors
    /// EILSEQ if it is not UTF-8, and as [`Dir::read`].
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?).map_err(|_| Error::of_errno("read", libc::EILSEQ).at(path))
    }

    /// Makes a file of this content, or replaces that of a file. A crash in between may leave less; a temporary file
    /// and [`Dir::rename`] leave the one or the other.
    ///
    /// # Errors
    /// ENOSPC, EFBIG, and as [`Dir::create`].
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        self.create(path)?.write_all_at(content.as_ref(), 0).map_err(|e| e.at(path))
    }

    /// Copies the content and the permissions of a file; gives the number of bytes. Holes stay holes.
    ///
    /// # Errors
    /// Those of [`Dir::open`] and [`Dir::create`]; EINVAL for what is no regular file, and for a file that is to be copied
    /// onto itself, by whichever name; ENOSPC.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = self.open(from)?;
        let metadata = source.metadata()?;
        if !metadata.is_file() {
            return Err(Error::of_errno("copy", libc::EINVAL).at(from));
        }
        let mode = metadata.mode() & 0o7777;
        let mut options = OpenOptions::new();
        // Emptied once it is known to be another: a path may lead to what is copied.
        let target = self.open_with(to, options.write(true).create(true).mode(mode))?;
        let there = target.metadata()?;
        if there.ino() == metadata.ino() {
            return Err(Error::of_errno("copy", libc::EINVAL).at(to));
        }
        if there.len() > 0 {
            target.set_len(0).map_err(|e| e.at(to))?;
        }
        let copied = source.copy_whole(&target).map_err(|e| e.at(to))?;
        target.set_permissions(metadata.permissions()).map_err(|e| e.at(to))?;
        Ok(copied)
    }

    /// Whether a path leads to something; a symlink that leads nowhere does not.
    ///
    /// # Errors
    /// Those of the path, but for ENOENT.
    pub fn try_exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(e) if e.errno() == libc::ENOENT => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Removes a directory with all that is in it; a symlink is removed, not followed.
    ///
    /// # Errors
    /// As [`Dir::remove_file`] and [`Dir::remove_dir`], at the first that cannot be removed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if self.symlink_metadata(path)?.is_symlink() {
            return self.remove_file(path);
        }
        self.open_dir_with(path, false)?
            .remove_entries()
            .map_err(|e| if e.path().is_some() { e } else { e.at(path) })?;
        self.remove_dir(path)
    }

    /// Removes what is in this directory, deepest first. How deep a tree is costs memory, not stack.
    fn remove_entries(self) -> Result<()> {
        // Each directory on the way down, with its name in the one above.
        let mut way = vec![(self, std::ffi::OsString::new())];
        while let Some((dir, _)) = way.last() {
            let mut below = None;
            for entry in dir.read_dir(".")? {
                let entry = entry?;
                if entry.file_type().is_dir() {
                    below = Some(entry.file_name().to_owned());
                    break;
                }
                gone_is_fine(dir.remove_file(entry.file_name()))?;
            }
            match below {
                // What is a symlink by now is removed like any file.
                Some(name) => match dir.open_dir_with(name.as_ref(), false) {
                    Ok(dir) => way.push((dir, name)),
                    Err(e) if e.errno() == libc::ENOTDIR => gone_is_fine(dir.remove_file(&name))?,
                    Err(e) => gone_is_fine(Err(e))?,
                },
                None => {
                    let Some((_, name)) = way.pop() else { break };
                    if let Some((above, _)) = way.last() {
                        gone_is_fine(above.remove_dir(name))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// What somebody else has removed meanwhile need not be removed.
fn gone_is_fine(removed: Result<()>) -> Result<()> {
    match removed {
        Err(e) if e.errno() != libc::ENOENT => Err(e),
        _ => Ok(()),
    }
}

impl File {
    /// All of the content, read by offset.
    fn read_whole(&self) -> Result<Vec<u8>> {
        let size = usize::try_from(self.metadata()?.len()).unwrap_or(usize::MAX);
        // A byte more, so that the end shows.
        let mut content = vec![0; size.saturating_add(1).min(1 << 30)];
        let mut filled = 0;
        loop {
            match self.read_at(&mut content[filled..], filled as u64)? {
                0 => break,
                read => filled += read,
            }
            if filled == content.len() {
                content.resize(filled + PART.max(filled / 2), 0);
            }
        }
        content.truncate(filled);
        Ok(content)
    }

    /// Copies data by data, and leaves the holes.
    fn copy_whole(&self, to: &File) -> Result<u64> {
        let size = self.metadata()?.len();
        let mut at = 0;
        while let Some(data) = self.seek_data(at)?.filter(|data| *data < size) {
            let end = self.seek_hole(data)?.unwrap_or(size).min(size);
            at = data;
            while at < end {
                match self.copy_range(at, to, at, end - at)? {
                    0 => break,
                    copied => at += copied,
                }
            }
            if at < end {
                break;
            }
        }
        if to.metadata()?.len() < size {
            to.set_len(size)?;
        }
        Ok(size)
    }
}
