//! Spill space: a file or device whose content nobody needs, during the mount or after it.
//!
//! A file that is made here has no name, so that it is gone with the server, however that ends. One that was there
//! before stays, emptied as far as its medium can ([`BlockDevice::erase`]); who unmounts is told if something may be left.
//! While it is in use its first block says what it is: left by a killed server, it may be used again, and it is no image that
//! could be mounted.

use crate::device::{
    BLOCK_SIZE, BlockDevice, Cause, Erased, ImageFile, IoBuf, PROBED, Request, open_device, probe,
};
use crate::sync::Arc;
use crate::{Error, Result};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// What the first block of spill space in use begins with.
const MARK: &[u8] = b"narufs spill space: nothing here is of use without its server\n";
/// A file that is made unasked is so many times larger than the memory, if there is room.
const TIMES_MEMORY: u64 = 8;

const _: () = assert!(MARK.len() < BLOCK_SIZE);

/// Where scratch data spills to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpillOptions {
    /// A block device, a file, or a directory in which a file without a name is made.
    pub path: PathBuf,
    /// Bytes to use. By default all of a device or file; of a file that is made, eight times the memory or nine
    /// tenths of what is free there, whichever is less.
    pub size: Option<u64>,
    /// Use it even if it holds data: they are lost.
    pub force: bool,
}

/// Whether a file or device is spill space in use, or left by a killed server.
///
/// # Errors
/// Those of reading it.
pub fn is_spill_space(path: &Path) -> std::io::Result<bool> {
    Ok(probe(path)?.starts_with(MARK))
}

/// Open spill space. Dropped, it holds nothing any more.
pub(crate) struct SpillSpace {
    device: Arc<dyn BlockDevice>,
    path: PathBuf,
    /// Whether it has a name, and is still to be emptied.
    stays: bool,
    /// Whether a killed server had left it.
    was_left: bool,
}

impl SpillSpace {
    /// Opens the space, or makes it.
    pub fn open(options: &SpillOptions, memory: u64) -> Result<SpillSpace> {
        let path = options.path.as_path();
        let there = match std::fs::metadata(path) {
            Ok(found) => Some(found),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(about(path, &e)),
        };
        let chosen = |directory: &Path| match options.size {
            Some(size) => Ok(size),
            None => Ok(free_bytes(directory)?.min(memory.saturating_mul(TIMES_MEMORY))),
        };
        let blocks = |bytes: u64| bytes / BLOCK_SIZE as u64;
        let beside = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Some(there) = there.filter(|found| !found.is_dir()) else {
            // A file that is not there goes without a name from the start.
            let directory = if path.is_dir() { path } else { beside };
            let image = ImageFile::unnamed(directory, blocks(chosen(directory)?))?;
            return Ok(SpillSpace::new(image, path, false, false));
        };
        if !options.force && holds_data(path).map_err(|e| about(path, &e))? {
            return Err(Error::Refused(format!(
                "{}: it holds data already; use --force to destroy them",
                path.display()
            )));
        }
        // What cannot be read, and is taken by force, may be what one has left.
        let was_left = is_spill_space(path).unwrap_or(true);
        let image = if there.file_type().is_block_device() {
            let mut device = match options.size {
                Some(size) => ImageFile::create(path, blocks(size))?,
                None => ImageFile::open(path)?,
            };
            device.note_writes();
            device
        } else {
            let size = match (options.size, there.len()) {
                (Some(size), _) => size,
                (None, 0) => chosen(beside)?,
                (None, len) => len,
            };
            ImageFile::create(path, blocks(size))?
        };
        let space = SpillSpace::new(image, path, true, was_left);
        space.begin(Some(MARK))?;
        Ok(space)
    }

    fn new(image: ImageFile, path: &Path, stays: bool, was_left: bool) -> SpillSpace {
        SpillSpace { device: open_device(image), path: path.to_owned(), stays, was_left }
    }

