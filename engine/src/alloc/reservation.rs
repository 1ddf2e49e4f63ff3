//! Promised blocks, and blocks that were picked but are in no record yet. Both give themselves back.

use super::budget::Budget;
use super::{Alloc, Class, Extent, no_space};
use crate::Result;
use crate::format::EXTENT_MAX_DEPTH;

/// Blocks of data for which one extent block is promised besides: a leaf that is split holds 126 extents, so that single
/// blocks far apart in a file need fewer, as long as they are many. What few of them in each of many files need is counted
/// by who knows of files, and promised as [`Reservation::extend`] is told.
const BLOCKS_PER_SLACK: u64 = 64;

/// Extent blocks that one record adds at the most while it maps blocks that lie side by side in the file: a leaf,
/// and what is above it.
pub const SLACK_OF_RECORD: u64 = 1 + EXTENT_MAX_DEPTH as u64;

/// Promised blocks: those that hold them will find as many. Dropping it gives the promise back.
#[derive(Debug)]
pub struct Reservation {
    alloc: Alloc,
    blocks: u64,
    slack: u64,
    /// Extent blocks that the blocks are known to need at the most.
    due: u64,
}

impl Reservation {
    /// A promise of nothing, to be extended; a file keeps one for all its delayed blocks.
    pub fn empty(alloc: &Alloc) -> Reservation {
        Reservation { alloc: alloc.clone(), blocks: 0, slack: 0, due: 0 }
    }

    /// Blocks of data still promised.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Promises `more` blocks, which are known to need up to `nodes` extent blocks. It may sleep, see
    /// [`Alloc::reserve_delayed`].
    ///
    /// # Errors
    /// ENOSPC; the promise is then what it was.
    pub fn extend(&mut self, more: u64, nodes: u64) -> Result<()> {
        let least = (self.blocks + more).div_ceil(BLOCKS_PER_SLACK).max(self.due + nodes);
        let slack = least.saturating_sub(self.slack);
        self.taken(|budget| budget.take(more + slack))?;
        self.alloc.shared.budget.fill_reserve();
        self.blocks += more;
        self.slack += slack;
        self.due += nodes;
        Ok(())
    }

    /// Promises `more` blocks to an operation that maps as many of them as it can in one record, and gives the rest
    /// back. The extent blocks for that are taken from what is kept back, so that everything that is available can be
    /// had.
    ///
    /// # Errors
    /// As [`Reservation::extend`].
    pub fn extend_for_record(&mut self, more: u64) -> Result<()> {
        self.taken(|_| self.take_for_record(more))?;
        self.blocks += more;
        self.slack += SLACK_OF_RECORD;
        self.due += SLACK_OF_RECORD;
        Ok(())
    }

    /// Promises `more` blocks to what a predecessor was promised them for: where they are scarce, without extent blocks of
    /// their own, and from what is kept back.
    ///
    /// # Errors
    /// As [`Reservation::extend`].
    pub fn extend_again(&mut self, more: u64, nodes: u64) -> Result<()> {
        if self.extend(more, nodes).is_err() {
            if !self.alloc.shared.budget.take_even_reserved(more) {
                return Err(no_space());
            }
            self.blocks += more;
            self.due += nodes;
        }
        Ok(())
    }

    /// Promises `more` extent blocks.
    ///
    /// # Errors
    /// As [`Reservation::extend`].
    pub fn extend_nodes(&mut self, more: u64) -> Result<()> {
        self.taken(|budget| budget.take(more))?;
        self.slack += more;
        Ok(())
    }

    /// Takes what is to be promised; where it cannot be had, once more after room was made.
    fn taken(&self, take: impl Fn(&Budget) -> bool) -> Result<()> {
        if !take(&self.alloc.shared.budget) {
            self.alloc.make_room()?;
            if !take(&self.alloc.shared.budget) {
                return Err(no_space());
            }
        }
        Ok(())
    }

    fn take_for_record(&self, more: u64) -> bool {
        let budget = &self.alloc.shared.budget;
        if !budget.take_half_of_reserve(SLACK_OF_RECORD) {
            return budget.take(more + SLACK_OF_RECORD);
        }
        let taken = budget.take(more);
        if !taken {
            budget.give(SLACK_OF_RECORD);
        }
        taken
    }

