//! How a file system is made and opened.

use crate::error::{Error, Result};
use narufs_engine::file::DataOptions;
use narufs_engine::format::JournalKind;
use narufs_engine::journal;
use narufs_engine::scratch::SpillOptions;
use narufs_engine::store::StoreOptions;
use narufs_engine::vfs::{AtimePolicy, VfsOptions};
use narufs_engine::volume;
use narufs_engine::volume::AssembleOptions;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// Where the journal of a file system lies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Journal {
    /// In a ring on the image.
    #[default]
    Image,
    /// In persistent memory: a file on a DAX file system, or a DAX device.
    PersistentMemory(PathBuf),
    /// In a file in shared memory that stands for persistent memory: it survives the end of the process, **not that of
    /// the machine**.
    Emulated(PathBuf),
}

/// How a file system is made.
///
/// ```
/// # use narufs::{FormatOptions, Fs};
/// # let place = tempfile::tempdir().unwrap();
/// # let image = place.path().join("image");
/// Fs::format(&image, &FormatOptions::new().size(64 << 20).label("mail"))?;
/// # Ok::<(), narufs::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct FormatOptions {
    size: Option<u64>,
    journal: Journal,
    label: String,
    owner: (u32, u32),
    sparse: bool,
    force: bool,
}

impl FormatOptions {
    /// On all of the device, with the journal on it.
    pub fn new() -> FormatOptions {
        FormatOptions::default()
    }

    /// Bytes of the file system, rounded down to blocks of 4 KiB. The image is then made if it is not there, and as
    /// long as this.
    pub fn size(mut self, bytes: u64) -> FormatOptions {
        self.size = Some(bytes);
        self
    }

    /// Where the journal lies; by default on the image.
    pub fn journal(mut self, journal: Journal) -> FormatOptions {
        self.journal = journal;
        self
    }

    /// The name of the file system: 32 bytes at the most.
    pub fn label(mut self, label: impl Into<String>) -> FormatOptions {
        self.label = label.into();
        self
    }

    /// Owner and group of the root directory; by default 0.
    pub fn owner(mut self, uid: u32, gid: u32) -> FormatOptions {
        self.owner = (uid, gid);
        self
    }

    /// Reserve no space for an image that is a file: it is taken as it is written, and what cannot be written for want of
    /// it fails.
    pub fn sparse(mut self, sparse: bool) -> FormatOptions {
        self.sparse = sparse;
        self
    }

    /// Make it even where there is a file system already, which is lost.
    pub fn force(mut self, force: bool) -> FormatOptions {
        self.force = force;
        self
    }

    /// # Errors
    /// EINVAL for a journal whose path is not UTF-8: the image keeps it as words.
    pub(crate) fn to_engine(&self) -> Result<narufs_engine::FormatOptions> {
        let (journal, path) = match &self.journal {
            Journal::Image => (JournalKind::Ssd, None),
            Journal::PersistentMemory(path) => (JournalKind::Pmem, Some(path)),
            Journal::Emulated(path) => (JournalKind::Emulated, Some(path)),
        };
        let words = |path: &PathBuf| match path.to_str() {
            Some(words) => Ok(words.to_owned()),
            None => Err(Error::of_errno("format", libc::EINVAL).at(path)),
        };
        Ok(narufs_engine::FormatOptions {
            blocks: self.size.map(|bytes| bytes / BLOCK),
            journal,
            journal_path: path.map(words).transpose()?,
            label: self.label.clone(),
            owner: self.owner,
            sparse: self.sparse,
            force: self.force,
            ..narufs_engine::FormatOptions::default()
        })
    }
}

/// What a sync waits for, where the journal is on the image. docs/CONSISTENCY.md says what each promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// What was synced survives the machine's loss of power.
    #[default]
    Power,
    /// What was synced survives the end of the process, and a loss of power but for the last so much time (1 ms to
    /// 60 s): what is left then is a state that existed.
    Window(Duration),
    /// What was synced survives the end of the process.
    Process,
}

/// When reading changes a file's access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AccessTimes {
    /// If it is not later than the last change, or a day old.
    #[default]
    Relative,
    /// Always.
    Strict,
    /// Never.
    Never,
}

/// What an image is that was not unmounted, where `/dev/shm` has the newest of the journal of another file or device with
/// the same UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Origin {
    /// Not known: it is refused.
    #[default]
    Unknown,
    /// That image, at another place: it takes what lies there.
    Moved,
    /// A copy: it is recovered by itself, as after a loss of power.
    Copied,
}

/// How a file system behaves and what it may use.
///
/// ```
/// # use narufs::{Durability, MountOptions};
/// # use std::time::Duration;
/// let options = MountOptions::new()
///     .memory(1 << 30)
///     .durability(Durability::Window(Duration::from_millis(100)));
/// # let _ = options;
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct MountOptions {
    journal: Option<PathBuf>,
    memory: Option<u64>,
    metadata_memory: Option<u64>,
    durability: Durability,
    access_times: AccessTimes,
    read_only: bool,
    lazy_times: bool,
    sync: bool,
    discard_journal: bool,
    origin: Origin,
}

impl MountOptions {
    /// Everything as usual: changes are allowed, syncs wait for the device.
    pub fn new() -> MountOptions {
        MountOptions::default()
    }

    /// Change nothing, neither on the image nor in its journal. What recovery would bring back is shown.
    pub fn read_only(mut self, read_only: bool) -> MountOptions {
        self.read_only = read_only;
        self
    }

    /// The path of the journal, if it is not the one that the image names. A clean image gets a new one there if nothing
    /// lies there but zeros, or one of its own; at a path that only the image names in `/dev/shm` alone.
    pub fn journal(mut self, path: impl Into<PathBuf>) -> MountOptions {
        self.journal = Some(path.into());
        self
    }

