//! Which file in shared memory stages the ring of an image.
//!
//! What staging holds beyond its image is of that very image at that moment. A copy, whenever it was made, has the UUIDs
//! of its original, and with the original's staging it would be an older image under younger records. So staging
//! carries what tells its image from all copies ([`Identity`]), and counts for no other. Its name has the image's UUID; where
//! another image's has that name already it has the rest of the identity besides.
//!
//! An unclean image for which there is none, while another's is of the same time, may be a copy, or the image itself
//! at another place (on another file system, or behind another device). Nothing on the media tells, and either guess
//! loses something: so that is refused, until whoever mounts says which ([`Origin`]).
//!
//! Staging without an identity is an older build's: the image that it fits has it.
//!
//! What this leaves to others: an image that is overwritten in place by an older one. Its staging is to be removed then.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use zerocopy::{FromBytes, IntoBytes};

use super::ring::{self, is_of_the_same_time};
use crate::device::{Identity, io_error};
use crate::format::{OWNER_MAGIC, RING_HEADER_SPACE, RingHeader, STAGING_OWNER, StagingOwner};
use crate::journal::header_in;
use crate::planted::{self, Bug};
use crate::pmem::PersistentMemory;
use crate::{Error, Result};

/// Where files lie in memory that outlives processes.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";

/// What an unclean image is, where shared memory has the staging of another with the same UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
    /// Not known: it is refused.
    #[default]
    Unknown,
    /// The one that the staging is of, at another place now.
    Moved,
    /// A copy of that: it is recovered from itself alone, as after a loss of power.
    Copied,
    /// Either, and its journal is given up: what is another's is left alone, and not looked for.
    GivenUp,
}

/// Where the staging of an image's ring lies, if no other image's lies there.
pub fn staging_path(uuid: &[u8; 16]) -> PathBuf {
    Path::new(SHARED_MEMORY).join(name_of(uuid))
}

fn name_of(uuid: &[u8; 16]) -> String {
    format!("narufs-{}", uuid::Uuid::from_bytes(*uuid))
}

/// Where staging is looked for, and for which image.
#[derive(Debug)]
pub(super) struct Sought<'w> {
    /// The directory.
    pub memory: &'w Path,
    pub uuid: [u8; 16],
    pub owner: StagingOwner,
    /// The header of the ring in the image, if it needs what staging has beyond that.
    pub needed_for: Option<RingHeader>,
    pub origin: Origin,
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Staging {
    /// The image's own.
    There(PathBuf),
    /// None; where it is to be made.
    ToMake(PathBuf),
}

/// Whose staging may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    Ours,
    /// Another's, and of the same time.
    Perhaps,
    Others,
}

impl Sought<'_> {
    /// Looks for the image's staging.
    ///
    /// # Errors
    /// [`Error::Refused`] where another image's may be this one's.
    pub fn find(&self) -> Result<Staging> {
        let (plain, full) = self.names();
        // By name, where a directory may not be read any more.
        for path in [&plain, &full] {
            if self.look(path)? == Some(Claim::Ours) {
                return Ok(Staging::There(path.clone()));
            }
        }
        let mut perhaps = Vec::new();
        for path in beside(self.memory, &self.uuid) {
            match self.look(&path)? {
                Some(Claim::Ours) => return Ok(Staging::There(path)),
                Some(Claim::Perhaps) => perhaps.push(path),
                Some(Claim::Others) | None => {}
            }
        }
        match perhaps.as_slice() {
            [] => {
                let is_free = plain.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound);
                Ok(Staging::ToMake(if is_free { plain } else { full }))
            }
            [path] if self.origin == Origin::Moved => Ok(Staging::There(path.clone())),
            [path, ..] => Err(Error::Refused(refusal(path, perhaps.len()))),
        }
    }

    /// What a mapped file turns out to be of, now that nobody else has it.
    pub fn is_ours(&self, memory: &dyn PersistentMemory) -> bool {
        match self.claim(Some(&ring::start_of(memory)), true) {
            Claim::Ours => true,
            Claim::Perhaps => self.origin == Origin::Moved,
            Claim::Others => false,
        }
    }

    /// The usual name, and the one besides that.
    fn names(&self) -> (PathBuf, PathBuf) {
        let name = name_of(&self.uuid);
        let StagingOwner { device, number, born, .. } = self.owner;
        let full = format!("{name}-{device:x}.{number:x}.{born:x}");
        (self.memory.join(name), self.memory.join(full))
    }

    /// None: there is nothing.
    fn look(&self, path: &Path) -> Result<Option<Claim>> {
        let found = match path.symlink_metadata() {
            Ok(found) => found,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io_error("look at the journal's staging", &e)),
        };
        if !found.is_file() {
            return Ok(Some(Claim::Others));
        }
        let start = start_of(path);
        Ok(Some(self.claim(start.as_deref(), found.uid() == rustix::process::geteuid().as_raw())))
    }

    /// By how the file begins, unless it cannot be read; other users' are ours only where they could not have been made
    /// in vain.
    fn claim(&self, start: Option<&[u8]>, is_of_this_user: bool) -> Claim {
        let is_copied = matches!(self.origin, Origin::Copied | Origin::GivenUp);
        let Some(start) = start else {
            return if self.needed_for.is_some() && !is_copied { Claim::Perhaps } else { Claim::Others };
        };
        let staged = header_in(start);
        let fits =
            self.needed_for.zip(staged).is_some_and(|(header, staged)| is_of_the_same_time(&staged, &header));
        match owner_in(start) {
            _ if planted::is(Bug::StagingOfAnyOwner) => Claim::Ours,
            Some(owner) if owner == self.owner && (is_of_this_user || fits) => Claim::Ours,
            None if is_of_this_user && !is_copied && (fits || staged.is_none()) => Claim::Ours,
            _ if fits && !is_copied => Claim::Perhaps,
            _ => Claim::Others,
        }
    }
}

