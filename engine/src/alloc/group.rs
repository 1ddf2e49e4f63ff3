//! One allocation group in memory: which of its blocks may not be given out, and where to look first.
//!
//! A block is taken if its bit in the bitmap page is set, if an operation under way has picked it, or if it
//! is in quarantine: three reasons, one bit, so that finding space is one search. The bitmap page itself is
//! changed by operations' records alone.

use super::ahead::Windows;
use super::bits::Bits;
use super::{Class, Extent};
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};
use crate::sync::{Mutex, MutexGuard};

/// How many blocks are wanted, and how many are to be kept behind them.
pub(super) type Wish = (u32, u32);

/// How hard to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// Only in groups of the lane, for runs of at least this length.
    Run(u32),
    /// In any group that nobody is busy with.
    Idle,
    /// In any group, waiting for its lock.
    Any,
}

/// A group.
// The atomics are hints for choosing a group without its lock, all Relaxed: what counts is looked at again
// under the lock. `free` is changed under the lock only, so that its sum is exact when nothing is under way.
#[derive(Debug)]
pub(super) struct Group {
    pub start: u64,
    /// Changed under the lock only.
    blocks: AtomicU32,
    free: AtomicU32,
    /// No run is longer than this.
    longest: AtomicU32,
    /// The lane that fills the group, plus 1; 0: none.
    owner: AtomicU32,
    inside: Mutex<Inside>,
}

#[derive(Debug)]
struct Inside {
    bits: Bits,
    /// No block below is free: metadata is allocated lowest first, to lie together.
    metadata_from: u32,
    /// Where the last allocation of data ended.
    data_from: u32,
    /// Kept for files that grow.
    kept: Windows,
}

impl Group {
    /// A group whose blocks, `blocks` of them, begin at `start`.
    pub fn new(start: u64, bits: Bits, blocks: u32) -> Group {
        Group {
            start,
            blocks: AtomicU32::new(blocks),
            free: AtomicU32::new(bits.free()),
            longest: AtomicU32::new(blocks),
            owner: AtomicU32::new(0),
            // The first eighth is left to metadata as long as there is room elsewhere.
            inside: Mutex::new(Inside {
                bits,
                metadata_from: 0,
                data_from: blocks / 8,
                kept: Windows::default(),
            }),
        }
    }

    /// Number of its blocks: one that was read stays true, for a group only grows.
    pub fn blocks(&self) -> u32 {
        self.blocks.load(Relaxed)
    }

    /// Makes the group `blocks` long, what is new being free; gives how many blocks those are.
    pub fn extend(&self, blocks: u32) -> u32 {
        let mut inside = self.inside.lock();
        let old = self.blocks();
        let added = blocks.saturating_sub(old);
        if added > 0 {
            inside.bits.extend(blocks);
            self.blocks.store(blocks, Relaxed);
            self.free.fetch_add(added, Relaxed);
            self.longest.store(blocks, Relaxed);
        }
        added
    }

    /// Number of blocks that are not taken.
    pub fn free(&self) -> u32 {
        self.free.load(Relaxed)
    }

    /// Makes the group one that `lane` fills, unless another lane does.
    fn claim(&self, lane: usize) -> bool {
        let me = lane as u32 + 1;
        let owner = self.owner.load(Relaxed);
        owner == me || owner == 0 && self.owner.compare_exchange(0, me, Relaxed, Relaxed).is_ok()
    }

    /// Lets other lanes fill the group.
    pub fn disown(&self, lane: usize) {
        let _ = self.owner.compare_exchange(lane as u32 + 1, 0, Relaxed, Relaxed);
    }

    /// Takes up to `want` blocks, and keeps up to `ahead` behind them.
    pub fn allocate(&self, lane: usize, (want, ahead): Wish, class: Class, effort: Effort) -> Option<Extent> {
        if self.free() == 0 {
            return None;
        }
        let (least, mut inside) = match effort {
            Effort::Run(least) if self.longest.load(Relaxed) >= least && self.claim(lane) => {
                (least, self.inside.try_lock()?)
            }
            Effort::Run(_) => return None,
            Effort::Idle => (1, self.inside.try_lock()?),
            Effort::Any => (1, self.inside.lock()),
        };
        let from = if class == Class::Data { inside.data_from } else { inside.metadata_from };
        // What others are to grow into goes last.
        let (first, len) = match effort {
            Effort::Run(_) => inside.bits.find(from, want + ahead, &inside.kept)?,
            _ => inside.bits.find(from, want, &Windows::default())?,
        };
        if len < want {
            if inside.kept.is_empty() {
                // The search has seen every run.
                self.longest.store(len, Relaxed);
            }
            if len < least {
                return None;
            }
        }
        let len = len.min(want);
        if class == Class::Data {
            inside.data_from = first + len;
        } else if first == inside.metadata_from || len == 1 && inside.kept.is_empty() {
            // A single block was the lowest that is free; of a longer run that need not be so, nor where some are kept.
            inside.metadata_from = first + len;
        }
        let extent = self.take(&mut inside, first, len);
        inside.keep(first + len, ahead);
        Some(extent)
    }

    /// Takes up to `want` blocks for data that start at `goal`, a block of this group, and keeps up to `ahead` behind
    /// them. Nothing that is kept for another.
    pub fn allocate_at(&self, goal: u64, (want, ahead): Wish) -> Option<Extent> {
        // Elsewhere is no second best for a file that grows: a run is torn for good, and the lock is held for less
        // than a microsecond.
        let mut inside = self.inside.lock();
        let goal = (goal - self.start) as u32;
        if inside.kept.is_within(goal) {
            return None;
        }
        inside.kept.forget(goal);
        let (first, len) = inside.bits.next_run(goal, want).filter(|(first, _)| *first == goal)?;
        let run = inside.kept.outside(first..first + len).ok()?;
        let len = run.end - run.start;
        inside.data_from = first + len;
        let extent = self.take(&mut inside, first, len);
        inside.keep(first + len, ahead);
        Some(extent)
    }

    fn take(&self, inside: &mut MutexGuard<'_, Inside>, first: u32, len: u32) -> Extent {
        inside.bits.take(first, len);
        self.free.fetch_sub(len, Relaxed);
        Extent { start: self.start + u64::from(first), len }
    }

    /// Gives blocks back, which then may be given out.
    pub fn give(&self, extent: Extent) {
        let first = (extent.start - self.start) as u32;
        let mut inside = self.inside.lock();
        inside.bits.give(first, extent.len);
        inside.metadata_from = inside.metadata_from.min(first);
        self.free.fetch_add(extent.len, Relaxed);
        self.longest.store(self.blocks(), Relaxed);
    }

    /// Takes the next free run from `from` up to `end` blocks into the group.
    pub fn take_run(&self, from: u32, end: u32) -> Option<Extent> {
        let mut inside = self.inside.lock();
        let (first, len) = inside.bits.next_run(from, end.saturating_sub(from))?;
        let len = len.min(end.checked_sub(first)?);
        (len > 0).then(|| self.take(&mut inside, first, len))
    }
}

impl Inside {
    /// Keeps up to `count` free blocks from `first` on, as far as they are nobody else's.
    fn keep(&mut self, first: u32, count: u32) {
        if count > 0
            && let Some((start, len)) = self.bits.next_run(first, count)
            && start == first
            && let Ok(run) = self.kept.outside(first..first + len)
        {
            self.kept.keep(run);
        }
    }
}
