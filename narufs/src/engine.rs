//! The way to the engine: the one module that names its types, but for those of open files.
//!
//! Whoever wants the engine asks a [`Session`] for it, which looks each time whether this is the process that has
//! opened the file system.

use crate::error::{Cause, Error, Result};
use crate::fork::Generation;
use crate::later::{Wait, Waiting};
use crate::metadata::{FileTimes, Stamp, XattrMode};
use crate::options::{FormatOptions, MountOptions, ScratchOptions};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use narufs_engine::lock::{Access, AdvisoryKind, LockRequest, Owner};
pub(crate) use narufs_engine::path::{Files, OpenOptions};
#[cfg(feature = "mount")]
pub(crate) use narufs_engine::vfs::AtimePolicy;
pub(crate) use narufs_engine::vfs::{
    Attr, Batch, BatchDurability, Context, FallocateMode, FileHandle, FileType, OpenFlags, RenameFlags,
    SetAttr, SetTime, Whence, WriteFlags, Written,
};

/// A file system that is open. Closed when the last of those who use it is gone.
pub(crate) struct OpenVolume {
    /// None once it is closed.
    mounted: Option<narufs_engine::Fs>,
    fs: Arc<narufs_engine::vfs::Vfs>,
    generation: Generation,
    /// Waits for those who do not, once there was one.
    waiting: OnceLock<Waiting>,
    /// Whether it is served at a directory: its one watcher is the mount.
    #[cfg(feature = "mount")]
    pub(crate) served: std::sync::atomic::AtomicBool,
}

impl OpenVolume {
    fn new(mounted: narufs_engine::Fs, generation: Generation) -> Arc<OpenVolume> {
        let fs = Arc::clone(mounted.inodes());
        Arc::new(OpenVolume {
            mounted: Some(mounted),
            fs,
            generation,
            waiting: OnceLock::new(),
            #[cfg(feature = "mount")]
            served: false.into(),
        })
    }

    /// What a mount serves.
    #[cfg(feature = "mount")]
    pub(crate) fn to_serve(&self) -> &Arc<narufs_engine::vfs::Vfs> {
        &self.fs
    }

    pub(crate) fn open(image: &Path, options: &MountOptions) -> Result<Arc<OpenVolume>> {
        let forked = || Error::new("open", Cause::Forked).at(image);
        let generation = Generation::of_this_process().ok_or_else(forked)?;
        let mounted = narufs_engine::Fs::mount(image, &options.to_engine());
        Ok(OpenVolume::new(mounted.map_err(|e| told("open", e).at(image))?, generation))
    }

    pub(crate) fn scratch(options: &ScratchOptions) -> Result<Arc<OpenVolume>> {
        let forked = || Error::new("scratch", Cause::Forked);
        let generation = Generation::of_this_process().ok_or_else(forked)?;
        let mounted = narufs_engine::Fs::scratch(&options.to_engine());
        Ok(OpenVolume::new(mounted.map_err(|e| told("scratch", e))?, generation))
    }

    #[cfg(feature = "sim")]
    pub(crate) fn over(mounted: narufs_engine::Fs) -> Result<Arc<OpenVolume>> {
        let forked = || Error::new("open", Cause::Forked);
        Ok(OpenVolume::new(mounted, Generation::of_this_process().ok_or_else(forked)?))
    }

    /// Writes everything and marks the image clean, unless that was done.
    pub(crate) fn close(&mut self) -> Result<()> {
        let Some(mounted) = self.mounted.take() else { return Ok(()) };
        if !self.generation.is_current() {
            // The parent's: neither its threads nor its media are to be touched.
            std::mem::forget(mounted);
            std::mem::forget(self.waiting.take());
            return Ok(());
        }
        // It may have something in hand that is to be durable.
        drop(self.waiting.take());
        mounted.unmount().map_err(|e| told("close", e))
    }

    /// Has something waited for by the thread that does.
    pub(crate) fn later(&self, wait: Wait) {
        self.waiting.get_or_init(Waiting::begin).add(wait);
    }

