//! What the data path needs of the metadata beneath it, and of the inode it works for.
//!
//! The data path decides *when* something becomes durable and in which order; how an extent, a size or a time
//! is recorded is the business of the implementation. [`Change`] is one record of the journal: all or nothing.
//!
//! Lock order, for every caller: range, credits, write-back mutex of the file, and below them whatever the
//! implementation takes (the inode lock, page latches, the allocator).

use crate::Result;
use crate::device::BlockDevice;
use crate::format::Position;
use crate::store::Profile;
use std::ops::Range;

use crate::file::{Change, DataInode, Logged, Need};
use crate::meta::{Blocks, Mapping};

/// The metadata beneath the data path.
pub trait Home: Send + Sync + 'static {
    /// The inodes it works on.
    type Inode: DataInode;
    /// Room in the journal for one record.
    type Credits<'a>
    where
        Self: 'a;

    /// Where the data lie.
    fn device(&self) -> &dyn BlockDevice;

    /// What outlives the mount.
    fn profile(&self) -> Profile;

    /// What lies at `page`. Takes the inode lock shared.
    fn map(&self, inode: &Self::Inode, page: u64) -> Result<Mapping>;

    /// Sets blocks aside for data that will be written later; ENOSPC is answered here. May sleep, and may
    /// start a checkpoint: never called under a write-back mutex.
    fn reserve(&self, blocks: u64) -> Result<()>;

    /// The same for blocks that are to be mapped at once: as many as one record takes, and the rest is given back. All
    /// that statfs shows can be had so.
    fn reserve_for_record(&self, blocks: u64) -> Result<()>;

    /// Makes room for what [`Home::reserve_for_record`] will ask for, as far as can be. May sleep as that.
    fn make_room_for(&self, blocks: u64) -> Result<()>;

    /// Gives back what was set aside.
    fn unreserve(&self, blocks: u64);

    /// Takes 1 to `want` blocks out of what was set aside (beyond it, if there are more), volatile until
    /// [`Home::log`] inserts them. Never sleeps for space: callers hold a write-back mutex, which a checkpoint
    /// may be waiting for. Up to `ahead` blocks behind them are kept for the file to grow into, as long as others are
    /// free. ENOSPC where more was set aside than there is ([`Profile::Spilling`]).
    fn allocate(&self, want: u32, ahead: u32, goal: Option<u64>) -> Result<Blocks>;

    /// Puts volatile blocks back, and aside again; nothing is in flight to them.
    fn release(&self, blocks: Blocks);

    /// As [`Home::allocate`], out of what is set aside for nobody: for data that has blocks which cannot be written.
    /// ENOSPC if there is nothing of the kind.
    fn allocate_spare(&self, want: u32) -> Result<Blocks>;

    /// Puts volatile blocks back for anybody.
    fn release_spare(&self, blocks: Blocks);

    /// How many of `need.runs` fit one record beside the rest of `need`; 0 if not even that fits.
    fn fitting(&self, inode: &Self::Inode, need: Need) -> usize;

    /// Takes room for one [`Change`]. May sleep: called with at most a range in hand.
    fn credits(&self, inode: &Self::Inode, need: Need) -> Result<Self::Credits<'_>>;

    /// As [`Home::credits`], for who has credits for another file already: never waits, `None` if there is no room.
    fn try_credits(&self, inode: &Self::Inode, need: Need) -> Result<Option<Self::Credits<'_>>>;

    /// As [`Home::try_credits`], for bytes that may as well be written home: `None` also where there is so little room
    /// that it is to be left to others.
    fn ample_credits(&self, inode: &Self::Inode, need: Need) -> Result<Option<Self::Credits<'_>>>;

    /// Records a change that is within its credits. Takes the inode lock exclusively. Volatile blocks named in
    /// `insert` belong to the file once it succeeds, and still to the caller if it fails.
    fn log(&self, credits: Self::Credits<'_>, inode: &Self::Inode, change: Change) -> Result<Logged>;

    /// Frees the blocks of pages that a record has left, in records of its own: it may sleep for credits. The
    /// caller has their range. If it fails, it has called `InodeObj::poison`: the intent stays, and the next
    /// mount acts on it, so nobody may use the file until then. The same goes for the moves below, once they
    /// have begun.
    fn finish_removal(&self, inode: &Self::Inode, pages: Range<u64>) -> Result<()>;

    /// Moves the pages from `range.end` on down to `range.start`, after freeing `range`, and sets the size,
    /// in as many records as it takes (recovery finishes what was begun).
    fn collapse(&self, inode: &Self::Inode, range: Range<u64>, size: u64) -> Result<()>;

    /// Moves the pages from `at` on up by `by`, and sets the size.
    fn insert_hole(&self, inode: &Self::Inode, at: u64, by: u64, size: u64) -> Result<()>;

    /// The next position to be reserved: an operation that returned lies below.
    fn tail(&self) -> Position;

    /// Returns once everything below `upto` is committed at the horizon that the mount asks for.
    fn commit_upto(&self, upto: Position) -> Result<()>;

    /// Returns once every operation that has returned, of those below `upto`, is durable at that horizon: what
    /// fsync waits for, and no more.
    fn settle_upto(&self, upto: Position) -> Result<()>;

    /// Returns once everything below `upto` is committed against a loss of power, whatever the mount asks for.
    fn commit_power(&self, upto: Position) -> Result<()>;

    /// Whether an fsync may be answered before the power durability has come: then the commit that makes its records
    /// durable sees to the flush of what they depend on, see [`Home::order_after`].
    fn may_lag(&self) -> bool;

    /// What is logged from now on counts only with so many completed writes of the device flushed: they are, on
    /// return, or will be before it can count.
    fn order_after(&self, writes: u64) -> Result<()>;

    /// Returns once everything is durable against a loss of power that an fsync was answered for: data that goes home in
    /// place may be younger, and must not be there without it. The caller has write-back mutexes: it may make a commit
    /// for this and answer whom that covers, but goes on to serve nobody.
    fn keep_promises(&self) -> Result<()>;

    /// Records below this are no longer needed by recovery.
    fn head(&self) -> Position;

    /// Whether there is a journal that takes small data: its commit carries them with one write and one flush,
    /// for all who wait, where a write home has a flush of its own before the record that depends on it.
    fn absorbs(&self) -> bool;
}
