//! Files by path, as a program uses them without any mount.
//!
//! Paths are absolute or not, always from the root; symlinks are followed, 40 at the most. A slash at the end of a path
//! asks for a directory, as in the system calls of Linux, and their errors are given. Every call acts as
//! uid 0 unless another caller is given with [`Files::acting_as`]. What this leaves to others: everything but
//! the walk from name to name.
//!
//! [`Fs`] is the usual way in: it mounts an image by its path.
//!
//! # Example
//! ```
//! use narufs_engine::path::OpenOptions;
//! use narufs_engine::{FormatOptions, Fs, VolumeOptions};
//!
//! # fn main() -> narufs_engine::Result<()> {
//! let dir = tempfile::tempdir().expect("a place for the image");
//! let image = dir.path().join("image");
//! narufs_engine::format(&image, &FormatOptions { blocks: Some(4096), ..FormatOptions::default() })?;
//!
//! let fs = Fs::mount(&image, &VolumeOptions::default())?;
//! fs.create_dir_all("/var/lib/queue")?;
//! let file = fs.open("/var/lib/queue/1", OpenOptions { write: true, create: true, ..Default::default() })?;
//! file.write_at(b"a message", 0)?;
//! file.sync_all()?;
//! fs.rename("/var/lib/queue/1", "/var/lib/queue/done")?;
//! assert_eq!(fs.metadata("/var/lib/queue/done")?.size, 9);
//! drop(file);
//! fs.unmount()?;
//!
//! let fs = Fs::mount(&image, &VolumeOptions::default())?;
//! assert_eq!(fs.read("/var/lib/queue/done")?, b"a message");
//! fs.unmount()?;
//! # Ok(())
//! # }
//! ```

mod file;
mod fs;
mod handles;
#[cfg(test)]
mod slashes;
#[cfg(test)]
mod tests;

pub use file::{File, OpenOptions};
pub use fs::{Fs, format};

use crate::error::{Error, Result};
use crate::format::Nid;
use crate::sync::Arc;
use crate::vfs::{
    self, Arrive, Attr, Context, FileHandle, FileType, InodeRef, OpenFlags, RenameFlags, SetAttr, Walked,
    check_path, check_target,
};

/// Symlinks that one path may lead through.
const MAX_LINKS: u32 = 40;

/// The last name of a path; "." for that of the root.
struct Last<'p> {
    name: &'p [u8],
    /// A slash follows: it means a directory. After "." and ".." that goes without saying.
    slash: bool,
}

/// A file system by paths.
pub struct Files {
    fs: Arc<vfs::Vfs>,
    caller: Context,
    /// Where paths begin that begin with no slash; without one, at the root.
    start: Option<InodeRef>,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: Vec<u8>,
    /// Its inode.
    pub nid: Nid,
    /// Its type.
    pub file_type: FileType,
}

impl Files {
    /// Paths of a file system, used as uid 0.
    pub fn new(fs: Arc<vfs::Vfs>) -> Files {
        Files::acting_as(fs, Context::root())
    }

    /// The same for another caller.
    pub fn acting_as(fs: Arc<vfs::Vfs>, caller: Context) -> Files {
        Files { fs, caller, start: None }
    }

    /// Returns when everything that a sync was answered for survives a loss of power, and every operation on
    /// metadata that returned before, whatever syncs wait for. Unsynced data stays in memory.
    ///
    /// # Errors
    /// Those of the device; the file system is read-only then.
    pub fn sync_power(&self) -> Result<()> {
        self.fs.sync_power()
    }

    /// EPERM for who may not change the file system as a whole.
    fn check_master(&self) -> Result<()> {
        if self.caller.is_root() { Ok(()) } else { Err(Error::Errno(libc::EPERM)) }
    }

    /// Makes the file system larger while it is used, see [`vfs::Vfs::resize`]; gives its size in bytes.
    ///
    /// # Errors
    /// EPERM unless the caller is root; [`Error::Refused`], saying why; those of the device.
    pub fn resize(&self, bytes: Option<u64>, sparse: bool) -> Result<u64> {
        self.check_master()?;
        self.fs.resize(bytes, sparse)
    }

    /// Tells the device what is free, runs of at least `least` bytes; gives the number of bytes.
    ///
    /// # Errors
    /// EPERM unless the caller is root; those of the device.
    pub fn trim(&self, least: u64) -> Result<u64> {
        self.check_master()?;
        self.fs.trim(0..u64::MAX, least)
    }

    fn start(&self) -> Result<&InodeRef> {
        self.start.as_ref().map_or_else(|| self.fs.root(), Ok)
    }

