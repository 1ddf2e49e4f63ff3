//! Models of the frame's state word. Where bytes are read without a pin they are two atomics; else a cell that
//! reports two who are not ordered one behind the other.
//!
//! Each rule was broken by hand in turn; what then failed (among others):
//!
//! | broken | fails |
//! | --- | --- |
//! | `flags` Acquire, `set` and `clear` Release: to Relaxed | `what_a_flag_says_is_done` |
//! | `pin` Acquire, `unpin` Release, `publish` Release, `claim` Acquire: to Relaxed | `who_has_a_pin_is_not_disturbed` |
//! | `pin` of a busy frame, `claim` of a pinned one | `who_has_a_pin_is_not_disturbed` |
//! | `try_latch` and `try_latch_unpinned` Acquire, `unlatch` Release: to Relaxed | `who_has_the_latch_is_alone` |
//! | `try_latch_unpinned` of a latched frame | `who_has_the_latch_is_alone` |
//! | `try_latch_unpinned` of a busy frame, `claim` of a latched one | `a_latched_frame_does_not_leave` |
//! | `try_latch`, `try_latch_unpinned`: no fence | `bytes_seen_at_a_glance_are_of_one_version` |
//! | `unlatch`: the version stays | `bytes_seen_at_a_glance_are_of_one_version` |
//! | `is_as_seen`: no fence, or a look at the version or the latch less | `bytes_seen_at_a_glance_are_of_one_version` |
//! | `claim`: no fence, or the version stays; `publish`: the version is lost | `a_frame_that_left_is_not_taken_for_the_page` |
//! | `see`: Acquire to Relaxed, or a busy frame is seen | `a_frame_that_left_is_not_taken_for_the_page` |
//! | `taken_over`: no fence | `a_free_frame_that_another_thread_fills_is_not_taken_for_the_page` |
//!
//! Not needed, but cheap: that `see` refuses a latched frame, and `is_as_seen` a busy one. The version tells of both.

use super::FrameState;
use super::frame::{self, Frame};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, thread};
use loom::cell::UnsafeCell;

struct Page {
    frame: Frame,
    bytes: [AtomicU64; 2],
}

fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn page() -> Arc<Page> {
    let page = Page { frame: Frame::new(), bytes: [AtomicU64::new(0), AtomicU64::new(0)] };
    page.frame.publish(FrameState::DIRTY);
    page.frame.unpin();
    Arc::new(page)
}

impl Page {
    /// As `Latched::write` and `Fresh::bytes` do: in no order.
    fn write(&self, value: u64) {
        self.bytes.iter().for_each(|half| half.store(value, Ordering::Relaxed));
    }

    fn glance(&self) {
        let Some(seen) = self.frame.see() else { return };
        let [one, two] = [&self.bytes[1], &self.bytes[0]].map(|half| half.load(Ordering::Relaxed));
        if self.frame.is_as_seen(seen) {
            assert_eq!(one, two, "half of what was written");
        }
    }
}

#[test]
fn bytes_seen_at_a_glance_are_of_one_version() {
    for pinned in [false, true] {
        bounded(move || {
            let page = page();
            let theirs = page.clone();
            let writer = thread::spawn(move || {
                for value in 1..3 {
                    let latched = if pinned {
                        assert!(theirs.frame.pin());
                        theirs.frame.try_latch()
                    } else {
                        theirs.frame.try_latch_unpinned()
                    };
                    // The reader's mark that the frame was used may be in the way.
                    if latched {
                        theirs.write(value);
                        theirs.frame.unlatch();
                    }
                    if pinned {
                        theirs.frame.unpin();
                    }
                }
            });
            page.glance();
            writer.join().expect("a model's threads do not panic");
        });
    }
}

#[test]
fn a_frame_that_left_is_not_taken_for_the_page() {
    bounded(|| {
        let page = page();
        let slot = Arc::new(AtomicU64::new(1));
        let (theirs, their_slot) = (page.clone(), slot.clone());
        let evictor = thread::spawn(move || {
            // As `FramePool::evict` and `Fresh::publish`, for another slot.
            if theirs.frame.claim(FrameState::empty()).is_some() {
                their_slot.store(0, Ordering::Release);
                theirs.write(7);
                theirs.frame.publish(FrameState::MAPPED);
                theirs.frame.unpin();
            }
        });
        // As `FramePool::glance`.
        if slot.load(Ordering::Acquire) == 1
            && let Some(seen) = page.frame.see()
            && slot.load(Ordering::Acquire) == 1
        {
            let read = page.bytes[0].load(Ordering::Relaxed);
            if page.frame.is_as_seen(seen) {
                assert_eq!(read, 0, "another page's bytes");
            }
        }
        evictor.join().expect("a model's threads do not panic");
    });
}

