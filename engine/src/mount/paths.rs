//! Media from paths: the image opened and locked, its journal found or made.

use std::path::{Path, PathBuf};

use super::ring::{RingMedia, lost};
use super::{Media, MountOptions};
use crate::device::{ImageFile, open_device};
use crate::format::{JournalKind, STATE_CLEAN, Superblock};
use crate::journal::ring_bytes;
use crate::pmem::{EmulationCosts, MappedMemory, Medium, unlink};
use crate::sync::Arc;
use crate::{Error, Result, superblock};

/// Where the staging of an image's ring lies.
pub fn staging_path(uuid: &[u8; 16]) -> PathBuf {
    Path::new("/dev/shm").join(format!("narufs-{}", uuid::Uuid::from_bytes(*uuid)))
}

/// Opens and locks an image and its journal. `journal` overrides the path that the image names.
///
/// # Errors
/// [`Error::InUse`] if another process holds one of them; [`Error::Refused`] in words.
pub fn open(
    image: &Path,
    journal: Option<&Path>,
    costs: EmulationCosts,
    options: &MountOptions,
) -> Result<Media> {
    let device = open_device(ImageFile::open(image)?);
    let sb = superblock::read(device.as_ref())?;
    let bytes = ring_bytes(sb.ring_slots.get())
        .map(|bytes| bytes.next_multiple_of(rustix::param::page_size()))
        .ok_or_else(|| Error::Refused("the image's journal is larger than memory can be".into()))?;
    let kind = JournalKind::from_u32(sb.journal_kind.get()).ok_or_else(|| {
        Error::Refused("the image names an unknown kind of journal; use a newer narufs".into())
    })?;
    let medium = match kind {
        JournalKind::Ssd => {
            let path = staging_path(&sb.uuid);
            let ring = RingMedia::Ssd(Arc::new(open_staging(&path, bytes)?));
            return Ok(Media { device, ring, staging_file: Some(path) });
        }
        JournalKind::Pmem => Medium::Dax,
        JournalKind::Emulated => Medium::Emulated(costs),
    };
    let path = journal.map_or_else(|| named_path(&sb), |path| Ok(path.to_owned()))?;
    let memory = match MappedMemory::open(&path, medium) {
        Err(Error::Errno(libc::ENOENT)) if sb.state.get() == STATE_CLEAN || options.discard_journal => {
            MappedMemory::create(&path, bytes, medium)
        }
        Err(Error::Errno(libc::ENOENT)) => {
            Err(Error::Refused(lost(&format!("there is no {}", path.display()))))
        }
        other => other,
    };
    Ok(Media { device, ring: RingMedia::Mapped(Arc::new(memory?)), staging_file: None })
}

/// The staging of a killed process, or a new one. One of another size belongs to nothing that is alive.
fn open_staging(path: &Path, bytes: usize) -> Result<MappedMemory> {
    match MappedMemory::open(path, Medium::Staging) {
        Ok(memory) if crate::pmem::PersistentMemory::len(&memory) == bytes => return Ok(memory),
        Ok(memory) => {
            drop(memory);
            unlink(path)?;
        }
        Err(Error::Errno(libc::ENOENT)) => {}
        Err(e) => return Err(e),
    }
    MappedMemory::create(path, bytes, Medium::Staging)
}

fn named_path(sb: &Superblock) -> Result<PathBuf> {
    let len = sb.journal_path.iter().position(|b| *b == 0).unwrap_or(sb.journal_path.len());
    match std::str::from_utf8(&sb.journal_path[..len]) {
        Ok(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => Err(Error::Refused("the image does not name its journal's path; give it".into())),
    }
}
