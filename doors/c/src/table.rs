//! Handles: numbers that stand for what is open.
//!
//! A handle is made of a slot's index, the kind, and how often the slot was used; it is never given out again. Slots lie
//! in chunks that are never freed, so that any number can be looked up. What a slot holds is dropped by whoever closes
//! it, or by the last thread that was using it then ([`hazard`]). Nothing here takes a lock: a child that is forked at
//! any moment can use it.

#![allow(
    unsafe_code,
    reason = "a leaf module: slots that threads share; guarded by its models and tests, and tests/c/threads.c"
)]

use crate::hazard;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, UnsafeCell, constant, nulls};
use std::ptr;

const INDEX_BITS: u32 = 26;
const KIND_BITS: u32 = 3;
const GENERATION: u32 = INDEX_BITS + KIND_BITS;
/// Of the head of the free list: an index and 1.
const NEXT_BITS: u32 = INDEX_BITS + 1;
const NEXT: u64 = (1 << NEXT_BITS) - 1;
const LAST_GENERATION: u64 = (1 << (63 - GENERATION)) - 1;
/// Beside a handle in its slot: it was closed, and is in use.
const CLOSED: u64 = 1 << 63;

/// Slots of the first chunk; each has twice as many as that before it.
const FIRST: u32 = if cfg!(loom) { 4 } else { 64 };
const CHUNKS: usize = if cfg!(loom) { 1 } else { (INDEX_BITS - 5) as usize };

/// Lines of their own: who opens and closes does not disturb the neighbours.
#[repr(align(64))]
struct Slot<T> {
    /// The handle, while it is open.
    state: AtomicU64,
    generation: AtomicU64,
    /// The process that has opened it.
    process: AtomicU32,
    /// The index of the next that is free, and 1.
    next: AtomicU32,
    value: UnsafeCell<Option<T>>,
}

/// The handles of one kind.
pub(crate) struct Table<T> {
    kind: u64,
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    /// Slots that were ever used.
    begun: AtomicU32,
    /// The index of the first that is free, and 1; above it how often that has changed, so that no thread takes a head
    /// that has gone and come back meanwhile for the one that it has seen: in 37 bits, after which it would have to have
    /// slept for hours.
    free: AtomicU64,
}

// SAFETY: what it holds is handed to many threads, and dropped by any.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

/// What became of what was closed.
pub(crate) enum Closed<T> {
    Taken(T),
    /// Others are using it, the last of whom drops it.
    InUse,
    /// It is the parent's: this process was forked since.
    Forked,
}

/// Why a table has done nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The number is no handle that is open.
    Bad,
    /// There are as many handles as there can be.
    Full,
    /// There is no memory for more.
    Memory,
    /// The thread uses as many already as it can.
    Nested,
}

/// Nobody's any more: dropped when the last has left it.
struct Leaving<'a, T> {
    table: &'a Table<T>,
    slot: &'a Slot<T>,
    id: u64,
    in_use: hazard::InUse,
}

impl<T> Drop for Leaving<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.in_use.leave();
        if self.slot.state.load(Ordering::Relaxed) != self.id {
            drop(self.table.take_if_unused(self.slot, self.id));
        }
    }
}

/// The head of the free list with another first slot.
fn changed(free: u64, next: u32) -> u64 {
    (free >> NEXT_BITS).wrapping_add(1) << NEXT_BITS | u64::from(next)
}

/// Makes a chunk, unless another thread is quicker.
#[cold]
fn make_chunk<T>(place: &AtomicPtr<Slot<T>>, slots: usize) -> Result<(), Refused> {
    let mut chunk: Vec<Slot<T>> = Vec::new();
    chunk.try_reserve_exact(slots).map_err(|_| Refused::Memory)?;
    chunk.resize_with(slots, || Slot {
        state: AtomicU64::new(0),
        generation: AtomicU64::new(0),
        process: AtomicU32::new(0),
        next: AtomicU32::new(0),
        value: UnsafeCell::new(None),
    });
    let first = chunk.as_mut_ptr();
    if place.compare_exchange(ptr::null_mut(), first, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        // It stays for ever.
        std::mem::forget(chunk);
    }
    Ok(())
}

impl<T> Table<T> {
    constant! {
        pub(crate) fn new(kind: u64) -> Table<T> {
            assert!(kind < 1 << KIND_BITS);
            Table {
                kind,
                chunks: nulls!(CHUNKS),
                begun: AtomicU32::new(0),
                free: AtomicU64::new(0),
            }
        }
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let at = index + FIRST;
        let chunk = at.ilog2() - FIRST.ilog2();
        let slots = self.chunks.get(chunk as usize)?.load(Ordering::Acquire);
        // SAFETY: a chunk has as many slots as lead to it, and is never freed.
        (!slots.is_null()).then(|| unsafe { &*slots.add((at - (FIRST << chunk)) as usize) })
    }

    /// The slot that a handle of this kind would have.
    #[inline]
    fn slot_of(&self, id: u64) -> Option<&Slot<T>> {
        let is_kind = id >> INDEX_BITS & ((1 << KIND_BITS) - 1) == self.kind && id & CLOSED == 0;
        if is_kind { self.slot((id & ((1 << INDEX_BITS) - 1)) as u32) } else { None }
    }

