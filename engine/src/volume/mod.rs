//! A volume: an image with its journal, or scratch space, becomes a file system at work, and a clean image again.
//!
//! [`Volume`] is all of it in one. It is made of a [`Mounted`] image, a [`Store`] that can be changed, and of the files
//! and threads [`Running`] on it, which have written what they hold before [`Mounted::unmount`]. A mount decides whether
//! the journal at hand belongs to the image, runs recovery, begins a new epoch, and starts the threads of the store.
//!
//! # Agreement of image and ring
//! UUIDs, size and epoch must match; the ring may be one epoch behind, for the superblock is written first.
//! An unclean image without its ring is refused, in words that say what was found in its place ([`Absence`]).
//! A clean image needs nothing from its ring: it is made anew, with a warning, unless what lies in its place
//! belongs to another image or a newer build, which is left alone, or the image alone names a place where there is
//! something else, or nothing ([`open`]).
//!
//! # Readers
//! A read-only mount of an unclean image recovers into memory (an overlay over the device): it shows
//! everything that recovery would bring back, absorbed data included, and changes neither image nor ring. So
//! does a mount that finds damage, as far as what is whole allows.
//!
//! # A new epoch
//! The recovered pages are durable at home before the superblock says epoch + 1, and that is durable before
//! the ring's new header voids the old records. Where the ring is made anew its header comes first: a crash
//! in between leaves a clean image with a ring that is not its own, which is made anew once more.

mod absence;
mod fresh;
mod image;
mod paths;
mod ring;
mod running;
pub mod scratch;
mod staging;
mod whose;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use absence::Absence;
pub use image::{Volume, VolumeOptions};
pub use paths::{open, open_for_check};
pub use ring::{RingFile, RingMedia};
pub use running::{AssembleOptions, Running};
pub use scratch::ScratchOptions;
pub use staging::{Origin, Staged, staging_of, staging_path};

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::checkpoint::{Background, Checkpointer, RoundId};
use crate::clock::Clock;
use crate::device::BlockDevice;
use crate::format::{SLOTS_PER_BLOCK, STATE_CLEAN, STATE_DAMAGED, STATE_MOUNTED, StagingOwner};
use crate::journal::{self, MountJournal};
use crate::planted::kill::{self, Step};
use crate::planted::{self, Bug};
pub use crate::recovery::Outcome;
use crate::scratch::SpillSpace;
use crate::store::{MOUNTED_SO, Store, StoreOptions};
use crate::sync::{Arc, available_cores};
use crate::takeover::{Phase, Takeover};
use crate::{Error, Result, superblock};
pub(crate) use absence::{foreign, lost};
use absence::{later, not_made};
use fresh::{Begun, Fresh};
pub(crate) use ring::Ring;

/// What a file system lies on.
#[derive(Clone)]
pub struct Media {
    /// The image.
    pub device: Arc<dyn BlockDevice>,
    /// Its journal.
    pub ring: RingMedia,
    /// A file to be removed after a clean unmount: the staging of an SSD ring.
    pub staging_file: Option<PathBuf>,
    /// What a journal beside the image is to say of whose it is, once it is mounted to be written.
    pub owner: Option<StagingOwner>,
}

impl Media {
    /// An image and its journal, with no file to be removed after the unmount.
    pub fn new(device: Arc<dyn BlockDevice>, ring: RingMedia) -> Media {
        Media { device, ring, staging_file: None, owner: None }
    }

    /// The file that the journal is in beside the image, or its staging, there or to be made.
    pub fn journal_file(&self) -> Option<PathBuf> {
        match &self.ring {
            RingMedia::Ssd(memory) | RingMedia::Mapped(memory) => memory.path().map(Path::to_owned),
            RingMedia::Unstaged(file) | RingMedia::Absent(_, Some(file)) => Some(file.path.clone()),
            RingMedia::Absent(_, None) => None,
        }
    }

    /// Makes the file that [`mount`] would make beside the image, in a process that soon may not any more. It is removed
    /// if there comes no mount.
    ///
    /// # Errors
    /// Those that the mount would have.
    pub fn make_ahead(&mut self, options: &ImageOptions) -> Result<()> {
        let sb = superblock::read(self.device.as_ref())?;
        let state = sb.state.get();
        if options.read_only || options.damage.is_some() || state == STATE_DAMAGED {
            return Ok(());
        }
        superblock::check_writable(&sb)?;
        // An unclean image without its ring is refused.
        let is_refused = state == STATE_MOUNTED
            && !options.discard_journal
            && !matches!(self.ring, RingMedia::Unstaged(_));
        if is_refused { Ok(()) } else { self.ring.make_ahead() }
    }
}

