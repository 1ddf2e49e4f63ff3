//! Blocks as transactions know them: which transaction a block is in, which comes next, and how it was before that.
//!
//! What jbd2 calls a journal head. A block that the committing transaction has still to copy, and that an operation of
//! the running one is about to change, is *frozen* first: copied by that operation.

use super::touched::{BLOCK_BYTES, Buffer, Touch, UNIT_BYTES};
use crate::device::BLOCK_SIZE;
use crate::hasher::NumberMap;
use crate::sync::{Arc, CachePadded, Mutex};

/// Parts of the table, each under a lock of its own: in jbd2 the block itself leads to its head.
const SHARDS: u64 = 64;

/// Every block of the running and of the committing transaction.
pub(super) struct Table(Box<[CachePadded<Mutex<NumberMap<Arc<Head>>>>]>);

/// A block's place in transactions.
pub(super) struct Head {
    buffer: Arc<dyn Buffer>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The transaction that it is in; 0: in none.
    now: Part,
    /// Where it is to be once that has committed; 0: nowhere.
    next: Part,
    /// The committing transaction has copied it.
    copied: bool,
    frozen: Option<Box<[u8; BLOCK_SIZE]>>,
    /// Not in the table any more.
    dead: bool,
}

/// What of a block a transaction logs.
#[derive(Default)]
struct Part {
    transaction: u64,
    units: u16,
    made: Vec<u8>,
}

/// What was added to a transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Added {
    /// Bytes of its record.
    pub bytes: usize,
    /// The block was not in it before.
    pub is_new: bool,
}

impl Part {
    fn add(&mut self, transaction: u64, touch: &Touch, as_units: bool) -> Added {
        let is_new = self.transaction != transaction;
        if is_new {
            *self = Part { transaction, ..Part::default() };
        }
        let before = self.bytes(as_units);
        self.units |= if as_units { touch.units } else { u16::MAX };
        if self.made.is_empty() {
            self.made.extend_from_slice(&touch.made);
        }
        Added { bytes: self.bytes(as_units) - before, is_new }
    }

    fn bytes(&self, as_units: bool) -> usize {
        let images = match self.units.count_ones() as usize {
            0 => 0,
            units if as_units => units * UNIT_BYTES,
            _ => BLOCK_BYTES,
        };
        images + self.made.len()
    }
}

impl Table {
    pub(super) fn new() -> Table {
        Table((0..SHARDS).map(|_| CachePadded::new(Mutex::default())).collect())
    }

    fn shard(&self, block: u64) -> &Mutex<NumberMap<Arc<Head>>> {
        &self.0[(block % SHARDS) as usize]
    }

    /// Puts a block, which the caller is about to change, into the running transaction.
    pub(super) fn add(&self, running: u64, touch: &Touch, as_units: bool) -> (Arc<Head>, Added) {
        loop {
            let head = self.head(&touch.buffer);
            let mut state = head.state.lock();
            if state.dead {
                continue;
            }
            let in_other = state.now.transaction != 0 && state.now.transaction != running;
            let part = if in_other {
                if !state.copied && state.frozen.is_none() {
                    let mut frozen = Box::new([0; BLOCK_SIZE]);
                    head.buffer.copy(&mut frozen);
                    state.frozen = Some(frozen);
                }
                &mut state.next
            } else {
                &mut state.now
            };
            let added = part.add(running, touch, as_units);
            drop(state);
            return (head, added);
        }
    }

    fn head(&self, buffer: &Arc<dyn Buffer>) -> Arc<Head> {
        let mut shard = self.shard(buffer.block()).lock();
        let made = || Arc::new(Head { buffer: Arc::clone(buffer), state: Mutex::default() });
        Arc::clone(shard.entry(buffer.block()).or_insert_with(made))
    }

    /// The block holds metadata no more: the running transaction need not log it. The bytes that it has taken.
    pub(super) fn forget(&self, running: u64, block: u64, as_units: bool) -> usize {
        let Some(head) = self.shard(block).lock().get(&block).cloned() else { return 0 };
        let mut state = head.state.lock();
        let State { now, next, .. } = &mut *state;
        let part = if now.transaction == running { now } else { next };
        if part.transaction != running {
            return 0;
        }
        let bytes = part.bytes(as_units);
        // It stays in the transaction's list, where nothing is to be logged of it.
        *part = Part { transaction: running, ..Part::default() };
        bytes
    }

    /// The transaction has committed: the block goes on to the next that it is in, or out of the table.
    pub(super) fn refile(&self, head: &Head) {
        let mut state = head.state.lock();
        let next = std::mem::take(&mut state.next);
        *state = State { dead: next.transaction == 0, now: next, ..State::default() };
        if state.dead {
            drop(state);
            self.shard(head.buffer.block()).lock().remove(&head.buffer.block());
        }
    }
}

impl Head {
    /// Appends what the transaction logs of the block: as it was frozen, or as it is.
    pub(super) fn log(&self, transaction: u64, as_units: bool, into: &mut Vec<u8>) {
        let mut state = self.state.lock();
        let State { now, frozen, copied, .. } = &mut *state;
        debug_assert_eq!(now.transaction, transaction);
        into.extend_from_slice(&now.made);
        match now.units {
            0 => {}
            units if as_units => self.buffer.log_units(units, frozen.as_deref(), into),
            _ => self.buffer.log_block(frozen.as_deref(), into),
        }
        *copied = true;
    }
}
