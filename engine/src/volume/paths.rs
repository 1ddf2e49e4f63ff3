//! Media from paths: the image opened and locked, its journal found.

use std::path::{Path, PathBuf};

use super::ring::{Absence, RingFile, RingMedia, newer_staging};
use super::{ImageOptions, Media};
use crate::device::{BlockDevice, ImageFile, open_device};
use crate::format::{JournalKind, STATE_MOUNTED, Superblock};
use crate::journal::{read_mapped_header, ring_bytes};
use crate::pmem::{EmulationCosts, MappedMemory, Medium, PersistentMemory};
use crate::sync::Arc;
use crate::{Error, Result, superblock};

/// Where the staging of an image's ring lies.
pub fn staging_path(uuid: &[u8; 16]) -> PathBuf {
    Path::new("/dev/shm").join(format!("narufs-{}", uuid::Uuid::from_bytes(*uuid)))
}

/// Opens and locks an image and its journal, to be mounted. `journal` overrides the path that the image names.
/// What is missing is made by the mount, if it writes at all.
///
/// # Errors
/// [`Error::InUse`] if another process holds one of them; [`Error::Refused`] in words.
pub fn open(
    image: &Path,
    journal: Option<&Path>,
    costs: EmulationCosts,
    options: &ImageOptions,
) -> Result<Media> {
    let device = open_device(ImageFile::open(image)?);
    let sb = superblock::read(device.as_ref())?;
    open_ring(device, &sb, journal, costs, !options.read_only)
}

/// The same for a check; the journal is opened to be changed only if `repair` has to recover the image.
///
/// # Errors
/// As [`open`].
pub fn open_for_check(image: &Path, repair: bool) -> Result<Media> {
    let device = open_device(ImageFile::open(image)?);
    let sb = superblock::read(device.as_ref())?;
    let recovers = repair && sb.state.get() == STATE_MOUNTED;
    open_ring(device, &sb, None, EmulationCosts::default(), recovers)
}

fn open_ring(
    device: Arc<dyn BlockDevice>,
    sb: &Superblock,
    journal: Option<&Path>,
    costs: EmulationCosts,
    writes: bool,
) -> Result<Media> {
    let bytes = ring_bytes(sb.ring_slots.get())
        .map(|bytes| bytes.next_multiple_of(rustix::param::page_size()))
        .ok_or_else(|| Error::Refused("the image's journal is larger than memory can be".into()))?;
    let kind = JournalKind::from_u32(sb.journal_kind.get()).ok_or_else(|| {
        Error::Refused("the image names an unknown kind of journal; use a newer narufs".into())
    })?;
    let medium = match kind {
        JournalKind::Ssd => {
            let path = staging_path(&sb.uuid);
            let ring = open_staging(&path, bytes)?;
            return Ok(Media { device, ring, staging_file: writes.then_some(path) });
        }
        JournalKind::Pmem => Medium::Dax,
        JournalKind::Emulated => Medium::Emulated(costs),
    };
    let path = journal.map_or_else(|| named_path(sb), |path| Ok(path.to_owned()))?;
    Ok(Media { device, ring: open_mapped(sb, path, bytes, medium)?, staging_file: None })
}

/// The staging of a killed process. One of another size belongs to nothing that is alive.
fn open_staging(path: &Path, bytes: usize) -> Result<RingMedia> {
    let unstaged = |replace| {
        RingMedia::Unstaged(RingFile { path: path.to_owned(), bytes, medium: Medium::Staging, replace })
    };
    match MappedMemory::open(path, Medium::Staging) {
        // That of a newer build is told by its header, and left alone.
        Ok(memory) if memory.len() == bytes || newer_staging(&memory).is_some() => {
            Ok(RingMedia::Ssd(Arc::new(memory)))
        }
        Ok(_) => Ok(unstaged(true)),
        Err(Error::Errno(libc::ENOENT)) => Ok(unstaged(false)),
        Err(e) => Err(e),
    }
}

/// The ring in a file or device of its own.
fn open_mapped(sb: &Superblock, path: PathBuf, bytes: usize, medium: Medium) -> Result<RingMedia> {
    let file = |path, replace| Some(RingFile { path, bytes, medium, replace });
    Ok(match MappedMemory::open(&path, medium) {
        Ok(memory) if memory.len() < bytes => {
            let absence = match read_mapped_header(&memory) {
                // It is told by its header, and left alone.
                Some(header) if header.image_uuid != sb.uuid => {
                    return Ok(RingMedia::Mapped(Arc::new(memory)));
                }
                Some(header) => Absence::OtherSize { found: header.slots.get(), wanted: sb.ring_slots.get() },
                None => Absence::TooShort { path: path.clone(), found: memory.len(), wanted: bytes },
            };
            RingMedia::Absent(absence, if memory.is_device() { None } else { file(path, true) })
        }
        Ok(memory) => RingMedia::Mapped(Arc::new(memory)),
        Err(Error::Errno(libc::ENOENT)) => {
            RingMedia::Absent(Absence::Missing(path.clone()), file(path, false))
        }
        Err(Error::Refused(why)) => RingMedia::Absent(Absence::Unusable(why), None),
        Err(e) => return Err(e),
    })
}

/// Where the journal of an image is, or its staging.
pub(super) fn journal_file(sb: &Superblock) -> Result<PathBuf> {
    let in_image = sb.journal_kind.get() == JournalKind::Ssd as u32;
    if in_image { Ok(staging_path(&sb.uuid)) } else { named_path(sb) }
}

fn named_path(sb: &Superblock) -> Result<PathBuf> {
    let len = sb.journal_path.iter().position(|b| *b == 0).unwrap_or(sb.journal_path.len());
    match std::str::from_utf8(&sb.journal_path[..len]) {
        Ok(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => Err(Error::Refused("the image does not name its journal's path; give it".into())),
    }
}
