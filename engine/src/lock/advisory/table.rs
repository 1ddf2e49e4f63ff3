//! The advisory locks of one kind on one file: what is held, and what waits in which order.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Access, Completion, Conflict, LockRequest};

/// Ranges that one file may have locked; a program that needs more is told ENOLCK.
const MAX_HELD: usize = 1 << 16;

#[derive(Debug, Clone, PartialEq, Eq)]
struct HeldLock {
    owner: u64,
    pid: u32,
    range: Range<u64>,
    access: Access,
}

/// A request that waits.
pub(super) struct Waiting {
    pub(super) id: u64,
    pub(super) request: LockRequest,
    pub(super) complete: Completion,
}

/// Held and awaited locks. Locks of one owner never overlap each other.
#[derive(Default)]
pub(super) struct Table {
    held: Vec<HeldLock>,
    pub(super) waiting: VecDeque<Waiting>,
}

impl HeldLock {
    fn blocks(&self, request: &LockRequest) -> bool {
        self.owner != request.owner
            && (self.access == Access::Write || request.access == Access::Write)
            && self.range.start < request.range.end
            && request.range.start < self.range.end
    }
}

impl Table {
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= MAX_HELD
    }

    /// The held lock with the lowest start that blocks a request.
    pub(super) fn conflict(&self, request: &LockRequest) -> Option<Conflict> {
        let blocking = self.held.iter().filter(|h| h.blocks(request));
        let first = blocking.min_by_key(|h| h.range.start)?;
        Some(Conflict { range: first.range.clone(), access: first.access, pid: first.pid })
    }

    /// The owners of all locks that block a request.
    pub(super) fn blockers(&self, request: &LockRequest) -> Vec<u64> {
        self.held.iter().filter(|h| h.blocks(request)).map(|h| h.owner).collect()
    }

    /// Whether the owner holds anything.
    pub(super) fn holds(&self, owner: u64) -> bool {
        self.held.iter().any(|h| h.owner == owner)
    }

    /// Gives a request what it asks for: it replaces what its owner holds of the range and joins what it
    /// holds beside it.
    pub(super) fn grant(&mut self, request: &LockRequest) {
        let mut range = request.range.clone();
        self.held.retain(|h| {
            let joins = h.owner == request.owner
                && h.access == request.access
                && h.range.start <= range.end
                && range.start <= h.range.end;
            if joins {
                range = range.start.min(h.range.start)..range.end.max(h.range.end);
            }
            !joins
        });
        self.remove(request.owner, &range);
        let (owner, pid, access) = (request.owner, request.pid, request.access);
        self.held.push(HeldLock { owner, pid, range, access });
    }

    /// Takes a range from an owner; what it holds to the left and right of it stays.
    pub(super) fn remove(&mut self, owner: u64, range: &Range<u64>) {
        let mut right = None;
        self.held.retain_mut(|h| {
            if h.owner != owner || h.range.start >= range.end || range.start >= h.range.end {
                return true;
            }
            if h.range.end > range.end {
                let rest = HeldLock { range: range.end..h.range.end, ..h.clone() };
                if h.range.start >= range.start {
                    *h = rest;
                    return true;
                }
                // Locks of one owner do not overlap, so at most one of them surrounds the range.
                right = Some(rest);
            }
            h.range.end = range.start;
            h.range.start < h.range.end
        });
        self.held.extend(right);
    }

    /// Grants what waits and can be granted, in order of arrival; what it granted goes to `granted`.
    pub(super) fn grant_waiting(&mut self, granted: &mut Vec<Waiting>) {
        let mut at = 0;
        while let Some(next) = self.waiting.get(at) {
            if self.held.iter().any(|h| h.blocks(&next.request)) {
                at += 1;
            } else if let Some(next) = self.waiting.remove(at) {
                self.grant(&next.request);
                granted.push(next);
                // A grant may have replaced a stronger lock of its owner: those before may be free now.
                at = 0;
            }
        }
    }

    /// Takes a waiting request out of the queue.
    pub(super) fn withdraw(&mut self, id: u64) -> Option<Waiting> {
        let at = self.waiting.iter().position(|w| w.id == id)?;
        self.waiting.remove(at)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(owner: u64, range: Range<u64>, access: Access) -> LockRequest {
        LockRequest { owner, pid: owner as u32, range, access }
    }

    #[test]
    fn an_unlock_in_the_middle_splits_and_a_lock_in_the_middle_joins() {
        let mut table = Table::default();
        table.grant(&request(1, 0..100, Access::Write));
        table.remove(1, &(40..60));
        assert_eq!(table.held.len(), 2);
        assert!(table.conflict(&request(2, 40..60, Access::Write)).is_none());
        assert!(table.conflict(&request(2, 39..41, Access::Read)).is_some());
        table.grant(&request(1, 40..60, Access::Write));
        assert_eq!(table.held.len(), 1);
        table.grant(&request(1, 10..20, Access::Read));
        assert_eq!(table.held.len(), 3);
        assert!(table.conflict(&request(2, 10..20, Access::Read)).is_none());
    }

    proptest! {
        /// Against a map from each byte to what each owner holds of it.
        #[test]
        fn a_table_equals_a_map_of_bytes(
            ops in prop::collection::vec((0u64..3, 0u64..24, 1u64..12, 0u8..3), 1..60)
        ) {
            let mut table = Table::default();
            let mut map = [[None; 36]; 3];
            for (owner, start, len, what) in ops {
                let range = start..start + len;
                let access = match what { 0 => Some(Access::Read), 1 => Some(Access::Write), _ => None };
                let bytes = start as usize..(start + len) as usize;
                let blocked = access.is_some_and(|a| (0..3).filter(|o| *o != owner as usize).any(|o| {
                    map[o][bytes.clone()].iter().flatten().any(|h| *h == Access::Write || a == Access::Write)
                }));
                match access {
                    Some(access) => {
                        let request = request(owner, range, access);
                        prop_assert_eq!(table.conflict(&request).is_some(), blocked);
                        if !blocked { table.grant(&request); }
                    }
                    None => table.remove(owner, &range),
                }
                if !blocked { map[owner as usize][bytes].fill(access); }
                let mut from_table = [[None; 36]; 3];
                for h in &table.held {
                    let held = &mut from_table[h.owner as usize][h.range.start as usize..h.range.end as usize];
                    prop_assert!(held.iter().all(Option::is_none));
                    held.fill(Some(h.access));
                }
                prop_assert_eq!(from_table, map);
            }
        }
    }
}
