//! What is known of a file's pages: plain sets, without a lock.

use super::delayed::{Delayed, nodes};
use super::{OldContent, Selection};
use crate::format::Position;
use crate::planted::{self, Bug};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Pages written in place that are remembered before it is worth looking which a flush has covered.
const UNFLUSHED: usize = 1024;

/// By their state, which pages a write-back takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// Dirty ones: neither in place nor logged.
    Dirty,
    /// Logged ones too.
    All,
    /// Of both, those with records, which are about to be lost: they have their places already.
    Recorded,
}

/// Where content is that only records below the head's new place hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Below {
    /// Nowhere: all is in place.
    Nothing,
    /// In dirty or logged pages.
    Cached,
    /// In copies of the old content of a truncated file.
    Old,
    /// Under write-back, or being logged.
    Underway,
}

/// Numbers of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Dirty pages.
    pub dirty: usize,
    /// Logged pages.
    pub logged: usize,
    /// Pages whose record is to be superseded.
    pub stale: usize,
    /// A truncation to nothing is pending: extents of the old content, at most.
    pub truncate_pending: Option<usize>,
    /// Truncations to nothing so far.
    pub generation: u64,
    /// The file is on the write-back queue.
    pub is_queued: bool,
}

impl Summary {
    /// Pages that a write-back of all has to write.
    pub fn unwritten(&self) -> usize {
        self.dirty + self.logged
    }

    /// Whether nothing is left to write, but for what is in a token.
    pub fn is_clean(&self) -> bool {
        self.unwritten() == 0 && self.truncate_pending.is_none()
    }
}

/// The data records of a page that the ring holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// Position after the oldest whose content is not in place; `Position::MAX` if all is.
    pub first: Position,
    /// Position after the newest.
    pub last: Position,
}

/// See the module above.
#[derive(Debug, Default)]
pub(super) struct Sets {
    pub dirty: BTreeSet<u64>,
    pub logged: BTreeSet<u64>,
    /// Pages are held by [`UnderWriteBack`](super::UnderWriteBack); some may come back.
    pub under_write_back: bool,
    /// Pages are held by [`Logging`](super::Logging): `records` lags behind the journal.
    pub being_logged: bool,
    pub records: BTreeMap<u64, Record>,
    /// Pages with records that are in place with newer content.
    pub stale: BTreeSet<u64>,
    /// Pages written in place, with the device's count of writes then: to be written again should the flush that was to
    /// cover them fail.
    pub unflushed: BTreeMap<u64, u64>,
    /// How many of those there are when it is worth looking which a flush has covered by now.
    unflushed_limit: usize,
    /// A flush failed for a page that has left the cache since: its content is gone.
    pub lost: bool,
    /// Position after the last record of a batch that has pages of this file: none of them may be in place without it.
    pub batched_upto: Position,
    /// Blocks set aside for dirty pages without a block.
    pub reserved: u64,
    /// Leaves that the first ones of these may split.
    splits: u64,
    /// Leaves that the last pages that lie side by side, up to `delayed_upto`, may meet; and how many of those they split.
    last_met: u64,
    last_splits: u64,
    /// Levels of extent blocks above the leaves, at the most.
    levels: u64,
    /// Extent blocks promised for all of them.
    nodes: u64,
    /// The page behind the last that a block was set aside for.
    delayed_upto: u64,
    /// The file was truncated to nothing, and the record of that waits for the new content.
    pub truncate_pending: bool,
    /// Extents of the old content, at most.
    pub truncate_extents: usize,
    /// Truncations to nothing so far.
    pub truncate_generation: u64,
    /// What the file held before, where the journal alone has that durably.
    pub old: OldContent,
    /// Where the next write-back for want of frames begins.
    pub cursor: u64,
    /// The file's number in the write-back queue.
    pub queued: Option<u64>,
}

impl Sets {
    /// How many pages there are in each state.
    pub fn summary(&self) -> Summary {
        Summary {
            dirty: self.dirty.len(),
            logged: self.logged.len(),
            stale: self.stale.len(),
            truncate_pending: self.truncate_pending.then_some(self.truncate_extents),
            generation: self.truncate_generation,
            is_queued: self.queued.is_some(),
        }
    }