/// How to mount.
#[derive(Debug, Clone)]
pub struct ImageOptions {
    /// Memory for metadata.
    pub store: StoreOptions,
    /// How long a record may stay uncommitted.
    pub commit_interval: Duration,
    /// Whether a thread commits and checkpoints by itself. Without it operations run checkpoints where they are
    /// due, and nothing commits but what asks for it: everything follows from the operations alone.
    pub background: bool,
    /// Change nothing on any media; what recovery would bring back is brought back in memory.
    pub read_only: bool,
    /// What was found to be damaged when it was mounted to be written: it is read-only for that.
    pub damage: Option<String>,
    /// Give up what of the journal is lost: for an image whose journal is gone or damaged. What comes before the
    /// damage is recovered. Where something is given up the image is marked as damaged, and the mount read-only:
    /// a repair by fsck makes it whole. A mount that is read-only itself shows the image without its journal.
    pub discard_journal: bool,
    /// What the image is, where shared memory has the staging of another with its UUID.
    pub origin: Origin,
    /// Take the journal for the image's last where the double-write area, which would say otherwise, cannot be read.
    pub trust_journal: bool,
    /// Lanes that keep journal credits of their own.
    pub lanes: usize,
    /// What the lag of the power durability is measured with.
    pub clock: Clock,
    /// What this server shares with its predecessor and its successor.
    pub takeover: Option<Arc<Takeover>>,
    /// The image as it was found before, opened with `O_PATH`: [`open`] takes it, whatever its path leads to now.
    pub place: Option<Arc<OwnedFd>>,
}

impl Default for ImageOptions {
    fn default() -> Self {
        ImageOptions {
            store: StoreOptions::default(),
            commit_interval: Duration::from_secs(5),
            background: true,
            read_only: false,
            damage: None,
            discard_journal: false,
            origin: Origin::Unknown,
            trust_journal: false,
            lanes: available_cores(),
            clock: Clock::default(),
            takeover: None,
            place: None,
        }
    }
}

/// A mounted image. Dropped without [`Mounted::unmount`], it is left as a crash of the process leaves it.
pub struct Mounted {
    checkpointer: Arc<Checkpointer>,
    background: Vec<Background>,
    recovery: Outcome,
    staging_file: Option<PathBuf>,
    new_journal: Option<Absence>,
    /// Not all that the journal had is there: the image is marked as damaged, and nothing is written.
    given_up: bool,
    /// Of the scratch profile. After the store: what is emptied must not be written any more.
    spill_space: Option<SpillSpace>,
}

