//! Free frames: a list for each core.
//!
//! A frame that was used has its memory, and a new one costs a page fault: so lists give out first what came back
//! last, and a core whose list has none takes from where others come back, if that is another core's, before it takes
//! one that was never used. Where the memory of frames is another's too, as in a scratch file system without spill
//! space, a pool keeps the memory of a share of its free frames alone, and gives that of the others back to the system;
//! and before it takes more for frames, what the heap has free goes back.
//!
//! Frames that never had memory lie at the bottom of the lists, those with the highest numbers first. There they are
//! *held back* for what else takes memory ([`FreeFrames::hold`]): nothing has to go back to the system for that, and
//! huge pages do not reach them before they reach the end of the pool. So all lists hold back alike.
//!
//! Invariant: a frame on a list is busy, and the list's.

#![allow(unsafe_code, reason = "gives the memory of free frames back to the system")]

use super::frame::taken_over;
use super::memory::{FrameMemory, trim_heap};
use crate::device::BLOCK_SIZE;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{CachePadded, Mutex, available_cores};

/// Frames whose memory goes back at once.
const BATCH: usize = 64;
/// Most frames that go from one core's list to another's at once.
const MOST_MOVED: usize = 32;

/// The free frames of one core.
#[derive(Debug)]
struct Lane {
    numbers: Vec<u32>,
    /// So many of them, from the bottom, have no memory.
    dry: usize,
    /// So many of those, from the bottom, are not given out.
    held: usize,
}

/// A core's list, and how many of its frames have memory, for a thread that does not lock it: on a line that is written
/// when that changes alone.
#[derive(Debug)]
struct Seat {
    lane: CachePadded<Mutex<Lane>>,
    wet: CachePadded<AtomicUsize>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct FreeFrames {
    lanes: Box<[Seat]>,
    /// Free frames of each lane that keep their memory.
    kept: usize,
    /// Frames without memory that were given out.
    wetted: CachePadded<AtomicUsize>,
    /// After so many of these the heap is looked at.
    look: usize,
}

impl FreeFrames {
    /// All of `frames` frames but those in use, of which so many keep their memory when they come back.
    pub fn new(frames: usize, kept: usize, is_used: impl Fn(u32) -> bool) -> FreeFrames {
        let lanes = if frames < 256 { 1 } else { available_cores().clamp(1, 64) };
        let lists = (0..lanes).map(|lane| {
            // Descending, so that a lane gives out its lowest frames first.
            let own = (lane as u32..frames as u32)
                .step_by(lanes)
                .filter(|number| !is_used(*number))
                .collect::<Vec<_>>();
            let numbers: Vec<_> = own.into_iter().rev().collect();
            let lane = Mutex::new(Lane { dry: numbers.len(), held: 0, numbers });
            Seat { lane: CachePadded::new(lane), wet: CachePadded::new(AtomicUsize::new(0)) }
        });
        FreeFrames {
            lanes: lists.collect(),
            kept: kept / lanes,
            wetted: CachePadded::new(AtomicUsize::new(0)),
            look: if kept < frames { (kept / 2).max(BATCH) } else { usize::MAX },
        }
    }

    /// Number of frames to be had here.
    pub fn len(&self) -> usize {
        let here = |lane: &Lane| lane.numbers.len() - lane.held;
        self.lanes.iter().map(|seat| here(&seat.lane.lock())).sum()
    }

    /// Holds back so many frames, all of them without memory, or as many as there are; how many.
    pub fn hold(&self, count: usize) -> usize {
        let mut left = count;
        for (seat, others) in self.lanes.iter().zip((1..=self.lanes.len()).rev()) {
            let mut lane = seat.lane.lock();
            lane.held = left.div_ceil(others).min(lane.dry);
            left -= lane.held;
        }
        count - left
    }

    fn own(&self) -> usize {
        if self.lanes.len() == 1 { 0 } else { rustix::thread::sched_getcpu() % self.lanes.len() }
    }

