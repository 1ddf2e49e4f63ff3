//! narufs, the library: a crash-consistent, multi-core-scalable file system inside a process, in the shape of
//! [`std::fs`].
//!
//! [`Fs::format`] makes a file system on a file or block device, [`Fs::open`] opens it (and recovers it after a
//! crash), [`Fs::scratch`] makes one that lives in memory and overflows to disk. From there on it reads as `std::fs`
//! does: [`File`], [`OpenOptions`], [`Metadata`], [`ReadDir`], and [`Dir`] for calls that begin at an open directory.
//! What a [`File`] has been told to sync survives a loss of power; no system call lies on the way to what memory holds.
//!
//! ```
//! use narufs::{FormatOptions, Fs, MountOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = tempfile::tempdir()?;
//! let image = place.path().join("image");
//! Fs::format(&image, &FormatOptions::new().size(16 << 20))?;
//!
//! let fs = Fs::open(&image, &MountOptions::new())?;
//! fs.create_dir_all("/var/lib/queue")?;
//! let file = fs.create("/var/lib/queue/1")?;
//! file.write_all_at(b"a message", 0)?;
//! file.sync_all()?; // durable now
//! fs.rename("/var/lib/queue/1", "/var/lib/queue/done")?;
//! drop(file);
//! fs.close()?;
//!
//! let fs = Fs::open(&image, &MountOptions::new())?;
//! assert_eq!(fs.read("/var/lib/queue/done")?, b"a message");
//! # Ok(())
//! # }
//! ```
//!
//! # Paths
//! Paths are `AsRef<Path>`. They begin at the root, with or without a slash at their beginning, those given to a
//! [`Dir`] at that directory. Symlinks are followed, 40 at the most; a slash at the end asks for a directory, as in the
//! system calls of Linux. There is no working directory and no umask.
//!
//! # Units
//! Offsets, lengths and sizes are bytes; times are [`SystemTime`](std::time::SystemTime)s with nanoseconds.
//!
//! # Errors
//! Every call fails with an [`Error`], which knows the errno that a system call would have given, the operation, and
//! the path if there was one; it converts into [`std::io::Error`]. Beside what a call lists, each can fail with EIO if
//! the device fails or what it reads is damaged, with EROFS if a change is asked for where nothing may be changed
//! ([`Fs::damage`] tells why), and with [`Cause::Forked`].
//!
//! # Mounts
//! With the feature `mount`, `Fs::serve` shows at a directory what the program has open: other programs work there on the
//! same files, and their locks and the program's are in each other's way.
//!
//! # Threads and processes
//! Everything is [`Send`] and [`Sync`], and many threads may use one [`File`]. A file system belongs to the process
//! that has opened it. In a child that was forked from it every call is an error ([`Cause::Forked`]), and dropping does
//! nothing, so that the image stays whole. Nor can it open one of its own: threads that it does not have were asleep in
//! locks that it has a copy of. Programs that it starts can, and so can children that were forked before the first was
//! opened or after the last was closed. It does not keep the image locked either: others can open it as soon as its
//! process has closed it, or has ended, whatever children live on. (A child made by a bare `clone` system call, past
//! the C library, is not noticed. One that is forked while another thread is in the midst of opening or closing may
//! keep that image locked until it ends, or starts another program.)

mod batch;
mod dir;
mod engine;
mod error;
mod file;
mod fork;
mod fs;
mod later;
mod metadata;
mod open_options;
mod options;
#[cfg(feature = "mount")]
mod serve;
mod waits;

pub use batch::{Batch, Commit};
pub use dir::{Dir, DirEntry, DirPosition, ReadDir, RenameMode};
pub use error::{Cause, Error, Result};
pub use file::{Appended, File, LockConflict, LockKind, LockOwner};
#[cfg(feature = "sim")]
#[doc(hidden)]
pub use fs::over_media;
pub use fs::{Fs, Recovery, Space};
pub use metadata::{FileTimes, FileType, Metadata, XattrMode};
pub use open_options::OpenOptions;
pub use options::{AccessTimes, Durability, FormatOptions, Journal, MountOptions, Origin, ScratchOptions};
#[cfg(feature = "mount")]
pub use serve::{ServeOptions, Served};
pub use waits::{before_sleep, noticing_sleep};

/// What everything that a program holds must be.
const _: () = {
    const fn shared<T: Send + Sync + 'static>() {}
    shared::<Fs>();
    shared::<File>();
    shared::<Dir>();
    shared::<Batch>();
    shared::<ReadDir>();
    shared::<DirEntry>();
    shared::<Error>();
    shared::<Metadata>();
    shared::<OpenOptions>();
    shared::<MountOptions>();
};

#[doc = include_str!("../../README.md")]
#[cfg(doctest)]
pub struct Readme;
