//! Space: which blocks are free, which operation may have them, and when a freed one may be given out again.
//!
//! Bitmap pages change by records alone. In memory each group has taken-bits besides: set from the moment an
//! operation picks a block until, after it was freed, the block leaves quarantine. An operation that aborts
//! gives its blocks back; nothing is ever searched for on media.
//!
//! Promises and blocks are kept apart: a *budget* counts how many blocks may still be promised (delayed
//! allocation promises them at the write, long before they are picked), the groups say which there are.
//! Promises never exceed blocks, so a thread that has a promise finds a block.
//!
//! What this leaves to others: when records become durable and the head moves ([`Alloc::durable`],
//! [`Alloc::head_passed`] are told), and how to make that happen ([`Alloc::set_make_room`]).
//!
//! # When the image is full
//! ENOSPC is answered only after waiting for operations that are about to free something, after what was freed in memory
//! alone is recorded, and after a commit and a checkpoint have let go what waits in quarantine. That sleeps and may need
//! inode locks, so [`Alloc::allocate`] does not do it: [`Alloc::reserve_delayed`] does (call it with no inode lock held),
//! and [`Alloc::with_room`] repeats a whole operation once. Operations that free space allocate as [`Class::MakingRoom`]
//! and may use a reserve. Nobody else can touch that but for the extents of what is mapped at once, which take half of
//! it at the most: so everything that statfs shows can be had ([`Reservation::extend_for_record`]).

mod ahead;
mod beyond;
mod bits;
mod budget;
mod group;
mod groups;
mod grow;
mod inode_block;
mod load;
mod pick;
mod quarantine;
mod reservation;
mod room;
mod trim;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use grow::fresh_bitmap;
pub(crate) use quarantine::Queue;
pub use reservation::{Reservation, SLACK_OF_RECORD, VolatileExtent};

use crate::device::BLOCK_SIZE;
use crate::format::{BLOCKS_PER_GROUP, BlockKind, Position};
use crate::planted::{self, Bug};
use crate::store::{DELTA_HEADER_SIZE, Handle, PageRef, Profile, Store};
use crate::sync::atomic::AtomicUsize;
use crate::sync::{Arc, CachePadded, Mutex, OnceLock, Rounds};
use crate::{Error, Result};
use std::ops::Range;

use beyond::Beyond;
use budget::Budget;
use group::{Group, Wish};
use groups::Groups;
use quarantine::Quarantine;

/// Bytes that one allocation or one free of an extent adds to a record.
pub const BITS_DELTA_BYTES: usize = DELTA_HEADER_SIZE + 8;

/// A run of blocks on the device; it never leaves its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First block.
    pub start: u64,
    /// Number of blocks, at least 1.
    pub len: u32,
}

impl Extent {
    /// The block after the last.
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }
}

/// What blocks are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// File data.
    Data,
    /// Metadata of an operation that a full image may refuse.
    Metadata,
    /// Metadata of an operation that frees space, or that makes promised data reachable: it may use the
    /// reserve.
    MakingRoom,
}

/// Frees what is in quarantine: a commit and a checkpoint.
pub type MakeRoom = Box<dyn Fn() -> Result<()> + Send + Sync>;
/// Waits for operations that are about to free something.
pub type AwaitFrees = Box<dyn Fn() + Send + Sync>;

/// Records what was freed in memory and is in no record yet.
pub type RecordFrees = Box<dyn Fn() + Send + Sync>;

/// Whether something besides blocks waits for a commit until it can be had again.
pub type AlsoWaits = Box<dyn Fn() -> bool + Send + Sync>;

/// The allocator of one image; cheap to clone.
#[derive(Clone)]
pub struct Alloc {
    shared: Arc<Shared>,
}

