//! Media from paths: the image opened and locked, its journal found.
//!
//! # What an image may name
//! An image may be a stranger's, and the path that it names for its journal is a word of his. What lies there is used,
//! and written to, only if it begins with a header that carries the image's UUID and the one of its ring, which nobody
//! knows who cannot read the journal that has it; nothing else there is changed, locked or mapped. Where nothing lies a
//! file is made only directly in shared memory, whose files no reboot leaves: none there is any program's that is not
//! running. Whoever mounts may say another path, or the same: there a journal is made, over zeros or over one of this
//! image, and over nothing else.

use std::path::{Path, PathBuf};

use super::ring::{Absence, RingFile, RingMedia, newer_staging, start_of};
use super::{ImageOptions, Media};
use crate::device::{BlockDevice, ImageFile, open_device};
use crate::format::{JournalKind, RING_HEADER_SPACE, STATE_MOUNTED, Superblock};
use crate::journal::{header_in, newer_version, read_mapped_header, ring_bytes};
use crate::pmem::{EmulationCosts, Found, MappedMemory, Medium, PersistentMemory};
use crate::sync::Arc;
use crate::{Error, Result, superblock};

/// Where files lie in memory that outlives processes.
const SHARED_MEMORY: &str = "/dev/shm";

/// Where the staging of an image's ring lies.
pub fn staging_path(uuid: &[u8; 16]) -> PathBuf {
    Path::new(SHARED_MEMORY).join(format!("narufs-{}", uuid::Uuid::from_bytes(*uuid)))
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
pub fn open_for_check(image: &Path, journal: Option<&Path>, repair: bool) -> Result<Media> {
    let device = open_device(ImageFile::open(image)?);
    let sb = superblock::read(device.as_ref())?;
    let recovers = repair && sb.state.get() == STATE_MOUNTED;
    open_ring(device, &sb, journal, EmulationCosts::default(), recovers)
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
    let file = RingFile { path: journal_file(sb, journal)?, bytes, medium, replace: false, ready: None };
    let by = if journal.is_some() { NamedBy::Caller } else { NamedBy::Image };
    Ok(Media { device, ring: open_mapped(sb, file, by)?, staging_file: None })
}

/// The staging of a killed process. One of another size belongs to nothing that is alive.
fn open_staging(path: &Path, bytes: usize) -> Result<RingMedia> {
    let unstaged = |replace| {
        RingMedia::Unstaged(RingFile {
            path: path.to_owned(),
            bytes,
            medium: Medium::Staging,
            replace,
            ready: None,
        })
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

/// Who says where a journal outside of the image lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamedBy {
    Image,
    Caller,
}

/// The ring in a file or device of its own.
fn open_mapped(sb: &Superblock, file: RingFile, by: NamedBy) -> Result<RingMedia> {
    let absent = |absence, file| Ok(RingMedia::Absent(absence, file));
    let found = match Found::open(&file.path, file.medium) {
        Ok(found) => found,
        Err(Error::Errno(libc::ENOENT)) => {
            let is_to_come = by == NamedBy::Caller || is_in_shared_memory(&file);
            return absent(Absence::Missing(file.path.clone()), is_to_come.then_some(file));
        }
        Err(Error::Refused(why)) => return absent(Absence::Unusable(why), None),
        Err(e) => return Err(e),
    };
    let start = found.start(RING_HEADER_SPACE)?;
    if let Some(absence) = start.as_deref().and_then(|start| not_ours(sb, start, by)) {
        return absent(absence, None);
    }
    let memory = match found.map() {
        Ok(memory) => memory,
        Err(Error::Refused(why)) => return absent(Absence::Unusable(why), None),
        Err(e) => return Err(e),
    };
    if start.is_none()
        && let Some(absence) = not_ours(sb, &start_of(&memory), by)
    {
        return absent(absence, None);
    }
    if memory.len() >= file.bytes {
        return Ok(RingMedia::Mapped(Arc::new(memory)));
    }
    let absence = match read_mapped_header(&memory) {
        Some(header) => Absence::OtherSize { found: header.slots.get(), wanted: sb.ring_slots.get() },
        None => Absence::TooShort { path: file.path.clone(), found: memory.len(), wanted: file.bytes },
    };
    absent(absence, (!memory.is_device()).then_some(RingFile { replace: true, ..file }))
}

/// Why what begins so is not to be used, let alone written to.
fn not_ours(sb: &Superblock, start: &[u8], by: NamedBy) -> Option<Absence> {
    match header_in(start) {
        Some(header) if header.image_uuid != sb.uuid => Some(Absence::OtherImage(header.image_uuid)),
        Some(header) if header.ring_uuid != sb.ring_uuid && by == NamedBy::Image => Some(Absence::Replaced),
        Some(_) => None,
        None if start.iter().all(|byte| *byte == 0) => (by == NamedBy::Image).then_some(Absence::Blank),
        None => Some(newer_version(start).map_or(Absence::Damaged, Absence::OtherVersion)),
    }
}

fn is_in_shared_memory(file: &RingFile) -> bool {
    let is_emulated = matches!(file.medium, Medium::Emulated(_));
    is_emulated && file.path.parent() == Some(Path::new(SHARED_MEMORY)) && file.path.file_name().is_some()
}

/// Where the journal of an image lies, or its staging, if it was not `given`.
pub(super) fn journal_file(sb: &Superblock, given: Option<&Path>) -> Result<PathBuf> {
    let in_image = sb.journal_kind.get() == JournalKind::Ssd as u32;
    match given {
        _ if in_image => Ok(staging_path(&sb.uuid)),
        Some(path) => Ok(path.to_owned()),
        None => named_path(sb),
    }
}

fn named_path(sb: &Superblock) -> Result<PathBuf> {
    let len = sb.journal_path.iter().position(|b| *b == 0).unwrap_or(sb.journal_path.len());
    match std::str::from_utf8(&sb.journal_path[..len]) {
        Ok(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => Err(Error::Refused("the image does not name its journal's path; give it".into())),
    }
}
