//! Models of the frame's state word, of slots, and of the queues of eviction. Where bytes are read without a pin they
//! are two atomics; else a cell that reports two that are not ordered one behind the other.
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
//! | `try_latch`, `try_latch_unpinned`: no fence | `bytes_of_an_optimistic_read_are_of_one_version` |
//! | `unlatch`: the version stays | `bytes_of_an_optimistic_read_are_of_one_version` |
//! | `validate`: no fence, or a look at the version or the latch less | `bytes_of_an_optimistic_read_are_of_one_version` |
//! | `claim`: no fence, or the version stays; `publish`: the version is lost | `a_frame_that_left_is_not_taken_for_the_page` |
//! | `see`: Acquire to Relaxed, or a busy frame is seen | `a_frame_that_left_is_not_taken_for_the_page` |
//! | `taken_over`: no fence | `a_free_frame_that_another_thread_fills_is_not_taken_for_the_page` |
//! | `Slot::named` Acquire, `Slot::leave` Release: to Relaxed | `a_slot_that_names_none_is_not_touched_any_more` |
//! | `Ring::push` Release, `Ring::pop` Acquire: to Relaxed; `push` into a place that is not emptied yet | `a_number_of_the_ring_is_one_threads` |
//! | `joins`: the swap Relaxed, or a number put in whatever the mark was | `no_cold_frame_is_lost_from_the_queue` |
//! | `next_cold`: the swap Relaxed or not done, or the flags read before it | `a_frame_that_becomes_cold_is_found_by_who_drops_it_as_hot` |
//! | `next_cold`: what cannot be claimed is not put in again | `no_cold_frame_is_lost_from_the_queue` |
//!
//! Not needed, but cheap: that `see` refuses a latched frame, and `validate` a busy one, for the version tells of
//! both; and the Release in `Slot::name`, for a fence comes before it.

#![allow(unsafe_code, reason = "models of the frames' memory, which loom checks")]

use super::evict::Eviction;
use super::frame::{self, Frame};
use super::ring::Ring;
use super::{FrameState, Slot, Use};
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

    fn optimistic_read(&self) {
        let Some(seen) = self.frame.see(Use::Yes) else { return };
        let [one, two] = [&self.bytes[1], &self.bytes[0]].map(|half| half.load(Ordering::Relaxed));
        if self.frame.validate(seen) {
            assert_eq!(one, two, "half of what was written");
        }
    }
}

