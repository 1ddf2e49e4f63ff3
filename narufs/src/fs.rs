//! A file system: made, opened and closed.

use crate::dir::Dir;
use crate::engine::{self, Context, OpenVolume, Session, told};
use crate::error::{Error, Result};
use crate::options::{FormatOptions, MountOptions, ScratchOptions};
use std::path::Path;
use std::sync::Arc;

/// An open file system, and the directory at its root: every call of a [`Dir`] can be made of it.
///
/// It stays open as long as anything of it is in use: this, what [`Fs::as_user`] has given, a [`File`](crate::File), a
/// [`Dir`] or a [`ReadDir`](crate::ReadDir). When the last of them is dropped it is closed: everything is written and
/// the image is marked clean. A failure of that shows in a log of `tracing` alone; whoever wants to know of it calls
/// [`Fs::close`]. Other processes cannot open the image meanwhile.
///
/// What runs as root (uid 0) may do everything; so may the caller of an `Fs` that was opened, until [`Fs::as_user`]
/// gives one for somebody else.
///
/// ```
/// # use narufs::{Fs, ScratchOptions};
/// let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
/// fs.create_dir("/queue")?;
/// fs.write("/queue/message", "hello")?;
/// assert_eq!(fs.read_to_string("/queue/message")?, "hello");
/// fs.close()?;
/// # Ok::<(), narufs::Error>(())
/// ```
pub struct Fs {
    root: Dir,
}

/// What was brought back when a file system was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// Records of the journal that were redone; 0 after a clean close.
    pub records: u64,
    /// Pages (4 KiB) of files' content that were taken from the journal.
    pub data_pages: u64,
}

/// Room and use of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// Bytes that files and metadata can have.
    pub total: u64,
    /// Bytes of them that are free.
    pub free: u64,
    /// Inodes in use and still possible.
    pub files: u64,
    /// Inodes still possible.
    pub files_free: u64,
}

impl Fs {
    /// Makes a file system on an image: a file, which is made if the options say how large, or a device.
    ///
    /// # Errors
    /// [`Cause::Refused`](crate::Cause::Refused), in words, if there is a file system already (see
    /// [`FormatOptions::force`]) or too little room (16 MiB are enough); [`Cause::InUse`](crate::Cause::InUse); EINVAL
    /// for a journal whose path is not UTF-8; those of the device.
    pub fn format(image: impl AsRef<Path>, options: &FormatOptions) -> Result<()> {
        engine::format(image.as_ref(), options)
    }

    /// Opens the file system on an image; after a crash everything is recovered that was committed.
    ///
    /// # Errors
    /// [`Cause::InUse`](crate::Cause::InUse) if it is open already, here or in another process;
    /// [`Cause::Refused`](crate::Cause::Refused) in words if there is none, or if its journal or the options do not fit.
    /// A damaged image is opened for reading: [`Fs::damage`].
    pub fn open(image: impl AsRef<Path>, options: &MountOptions) -> Result<Fs> {
        OpenVolume::open(image.as_ref(), options).map(Fs::of_root)
    }

    /// Makes a file system in memory that overflows to spill space, and that nothing outlives.
    ///
    /// # Errors
    /// [`Cause::Refused`](crate::Cause::Refused) in words, if there is too little memory or the spill space cannot be
    /// used; [`Cause::InUse`](crate::Cause::InUse) if another process uses it.
    pub fn scratch(options: &ScratchOptions) -> Result<Fs> {
        OpenVolume::scratch(options).map(Fs::of_root)
    }

    #[cfg(feature = "mount")]
    pub(crate) fn session(&self) -> &Arc<Session> {
        self.root.session()
    }

    fn of_root(volume: Arc<OpenVolume>) -> Fs {
        Fs { root: Dir::root(Session::new(volume, Context::root())) }
    }

    /// Writes everything and marks the image clean.
    ///
    /// # Errors
    /// EBUSY if something else of it is still in use: an open file or directory, or another `Fs` of it. Everything
    /// that was written is durable then, but the file system stays open until the last of them is dropped. Whatever
    /// else fails leaves the image for recovery.
    pub fn close(self) -> Result<()> {
        let session = self.root.into_session();
        session.enter("close")?;
        let busy = || Error::of_errno("close", libc::EBUSY);
        // Whoever else has it sees to the rest: of those who give it up at once, one gets it.
        if Arc::strong_count(&session) > 1 || Arc::strong_count(&session.volume) > 1 {
            session.enter("close")?.syncfs().map_err(|e| told("close", e))?;
        }
        let session = Arc::into_inner(session).ok_or_else(busy)?;
        Arc::into_inner(session.volume).ok_or_else(busy)?.close()
    }

