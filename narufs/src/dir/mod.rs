//! Directories, and everything that is asked of paths.

mod read_dir;
mod tree;
mod xattrs;

pub use read_dir::{DirEntry, DirPosition, ReadDir};

use crate::engine::{FileHandle, Files, RenameFlags, Session, SetAttr, told};
use crate::error::{Error, Result};
use crate::file::File;
use crate::metadata::{FileTimes, Metadata};
use crate::open_options::OpenOptions;
use std::fs::Permissions;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open directory, at which paths begin that do not begin with a slash; [`Fs`](crate::Fs) is the one at the root.
///
/// Its calls are those of `std::fs`, and of openat(2) and its like: what is renamed or removed above it meanwhile
/// changes nothing about it. Where the directory itself is removed, ENOENT is what it answers.
///
/// ```
/// # use narufs::{Fs, ScratchOptions};
/// # let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
/// fs.create_dir_all("/mail/new")?;
/// let new = fs.open_dir("/mail/new")?;
/// fs.rename("/mail", "/post")?;
/// new.write("1", "hello")?;
/// assert_eq!(fs.read("/post/new/1")?, b"hello");
/// # Ok::<(), narufs::Error>(())
/// ```
pub struct Dir {
    session: Arc<Session>,
    files: Files,
    /// None at the root, which needs none.
    handle: Option<FileHandle>,
}

/// What a rename does with a name that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RenameMode {
    /// It is replaced: what has it is removed.
    #[default]
    Replace,
    /// It stays, and the rename fails with EEXIST.
    NoReplace,
    /// The two names are exchanged; both must be there.
    Exchange,
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

impl Dir {
    pub(crate) fn root(session: Arc<Session>) -> Dir {
        Dir { files: session.root(), session, handle: None }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn into_session(self) -> Arc<Session> {
        Arc::clone(&self.session)
    }

    /// Asks the engine about a path.
    #[inline]
    fn ask<T>(
        &self,
        operation: &'static str,
        path: &Path,
        call: impl FnOnce(&Files, &[u8]) -> narufs_engine::Result<T>,
    ) -> Result<T> {
        self.session.enter(operation).map_err(|e| e.at(path))?;
        call(&self.files, bytes(path)).map_err(|e| told(operation, e).at(path))
    }

    /// EXDEV if the other directory is one of another file system.
    fn check_same(&self, operation: &'static str, other: &Session) -> Result<()> {
        let same = self.session.is_same_volume(other);
        if same { Ok(()) } else { Err(Error::of_errno(operation, libc::EXDEV)) }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG: of the path, as open(2); ENXIO for a pipe, a socket or a device
    /// node.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, OpenOptions::new().read(true))
    }

    /// Opens a file for writing: it is made if it is not there, and emptied if it is.
    ///
    /// # Errors
    /// As [`Dir::open`]; EISDIR, ENOSPC.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, OpenOptions::new().write(true).create(true).truncate(true))
    }