    /// Where a path leads; with `follow` through a symlink at its end.
    fn walk(&self, path: &[u8], follow: bool, arrive: Arrive) -> Result<InodeRef> {
        self.walk_from(self.start()?, path, follow, arrive, &mut 0)
    }

    fn walk_from(
        &self,
        start: &InodeRef,
        path: &[u8],
        follow: bool,
        arrive: Arrive,
        links: &mut u32,
    ) -> Result<InodeRef> {
        check_path(path)?;
        let start = if path.starts_with(b"/") { self.fs.root()? } else { start };
        let needs_dir = path.ends_with(b"/");
        let at = loop {
            match self.fs.walk(&self.caller, start, path, follow || needs_dir, arrive)? {
                Walked::There(at) => break at,
                Walked::Link { dir, link, rest } => {
                    *links += 1;
                    if *links > MAX_LINKS {
                        return Err(Error::Errno(libc::ELOOP));
                    }
                    let Some(target) = self.target(&link)? else { continue };
                    if rest.is_empty() {
                        break self.walk_from(&dir, &target, true, arrive, links)?;
                    }
                    let on = self.walk_from(&dir, &target, true, Arrive::Looking, links)?;
                    break self.walk_from(&on, rest, follow, arrive, links)?;
                }
            }
        };
        if needs_dir && at.file_type() != FileType::Directory {
            if arrive == Arrive::Opening {
                self.fs.leave(at);
            }
            return Err(Error::Errno(libc::ENOTDIR));
        }
        Ok(at)
    }

    /// The target of a symlink; none if it has gone since, as one that is replaced does: its name is to be asked again.
    fn target(&self, link: &InodeRef) -> Result<Option<Vec<u8>>> {
        match self.fs.readlink_at(link) {
            Err(Error::Errno(libc::ENOENT)) => Ok(None),
            read => read.map(Some),
        }
    }