    /// The same file system for another caller, whose permissions are checked at every step: that of `uid` and `gid`,
    /// and of further groups. What it makes is its own. A [`File`](crate::File) stays that of the caller who has opened
    /// it.
    ///
    /// ```
    /// # use narufs::{Fs, ScratchOptions};
    /// let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
    /// fs.create_dir_with_mode("/private", 0o700)?;
    /// let user = fs.as_user(1000, 1000, &[]);
    /// assert_eq!(user.read_dir("/private").unwrap_err().errno(), libc::EACCES);
    /// # Ok::<(), narufs::Error>(())
    /// ```
    pub fn as_user(&self, uid: u32, gid: u32, groups: &[u32]) -> Fs {
        let caller = Context::with_groups(uid, gid, groups.to_vec());
        let volume = Arc::clone(&self.root.session().volume);
        Fs { root: Dir::root(Session::new(volume, caller)) }
    }

    /// Returns when everything written before is durable, as far as [`Durability`](crate::Durability) says.
    ///
    /// # Errors
    /// Those of the device; of a file whose write-back has failed before, the same.
    pub fn sync(&self) -> Result<()> {
        self.root.session().enter("sync")?.syncfs().map_err(|e| told("sync", e))
    }

    /// Returns when everything that a sync was answered for survives a loss of power, and every change of metadata
    /// that returned before, whatever [`Durability`](crate::Durability) says. What was not synced stays in memory.
    ///
    /// # Errors
    /// Those of the device; nothing can be changed then.
    pub fn sync_power(&self) -> Result<()> {
        self.root.session().enter("sync")?.sync_power().map_err(|e| told("sync", e))
    }

    /// Room and use.
    ///
    /// # Errors
    /// None of its own.
    pub fn space(&self) -> Result<Space> {
        let stat = self.root.session().enter("space")?.statfs().map_err(|e| told("space", e))?;
        let block = u64::from(stat.block_size);
        Ok(Space {
            total: stat.blocks * block,
            free: stat.blocks_available * block,
            files: stat.files,
            files_free: stat.files_free,
        })
    }

    /// Makes the file system larger while it is used: `bytes` long, an image that is a file being made longer, or as
    /// long as its device is. Gives its size in bytes.
    ///
    /// # Errors
    /// EPERM for a caller other than root ([`Fs::as_user`]); [`Cause::Refused`](crate::Cause::Refused), saying why; those of
    /// the device.
    pub fn resize(&self, bytes: Option<u64>) -> Result<u64> {
        let session = self.root.session();
        session.enter("resize")?;
        session.root().resize(bytes, false).map_err(|e| told("resize", e))
    }

    /// Tells the device what is free, in runs of at least `least` bytes; gives the number of bytes.
    ///
    /// # Errors
    /// EPERM for a caller other than root ([`Fs::as_user`]); those of the device.
    pub fn trim(&self, least: u64) -> Result<u64> {
        let session = self.root.session();
        session.enter("trim")?;
        session.root().trim(least).map_err(|e| told("trim", e))
    }

    /// What was brought back when it was opened.
    pub fn recovery(&self) -> Recovery {
        let (records, data_pages, _) = self.root.session().volume.state();
        Recovery { records, data_pages }
    }

    /// Why nothing can be changed, if so: the image is damaged, or its device or journal has failed.
    pub fn damage(&self) -> Option<String> {
        self.root.session().volume.state().2
    }
}

/// What a test has mounted on media of its own.
///
/// # Errors
/// [`Cause::Forked`](crate::Cause::Forked).
#[cfg(feature = "sim")]
pub fn over_media(mounted: narufs_engine::Fs) -> Result<Fs> {
    OpenVolume::over(mounted).map(Fs::of_root)
}

impl std::ops::Deref for Fs {
    type Target = Dir;
    /// The directory at the root.
    fn deref(&self) -> &Dir {
        &self.root
    }
}

impl std::fmt::Debug for Fs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fs").finish_non_exhaustive()
    }
}
