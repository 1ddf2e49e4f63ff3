//! Media from paths: the image opened and locked, its journal found.
//!
//! # What an image may name
//! An image may be a stranger's, and the path that it names for its journal is a word of his. What lies there is used,
//! and written to, only if it begins with a header that carries the image's UUID and the one of its ring, which nobody
//! knows who cannot read the journal that has it; nothing else there is changed, locked or mapped. Where nothing lies a
//! file is made only directly in shared memory, whose files no reboot leaves: none there is any program's that is not
//! running. Whoever mounts may say another path, or the same: there a journal is made, over zeros or over one of this
//! image, and over nothing else.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use super::absence::Absence;
use super::ring::{RingFile, RingMedia, header_of, newer_staging, start_of};
use super::staging::{self, Origin, SHARED_MEMORY, Sought, Staging};
use super::{ImageOptions, Media, whose};
use crate::device::{BlockDevice, Identity, ImageFile, in_use, open_device};
use crate::format::{JournalKind, RING_HEADER_SPACE, STATE_MOUNTED, StagingOwner, Superblock};
use crate::journal::{read_device_header, read_mapped_header, ring_bytes};
use crate::pmem::{EmulationCosts, Found, Medium, PersistentMemory};
use crate::sync::Arc;
use crate::takeover::IMAGE_WORDS;
use crate::{Error, Result, superblock};

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
    let origin = match options.origin {
        Origin::Moved => Origin::Moved,
        _ if options.discard_journal => Origin::GivenUp,
        origin => origin,
    };
    let opened = Image::open(image, options.place.as_deref().map(AsFd::as_fd), origin, !options.read_only)?;
    if let Some(takeover) = &options.takeover
        && !takeover.is_of(opened.words())
    {
        // What is dirty there is another image's.
        let image = image.display();
        return Err(Error::Refused(format!(
            "{image} is not the image that was mounted, but another one: put that back, and mount it again"
        )));
    }
    open_ring(opened, journal, costs, !options.read_only)
}

/// The same for a check; the journal is opened to be changed only if `repair` has to recover the image.
///
/// # Errors
/// As [`open`].
pub fn open_for_check(image: &Path, journal: Option<&Path>, repair: bool, origin: Origin) -> Result<Media> {
    let image = Image::open(image, None, origin, repair)?;
    let recovers = repair && image.sb.state.get() == STATE_MOUNTED;
    open_ring(image, journal, EmulationCosts::default(), recovers)
}

/// An image that was opened, and is locked.
struct Image {
    device: Arc<dyn BlockDevice>,
    identity: Identity,
    origin: Origin,
    sb: Superblock,
}

impl Image {
    fn open(path: &Path, place: Option<BorrowedFd<'_>>, origin: Origin, writes: bool) -> Result<Image> {
        let file = match (place, writes) {
            (Some(place), _) => ImageFile::open_through(place, path, writes)?,
            (None, true) => ImageFile::open(path)?,
            (None, false) => ImageFile::open_to_read(path)?,
        };
        let identity = Identity::of(&file)?;
        let device = open_device(file);
        let sb = superblock::read(device.as_ref())?;
        Ok(Image { device, identity, origin, sb })
    }

    /// What tells it from other images for as long as it is mounted. A device may count as attached anew meanwhile, and is
    /// held all the time.
    fn words(&self) -> [u64; IMAGE_WORDS] {
        let Identity { is_device, device, number, born } = self.identity;
        let [number, born] = if is_device { [0; 2] } else { [number, born] };
        let [high, low] =
            [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| self.sb.uuid[at + byte])));
        [is_device.into(), device, number, born, high, low]
    }

    /// Which staging is its own.
    fn staging(&self) -> Sought<'static> {
        let (sb, device) = (&self.sb, self.device.as_ref());
        let header = || read_device_header(device, sb.ring_start.get(), sb.ring_blocks.get());
        // A ring that cannot be read is told of by who needs it.
        let needed_for = if sb.state.get() == STATE_MOUNTED { header().ok().flatten() } else { None };
        Sought {
            memory: Path::new(SHARED_MEMORY),
            uuid: sb.uuid,
            owner: staging::owner(&self.identity),
            needed_for,
            origin: self.origin,
        }
    }
}

fn open_ring(image: Image, journal: Option<&Path>, costs: EmulationCosts, writes: bool) -> Result<Media> {
    let sb = &image.sb;
    let bytes = ring_bytes(sb.ring_slots.get())
        .map(|bytes| bytes.next_multiple_of(rustix::param::page_size()))
        .ok_or_else(|| Error::Refused("the image's journal is larger than memory can be".into()))?;
    let kind = JournalKind::from_u32(sb.journal_kind.get()).ok_or_else(|| {
        Error::Refused("the image names an unknown kind of journal; use a newer narufs".into())
    })?;
    let medium = match kind {
        JournalKind::Ssd if journal.is_some() => {
            return Err(Error::Refused(
                "the image's journal is of another kind than the one given: it lies in the image; leave the path out".into(),
            ));
        }
        JournalKind::Ssd => {
            let (ring, path) = open_staging(&image.staging(), bytes, writes)?;
            let staging_file = writes.then_some(path);
            return Ok(Media { device: image.device, ring, staging_file, owner: None });
        }
        JournalKind::Pmem => Medium::Dax,
        JournalKind::Emulated => Medium::Emulated(costs),
    };
    let path = journal.map_or_else(|| named_path(sb), |path| Ok(path.to_owned()))?;
    let owner = whose::owner(&image.identity);
    let file = RingFile { path, bytes, medium, owner, replace: false, ready: None };
    let by = if journal.is_some() { NamedBy::Caller } else { NamedBy::Image };
    let ring = match open_mapped(sb, file, by)? {
        RingMedia::Mapped(memory) => match anothers(&image, memory.as_ref(), &owner) {
            Some(absence) => RingMedia::Absent(absence, None),
            None => RingMedia::Mapped(memory),
        },
        other => other,
    };
    Ok(Media { ring, device: image.device, staging_file: None, owner: Some(owner) })
}

