//! Why an image goes without the ring that it had, in words: what is refused for it, and what to do.
//!
//! What this leaves to others: what lies where the ring should be ([`super::ring`]).

use std::fmt;
use std::path::PathBuf;

/// Why there is no ring that the image could go on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absence {
    /// There is no file.
    Missing(PathBuf),
    /// There is something that cannot be mapped.
    Unusable(String),
    /// The file is shorter than the ring.
    TooShort {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        found: usize,
        /// Bytes of the image's ring.
        wanted: usize,
    },
    /// There are only zeros.
    Blank,
    /// There is something, but no header that verifies.
    Damaged,
    /// It belongs to the image with this UUID.
    OtherImage([u8; 16]),
    /// It has the image's UUIDs, and is of another file or device that has them too.
    OtherFile(PathBuf),
    /// It has this format version, which this code does not know.
    OtherVersion(u32),
    /// The ring in the image has this format version, which this code does not know.
    OtherVersionInside(u32),
    /// The file that stages the ring in the image has a format version that this code does not know.
    OtherVersionStaged {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// It is a ring of this image, but was replaced by another.
    Replaced {
        /// Number of the ring's mount.
        ring: u64,
    },
    /// It has another number of slots.
    OtherSize {
        /// Number of the ring's mount.
        ring: u64,
        /// Slots that it has.
        found: u64,
        /// Slots of the image's ring.
        wanted: u64,
    },
    /// It was last written in another mount.
    OtherMount {
        /// Number of the ring's mount.
        ring: u64,
        /// Number of the image's.
        image: u64,
    },
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Absence::Missing(path) => write!(f, "the journal is missing: there is no {}", path.display()),
            Absence::Unusable(why) => write!(f, "the journal cannot be used: {why}"),
            Absence::TooShort { path, found, wanted } => {
                write!(f, "the journal {} is too short: {found} bytes of {wanted}", path.display())
            }
            Absence::Blank => write!(f, "the journal is blank"),
            Absence::Damaged => write!(f, "the journal has no valid ring header"),
            Absence::OtherImage(uuid) => {
                write!(f, "the journal belongs to another image ({})", uuid::Uuid::from_bytes(*uuid))
            }
            Absence::OtherFile(path) => {
                write!(f, "the journal {} is of another file or device with the image's UUID", path.display())
            }
            Absence::OtherVersion(version) => {
                write!(f, "the journal has format version {version}, that of a newer narufs")
            }
            Absence::OtherVersionInside(version) => {
                write!(f, "the journal in the image has format version {version}, that of a newer narufs")
            }
            Absence::OtherVersionStaged { path, version } => write!(
                f,
                "the journal's staging {} has format version {version}, that of a newer narufs",
                path.display()
            ),
            Absence::Replaced { .. } => {
                write!(f, "the journal is not the image's last: another has replaced it")
            }
            Absence::OtherSize { found, wanted, .. } => {
                write!(f, "the journal has another size: {found} slots, the image's {wanted}")
            }
            Absence::OtherMount { ring, image } if ring < image => {
                write!(f, "the journal is older than the image: of mount {ring}, the image of mount {image}")
            }
            Absence::OtherMount { ring, image } => {
                write!(f, "the journal is newer than the image: of mount {ring}, the image of mount {image}")
            }
        }
    }
}

impl Absence {
    /// Whether going on with another ring would destroy what is not this build's, or this image's, to destroy.
    pub(crate) fn is_to_be_kept(&self) -> bool {
        let is_anothers =
            matches!(self, Absence::OtherImage(_) | Absence::OtherFile(_) | Absence::OtherVersion(_));
        is_anothers || self.is_newer_inside()
    }

    /// The number of the mount in which a ring of the image was last written that is not its last: in another mount, or
    /// beside another copy of the image. Its slots may still lie there.
    pub(in crate::volume) fn epoch(&self) -> u64 {
        match self {
            Absence::OtherMount { ring, .. }
            | Absence::Replaced { ring }
            | Absence::OtherSize { ring, .. } => *ring,
            _ => 0,
        }
    }

    /// Whether a newer build has written the ring of the image itself.
    fn is_newer_inside(&self) -> bool {
        matches!(self, Absence::OtherVersionInside(_) | Absence::OtherVersionStaged { .. })
    }
}

/// The refusal of an image that needs a ring that is not there.
pub(crate) fn lost(absence: &Absence) -> String {
    if absence.is_newer_inside() {
        return foreign(absence);
    }
    if let Absence::OtherFile(_) = absence {
        return format!(
            "{absence}, and the image was not unmounted cleanly: if it is that one, moved, say -o moved (fsck: --moved); a copy \
             that was made while its original was mounted cannot be recovered without that: take one made after an unmount"
        );
    }
    format!(
        "{absence}; the image was not unmounted cleanly, and what it had not checkpointed (operations and \
         absorbed data) may be lost without its journal: bring that back, or give it up with narufs fsck IMAGE \
         --repair --discard-journal"
    )
}

/// The refusal of an image that is said to be clean, and whose own ring says that it was mounted since.
pub(in crate::volume) fn later(absence: &Absence) -> String {
    format!(
        "{absence}, which was mounted since it was said to be clean: the newer copy of its superblock is lost, and what the \
         journal holds may be lost without it; look for errors of the device and try again, or give the journal up with \
         narufs fsck IMAGE --repair --discard-journal"
    )
}

/// The refusal of an image where going on would destroy another image's ring, or one of a newer build.
pub(crate) fn foreign(absence: &Absence) -> String {
    if absence.is_newer_inside() {
        return format!("{absence}; use a newer narufs");
    }
    if let Absence::OtherFile(_) = absence {
        return format!(
            "{absence}, which may need it; if this image has taken that one's place say -o moved (fsck: --moved), or have \
             another journal made, by narufs mount -o journal=PATH (fsck: --journal PATH)"
        );
    }
    format!(
        "{absence}, which may need it; move that file away (this image is clean and gets a new journal), or bring \
         this image's own back"
    )
}

/// The refusal of an image whose journal no mount makes.
pub(in crate::volume) fn not_made(absence: &Absence) -> String {
    format!(
        "{absence}; an image's word is not enough to make one there: bring it back, or have a new one made where \
         nothing else lies, by narufs mount -o journal=PATH (fsck: --journal PATH)"
    )
}
