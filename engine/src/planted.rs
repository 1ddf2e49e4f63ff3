//! Planted bugs: each takes one flush, fence or order rule away, so that tests can show that they would
//! notice. Compiled only with the feature `planted-bugs`; without it [`is`] is a constant `false`.

/// An enum that lists its variants.
macro_rules! listed {
    ($(#[$is:meta])* $kind:ident: $($(#[$says:meta])* $name:ident,)*) => {
        $(#[$is])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $kind {
            $($(#[$says])* $name,)*
        }

        impl $kind {
            /// Every one, in order.
            pub const ALL: &[$kind] = &[$($kind::$name,)*];
        }
    };
}

pub mod kill;

listed! {
    /// A rule that can be broken on purpose.
    Bug:

    /// Checkpoint: home writes begin before the double-write area is flushed.
    NoDoubleWriteFlush,
    /// Checkpoint: images go home before the records they hold are durable.
    HomeBeforeLog,
    /// Checkpoint: the head moves, or the double-write area is written again, before the home writes are
    /// flushed.
    HeadMovedBeforeFlush,
    /// Checkpoint: the double-write area takes the next batch before the home writes of the last are flushed.
    AreaReusedEarly,
    /// Checkpoint: the threads of a round share one part of the double-write area.
    PartShared,
    /// Checkpoint: the head passes changes of a freed page before the record that freed it is durable.
    ForgottenBeforeLog,
    /// Checkpoint: the head passes absorbed data that is not home.
    HeadPassesAbsorbed,
    /// Checkpoint: the head passes the old content of an emptied file, which data records alone hold.
    HeadPassesKept,
    /// Checkpoint: the head passes young records, where data was brought home for the old ones alone.
    HeadPassesYoung,
    /// Journal: the slots of a record are not written back.
    NoWriteBack,
    /// Journal: a record is sealed without a fence after its write-back.
    NoFence,
    /// Journal: a commit does not wait for the seals below it.
    CommitBeforeSeal,
    /// Journal: a commit returns before its flush.
    NoCommitFlush,
    /// Journal: a commit is submitted before the data that its records need are flushed.
    CommitBeforeData,
    /// Journal: an fsync is answered however long the power durability lags.
    WindowIgnored,
    /// Journal: the header with the head's new place is not flushed before the slots are used again.
    HeadNotFlushed,
    /// Recovery: a slot counts though its checksum does not hold.
    TornSlotAccepted,
    /// Recovery: a slot of an earlier lap counts as one of this lap.
    StaleSlotAccepted,
    /// Recovery: a journal of an earlier mount counts.
    StaleEpochAccepted,
    /// Recovery: an unfinished round is not restored from the double-write area.
    NoRestore,
    /// A record that makes an inode is noted for its request only when the locks are given back.
    MadeAfterUnlock,
    /// Opening: staging is used whatever image it is of.
    StagingOfAnyOwner,
    /// Recovery: what only the staging holds is not carried to the ring before it goes home.
    NoCarry,
    /// Recovery: the new epoch begins before the recovered pages are home.
    EpochBeforeHome,
    /// Recovery: the ring's header names the new epoch before the superblock does.
    HeaderBeforeSuperblock,
    /// Recovery: the new mount takes the positions and the epoch of the one before.
    StaleTimeline,
    /// Recovery: what was begun in one record and needs more is not finished.
    IntentsForgotten,
    /// Write-back: the record that maps data comes before the flush of the data.
    MappedBeforeFlush,
    /// Write-back: newer data goes home and the absorbed older data is not superseded.
    NoSupersede,
    /// fsync: absorbed data is superseded before the newer data at home is flushed.
    SupersedeBeforeFlush,
    /// fsync: a page that went home after it was absorbed is absorbed again without a supersede, and in part.
    AbsorbedOverStale,
    /// Takeover: what a predecessor has left in frames is not brought back.
    DirtyFrameForgotten,
    /// Takeover: sizes that no record holds are not kept for a successor.
    SizeNotKept,
    /// Write-back: a size is recorded while redo would put absorbed zeros beyond the old one.
    EndNotSuperseded,
    /// Takeover: redo puts what was synced in the place of what was written home since.
    NewerHomeRedone,
    /// Takeover: nobody says which requests of a predecessor were done.
    RequestsNotJudged,
    /// Takeover: inodes without names are freed though the kernel may hold them.
    KernelNotAsked,
    /// Takeover: a write is noted as done when others may have its range.
    NotedAfterUnlock,
    /// Takeover: what was done is done again when it is sent again.
    DoneAgain,
    /// Takeover: a request that is sent again is answered under the number that it had first.
    ResentBitDropped,
    /// Takeover: descriptors of lanes are read from before they are kept.
    CloneNotKept,
    /// Lookup counts: what the kernel forgets is taken off twice.
    ForgottenTwice,
    /// Recovery: of data absorbed twice the older counts.
    OlderAbsorbedCounts,
    /// Checkpoint: a round waits for no more than fsync does.
    RoundInWindow,
    /// Write-back: data goes home in place before what was promised earlier is durable.
    HomeBeforePromised,
    /// fsync: data that was written home is not flushed.
    NoDataFlush,
    /// fsync: records are not committed.
    NoCommit,
    /// O_DSYNC and O_SYNC do nothing.
    DsyncIgnored,
    /// Emptying a file is recorded before its new content is down.
    EmptiedAtOnce,
    /// Rewriting: the old content goes in one record, the new comes in another.
    RewrittenInTwo,
    /// A rename over an existing name does not wait for the source's data.
    RenameNotSettled,
    /// Dropping the last name makes no orphan entry.
    NoOrphanEntry,
    /// Freed blocks are given out at once.
    ReusedEarly,
    /// A freed node id is given out before the record that freed it is durable.
    IdReusedEarly,
    /// Unlink: walks of paths still know the name.
    NameKept,
    /// Batch: a page goes home before the batch is committed.
    BatchPageHomeEarly,
    /// Batch: a page goes home before the record that holds it is durable.
    BatchHomeBeforeRecord,
    /// Batch: of a page with unsynced bytes the record holds no more than what changes.
    ChangedOverUnsynced,
    /// The same of a page whose place was written, and not flushed.
    ChangedOverUnflushed,
}

#[cfg(feature = "planted-bugs")]
mod chosen {
    use super::{Bug, kill};
    use std::cell::Cell;
    use std::sync::OnceLock;

    thread_local! {
        // Of the thread, so that tests run side by side. Not a modelled atomic: it carries no protocol.
        static CHOSEN: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Breaks a rule (or none) for what this thread does from now on.
    pub fn plant(bug: Option<Bug>) {
        CHOSEN.set(bug);
    }

    /// What is planted in this thread, for those that it starts.
    pub fn chosen() -> Option<Bug> {
        CHOSEN.get()
    }

    /// What the test has planted that this process is a server of.
    fn given() -> Option<Bug> {
        static GIVEN: OnceLock<Option<Bug>> = OnceLock::new();
        *GIVEN.get_or_init(|| kill::given()?.bug())
    }

    /// Whether this rule is broken.
    pub fn is(bug: Bug) -> bool {
        CHOSEN.get() == Some(bug) || given() == Some(bug)
    }
}

#[cfg(feature = "planted-bugs")]
pub use chosen::{chosen, is, plant};

/// Whether this rule is broken: never, in this build.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub fn is(_bug: Bug) -> bool {
    false
}

/// What is planted in this thread: nothing, in this build.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub fn chosen() -> Option<Bug> {
    None
}

/// Breaks a rule: none, in this build.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub fn plant(_bug: Option<Bug>) {}

/// A place where a thread can be made to panic, with something in its hands that others would miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Spot {
    /// Write-back: pages were selected, and have no places yet.
    Selected = 1,
    /// Write-back: the device has requests.
    Submitted,
    /// Write-back: what was written is not recorded.
    Written,
    /// Write-back: what was recorded is still under write-back.
    Recorded,
    /// A write: pages are dirty and in no set yet.
    Joining,
    /// fsync: bytes were taken to be absorbed.
    Taken,
    /// fsync: absorbed bytes were logged.
    Absorbed,
    /// The background of the data path has taken what it is to write.
    Background,
    /// A read: the device has requests, others wait for their pages.
    Fetching,
    /// Checkpoint: a round was asked for.
    RoundDue,
    /// Checkpoint: pages are claimed.
    Claimed,
    /// Journal: a commit is begun, others wait for it.
    Leading,
    /// An operation: its record is logged, and not carried over to the objects in memory.
    Committed,
}

impl Spot {
    /// Every one.
    pub const ALL: [Spot; 13] = [
        Spot::Selected,
        Spot::Submitted,
        Spot::Written,
        Spot::Recorded,
        Spot::Joining,
        Spot::Taken,
        Spot::Absorbed,
        Spot::Background,
        Spot::Fetching,
        Spot::RoundDue,
        Spot::Claimed,
        Spot::Leading,
        Spot::Committed,
    ];
}

#[cfg(feature = "planted-bugs")]
mod spots {
    use super::Spot;
    use std::sync::atomic::{AtomicU8, Ordering};

    // Of the process, for the threads of a mount meet them too: its tests do not run side by side. Not a modelled
    // atomic: it carries no protocol.
    static NEXT: AtomicU8 = AtomicU8::new(0);

    /// Has the next thread that comes to the place panic there.
    pub fn plant_panic(spot: Spot) {
        NEXT.store(spot as u8, Ordering::SeqCst);
    }

    /// Takes back what nobody has met; whether there was anything.
    pub fn take_panic() -> bool {
        NEXT.swap(0, Ordering::SeqCst) != 0
    }

    /// Panics once if that was planted here.
    pub fn panic_at(spot: Spot) {
        if NEXT.load(Ordering::Relaxed) == spot as u8
            && NEXT.compare_exchange(spot as u8, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            panic!("planted: {spot:?}");
        }
    }
}

#[cfg(feature = "planted-bugs")]
pub use spots::{panic_at, plant_panic, take_panic};

/// Panics if that was planted here: never, in this build.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub(crate) fn panic_at(_spot: Spot) {}