    /// Takes another promise into this one.
    pub fn merge(&mut self, mut other: Reservation) {
        self.blocks += std::mem::take(&mut other.blocks);
        self.slack += std::mem::take(&mut other.slack);
        self.due += std::mem::take(&mut other.due);
    }

    /// Gives up to `count` promised extent blocks to somebody else.
    pub fn split_slack(&mut self, count: u64) -> Reservation {
        let slack = self.slack.min(count);
        self.slack -= slack;
        Reservation { alloc: self.alloc.clone(), blocks: 0, slack, due: 0 }
    }

    /// Gives up to `blocks` of the promise back: pages that need no blocks any more.
    pub fn shrink(&mut self, blocks: u64) {
        let blocks = blocks.min(self.blocks);
        self.blocks -= blocks;
        self.alloc.shared.budget.give_back(blocks);
    }

    /// So many extent blocks are not needed any more; [`Reservation::trim`] gives them back.
    pub fn need_fewer(&mut self, nodes: u64) {
        self.due = self.due.saturating_sub(nodes);
    }

    /// Extent blocks that are needed at the most.
    pub fn due(&self) -> u64 {
        self.due
    }

    /// Gives back promised extent blocks, but for those that the blocks still promised need and `spare` more.
    pub fn trim(&mut self, spare: u64) {
        let least = self.blocks.div_ceil(BLOCKS_PER_SLACK).max(self.due);
        let excess = self.slack.saturating_sub(least + spare);
        self.slack -= excess;
        self.alloc.shared.budget.give(excess);
    }

    pub(super) fn draw(&mut self, want: u32) -> u32 {
        let n = self.blocks.min(u64::from(want));
        self.blocks -= n;
        n as u32
    }

    pub(super) fn draw_slack(&mut self, want: u32) -> u32 {
        let n = self.slack.min(u64::from(want));
        self.slack -= n;
        n as u32
    }

    /// Takes back what an allocation did not need.
    pub(super) fn put_back(&mut self, blocks: u32, class: Class) {
        match class {
            Class::Data => self.blocks += u64::from(blocks),
            Class::Metadata | Class::MakingRoom => self.slack += u64::from(blocks),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.alloc.shared.budget.give_back(self.blocks);
        self.alloc.shared.budget.give(self.slack);
    }
}

/// Blocks that are in no record yet. Dropping it frees them at once: no write to them may be in flight.
#[derive(Debug)]
#[must_use = "dropping it frees the blocks"]
pub struct VolatileExtent {
    alloc: Alloc,
    extent: Extent,
}

impl VolatileExtent {
    pub(super) fn new(alloc: &Alloc, extent: Extent) -> VolatileExtent {
        VolatileExtent { alloc: alloc.clone(), extent }
    }

    /// The blocks.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Cuts it after `len` blocks and gives the rest; none if there is no rest.
    pub fn split_off(&mut self, len: u32) -> Option<VolatileExtent> {
        let rest = self.extent.len.checked_sub(len).filter(|rest| *rest > 0 && len > 0)?;
        self.extent.len = len;
        Some(VolatileExtent::new(&self.alloc, Extent { start: self.extent.end(), len: rest }))
    }

    /// Gives the blocks back but keeps the promise of as many.
    pub fn into_reservation(self, reservation: &mut Reservation) {
        let extent = self.into_extent();
        let alloc = reservation.alloc.clone();
        if let Ok(group) = alloc.group_of(extent) {
            group.give(extent);
            reservation.put_back(extent.len, Class::Data);
            if let Some(beyond) = &alloc.shared.beyond {
                beyond.give(extent.len);
            }
        }
    }

    /// The blocks, now somebody else's to free: the file's, whose record has committed, or a handle's.
    pub fn into_extent(mut self) -> Extent {
        let extent = self.extent;
        self.extent.len = 0;
        extent
    }
}

impl Drop for VolatileExtent {
    fn drop(&mut self) {
        if self.extent.len > 0 {
            self.alloc.release(self.extent);
        }
    }
}
