//! Handles: numbers that stand for what is open.
//!
//! A handle is made of a slot's index, the kind, and how often the slot was used; it is never given out again. Slots lie
//! in chunks that are never freed, so that any number can be looked up. What a slot holds is dropped by whoever closes
//! it, or by the last thread that was using it then ([`hazard`]). Nothing here takes a lock: a child that is forked at
//! any moment can use it.

#![allow(
    unsafe_code,
    reason = "a leaf module: slots that threads share; guarded by its tests and tests/c/threads.c"
)]

use crate::fail::{Failure, Outcome};
use crate::hazard;
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

const INDEX_BITS: u32 = 26;
const KIND_BITS: u32 = 3;
const GENERATION: u32 = INDEX_BITS + KIND_BITS;
const LAST_GENERATION: u64 = (1 << (63 - GENERATION)) - 1;
/// Beside a handle in its slot: it was closed, and is in use.
const CLOSED: u64 = 1 << 63;

/// Slots of the first chunk; each has twice as many as that before it.
const FIRST: u32 = 64;
const CHUNKS: usize = (INDEX_BITS - 5) as usize;

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
    /// The index of the first that is free, and 1; above it how often that has changed.
    free: AtomicU64,
}

// SAFETY: what it holds is handed to many threads, and dropped by any.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

/// What is known by a handle.
pub(crate) trait Object: Send + Sync + Sized + 'static {
    /// What C has a pointer to.
    type Opaque;
    fn table() -> &'static Table<Self>;
}

/// What became of what was closed.
pub(crate) enum Closed<T> {
    Taken(T),
    /// Others are using it, the last of whom drops it.
    InUse,
    /// It is the parent's: this process was forked since.
    Forked,
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

fn bad() -> Failure {
    Failure::of(libc::EBADF, "the handle is none that is open")
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: u64) -> Table<T> {
        assert!(kind < 1 << KIND_BITS);
        Table {
            kind,
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            begun: AtomicU32::new(0),
            free: AtomicU64::new(0),
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
            let index = (free as u32).checked_sub(1)?;
            let next = self.slot(index)?.next.load(Ordering::Relaxed);
            let new = (free >> 32).wrapping_add(1) << 32 | u64::from(next);
            match self.free.compare_exchange_weak(free, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(other) => free = other,
            }
        }
    }