    /// A frame, of this core if there is one.
    pub fn take(&self) -> Option<u32> {
        let own = self.own();
        let count = self.lanes.len();
        // Relaxed: a hint; a thread that is wrong takes a frame that costs more.
        let rather =
            if self.lanes[own].wet.load(Ordering::Relaxed) == 0 { self.of_others(own) } else { None };
        let (number, is_dry) = match rather {
            Some(number) => (number, false),
            None => (0..count).find_map(|i| self.lanes[(own + i) % count].take())?,
        };
        // Relaxed: a number to count by.
        if is_dry
            && self.look != usize::MAX
            && self.wetted.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.look)
        {
            trim_heap(self.look * BLOCK_SIZE);
        }
        taken_over();
        Some(number)
    }

    /// A frame with memory that came back to another core, and more of them for the own list; none if that has no frame
    /// at all: for a moment those that are moved are on no list, and no thread that needs them is to miss them.
    fn of_others(&self, own: usize) -> Option<u32> {
        let count = self.lanes.len();
        if count == 1 || self.lanes[own].lane.lock().is_empty() {
            return None;
        }
        for seat in (1..count).map(|i| &self.lanes[(own + i) % count]) {
            // Relaxed: a hint, settled under the lock.
            if seat.wet.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let Some(mut lane) = seat.lane.try_lock() else { continue };
            let many = lane.wet().div_ceil(2).min(MOST_MOVED);
            let at = lane.numbers.len() - many;
            let mut moved = lane.numbers.split_off(at);
            seat.show(&lane);
            drop(lane);
            if let Some(number) = moved.pop() {
                let mut lane = self.lanes[own].lane.lock();
                lane.numbers.extend(moved);
                self.lanes[own].show(&lane);
                return Some(number);
            }
        }
        None
    }

    /// Takes a frame back from a thread that had it busy.
    pub fn give_back(&self, number: u32, memory: &FrameMemory) {
        let seat = &self.lanes[self.own()];
        let mut lane = seat.lane.lock();
        lane.numbers.push(number);
        if lane.wet() >= self.kept.saturating_add(BATCH) {
            lane.dry_out(memory);
        }
        seat.show(&lane);
    }
}

impl Seat {
    /// Called with the list locked.
    fn show(&self, lane: &Lane) {
        // Relaxed, both: a hint.
        if self.wet.load(Ordering::Relaxed) != lane.wet() {
            self.wet.store(lane.wet(), Ordering::Relaxed);
        }
    }

    /// A frame, and whether it has no memory.
    fn take(&self) -> Option<(u32, bool)> {
        let mut lane = self.lane.lock();
        let taken = lane.take();
        self.show(&lane);
        taken
    }
}

impl Lane {
    fn wet(&self) -> usize {
        self.numbers.len() - self.dry
    }

    fn is_empty(&self) -> bool {
        self.numbers.len() == self.held
    }

    fn take(&mut self) -> Option<(u32, bool)> {
        if self.is_empty() {
            return None;
        }
        let number = self.numbers.pop()?;
        let is_dry = self.dry > self.numbers.len();
        self.dry = self.dry.min(self.numbers.len());
        Some((number, is_dry))
    }

    /// Gives the memory back of those that came back first.
    fn dry_out(&mut self, memory: &FrameMemory) {
        let batch = &mut self.numbers[self.dry..self.dry + BATCH];
        batch.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
        let mut rest = &*batch;
        while let Some(&last) = rest.first() {
            let run = rest.iter().zip(0..).take_while(|(number, i)| **number + i == last).count();
            // SAFETY: frames on a list are busy, and this thread has the list. Guarded by
            // `frames_that_are_not_kept_go_back_to_the_system`.
            unsafe { memory.release(rest[run - 1], run) };
            rest = &rest[run..];
        }
        self.dry += BATCH;
    }
}
