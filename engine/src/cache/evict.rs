//! Which frame gives way: two classes of pages, and a memory of those that left.
//!
//! What this leaves to others: free frames, and the place that names a frame ([`super::pool`]).
//!
//! # Policy
//! A page comes in *cold*, at the end of a queue. What is used again while it waits there becomes *hot*; what is not
//! is evicted when its turn comes: so a file that is read once pushes out cold pages alone, at least an eighth of the
//! frames, whatever its size. Hot pages are at most seven eighths; when one more is to become hot, a hand goes round
//! them and makes one cold that was not used since it came by last.
//!
//! A page that leaves has the time of it, counted in evictions, left behind in its slot, where it costs nothing. Should
//! it come back before as many pages have left as may be hot, it was evicted for want of cold frames alone, and
//! comes in hot, and counts as used. So a set that is larger than the queue is kept nevertheless, and of a loop over
//! more than there are frames a part stays: the hand looks at one hot page for each that wants in, so that those that
//! are used once in a round are not replaced one by one by others that are no better.
//!
//! *Used* means once more than to bring it in. The first use of a page that was read ahead does not count, nor do
//! parts of a page that a sequential reader takes one after the other, nor writes to what is dirty, nor write-back.
//!
//! A cold page that the kernel has just read into a cache of its own is *lent*: it goes before all others, but for
//! every eighth time. If the kernel asks again, its cache is the smaller one: the page was used, or comes back hot.
//!
//! *Why not* LRU: a list is written with each hit, here a hit writes one bit once. The plain clock, which this
//! replaces: see the table; one pass over a large file empties it. S3-FIFO's queues are these, but its memory of what
//! left is a table of hashes, and its hot pages a queue: a write for each turn of each of them. CLOCK-Pro keeps entries
//! for pages that left among those that are here, three hands over one list, which is a lock.
//!
//! Hits in percent, of 1024 frames (the tests in `cache::policy` assert them, and print the table):
//!
//! | accesses | LRU | plain clock | here |
//! | --- | --- | --- | --- |
//! | a hot half of the frames beside a pass over 40 times as many | 42 | 39 | 100 |
//! | four fifths of the frames, after a pass over 10 times as many | 0 | 0 | 100 |
//! | in a loop over 5/4 of the frames | 0 | 0 | 70 |
//! | in a loop over 5/2 | 0 | 0 | 0 |
//! | at random, skewed, over 16 times as many | 49 | 48 | 58 |
//! | at random over 5/4 | 80 | 80 | 80 |
//! | nine tenths, then another nine tenths | 98 | 98 | 95 |
//!
//! # Protocol
//! 1. A published frame is hot, or is in the queue of cold frames, or is about to be put there by the thread that made
//!    it cold, or is in the hands of a thread that took it from there. A hot or busy frame may be in the queue too.
//! 2. *To put in*: first make the frame cold (publish it, or take HOT away), then swap its mark to true; put its number
//!    in if the mark was false. *To take out*: take the number, then swap the mark to false, then look at the state;
//!    hot and busy are dropped, what cannot be evicted yet is put in again.
//!    The swaps of the mark are ordered: if the one that puts in comes first and finds the mark set, the one that takes
//!    out reads from it and sees the frame cold; otherwise it finds the mark false, and puts the number in. So no cold
//!    frame is lost, and none is in the queue twice.
//! 3. The ring of lent frames is the same, with a mark of its own, whose swaps are not ordered: all that it can lose is
//!    a hint, and the frame is in the other queue too.
//!
//! # Lines that cores share
//! A hit writes none but the frame's own. To take a frame by eviction writes four: the queue's head, its place (sixteen
//! frames have one line), the count of evictions, the frame's own; to publish it three: the queue's tail, the place,
//! the frame's. The count of hot frames, and the hand, are written when a page changes its class.

use super::frame::{Frame, FrameState};
use super::ring::Ring;
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Cold frames that are looked at before a hot one is taken.
const LOOKS: usize = 64;
/// Hot frames that are looked at for each page that wants to be hot when there are enough: what is hot stays for two
/// rounds of the hand, if it is not used.
const HOT_LOOKS: usize = 1;
/// Frames that the hand passes at the most, for that or for a hot frame to take, before cold ones are looked at again.
const HAND_STEPS: usize = 32;
/// One of so many evictions passes lent frames by, lest cold pages that nobody wants stay for ever beside them.
const LENT_TURNS: u32 = 8;
/// A time is so many bits.
const TIME: u32 = (1 << 31) - 1;

/// What is kept about all frames to choose among them.
#[derive(Debug)]
pub(super) struct Eviction {
    cold: Ring,
    lent: Ring,
    /// Hot frames.
    hot: CachePadded<AtomicUsize>,
    /// Where the next look for a hot frame begins.
    hand: CachePadded<AtomicUsize>,
    /// Evictions so far.
    time: CachePadded<AtomicU32>,
    most_hot: usize,
}

impl Eviction {
    /// For so many frames.
    pub fn new(frames: usize) -> Eviction {
        Eviction {
            cold: Ring::new(frames),
            lent: Ring::new(frames),
            hot: CachePadded::new(AtomicUsize::new(0)),
            hand: CachePadded::new(AtomicUsize::new(0)),
            time: CachePadded::new(AtomicU32::new(0)),
            most_hot: frames - (frames / 8).max(2).min(frames),
        }
    }

    /// Hot frames as of some recent moment.
    pub fn hot(&self) -> usize {
        // Relaxed: a number to compare or to show; nothing is read through it.
        self.hot.load(Ordering::Relaxed)
    }

