//! Slots for inodes: which slots of the node blocks in play are free.
//!
//! A node block is *known* from its creation, or from the first slot that is freed in it, until it is full
//! or freed. Only known blocks get new inodes. What was on media before and has free slots is not looked for;
//! it becomes known when one of its inodes is freed.
//!
//! # Protocol
//! A known block has an owner, the lane that fills it, and its state is guarded by the lock of its shard. A lane's *list*
//! names blocks that it may fill, and is guarded by its own lock. An entry is a hint: it counts if there is a state, and that
//! has the list's lane as the owner; any other is of a block that was freed since, or is another lane's now, and whoever
//! comes upon it drops it without touching the state. Who drops one that counts, for the block is full or dying, clears
//! `listed` under the same lock of the shard.
//! - `listed` is set by who has put the block on its owner's list, or is about to, with no lock held. So no block with a
//!   free slot is forgotten: whoever gives it one finds `listed`, or sets it and lists it.
//! - The owner is changed by who has its entry in hand, with the lists of both lanes locked ([`Nodes::take_over`]): a block
//!   is always on one of the two. Who looks at all lists in turn may miss it nevertheless: an operation that finds the
//!   image full so makes room, and looks again. An entry that is pushed to the old owner's list after that does not count.
//! - A list that is added to as blocks get free slots loses entries that do not count at twice that rate, so that it is
//!   about as long as there are blocks to fill; the others go when the lane looks for a slot, or another takes over.
//!
//! Locks: a list, then a shard; never two shards. Who waits for a list's lock holds no other, but for that of its own lane's
//! list, with which another's is only tried.

use crate::format::{INODE_SIZE, INODES_PER_BLOCK};
use crate::hasher::NumberMap;
use crate::lane;
use crate::store::PageRef;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{CachePadded, Condvar, LaneCounter, Mutex};
use crate::{Error, Result};
use std::collections::VecDeque;

const SHARDS: usize = 64;
const FULL: u16 = u16::MAX;
/// Entries that one call looks at in another lane's list.
const LOOKS: usize = 16;
const _: () = assert!(INODES_PER_BLOCK == u16::BITS as usize);

/// A known node block.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// Slots in use, and those that operations under way have picked.
    taken: u16,
    /// Of these, the ones just picked.
    arriving: u16,
    /// Slots that operations under way free.
    leaving: u16,
    /// The lane that fills the block.
    owner: usize,
    /// The owner's list has the block.
    listed: bool,
    /// An operation under way frees the block.
    dying: bool,
}

impl State {
    /// Whether there is nothing to remember of it: the page says the same.
    fn is_done(&self) -> bool {
        self.taken == FULL && self.arriving == 0 && self.leaving == 0 && !self.listed
    }

    fn free(&self) -> u64 {
        u64::from(self.taken.count_zeros())
    }
}

#[derive(Default)]
struct Shard {
    blocks: Mutex<NumberMap<State>>,
    /// Woken when an operation that takes or frees a slot is over.
    left: Condvar,
}

/// Blocks of a lane that had free slots when last looked at; the last is filled.
#[derive(Default)]
struct List {
    blocks: Mutex<VecDeque<u64>>,
    /// How many, for who asks without the lock. Relaxed: a hint; who acts on it locks, and counts again.
    len: AtomicUsize,
}

impl List {
    /// Works on it, with the lock.
    fn with<T>(&self, work: impl FnOnce(&mut VecDeque<u64>) -> T) -> T {
        let mut blocks = self.blocks.lock();
        let done = work(&mut blocks);
        self.len.store(blocks.len(), Ordering::Relaxed);
        done
    }

    /// The same if nobody has the lock.
    fn try_with<T>(&self, work: impl FnOnce(&mut VecDeque<u64>) -> T) -> Option<T> {
        let mut blocks = self.blocks.try_lock()?;
        let done = work(&mut blocks);
        self.len.store(blocks.len(), Ordering::Relaxed);
        Some(done)
    }
}

/// The known node blocks of one image.
pub(super) struct Nodes {
    shards: Box<[CachePadded<Shard>]>,
    lanes: Box<[CachePadded<List>]>,
    /// Free slots that known blocks have got, and those that they have lost.
    got: LaneCounter,
    lost: LaneCounter,
}