    /// Whether nothing is left to write, but for what is in a token.
    pub fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.logged.is_empty() && !self.truncate_pending
    }

    /// Whether a page of these is dirty.
    pub fn has_dirty(&self, pages: Range<u64>) -> bool {
        self.dirty.range(pages).next().is_some()
    }

    /// Whether none of these is dirty or on its way.
    pub fn is_synced(&self, pages: &Range<u64>) -> bool {
        let may_come_back = self.under_write_back || self.being_logged;
        !self.truncate_pending && !may_come_back && !self.has_dirty(pages.clone())
    }

    /// Takes pages for a write-back out of the sets, in ascending order; whether the tail stays behind, dirty.
    pub fn select(&mut self, selection: Selection) -> (Vec<u64>, bool) {
        let Selection { pages, take, most, tail } = selection;
        let mut selected: Vec<u64> = match take {
            Take::Dirty => self.dirty.range(pages).copied().take(most).collect(),
            Take::All => {
                let mut both: Vec<u64> = self.dirty.range(pages.clone()).copied().take(most).collect();
                both.extend(self.logged.range(pages).take(most));
                both.sort_unstable();
                both.dedup();
                both.truncate(most);
                both
            }
            Take::Recorded => {
                let pages = self.records.range(pages).map(|(page, _)| *page);
                pages.filter(|page| self.is_unwritten(*page)).take(most).collect()
            }
        };
        if let Some(tail) = tail
            && selected.first().is_some_and(|first| *first > tail)
            && self.dirty.contains(&tail)
        {
            selected.insert(0, tail);
        }
        for page in &selected {
            self.dirty.remove(page);
            self.logged.remove(page);
        }
        self.under_write_back = !selected.is_empty();
        (selected, tail.is_some_and(|tail| self.dirty.contains(&tail)))
    }

    fn is_unwritten(&self, page: u64) -> bool {
        self.dirty.contains(&page) || self.logged.contains(&page)
    }

    /// A data record of a page was logged.
    pub fn recorded(&mut self, page: u64, end: Position) {
        let record = self.records.entry(page).or_insert(Record { first: end, last: end });
        record.first = record.first.min(end);
        record.last = end;
    }

    /// Blocks were set aside for pages that are dirty now. How many of their extent blocks they do not need.
    pub fn delay(&mut self, delayed: &Delayed) -> u64 {
        // What goes on where the last write ended meets the same leaves.
        let goes_on = self.reserved > 0 && delayed.pages().start == self.delayed_upto;
        let (met, counted) = if goes_on { (self.last_met, self.last_splits) } else { (0, 0) };
        self.last_met = delayed.met_after(met);
        self.last_splits = self.last_met.min(counted + delayed.blocks());
        self.splits += self.last_splits - counted;
        self.reserved += delayed.blocks();
        self.levels = self.levels.max(delayed.levels());
        self.delayed_upto = delayed.pages().end;
        self.nodes += delayed.nodes();
        self.shrink_nodes()
    }

    /// Blocks that were set aside for dirty pages are not any more. How many extent blocks go with them.
    #[must_use = "somebody else may need them"]
    pub fn unreserve(&mut self, count: u64) -> u64 {
        self.reserved = self.reserved.saturating_sub(count);
        self.splits = self.splits.min(self.reserved);
        if self.reserved == 0 {
            self.levels = 0;
        }
        // What has its blocks may have been all that the next would have gone on from.
        self.delayed_upto = u64::MAX;
        self.shrink_nodes()
    }

    /// Lets go of extent blocks that nothing needs; how many.
    fn shrink_nodes(&mut self) -> u64 {
        let before = self.nodes;
        self.nodes = before.min(nodes(self.splits, self.reserved, self.levels));
        before - self.nodes
    }

    /// Takes pages out of every set: they are gone.
    pub fn remove(&mut self, pages: &Range<u64>) {
        for set in [&mut self.dirty, &mut self.logged] {
            let mut tail = set.split_off(&pages.start);
            set.append(&mut tail.split_off(&pages.end));
        }
        let mut tail = self.unflushed.split_off(&pages.start);
        self.unflushed.append(&mut tail.split_off(&pages.end));
    }

    /// The journal's records of these pages count no more.
    pub fn forget_records(&mut self, pages: &Range<u64>) {
        self.records.retain(|page, _| !pages.contains(page));
        self.stale.retain(|page| !pages.contains(page));
    }

    /// A record has put the new content of a truncated file in the place of the old one.
    pub fn truncate_recorded(&mut self) {
        self.truncate_pending = false;
        self.records.clear();
        self.stale.clear();
        self.old.clear();
    }

    /// Pages that only data records hold, each with the position of its oldest.
    pub fn only_in_records(&self) -> Vec<(u64, Position)> {
        let is_held = |page| self.is_unwritten(page);
        let held =
            self.records.iter().filter(|(page, record)| record.first != Position::MAX && is_held(**page));
        held.map(|(page, record)| (*page, record.first)).collect()
    }

    /// The pages whose records lie below `upto`, forgetting those below `head`; and whether any are left.
    pub fn look_below(&mut self, head: Position, upto: Position) -> (Below, bool) {
        self.records.retain(|_, record| record.last > head);
        self.stale.retain(|page| self.records.contains_key(page));
        let has_none =
            self.records.is_empty() && self.logged.is_empty() && self.old.is_empty() && !self.being_logged;
        if self.old.is_below(upto) && !planted::is(Bug::HeadPassesKept) {
            return (Below::Old, has_none);
        }
        let mut pages = self.records.iter().filter(|(_, record)| record.first <= upto).map(|(page, _)| *page);
        let below = if pages.clone().any(|page| self.is_unwritten(page)) {
            Below::Cached
        } else if self.being_logged || pages.next().is_some() {
            Below::Underway
        } else {
            Below::Nothing
        };
        (below, has_none)
    }

    /// Forgets unflushed pages that a flush has covered, if there are many.
    pub fn trim_unflushed(&mut self, flushed: u64) {
        if self.unflushed.len() > self.unflushed_limit.max(UNFLUSHED) {
            self.unflushed.retain(|_, count| *count > flushed);
            self.unflushed_limit = 2 * self.unflushed.len();
        }
    }

    /// Gives back the memory of sets that have become empty: most files in memory have nothing to write.
    pub fn shrink(&mut self) {
        for set in [&mut self.dirty, &mut self.logged] {
            if set.is_empty() {
                *set = BTreeSet::new();
            }
        }
    }
}
