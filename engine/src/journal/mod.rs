//! The journal: a ring of slots, filled without a lock, committed in order.
//!
//! This module carries records (bytes) from memory to media that survive. What the bytes mean, when a page
//! goes home and when the head may move belong to the store and its checkpoint; which threads run the
//! periodic commit belongs to the module that assembles the engine.
//!
//! # Places
//! A *position* counts slots, grows for ever and never wraps; slot `position mod N` holds it. "Below X" means
//! positions < X. The *front* of every ring is byte-addressable memory: persistent memory, a file that stands
//! for it (*mapped rings*), or a shared-memory file that stages the ring region of the image (*SSD ring*).
//!
//! Four positions move forward: `head <= committed <= sealed <= tail`.
//!
//! # Protocol: what may be touched in which state
//! 1. *Free.* Slots from the tail up to `head + N` belong to nobody. Credits (`credits`) promise them: the
//!    credits granted never exceed the free slots, so a reservation always finds room.
//! 2. *Reserved.* `k` contiguous slots are taken by one add to the tail. Their bytes, in the front, belong
//!    to the thread that reserved them, alone. Nobody else reads them before the seal. The add is
//!    Acquire-Release: a thread whose credits were granted long ago may be the one whose slots were freed by
//!    the latest move of the head; it learns of that from those that reserved before it.
//! 3. *Armed.* The reservation hands the price of one commit (taken with its credits) to the `armed` flag;
//!    if the flag was up already the price goes back, and a look is enough to know that: the tail orders it behind
//!    the commit of any thread that has taken the flag down before. A thread that takes the flag down must make the
//!    next commit and pays with it. Its commit reserves after taking the flag, so it covers every record that had
//!    raised the flag. Therefore a commit never waits for credits, and each commit covers a record that no earlier
//!    one did.
//! 4. *Persisted.* The bytes are written, written back and fenced by their thread.
//! 5. *Applied.* The change was made in memory.
//! 6. *Sealed.* The seal word of the record's first slot holds the lap and the record's count. From here on
//!    nobody writes the slots before the head has passed them; committers, streamers and scans read them.
//!    A seal word is written by the thread of its record alone, and read by all.
//! 7. *Abandoned.* A reservation dropped before it was persisted is filled with void slots and sealed; if
//!    that was a panic, the journal fails. A panic between persist and seal fails the journal and leaves the
//!    record unsealed: no commit will pass it.
//! 8. *Commit on a mapped ring.* The taker of the flag reserves one slot, waits until every slot below it is
//!    sealed or committed (which includes the commit before: commits are ordered by their slots), persists
//!    its slot, publishes `committed`, seals. Others reserve, and commit behind it, meanwhile.
//! 9. *Commit on an SSD ring.* Callers lead or wait (`group`). A leader takes the flag, reserves up to a
//!    4 KiB boundary, waits as above, persists its slots in the staging, seals them, has the file data flushed that
//!    its records depend on, writes the blocks from the end of the commit before to its own end to the image,
//!    flushes, and publishes `committed` once the commits before are down too. Two may be under way, but only one
//!    takes the flag and reserves at a time, and both ends are block boundaries: a block is written once a lap and
//!    never twice in flight.
//! 10. *Head.* Only [`Journal::advance_head`] moves it, under a mutex: never beyond `committed`, durably, and
//!     only then are the credits of the slots below it given back. Publishing `committed` (Release) and
//!     reading it there (Acquire) orders every read of a slot by committers before its reuse.
//! 11. *Settled.* A record in the front is found by recovery once it is persisted, whatever is below it, and
//!     nothing returns before its seal. So on a mapped ring, and on an SSD ring against the end of the process, an
//!     fsync waits for no other thread ([`Journal::settle_upto`]). Commits follow where they can and every few
//!     seconds: they let the head move, and tell a damaged record from one that was never finished.
//! 12. *Failed.* Once failed, nothing is granted, reserved or committed; all that wait leave with an error.
//!
//! Sleeping is allowed for credits and in commits, never between reservation and seal.
//!
//! # Durability
//! A record in the front survives the process once it is sealed; on a mapped ring it is as durable as the
//! memory is. On an SSD ring power durability comes with the commit. A thread that waits for less than that leaves a
//! promise (`lag`): a record that depends on written file data says so before it is reserved, and any thread that
//! wants to write younger data in place keeps all promises first. So what a loss of power leaves is what it could have
//! left, with everybody waiting for the power durability, at the moment when the first answer was given that is lost.

#[cfg(feature = "baselines")]
pub mod baseline;
mod carry;
mod commit;
mod credits;
mod front;
mod group;
mod handle;
mod header;
mod lag;
mod reserve;
mod ring;
mod scan;
mod size;
mod stats;
mod stop;
mod stream;
mod unreadable;
#[cfg(test)]
mod tests;