/// The staging of a killed process, and where it is or is to be. One of another size belongs to nothing that is alive, nor
/// does one that was made and has none yet: who makes it has it locked.
fn open_staging(wanted: &Sought<'_>, bytes: usize, writes: bool) -> Result<(RingMedia, PathBuf)> {
    let unstaged = |path: &Path, replace| {
        RingMedia::Unstaged(RingFile {
            path: path.to_owned(),
            bytes,
            medium: Medium::Staging,
            owner: wanted.owner,
            replace,
            ready: None,
        })
    };
    let path = match wanted.find()? {
        Staging::There(path) => path,
        Staging::ToMake(path) => return Ok((unstaged(&path, false), path)),
    };
    let ring = match Found::open(&path, Medium::Staging).and_then(Found::map_unless_empty) {
        // Another has been quicker.
        Ok(Some(memory)) if !wanted.is_ours(&memory) => return Err(in_use(&path)),
        // That of a newer build is told by its header, and left alone.
        Ok(Some(memory)) if newer_staging(&memory).is_some() => RingMedia::Ssd(Arc::new(memory)),
        Ok(Some(memory)) if memory.len() == bytes => {
            if writes {
                staging::give(&memory, &wanted.owner);
            }
            RingMedia::Ssd(Arc::new(memory))
        }
        Ok(_) => unstaged(&path, true),
        Err(Error::Errno(libc::ENOENT)) => unstaged(&path, false),
        Err(e) => return Err(e),
    };
    Ok((ring, path))
}

/// Why a ring outside of the image is left alone, though it has the image's UUIDs: it says that it is another image's, and
/// this one would redo what it has of that, or void it. Neither is so where both are of the same mount, and that is over.
fn anothers(image: &Image, memory: &dyn PersistentMemory, owner: &StagingOwner) -> Option<Absence> {
    let (sb, start) = (&image.sb, &start_of(memory));
    let is_of_this_mount = header_of(sb, start).is_ok_and(|header| header.epoch <= sb.epoch);
    let is_needed = sb.state.get() == STATE_MOUNTED;
    let is_free = match image.origin {
        Origin::Moved => true,
        // Of a copy nothing is there, unless it has been mounted itself.
        Origin::Copied if is_needed => whose::is_ours(start, owner),
        Origin::Unknown | Origin::Copied | Origin::GivenUp => !whose::is_anothers(start, owner),
    };
    let path = || memory.path().map_or_else(PathBuf::new, Path::to_owned);
    (!is_free && (is_needed || !is_of_this_mount)).then(|| Absence::OtherFile(path()))
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
    let memory = match found.map_unless_empty() {
        Ok(Some(memory)) => memory,
        // Whoever was to fill it was killed.
        Ok(None) => {
            let absence = Absence::TooShort { path: file.path.clone(), found: 0, wanted: file.bytes };
            return absent(absence, Some(RingFile { replace: true, ..file }));
        }
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
        Some(header) => Absence::OtherSize {
            ring: header.epoch.get(),
            found: header.slots.get(),
            wanted: sb.ring_slots.get(),
        },
        None => Absence::TooShort { path: file.path.clone(), found: memory.len(), wanted: file.bytes },
    };
    absent(absence, (!memory.is_device()).then_some(RingFile { replace: true, ..file }))
}

/// Why what begins so is not to be used, let alone written to. Whoever mounts may have zeros, and an earlier ring of the
/// image, overwritten.
fn not_ours(sb: &Superblock, start: &[u8], by: NamedBy) -> Option<Absence> {
    let is_forgiven = |absence: &Absence| {
        by == NamedBy::Caller && matches!(absence, Absence::Blank | Absence::Replaced { .. })
    };
    header_of(sb, start).err().filter(|absence| !is_forgiven(absence))
}

fn is_in_shared_memory(file: &RingFile) -> bool {
    let is_emulated = matches!(file.medium, Medium::Emulated(_));
    is_emulated && file.path.parent() == Some(Path::new(SHARED_MEMORY)) && file.path.file_name().is_some()
}

fn named_path(sb: &Superblock) -> Result<PathBuf> {
    let len = sb.journal_path.iter().position(|b| *b == 0).unwrap_or(sb.journal_path.len());
    match std::str::from_utf8(&sb.journal_path[..len]) {
        Ok(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => Err(Error::Refused("the image does not name its journal's path; give it".into())),
    }
}