/// Files that may stage rings of images with this UUID, but for the one with the usual name alone where the directory
/// cannot be read.
fn beside(memory: &Path, uuid: &[u8; 16]) -> Vec<PathBuf> {
    let name = name_of(uuid);
    let is_one = |path: &Path| {
        let file = path.file_name().and_then(|file| file.to_str());
        file.and_then(|file| file.strip_prefix(&name))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    match std::fs::read_dir(memory) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).filter(|path| is_one(path)).collect(),
        Err(e) => {
            // A server that has given up the right has looked before.
            tracing::debug!("{}: {e}", memory.display());
            vec![memory.join(name)]
        }
    }
}

fn start_of(path: &Path) -> Option<Vec<u8>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let mut start = Vec::new();
    file.take(RING_HEADER_SPACE as u64).read_to_end(&mut start).ok()?;
    Some(start)
}

fn refusal(path: &Path, count: usize) -> String {
    let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
    format!(
        "the image was not unmounted cleanly, and {}{more}, the newest of its journal, is of another file or device with \
         the same UUID: if this is a copy of that, mount that first, or say -o copied (fsck: --copied) to recover \
         the copy as after a loss of power; if it is that one, moved, say -o moved (fsck: --moved)",
        path.display()
    )
}

/// Kinds of owners ([`StagingOwner::kind`]).
pub(super) const FILE: u32 = 1;
pub(super) const DEVICE: u32 = 2;

/// How staging says that it is of an image with this identity.
pub(super) fn owner(of: &Identity) -> StagingOwner {
    let kind = if of.is_device { DEVICE } else { FILE };
    let mut owner = StagingOwner {
        crc: 0.into(),
        kind: kind.into(),
        magic: OWNER_MAGIC.into(),
        device: of.device.into(),
        number: of.number.into(),
        born: of.born.into(),
    };
    owner.crc = checksum(&owner).into();
    owner
}

/// Makes staging that of an image.
pub(super) fn give(memory: &dyn PersistentMemory, owner: &StagingOwner) {
    memory.write(STAGING_OWNER, owner.as_bytes());
    memory.persist(STAGING_OWNER, size_of::<StagingOwner>());
}

fn checksum(owner: &StagingOwner) -> u32 {
    crc32c::crc32c(owner.as_bytes().get(size_of::<u32>()..).unwrap_or(&[]))
}

/// Whose staging begins so.
pub(super) fn owner_in(start: &[u8]) -> Option<StagingOwner> {
    let (owner, _) = StagingOwner::read_from_prefix(start.get(STAGING_OWNER..)?).ok()?;
    (owner.magic.get() == OWNER_MAGIC && owner.crc.get() == checksum(&owner)).then_some(owner)
}

/// What shared memory has of an image, for whoever tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Staged {
    /// Its own staging.
    Own(PathBuf),
    /// Staging of another with the same UUID.
    Others(PathBuf),
    /// Nothing.
    Nothing,
}

/// Looks for what stages the ring of the image at `image`, which has this UUID, without a lock.
///
/// # Errors
/// Those of opening it.
pub fn staging_of(image: &Path, uuid: [u8; 16]) -> Result<Staged> {
    let file = File::open(image).map_err(|e| io_error("open the image", &e))?;
    let owner = owner(&Identity::of(&file)?);
    let files = beside(Path::new(SHARED_MEMORY), &uuid).into_iter();
    let mut others = Staged::Nothing;
    for path in files.filter(|path| path.symlink_metadata().is_ok_and(|found| found.is_file())) {
        match start_of(&path).map(|start| owner_in(&start)) {
            Some(found) if found.is_none_or(|found| found == owner) => return Ok(Staged::Own(path)),
            _ => others = Staged::Others(path),
        }
    }
    Ok(others)
}