pub use crate::format::{MAX_POSITION, Position};
#[cfg(feature = "baselines")]
pub use baseline::{MountCredits, MountJournal, MountRecord};
pub use credits::{CreditClass, Credits, Look};
pub use front::JournalFront;
pub use group::Done;
pub use handle::{Applied, Persisted, Reserved, Sealed};
pub(crate) use header::{any_device_header, header_in, newer_device_version, newer_version};
pub use header::{init_mapped, read_device_header, read_mapped_header, ring_bytes};
pub(crate) use scan::scan_device_of;
pub use scan::{Records, Scan, scan_device, scan_mapped};
pub use size::{MIN_SLOTS, least_slots};
pub use stats::JournalStats;
#[cfg(feature = "sim")]
pub use stop::stop_next_record;

/// The journal of a mount: the engine's own, unless the build lets one choose.
#[cfg(not(feature = "baselines"))]
pub type MountJournal = Journal;
/// Room for one record of it.
#[cfg(not(feature = "baselines"))]
pub type MountCredits<'j> = Credits<'j>;
/// What it takes for one operation: the payload of the record.
#[cfg(not(feature = "baselines"))]
pub type MountRecord<'r> = &'r [u8];

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::clock::Clock;
use crate::device::BlockDevice;
use crate::format::{RING_HEADER_SPACE, SLOT_PAYLOAD, SLOT_SIZE};
use crate::pmem::{DurabilityLevel, PersistentMemory};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, CachePadded, Mutex, OnceLock, WaitQueue};
use crate::{Error, Result};
use credits::Pool;
use header::HeaderWriter;
use lag::Lag;
use reserve::Sequence;
use ring::{BLOCK_SLOTS, Geometry};
use stats::Counters;
use stream::Stream;

/// What a caller of [`Journal::commit_upto`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The records survive the end of the process.
    Process,
    /// The records survive the end of the process, and a loss of power soon: a thread that is told so while the oldest
    /// that was told so waits for that as long as this, waits as for [`Durability::Power`]. On an SSD ring alone.
    Window(Duration),
    /// The records survive the machine's loss of power (as far as the media do).
    Power,
}

impl Durability {
    /// The least and the longest window.
    pub const WINDOWS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);
}

/// Where the ring lies.
pub enum Media {
    /// In byte-addressable memory: persistent, or a file that stands for it.
    Mapped(Arc<dyn PersistentMemory>),
    /// In a region of the image, staged in memory that survives the process.
    Ssd {
        /// Where slots are written first; laid out as a mapped ring.
        staging: Arc<dyn PersistentMemory>,
        /// The image.
        device: Arc<dyn BlockDevice>,
        /// First block of the region: two header blocks, then the slots.
        start: u64,
    },
}

/// What a journal begins with.
pub struct Options {
    /// Identity of the image; slots of another image do not verify.
    pub image_uuid: [u8; 16],
    /// Identity of the ring.
    pub ring_uuid: [u8; 16],
    /// Slots of the ring: a multiple of 16, [`MIN_SLOTS`] at the least.
    pub slots: u64,
    /// The mount epoch; above that of any slot in the ring.
    pub epoch: u64,
    /// Checkpoint round that the header carries.
    pub round: u64,
    /// First position, a multiple of 16, beyond every slot that was ever reserved.
    pub start: Position,
    /// Lanes that keep credits of their own.
    pub lanes: usize,
    /// Called, perhaps often, when the ring is nearly full: must make a checkpoint start soon, and neither
    /// block nor panic. A round that is to make room begins with a commit up to the tail.
    pub need_checkpoint: Box<dyn Fn() + Send + Sync>,
    /// What the lag of the power durability is measured with.
    pub clock: Clock,
}

/// The journal of a mounted image.
pub struct Journal {
    epoch: u64,
    ring: Geometry,
    front: Arc<dyn PersistentMemory>,
    /// Where the front's slots go on an SSD ring.
    stream: Option<Stream>,
    sequence: Sequence,
    /// Everything below is durable against a loss of power: the end of the last commit.
    committed: CachePadded<AtomicU64>,
    /// Slot of the last commit that was reserved: positions below it need no other. A hint.
    reserved_commit: CachePadded<AtomicU64>,
    /// Holds the price of one commit while a record is not covered by a reserved one.
    armed: CachePadded<AtomicBool>,
    /// Woken by seals and commits.
    seals: WaitQueue,
    /// Woken by commits.
    commits: WaitQueue,
    pool: Pool,
    head: AtomicU64,
    header: Mutex<HeaderWriter>,
    failed: AtomicBool,
    why: OnceLock<String>,
    need_checkpoint: Box<dyn Fn() + Send + Sync>,
    lag: Lag,
    counters: Counters,
}