impl Nodes {
    /// Nothing is known yet.
    pub(super) fn new() -> Nodes {
        Nodes {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            lanes: (0..lane::count()).map(|_| CachePadded::default()).collect(),
            got: LaneCounter::default(),
            lost: LaneCounter::default(),
        }
    }

    /// Free slots of known blocks, those of all lanes.
    pub(super) fn free(&self) -> u64 {
        // In this order: of what comes and goes in between less is seen, rather than more.
        let got = self.got.get();
        got.saturating_sub(self.lost.get())
    }

    fn note(&self, before: u64, after: u64) {
        if after > before {
            self.got.add(after - before);
        } else if before > after {
            self.lost.add(before - after);
        }
    }

    /// Picks a free slot of any lane's blocks: where there is no block for another.
    pub(super) fn pick_any(&self) -> Option<(u64, u8)> {
        (0..self.lanes.len()).find_map(|lane| self.pick(lane))
    }

    fn shard(&self, block: u64) -> &Shard {
        &self.shards[block as usize % SHARDS]
    }

    /// Picks a free slot of the lane's blocks.
    pub(super) fn pick(&self, lane: usize) -> Option<(u64, u8)> {
        self.lanes[lane].with(|list| self.pick_of(lane, list))
    }

    /// The same with the lane's list in hand.
    fn pick_of(&self, lane: usize, list: &mut VecDeque<u64>) -> Option<(u64, u8)> {
        while let Some(block) = list.back().copied() {
            let picked = self.look(lane, block, |state| {
                let slot = state.taken.trailing_ones() as u8;
                state.taken |= 1 << slot;
                state.arriving |= 1 << slot;
                self.lost.add(1);
                (block, slot)
            });
            if picked.is_some() {
                return picked;
            }
            list.pop_back();
        }
        None
    }

    /// Picks a free slot of a block that another lane has, and that the lane has from then on, with as many others as make
    /// a block of free slots: a lane frees in whatever blocks there are, and may make none. The last block of a list, which
    /// its lane fills, stays there. Lists that are in use are left alone.
    pub(super) fn take_over(&self, lane: usize) -> Option<(u64, u8)> {
        let others = (1..self.lanes.len()).map(|ahead| (lane + ahead) % self.lanes.len());
        // What creates alone has one block in its list: with nobody to take from, no lock is taken, and no line changes.
        // Relaxed: see `List::len`.
        let mut others = others.filter(|other| self.lanes[*other].len.load(Ordering::Relaxed) > 1).peekable();
        others.peek()?;
        self.lanes[lane].with(|own| {
            // Another thread of the lane may have been here.
            let mut picked = self.pick_of(lane, own);
            let (mut looks, mut free) = (LOOKS, 0);
            while picked.is_none()
                && looks > 0
                && let Some(other) = others.next()
            {
                self.lanes[other].try_with(|list| {
                    while list.len() > 1 && looks > 0 && free < INODES_PER_BLOCK as u64 {
                        looks -= 1;
                        let Some(block) = list.pop_front() else { return };
                        let taken = self.look(other, block, |state| {
                            state.owner = lane;
                            state.free()
                        });
                        if let Some(slots) = taken {
                            free += slots;
                            own.push_back(block);
                        }
                    }
                });
                picked = self.pick_of(lane, own);
            }
            picked
        })
    }

    /// Looks at a block that a lane's list names, whose lock the caller has; `with` gets its state if the lane can fill it.
    /// None: the entry is of no use, and to be dropped.
    fn look<T>(&self, lane: usize, block: u64, with: impl FnOnce(&mut State) -> T) -> Option<T> {
        let mut blocks = self.shard(block).blocks.lock();
        match blocks.get_mut(&block) {
            Some(state) if state.owner == lane && !state.dying && state.taken != FULL => Some(with(state)),
            Some(state) if state.owner == lane => {
                state.listed = false;
                if state.is_done() {
                    blocks.remove(&block);
                }
                None
            }
            // Freed since; perhaps made anew by another lane, or taken over.
            _ => None,
        }
    }