    /// The device.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.device)
    }

    /// Overwrites what a look at the first blocks would find.
    fn begin(&self, mark: Option<&[u8]>) -> Result<()> {
        let blocks = (PROBED / BLOCK_SIZE as u64).min(self.device.blocks());
        let mut buf = IoBuf::zeroed(blocks as usize * BLOCK_SIZE);
        if let Some(mark) = mark {
            buf[..mark.len()].copy_from_slice(mark);
        }
        self.device.run(vec![Request::write(0, buf, Cause::Superblock)]).map(drop)
    }

    /// Leaves nothing behind.
    pub fn close(mut self) -> Result<()> {
        self.wipe(true)
    }

    /// Empties it; `is_heard`: the user learns of what may be left. Else the next use is to tell him.
    fn wipe(&mut self, is_heard: bool) -> Result<()> {
        if !std::mem::take(&mut self.stays) {
            return Ok(());
        }
        let told = self.tell(self.device.erase());
        // Whatever has come of that it is in use no more; the mark of that stays where the next use is to tell.
        self.begin((told.is_err() && !is_heard).then_some(MARK))?;
        self.device.flush()?;
        told
    }

    /// Whether a killed server may have used more of it.
    fn had_more(&self) -> bool {
        self.was_left && self.device.measure().map_or(true, |all| all > self.device.blocks())
    }

    /// What who unmounts is told.
    fn tell(&self, erased: Result<Erased>) -> Result<()> {
        let why = match erased {
            Ok(Erased::All) if !self.had_more() => return Ok(()),
            Ok(Erased::Written) if !self.was_left => return Ok(()),
            Ok(_) => "what a killed server had left there may be there still".to_owned(),
            Err(e) => format!("what was written there may be there still: {e}"),
        };
        let path = self.path.display();
        Err(Error::Refused(format!("{path}: {why}; overwrite it (blkdiscard --zeroout, shred)")))
    }
}

impl Drop for SpillSpace {
    fn drop(&mut self) {
        if let Err(e) = self.wipe(false) {
            tracing::warn!("the spill space could not be emptied: {e}");
        }
    }
}

fn about(path: &Path, e: &std::io::Error) -> Error {
    Error::Refused(format!("{}: {e}", path.display()))
}

/// Whether something lies at the beginning that is neither zeros nor what a killed server has left.
fn holds_data(path: &Path) -> std::io::Result<bool> {
    let start = probe(path)?;
    Ok(!start.starts_with(MARK) && start.iter().any(|b| *b != 0))
}

/// Nine tenths of the bytes that are free in a directory.
fn free_bytes(directory: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(directory)
        .map_err(|e| about(directory, &std::io::Error::from_raw_os_error(e.raw_os_error())))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize) / 10 * 9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    /// Space that is to be emptied.
    fn space(was_left: bool) -> SpillSpace {
        SpillSpace {
            device: Arc::new(MemoryDevice::new(64)),
            path: "/dev/space".into(),
            stays: true,
            was_left,
        }
    }

    #[test]
    fn what_may_be_left_is_told_at_the_end() {
        let told = |done: Result<()>| match done {
            Err(Error::Refused(why)) => why.starts_with("/dev/space: ") && why.contains("there still"),
            other => panic!("{other:?}"),
        };
        // Memory offers no such thing.
        assert!(told(space(false).close()));
        assert!(told(space(true).tell(Ok(Erased::Written))));
        // Nobody hears of it: the next use finds that it was left.
        for (heard, is_left) in [(true, false), (false, true)] {
            let mut space = space(true);
            assert!(told(space.wipe(heard)));
            let mut first = vec![0; BLOCK_SIZE];
            space.device.read_into(0, &mut first, Cause::Superblock).expect("memory");
            assert_eq!(first.starts_with(MARK), is_left);
        }
        for (was_left, erased) in [(false, Erased::Written), (false, Erased::All), (true, Erased::All)] {
            assert_eq!(space(was_left).tell(Ok(erased)), Ok(()));
        }
    }
}
