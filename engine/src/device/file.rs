//! The image: a regular file or a raw block device, opened, locked and measured.
//!
//! The lock is on the very descriptor that carries the I/O. The kernel drops it only when the last reference
//! to the open file is gone, and a request in flight holds one: so when the next process gets the lock, every
//! write of a killed predecessor is over.
//!
//! Direct I/O is used where the file system offers it; otherwise requests go through the page cache, which
//! changes speed but not the meaning of a flush.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::erase::Written;
use super::{BLOCK_SIZE, loops};
use crate::blocking::deeply;
use crate::fork::{KeptFromChildren, beyond_standard};
use crate::sync::Arc;
use crate::{Error, Result};

/// A killed process holds its lock until the kernel has taken its memory and its I/O apart: a thread that mounts right
/// after a kill waits so long before it is told that the image is in use.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// An open, locked image.
#[derive(Debug)]
pub struct ImageFile {
    // Before the files: their numbers are taken out of the list first.
    _kept: KeptFromChildren,
    /// Of a loop device the file that it shows, locked.
    _behind: Option<(KeptFromChildren, File)>,
    pub(super) file: File,
    pub(super) path: PathBuf,
    // Relaxed: a bound. A thread that uses blocks behind an older one has been told of them otherwise.
    pub(super) blocks: AtomicU64,
    direct: bool,
    pub(super) block_device: bool,
    /// What was written, where that is noted.
    pub(super) written: Option<Arc<Written>>,
}

/// Bytes at the beginning of a file or device that are looked at for data.
pub(crate) const PROBED: u64 = 128 << 10;

/// The beginning of a file or device, which tells whether it holds data.
///
/// # Errors
/// If it is not there, cannot be read, or is neither a file nor a block device: that is not opened.
pub(crate) fn probe(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut start = Vec::new();
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_block_device() && !kind.is_dir() {
        return Err(std::io::Error::other("it is neither a file nor a block device"));
    }
    // What has come into its place meanwhile is not waited for.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    file.take(PROBED).read_to_end(&mut start)?;
    Ok(start)
}

/// Where the file can be opened that a descriptor is of, whatever its path leads to now.
pub(crate) fn path_of(place: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", place.as_fd().as_raw_fd()))
}