struct Shared {
    groups_start: u64,
    groups: Groups,
    budget: Budget,
    /// Where more is promised than there are blocks.
    beyond: Option<Beyond>,
    quarantine: Quarantine,
    /// The group that each lane fills.
    // Relaxed: a hint of the lane.
    current: Box<[CachePadded<AtomicUsize>]>,
    make_room: OnceLock<MakeRoom>,
    await_frees: OnceLock<AwaitFrees>,
    record_frees: OnceLock<RecordFrees>,
    also_waits: OnceLock<AlsoWaits>,
    /// In which room is made.
    rounds: Rounds,
    /// Held while free runs are taken for a discard.
    trimming: Mutex<()>,
}

impl std::fmt::Debug for Alloc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alloc").field("groups", &self.shared.groups.len()).finish_non_exhaustive()
    }
}

fn no_space() -> Error {
    Error::Errno(libc::ENOSPC)
}

/// Whether all these blocks are in use as an operation sees it: it may free what it has allocated, and nothing twice.
fn is_used(h: &Handle<'_>, bitmap: &PageRef, blocks: Range<u32>) -> bool {
    let is_set = |first, count| bitmap.read(|bytes| bits::all_set(bytes, first, count));
    if !h.stages_bits(bitmap, &blocks) {
        return is_set(blocks.start, blocks.end - blocks.start);
    }
    blocks.into_iter().all(|block| {
        let staged = h.staged_bits(bitmap).rev().find(|(bits, _)| bits.contains(&block));
        staged.map_or_else(|| is_set(block, 1), |(_, set)| set)
    })
}

impl Alloc {
    /// Says how quarantine is emptied: by a commit against a loss of power and a checkpoint. Set once, at mount.
    pub fn set_make_room(&self, make_room: MakeRoom) {
        let _ = self.shared.make_room.set(make_room);
    }

    /// Says how to wait for what others are about to free. Set once, at mount.
    pub fn set_await_frees(&self, await_frees: AwaitFrees) {
        let _ = self.shared.await_frees.set(await_frees);
    }

    /// Says how what was freed in memory alone comes to be recorded. Set once, at mount. It takes credits and locks of
    /// inodes, as any operation does, and asks for no room itself.
    pub fn set_record_frees(&self, record_frees: RecordFrees) {
        let _ = self.shared.record_frees.set(record_frees);
    }

    /// Says what else than blocks is had back when room is made. Set once, at mount.
    pub fn set_also_waits(&self, also_waits: AlsoWaits) {
        let _ = self.shared.also_waits.set(also_waits);
    }

    /// Promises `blocks` blocks for data that will be written home later, and extent blocks for them: a small slack, or up to
    /// `nodes` where that is more. If they are not there, room is made first: it may sleep, and no inode lock may be held.
    ///
    /// # Errors
    /// ENOSPC.
    pub fn reserve_delayed(&self, blocks: u64, nodes: u64) -> Result<Reservation> {
        let mut reservation = Reservation::empty(self);
        reservation.extend(blocks, nodes)?;
        Ok(reservation)
    }

    /// As [`Alloc::reserve_delayed`], of what was promised before: see [`Reservation::extend_again`].
    ///
    /// # Errors
    /// ENOSPC.
    pub fn reserve_again(&self, blocks: u64, nodes: u64) -> Result<Reservation> {
        let mut reservation = Reservation::empty(self);
        reservation.extend_again(blocks, nodes)?;
        Ok(reservation)
    }

    /// As [`Alloc::reserve_delayed`], for blocks that are mapped at once: see [`Reservation::extend_for_record`].
    ///
    /// # Errors
    /// ENOSPC.
    pub fn reserve_for_record(&self, blocks: u64) -> Result<Reservation> {
        let mut reservation = Reservation::empty(self);
        reservation.extend_for_record(blocks)?;
        Ok(reservation)
    }

    /// Promises extent blocks to an operation that is not to fail for want of them.
    ///
    /// # Errors
    /// ENOSPC.
    pub fn reserve_nodes(&self, count: u64) -> Result<Reservation> {
        let mut reservation = Reservation::empty(self);
        reservation.extend_nodes(count)?;
        Ok(reservation)
    }