/// Mounts the file system on some media.
///
/// # Errors
/// [`Error::Refused`], saying what does not fit and what to do; errors of the device. Damage is no error: the
/// mount is read-only then ([`Store::failed`] says why).
pub fn mount(media: Media, options: &ImageOptions) -> Result<Mounted> {
    if let Some(takeover) = &options.takeover {
        #[cfg(feature = "baselines")]
        options.store.baselines.journal.check_successors()?;
        takeover.enter(Phase::Recovering);
    }
    let Media { device, ring, staging_file, owner } = media;
    if let Some(takeover) = options.takeover.clone() {
        device.when_flush_fails(Box::new(move || takeover.note_lost_flush()));
    }
    let mut sb = superblock::read(device.as_ref())?;
    if let Some(takeover) = &options.takeover
        && !takeover.image().is_as_left(&sb)
    {
        // What the server has left would be cut off, or written over, what is newer.
        return Err(Error::Refused(
            "the image was mounted or repaired elsewhere after the server had ended: what that left in memory fits it no \
             more; unmount this mount, and mount the image anew"
                .into(),
        ));
    }
    let to_read = options.read_only || options.damage.is_some();
    if !to_read {
        superblock::check_writable(&sb)?;
    }
    let unclean = sb.state.get() == STATE_MOUNTED;
    let read_only = to_read || sb.state.get() == STATE_DAMAGED;
    let (mut new_journal, mut other_mount, mut is_overtaken) = (None, 0, false);
    let found = match ring.find(&sb, &device) {
        // A copy of the header cannot be read; it is not needed, or given up.
        Err(Error::Device { .. }) if !unclean || options.discard_journal => Ring::None(Absence::Damaged),
        found => found?,
    };
    let header = match found {
        Ring::Ours(header) => Some(header),
        Ring::None(absence) if unclean && !options.discard_journal => {
            return Err(Error::Refused(lost(&absence)));
        }
        Ring::None(absence) if ring.is_later(&sb, &absence) && !options.discard_journal => {
            return Err(Error::Refused(later(&absence)));
        }
        Ring::None(absence) if absence.is_to_be_kept() && !read_only => {
            return Err(Error::Refused(foreign(&absence)));
        }
        Ring::None(absence) if ring.is_beyond_reach() && !read_only => {
            return Err(Error::Refused(not_made(&absence)));
        }
        Ring::None(absence) => {
            (other_mount, is_overtaken) = (absence.epoch(), ring.is_later(&sb, &absence));
            if sb.epoch.get() > 0 && !read_only {
                tracing::warn!("{absence}; a new one is made");
                new_journal = Some(absence);
            }
            None
        }
    };
    // Before anything is recovered: without room for it there is no mount.
    let (ring, made) = if read_only { (ring, None) } else { ring.made()? };
    if let (false, RingMedia::Mapped(memory), Some(owner)) = (read_only, &ring, &owner) {
        staging::give(memory.as_ref(), owner);
    }
    let fresh = Fresh { sb: &sb, options };
    let Begun { checkpointer, outcome, round, mut next, given_up } =
        fresh.begin(&ring, device, header, read_only)?;
    let given_up = given_up || is_overtaken;
    let store = Arc::clone(checkpointer.store());
    next = next.max(sb.next_position.get());
    let found = options.damage.clone().or_else(|| outcome.damage.clone());
    let damage = found.map(|what| format!("{what}; run fsck"));
    let damage = damage.or_else(|| {
        (sb.state.get() == STATE_DAMAGED).then(|| "fsck found damage that it has not mended".to_string())
    });
    let mounted = |checkpointer: Arc<Checkpointer>, sb| Mounted {
        checkpointer: {
            *checkpointer.store().superblock_on_media() = sb;
            checkpointer
        },
        background: Vec::new(),
        recovery: outcome,
        staging_file: staging_file.clone(),
        new_journal,
        given_up,
        spill_space: None,
    };
    if read_only || damage.is_some() {
        if let Some(what) = &damage {
            tracing::error!(reason = %what, "mounted read-only: save what is not elsewhere, unmount, run narufs fsck");
        }
        store.mount_read_only(damage.unwrap_or_else(|| MOUNTED_SO.into()));
        return Ok(mounted(checkpointer, sb));
    }
    let mut first = next.next_multiple_of(SLOTS_PER_BLOCK);
    // Not more than one ahead of the ring, however often a crash came between the superblock and the header; and ahead of what
    // a ring that is given up was written in, whose slots may still lie there, and count if mount and position fit.
    let last = header.map_or(sb.epoch.get().max(other_mount), |header| header.epoch.get());
    if let Some(takeover) = &options.takeover {
        takeover.image().mounts(&sb, last + 1);
    }
    sb.epoch.set(last + 1);
    if planted::is(Bug::StaleTimeline)
        && let Some(header) = &header
    {
        first = header.head.get();
        sb.epoch.set(header.epoch.get());
    }
    // What a checkpoint has half written shows as damage to a check alone: until one was there nobody writes.
    sb.state.set(if given_up { STATE_DAMAGED } else { STATE_MOUNTED });
    sb.next_position.set(first);
    let anew = header.is_none();
    if anew {
        sb.ring_uuid = *uuid::Uuid::new_v4().as_bytes();
    }
    let header_first = anew || planted::is(Bug::HeaderBeforeSuperblock);
    // Before anything is logged both copies say that it is mounted: what the one alone would say of an older mount would have
    // the journal given up.
    if !header_first {
        superblock::write_both(store.device().as_ref(), &mut sb)?;
    }
    let signal = Arc::clone(store.signal());
    #[cfg(feature = "baselines")]
    let start = |media, own| {
        MountJournal::start(options.store.baselines.journal, media, own, Arc::clone(store.device()))
    };
    #[cfg(not(feature = "baselines"))]
    let start = MountJournal::start;
    let journal = start(
        ring.media(&sb, store.device())?,
        journal::Options {
            image_uuid: sb.uuid,
            ring_uuid: sb.ring_uuid,
            slots: sb.ring_slots.get(),
            epoch: sb.epoch.get(),
            round,
            start: first,
            lanes: options.lanes,
            need_checkpoint: Box::new(move || signal.need_round()),
            clock: options.clock.clone(),
        },
    )?;
    let told = if header_first { superblock::write_both(store.device().as_ref(), &mut sb) } else { Ok(()) };
    // Where a copy of the superblock says that it is mounted with this ring it needs that, empty as it is.
    let is_needed =
        || superblock::read(store.device().as_ref()).map_or(true, |now| now.ring_uuid == sb.ring_uuid);
    if let Some(made) = made
        && (told.is_ok() || is_needed())
    {
        made.keep();
    }
    told?;
    if let Some(takeover) = &options.takeover {
        takeover.image().has_mounted();
    }
    checkpointer.begin_after(RoundId { epoch: sb.epoch.get(), number: round });
    store.attach(Arc::new(journal));
    let mut mounted = mounted(checkpointer, sb);
    if given_up {
        let what = "the journal, or a part of it, was given up; run fsck";
        tracing::error!(reason = %what, "mounted read-only: unmount, run narufs fsck --repair");
        mounted.store().mount_read_only(what.into());
    } else if !options.background {
        mounted.checkpointer.run_inline();
    } else {
        let checkpointer = || Arc::clone(&mounted.checkpointer);
        // In this order they end.
        let rounds = Background::checkpoints(checkpointer(), options.commit_interval)?;
        mounted.background = vec![rounds, Background::cleaning(checkpointer())?];
    }
    Ok(mounted)
}