impl ImageFile {
    /// Opens and locks an image that exists.
    ///
    /// # Errors
    /// [`Error::InUse`] when another process holds it; [`Error::Refused`] when it cannot be an image.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, OFlags::RDWR)
    }

    /// The same of the file or device that a descriptor is of, whatever its path leads to now: one that was opened with
    /// `O_PATH` does, and has no lock. `path` is what errors call it; without `writes`, as [`ImageFile::open_to_read`].
    ///
    /// # Errors
    /// As [`ImageFile::open`].
    pub fn open_through(place: BorrowedFd<'_>, path: &Path, writes: bool) -> Result<Self> {
        let link = path_of(place);
        let opened = if writes { Self::open(&link) } else { Self::open_to_read(&link) };
        Ok(Self { path: path.to_owned(), ..opened? })
    }

    /// Opens one that is not written to, which may lie where nothing can be written.
    ///
    /// # Errors
    /// As [`ImageFile::open`].
    pub fn open_to_read(path: &Path) -> Result<Self> {
        match Self::open(path) {
            Err(Error::Errno(libc::EROFS | libc::EACCES | libc::EPERM)) => {
                Self::open_with(path, OFlags::RDONLY)
            }
            opened => opened,
        }
    }

    /// Creates (or takes over) a regular file and makes it `blocks` long, its space reserved; a raw device is
    /// opened and must have at least that size.
    ///
    /// # Errors
    /// [`Error::Refused`], in words, for too little room among others: no file is left then that was not there, and one that was
    /// has its length.
    pub fn create(path: &Path, blocks: u64) -> Result<Self> {
        Self::create_with(path, blocks, |image, blocks| {
            image.lengthen(blocks).and_then(|()| image.reserve(blocks))
        })
    }

    /// The same with no space reserved: it is taken as it is written, and writes fail where there is none.
    pub fn create_sparse(path: &Path, blocks: u64) -> Result<Self> {
        Self::create_with(path, blocks, Self::lengthen)
    }

    fn create_with(
        path: &Path,
        blocks: u64,
        lengthen: impl FnOnce(&Self, u64) -> Result<()>,
    ) -> Result<Self> {
        let (image, is_new) = match Self::open_with(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
            Err(Error::Errno(libc::EEXIST)) => (Self::open_with(path, OFlags::RDWR | OFlags::CREATE)?, false),
            made => made.map(|image| (image, true))?,
        };
        if image.block_device {
            if image.blocks() < blocks {
                return Err(image.refused(format_args!(
                    "has {} blocks of 4 KiB, fewer than the {blocks} asked for; ask for less",
                    image.blocks()
                )));
            }
        } else {
            let before = image.file.metadata().map_err(|e| io_error("stat the image", &e))?.len();
            let durable = || image.file.sync_all().map_err(|e| io_error("make the image's size durable", &e));
            if let Err(e) = lengthen(&image, blocks).and_then(|()| durable()) {
                let undone = match is_new {
                    true => std::fs::remove_file(path),
                    false => image.file.set_len(before),
                };
                if let Err(left) = undone {
                    tracing::warn!(path = %path.display(), error = %left, "the image keeps the length it could not use");
                }
                return Err(e);
            }
        }
        image.blocks.store(blocks, Relaxed);
        Ok(image)
    }

    fn bytes_of(&self, blocks: u64) -> Result<u64> {
        let bytes = blocks.checked_mul(BLOCK_SIZE as u64).filter(|b| i64::try_from(*b).is_ok());
        bytes.ok_or_else(|| self.refused(format_args!("cannot have {blocks} blocks")))
    }

    /// Makes a regular file `blocks` long.
    pub(super) fn lengthen(&self, blocks: u64) -> Result<()> {
        let bytes = self.bytes_of(blocks)?;
        rustix::fs::ftruncate(&self.file, bytes).map_err(|e| device_error("set the image's size", e))
    }

    /// Makes a regular file `blocks` long, and reserves its space. One that is longer stays so.
    pub(super) fn reserve(&self, blocks: u64) -> Result<()> {
        let bytes = self.bytes_of(blocks)?;
        match deeply(|| rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes)) {
            Ok(()) => Ok(()),
            // The file system cannot reserve; writes may then fail with ENOSPC later, and say so.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                tracing::warn!(path = %self.path.display(), "this file system cannot reserve the image's space");
                if self.measured()? < blocks { self.lengthen(blocks) } else { Ok(()) }
            }
            Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                let why = format_args!("needs {bytes} bytes of space: {e}; free some or ask for less");
                Err(self.refused(why))
            }
            Err(e) => Err(device_error("reserve the image's space", e)),
        }
    }

    pub(super) fn open_with(path: &Path, flags: OFlags) -> Result<Self> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let mode = Mode::RUSR | Mode::WUSR;
        // On a block device this claims it from the kernel, which refuses while it has the device mounted.
        let is_device = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
        let flags = if is_device { flags.difference(OFlags::CREATE) | OFlags::EXCL } else { flags };
        // What a killed process had open is closed a little after its end.
        let opened = match flags.contains(OFlags::CREATE | OFlags::EXCL) {
            true => create_direct(path, flags, mode),
            false => patiently(Errno::BUSY, || rustix::fs::open(path, flags | OFlags::DIRECT, mode))
                .map(|fd| (fd, true)),
        };
        let (fd, direct) = match opened {
            Ok(opened) => opened,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                tracing::debug!(path = %path.display(), "no direct I/O here; going through the page cache");
                (rustix::fs::open(path, flags, mode).map_err(|e| Error::Errno(e.raw_os_error()))?, false)
            }
            Err(Errno::BUSY) => return Err(in_use(path)),
            Err(e) => return Err(Error::Errno(e.raw_os_error())),
        };
        let file = File::from(beyond_standard(fd).map_err(|e| Error::Errno(e.raw_os_error()))?);
        let kept = KeptFromChildren::enter(&file);
        lock(&file, path)?;
        let metadata = file.metadata().map_err(|e| io_error("stat the image", &e))?;
        let kind = metadata.file_type();
        let blocks = AtomicU64::new(metadata.len() / BLOCK_SIZE as u64);
        let behind = match kind {
            kind if kind.is_block_device() => loops::lock_behind(&file, path)?,
            _ => loops::check_over(&file, path).map(|()| None)?,
        };
        let image = Self {
            _kept: kept,
            _behind: behind,
            file,
            path: path.to_owned(),
            blocks,
            direct,
            block_device: kind.is_block_device(),
            written: None,
        };
        if image.block_device {
            image.blocks.store(image.measured()?, Relaxed);
        } else if !kind.is_file() {
            return Err(image.refused(format_args!("is neither a regular file nor a block device")));
        }
        Ok(image)
    }

    /// Says whether the image is long enough for a file system of `blocks` blocks.
    ///
    /// # Errors
    /// [`Error::Refused`] when it was truncated.
    pub fn require(&self, blocks: u64) -> Result<()> {
        if self.blocks() < blocks {
            return Err(self.refused(format_args!(
                "is truncated: it has {} blocks of 4 KiB, its file system {blocks}; restore its full length",
                self.blocks()
            )));
        }
        Ok(())
    }

    /// Size in whole blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Relaxed)
    }

    /// Blocks of the file or device as it is now.
    pub(super) fn measured(&self) -> Result<u64> {
        let bytes = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))
            .map_err(|e| device_error("measure the device", e))?;
        Ok(bytes / BLOCK_SIZE as u64)
    }

    /// Makes a regular file longer, its space reserved unless `sparse`, and its length durable by `flush`. A block device must
    /// have become large enough by itself.
    ///
    /// # Errors
    /// [`Error::Refused`], saying what there is too little of; the length is then what it was.
    pub(super) fn grow(&self, blocks: u64, sparse: bool, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let old = self.blocks();
        // Of a file that is as long the space may not be reserved: who made it so was killed before that, or is another.
        if blocks <= old && (sparse || self.block_device) {
            return Ok(());
        }
        if self.block_device {
            let now = self.measured()?;
            if now < blocks {
                return Err(self.refused(format_args!(
                    "has {now} blocks of 4 KiB, fewer than the {blocks} asked for; enlarge the device first"
                )));
            }
            self.blocks.store(now, Relaxed);
            return Ok(());
        }
        let longer = if sparse { self.lengthen(blocks) } else { self.reserve(blocks) };
        if let Err(e) = longer.and_then(|()| flush()) {
            if blocks > old {
                self.cut(old);
            }
            return Err(e);
        }
        self.blocks.store(blocks.max(old), Relaxed);
        Ok(())
    }

    /// Makes a regular file that has grown as short again as it was, which gives back what was written behind that.
    pub(super) fn cut(&self, blocks: u64) {
        if self.block_device {
            return;
        }
        self.blocks.store(blocks, Relaxed);
        if let Err(left) = deeply(|| rustix::fs::ftruncate(&self.file, blocks * BLOCK_SIZE as u64)) {
            tracing::warn!(path = %self.path.display(), error = %left, "the image keeps the length it could not use");
        }
    }

    /// Whether requests bypass the kernel's page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether it is a file of another server in user space.
    pub(super) fn is_on_fuse(&self) -> bool {
        rustix::fs::fstatfs(&self.file).is_ok_and(|fs| fs.f_type == libc::FUSE_SUPER_MAGIC)
    }

    /// Whether it is a raw block device.
    pub fn is_block_device(&self) -> bool {
        self.block_device
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Waits until completed writes are on durable media.
    pub(super) fn flush(&self) -> Result<()> {
        loop {
            match deeply(|| rustix::fs::fdatasync(&self.file)) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(device_error("flush", e)),
            }
        }
    }

    /// Frees what a range occupies, where the medium can; the range reads as zeros or as before.
    pub(super) fn discard(&self, block: u64, count: u64) {
        let (offset, len) = (block * BLOCK_SIZE as u64, count * BLOCK_SIZE as u64);
        if let Err(e) = self.punch(offset, len) {
            tracing::trace!(block, count, error = %e, "discard is not offered here");
        }
    }

    /// Frees a range of bytes, which read as zeros then.
    pub(super) fn punch(&self, offset: u64, len: u64) -> std::result::Result<(), Errno> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        deeply(|| rustix::fs::fallocate(&self.file, flags, offset, len))
    }

    fn refused(&self, why: std::fmt::Arguments<'_>) -> Error {
        Error::Refused(format!("{} {why}", self.path.display()))
    }
}

