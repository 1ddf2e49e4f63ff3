//! Images to measure on, and how they are mounted in this process: with a baseline or without, on the device as it is
//! or on one that takes longer.

use super::slow::{Latency, Slow};
use narufs_bench::target::{Library, LibraryOptions};
use narufs_bench::{Error, Result};
use narufs_cli::options::OptionList;
use narufs_cli::server;
use narufs_engine::format::{JournalKind, SLOT_SIZE};
use narufs_engine::vfs::Vfs;
use narufs_engine::volume::{self, Volume};
use narufs_engine::{FormatOptions, Fs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the journal lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Journal {
    /// In shared memory that stands for persistent memory.
    Nvm,
    /// In the image.
    Ssd,
}

/// An image that goes with its journal when it is dropped.
pub struct Bed {
    image: PathBuf,
    ring: Option<PathBuf>,
    uuid: [u8; 16],
}

/// An image at work.
pub struct Mounted {
    /// For the load generator.
    pub library: Library,
    /// The operations.
    pub fs: Arc<Vfs>,
    /// The device that takes longer, if it does.
    pub slow: Option<Arc<Slow>>,
}

fn refused(what: &Path) -> impl Fn(narufs_engine::Error) -> Error {
    move |e| Error::Refused(format!("{}: {e}", what.display()))
}

impl Bed {
    /// Makes an image of so many bytes in a directory, with so many bytes of journal.
    ///
    /// # Errors
    /// What mkfs says.
    pub fn make(dir: &Path, bytes: u64, journal: Journal, ring_bytes: u64) -> Result<Bed> {
        Bed::made(dir, (bytes, false), journal, ring_bytes)
    }

    /// The same of which only what is written takes room.
    ///
    /// # Errors
    /// What mkfs says.
    pub fn thin(dir: &Path, bytes: u64, journal: Journal, ring_bytes: u64) -> Result<Bed> {
        Bed::made(dir, (bytes, true), journal, ring_bytes)
    }

    fn made(dir: &Path, (bytes, is_thin): (u64, bool), journal: Journal, ring_bytes: u64) -> Result<Bed> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: numbers that differ are all that is asked for.
        let name =
            format!("narufs-reproduce.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let image = dir.join(&name);
        let ring = (journal == Journal::Nvm).then(|| Path::new("/dev/shm").join(format!("{name}.journal")));
        let blocks = bytes / narufs_engine::device::BLOCK_SIZE as u64;
        let options = FormatOptions {
            blocks: (!is_thin).then_some(blocks),
            journal_slots: Some(ring_bytes / SLOT_SIZE as u64 / 16 * 16),
            journal: if journal == Journal::Nvm { JournalKind::Emulated } else { JournalKind::Ssd },
            journal_path: ring.as_ref().map(|path| path.display().to_string()),
            ..FormatOptions::default()
        };
        // Dropped, also after a failure, it removes what there is.
        let mut bed = Bed { image, ring, uuid: [0; 16] };
        if is_thin {
            let made = std::fs::File::create(&bed.image);
            let made = made.and_then(|file| file.set_len(blocks * narufs_engine::device::BLOCK_SIZE as u64));
            made.map_err(|e| Error::io("make", &bed.image.display().to_string(), e))?;
        }
        bed.uuid = narufs_engine::format(&bed.image, &options).map_err(refused(&bed.image))?.uuid;
        Ok(bed)
    }

    /// A copy of an image that was unmounted, with its journal, which lies where the original's did: one copy at a time
    /// is there, and the original is not mounted again.
    ///
    /// # Errors
    /// If there is no room for it.
    pub fn copy(&self) -> Result<Bed> {
        let copy = Bed { image: self.image.with_extension("copy"), ring: self.ring.clone(), uuid: self.uuid };
        let failed = |e: std::io::Error| Error::io("copy", &self.image.display().to_string(), e);
        copy_data(&self.image, &copy.image).map_err(failed)?;
        if let Some(ring) = &self.ring {
            let kept = kept(ring);
            if !kept.exists() {
                std::fs::rename(ring, &kept).map_err(failed)?;
            }
            copy_data(&kept, ring).map_err(failed)?;
        }
        Ok(copy)
    }

    /// Mounts it with options as of `narufs mount -o`.
    ///
    /// # Errors
    /// What the mount says.
    pub fn mount(&self, options: &[String], latency: Option<Latency>) -> Result<Mounted> {
        let list = OptionList::parse(options).map_err(Error::Usage)?;
        list.check().map_err(Error::Usage)?;
        server::fit_heap(&list);
        let options = LibraryOptions {
            journal: None,
            costs: server::emulation_costs(&list),
            image: server::image_options(&list),
            files: server::assemble_options(&list, false),
        };
        let say = refused(&self.image);
        let mut media = volume::open(&self.image, None, options.costs, &options.image).map_err(&say)?;
        media.check_durability(options.files.durability).map_err(&say)?;
        let slow = latency.map(|latency| Arc::new(Slow::over(Arc::clone(&media.device), latency)));
        if let Some(slow) = &slow {
            media.device = Arc::clone(slow) as _;
        }
        let mounted = volume::mount(media, &options.image).map_err(&say)?;
        let fs = Fs::over(Volume::over(mounted, &options.files).map_err(&say)?);
        let inodes = Arc::clone(fs.inodes());
        let library = Library::over(fs, &self.image, "narufs", options)?;
        Ok(Mounted { library, fs: inodes, slow })
    }
}

impl Mounted {
    /// Turns the time that requests take more on or off.
    pub fn turn(&self, on: bool) {
        if let Some(slow) = &self.slow {
            slow.turn(on);
        }
    }

    /// Writes everything home.
    ///
    /// # Errors
    /// What could not be written.
    pub fn unmount(self) -> Result<()> {
        self.turn(false);
        self.library.unmount()
    }
}

/// Where the journal of an image lies that has copies.
fn kept(ring: &Path) -> PathBuf {
    ring.with_extension("kept")
}

/// Copies a file, and leaves its holes.
fn copy_data(from: &Path, to: &Path) -> std::io::Result<()> {
    use rustix::fs::{SeekFrom, seek};
    let (mut from, mut to) = (std::fs::File::open(from)?, std::fs::File::create(to)?);
    to.set_len(from.metadata()?.len())?;
    let mut at = 0;
    loop {
        let data = match seek(&from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // There is none beyond.
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        at = seek(&from, SeekFrom::Hole(data))?;
        seek(&from, SeekFrom::Start(data))?;
        seek(&to, SeekFrom::Start(data))?;
        std::io::copy(&mut std::io::Read::take(&mut from, at - data), &mut to)?;
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let staging = volume::staging_path(&self.uuid);
        let is_copy = self.image.extension().is_some_and(|name| name == "copy");
        let kept = self.ring.as_deref().map(kept).filter(|_| !is_copy);
        for path in
            [Some(&self.image), self.ring.as_ref(), kept.as_ref(), Some(&staging)].into_iter().flatten()
        {
            // What is not there was never made, or went with the unmount.
            let _ = std::fs::remove_file(path);
        }
    }
}