impl Journal {
    /// Begins a journal on its media with an empty ring: writes the header durably. Everything that the ring
    /// held before is void from here on, so recovery comes first.
    pub fn start(media: Media, options: Options) -> Result<Journal> {
        let (slots, start) = (options.slots, options.start);
        let (front, stream, pad) = match media {
            Media::Mapped(front) => (front, None, 1),
            Media::Ssd { staging, device, start: block } => {
                (staging, Some(Stream::new(device, block, start)), BLOCK_SLOTS)
            }
        };
        if slots < MIN_SLOTS.max(4 * pad)
            || slots % BLOCK_SLOTS != 0
            || start % BLOCK_SLOTS != 0
            || start > MAX_POSITION
        {
            return Err(Error::Refused(format!("a ring of {slots} slots from {start} on is not possible")));
        }
        let header = HeaderWriter::begin(front.as_ref(), stream.as_ref(), &options)?;
        let Options { image_uuid, epoch, lanes, need_checkpoint, clock, .. } = options;
        let ring = Geometry::new(slots, &image_uuid, epoch, pad);
        Ok(Journal {
            epoch,
            sequence: Sequence::new(&ring, start),
            committed: CachePadded::new(AtomicU64::new(start)),
            reserved_commit: CachePadded::new(AtomicU64::new(start)),
            armed: CachePadded::new(AtomicBool::new(false)),
            seals: WaitQueue::new(),
            commits: WaitQueue::new(),
            pool: Pool::new(slots, pad, lanes),
            head: AtomicU64::new(start),
            header: Mutex::new(header),
            failed: AtomicBool::new(false),
            why: OnceLock::new(),
            need_checkpoint,
            lag: Lag::new(clock),
            counters: Counters::default(),
            ring,
            front,
            stream,
        })
    }

    /// Number of slots that a payload of `bytes` takes.
    pub fn slots_for(bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(SLOT_PAYLOAD).max(1)).unwrap_or(u32::MAX)
    }

    /// The most slots of one record; more credits are never granted.
    pub fn max_record_slots(&self) -> u32 {
        self.pool.max_record()
    }

    /// Slots of the ring.
    pub fn slots(&self) -> u64 {
        self.ring.slots
    }

    /// The next position to be reserved. Every operation that returned before this call lies below it.
    pub fn tail(&self) -> Position {
        self.sequence.tail()
    }

    /// The mount epoch of its records.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The first position that recovery needs.
    pub fn head(&self) -> Position {
        // Relaxed: only a number; what it allows is passed on through credits.
        self.head.load(Ordering::Relaxed)
    }

    /// Everything below is durable at this level.
    pub fn committed(&self, durability: DurabilityLevel) -> Position {
        match (&self.stream, durability) {
            (Some(_), DurabilityLevel::Process) => self.sequence.walk(self.durable(), self.tail()),
            _ => self.durable(),
        }
    }

    /// The end of the last durable commit.
    fn durable(&self) -> Position {
        // Acquire: pairs with the Release in `publish`.
        self.committed.load(Ordering::Acquire)
    }

    /// Moves the head to `to`, which [`committed`](Self::committed) has returned for the power durability, and
    /// gives the slots below it back. `round` is the checkpoint round. Durable on return.
    pub fn advance_head(&self, to: Position, round: u64) -> Result<()> {
        self.check()?;
        let mut header = self.header.lock();
        let old = self.head();
        if to < old || to > self.durable() {
            return Err(Error::Refused(format!("the head cannot move from {old} to {to}: not committed")));
        }
        header.advance(to, round);
        if let Err(e) = header.write(self.front.as_ref(), self.stream.as_ref()) {
            self.fail(format!("the journal's header could not be written: {e}"));
            return Err(e);
        }
        // Relaxed: as in `head`.
        self.head.store(to, Ordering::Relaxed);
        self.pool.head_moved(to - old, self.tail().saturating_sub(to));
        Ok(())
    }

    /// Makes the journal fail: nothing is logged or committed any more. The first reason stays.
    pub fn fail(&self, why: String) {
        if self.stop(why.clone()) {
            tracing::error!(reason = %why, "the journal failed: look for errors of its device, then mount anew");
        }
    }

    /// The same for a reason that the caller tells of; whether it is the first.
    pub(crate) fn stop(&self, why: String) -> bool {
        let is_first = self.why.set(why).is_ok();
        // Release: pairs with the Acquire in `check`, whose caller reads the reason.
        self.failed.store(true, Ordering::Release);
        self.seals.wake_all();
        self.commits.wake_all();
        if let Some(stream) = &self.stream {
            stream.group.wake_all();
        }
        self.pool.wake();
        self.lag.end();
        is_first
    }

    /// Why the journal failed, if it did.
    pub fn failed(&self) -> Option<String> {
        self.check().err().map(|_| self.why.get().cloned().unwrap_or_default())
    }

    /// Numbers since the start.
    pub fn stats(&self) -> JournalStats {
        self.counters.read(self)
    }

    /// For the background thread, now and then and when the ring fills: commits what is not committed.
    /// Says whether there was something.
    pub fn stream_step(&self) -> Result<bool> {
        self.check()?;
        let tail = self.tail();
        if self.durable() >= tail {
            return Ok(false);
        }
        self.commit_upto(tail, Durability::Power)?;
        Ok(true)
    }

    fn is_failed(&self) -> bool {
        // Acquire: pairs with the Release in `stop`.
        self.failed.load(Ordering::Acquire)
    }

    fn check(&self) -> Result<()> {
        if self.is_failed() {
            return Err(Error::ReadOnly(self.why.get().cloned().unwrap_or_default()));
        }
        Ok(())
    }

    /// Where the slot of a position lies in the front.
    fn offset(&self, position: Position) -> usize {
        RING_HEADER_SPACE + self.ring.index(position) * SLOT_SIZE
    }
}