/// The thread that took a frame out of its slot is not the one that fills it: the free list is in between.
#[test]
fn a_free_frame_that_another_thread_fills_is_not_taken_for_the_page() {
    bounded(|| {
        let page = page();
        let free = Arc::new(Mutex::new(false));
        let (theirs, their_free) = (page.clone(), free.clone());
        let evictor = thread::spawn(move || {
            if theirs.frame.claim(FrameState::empty()).is_some() {
                *their_free.lock() = true;
            }
        });
        let (theirs, their_free) = (page.clone(), free.clone());
        let filler = thread::spawn(move || {
            // As `FramePool::take`.
            let taken = std::mem::replace(&mut *their_free.lock(), false);
            if taken {
                frame::taken_over();
                theirs.write(7);
            }
        });
        if let Some(seen) = page.frame.see() {
            let read = page.bytes[0].load(Ordering::Relaxed);
            if page.frame.is_as_seen(seen) {
                assert_eq!(read, 0, "another page's bytes");
            }
        }
        for thread in [evictor, filler] {
            thread.join().expect("a model's threads do not panic");
        }
    });
}

/// A frame whose bytes nobody reads without a pin.
struct Held {
    frame: Frame,
    bytes: UnsafeCell<u64>,
}

// SAFETY: the models find out whether it is so: the cell reports whoever is not ordered behind another.
unsafe impl Sync for Held {}
// SAFETY: as above.
unsafe impl Send for Held {}

impl Held {
    fn new() -> Arc<Held> {
        let held = Held { frame: Frame::new(), bytes: UnsafeCell::new(0) };
        held.frame.publish(FrameState::MAPPED);
        held.frame.unpin();
        Arc::new(held)
    }

    fn read(&self) -> u64 {
        // SAFETY: the cell checks it.
        self.bytes.with(|bytes| unsafe { *bytes })
    }

    fn write(&self) {
        // SAFETY: the cell checks it.
        self.bytes.with_mut(|bytes| unsafe { *bytes += 1 });
    }

    /// As `FramePool::evict`, and the frame comes back.
    fn evict(&self) {
        if self.frame.claim(FrameState::empty()).is_some() {
            self.write();
            self.frame.publish(FrameState::MAPPED);
            self.frame.unpin();
        }
    }
}

/// Runs the first beside the second.
fn beside(first: fn(&Held), second: fn(&Held)) {
    bounded(move || {
        let held = Held::new();
        let theirs = held.clone();
        let other = thread::spawn(move || second(&theirs));
        first(&held);
        other.join().expect("a model's threads do not panic");
    });
}

#[test]
fn who_has_a_pin_is_not_disturbed() {
    let read = |held: &Held| {
        for _ in 0..2 {
            if held.frame.pin() {
                held.read();
                held.frame.unpin();
            }
        }
    };
    beside(read, Held::evict);
}

#[test]
fn who_has_the_latch_is_alone() {
    let pinned = |held: &Held| {
        assert!(held.frame.pin());
        if held.frame.try_latch() {
            held.write();
            held.frame.unlatch();
        }
        held.frame.unpin();
    };
    let unpinned = |held: &Held| {
        for _ in 0..2 {
            if held.frame.try_latch_unpinned() {
                held.write();
                held.frame.unlatch();
            }
        }
    };
    beside(pinned, unpinned);
    beside(pinned, pinned);
    beside(unpinned, unpinned);
}

#[test]
fn a_latched_frame_does_not_leave() {
    let latched = |held: &Held| {
        if held.frame.try_latch_unpinned() {
            held.write();
            held.frame.unlatch();
        }
    };
    beside(latched, Held::evict);
    beside(Held::evict, latched);
}

#[test]
fn what_a_flag_says_is_done() {
    bounded(|| {
        let page = page();
        page.frame.set(FrameState::WRITEBACK);
        let theirs = page.clone();
        let other = thread::spawn(move || {
            theirs.bytes[0].store(1, Ordering::Relaxed);
            theirs.frame.set(FrameState::MAPPED);
            theirs.bytes[1].store(1, Ordering::Relaxed);
            theirs.frame.clear(FrameState::WRITEBACK);
        });
        let flags = page.frame.flags();
        let [mapped, down] = [&page.bytes[0], &page.bytes[1]].map(|done| done.load(Ordering::Relaxed) == 1);
        assert!(mapped || !flags.contains(FrameState::MAPPED));
        assert!(down || flags.contains(FrameState::WRITEBACK));
        other.join().expect("a model's threads do not panic");
    });
}