impl AsFd for ImageFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Locks an open file for this process alone, without waiting.
pub(crate) fn lock(file: &File, path: &Path) -> Result<()> {
    let lock = || rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    match patiently(Errno::WOULDBLOCK, lock) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(in_use(path)),
        Err(e) => Err(device_error("lock the file", e)),
    }
}

/// Makes a file, and has its requests bypass the page cache if they can: a file system that offers no such thing may have
/// made the file before it says so.
fn create_direct(path: &Path, flags: OFlags, mode: Mode) -> Result<(OwnedFd, bool), Errno> {
    let fd = rustix::fs::open(path, flags, mode)?;
    let direct = rustix::fs::fcntl_getfl(&fd)
        .and_then(|flags| rustix::fs::fcntl_setfl(&fd, flags | OFlags::DIRECT))
        .is_ok();
    Ok((fd, direct))
}

/// Tries again for a while as long as the answer is this one.
pub(super) fn patiently<T>(answer: Errno, mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let patience = Instant::now() + LOCK_PATIENCE;
    loop {
        match call() {
            Err(e) if e == answer && Instant::now() < patience => std::thread::sleep(LOCK_PAUSE),
            other => return other,
        }
    }
}

pub(crate) fn in_use(path: &Path) -> Error {
    Error::InUse(format!(
        "{} is in use by another process or mounted; unmount it, or end that process, first",
        path.display()
    ))
}