/// Says of each request, and of each truncation, that a predecessor has left whether its record is whole.
fn judge(options: &ImageOptions, mut is_whole: impl FnMut(u64, u64) -> Result<bool>) -> Result<()> {
    let Some(takeover) = &options.takeover else { return Ok(()) };
    kill::step(Step::Judging);
    if !planted::is(Bug::RequestsNotJudged) {
        takeover.requests().judge(&mut is_whole)?;
    }
    takeover.inodes().judge(is_whole)?;
    kill::step(Step::Judged);
    Ok(())
}

impl Mounted {
    /// A store of the scratch profile. `recycling` is the interval of the background thread; without, operations
    /// do its work.
    pub(crate) fn of_scratch(
        checkpointer: Arc<Checkpointer>,
        recycling: Option<Duration>,
    ) -> Result<Mounted> {
        let mut background = Vec::new();
        match recycling {
            Some(interval) => background.push(Background::checkpoints(Arc::clone(&checkpointer), interval)?),
            None => checkpointer.run_inline(),
        }
        Ok(Mounted {
            checkpointer,
            background,
            recovery: Outcome::default(),
            staging_file: None,
            new_journal: None,
            given_up: false,
            spill_space: None,
        })
    }

    /// Empties the space when it goes.
    pub(crate) fn with_spill_space(self, space: SpillSpace) -> Mounted {
        Mounted { spill_space: Some(space), ..self }
    }

    /// What writes the metadata home, to build files and directories on.
    pub fn checkpointer(&self) -> &Arc<Checkpointer> {
        &self.checkpointer
    }

    /// The metadata.
    pub fn store(&self) -> &Arc<Store> {
        self.checkpointer.store()
    }

    /// Why the image has got a new journal, if it had one before.
    pub fn new_journal(&self) -> Option<&Absence> {
        self.new_journal.as_ref()
    }

    /// What recovery did.
    pub fn recovery(&self) -> &Outcome {
        &self.recovery
    }

    /// Writes everything home, empties the journal and marks the image clean; of the scratch profile, leaves
    /// nothing. An image whose journal was given up stays marked as damaged. Nobody uses the store any more.
    ///
    /// # Errors
    /// If that was not possible; the image is then left as it is, for recovery.
    pub fn unmount(mut self) -> Result<()> {
        self.background.clear();
        if let Some(space) = self.spill_space.take() {
            return space.close();
        }
        let store = self.checkpointer.store();
        let Some(journal) = store.journal() else { return Ok(()) };
        if !self.given_up {
            self.checkpointer.drain()?;
            let mut superblock = store.superblock_on_media();
            superblock.next_position.set(journal.tail().next_multiple_of(SLOTS_PER_BLOCK));
            superblock.state.set(STATE_CLEAN);
            superblock::write(store.device().as_ref(), &mut superblock)?;
        }
        match &self.staging_file {
            Some(path) => crate::pmem::unlink(path),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Mounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mounted").field("recovery", &self.recovery).finish_non_exhaustive()
    }
}
