//! Which ring is at hand, and whether it is the image's.

use std::fmt;
use std::path::{Path, PathBuf};

use super::absence::{Absence, not_made};
use super::{staging, staging_path};
use crate::device::{BlockDevice, in_use};
use crate::format::{JournalKind, RING_HEADER_SPACE, RingHeader, StagingOwner, Superblock};
use crate::journal::{
    self, Scan, header_in, newer_device_version, newer_version, read_device_header, read_mapped_header,
    scan_device_of, scan_mapped,
};
use crate::planted::{self, Bug};
use crate::pmem::{MappedMemory, Medium, PersistentMemory, unlink, unlink_unused};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::{Error, Result};

/// Where the journal is.
#[derive(Clone)]
pub enum RingMedia {
    /// In persistent memory, or in what stands for it.
    Mapped(Arc<dyn PersistentMemory>),
    /// In the image, staged in memory that survives the process; new staging is zeros.
    Ssd(Arc<dyn PersistentMemory>),
    /// In the image, its staging not there: a mount that writes makes it.
    Unstaged(RingFile),
    /// In memory that is not there, or cannot be used: why, and what file a mount may make in its place.
    Absent(Absence, Option<RingFile>),
}

/// A file for a ring that is still to be made.
#[derive(Debug, Clone)]
pub struct RingFile {
    pub(super) path: PathBuf,
    pub(super) bytes: usize,
    pub(super) medium: Medium,
    /// Whose it becomes.
    pub(super) owner: StagingOwner,
    /// There is a file, of no use.
    pub(super) replace: bool,
    /// It was made ahead of the mount.
    pub(super) ready: Option<Arc<MadeFile>>,
}

/// A file that was made for a mount; removed again unless the mount succeeds.
pub(super) struct MadeFile {
    memory: Arc<dyn PersistentMemory>,
    path: PathBuf,
    // Relaxed: by who alone drops it.
    is_kept: AtomicBool,
}

impl MadeFile {
    /// Keeps the file that was made.
    pub fn keep(&self) {
        self.is_kept.store(true, Relaxed);
    }
}

impl fmt::Debug for MadeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MadeFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for MadeFile {
    fn drop(&mut self) {
        if !self.is_kept.load(Relaxed)
            && let Err(e) = unlink(&self.path)
        {
            tracing::warn!("{} is left behind: {e}", self.path.display());
        }
    }
}

impl RingFile {
    fn made(&self) -> Result<Arc<MadeFile>> {
        if let Some(made) = &self.ready {
            return Ok(Arc::clone(made));
        }
        if self.replace {
            unlink_unused(&self.path)?;
        }
        let memory = Arc::new(create(self)?);
        staging::give(memory.as_ref(), &self.owner);
        Ok(Arc::new(MadeFile { memory, path: self.path.clone(), is_kept: AtomicBool::new(false) }))
    }
}

/// What was found there.
pub(crate) enum Ring {
    /// The image's own ring.
    Ours(RingHeader),
    /// Not the image's ring, and why.
    None(Absence),
}

impl RingMedia {
    /// Looks for the image's ring.
    pub(crate) fn find(&self, sb: &Superblock, device: &Arc<dyn BlockDevice>) -> Result<Ring> {
        let in_image = sb.journal_kind.get() == JournalKind::Ssd as u32;
        let header = match self {
            RingMedia::Ssd(_) | RingMedia::Unstaged(_) if in_image => {
                self.header_inside(sb, device.as_ref())?
            }
            RingMedia::Mapped(memory) if !in_image => header_of(sb, &start_of(memory.as_ref())),
            RingMedia::Absent(absence, _) if !in_image => Err(absence.clone()),
            _ => {
                return Err(Error::Refused(
                    "the image's journal is of another kind than the one given; mount it with the journal \
                     it was made for"
                        .into(),
                ));
            }
        };
        let header = match header {
            Ok(header) => header,
            Err(absence) => return Ok(Ring::None(absence)),
        };
        let (ring_epoch, epoch) = (header.epoch.get(), sb.epoch.get());
        let mismatch = if header.slots.get() != sb.ring_slots.get() {
            let (found, wanted) = (header.slots.get(), sb.ring_slots.get());
            Some(Absence::OtherSize { ring: ring_epoch, found, wanted })
        } else if ring_epoch > epoch || ring_epoch + 1 < epoch && !planted::is(Bug::StaleEpochAccepted) {
            Some(Absence::OtherMount { ring: ring_epoch, image: epoch })
        } else {
            None
        };
        Ok(mismatch.map_or(Ring::Ours(header), Ring::None))
    }

