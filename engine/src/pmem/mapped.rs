//! Persistent memory as a mapped file.
//!
//! Three kinds, which differ in what a write-back does and how far it reaches:
//! - *staging*: a file in shared memory that outlives the process, not the machine. Stores need no write-back,
//!   only their order; both are still counted.
//! - *emulated*: the same kind of file standing in for persistent memory, for experiments. Every write-back
//!   and fence is really executed, and costs more if asked to. It claims the durability of what it stands for;
//!   whoever shows it to a user must say that it is emulated.
//! - *DAX*: a file or device of real persistent memory, mapped with `MAP_SYNC`.
//!
//! The file belongs to the user who runs the engine, is locked until it is closed, and its space is
//! reserved: a full file system is an error here, not a SIGBUS later.

#![allow(unsafe_code, reason = "a leaf module: a mapping of persistent memory")]

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::flush::{EmulationCosts, Instruction, LineCounts, Pacer, lines};
use super::words::Words;
use super::{DurabilityLevel, PersistentMemory};
use crate::device::{device_error, in_use, io_error, lock, path_of};
use crate::fork::{KeptFromChildren, beyond_standard};
use crate::sync::atomic::{Ordering, fence};
use crate::{Error, Result};

/// What a mapped file stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Shared memory that holds the journal until the device has it.
    Staging,
    /// Shared memory in the place of persistent memory.
    Emulated(EmulationCosts),
    /// Real persistent memory.
    Dax,
}

/// What a write-back does.
#[derive(Debug)]
enum WriteBack {
    /// Nothing: the memory is what survives.
    None,
    /// The processor's instruction.
    Lines(Instruction),
    /// The same, at the price of emulated media.
    Paced(Instruction, Pacer),
}

/// A mapped, locked file.
#[derive(Debug)]
pub struct MappedMemory {
    words: Words,
    path: PathBuf,
    medium: Medium,
    write_back: WriteBack,
    counts: LineCounts,
    /// Whether it is a device, whose size is given.
    device: bool,
    // Before the file: its number is taken out of the list first.
    _kept: KeptFromChildren,
    /// Holds the lock.
    _file: File,
}

impl MappedMemory {
    /// Makes a new file of `len` zero bytes (a multiple of the page size) and maps it.
    ///
    /// # Errors
    /// `EEXIST` when there is one; [`Error::Refused`] when there is no room, or the medium is not what was
    /// asked for. Nothing is left behind then.
    pub fn create(path: &Path, len: usize, medium: Medium) -> Result<Self> {
        check_room(path, len as u64)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(errno)?;
        let file = File::from(beyond_standard(fd).map_err(errno)?);
        let kept = KeptFromChildren::enter(&file);
        // Who has found it before it was locked may have taken it for one that nobody makes: what has the name then is his.
        lock(&file, path)?;
        if !is_named(&file) {
            return Err(in_use(path));
        }
        let made = (|| {
            rustix::fs::ftruncate(&file, len as u64).map_err(|e| device_error("set the file's size", e))?;
            reserve(&file, len, path)?;
            if medium == Medium::Dax {
                file.sync_all().map_err(|e| io_error("make the file durable", &e))?;
                sync_parent(path)?;
            }
            Self::map(file, kept, len, path, medium)
        })();
        made.inspect_err(|_| {
            // The error at hand is the one to tell; a file that cannot be removed is found by the next create.
            let _ = unlink(path);
        })
    }

    /// Maps a file (or, for [`Medium::Dax`], a device) that exists.
    ///
    /// # Errors
    /// `ENOENT`; [`Error::InUse`]; [`Error::Refused`] when it is another user's, or no plain file, or its
    /// space cannot be reserved, or the medium is not what was asked for.
    pub fn open(path: &Path, medium: Medium) -> Result<Self> {
        Found::open(path, medium)?.map()
    }

