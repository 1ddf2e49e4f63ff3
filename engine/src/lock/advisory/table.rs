//! The advisory locks of one kind on one file: what is held, and what waits in which order.

use std::collections::VecDeque;
use std::ops::Range;

use super::room::Room;
use super::{Access, Completion, Conflict, LockRequest, Owner};
use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq)]
struct HeldLock {
    owner: Owner,
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

    /// Whether it becomes one with what is asked for, where the two meet.
    fn joins(&self, request: &LockRequest) -> bool {
        self.owner == request.owner && self.access == request.access
    }
}

impl Table {
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    /// The held lock with the lowest start that blocks a request.
    pub(super) fn conflict(&self, request: &LockRequest) -> Option<Conflict> {
        let blocking = self.held.iter().filter(|h| h.blocks(request));
        let first = blocking.min_by_key(|h| h.range.start)?;
        Some(Conflict { range: first.range.clone(), access: first.access, pid: first.pid })
    }

    /// The owners of all locks that block a request.
    pub(super) fn blockers(&self, request: &LockRequest) -> Vec<Owner> {
        self.held.iter().filter(|h| h.blocks(request)).map(|h| h.owner).collect()
    }

    /// Whether the owner holds anything.
    pub(super) fn holds(&self, owner: Owner) -> bool {
        self.held.iter().any(|h| h.owner == owner)
    }

    /// Gives a request what it asks for: it replaces what its owner holds of the range and joins what it
    /// holds beside it. ENOLCK, and nothing has changed: there is no room.
    pub(super) fn grant(&mut self, request: &LockRequest, room: &Room) -> Result<()> {
        // What goes is given back when it is gone: what comes needs no more than it leaves.
        let before = self.held.len();
        let more = self.after(request.owner, &request.range, Some(request.access)).saturating_sub(before);
        room.take(request.owner, more)?;
        let mut range = request.range.clone();
        self.held.retain(|h| {
            let joins = h.joins(request) && h.range.start <= range.end && range.start <= h.range.end;
            if joins {
                range = range.start.min(h.range.start)..range.end.max(h.range.end);
            }
            !joins
        });
        self.cut(request.owner, &range);
        let (owner, pid, access) = (request.owner, request.pid, request.access);
        self.held.push(HeldLock { owner, pid, range, access });
        room.give_back(owner, before + more - self.held.len());
        Ok(())
    }

    /// Takes a range from an owner; what it holds to the left and right of it stays. ENOLCK, and nothing has changed:
    /// these would be one more, and there is no room.
    pub(super) fn remove(&mut self, owner: Owner, range: &Range<u64>, room: &Room) -> Result<()> {
        let before = self.held.len();
        let more = self.after(owner, range, None).saturating_sub(before);
        room.take(owner, more)?;
        self.cut(owner, range);
        room.give_back(owner, before + more - self.held.len());
        Ok(())
    }

    /// Takes everything from an owner.
    pub(super) fn remove_all(&mut self, owner: Owner, room: &Room) {
        let before = self.held.len();
        self.held.retain(|h| h.owner != owner);
        room.give_back(owner, before - self.held.len());
    }

    /// How many locks are held once an owner has been given this access to a range, or none.
    fn after(&self, owner: Owner, range: &Range<u64>, access: Option<Access>) -> usize {
        let mut held = self.held.len() + usize::from(access.is_some());
        for h in self.held.iter().filter(|h| h.owner == owner) {
            let overlaps = h.range.start < range.end && range.start < h.range.end;
            let touches = h.range.start <= range.end && range.start <= h.range.end;
            let goes = range.start <= h.range.start && h.range.end <= range.end;
            let splits = h.range.start < range.start && range.end < h.range.end;
            if access == Some(h.access) && touches || overlaps && goes {
                held -= 1;
            } else if overlaps && splits {
                held += 1;
            }
        }
        held
    }

    /// Takes a range from an owner, whose locks that surround it become two.
    fn cut(&mut self, owner: Owner, range: &Range<u64>) {
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

    /// Grants what waits and nothing blocks, in order of arrival, or refuses it where there is no room; how that went is
    /// added to `settled`.
    pub(super) fn grant_waiting(&mut self, room: &Room, settled: &mut Vec<(Waiting, Result<()>)>) {
        let mut at = 0;
        while let Some(next) = self.waiting.get(at) {
            if self.held.iter().any(|h| h.blocks(&next.request)) {
                at += 1;
            } else if let Some(next) = self.waiting.remove(at) {
                let granted = self.grant(&next.request, room);
                settled.push((next, granted));
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
        LockRequest { owner: Owner::Mount(owner), pid: owner as u32, range, access }
    }

    #[test]
    fn an_unlock_in_the_middle_splits_and_a_lock_in_the_middle_joins() {
        let (mut table, room) = (Table::default(), Room::default());
        table.grant(&request(1, 0..100, Access::Write), &room).expect("there is room");
        table.remove(Owner::Mount(1), &(40..60), &room).expect("there is room");
        assert_eq!(table.held.len(), 2);
        assert!(table.conflict(&request(2, 40..60, Access::Write)).is_none());
        assert!(table.conflict(&request(2, 39..41, Access::Read)).is_some());
        table.grant(&request(1, 40..60, Access::Write), &room).expect("there is room");
        assert_eq!(table.held.len(), 1);
        table.grant(&request(1, 10..20, Access::Read), &room).expect("there is room");
        assert_eq!(table.held.len(), 3);
        assert!(table.conflict(&request(2, 10..20, Access::Read)).is_none());
    }

    proptest! {
        /// Against a map from each byte to what each owner holds of it.
        #[test]
        fn a_table_equals_a_map_of_bytes(
            ops in prop::collection::vec((0u64..3, 0u64..24, 1u64..12, 0u8..3), 1..60)
        ) {
            let (mut table, room) = (Table::default(), Room::default());
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
                        if !blocked { table.grant(&request, &room).expect("there is room"); }
                    }
                    None => table.remove(Owner::Mount(owner), &range, &room).expect("there is room"),
                }
                if !blocked { map[owner as usize][bytes].fill(access); }
                let mut from_table = [[None; 36]; 3];
                for h in &table.held {
                    let held = &mut from_table[h.pid as usize][h.range.start as usize..h.range.end as usize];
                    prop_assert!(held.iter().all(Option::is_none));
                    held.fill(Some(h.access));
                }
                prop_assert_eq!(from_table, map);
                let counted = room.held(Owner::Mount(0)).load(std::sync::atomic::Ordering::Relaxed);
                prop_assert_eq!(counted, table.held.len() as u64);
            }
        }
    }
}