#[test]
fn bytes_of_an_optimistic_read_are_of_one_version() {
    for pinned in [false, true] {
        bounded(move || {
            let page = page();
            let theirs = page.clone();
            let writer = thread::spawn(move || {
                for value in 1..3 {
                    let latched = if pinned {
                        assert!(theirs.frame.pin(Use::Yes));
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
            page.optimistic_read();
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
        // As `FramePool::begin_optimistic`.
        if slot.load(Ordering::Acquire) == 1
            && let Some(seen) = page.frame.see(Use::Yes)
            && slot.load(Ordering::Acquire) == 1
        {
            let read = page.bytes[0].load(Ordering::Relaxed);
            if page.frame.validate(seen) {
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
        if let Some(seen) = page.frame.see(Use::Yes) {
            let read = page.bytes[0].load(Ordering::Relaxed);
            if page.frame.validate(seen) {
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

// SAFETY: the models find out whether it is so: the cell reports a thread that is not ordered behind another.
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
            if held.frame.pin(Use::Yes) {
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
        assert!(held.frame.pin(Use::Yes));
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

/// The only frame moves from one page to another, whose reader must not get the bytes that it had before.
#[test]
fn a_slot_does_not_show_what_the_frame_was_before() {
    bounded(|| {
        let page = page();
        let slot = Arc::new(Slot::new());
        let (theirs, their_slot) = (page.clone(), slot.clone());
        let mover = thread::spawn(move || {
            assert!(theirs.frame.claim(FrameState::empty()).is_some());
            theirs.write(7);
            assert!(their_slot.name(0));
            theirs.frame.publish(FrameState::MAPPED);
            theirs.frame.unpin();
        });
        // As `FramePool::begin_optimistic`.
        if slot.is_cached()
            && let Some(seen) = page.frame.see(Use::No)
            && slot.is_cached()
        {
            let read = page.bytes[0].load(Ordering::Relaxed);
            if page.frame.validate(seen) {
                assert_eq!(read, 7, "another page's bytes");
            }
        }
        mover.join().expect("a model's threads do not panic");
    });
}

/// A slot, and whether it is still there.
struct Place {
    slot: Slot,
    there: UnsafeCell<bool>,
}

// SAFETY: the models find out whether it is so: the cell reports a thread that is not ordered behind another.
unsafe impl Sync for Place {}
// SAFETY: as above.
unsafe impl Send for Place {}

/// An index goes once its slots name none: by then any thread that took a frame out of it has done with it.
#[test]
fn a_slot_that_names_none_is_not_touched_any_more() {
    bounded(|| {
        let place = Arc::new(Place { slot: Slot::new(), there: UnsafeCell::new(true) });
        assert!(place.slot.name(0));
        let theirs = place.clone();
        let evictor = thread::spawn(move || {
            // SAFETY: the cell checks it.
            assert!(theirs.there.with(|there| unsafe { *there }));
            theirs.slot.leave(Some(1));
        });
        if !place.slot.is_cached() {
            // SAFETY: the cell checks it.
            place.there.with_mut(|there| unsafe { *there = false });
        }
        evictor.join().expect("a model's threads do not panic");
    });
}

/// What belongs to each number of a ring: the cell reports two that have it at once.
struct Numbered {
    ring: Ring,
    owned: [UnsafeCell<u64>; 2],
}

// SAFETY: the models find out whether it is so: the cell reports a thread that is not ordered behind another.
unsafe impl Sync for Numbered {}
// SAFETY: as above.
unsafe impl Send for Numbered {}

#[test]
fn a_number_of_the_ring_is_one_threads() {
    bounded(|| {
        let both = Arc::new(Numbered { ring: Ring::new(2), owned: [UnsafeCell::new(0), UnsafeCell::new(0)] });
        both.ring.push(0);
        both.ring.push(1);
        let round = |both: &Numbered| {
            if let Some(number) = both.ring.pop() {
                // SAFETY: the cell checks it.
                both.owned[number as usize].with_mut(|owned| unsafe { *owned += 1 });
                both.ring.push(number);
            }
        };
        let theirs = both.clone();
        let other = thread::spawn(move || round(&theirs));
        round(&both);
        round(&both);
        other.join().expect("a model's threads do not panic");
        let mut left = [both.ring.pop(), both.ring.pop()];
        left.sort_unstable();
        assert_eq!(left, [Some(0), Some(1)], "a number is lost");
        assert_eq!(both.ring.pop(), None);
    });
}

/// Two frames, published cold.
fn queued() -> Arc<(Vec<Frame>, Eviction)> {
    let frames: Vec<_> = (0..2).map(|_| Frame::new()).collect();
    let eviction = Eviction::new(frames.len());
    for number in 0..2 {
        frames[number as usize].publish(FrameState::MAPPED);
        frames[number as usize].unpin();
        eviction.joins(&frames, number);
    }
    Arc::new((frames, eviction))
}

#[test]
fn no_cold_frame_is_lost_from_the_queue() {
    bounded(|| {
        let both = queued();
        let theirs = both.clone();
        let evictor = thread::spawn(move || {
            let (frames, eviction) = &*theirs;
            // As `FramePool::take` and `Fresh::publish`.
            if let Some(number) = eviction.next(frames) {
                frames[number as usize].publish(FrameState::MAPPED);
                eviction.joins(frames, number);
                frames[number as usize].unpin();
            }
        });
        let (frames, eviction) = &*both;
        // As `FramePool::remove`, and what comes next in that frame.
        if let Some(flags) = frames[0].claim(FrameState::empty()) {
            eviction.left(flags);
            frames[0].publish(FrameState::MAPPED);
            eviction.joins(frames, 0);
            frames[0].unpin();
        }
        evictor.join().expect("a model's threads do not panic");
        let mut left = [eviction.next(frames), eviction.next(frames)];
        left.sort_unstable();
        assert_eq!(left, [Some(0), Some(1)], "a frame that could be evicted is not found");
        assert_eq!(eviction.next(frames), None);
    });
}

#[test]
fn a_frame_that_becomes_cold_is_found_by_who_drops_it_as_hot() {
    bounded(|| {
        let both = queued();
        assert!(both.0[0].warm());
        let theirs = both.clone();
        let cooler = thread::spawn(move || {
            let (frames, eviction) = &*theirs;
            if frames[0].cool() {
                eviction.joins(frames, 0);
            }
        });
        let (frames, eviction) = &*both;
        // The other frame, for the first is hot, or cold, or its number is just being put in.
        let first = eviction.next(frames);
        cooler.join().expect("a model's threads do not panic");
        let mut left = [first, eviction.next(frames)];
        left.sort_unstable();
        assert_eq!(left, [Some(0), Some(1)], "a cold frame is lost");
    });
}