    fn map(file: File, kept: KeptFromChildren, len: usize, path: &Path, medium: Medium) -> Result<Self> {
        let device = file.metadata().is_ok_and(|m| m.file_type().is_char_device());
        if len == 0 || !len.is_multiple_of(rustix::param::page_size()) {
            return Err(refused(path, "must be a whole number of pages long"));
        }
        let write_back = match medium {
            Medium::Staging => WriteBack::None,
            Medium::Emulated(costs) => WriteBack::Paced(Instruction::detect()?, Pacer::new(costs)),
            Medium::Dax => WriteBack::Lines(Instruction::detect()?),
        };
        let flags = match medium {
            Medium::Dax => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            _ => MapFlags::SHARED,
        };
        // The file is opened once more to be mapped: that stays so until the last thread of a process is gone, one that cannot
        // be killed too, and what is locked would stay locked.
        let again = rustix::fs::open(path_of(&file), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let again = again.and_then(beyond_standard);
        let mapped = again.as_ref().map_or(file.as_fd(), AsFd::as_fd);
        // SAFETY: a new mapping at a place the kernel chooses; nothing else is touched. Guarded by
        // `what_one_mapping_wrote_the_next_one_reads`.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, mapped, 0)
        }
        .map_err(|e| match e {
            Errno::OPNOTSUPP | Errno::INVAL if medium == Medium::Dax => refused(
                path,
                "is not on persistent memory that can be mapped with MAP_SYNC; put it on a file system mounted \
                 with -o dax, or ask for emulation by name",
            ),
            e => device_error("map the file", e),
        })?;
        drop(again);
        // SAFETY: the mapping just made, whole; only children see a difference, and they have no use for it. Without
        // it they keep the file open, and locked. Guarded by narufs/tests/fork_locks.rs.
        let _ = unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxDontFork) };
        if medium != Medium::Dax {
            // So that no operation waits for a page fault; by reading, which maps what is there many pages at a time, and
            // to be written to as well.
            // SAFETY: the same mapping, of which no byte changes. A kernel that does not know it refuses, and pages are
            // mapped as they are used. Guarded by the same test as the mapping.
            let _ = unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxPopulateRead) };
        }
        let start = NonNull::new(start.cast::<u8>()).expect("the kernel maps nothing at 0 unasked");
        // SAFETY: page-aligned, and mapped until the drop of `self`. The file is locked and its space
        // reserved, so touching it does not raise SIGBUS. Guarded by the same test.
        let words = unsafe { Words::new(start, len) };
        Ok(Self {
            words,
            path: path.to_owned(),
            medium,
            write_back,
            counts: LineCounts::default(),
            device,
            _kept: kept,
            _file: file,
        })
    }

    /// What the file stands for.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// Whether it is a device, which cannot be made anew with another size.
    pub fn is_device(&self) -> bool {
        self.device
    }
}

/// A file, or a device of persistent memory, that was opened and is as it was: neither locked nor mapped.
#[derive(Debug)]
pub(crate) struct Found {
    file: File,
    metadata: Metadata,
    path: PathBuf,
    medium: Medium,
}

impl Found {
    /// Opens it. Nothing is opened that is no such file: of some devices that alone does something.
    ///
    /// # Errors
    /// As [`MappedMemory::open`], but for those of locking and mapping.
    pub fn open(path: &Path, medium: Medium) -> Result<Found> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let named = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(errno)?);
        let metadata = named.metadata().map_err(|e| io_error("stat the file", &e))?;
        let kind = metadata.file_type();
        if kind.is_symlink() {
            return Err(refused(path, "is a symbolic link; remove it"));
        }
        if medium == Medium::Dax && kind.is_char_device() {
            device_size(metadata.rdev())
                .ok_or_else(|| refused(path, "is not a device of persistent memory"))?;
        } else if !kind.is_file() {
            return Err(refused(path, "is no regular file"));
        } else if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(refused(path, "belongs to another user; remove it or run as that user"));
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        // What was looked at, whatever has that name by now.
        let opened = rustix::fs::open(path_of(&named), flags, Mode::empty()).or_else(|e| match e {
            // There is no /proc.
            Errno::NOENT => rustix::fs::open(path, flags | OFlags::NOFOLLOW, Mode::empty()),
            e => Err(e),
        });
        let file = File::from(opened.and_then(beyond_standard).map_err(errno)?);
        let metadata = file.metadata().map_err(|e| io_error("stat the file", &e))?;
        Ok(Found { file, metadata, path: path.to_owned(), medium })
    }

    fn is_device(&self) -> bool {
        self.metadata.file_type().is_char_device()
    }

    /// Its first bytes, `len` at the most; `None`: of a device, which is read by mapping it.
    ///
    /// # Errors
    /// Those of reading.
    pub fn start(&self, len: usize) -> Result<Option<Vec<u8>>> {
        if self.is_device() {
            return Ok(None);
        }
        let mut start = Vec::new();
        let read = (&self.file).take(len as u64).read_to_end(&mut start);
        read.map_err(|e| io_error("read the journal", &e))?;
        Ok(Some(start))
    }

    /// Locks and maps it, its space reserved.
    ///
    /// # Errors
    /// As [`MappedMemory::open`].
    pub fn map(self) -> Result<MappedMemory> {
        let path = self.path.clone();
        let mapped = self.map_unless_empty()?;
        mapped.ok_or_else(|| refused(&path, "has no size that could be mapped; remove it"))
    }

    /// The same; `None` for a file without a byte, as its maker leaves it who was killed: nobody makes it now.
    ///
    /// # Errors
    /// As [`MappedMemory::open`].
    pub fn map_unless_empty(self) -> Result<Option<MappedMemory>> {
        let device = self.is_device();
        let Found { file, path, medium, .. } = self;
        let kept = KeptFromChildren::enter(&file);
        lock(&file, &path)?;
        // Whoever had it locked may have given it its size meanwhile.
        let metadata = file.metadata().map_err(|e| io_error("stat the file", &e))?;
        let bytes = if device { device_size(metadata.rdev()).unwrap_or(0) } else { metadata.len() };
        if !device && !is_named(&file) {
            return Err(in_use(&path));
        }
        if bytes == 0 && !device {
            return Ok(None);
        }
        let len = usize::try_from(bytes).ok().filter(|len| *len > 0);
        let len = len.ok_or_else(|| refused(&path, "has no size that could be mapped; remove it"))?;
        // Of a file that has all of its space asking for it would take as long as giving it.
        if !device && metadata.blocks() * 512 < bytes {
            reserve(&file, len, &path)?;
        }
        MappedMemory::map(file, kept, len, &path, medium).map(Some)
    }
}

