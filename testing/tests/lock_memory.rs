//! What a range lock costs in memory while nobody is in the way: nothing. One test, for it counts allocations.

#![allow(unsafe_code, reason = "an allocator that counts")]

use narufs_engine::lock::{FileLock, RangeLock};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting by thread.
struct Counting;

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing. Guarded by the test below.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller has promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller has promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn pairs(lock: &RangeLock) {
    for i in 0..1000_u64 {
        let page = i * 4096..(i + 1) * 4096;
        drop(lock.write(page.clone()));
        drop(lock.read(page.clone()));
        drop(lock.try_write(page.clone()).expect("free"));
        assert!(!lock.is_written(page));
        drop(lock.write(i * 4096..(i + 64) * 4096));
        drop(lock.write(i * 4096..u64::MAX));
    }
}

#[test]
fn ranges_that_meet_nobody_take_no_memory() {
    let lock = RangeLock::for_file(1);
    for by in ["the word", "the table"] {
        if by == "the table" {
            // A conflict makes it.
            let held = lock.write(0..1);
            assert!(lock.try_write(0..1).is_none());
            drop(held);
        }
        // What threads keep for themselves.
        pairs(&lock);
        let before = ALLOCATIONS.get();
        pairs(&lock);
        assert_eq!(ALLOCATIONS.get(), before, "by {by}");
    }
}