    /// Blocks picked by this operation: 1 to `want` of them, as many as lie in a row. If the handle aborts
    /// they are free again. With a reservation they are taken from its promise (for metadata from its
    /// slack, and where that is used up from what is left).
    ///
    /// # Errors
    /// ENOSPC, without an attempt to make room: see [`Alloc::with_room`].
    pub fn allocate(
        &self,
        h: &mut Handle<'_>,
        want: u32,
        goal: Option<u64>,
        class: Class,
        reservation: Option<&mut Reservation>,
    ) -> Result<Extent> {
        let volatile = self.allocate_promised((want, 0), goal, class, reservation)?;
        self.log_allocation(h, &volatile)?;
        let extent = volatile.into_extent();
        let alloc = self.clone();
        h.on_abort(move || alloc.release(extent));
        Ok(extent)
    }

    /// Blocks for write-back, out of a reservation: data goes there first, and only then does
    /// [`Alloc::log_allocation`] put them into a record. Dropped before that, they are free again. Up to `ahead`
    /// blocks behind them are kept for any thread that goes on there, as long as others are free.
    pub fn allocate_volatile(
        &self,
        want: u32,
        ahead: u32,
        goal: Option<u64>,
        reservation: &mut Reservation,
    ) -> Result<VolatileExtent> {
        self.allocate_promised((want, ahead), goal, Class::Data, Some(reservation))
    }

    fn allocate_promised(
        &self,
        (want, ahead): Wish,
        goal: Option<u64>,
        class: Class,
        mut reservation: Option<&mut Reservation>,
    ) -> Result<VolatileExtent> {
        let want = want.clamp(1, BLOCKS_PER_GROUP as u32);
        let budget = &self.shared.budget;
        let drawn = match (reservation.as_deref_mut(), class) {
            (Some(reservation), Class::Data) => reservation.draw(want),
            (Some(reservation), _) => reservation.draw_slack(want),
            (None, _) => 0,
        };
        let promised = match (drawn, class) {
            (0, Class::MakingRoom)
                if budget.take(u64::from(want)) || budget.take_reserve(u64::from(want)) =>
            {
                want
            }
            (0, _) => budget.take_up_to(u64::from(want)) as u32,
            _ => drawn,
        };
        if promised == 0 {
            return Err(no_space());
        }
        let extent = self.shared.pick_real((promised, ahead), goal, class);
        let unused = promised - extent.map_or(0, |extent| extent.len);
        match reservation {
            Some(reservation) if drawn > 0 => reservation.put_back(unused, class),
            _ => budget.give(u64::from(unused)),
        }
        extent.map(|extent| VolatileExtent::new(self, extent)).ok_or_else(no_space)
    }

    /// Puts blocks that were picked before into this operation's record. They are the caller's until it has committed,
    /// and its again if the handle aborts: see [`VolatileExtent::into_extent`].
    pub fn log_allocation(&self, h: &mut Handle<'_>, volatile: &VolatileExtent) -> Result<()> {
        let extent = volatile.extent();
        let (bitmap, first) = self.bitmap_of(h.store(), extent)?;
        h.set_bits(&bitmap, first, extent.len);
        Ok(())
    }

    /// Frees blocks with this operation's record. They go to quarantine, not to the next thread that asks. Data
    /// that the same handle has allocated is not freed by it: drop the handle instead.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a block is not one that can be allocated, or is free already.
    pub fn free(&self, h: &mut Handle<'_>, extent: Extent, was_metadata: bool) -> Result<()> {
        let (bitmap, first) = self.bitmap_of(h.store(), extent)?;
        // Of metadata too: a page that verifies may be led to from two places, or the bitmap say that it is free.
        if !is_used(h, &bitmap, first..first + extent.len) {
            return Err(Error::Corrupt {
                what: "extent",
                place: format!("blocks {} to {}", extent.start, extent.end() - 1),
                detail: "blocks of it are free already".into(),
            });
        }
        h.clear_bits(&bitmap, first, extent.len);
        let alloc = self.clone();
        // In the scratch profile no record brings an old owner back, and nobody writes data whose blocks are freed.
        // But a page of metadata may be on its way to spill space: that round must end first.
        let at_once = match h.store().profile() {
            Profile::Durable => planted::is(Bug::ReusedEarly),
            Profile::Spilling { .. } => !was_metadata,
            Profile::InMemory => true,
        };
        h.on_commit(move |end| match at_once {
            true => alloc.release(extent),
            false => alloc.shared.quarantine.push(end, extent, was_metadata),
        });
        Ok(())
    }

