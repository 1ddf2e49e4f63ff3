//! The scratch profile: a file system in memory that overflows to spill space, and that nothing outlives.
//!
//! It is the durable profile's engine without a journal. What differs is said by [`Profile`] and asked for where it
//! matters; this module shares the memory out, lays metadata out on the spill space (or in memory, where there is
//! none) and starts the store. What it leaves to others: everything after that.
//!
//! # Memory
//! With spill space, an eighth of the memory (256 MiB at the most) is for metadata: pages five eighths, inodes
//! the rest. What is left is frames for data, and copies of them on their way to the spill space. Room is promised for
//! the spill space and three quarters of the frames: the last quarter is for reading when everything else holds what
//! has no block.
//!
//! Without spill space the memory, less some for idle inodes, is one pot of blocks, from which frames of data and pages
//! of metadata are taken alike. It has more frames than blocks, for writers take frames before they know whether there
//! is room; memory is taken by those alone that hold something, and a sixty-fourth that have held something: the memory
//! of other free frames, and free parts of the heap before frames take more, go back to the system.

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use crate::scratch::SpillOptions;

use super::{AssembleOptions, Mounted};
#[cfg(feature = "baselines")]
use crate::baseline::Baselines;
use crate::cache::{FRAME_BYTES, most_memory};
use crate::checkpoint::Checkpointer;
use crate::device::{BLOCK_SIZE, BlockDevice, MemoryDevice, Unordered};
use crate::file::DataOptions;
use crate::mkfs::{SPARED_BLOCKS, lay_out};
use crate::scratch::SpillSpace;
use crate::store::{Log, Profile, Store, StoreOptions};
use crate::sync::Arc;
use crate::{Error, Result};
use std::time::Duration;

// The first block says that the space is in use.
const _: () = assert!(SPARED_BLOCKS > 0);

/// Least memory of a scratch file system.
const LEAST_MEMORY: u64 = 256 << 10;
/// Least spill space.
const LEAST_SPILL: u64 = 1 << 20;
/// Most memory that metadata gets unasked.
const METADATA_MEMORY: u64 = 256 << 20;
/// How soon freed inode numbers are given out again.
const RECYCLING: Duration = Duration::from_millis(100);

/// How a scratch file system is made.
#[derive(Debug, Clone)]
pub struct ScratchOptions {
    /// Bytes of memory for files and metadata, with what is kept about them.
    pub memory: u64,
    /// Those of them that are metadata's, where there is spill space.
    pub metadata_memory: Option<u64>,
    /// Where to put what memory has no room for. Without it, a file system that is full of memory is full.
    pub spill: Option<SpillOptions>,
    /// Behaviour of the file system. What it may use follows from the memory.
    pub files: AssembleOptions,
    /// What is done in the old way.
    #[cfg(feature = "baselines")]
    pub baselines: Baselines,
}

impl ScratchOptions {
    /// A file system in so many bytes of memory.
    pub fn with_memory(memory: u64) -> ScratchOptions {
        ScratchOptions {
            memory,
            metadata_memory: None,
            spill: None,
            files: AssembleOptions::default(),
            #[cfg(feature = "baselines")]
            baselines: Baselines::default(),
        }
    }
}

/// What the memory is for.
struct Shares {
    store: StoreOptions,
    frames: u64,
    /// Free frames that keep their memory.
    kept: usize,
    bounce: u64,
    ahead: u64,
    inodes: usize,
}

#[cfg(feature = "baselines")]
impl Shares {
    fn with(mut self, baselines: Baselines) -> Shares {
        self.store.baselines = baselines;
        self
    }
}

impl ScratchOptions {
    fn metadata(&self) -> u64 {
        let most = self.memory / 2;
        self.metadata_memory.unwrap_or_else(|| (self.memory / 8).min(METADATA_MEMORY)).min(most)
    }

    /// Without spill space, bytes of inodes that have no data, or none in memory; those that have are charged.
    fn idle_inodes(&self) -> u64 {
        self.metadata() / 8 * 3
    }

    /// Without spill space, blocks for data and metadata.
    fn pot(&self) -> u64 {
        (self.memory - self.idle_inodes()) / FRAME_BYTES
    }

    fn with_spill(&self) -> Shares {
        let metadata = self.metadata();
        let pages = metadata / 8 * 5;
        let data = self.memory - metadata;
        let bounce = DataOptions::bounce_of(data);
        let ahead = DataOptions::ahead_of(data);
        let frames = ((data - bounce - ahead) / FRAME_BYTES).max(16);
        Shares {
            kept: usize::MAX,
            bounce,
            ahead,
            store: StoreOptions {
                profile: Profile::Spilling { in_memory: frames / 4 * 3 },
                ..StoreOptions::with_memory(usize::try_from(pages).unwrap_or(usize::MAX / 2))
            },
            frames,
            inodes: AssembleOptions::inodes_within(metadata - pages),
        }
    }