    /// Puts a block on a lane's list, and drops some of what is there for nothing.
    fn list(&self, lane: usize, block: u64) {
        self.lanes[lane].with(|list| {
            for _ in 0..2 {
                let Some(first) = list.pop_front() else { break };
                // One of the same block is of the time before it was freed and made anew.
                if first != block && self.look(lane, first, |_| ()).is_some() {
                    list.push_back(first);
                }
            }
            list.push_back(block);
        });
    }

    /// Blocks that a lane's list names.
    #[cfg(test)]
    pub(super) fn listed(&self, lane: usize) -> usize {
        self.lanes[lane].with(|list| list.len())
    }

    /// Changes what is known of a block, if it still is; lists it where it then has free slots, forgets it
    /// where it is full and nothing is under way.
    fn update_known(&self, block: u64, change: impl FnOnce(&mut State)) {
        let shard = self.shard(block);
        let mut blocks = shard.blocks.lock();
        let Some(state) = blocks.get_mut(&block) else { return };
        let before = state.free();
        change(state);
        self.note(before, state.free());
        let list = !state.listed && !state.dying && state.taken != FULL;
        state.listed |= list;
        let owner = state.owner;
        if state.is_done() {
            blocks.remove(&block);
        }
        drop(blocks);
        shard.left.notify_all();
        // Not under the shard's lock: lists are locked before shards.
        if list {
            self.list(owner, block);
        }
    }

    /// Takes note of a block that was just made, with its first slot in use.
    pub(super) fn insert_new(&self, lane: usize, block: u64) {
        let state = State { taken: 1, owner: lane, listed: true, ..State::default() };
        self.note(0, state.free());
        self.shard(block).blocks.lock().insert(block, state);
        self.lanes[lane].with(|list| list.push_back(block));
    }

    /// The operation that has picked a slot is over.
    pub(super) fn arrived(&self, block: u64, slot: u8, committed: bool) {
        let bit = 1u16 << slot;
        self.update_known(block, |state| {
            state.arriving &= !bit;
            if !committed {
                state.taken &= !bit;
            }
        });
    }

    /// The operation that was to free a slot, and the block if it was the `last`, is over.
    pub(super) fn left(&self, block: u64, slot: u8, committed: bool, last: bool) {
        if committed && last {
            return self.remove(block);
        }
        let bit = 1u16 << slot;
        self.update_known(block, |state| {
            state.leaving &= !bit;
            if committed {
                state.taken &= !bit;
            } else {
                state.dying = false;
            }
        });
    }

    /// Marks a slot as leaving; true if the block goes with it. Waits while no other slot is in use for sure,
    /// for all others are arriving or leaving: whether one of them stays must be known when the record is made,
    /// and in the log before it. Else an abort, or a crash that loses a creation, would leave an empty block
    /// that nobody knows.
    pub(super) fn leave(&self, node: &PageRef, slot: u8) -> Result<bool> {
        let bit = 1u16 << slot;
        let shard = self.shard(node.block());
        let mut blocks = shard.blocks.lock();
        loop {
            let state = blocks.entry(node.block()).or_insert_with(|| {
                let state = State { taken: slots_in_use(node), owner: lane::current(), ..State::default() };
                self.note(0, state.free());
                state
            });
            if state.taken & bit == 0 || state.leaving & bit != 0 {
                return Err(Error::Corrupt {
                    what: "node block",
                    place: format!("block {} slot {slot}", node.block()),
                    detail: "the inode is to be freed, but its slot is free".into(),
                });
            }
            let others = state.taken & !bit;
            if others == 0 {
                state.leaving |= bit;
                state.dying = true;
                return Ok(true);
            }
            if others & !(state.leaving | state.arriving) != 0 {
                state.leaving |= bit;
                return Ok(false);
            }
            crate::blocking::about_to_block();
            shard.left.wait(&mut blocks);
        }
    }

    fn remove(&self, block: u64) {
        let shard = self.shard(block);
        if let Some(state) = shard.blocks.lock().remove(&block) {
            self.note(state.free(), 0);
        }
        shard.left.notify_all();
    }
}

/// The slots of a page whose inode has an id.
fn slots_in_use(node: &PageRef) -> u16 {
    node.read(|bytes| {
        let nids = bytes.chunks_exact(INODE_SIZE).map(|inode| inode[8..16] != [0; 8]);
        nids.enumerate().map(|(slot, in_use)| u16::from(in_use) << slot).sum()
    })
}