    /// The header of a ring in the image; none where that or its staging is of a newer build.
    fn header_inside(
        &self,
        sb: &Superblock,
        device: &dyn BlockDevice,
    ) -> Result<std::result::Result<RingHeader, Absence>> {
        if let RingMedia::Ssd(staging) = self
            && let Some(version) = newer_staging(staging.as_ref())
        {
            let path = staging.path().map_or_else(|| staging_path(&sb.uuid), Path::to_owned);
            return Ok(Err(Absence::OtherVersionStaged { path, version }));
        }
        let start = sb.ring_start.get();
        match read_device_header(device, start, sb.ring_blocks.get())? {
            Some(header) => Ok(is_of(sb, &header).map(|()| header)),
            None => {
                Ok(Err(newer_device_version(device, start)?
                    .map_or(Absence::Damaged, Absence::OtherVersionInside)))
            }
        }
    }

    /// Whether a ring in the image is of a mount that the superblock knows nothing of. One outside may be newer than an image
    /// that was brought back from a backup.
    pub(super) fn is_later(&self, sb: &Superblock, absence: &Absence) -> bool {
        let is_inside = matches!(self, RingMedia::Ssd(_) | RingMedia::Unstaged(_));
        is_inside && matches!(absence, Absence::OtherMount { ring, .. } if *ring > sb.epoch.get())
    }

