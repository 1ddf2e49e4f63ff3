//! How many inodes there are, and how many more there can be.
//!
//! Nobody scans the table for that. The hints of the index say how full its blocks were at the last clean unmount; what
//! this mount has looked into is known exactly, and what it makes and frees is counted. Blocks without a hint, which are
//! those that a crashed mount has made, are looked into when it is asked for the first time; after a crash the others as
//! well, for what that mount has changed in them. Not so many, though, that it would take long: the numbers are off by what
//! is in those beyond, until somebody looks into them.

use super::{AT_ONCE, Nat, Shared};
use crate::format::{BlockKind, INODES_PER_BLOCK, NAT_PER_BLOCK, STATE_CLEAN};
use crate::sync::atomic::{AtomicI64, Ordering::Relaxed};
use crate::sync::{LaneCounter, OnceLock};

/// NAT blocks that are looked into for the sake of a count alone.
const MOST_LOOKS: usize = 1024;

/// What is counted of the ids of one image.
#[derive(Default)]
pub(super) struct Counts {
    hinted: OnceLock<Hinted>,
    /// What blocks that were looked into had more in use than their hints say.
    // Relaxed: a number to show.
    unhinted: AtomicI64,
    made: LaneCounter,
    freed: LaneCounter,
}

/// What the index says of the NAT blocks of earlier mounts.
#[derive(Debug, Clone, Copy, Default)]
struct Hinted {
    blocks: u64,
    used: u64,
}

impl Counts {
    /// A NAT block has come to be known, with so many ids in use where its hint says `hint`.
    pub(super) fn looked_into(&self, used: u16, hint: u16) {
        self.unhinted.fetch_add(i64::from(used) - i64::from(hint), Relaxed);
    }

    /// An inode was made.
    pub(super) fn made(&self) {
        self.made.add(1);
    }

    /// An inode was freed.
    pub(super) fn freed(&self) {
        self.freed.add(1);
    }

    fn used(&self, hinted: u64) -> u64 {
        let sum = hinted as i64 + self.unhinted.load(Relaxed);
        (sum + self.made.get() as i64 - self.freed.get() as i64).max(0) as u64
    }
}

/// Inodes of one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InodeCount {
    /// In use.
    pub(crate) used: u64,
    /// Ids that are free in the blocks of the table.
    ids: u64,
    /// Slots that are free in node blocks of this mount.
    slots: u64,
    /// Ids that are free, and that blocks could still be made for.
    most: u64,
}

impl InodeCount {
    /// How many more so many free blocks make possible: some for slots, some for the table. Their names take room besides.
    pub(crate) fn possible(&self, blocks: u64) -> u64 {
        let per_block = INODES_PER_BLOCK as u64;
        let takes = |inodes: u64| {
            inodes.saturating_sub(self.slots).div_ceil(per_block)
                + inodes.saturating_sub(self.ids).div_ceil(NAT_PER_BLOCK)
        };
        let (mut low, mut high) =
            (0, self.most.min(blocks.saturating_mul(per_block).saturating_add(self.slots)));
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if takes(middle) <= blocks {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }
}

impl Shared {
    /// Whether the last mount has ended without writing hints.
    fn are_hints_old(&self) -> bool {
        self.store.superblock().state.get() != STATE_CLEAN
    }

    fn hinted(&self) -> Hinted {
        let mut all = Hinted::default();
        let (mut unhinted, mut old) = (Vec::new(), Vec::new());
        let are_old = self.are_hints_old();
        for index in 0..self.ids.loaded() {
            // What cannot be read is met again by who needs it.
            let Ok((_, _, pointer)) = self.pointer(index) else { continue };
            if pointer.block() == 0 {
                continue;
            }
            all.blocks += 1;
            all.used += u64::from(pointer.used_hint());
            // Hints of the first count the id that is nobody's, or do not.
            let (looks, wanted) = match index == 0 || pointer.used_hint() == 0 {
                true => (&mut unhinted, true),
                false => (&mut old, are_old),
            };
            if wanted && looks.len() < MOST_LOOKS {
                looks.push((index, pointer.block()));
            }
        }
        unhinted.extend(old);
        unhinted.truncate(MOST_LOOKS);
        for some in unhinted.chunks(AT_ONCE as usize) {
            let pages: Vec<_> = some.iter().map(|(_, block)| (*block, BlockKind::Nat)).collect();
            let _ = self.store.get_many(&pages);
            for (index, _) in some {
                let _ = self.id_block(*index);
            }
        }
        all
    }
}

impl Nat {
    /// Has known what old hints do not say, so that those which are to be written are right.
    pub(super) fn renew_old_hints(&self) {
        if self.shared.are_hints_old() {
            self.count();
        }
    }

    /// The inodes that there are and can be.
    pub(crate) fn count(&self) -> InodeCount {
        let shared = &*self.shared;
        let hinted = *shared.ids.counts.hinted.get_or_init(|| shared.hinted());
        let used = shared.ids.counts.used(hinted.used);
        let (earlier, made) = (shared.ids.loaded(), shared.ids.made_here());
        let free = |blocks: u64| blocks.saturating_mul(NAT_PER_BLOCK).saturating_sub(1 + used);
        InodeCount {
            used,
            ids: free(hinted.blocks + made),
            slots: shared.nodes.free(),
            most: free(shared.capacity().saturating_sub(earlier - hinted.blocks)),
        }
    }
}
