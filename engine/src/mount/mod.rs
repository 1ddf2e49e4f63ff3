//! The assembly: an image and its journal become a [`Store`] that can be changed, and a clean image again.
//!
//! It decides whether the journal at hand belongs to the image, runs recovery, begins a new epoch, and starts
//! the background thread. Files and directories are built on the store by others; before
//! [`Mounted::unmount`] they have written what they hold.
//!
//! # Agreement of image and ring
//! UUIDs, size and epoch must match; the ring may be one epoch behind, for the superblock is written first.
//! A clean image needs nothing from its ring: a missing or foreign one is made anew, with a warning. An
//! unclean image without its ring is refused.
//!
//! # A new epoch
//! The recovered pages are durable at home before the superblock says epoch + 1, and that is durable before
//! the ring's new header voids the old records. Where the ring is made anew its header comes first: a crash
//! in between leaves a clean image with a ring that is not its own, which is made anew once more.

mod paths;
mod ring;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use paths::{open, staging_path};
pub use ring::RingMedia;

use std::path::PathBuf;
use std::time::Duration;

use crate::checkpoint::{Background, RoundId};
use crate::device::BlockDevice;
use crate::format::{Position, SLOTS_PER_BLOCK, STATE_CLEAN, STATE_DAMAGED, STATE_MOUNTED, Superblock};
use crate::journal::{self, Journal};
use crate::recovery::{self, Outcome};
use crate::store::{Log, Store, StoreOptions};
use crate::sync::Arc;
use crate::{Error, Result, superblock};
pub(crate) use ring::{Ring, lost};

/// What a file system lies on.
#[derive(Clone)]
pub struct Media {
    /// The image.
    pub device: Arc<dyn BlockDevice>,
    /// Its journal.
    pub ring: RingMedia,
    /// A file to be removed after a clean unmount: the staging of an SSD ring.
    pub staging_file: Option<PathBuf>,
}

/// How to mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Memory for metadata.
    pub store: StoreOptions,
    /// How long a record may stay uncommitted.
    pub commit_interval: Duration,
    /// Whether a thread commits and checkpoints by itself. Without it operations run checkpoints where they are
    /// due, and nothing commits but what asks for it: everything follows from the operations alone.
    pub background: bool,
    /// Change nothing, the journal's recovery included.
    pub read_only: bool,
    /// Give up what only the journal holds: for an image whose journal is lost.
    pub discard_journal: bool,
    /// Lanes that keep journal credits of their own.
    pub lanes: usize,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            store: StoreOptions::default(),
            commit_interval: Duration::from_secs(5),
            background: true,
            read_only: false,
            discard_journal: false,
            lanes: std::thread::available_parallelism().map_or(1, |n| n.get()),
        }
    }
}

/// A mounted image. Dropped without [`Mounted::unmount`], it is left as a crash of the process leaves it.
pub struct Mounted {
    store: Arc<Store>,
    background: Option<Background>,
    superblock: Superblock,
    recovery: Outcome,
    staging_file: Option<PathBuf>,
}

