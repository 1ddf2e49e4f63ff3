//! Gives frames their memory before they are needed.
//!
//! A frame that was never used has no memory yet, and the page fault of its first use has the kernel find and zero
//! some: between a request and its answer. So a thread of the pool, the *warmer*, goes ahead of those that take new
//! frames, [`AHEAD`] at the most and by half as many as are in use, and has the kernel do that there
//! (`MADV_POPULATE_WRITE`).
//!
//! Huge pages are the better memory, but not always at hand. A virtual machine whose hypervisor takes back what is free
//! (free page reporting, a balloon) tells it of whole huge pages alone: to get one then takes the hypervisor
//! milliseconds, while small pages come from what was freed just now. So the time of each span is measured
//! ([`Sizes`]), and where huge pages are slow what follows is small.
//!
//! # Protocol
//! 1. `mark` is the number from which on a thread that takes a frame *asks* for more to be warm. A thread that asks
//!    takes the mutex, says how far frames are in use, moves `mark` out of reach and wakes the warmer.
//! 2. The warmer alone warms, outside of the mutex, and always beyond what is in use: a frame there has no owner that
//!    could have given its memory back on purpose. Then it moves `mark` to the middle of what it has warmed.
//! 3. [`Warmer::drop`] sets `over` under the mutex and joins the thread, which looks at it between spans.
//!
//! What this leaves to others: which frame is taken ([`super::free`]).
//!
//! Invariants: a pool of which little is used has little warm; populating changes no byte, so it may meet any use of a
//! frame. It is a matter of speed only.

use super::memory::FrameMemory;
use crate::device::BLOCK_SIZE;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Frames of a span, which is as large as a huge page.
pub(super) const SPAN: usize = (2 << 20) / BLOCK_SIZE;
/// Frames that are warm before they are in use, at the most.
const AHEAD: usize = (16 << 20) / BLOCK_SIZE;
/// The first frame whose use asks for warm ones.
const FIRST: usize = SPAN / 2;
/// A pool with fewer has no warmer.
const LEAST: usize = 4 * SPAN;
/// Time for a span that shows that its memory was not at hand. Zeroing it takes a quarter of that on slow machines.
const SLOW: Duration = Duration::from_millis(1);
/// Spans of small pages after one of a huge page that was slow: at first, and at the most.
const PERIOD: u32 = 16;
const MOST_PERIOD: u32 = 16 * PERIOD;
/// The lowest priority: a thread that asks for files goes first.
const NICE: i32 = 19;

/// See the module.
#[derive(Debug)]
pub(super) struct Warmer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    memory: Arc<FrameMemory>,
    /// No frame from here on is warmed.
    limit: usize,
    /// Relaxed: a hint; what follows from it is settled under the mutex.
    mark: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Frames below are in use, or were.
    used: usize,
    over: bool,
    thread: Option<JoinHandle<()>>,
}

impl Warmer {
    /// For so many frames of this memory, from the first on.
    pub fn new(memory: &Arc<FrameMemory>, limit: usize) -> Warmer {
        let has_thread = limit >= LEAST && !cfg!(any(loom, shuttle));
        Warmer {
            shared: Arc::new(Shared {
                memory: Arc::clone(memory),
                limit,
                mark: AtomicUsize::new(if has_thread { FIRST } else { usize::MAX }),
                state: Mutex::new(State::default()),
                changed: Condvar::new(),
            }),
        }
    }

    /// This frame is taken into use.
    #[inline]
    pub fn taken(&self, number: u32) {
        if number as usize >= self.shared.mark.load(Ordering::Relaxed) {
            self.ask(number as usize);
        }
    }

    #[cold]
    fn ask(&self, number: usize) {
        let mut state = self.shared.state.lock();
        self.shared.mark.store(usize::MAX, Ordering::Relaxed);
        state.used = state.used.max(number + 1);
        if state.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("narufs-warm".into());
            match thread.spawn(move || shared.run()) {
                Ok(thread) => state.thread = Some(thread),
                // Frames are warmed by those that use them, then.
                Err(e) => tracing::debug!("no thread to warm memory: {e}"),
            }
        }
        drop(state);
        self.shared.changed.notify_one();
    }
}

impl Drop for Warmer {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.over = true;
        let thread = state.thread.take();
        drop(state);
        self.shared.changed.notify_one();
        // A warmer that has panicked leaves nothing undone that matters.
        let _ = thread.map(JoinHandle::join);
    }
}

