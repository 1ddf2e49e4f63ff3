//! Slots for inodes: which slots of the node blocks in play are free.
//!
//! A node block is *known* from its creation, or from the first slot that is freed in it, until it is full
//! or freed. Only known blocks get new inodes. What was on media before and has free slots is not looked for;
//! it becomes known when one of its inodes is freed.

use crate::format::{INODE_SIZE, INODES_PER_BLOCK};
use crate::hasher::NumberMap;
use crate::lane;
use crate::store::PageRef;
use crate::sync::{CachePadded, Condvar, LaneCounter, Mutex};
use crate::{Error, Result};

const SHARDS: usize = 64;
const FULL: u16 = u16::MAX;
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

/// The known node blocks of one image.
pub(super) struct Nodes {
    shards: Box<[CachePadded<Shard>]>,
    /// Blocks that had free slots when last looked at; the last is filled. Locked before a shard.
    lanes: Box<[CachePadded<Mutex<Vec<u64>>>]>,
    /// Free slots that known blocks have got, and those that they have lost.
    got: LaneCounter,
    lost: LaneCounter,
}

impl Nodes {
    /// Nothing is known yet.
    pub(super) fn new() -> Nodes {
        Nodes {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            lanes: (0..lane::count()).map(|_| CachePadded::new(Mutex::new(Vec::new()))).collect(),
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
        let mut list = self.lanes[lane].lock();
        while let Some(block) = list.last().copied() {
            let mut blocks = self.shard(block).blocks.lock();
            match blocks.get_mut(&block) {
                Some(state) if state.owner == lane && !state.dying && state.taken != FULL => {
                    let slot = state.taken.trailing_ones() as u8;
                    state.taken |= 1 << slot;
                    state.arriving |= 1 << slot;
                    self.lost.add(1);
                    return Some((block, slot));
                }
                Some(state) if state.owner == lane => {
                    state.listed = false;
                    if state.is_done() {
                        blocks.remove(&block);
                    }
                }
                // Freed since; perhaps made anew by another lane.
                _ => {}
            }
            list.pop();
        }
        None
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
            self.lanes[owner].lock().push(block);
        }
    }

    /// Takes note of a block that was just made, with its first slot in use.
    pub(super) fn insert_new(&self, lane: usize, block: u64) {
        let state = State { taken: 1, owner: lane, listed: true, ..State::default() };
        self.note(0, state.free());
        self.shard(block).blocks.lock().insert(block, state);
        self.lanes[lane].lock().push(block);
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
