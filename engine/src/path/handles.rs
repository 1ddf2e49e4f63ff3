//! Paths that begin at an open directory, and calls that give or take handles: what openat(2) and its like do.

use super::{Files, Last, OpenOptions};
use crate::error::Result;
use crate::format::Nid;
use crate::sync::Arc;
use crate::vfs::{Arrive, Attr, FileHandle, InodeRef, OpenFlags, RenameFlags, SetAttr};

impl Files {
    /// The same for the same caller, of an open directory: there begin the paths that do not begin with a slash.
    ///
    /// # Errors
    /// ESTALE if the handle is of no use any more.
    pub fn within(&self, dir: &FileHandle) -> Result<Files> {
        let start = Some(self.fs.reach(dir.nid())?);
        Ok(Files { fs: Arc::clone(&self.fs), caller: self.caller.clone(), start })
    }

    /// Opens, and with the options creates, a file; the handle is given back with
    /// [`Vfs::release`](crate::vfs::Vfs::release).
    pub fn open_handle(&self, path: &[u8], options: &OpenOptions) -> Result<FileHandle> {
        if options.create || options.create_new {
            return self.create_from(self.start()?, path, options, &mut 0);
        }
        let flags = options.flags();
        let found = self.walk(path, !flags.contains(OpenFlags::NO_FOLLOW), Arrive::Opening)?;
        self.fs.open_at(&self.caller, found, flags)
    }

    /// Opens a directory, with `follow` at the end of a symlink too; the handle is given back with
    /// [`Vfs::releasedir`](crate::vfs::Vfs::releasedir). ENOTDIR: there is something else.
    pub fn open_dir(&self, path: &[u8], follow: bool) -> Result<FileHandle> {
        let found = self.walk(path, follow, Arrive::Opening)?;
        self.fs.open_at(&self.caller, found, OpenFlags::DIRECTORY)
    }

    /// Opens a new file without a name, for which a directory has room; with `create_new` it can never get a name.
    pub fn open_temporary(&self, dir: &[u8], options: &OpenOptions) -> Result<FileHandle> {
        self.with_inode(dir, true, |nid| {
            let made = self.fs.tmpfile(&self.caller, nid, options.mode, options.flags());
            let (entry, handle) = made?;
            self.fs.forget(entry.nid, 1);
            Ok(handle)
        })
    }

    /// Gives an open file a name; one of [`Files::open_temporary`] its first.
    pub fn link_handle(&self, handle: &FileHandle, to: &[u8]) -> Result<()> {
        let (dir, Last { name, slash }) = self.parent(to)?;
        if slash {
            return Err(self.no_directory(&dir, name));
        }
        self.fs.link_at(&self.caller, &self.fs.reach(handle.nid())?, &dir, name)
    }

    /// Gives a file another name, in what may be another directory.
    pub fn hard_link_into(&self, from: &[u8], into: &Files, to: &[u8]) -> Result<()> {
        let found = self.walk(from, false, Arrive::Looking)?;
        let (dir, Last { name, slash }) = into.parent(to)?;
        if slash {
            return Err(self.no_directory(&dir, name));
        }
        self.fs.link_at(&self.caller, &found, &dir, name)
    }

    /// Renames, replaces or exchanges.
    pub fn rename_into(&self, from: &[u8], into: &Files, to: &[u8], flags: RenameFlags) -> Result<()> {
        let (old, from) = self.parent(from)?;
        let (new, to) = into.parent(to)?;
        let mut flags = flags;
        let is_exchange = flags.contains(RenameFlags::EXCHANGE);
        flags.set(RenameFlags::DIRECTORY, from.slash || to.slash && !is_exchange);
        flags.set(RenameFlags::TARGET_DIRECTORY, to.slash && is_exchange);
        self.fs.rename_at(&self.caller, (&old, from.name), (&new, to.name), flags)
    }

    /// Makes a directory.
    pub fn create_dir_with(&self, path: &[u8], mode: u32) -> Result<()> {
        let (dir, Last { name, .. }) = self.parent(path)?;
        self.fs.mkdir_at(&self.caller, &dir, name, mode)
    }

    /// Sets attributes; with `follow` those of its target for a symlink.
    pub fn set_attributes_of(&self, path: &[u8], follow: bool, set: &SetAttr) -> Result<Attr> {
        let found = self.walk(path, follow, Arrive::Opening)?;
        self.fs.setattr_at(&self.caller, found, set)
    }

    /// Asks the inode that a path leads to, which is there for as long as `ask` runs (but a symlink, which
    /// `follow` leads through).
    pub fn with_inode<T>(&self, path: &[u8], follow: bool, ask: impl FnOnce(Nid) -> Result<T>) -> Result<T> {
        let found = self.walk(path, follow, Arrive::Opening)?;
        let _left = scopeguard::guard(found.clone(), |found: InodeRef| self.fs.leave(found));
        ask(found.nid())
    }

    /// Whether the caller may do what `mask` says (`R_OK`, `W_OK`, `X_OK`, or 0: it exists).
    pub fn access(&self, path: &[u8], mask: u32) -> Result<()> {
        self.with_inode(path, true, |nid| self.fs.access(&self.caller, nid, mask))
    }

    /// The caller of all this.
    pub fn caller(&self) -> &crate::vfs::Context {
        &self.caller
    }
}