    /// Whether the image's own ring is of a mount that its superblock knows nothing of.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn is_ahead_of(&self, sb: &Superblock, device: &Arc<dyn BlockDevice>) -> Result<bool> {
        let in_image = sb.journal_kind.get() == JournalKind::Ssd as u32;
        if !in_image || !matches!(self, RingMedia::Ssd(_) | RingMedia::Unstaged(_)) {
            return Ok(false);
        }
        match self.find(sb, device) {
            Ok(Ring::None(absence)) => Ok(self.is_later(sb, &absence)),
            // A header that cannot be read says nothing.
            Ok(Ring::Ours(_)) | Err(Error::Device { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Whether it is not there, and no mount makes it.
    pub(super) fn is_beyond_reach(&self) -> bool {
        matches!(self, RingMedia::Absent(_, None))
    }

    /// Makes what [`RingMedia::made`] makes, which then finds it ready. That the journal is absent is still so.
    ///
    /// # Errors
    /// As there.
    pub(super) fn make_ahead(&mut self) -> Result<()> {
        if let RingMedia::Unstaged(file) | RingMedia::Absent(_, Some(file)) = self {
            file.ready = Some(file.made()?);
        }
        Ok(())
    }

    /// Makes the file that is missing, zeros; all else stays as it is.
    ///
    /// # Errors
    /// [`Error::Refused`] where there is no room, or nothing that could be made.
    pub(super) fn made(self) -> Result<(RingMedia, Option<Arc<MadeFile>>)> {
        match self {
            RingMedia::Unstaged(file) => {
                file.made().map(|made| (RingMedia::Ssd(Arc::clone(&made.memory)), Some(made)))
            }
            RingMedia::Absent(_, Some(file)) => {
                file.made().map(|made| (RingMedia::Mapped(Arc::clone(&made.memory)), Some(made)))
            }
            RingMedia::Absent(absence, None) => Err(Error::Refused(not_made(&absence))),
            there => Ok((there, None)),
        }
    }

    /// Reads what the ring of an unclean image holds: from the staging, if it is of the same time, for it
    /// may be ahead of the image.
    pub(crate) fn scan(
        &self,
        sb: &Superblock,
        device: &Arc<dyn BlockDevice>,
        header: &RingHeader,
    ) -> Result<Scan> {
        let (start, blocks) = (sb.ring_start.get(), sb.ring_blocks.get());
        let in_image = || scan_device_of(Arc::clone(device), start, blocks, sb.epoch.get());
        match self {
            RingMedia::Mapped(memory) => scan_mapped(Arc::clone(memory)),
            RingMedia::Ssd(staging) => {
                let staged = read_mapped_header(staging.as_ref());
                match staged.filter(|staged| is_of_the_same_time(staged, header)) {
                    Some(_) => scan_mapped(Arc::clone(staging)),
                    None => in_image(),
                }
            }
            RingMedia::Unstaged(_) => in_image(),
            RingMedia::Absent(absence, _) => Err(Error::Refused(absence.to_string())),
        }
    }

    /// Before anything is written home: what was found gets as far as the ring can carry it. What a killed
    /// process left in caches (the processor's, or the device's) is read like the rest and must not be lost
    /// once homes build on it.
    pub(super) fn carry(&self, sb: &Superblock, device: &Arc<dyn BlockDevice>, scan: &Scan) -> Result<()> {
        scan.persist();
        device.flush()?;
        match self {
            RingMedia::Ssd(_) if !planted::is(Bug::NoCarry) => {
                scan.carry(device.as_ref(), sb.ring_start.get())
            }
            _ => Ok(()),
        }
    }

    /// Whether a mount can have the ring in the image hold what was found in the memory that stages it.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is of another shape.
    pub fn can_carry(&self, scan: &Scan) -> Result<()> {
        match self {
            RingMedia::Ssd(_) => scan.can_be_carried().map(drop),
            _ => Ok(()),
        }
    }

    /// The ring as the journal takes it, once it is made.
    pub(super) fn media(&self, sb: &Superblock, device: &Arc<dyn BlockDevice>) -> Result<journal::Media> {
        match self {
            RingMedia::Mapped(memory) => Ok(journal::Media::Mapped(Arc::clone(memory))),
            RingMedia::Ssd(staging) => Ok(journal::Media::Ssd {
                staging: Arc::clone(staging),
                device: Arc::clone(device),
                start: sb.ring_start.get(),
            }),
            RingMedia::Unstaged(file) => Err(Error::Refused(format!("{} is not made", file.path.display()))),
            RingMedia::Absent(absence, _) => Err(Error::Refused(absence.to_string())),
        }
    }
}

/// The version of staging that a newer build has written.
pub(super) fn newer_staging(memory: &dyn PersistentMemory) -> Option<u32> {
    if read_mapped_header(memory).is_some() { None } else { newer_version(&start_of(memory)) }
}

/// What lies where a ring's header has its place.
pub(super) fn start_of(memory: &dyn PersistentMemory) -> Vec<u8> {
    let mut start = vec![0; memory.len().min(RING_HEADER_SPACE)];
    memory.read(0, &mut start);
    start
}

/// The header of a ring in memory that begins so, or why it is none of this image's.
pub(super) fn header_of(sb: &Superblock, start: &[u8]) -> std::result::Result<RingHeader, Absence> {
    let header = header_in(start).ok_or_else(|| match newer_version(start) {
        _ if start.iter().all(|byte| *byte == 0) => Absence::Blank,
        Some(version) => Absence::OtherVersion(version),
        None => Absence::Damaged,
    })?;
    is_of(sb, &header).map(|()| header)
}

/// Whether a ring with this header is the image's last, or why not; of which mount is another matter.
fn is_of(sb: &Superblock, header: &RingHeader) -> std::result::Result<(), Absence> {
    match header {
        _ if header.image_uuid != sb.uuid => Err(Absence::OtherImage(header.image_uuid)),
        _ if header.ring_uuid != sb.ring_uuid => Err(Absence::Replaced { ring: header.epoch.get() }),
        _ => Ok(()),
    }
}

/// Whether staging was written beside a ring in an image: it may be ahead, by no more than the round that is under way.
pub(super) fn is_of_the_same_time(staged: &RingHeader, header: &RingHeader) -> bool {
    staged.image_uuid == header.image_uuid
        && staged.ring_uuid == header.ring_uuid
        && staged.epoch == header.epoch
        && staged.slots == header.slots
        && staged.round.get().abs_diff(header.round.get()) <= 1
}

fn create(file: &RingFile) -> Result<MappedMemory> {
    MappedMemory::create(&file.path, file.bytes, file.medium).map_err(|e| match e {
        // There was none a moment ago.
        Error::Errno(libc::EEXIST) if matches!(file.medium, Medium::Staging) => in_use(&file.path),
        Error::Errno(libc::ENOENT) => {
            let dir = file.path.parent().unwrap_or(Path::new("/"));
            Error::Refused(format!("there is no directory {} for the journal: make it first", dir.display()))
        }
        e => e,
    })
}