    /// Whether a number from media is one of a block that can be allocated: in a group, not its bitmap.
    pub fn holds(&self, block: u64) -> bool {
        self.group_of(Extent { start: block, len: 1 }).is_ok()
    }

    fn group_of(&self, extent: Extent) -> Result<&Group> {
        let corrupt = || Error::Corrupt {
            what: "extent",
            place: format!("blocks {} to {}", extent.start, extent.start.saturating_add(extent.len.into())),
            detail: "they do not lie within a group".into(),
        };
        let offset = extent.start.checked_sub(self.shared.groups_start).ok_or_else(corrupt)?;
        let index = (offset / BLOCKS_PER_GROUP) as usize;
        let first = offset % BLOCKS_PER_GROUP;
        let group = self.shared.groups.get(index).ok_or_else(corrupt)?;
        if first == 0 || extent.len == 0 || first + u64::from(extent.len) > u64::from(group.blocks()) {
            return Err(corrupt());
        }
        Ok(group)
    }

    fn bitmap_of(&self, store: &Store, extent: Extent) -> Result<(PageRef, u32)> {
        let start = self.group_of(extent)?.start;
        Ok((store.get(start, BlockKind::Bitmap)?, (extent.start - start) as u32))
    }

    /// Every record that ends at or below `upto` is durable against a loss of power.
    pub fn durable(&self, upto: Position) {
        for extent in self.shared.quarantine.data_durable(upto) {
            self.release(extent);
        }
    }

    /// The head of the journal has durably moved to `upto`.
    pub fn head_passed(&self, upto: Position) {
        for extent in self.shared.quarantine.head_passed(upto) {
            self.release(extent);
        }
    }

    /// Makes blocks free that are in nobody's record.
    fn release(&self, extent: Extent) {
        if let Ok(group) = self.group_of(extent) {
            group.give(extent);
            self.shared.budget.give(u64::from(extent.len));
            if let Some(beyond) = &self.shared.beyond {
                beyond.give(extent.len);
            }
        }
    }

    /// Blocks of the groups, bitmaps not counted, and those promised beyond.
    pub fn total(&self) -> u64 {
        let beyond = self.shared.beyond.as_ref().map_or(0, Beyond::promised);
        self.shared.groups.iter().map(|group| u64::from(group.blocks()) - 1).sum::<u64>() + beyond
    }

    /// Blocks that are free or soon will be (quarantine), and promised to nobody.
    pub fn statfs_free(&self) -> u64 {
        let budget = &self.shared.budget;
        budget.available() + budget.reserved() + self.shared.quarantine.blocks()
    }

    /// Of these, the blocks that files can have: what statfs shows. What comes out of quarantine goes to what is kept
    /// back first.
    pub fn statfs_available(&self) -> u64 {
        self.statfs_free().saturating_sub(self.kept_back())
    }

    /// Blocks that are kept back for operations that make room, and for the extents of what is mapped at once.
    pub fn kept_back(&self) -> u64 {
        self.shared.budget.reserve_target()
    }

    /// Blocks that are in no record and not in quarantine: for checks that the counts are exact.
    pub fn unused(&self) -> u64 {
        self.shared.groups.iter().map(|group| u64::from(group.free())).sum()
    }

    /// Bytes of the blocks that can be allocated.
    pub fn total_bytes(&self) -> u64 {
        self.total() * BLOCK_SIZE as u64
    }
}