    /// Makes a file, which must not be there, and opens it for reading and writing.
    ///
    /// # Errors
    /// EEXIST, and as [`Dir::create`].
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, OpenOptions::new().read(true).write(true).create_new(true))
    }

    /// Opens, and with the options makes, a file.
    ///
    /// # Errors
    /// EINVAL for options that make no sense together, and as [`Dir::create`].
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        let path = path.as_ref();
        let options = options.to_engine("open").map_err(|e| e.at(path))?;
        let handle = self.ask("open", path, |files, path| files.open_handle(path, &options))?;
        Ok(File::new(Arc::clone(&self.session), handle))
    }

    /// Opens a new file without a name, which is gone when it is closed unless [`Dir::link_file`] has given it one. The
    /// path is that of the directory whose defaults it takes over; the options must allow writing.
    ///
    /// ```
    /// # use narufs::{Fs, OpenOptions, ScratchOptions};
    /// # let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
    /// let file = fs.open_temporary("/", OpenOptions::new().write(true))?;
    /// file.write_all_at(b"whole or not at all", 0)?;
    /// file.sync_all()?;
    /// fs.link_file(&file, "/result")?;
    /// # Ok::<(), narufs::Error>(())
    /// ```
    ///
    /// # Errors
    /// EINVAL if the options do not allow writing, and as [`Dir::create`].
    pub fn open_temporary(&self, dir: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        let path = dir.as_ref();
        let options = options.to_engine("open").map_err(|e| e.at(path))?;
        if !options.write && !options.append {
            return Err(Error::of_errno("open", libc::EINVAL).at(path));
        }
        let handle = self.ask("open", path, |files, path| files.open_temporary(path, &options))?;
        Ok(File::new(Arc::clone(&self.session), handle))
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// ENOTDIR if it is none, and as [`Dir::open`].
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        self.open_dir_with(path.as_ref(), true)
    }

    /// As [`Dir::open_dir`]; without `follow` a symlink is no directory.
    pub(crate) fn open_dir_with(&self, path: &Path, follow: bool) -> Result<Dir> {
        let handle = self.ask("open", path, |files, path| files.open_dir(path, follow))?;
        match self.files.within(&handle) {
            Ok(files) => Ok(Dir { session: Arc::clone(&self.session), files, handle: Some(handle) }),
            Err(e) => {
                self.session.release(handle, None);
                Err(told("open", e).at(path))
            }
        }
    }

    /// The entries of a directory, without "." and "..".
    ///
    /// # Errors
    /// As [`Dir::open_dir`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        Ok(ReadDir::new(self.open_dir(path)?, path))
    }

    /// Attributes; of a symlink those of what it leads to.
    ///
    /// # Errors
    /// Those of the path, as [`Dir::open`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.ask("metadata", path.as_ref(), |files, path| files.metadata(path)).map(Metadata::of_engine)
    }

    /// Attributes; of a symlink its own.
    ///
    /// # Errors
    /// Those of the path, as [`Dir::open`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.ask("metadata", path.as_ref(), |files, path| files.symlink_metadata(path))
            .map(Metadata::of_engine)
    }

    /// Whether the caller may read (4), write (2) and search or execute (1): the sum of these; 0 asks whether the path
    /// leads to something. As access(2).
    ///
    /// # Errors
    /// EACCES if not; those of the path, as [`Dir::open`].
    pub fn access(&self, path: impl AsRef<Path>, mask: u32) -> Result<()> {
        self.ask("access", path.as_ref(), |files, path| files.access(path, mask))
    }

    fn set(&self, operation: &'static str, path: &Path, follow: bool, set: &SetAttr) -> Result<()> {
        self.ask(operation, path, |files, path| files.set_attributes_of(path, follow, set)).map(drop)
    }

    /// Sets the permissions: the twelve lowest bits of a mode, `Permissions::from_mode(0o640)`.
    ///
    /// # Errors
    /// EPERM if the caller is not the owner; those of the path.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        let set = SetAttr { mode: Some(permissions.mode() & 0o7777), ..SetAttr::default() };
        self.set("set_permissions", path.as_ref(), true, &set)
    }

    /// Sets owner and group, or what is given of them.
    ///
    /// # Errors
    /// EPERM if the caller may not; those of the path.
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.set("set_owner", path.as_ref(), true, &SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// As [`Dir::set_owner`], of a symlink itself.
    ///
    /// # Errors
    /// As [`Dir::set_owner`].
    pub fn set_symlink_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.set("set_owner", path.as_ref(), false, &SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// Sets times.
    ///
    /// # Errors
    /// As [`File::set_times`](crate::File::set_times); those of the path.
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        self.set("set_times", path.as_ref(), true, &times.to_set())
    }

    /// As [`Dir::set_times`], of a symlink itself.
    ///
    /// # Errors
    /// As [`Dir::set_times`].
    pub fn set_symlink_times(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        self.set("set_times", path.as_ref(), false, &times.to_set())
    }

    /// Makes a directory, with mode 0755.
    ///
    /// # Errors
    /// EEXIST, EACCES, ENOSPC; those of the path.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_with_mode(path, 0o755)
    }

    /// Makes a directory; there is no umask.
    ///
    /// # Errors
    /// As [`Dir::create_dir`].
    pub fn create_dir_with_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.ask("create_dir", path.as_ref(), |files, path| files.create_dir_with(path, mode))
    }

    /// Makes a directory and those above it, as far as they are missing.
    ///
    /// # Errors
    /// As [`Dir::create_dir`], but EEXIST only for what is no directory.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.session.enter("create_dir").map_err(|e| e.at(path))?;
        // Up to what is there, then down again. Nothing is to be made of an empty path, as in the standard library.
        let mut missing = Vec::new();
        for above in path.ancestors().filter(|above| !bytes(above).is_empty()) {
            match self.create_dir(above) {
                Ok(()) => break,
                Err(e) if e.errno() == libc::ENOENT => missing.push(above),
                Err(_) if self.metadata(above).is_ok_and(|m| m.is_dir()) => break,
                Err(e) => return Err(e),
            }
        }
        for below in missing.into_iter().rev() {
            match self.create_dir(below) {
                Err(e) if !self.metadata(below).is_ok_and(|m| m.is_dir()) => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes a name of what is no directory. The file goes when it has no name and is open nowhere.
    ///
    /// # Errors
    /// EISDIR, EACCES, EPERM; those of the path.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.ask("remove_file", path.as_ref(), |files, path| files.remove_file(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOTEMPTY, ENOTDIR, EACCES, EPERM; EBUSY for the root; those of the path.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.ask("remove_dir", path.as_ref(), |files, path| files.remove_dir(path))
    }

    /// Renames; a file or empty directory that has the new name is replaced, so that the name always leads to the one
    /// or the other, also after a crash.
    ///
    /// # Errors
    /// As rename(2): ENOTEMPTY, EISDIR, ENOTDIR, EINVAL for a directory that would get into itself, EACCES, EPERM,
    /// ENOSPC; those of the paths.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_to(from, self, to, RenameMode::Replace)
    }

    /// As [`Dir::rename`], to a path that begins at another directory, and with a say about what is there.
    ///
    /// ```
    /// # use narufs::{Fs, RenameMode, ScratchOptions};
    /// # let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
    /// fs.write("/old", "1")?;
    /// fs.write("/new", "2")?;
    /// let refused = fs.rename_to("/old", &fs, "/new", RenameMode::NoReplace);
    /// assert_eq!(refused.unwrap_err().errno(), libc::EEXIST);
    /// fs.rename_to("/old", &fs, "/new", RenameMode::Exchange)?;
    /// assert_eq!(fs.read("/old")?, b"2");
    /// # Ok::<(), narufs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Dir::rename`]; EEXIST, as the mode says; EXDEV for a directory of another file system.
    pub fn rename_to(
        &self,
        from: impl AsRef<Path>,
        to_dir: &Dir,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let flags = match mode {
            RenameMode::Replace => RenameFlags::empty(),
            RenameMode::NoReplace => RenameFlags::NO_REPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
        };
        self.check_same("rename", &to_dir.session).map_err(|e| e.at(from))?;
        self.ask("rename", from, |files, from| files.rename_into(from, &to_dir.files, bytes(to), flags))
    }

    /// Gives a file another name. A symlink is not followed.
    ///
    /// # Errors
    /// EEXIST, EPERM for a directory, EMLINK, EACCES, ENOSPC; those of the paths.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.hard_link_to(original, self, link)
    }

    /// As [`Dir::hard_link`], to a path that begins at another directory.
    ///
    /// # Errors
    /// As [`Dir::hard_link`]; EXDEV for a directory of another file system.
    pub fn hard_link_to(
        &self,
        original: impl AsRef<Path>,
        link_dir: &Dir,
        link: impl AsRef<Path>,
    ) -> Result<()> {
        let (original, link) = (original.as_ref(), bytes(link.as_ref()));
        self.check_same("hard_link", &link_dir.session).map_err(|e| e.at(original))?;
        self.ask("hard_link", original, |files, from| files.hard_link_into(from, &link_dir.files, link))
    }

    /// Gives an open file another name, or its first.
    ///
    /// # Errors
    /// ENOENT for a file that has lost its last name or can never get one; else as [`Dir::hard_link`]; EXDEV for a file
    /// of another file system.
    pub fn link_file(&self, file: &File, link: impl AsRef<Path>) -> Result<()> {
        let link = link.as_ref();
        self.check_same("link", file.session()).map_err(|e| e.at(link))?;
        self.ask("link", link, |files, link| files.link_handle(file.handle(), link))
    }

    /// Makes a symlink at `link` that leads to `original`, whatever is there.
    ///
    /// # Errors
    /// EEXIST, EACCES, ENOSPC; ENOENT for an empty original, EINVAL for one with a zero byte; those of the path.
    pub fn symlink(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.ask("symlink", link.as_ref(), |files, link| files.symlink(bytes(original.as_ref()), link))
    }

    /// What a symlink leads to.
    ///
    /// # Errors
    /// EINVAL if it is none; those of the path.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let target = self.ask("read_link", path.as_ref(), |files, path| files.read_link(path))?;
        Ok(std::ffi::OsString::from_vec(target).into())
    }

    /// Returns when the names in this directory are durable, and every change of metadata that returned before. Of the
    /// root [`Fs::sync_power`](crate::Fs::sync_power) does so.
    ///
    /// # Errors
    /// Those of the device.
    pub fn sync_all(&self) -> Result<()> {
        let engine = self.session.enter("sync_all")?;
        let synced = match &self.handle {
            Some(handle) => engine.fsync(handle, false),
            None => self.files.open_dir(b".", true).and_then(|handle| {
                let synced = engine.fsync(&handle, false);
                engine.releasedir(handle);
                synced
            }),
        };
        synced.map_err(|e| told("sync_all", e))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.session.release(handle, None);
        }
    }
}

impl std::fmt::Debug for Dir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dir").field("nid", &self.handle.as_ref().map(FileHandle::nid)).finish_non_exhaustive()
    }
}
