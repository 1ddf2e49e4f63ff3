//! Open files.

mod io;
mod locks;
mod positional;
mod ranges;
mod xattrs;

pub use locks::{LockConflict, LockKind, LockOwner};
pub use positional::Appended;

use crate::engine::{FileHandle, Session, SetAttr, told};
use crate::error::{Error, Result};
use crate::metadata::{FileTimes, Metadata};
use locks::Owners;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex, OnceLock};

/// An open file, closed when dropped. What is done with it is done by the caller who has opened it.
///
/// It has a cursor, for [`Read`](std::io::Read), [`Write`](std::io::Write) and [`Seek`](std::io::Seek), which are there
/// for `File` and `&File`; threads that share a file take turns there. Calls with an offset leave the cursor alone, and
/// run beside each other: each sees all of another or nothing of it.
///
/// Dropping it does not sync it, and closing the file system does: what was not synced is lost only by a crash.
///
/// ```
/// # use narufs::{Fs, OpenOptions, ScratchOptions};
/// use std::io::{Read, Seek, Write};
/// # fn main() -> std::io::Result<()> {
/// # let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
/// let mut file = fs.open_with("/f", OpenOptions::new().read(true).write(true).create(true))?;
/// file.write_all(b"some words")?;
/// file.rewind()?;
/// let mut words = String::new();
/// file.read_to_string(&mut words)?;
/// assert_eq!(words, "some words");
/// # Ok(())
/// # }
/// ```
pub struct File {
    session: Arc<Session>,
    /// None while it is dropped alone.
    handle: Option<FileHandle>,
    cursor: Mutex<u64>,
    /// Whose locks are to be given back; made with the first.
    owners: OnceLock<Box<Owners>>,
}

impl File {
    pub(crate) fn new(session: Arc<Session>, handle: FileHandle) -> File {
        File { session, handle: Some(handle), cursor: Mutex::new(0), owners: OnceLock::new() }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    #[inline]
    pub(crate) fn handle(&self) -> &FileHandle {
        self.handle.as_ref().expect("only the drop takes it")
    }

    /// Asks the engine about this file.
    #[inline]
    fn ask<T>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&narufs_engine::vfs::Vfs, &FileHandle) -> narufs_engine::Result<T>,
    ) -> Result<T> {
        let engine = self.session.enter(operation)?;
        call(engine, self.handle()).map_err(|e| told(operation, e))
    }

    /// Returns when content and attributes are durable, and every change of metadata that returned before; what that
    /// means [`Durability`](crate::Durability) says. It also tells of what could not be written in the background since
    /// this file was opened.
    ///
    /// # Errors
    /// EIO, ENOSPC: what was written since the last sync may be lost; the next sync tries again.
    pub fn sync_all(&self) -> Result<()> {
        self.ask("sync_all", |engine, handle| engine.fsync(handle, false))
    }

    /// As [`File::sync_all`], but for attributes that are not needed to read the content, such as times.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.ask("sync_data", |engine, handle| engine.fsync(handle, true))
    }

    /// Returns when the content, and every change of metadata that returned before, survive the end of the process, whatever
    /// [`Durability`](crate::Durability) says: no flush of the device is waited for. A loss of power may take it, as what
    /// was never synced.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_process(&self) -> Result<()> {
        self.ask("sync_process", |engine, handle| engine.fsync_process(handle))
    }

    /// As [`File::sync_all`], but `done` is called with the outcome, by this thread or another, as soon as it is known: it
    /// must neither wait nor use the file system. What is synced is what was written before the call. Any number of syncs
    /// can wait to be told, and none of them has a thread: one of the file system does for all.
    pub fn sync_all_then(&self, done: impl FnOnce(Result<()>) + Send + 'static) {
        self.sync_then("sync_all", false, done);
    }

    /// As [`File::sync_all_then`], but for attributes that are not needed to read the content.
    pub fn sync_data_then(&self, done: impl FnOnce(Result<()>) + Send + 'static) {
        self.sync_then("sync_data", true, done);
    }

    fn sync_then(
        &self,
        operation: &'static str,
        datasync: bool,
        done: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let engine = match self.session.enter(operation) {
            Ok(engine) => engine,
            Err(e) => return done(Err(e)),
        };
        let told = move |outcome: narufs_engine::Result<()>| done(outcome.map_err(|e| told(operation, e)));
        engine.fsync_by(self.handle(), datasync, Box::new(told), |wait| self.session.volume.later(wait));
    }

    /// Attributes.
    ///
    /// # Errors
    /// None of its own.
    pub fn metadata(&self) -> Result<Metadata> {
        self.ask("metadata", |engine, handle| Ok(Metadata::of_engine(engine.getattr_open(handle))))
    }

    /// Cuts the file, or makes it longer by a hole; `len` in bytes. The cursor stays.
    ///
    /// # Errors
    /// EINVAL if it is not open for writing; EFBIG, ENOSPC.
    pub fn set_len(&self, len: u64) -> Result<()> {
        if !self.handle().flags().writes() {
            return Err(Error::of_errno("set_len", libc::EINVAL));
        }
        self.set("set_len", &SetAttr { size: Some(len), ..SetAttr::default() })
    }

    /// Sets the permissions: the twelve lowest bits of a mode.
    ///
    /// # Errors
    /// EPERM if the caller is not the owner.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        let mode = Some(permissions.mode() & 0o7777);
        self.set("set_permissions", &SetAttr { mode, ..SetAttr::default() })
    }

    /// Sets owner and group, or what is given of them.
    ///
    /// # Errors
    /// EPERM if the caller may not.
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.set("set_owner", &SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// Sets times.
    ///
    /// # Errors
    /// EPERM if the caller is not the owner; if both are to be now, EACCES if the caller may not write either.
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        self.set("set_times", &times.to_set())
    }

    fn set(&self, operation: &'static str, set: &SetAttr) -> Result<()> {
        self.ask(operation, |engine, handle| engine.setattr_open(&self.session.caller, handle, set).map(drop))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        let own = self.owners.take().map(|owners| {
            if let Ok(engine) = self.session.enter("close") {
                owners.release(engine, &handle);
            }
            owners.own()
        });
        self.session.release(handle, own);
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("handle", &self.handle).finish_non_exhaustive()
    }
}