    /// Bytes of the page cache; by default a quarter of the memory that there is, 4 GiB at the most.
    pub fn memory(mut self, bytes: u64) -> MountOptions {
        self.memory = Some(bytes);
        self
    }

    /// Bytes for metadata and inodes; by default what suits a hundred thousand files in use.
    pub fn metadata_memory(mut self, bytes: u64) -> MountOptions {
        self.metadata_memory = Some(bytes);
        self
    }

    /// What a sync waits for.
    pub fn durability(mut self, durability: Durability) -> MountOptions {
        self.durability = durability;
        self
    }

    /// When reading changes a file's access time.
    pub fn access_times(mut self, access_times: AccessTimes) -> MountOptions {
        self.access_times = access_times;
        self
    }

    /// Write changed times only with something else, at a sync of the file, or at the end.
    pub fn lazy_times(mut self, lazy_times: bool) -> MountOptions {
        self.lazy_times = lazy_times;
        self
    }

    /// Let every change be durable when it returns.
    pub fn sync(mut self, sync: bool) -> MountOptions {
        self.sync = sync;
        self
    }

    /// Give up what of the journal is lost: for an image whose journal is gone or damaged. Where something is given up, the
    /// image is marked as damaged and can be read only, until `narufs fsck --repair` has been through it.
    pub fn discard_journal(mut self, discard: bool) -> MountOptions {
        self.discard_journal = discard;
        self
    }

    /// What the image is, where another's journal may be its own.
    pub fn origin(mut self, origin: Origin) -> MountOptions {
        self.origin = origin;
        self
    }

    pub(crate) fn to_engine(&self) -> narufs_engine::VolumeOptions {
        let mut image = volume::ImageOptions {
            origin: match self.origin {
                Origin::Unknown => volume::Origin::Unknown,
                Origin::Moved => volume::Origin::Moved,
                Origin::Copied => volume::Origin::Copied,
            },
            read_only: self.read_only,
            discard_journal: self.discard_journal,
            ..volume::ImageOptions::default()
        };
        let mut files = AssembleOptions {
            fs: VfsOptions {
                read_only: self.read_only,
                atime: self.access_times.to_engine(),
                lazytime: self.lazy_times,
                sync: self.sync,
            },
            data: self.memory.map_or_else(DataOptions::default, DataOptions::with_memory),
            durability: match self.durability {
                Durability::Power => journal::Durability::Power,
                Durability::Window(window) => journal::Durability::Window(window),
                Durability::Process => journal::Durability::Process,
            },
            ..AssembleOptions::default()
        };
        if let Some(bytes) = self.metadata_memory {
            // Five eighths for pages, the rest for inodes.
            let pages = bytes / 8 * 5;
            image.store = StoreOptions::with_memory(usize::try_from(pages).unwrap_or(usize::MAX / 2));
            files.inodes = AssembleOptions::inodes_within(bytes - pages);
        }
        narufs_engine::VolumeOptions {
            journal: self.journal.clone(),
            image,
            files,
            ..narufs_engine::VolumeOptions::default()
        }
    }
}

impl AccessTimes {
    fn to_engine(self) -> AtimePolicy {
        match self {
            AccessTimes::Relative => AtimePolicy::Relative,
            AccessTimes::Strict => AtimePolicy::Strict,
            AccessTimes::Never => AtimePolicy::Never,
        }
    }
}

/// How a scratch file system is made: in memory, and on disk what memory has no room for.
///
/// ```
/// # use narufs::{Fs, ScratchOptions};
/// let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
/// fs.write("/notes", "gone when it is closed")?;
/// # Ok::<(), narufs::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ScratchOptions {
    memory: u64,
    metadata_memory: Option<u64>,
    spill: Option<SpillOptions>,
    access_times: AccessTimes,
}

impl ScratchOptions {
    /// In so many bytes of memory, files and metadata together.
    pub fn new(memory: u64) -> ScratchOptions {
        ScratchOptions { memory, metadata_memory: None, spill: None, access_times: AccessTimes::default() }
    }

    /// Bytes of the memory that are for metadata, where there is spill space; by default an eighth.
    pub fn metadata_memory(mut self, bytes: u64) -> ScratchOptions {
        self.metadata_memory = Some(bytes);
        self
    }

    /// Where to put what memory has no room for: a block device, a file, or a directory in which a file without a name
    /// is made. Without it a full memory is ENOSPC.
    pub fn spill(mut self, path: impl Into<PathBuf>) -> ScratchOptions {
        self.spill_options().path = path.into();
        self
    }

    /// Bytes of spill space to use; by default all of a device or file, or what is reasonable in a directory.
    pub fn spill_size(mut self, bytes: u64) -> ScratchOptions {
        self.spill_options().size = Some(bytes);
        self
    }

    /// Use the spill space even if it holds data, which are lost.
    pub fn force(mut self, force: bool) -> ScratchOptions {
        self.spill_options().force = force;
        self
    }

    /// When reading changes a file's access time.
    pub fn access_times(mut self, access_times: AccessTimes) -> ScratchOptions {
        self.access_times = access_times;
        self
    }

    fn spill_options(&mut self) -> &mut SpillOptions {
        self.spill.get_or_insert_with(|| SpillOptions { path: PathBuf::new(), size: None, force: false })
    }

    pub(crate) fn to_engine(&self) -> narufs_engine::ScratchOptions {
        let fs = VfsOptions { atime: self.access_times.to_engine(), ..VfsOptions::default() };
        let mut options = narufs_engine::ScratchOptions::with_memory(self.memory);
        options.metadata_memory = self.metadata_memory;
        options.spill = self.spill.clone().filter(|spill| !spill.path.as_os_str().is_empty());
        options.files.fs = fs;
        options
    }
}