    fn push(&self, index: u32, slot: &Slot<T>) {
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            slot.next.store(free as u32, Ordering::Relaxed);
            let new = (free >> 32).wrapping_add(1) << 32 | u64::from(index + 1);
            match self.free.compare_exchange_weak(free, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => free = other,
            }
        }
    }

    /// A slot that was never used; its chunk is made if it is the first of that.
    fn begin(&self) -> Option<u32> {
        let next = |begun: u32| (begun < 1 << INDEX_BITS).then_some(begun + 1);
        let index = self.begun.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        let chunk = (index + FIRST).ilog2() - FIRST.ilog2();
        let place = self.chunks.get(chunk as usize)?;
        if place.load(Ordering::Acquire).is_null() {
            let slot = || Slot {
                state: AtomicU64::new(0),
                generation: AtomicU64::new(0),
                process: AtomicU32::new(0),
                next: AtomicU32::new(0),
                value: UnsafeCell::new(None),
            };
            let slots: Box<[Slot<T>]> = (0..FIRST << chunk).map(|_| slot()).collect();
            let slots = Box::into_raw(slots);
            let first = slots.cast::<Slot<T>>();
            if place.compare_exchange(ptr::null_mut(), first, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                // SAFETY: another thread has made the chunk, and nobody has seen this one.
                drop(unsafe { Box::from_raw(slots) });
            }
        }
        Some(index)
    }

    /// Opens a handle.
    pub(crate) fn insert(&self, value: T) -> Outcome<u64> {
        hazard::prepare();
        let index = self.pop().or_else(|| self.begin());
        let full = || Failure::of(libc::ENFILE, "there are too many open handles: close some");
        let index = index.ok_or_else(full)?;
        let slot = self.slot(index).ok_or_else(full)?;
        let generation = slot.generation.load(Ordering::Relaxed) + 1;
        slot.generation.store(generation, Ordering::Relaxed);
        slot.process.store(hazard::process(), Ordering::Relaxed);
        // SAFETY: the slot is this thread's until its state says that it is open.
        unsafe { *slot.value.get() = Some(value) };
        let id = generation << GENERATION | self.kind << INDEX_BITS | u64::from(index);
        slot.state.store(id, Ordering::Release);
        Ok(id)
    }

    /// Uses what a handle stands for; it stays until that has returned.
    #[inline]
    pub(crate) fn with<R>(&self, id: u64, call: impl FnOnce(&T) -> Outcome<R>) -> Outcome<R> {
        let Some(slot) = self.slot_of(id) else { return Err(bad()) };
        let Some(in_use) = hazard::enter(id) else {
            let words = "calls within calls: what is called back must not use the file system";
            return Err(Failure::of(libc::EDEADLK, words));
        };
        // From here on a thread that closes it sees that it is in use, or this one sees that it was closed.
        if slot.state.load(Ordering::Acquire) != id {
            in_use.leave();
            // It may have been closed in between, by a thread that left it to this one.
            if slot.state.load(Ordering::Relaxed) == id | CLOSED {
                drop(self.take_if_unused(slot, id));
            }
            return Err(bad());
        }
        let leaving = Leaving { table: self, slot, id, in_use };
        // SAFETY: it is open and said to be in use: nobody writes or drops it before `leaving` is dropped.
        let value = unsafe { (*slot.value.get()).as_ref() };
        let result = value.map_or_else(|| Err(bad()), call);
        drop(leaving);
        result
    }

    /// Whether a handle was opened by this very process. One that is none counts as such.
    pub(crate) fn is_ours(&self, id: u64) -> bool {
        self.slot_of(id).is_none_or(|slot| slot.process.load(Ordering::Relaxed) == hazard::process())
    }

    /// Closes a handle: no call that begins later knows it.
    pub(crate) fn close(&self, id: u64) -> Outcome<Closed<T>> {
        let Some(slot) = self.slot_of(id) else { return Err(bad()) };
        let is_ours = self.is_ours(id);
        slot.state
            .compare_exchange(id, id | CLOSED, Ordering::SeqCst, Ordering::Relaxed)
            .map_err(|_| bad())?;
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
        let value = unsafe { (*slot.value.get()).take() };
        if slot.generation.load(Ordering::Relaxed) < LAST_GENERATION {
            self.push((id & ((1 << INDEX_BITS) - 1)) as u32, slot);
        }
        value
    }
}

/// Opens a handle for C.
pub(crate) fn open<T: Object>(value: T) -> Outcome<*mut T::Opaque> {
    T::table().insert(value).map(|id| id as usize as *mut T::Opaque)
}

/// Uses what a handle of C stands for.
#[inline]
pub(crate) fn with<T: Object, R>(
    handle: *const T::Opaque,
    call: impl FnOnce(&T) -> Outcome<R>,
) -> Outcome<R> {
    T::table().with(handle as usize as u64, call)
}

/// Closes a handle of C.
pub(crate) fn close<T: Object>(handle: *mut T::Opaque) -> Outcome<Closed<T>> {
    T::table().close(handle as usize as u64)
}

/// Closes a handle whose end has nothing to tell.
pub(crate) fn end<T: Object>(handle: *mut T::Opaque) -> Outcome<()> {
    match close::<T>(handle)? {
        // Dropped here, or by the last who uses it.
        Closed::Taken(_) | Closed::InUse => Ok(()),
        Closed::Forked => Err(Failure::forked()),
    }
}

/// Uses what can be used by one thread at a time, and is locked: not in a child, where a thread of the parent may hold
/// it for ever.
pub(crate) fn with_ours<T: Object, R>(
    handle: *const T::Opaque,
    call: impl FnOnce(&T) -> Outcome<R>,
) -> Outcome<R> {
    if !T::table().is_ours(handle as usize as u64) {
        return Err(Failure::forked());
    }
    with(handle, call)
}

#[cfg(test)]
mod tests;
