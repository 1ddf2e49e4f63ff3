//! Which handles the threads are in the midst of using, so that what one closes stays until the last has left it.
//!
//! Each thread says in a record of its own which handles it uses: a store on the way in and one on the way out, to a
//! line that no other thread writes. Whoever closes a handle marks it, and looks at all records. So that neither misses
//! the other there must be a full fence between a thread's store and its look at the mark; those who close order it for
//! all threads by membarrier(2), and the others pay nothing. Where the kernel has none, each pays for its own.
//!
//! Invariants: a record is never freed, only used by another thread; the handles of a thread are left in the reverse
//! order in which they were entered.

#![allow(
    unsafe_code,
    reason = "a leaf module: membarrier(2), a handler of forks, and records that live for ever"
)]

use crate::sync::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence, shared, thread_local};
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::compiler_fence;

/// Handles that a thread can use at once: two, and what callbacks use which should use none.
const DEEPEST: usize = if cfg!(loom) { 1 } else { 8 };

pub(crate) struct Record {
    used: [AtomicU64; DEEPEST],
    /// How many there are. The thread's own.
    depth: AtomicUsize,
    taken: AtomicBool,
    next: *const CachePadded<Record>,
}

// SAFETY: all but `next` are atomics; that is written before others see the record.
unsafe impl Sync for Record {}

shared! {
    static RECORDS: AtomicPtr<CachePadded<Record>> = AtomicPtr::new(ptr::null_mut());
}

/// Whether every thread fences for itself: until it is known that nobody need. A model knows no other fences.
static FENCED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);

/// Processes before this one: a child that is forked is the next.
static FORKS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

extern "C" fn in_the_child() {
    // Relaxed: the child has one thread.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

const REGISTER: libc::c_int = 1 << 4;
const FENCE: libc::c_int = 1 << 3;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Before there is any handle.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler does nothing but use an atomic, and the library is never unloaded (`-z nodelete`).
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
        assert_eq!(failed, 0, "the C library has no memory for a handler of forks");
        FENCED.store(cfg!(loom) || !(membarrier(REGISTER) && membarrier(FENCE)), Ordering::SeqCst);
    });
}

/// Which process this is.
#[inline]
pub(crate) fn process() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

impl Record {
    fn take() -> &'static CachePadded<Record> {
        let mut at = RECORDS.load(Ordering::Acquire).cast_const();
        // SAFETY: a record that is in the list is never freed.
        while let Some(record) = unsafe { at.as_ref() } {
            if !record.taken.swap(true, Ordering::Acquire) {
                return record;
            }
            at = record.next;
        }
        let mut record = Box::new(CachePadded::new(Record {
            used: std::array::from_fn(|_| AtomicU64::new(0)),
            depth: AtomicUsize::new(0),
            taken: AtomicBool::new(true),
            next: ptr::null(),
        }));
        let mut head = RECORDS.load(Ordering::Acquire);
        loop {
            record.next = head;
            let new = Box::into_raw(record);
            match RECORDS.compare_exchange(head, new, Ordering::SeqCst, Ordering::Acquire) {
                // SAFETY: it is in the list, and stays.
                Ok(_) => return unsafe { &*new },
                Err(other) => {
                    head = other;
                    // SAFETY: nobody else has seen it.
                    record = unsafe { Box::from_raw(new) };
                }
            }
        }
    }
}

/// The record of a thread, given back at its end.
struct Own(Cell<Option<&'static CachePadded<Record>>>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(record) = self.0.take() {
            record.taken.store(false, Ordering::Release);
        }
    }
}

#[cfg(not(loom))]
thread_local! {
    static OWN: Own = const { Own(Cell::new(None)) };
}
#[cfg(loom)]
thread_local! {
    static OWN: Own = Own(Cell::new(None));
}

/// A handle that this thread says it uses.
///
/// Two words, which fit the registers.
pub(crate) struct InUse {
    record: &'static CachePadded<Record>,
    /// Which of the record's; with [`BORROWED`] the record is given back too.
    depth: usize,
}

/// The thread is ending, and has no record of its own any more.
const BORROWED: usize = 1 << 63;

/// A full fence, or a compiler's alone where those who close see to the rest.
#[inline]
fn light() {
    if FENCED.load(Ordering::Relaxed) {
        fence(Ordering::SeqCst);
    } else {
        compiler_fence(Ordering::SeqCst);
    }
}

/// A full fence in all threads; false if that could not be.
pub(crate) fn heavy() -> bool {
    fence(Ordering::SeqCst);
    FENCED.load(Ordering::Relaxed) || membarrier(FENCE) || (membarrier(REGISTER) && membarrier(FENCE))
}

/// Says that this thread uses a handle; whether it is open is to be looked at after. None if it uses too many already.
#[inline(always)]
pub(crate) fn enter(id: u64) -> Option<InUse> {
    let own = OWN.try_with(|own| match own.0.get() {
        Some(record) => record,
        None => first(own),
    });
    let (record, borrowed) = match own {
        Ok(record) => (record, 0),
        Err(_) => (Record::take(), BORROWED),
    };
    let depth = record.depth.load(Ordering::Relaxed);
    let used = record.used.get(depth)?;
    record.depth.store(depth + 1, Ordering::Relaxed);
    // Release: who finds this in the place of a 0 has seen what was before that, too.
    used.store(id, Ordering::Release);
    light();
    Some(InUse { record, depth: depth | borrowed })
}

#[cold]
fn first(own: &Own) -> &'static CachePadded<Record> {
    let record = Record::take();
    own.0.set(Some(record));
    record
}

impl InUse {
    /// Says that it is used no more; whether it was closed meanwhile is to be looked at after.
    #[inline]
    pub(crate) fn leave(&self) {
        let depth = self.depth & !BORROWED;
        self.record.used[depth].store(0, Ordering::Release);
        self.record.depth.store(depth, Ordering::Relaxed);
        light();
        if self.depth != depth {
            self.record.taken.store(false, Ordering::Release);
        }
    }
}

/// Whether some thread uses a handle. To be asked after [`heavy`].
pub(crate) fn is_used(id: u64) -> bool {
    let mut at = RECORDS.load(Ordering::SeqCst).cast_const();
    // SAFETY: a record that is in the list is never freed.
    while let Some(record) = unsafe { at.as_ref() } {
        if record.used.iter().any(|used| used.load(Ordering::Acquire) == id) {
            return true;
        }
        at = record.next;
    }
    false
}