    /// Records and pages of data that recovery has brought back; and why nothing can be changed, if so.
    pub(crate) fn state(&self) -> (u64, u64, Option<String>) {
        let Some(mounted) = &self.mounted else { return (0, 0, None) };
        let outcome = mounted.recovery();
        (outcome.records, outcome.data_pages, mounted.damage())
    }
}

impl Drop for OpenVolume {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!("a file system that was dropped: {error}");
        }
    }
}

/// A file system as one caller uses it.
pub(crate) struct Session {
    pub(crate) volume: Arc<OpenVolume>,
    pub(crate) caller: Context,
}

impl Session {
    pub(crate) fn new(volume: Arc<OpenVolume>, caller: Context) -> Arc<Session> {
        Arc::new(Session { volume, caller })
    }

    /// The engine, if this is the process to use it.
    #[inline]
    pub(crate) fn enter(&self, operation: &'static str) -> Result<&narufs_engine::vfs::Vfs> {
        if self.is_ours() { Ok(&self.volume.fs) } else { Err(Error::new(operation, Cause::Forked)) }
    }

    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.volume.generation.is_current()
    }

    /// Paths that begin at the root.
    pub(crate) fn root(&self) -> Files {
        Files::acting_as(Arc::clone(&self.volume.fs), self.caller.clone())
    }

    pub(crate) fn is_same_volume(&self, other: &Session) -> bool {
        Arc::ptr_eq(&self.volume, &other.volume)
    }

    /// Gives a handle back; in a child of the process it is nothing but forgotten.
    pub(crate) fn release(&self, handle: FileHandle, lock_owner: Option<Owner>) {
        if self.is_ours() {
            self.volume.fs.release(handle, lock_owner);
        } else {
            std::mem::forget(handle);
        }
    }
}

/// Makes a file system.
pub(crate) fn format(image: &Path, options: &FormatOptions) -> Result<()> {
    let forked = || Error::new("format", Cause::Forked).at(image);
    let _generation = Generation::of_this_process().ok_or_else(forked)?;
    let made = narufs_engine::format(image, &options.to_engine()?);
    made.map(drop).map_err(|e| told("format", e).at(image))
}

/// What the engine has answered, in the words of this crate.
#[cold]
pub(crate) fn told(operation: &'static str, error: narufs_engine::Error) -> Error {
    use narufs_engine::Error as Engine;
    let words = error.to_string();
    let cause = match error {
        Engine::Errno(errno) => Cause::Errno(errno),
        Engine::Device { context, errno } => {
            Cause::Device { context, error: std::io::Error::from_raw_os_error(errno) }
        }
        Engine::Corrupt { .. } => Cause::Damaged(words),
        Engine::ReadOnly(why) => Cause::ReadOnly(why),
        Engine::InUse(why) => Cause::InUse(why),
        Engine::Refused(why) => Cause::Refused(why),
    };
    Error::new(operation, cause)
}

pub(crate) fn time(ns: i64) -> SystemTime {
    let since = std::time::Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { UNIX_EPOCH - since } else { UNIX_EPOCH + since }
}

/// Nanoseconds since 1970; times that do not fit are the first or the last that do.
pub(crate) fn nanoseconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

impl FileTimes {
    pub(crate) fn to_set(self) -> SetAttr {
        let set = |time| match time {
            None => SetTime::Omit,
            Some(Stamp::Now) => SetTime::Now,
            Some(Stamp::At(time)) => SetTime::At(nanoseconds(time)),
        };
        SetAttr { atime: set(self.accessed), mtime: set(self.modified), ..SetAttr::default() }
    }
}

impl XattrMode {
    pub(crate) fn to_engine(self) -> narufs_engine::vfs::XattrMode {
        match self {
            XattrMode::Any => narufs_engine::vfs::XattrMode::Any,
            XattrMode::Create => narufs_engine::vfs::XattrMode::Create,
            XattrMode::Replace => narufs_engine::vfs::XattrMode::Replace,
        }
    }
}