    /// One page leaves: the time to be left behind.
    pub fn tick(&self) -> u32 {
        // Relaxed: a clock of its own.
        self.time.fetch_add(1, Ordering::Relaxed) & TIME
    }

    /// Whether a page that left at that time, and comes back now, is to be hot; if so it is counted.
    pub fn comes_back_hot(&self, frames: &[Frame], left: u32) -> bool {
        // Relaxed: as in `tick`.
        let away = self.time.load(Ordering::Relaxed).wrapping_sub(left) & TIME;
        (away as usize) < self.most_hot && self.may_be_hot(frames)
    }

    /// A frame was published, or became cold: unless it is hot it joins the queue.
    pub fn joins(&self, frames: &[Frame], number: u32) {
        let frame = &frames[number as usize];
        // AcqRel: pairs with the swap in `next_cold` (rule 2).
        if !frame.flags().contains(FrameState::HOT) && !frame.in_cold.swap(true, Ordering::AcqRel) {
            self.cold.push(number);
        }
    }

    /// A frame that had these flags is none of a page any more.
    pub fn left(&self, flags: FrameState) {
        if flags.contains(FrameState::HOT) {
            // Relaxed: as in `hot`.
            self.hot.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The kernel has its own copy of a page now. Hot pages stay.
    pub fn lend(&self, frames: &[Frame], number: u32) {
        let frame = &frames[number as usize];
        // Relaxed: rule 3.
        if frame.lend() && !frame.in_lent.swap(true, Ordering::Relaxed) {
            self.lent.push(number);
        }
    }

    /// Claims the frame that is to give way, and counts it out of its class.
    pub fn next(&self, frames: &[Frame]) -> Option<u32> {
        // Relaxed: any number will do.
        let passes_lent = self.time.load(Ordering::Relaxed).is_multiple_of(LENT_TURNS);
        let lent = if passes_lent { None } else { self.next_lent(frames) };
        lent.or_else(|| self.next_cold(frames, LOOKS))
            .or_else(|| self.next_hot(frames, HAND_STEPS))
            .or_else(|| self.next_cold(frames, usize::MAX))
            .or_else(|| self.next_hot(frames, 2 * frames.len()))
    }

    fn next_lent(&self, frames: &[Frame]) -> Option<u32> {
        while let Some(number) = self.lent.pop() {
            let frame = &frames[number as usize];
            // Relaxed: rule 3.
            frame.in_lent.swap(false, Ordering::Relaxed);
            let flags = frame.flags();
            // One that was used since, or was written to, has the queue of cold frames to wait in.
            if flags.contains(FrameState::LENT)
                && !flags.intersects(FrameState::REFERENCED | FrameState::HOT)
                && let Some(flags) = frame.claim(FrameState::DIRTY)
            {
                self.left(flags);
                return Some(number);
            }
        }
        None
    }

    fn next_cold(&self, frames: &[Frame], most: usize) -> Option<u32> {
        for _ in 0..most.min(self.cold.len()) {
            let number = self.cold.pop()?;
            let frame = &frames[number as usize];
            // AcqRel: pairs with the swap in `joins` (rule 2).
            frame.in_cold.swap(false, Ordering::AcqRel);
            let flags = frame.flags();
            if flags.intersects(FrameState::HOT | FrameState::BUSY) {
                continue;
            }
            if !flags.intersects(FrameState::DIRTY | FrameState::WRITEBACK) {
                if flags.contains(FrameState::REFERENCED) {
                    if self.may_be_hot(frames) {
                        if !frame.warm() {
                            self.left(FrameState::HOT);
                        }
                    } else {
                        frame.clear(FrameState::REFERENCED);
                    }
                } else if let Some(flags) = frame.claim(FrameState::DIRTY) {
                    self.left(flags);
                    return Some(number);
                }
            }
            self.joins(frames, number);
        }
        None
    }

    /// When cold frames cannot be had: a hot one that was not used since the hand came by.
    fn next_hot(&self, frames: &[Frame], steps: usize) -> Option<u32> {
        for _ in 0..steps {
            if self.hot() == 0 {
                return None;
            }
            let (number, frame) = self.step(frames);
            let flags = frame.flags();
            if !flags.contains(FrameState::HOT) {
                continue;
            }
            if flags.contains(FrameState::REFERENCED) {
                frame.clear(FrameState::REFERENCED);
            } else if let Some(flags) = frame.claim(FrameState::DIRTY) {
                self.left(flags);
                return Some(number);
            }
        }
        None
    }

    fn step<'f>(&self, frames: &'f [Frame]) -> (u32, &'f Frame) {
        // Relaxed: the hand is a hint where to look.
        let at = self.hand.fetch_add(1, Ordering::Relaxed) % frames.len();
        (at as u32, &frames[at])
    }

    /// Whether one more frame may be hot, which is counted then; another becomes cold for it if need be.
    fn may_be_hot(&self, frames: &[Frame]) -> bool {
        // Relaxed: as in `hot`; a few too many do no harm.
        if self.hot.fetch_add(1, Ordering::Relaxed) < self.most_hot || self.cool_one(frames) {
            return true;
        }
        self.left(FrameState::HOT);
        false
    }

    fn cool_one(&self, frames: &[Frame]) -> bool {
        let mut looks = HOT_LOOKS;
        for _ in 0..HAND_STEPS {
            let (number, frame) = self.step(frames);
            let flags = frame.flags();
            if !flags.contains(FrameState::HOT) {
                continue;
            }
            if flags.contains(FrameState::REFERENCED) {
                frame.clear(FrameState::REFERENCED);
            } else if frame.cool() {
                self.left(FrameState::HOT);
                self.joins(frames, number);
                return true;
            }
            looks -= 1;
            if looks == 0 {
                break;
            }
        }
        false
    }
}