/// The error of a failed system call on an open medium.
pub(crate) fn device_error(context: &'static str, e: Errno) -> Error {
    Error::Device { context, errno: e.raw_os_error() }
}

/// The same from the standard library's error.
pub(crate) fn io_error(context: &'static str, e: &std::io::Error) -> Error {
    Error::Device { context, errno: e.raw_os_error().unwrap_or(libc::EIO) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_opener_is_told_that_the_image_is_in_use() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("image");
        let image = ImageFile::create(&path, 8).expect("create");
        assert_eq!(image.blocks(), 8);
        assert!(matches!(ImageFile::open(&path), Err(Error::InUse(_))));
        drop(image);
        let image = ImageFile::open(&path).expect("open");
        assert!(!image.is_block_device());
        image.require(8).expect("long enough");
        assert!(matches!(image.require(9), Err(Error::Refused(_))));
    }

    #[test]
    fn what_is_no_image_is_refused() {
        assert_eq!(ImageFile::open(Path::new("/nowhere/image")).map(|_| ()), Err(Error::Errno(libc::ENOENT)));
        assert!(matches!(ImageFile::open(Path::new("/dev/null")), Err(Error::Refused(_))));
        let dir = tempfile::tempdir().expect("tempdir");
        assert_eq!(ImageFile::open(dir.path()).map(|_| ()), Err(Error::Errno(libc::EISDIR)));
        let big = dir.path().join("big");
        assert!(matches!(ImageFile::create(&big, u64::MAX), Err(Error::Refused(_))));
        assert!(!big.exists(), "nothing is left");
        std::fs::write(&big, [7; 5000]).expect("room");
        for blocks in [u64::MAX, 1 << 50] {
            assert!(ImageFile::create(&big, blocks).is_err(), "there is no such room");
            assert_eq!(std::fs::read(&big).expect("there"), [7; 5000]);
        }
    }
}