/// Mounts the file system on some media.
///
/// # Errors
/// [`Error::Refused`], saying what does not fit and what to do; errors of the device. Damage is no error: the
/// mount is read-only then ([`Store::failed`] says why).
pub fn mount(media: Media, options: &MountOptions) -> Result<Mounted> {
    let Media { device, ring, staging_file } = media;
    let mut sb = superblock::read(device.as_ref())?;
    let found = ring.find(&sb, &device)?;
    let store = Arc::new(Store::new(device, sb, Log::durable(), &options.store));
    let mounted = |store: Arc<Store>, sb, recovery| Mounted {
        store,
        background: None,
        superblock: sb,
        recovery,
        staging_file: staging_file.clone(),
    };
    let clean = sb.state.get() == STATE_CLEAN;
    let header = match &found {
        Ring::Ours(header) => Some(*header),
        Ring::None(why) if clean || options.discard_journal => {
            if sb.epoch.get() > 0 {
                tracing::warn!("the journal is made anew: {why}");
            }
            None
        }
        Ring::None(why) => return Err(Error::Refused(ring::lost(why))),
    };
    let read_only = options.read_only || sb.state.get() == STATE_DAMAGED;
    let mut outcome = Outcome::default();
    let mut next: Position = sb.next_position.get();
    let mut round = 0;
    match header {
        Some(header) if !clean && !options.discard_journal => {
            round = header.round.get() + 1;
            let scan = ring.scan(&sb, store.device(), &header)?;
            let id = RoundId { epoch: header.epoch.get(), number: round };
            next = next.max(scan.next_position);
            if !read_only {
                ring.carry(&sb, store.device(), &scan)?;
            }
            outcome = recovery::recover(&store, &scan, id, !read_only)?;
        }
        header => {
            round = round.max(header.map_or(0, |h| h.round.get())).max(recovery::last_round(&store)?);
            if let Some(header) = header {
                next = next.max(header.head.get() + header.slots.get());
            }
            if !clean && !read_only {
                outcome.restored = recovery::restore_last(&store)?;
            }
        }
    }
    let damage = outcome.damage.clone().map(|what| format!("{what}; run fsck"));
    let damage = damage.or_else(|| {
        (sb.state.get() == STATE_DAMAGED).then(|| "fsck found damage that it has not mended".to_string())
    });
    if read_only || damage.is_some() {
        if let Some(what) = &damage {
            tracing::error!("mounted read-only: {what}");
        }
        store.mount_read_only(damage.unwrap_or_else(|| "it was mounted so".into()));
        return Ok(mounted(store, sb, outcome));
    }
    let first = next.next_multiple_of(SLOTS_PER_BLOCK);
    // Not more than one ahead of the ring, however often a crash came between the superblock and the header.
    sb.epoch.set(header.map_or(sb.epoch.get(), |header| header.epoch.get()) + 1);
    sb.state.set(STATE_MOUNTED);
    sb.next_position.set(first);
    let anew = header.is_none();
    if anew {
        sb.ring_uuid = *uuid::Uuid::new_v4().as_bytes();
    } else {
        superblock::write(store.device().as_ref(), &mut sb)?;
    }
    let signal = Arc::clone(store.signal());
    let journal = Journal::start(
        ring.media(&sb, store.device()),
        journal::Options {
            image_uuid: sb.uuid,
            ring_uuid: sb.ring_uuid,
            slots: sb.ring_slots.get(),
            epoch: sb.epoch.get(),
            round,
            start: first,
            lanes: options.lanes,
            need_checkpoint: Box::new(move || signal.need_round()),
        },
    )?;
    if anew {
        superblock::write(store.device().as_ref(), &mut sb)?;
    }
    store.rounds.begin_after(RoundId { epoch: sb.epoch.get(), number: round });
    store.attach(Arc::new(journal));
    let mut mounted = mounted(store, sb, outcome);
    if !options.background {
        mounted.store.rounds.set_inline();
    } else {
        mounted.background = Some(Background::start(Arc::clone(&mounted.store), options.commit_interval)?);
    }
    Ok(mounted)
}

impl Mounted {
    /// The metadata, to build files and directories on.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// What recovery did.
    pub fn recovery(&self) -> &Outcome {
        &self.recovery
    }

    /// Writes everything home, empties the journal and marks the image clean. Nobody uses the store any more.
    ///
    /// # Errors
    /// If that was not possible; the image is then left as it is, for recovery.
    pub fn unmount(mut self) -> Result<()> {
        self.background = None;
        let Some(journal) = self.store.journal() else { return Ok(()) };
        self.store.drain()?;
        self.superblock.next_position.set(journal.tail().next_multiple_of(SLOTS_PER_BLOCK));
        self.superblock.state.set(STATE_CLEAN);
        superblock::write(self.store.device().as_ref(), &mut self.superblock)?;
        match &self.staging_file {
            Some(path) => crate::pmem::unlink(path),
            None => Ok(()),
        }
    }
}