impl Shared {
    fn run(&self) {
        // Refused: then it is as important as others.
        let _ = rustix::process::setpriority_process(None, NICE);
        let (mut warm, mut sizes) = (0, Sizes::default());
        let mut state = self.state.lock();
        while !state.over {
            let used = state.used;
            let goal = (used + (used / 2).clamp(FIRST, AHEAD)).min(self.limit);
            warm = warm.max(used);
            if warm >= goal {
                // The next that asks is to find some left. Nobody asks for what nobody may warm.
                let mark = if goal == self.limit { usize::MAX } else { used + (goal - used) / 2 };
                self.mark.store(mark, Ordering::Relaxed);
                self.changed.wait(&mut state);
                continue;
            }
            drop(state);
            warm = self.warm_from(warm, &mut sizes);
            state = self.state.lock();
        }
    }

    /// Warms what is left of the span of this frame; the first frame behind it.
    fn warm_from(&self, first: usize, sizes: &mut Sizes) -> usize {
        let end = self.memory.end_of_span(first as u32, SPAN).min(self.limit);
        let is_huge = sizes.is_huge();
        let before = cpu_time();
        self.memory.populate(first as u32, end - first);
        let took = cpu_time().saturating_sub(before);
        if end - first == SPAN {
            sizes.note(took);
        }
        if sizes.is_huge() != is_huge {
            // Threads that are faster than the warmer take their memory in the same pages.
            self.memory.advise(end as u32, self.limit - end, !is_huge);
        }
        end
    }
}

/// What this thread has used: a wait for a core is not taken for slow memory.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Whether the next span is to be a huge page.
#[derive(Debug)]
struct Sizes {
    /// Spans of small pages that are left.
    small: u32,
    /// How many there are after the next huge page that is slow.
    period: u32,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { small: 0, period: PERIOD }
    }
}

impl Sizes {
    fn is_huge(&self) -> bool {
        self.small == 0
    }

    /// A span took so long.
    fn note(&mut self, took: Duration) {
        match (self.is_huge(), took > SLOW) {
            (true, true) => {
                self.small = self.period;
                self.period = (self.period * 2).min(MOST_PERIOD);
            }
            (true, false) => self.period = PERIOD,
            // No memory is at hand: small pages gain nothing then.
            (false, true) => self.small = 0,
            (false, false) => self.small -= 1,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const HUGE: [Duration; 2] = [Duration::from_micros(220), Duration::from_millis(5)];

    #[test]
    fn what_is_in_use_has_warm_frames_before_it_and_no_more_than_that() {
        let frames = 64 * SPAN;
        let memory = Arc::new(FrameMemory::new(frames, true).expect("a mapping"));
        let warmer = Warmer::new(&memory, frames - SPAN);
        // Below the first mark nobody asks.
        warmer.taken(FIRST as u32 - 1);
        assert!(warmer.shared.state.lock().thread.is_none());
        for used in [FIRST, SPAN, 3 * SPAN, 20 * SPAN, 40 * SPAN, 62 * SPAN] {
            warmer.ask(used);
            let goal = (used + 1 + used.div_ceil(2).clamp(FIRST, AHEAD)).min(frames - SPAN);
            while memory.resident_from(goal as u32 - 1) == 0 {
                std::thread::yield_now();
            }
            // Rounded up to a span; none of it lies behind the limit.
            assert!(memory.resident() <= goal.next_multiple_of(SPAN) + SPAN);
            assert_eq!(memory.resident_from((frames - SPAN) as u32), 0);
        }
        drop(warmer);
    }

    #[test]
    fn small_pools_are_left_alone() {
        let memory = Arc::new(FrameMemory::new(LEAST - 1, false).expect("a mapping"));
        let warmer = Warmer::new(&memory, LEAST - 1);
        warmer.taken(LEAST as u32 - 2);
        assert!(warmer.shared.state.lock().thread.is_none());
    }

    #[test]
    fn huge_pages_that_are_slow_are_tried_less_and_less() {
        let mut sizes = Sizes::default();
        let spans = |sizes: &mut Sizes, slow: bool, count: usize| {
            let mut huge = 0;
            for _ in 0..count {
                let next = sizes.is_huge();
                huge += usize::from(next);
                sizes.note(if next { HUGE[usize::from(slow)] } else { SLOW / 2 });
            }
            huge
        };
        assert_eq!(spans(&mut sizes, false, 100), 100);
        assert_eq!(spans(&mut sizes, true, 1 + PERIOD as usize), 1);
        assert_eq!(spans(&mut sizes, true, 1 + 2 * PERIOD as usize), 1);
        let most = 1 + MOST_PERIOD as usize;
        assert!(spans(&mut sizes, true, 10 * most) <= 13);
        // Quick again: they stay.
        spans(&mut sizes, false, most);
        assert_eq!(spans(&mut sizes, false, 100), 100);
    }

    #[test]
    fn where_no_memory_is_at_hand_pages_are_huge() {
        let mut sizes = Sizes::default();
        sizes.note(HUGE[1]);
        assert!(!sizes.is_huge());
        sizes.note(HUGE[1]);
        assert!(sizes.is_huge());
    }
}