    /// The directory where a path's last name lies, and that name.
    fn parent<'p>(&self, path: &'p [u8]) -> Result<(InodeRef, Last<'p>)> {
        self.parent_from(self.start()?, path, &mut 0)
    }

    fn parent_from<'p>(
        &self,
        start: &InodeRef,
        path: &'p [u8],
        links: &mut u32,
    ) -> Result<(InodeRef, Last<'p>)> {
        check_path(path)?;
        let Some(end) = path.iter().rposition(|c| *c != b'/') else {
            return Ok((self.fs.root()?.clone(), Last { name: b".", slash: false }));
        };
        let (trimmed, slashes) = path.split_at(end + 1);
        let (above, name) = trimmed.split_at(trimmed.iter().rposition(|c| *c == b'/').map_or(0, |at| at + 1));
        let dir = match above {
            [] => start.clone(),
            above => self.walk_from(start, above, true, Arrive::Looking, links)?,
        };
        Ok((dir, Last { name, slash: !slashes.is_empty() && !matches!(name, b"." | b"..") }))
    }

    /// The error of a call that would give something else than a directory a name with a slash behind it.
    fn no_directory(&self, dir: &InodeRef, name: &[u8]) -> Error {
        let there = self.fs.walk(&self.caller, dir, name, false, Arrive::Looking);
        there.map_or_else(|e| e, |_| Error::Errno(libc::EEXIST))
    }

    /// Opens a file for reading and writing; it is made if it is not there, and emptied if it is.
    pub fn create(&self, path: impl AsRef<[u8]>) -> Result<File> {
        let options =
            OpenOptions { read: true, write: true, create: true, truncate: true, ..Default::default() };
        self.open(path, options)
    }

    /// Opens, and with the options creates, a file.
    pub fn open(&self, path: impl AsRef<[u8]>, options: OpenOptions) -> Result<File> {
        self.open_handle(path.as_ref(), &options).map(|handle| self.file(handle))
    }

    /// Opens a file that is made if it is not there; at the end of the symlinks that lead to it.
    fn create_from(
        &self,
        start: &InodeRef,
        path: &[u8],
        options: &OpenOptions,
        links: &mut u32,
    ) -> Result<FileHandle> {
        let (dir, Last { name, slash }) = self.parent_from(start, path, links)?;
        if slash {
            self.fs.walk(&self.caller, &dir, b".", false, Arrive::Looking)?;
            return Err(Error::Errno(libc::EISDIR));
        }
        let flags = options.flags();
        loop {
            match self.fs.create_at(&self.caller, &dir, name, options.mode, flags) {
                Err(Error::Errno(libc::ELOOP)) if !flags.contains(OpenFlags::NO_FOLLOW) => {}
                opened => return opened,
            }
            let link = match self.fs.walk(&self.caller, &dir, name, true, Arrive::Looking) {
                Ok(Walked::Link { link, .. }) => link,
                // The link has gone since.
                Ok(Walked::There(_)) | Err(Error::Errno(libc::ENOENT)) => continue,
                Err(e) => return Err(e),
            };
            *links += 1;
            if *links > MAX_LINKS {
                return Err(Error::Errno(libc::ELOOP));
            }
            if let Some(target) = self.target(&link)? {
                return self.create_from(&dir, &target, options, links);
            }
        }
    }

    fn file(&self, handle: FileHandle) -> File {
        File::new(Arc::clone(&self.fs), self.caller.clone(), handle)
    }

    /// The whole content of a file.
    pub fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let file = self.open(path, OpenOptions { read: true, ..OpenOptions::default() })?;
        let mut content = Vec::new();
        let mut part = vec![0; 1 << 16];
        loop {
            let got = file.read_at(&mut part, content.len() as u64)?;
            if got == 0 {
                return Ok(content);
            }
            content.extend_from_slice(&part[..got]);
        }
    }

    /// Attributes; those of its target for a symlink.
    pub fn metadata(&self, path: impl AsRef<[u8]>) -> Result<Attr> {
        Ok(self.fs.getattr_at(&self.walk(path.as_ref(), true, Arrive::Looking)?))
    }

    /// Attributes; of a symlink its own.
    pub fn symlink_metadata(&self, path: impl AsRef<[u8]>) -> Result<Attr> {
        Ok(self.fs.getattr_at(&self.walk(path.as_ref(), false, Arrive::Looking)?))
    }

    /// Sets attributes; those of its target for a symlink.
    pub fn set_attributes(&self, path: impl AsRef<[u8]>, set: &SetAttr) -> Result<Attr> {
        self.set_attributes_of(path.as_ref(), true, set)
    }

    /// Makes a directory (mode 0755).
    pub fn create_dir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        self.create_dir_with(path.as_ref(), 0o755)
    }

    /// Makes a directory and those above it, as far as they are missing.
    pub fn create_dir_all(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let ends =
            (1..=path.len()).filter(|at| path.get(*at).is_none_or(|c| *c == b'/') && path[at - 1] != b'/');
        for end in ends {
            match self.create_dir(&path[..end]) {
                Ok(()) => {}
                Err(Error::Errno(libc::EEXIST))
                    if self.metadata(&path[..end])?.file_type == FileType::Directory => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The entries of a directory, without "." and "..".
    pub fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<Vec<Listed>> {
        let handle = self.open_dir(path.as_ref(), true)?;
        let mut listed = Vec::new();
        let read = self.fs.readdir(&handle, 2, &mut |e| {
            listed.push(Listed { name: e.name.to_vec(), nid: e.nid, file_type: e.file_type });
            true
        });
        self.fs.releasedir(handle);
        read.map(|()| listed)
    }

    /// Renames; a file or empty directory that has the new name is replaced.
    pub fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        self.rename_into(from.as_ref(), self, to.as_ref(), RenameFlags::empty())
    }

    /// Removes a name that is not a directory.
    pub fn remove_file(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let (dir, Last { name, slash }) = self.parent(path.as_ref())?;
        if slash {
            if self.fs.options().read_only {
                return Err(Error::Errno(libc::EROFS));
            }
            return match self.fs.walk(&self.caller, &dir, name, false, Arrive::Looking)? {
                Walked::There(at) if at.file_type() == FileType::Directory => Err(Error::Errno(libc::EISDIR)),
                _ => Err(Error::Errno(libc::ENOTDIR)),
            };
        }
        self.fs.unlink_at(&self.caller, &dir, name)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let (dir, Last { name, .. }) = self.parent(path)?;
        if path.iter().all(|c| *c == b'/') {
            return Err(Error::Errno(libc::EBUSY));
        }
        self.fs.rmdir_at(&self.caller, &dir, name)
    }

    /// Makes a symlink at `path` that leads to `target`.
    pub fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<()> {
        let target = target.as_ref();
        check_target(target)?;
        let (dir, Last { name, slash }) = self.parent(path.as_ref())?;
        if slash {
            return Err(self.no_directory(&dir, name));
        }
        self.fs.symlink_at(&self.caller, &dir, name, target)
    }

    /// The target of a symlink.
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        for _ in 0..MAX_LINKS {
            if let Some(target) = self.target(&self.walk(path.as_ref(), false, Arrive::Looking)?)? {
                return Ok(target);
            }
        }
        Err(Error::Errno(libc::ELOOP))
    }

    /// Gives a file another name.
    pub fn hard_link(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        self.hard_link_into(from.as_ref(), self, to.as_ref())
    }
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("caller", &self.caller).finish_non_exhaustive()
    }
}
