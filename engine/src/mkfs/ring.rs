//! The journal outside the image: its file is made, or taken over, before anything is written.

use super::FormatOptions;
use crate::format::{JournalKind, RING_HEADER_SPACE, Superblock};
use crate::journal::{init_mapped, read_mapped_header, ring_bytes};
use crate::pmem::{EmulationCosts, MappedMemory, Medium, PersistentMemory, unlink};
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// Memory for the ring. Dropped before [`Taken::begin`] has succeeded, a file that was made is removed.
pub(super) struct Taken {
    memory: MappedMemory,
    /// To be removed if nothing comes of it.
    made: Option<PathBuf>,
}

/// Where the ring is to lie outside of the image.
struct Place<'o> {
    path: &'o Path,
    medium: Medium,
    bytes: usize,
}

impl Place<'_> {
    /// The file that the options name; none where the ring lies in the image, or has no name.
    fn named<'o>(sb: &Superblock, options: &'o FormatOptions) -> Result<Option<Place<'o>>> {
        let medium = match options.journal {
            JournalKind::Ssd => return Ok(None),
            JournalKind::Pmem => Medium::Dax,
            JournalKind::Emulated => Medium::Emulated(EmulationCosts::default()),
        };
        let Some(path) = options.journal_path.as_deref().map(Path::new) else { return Ok(None) };
        let bytes = ring_bytes(sb.ring_slots.get())
            .map(|bytes| bytes.next_multiple_of(rustix::param::page_size()))
            .ok_or_else(|| Error::Refused("the journal is larger than memory can be".into()))?;
        Ok(Some(Place { path, medium, bytes }))
    }

    fn without_directory(&self) -> Error {
        Error::Refused(format!("{}: there is no such directory for the journal", self.path.display()))
    }

    /// What is there, if it may be taken; none if nothing is.
    fn there(&self, options: &FormatOptions) -> Result<Option<MappedMemory>> {
        let memory = match MappedMemory::open(self.path, self.medium) {
            Err(Error::Errno(libc::ENOENT)) => return Ok(None),
            opened => opened?,
        };
        if !options.force {
            check_unused(self.path, &memory)?;
        }
        if memory.is_device() && memory.len() < self.bytes {
            return Err(Error::Refused(format!(
                "{} has {} bytes, the journal needs {}; ask for a smaller one",
                self.path.display(),
                memory.len(),
                self.bytes
            )));
        }
        Ok(Some(memory))
    }
}

/// Refuses what [`take`] would refuse of what is there; makes nothing.
pub(super) fn check(sb: &Superblock, options: &FormatOptions) -> Result<()> {
    let Some(place) = Place::named(sb, options)? else { return Ok(()) };
    let directory = place.path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match place.there(options)? {
        None if directory.is_some_and(|directory| !directory.is_dir()) => Err(place.without_directory()),
        _ => Ok(()),
    }
}

/// Makes or takes the file that the options name; none where the ring lies in the image, or has no name.
pub(super) fn take(sb: &Superblock, options: &FormatOptions) -> Result<Option<Taken>> {
    let Some(place) = Place::named(sb, options)? else { return Ok(None) };
    let Place { path, medium, bytes } = place;
    if let Some(memory) = place.there(options)? {
        if memory.len() == bytes || memory.is_device() {
            return Ok(Some(Taken { memory, made: None }));
        }
        drop(memory);
        unlink(path)?;
    }
    let memory = MappedMemory::create(path, bytes, medium).map_err(|e| match e {
        Error::Errno(libc::ENOENT) => place.without_directory(),
        e => e,
    })?;
    Ok(Some(Taken { memory, made: Some(path.to_owned()) }))
}

/// Whether nothing would be lost.
fn check_unused(path: &Path, memory: &MappedMemory) -> Result<()> {
    let path = path.display();
    if let Some(header) = read_mapped_header(memory) {
        let owner = uuid::Uuid::from_bytes(header.image_uuid);
        return Err(Error::Refused(format!(
            "{path} is the journal of image {owner}; name another path, or use --force to destroy it"
        )));
    }
    let mut start = [0; RING_HEADER_SPACE];
    memory.read(0, &mut start);
    if start.iter().any(|b| *b != 0) {
        return Err(Error::Refused(format!(
            "{path} holds data already; name another path for the journal, or use --force to overwrite them"
        )));
    }
    Ok(())
}

impl Taken {
    /// Makes it the image's ring, empty. The image is complete but for its superblock.
    pub fn begin(mut self, sb: &Superblock) -> Result<()> {
        init_mapped(&self.memory, &sb.uuid, &sb.ring_uuid, sb.ring_slots.get())?;
        self.made = None;
        Ok(())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(path) = &self.made
            && let Err(e) = unlink(path)
        {
            tracing::warn!("{} is left behind: {e}", path.display());
        }
    }
}