    fn pop(&self) -> Option<u32> {
        let mut free = self.free.load(Ordering::Acquire);
        loop {
            let index = ((free & NEXT) as u32).checked_sub(1)?;
            let next = self.slot(index)?.next.load(Ordering::Relaxed);
            let new = changed(free, next);
            match self.free.compare_exchange_weak(free, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(other) => free = other,
            }
        }
    }

    fn push(&self, index: u32, slot: &Slot<T>) {
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            slot.next.store((free & NEXT) as u32, Ordering::Relaxed);
            let new = changed(free, index + 1);
            match self.free.compare_exchange_weak(free, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => free = other,
            }
        }
    }

    /// A slot that was never used; its chunk is made if it is the first of that.
    fn begin(&self) -> Result<u32, Refused> {
        let mut index = self.begun.load(Ordering::Relaxed);
        loop {
            let chunk = (index + FIRST).ilog2() - FIRST.ilog2();
            let place =
                self.chunks.get(chunk as usize).filter(|_| index < 1 << INDEX_BITS).ok_or(Refused::Full)?;
            // Before the index is taken: where there is no memory nobody has taken anything.
            if place.load(Ordering::Acquire).is_null() {
                make_chunk(place, (FIRST << chunk) as usize)?;
            }
            match self.begun.compare_exchange_weak(index, index + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(index),
                Err(other) => index = other,
            }
        }
    }

    /// Opens a handle.
    pub(crate) fn insert(&self, value: T) -> Result<u64, Refused> {
        hazard::prepare();
        let index = self.pop().map_or_else(|| self.begin(), Ok)?;
        let slot = self.slot(index).ok_or(Refused::Full)?;
        let generation = slot.generation.load(Ordering::Relaxed) + 1;
        slot.generation.store(generation, Ordering::Relaxed);
        slot.process.store(hazard::process(), Ordering::Relaxed);
        // SAFETY: the slot is this thread's until its state says that it is open.
        slot.value.with_mut(|place| unsafe { *place = Some(value) });
        let id = generation << GENERATION | self.kind << INDEX_BITS | u64::from(index);
        slot.state.store(id, Ordering::Release);
        Ok(id)
    }

    /// Uses what a handle stands for; it stays until that has returned.
    #[inline]
    pub(crate) fn with<R>(&self, id: u64, call: impl FnOnce(&T) -> R) -> Result<R, Refused> {
        let Some(slot) = self.slot_of(id) else { return Err(Refused::Bad) };
        let Some(in_use) = hazard::enter(id) else { return Err(Refused::Nested) };
        // From here on a thread that closes it sees that it is in use, or this one sees that it was closed.
        if slot.state.load(Ordering::Acquire) != id {
            in_use.leave();
            // It may have been closed in between, by a thread that left it to this one.
            if slot.state.load(Ordering::Relaxed) == id | CLOSED {
                drop(self.take_if_unused(slot, id));
            }
            return Err(Refused::Bad);
        }
        let leaving = Leaving { table: self, slot, id, in_use };
        let result = slot.value.with(|value| {
            // SAFETY: it is open and said to be in use: nobody writes or drops it before `leaving` is dropped.
            let value = unsafe { (*value).as_ref() };
            value.map(call).ok_or(Refused::Bad)
        });
        drop(leaving);
        result
    }

    /// Whether a handle was opened by this very process. One that is none counts as such.
    pub(crate) fn is_ours(&self, id: u64) -> bool {
        self.slot_of(id).is_none_or(|slot| slot.process.load(Ordering::Relaxed) == hazard::process())
    }

    /// Closes a handle: no call that begins later knows it.
    pub(crate) fn close(&self, id: u64) -> Result<Closed<T>, Refused> {
        let Some(slot) = self.slot_of(id) else { return Err(Refused::Bad) };
        let is_ours = self.is_ours(id);
        slot.state
            .compare_exchange(id, id | CLOSED, Ordering::SeqCst, Ordering::Relaxed)
            .map_err(|_| Refused::Bad)?;
        if !is_ours {
            // Threads that this process has not say for ever that they use it.
            return Ok(Closed::Forked);
        }
        Ok(self.take_if_unused(slot, id).map_or(Closed::InUse, Closed::Taken))
    }

    /// What was closed, for the one who finds first that nobody uses it any more.
    #[cold]
    fn take_if_unused(&self, slot: &Slot<T>, id: u64) -> Option<T> {
        // A parent's stays the parent's. Without a fence in all threads it stays for ever.
        if slot.process.load(Ordering::Relaxed) != hazard::process()
            || !hazard::heavy()
            || hazard::is_used(id)
        {
            return None;
        }
        slot.state.compare_exchange(id | CLOSED, 0, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        // SAFETY: nobody uses it, nobody can begin to, and the exchange has left it to this thread alone.
        let value = slot.value.with_mut(|value| unsafe { (*value).take() });
        if slot.generation.load(Ordering::Relaxed) < LAST_GENERATION {
            self.push((id & ((1 << INDEX_BITS) - 1)) as u32, slot);
        }
        value
    }
}

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;
