//! Which group a promise is kept from.

use super::group::{Effort, Wish};
use super::{Class, Extent, Shared};
use crate::format::BLOCKS_PER_GROUP;
use crate::lane;
use crate::sync::atomic::Ordering::Relaxed;

/// A longer run than this is not worth the search for it: 8 MiB.
const LONG_RUN: u32 = 2048;
/// Blocks come free and go while groups are looked through in turn. One more look almost always finds one.
const LAST_LOOKS: u32 = 1000;

impl Shared {
    /// Blocks for a promise. Lanes go different ways, and nobody waits as long as there is another way.
    pub(super) fn pick(&self, wish: Wish, goal: Option<u64>, class: Class) -> Option<Extent> {
        if class == Class::Data
            && let Some(goal) = goal
            && let Some(offset) = goal.checked_sub(self.groups_start)
            && let Some(group) = self.groups.get((offset / BLOCKS_PER_GROUP) as usize)
            && goal - group.start < u64::from(group.blocks())
            && let Some(extent) = group.allocate_at(goal, wish)
        {
            return Some(extent);
        }
        let efforts = [Effort::Run(wish.0.min(LONG_RUN)), Effort::Idle, Effort::Any];
        if let Some(extent) = efforts.into_iter().find_map(|effort| self.search(wish, class, effort)) {
            return Some(extent);
        }
        // The promise is good: what is missing was taken for a discard, and comes back, or came free behind the search.
        let _no_discard = self.trimming.lock();
        (0..LAST_LOOKS)
            .take_while(|look| *look == 0 || self.groups.iter().any(|group| group.free() > 0))
            .find_map(|_| self.search(wish, class, Effort::Any))
    }

    fn search(&self, wish: Wish, class: Class, effort: Effort) -> Option<Extent> {
        let lane = lane::current();
        let first = self.current[lane].load(Relaxed);
        let count = self.groups.len();
        for index in 0..count {
            let turn = (first + index) % count;
            let Some(group) = self.groups.get(turn) else { continue };
            if let Some(extent) = group.allocate(lane, wish, class, effort) {
                if index != 0 && matches!(effort, Effort::Run(_)) {
                    if let Some(old) = self.groups.get(first) {
                        old.disown(lane);
                    }
                    self.current[lane].store(turn, Relaxed);
                }
                return Some(extent);
            }
            if turn != first && matches!(effort, Effort::Run(_)) {
                // It was claimed for a run that it does not have.
                group.disown(lane);
            }
        }
        None
    }
}