/// Whether a file has a name still.
fn is_named(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
}

/// Removes a file that is of no use, unless somebody has it now; that there is none is as good.
///
/// # Errors
/// [`Error::InUse`].
pub fn unlink_unused(path: &Path) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(errno(e)),
    };
    lock(&file, path)?;
    // Others who have opened it see that it is gone once they have the lock.
    if is_named(&file) { unlink(path) } else { Err(in_use(path)) }
}

/// Removes a file that [`MappedMemory::create`] made; that there is none is as good.
pub fn unlink(path: &Path) -> Result<()> {
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(errno(e)),
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`; no access outlives `self`. Guarded by the same test.
        let unmapped = unsafe { rustix::mm::munmap(self.words.start().as_ptr().cast(), self.words.len()) };
        debug_assert!(unmapped.is_ok(), "the whole mapping is ours");
    }
}

impl PersistentMemory for MappedMemory {
    fn len(&self) -> usize {
        self.words.len()
    }

    fn write(&self, offset: usize, data: &[u8]) {
        self.words.write(offset, data);
    }

    fn write_u64(&self, offset: usize, value: u64) {
        self.words.write_u64(offset, value);
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        self.words.read(offset, into);
    }

    fn write_back(&self, offset: usize, len: usize) {
        let start = self.words.at(offset, len);
        let touched = lines(offset, len);
        self.counts.write_back(touched);
        match &self.write_back {
            WriteBack::None => {}
            // SAFETY: the range was checked and is mapped; the instruction was detected on this machine.
            // Guarded by `what_one_mapping_wrote_the_next_one_reads`.
            WriteBack::Lines(instruction) => unsafe { instruction.write_back(start, len) },
            WriteBack::Paced(instruction, pacer) => {
                // SAFETY: as above.
                unsafe { instruction.write_back(start, len) };
                pacer.write_back(touched);
            }
        }
    }

    fn fence(&self) {
        self.counts.fence();
        match &self.write_back {
            // Release: pairs with nothing in this process; it keeps the stores before it, which the next
            // process reads, ahead of those after it.
            WriteBack::None => fence(Ordering::Release),
            WriteBack::Lines(instruction) => instruction.fence(),
            WriteBack::Paced(instruction, pacer) => {
                instruction.fence();
                pacer.fence();
            }
        }
    }

    fn durability(&self) -> DurabilityLevel {
        match self.medium {
            Medium::Staging => DurabilityLevel::Process,
            Medium::Emulated(_) | Medium::Dax => DurabilityLevel::Power,
        }
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn counts(&self) -> (u64, u64) {
        self.counts.get()
    }
}

/// Whether the file system of a new file has room for it: said before anything is made.
fn check_room(path: &Path, needed: u64) -> Result<()> {
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let stat = rustix::fs::statvfs(dir).map_err(errno)?;
    let available = stat.f_bavail.saturating_mul(stat.f_frsize);
    // Shared memory without a limit shows none.
    if stat.f_blocks == 0 || available >= needed {
        return Ok(());
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Err(Error::Refused(format!(
        "no room for the journal's {}: it needs {:.1} MiB, {} has {:.1} MiB available; free some there, enlarge \
         it, or make the image with a smaller journal (mkfs --journal-size)",
        path.display(),
        mib(needed),
        dir.display(),
        mib(available)
    )))
}

/// Reserves the space of a file, so that no later store finds the file system full.
fn reserve(file: &File, len: usize, path: &Path) -> Result<()> {
    loop {
        return match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len as u64) {
            Ok(()) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(Error::Refused(format!(
                "no room for the {len} bytes of {}: {e}; free some there or ask for a smaller journal",
                path.display()
            ))),
            Err(e) => Err(device_error("reserve the file's space", e)),
        };
    }
}

/// Makes the name of a new file durable.
fn sync_parent(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)
        .and_then(|dir| dir.sync_all())
        .map_err(|e| io_error("make the file's name durable", &e))
}

/// Size of a character device of persistent memory.
fn device_size(rdev: u64) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let size = std::fs::read_to_string(format!("/sys/dev/char/{major}:{minor}/size")).ok()?;
    size.trim().parse().ok()
}

fn refused(path: &Path, why: &str) -> Error {
    Error::Refused(format!("{} {why}", path.display()))
}

fn errno(e: Errno) -> Error {
    Error::Errno(e.raw_os_error())
}

#[cfg(test)]
mod tests;