    fn without_spill(&self) -> Shares {
        let blocks = self.pot();
        Shares {
            store: StoreOptions {
                budget: usize::MAX,
                dirty_limit: usize::MAX,
                profile: Profile::InMemory,
                ..StoreOptions::default()
            },
            frames: blocks + (blocks / 8).clamp(16, 2048),
            kept: usize::try_from(blocks / 64).unwrap_or(usize::MAX),
            bounce: 0,
            ahead: 0,
            inodes: AssembleOptions::inodes_within(self.idle_inodes()),
        }
    }
}

/// Makes a scratch file system, and says how its files are to be assembled.
///
/// # Errors
/// [`Error::Refused`] in words, if there is too little memory or the spill space cannot be used;
/// [`Error::InUse`] if another process uses it.
pub fn make(options: &ScratchOptions) -> Result<(Mounted, AssembleOptions)> {
    open(options)?.make()
}

/// What a scratch file system is to be made on: its spill space is open, and no thread has been started.
pub struct Opened<'o> {
    options: &'o ScratchOptions,
    space: Option<SpillSpace>,
}

/// The first half of [`make`].
///
/// # Errors
/// Those of [`make`], most of them.
pub fn open(options: &ScratchOptions) -> Result<Opened<'_>> {
    if options.memory < LEAST_MEMORY {
        return Err(Error::Refused(format!(
            "a memory of {} KiB is too small: it takes {} KiB at the least",
            options.memory / 1024,
            LEAST_MEMORY / 1024
        )));
    }
    let most = most_memory();
    if options.memory > most {
        return Err(Error::Refused(format!(
            "a memory of {} MiB: this machine has {} MiB, swap included",
            options.memory >> 20,
            most >> 20
        )));
    }
    let space = options.spill.as_ref().map(|spill| SpillSpace::open(spill, options.memory)).transpose()?;
    Ok(Opened { options, space })
}

impl Opened<'_> {
    /// The second half of [`make`](fn@make), which opens nothing any more.
    ///
    /// # Errors
    /// Those of [`make`](fn@make).
    pub fn make(self) -> Result<(Mounted, AssembleOptions)> {
        let (mounted, files) = make_on(self.options, self.space.as_ref().map(SpillSpace::device))?;
        Ok(match self.space {
            Some(space) => (mounted.with_spill_space(space), files),
            None => (mounted, files),
        })
    }
}

/// As [`make`], on a device that the caller has opened, whose content is lost. [`ScratchOptions::spill`] is not looked
/// at.
///
/// # Errors
/// As [`make`].
pub fn make_on(
    options: &ScratchOptions,
    spill: Option<Arc<dyn BlockDevice>>,
) -> Result<(Mounted, AssembleOptions)> {
    let (device, shares): (Arc<dyn BlockDevice>, Shares) = match spill {
        Some(device) => {
            let bytes = device.blocks().saturating_mul(BLOCK_SIZE as u64);
            if bytes < LEAST_SPILL {
                return Err(Error::Refused(format!(
                    "a spill space of {} KiB is too small: it takes {} KiB at the least",
                    bytes / 1024,
                    LEAST_SPILL / 1024
                )));
            }
            (Arc::new(Unordered(device)), options.with_spill())
        }
        None => {
            let blocks = options.pot();
            (Arc::new(MemoryDevice::new(blocks)), options.without_spill())
        }
    };
    #[cfg(feature = "baselines")]
    let shares = shares.with(options.baselines);
    let superblock = lay_out(device.as_ref())?;
    let store = Store::new(device, superblock, Log::default(), &shares.store);
    let checkpointer = Arc::new(Checkpointer::new(Arc::new(store)));
    let mut files = options.files.clone();
    files.data.frames = usize::try_from(shares.frames).unwrap_or(usize::MAX);
    files.data.kept = shares.kept;
    files.data.bounce = usize::try_from(shares.bounce / BLOCK_SIZE as u64).unwrap_or(usize::MAX);
    files.data.ahead = usize::try_from(shares.ahead / BLOCK_SIZE as u64).unwrap_or(usize::MAX);
    files.inodes = shares.inodes;
    files.data.files = shares.inodes;
    let background = options.files.background.then_some(RECYCLING);
    Ok((Mounted::of_scratch(checkpointer, background)?, files))
}
