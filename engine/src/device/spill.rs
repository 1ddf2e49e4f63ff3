//! Blocks kept in memory up to a limit, and beyond it in a file without a name.

use super::{BLOCK_SIZE, IoBuf, io_error};
use crate::Result;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Where the content of a block is.
enum Stored {
    Memory(Box<[u8]>),
    /// In the file, as its so manieth block.
    File(u64),
}

/// Contents by block number. What is in the file costs some sixty bytes of memory a block.
pub(super) struct Spill {
    places: BTreeMap<u64, Stored>,
    /// Blocks that may be in memory, and those that are.
    limit: usize,
    in_memory: usize,
    file: Option<File>,
    in_file: u64,
}

impl Spill {
    /// Empty, with memory for so many bytes before a file is used.
    pub fn new(limit: usize) -> Spill {
        Spill { places: BTreeMap::new(), limit, in_memory: 0, file: None, in_file: 0 }
    }

    /// Keeps the content of a block in place of what it had.
    pub fn put(&mut self, block: u64, bytes: &[u8]) -> Result<()> {
        match self.places.get_mut(&block) {
            Some(Stored::Memory(there)) => there.copy_from_slice(bytes),
            Some(Stored::File(at)) => write(self.file.as_ref(), *at, bytes)?,
            None if self.in_memory < self.limit => {
                self.places.insert(block, Stored::Memory(bytes.into()));
                self.in_memory += 1;
            }
            None => {
                let file = match self.file.take() {
                    Some(file) => file,
                    None => temporary().map_err(|e| io_error("make a temporary file", &e))?,
                };
                write(Some(self.file.insert(file)), self.in_file, bytes)?;
                self.places.insert(block, Stored::File(self.in_file));
                self.in_file += 1;
            }
        }
        Ok(())
    }

    /// The content of a block, if it is kept here.
    pub fn get(&self, block: u64, into: &mut [u8]) -> Option<Result<()>> {
        self.places.get(&block).map(|place| self.read(place, into))
    }

    /// Puts what is kept of a row of blocks into the buffer of their contents; how many were kept.
    pub fn patch(&self, block: u64, buf: &mut IoBuf) -> Result<u64> {
        let mut kept = 0;
        let end = block.saturating_add((buf.len() / BLOCK_SIZE) as u64);
        for (at, place) in self.places.range(block..end) {
            let offset = (at - block) as usize * BLOCK_SIZE;
            self.read(place, &mut buf[offset..offset + BLOCK_SIZE])?;
            kept += 1;
        }
        Ok(kept)
    }

    /// The blocks kept, in order.
    pub fn blocks(&self) -> Vec<u64> {
        self.places.keys().copied().collect()
    }

    fn read(&self, place: &Stored, into: &mut [u8]) -> Result<()> {
        match (place, &self.file) {
            (Stored::Memory(bytes), _) => into.copy_from_slice(bytes),
            (Stored::File(at), Some(file)) => file
                .read_exact_at(into, at * BLOCK_SIZE as u64)
                .map_err(|e| io_error("read the temporary file", &e))?,
            (Stored::File(_), None) => unreachable!("a place in the file is made with the file"),
        }
        Ok(())
    }
}

fn write(file: Option<&File>, at: u64, bytes: &[u8]) -> Result<()> {
    let Some(file) = file else { unreachable!("a place in the file is made with the file") };
    file.write_all_at(bytes, at * BLOCK_SIZE as u64).map_err(|e| io_error("write the temporary file", &e))
}

/// The file that [`open_ahead`] has opened.
static AHEAD: Mutex<Option<File>> = Mutex::new(None);

/// Opens the temporary file that is used first, in a process that soon may not any more.
pub fn open_ahead() {
    let mut ahead = AHEAD.lock().unwrap_or_else(PoisonError::into_inner);
    if ahead.is_none() {
        *ahead = nameless().inspect_err(|e| tracing::debug!("no temporary file: {e}")).ok();
    }
}

fn temporary() -> std::io::Result<File> {
    let ahead = AHEAD.lock().unwrap_or_else(PoisonError::into_inner).take();
    ahead.map_or_else(nameless, Ok)
}

/// A file in the directory of temporary files that goes with its last descriptor; where none may be made there, one in
/// memory, which can be swapped out.
fn nameless() -> std::io::Result<File> {
    match nameless_in(&std::env::temp_dir()) {
        Err(e) if is_no_place(&e) => {
            Ok(rustix::fs::memfd_create("narufs-spill", rustix::fs::MemfdFlags::CLOEXEC)?.into())
        }
        made => made,
    }
}

/// The same in a directory that anybody may watch. What will be in it is of files that not everybody may read: it never has
/// a name, or nobody else may open it while it has one.
pub(super) fn nameless_in(directory: &Path) -> std::io::Result<File> {
    // O_EXCL: nothing can give it one.
    let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        // The file system offers no such thing.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => unlinked_in(directory),
        made => Ok(made?.into()),
    }
}

/// The same on a file system where each file is made with a name.
pub(super) fn unlinked_in(directory: &Path) -> std::io::Result<File> {
    let path = directory.join(format!("narufs-{}", uuid::Uuid::new_v4()));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Whether no file can be made there at all: it may not, it is read-only, or it is not there.
fn is_no_place(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem | Kind::NotFound | Kind::NotADirectory
    )
}
