//! How far the power durability lags behind what fsyncs were answered for, on an SSD ring with `durability=window`
//! or `=process`.
//!
//! An fsync that is answered before a loss of power would spare what it covers leaves a *promise*: the position
//! up to which everything must become durable, and the count of device writes (of file data that went home) that
//! a flush must cover. The *lag* is the age of the oldest promise that is not kept. Here are the sums of all
//! promises and the time of the oldest; a thread that commits and flushes is the business of others.
//!
//! # Protocol
//! 1. *Depend.* Before a record is reserved that makes written blocks reachable, and before a promise, the writes
//!    are raised to the count that the record or the promise depends on.
//! 2. *Promise.* The position is raised, then, after a fence, the time is set if it is not. A thread that sets it wakes
//!    the streaming thread. Then the fsync looks at the lag: it is answered if that is below the window, else it waits
//!    like one that waits for the power durability.
//! 3. *Begin.* A commit notes the time, and after a fence reserves its slots; then it reads the writes and has them
//!    flushed before anything of its range is submitted.
//! 4. *Keep.* When it is published, with all before it, every promise made before its time is kept: the time of the
//!    oldest moves up to that at the least. If positions and writes are all durable there is none: the time is
//!    taken away, and after a fence the sums are looked at again, for a promise made meanwhile may have found the
//!    time still set. If they have grown, that of the commit is set, also in the place of a later one: a promise made
//!    after that may have found none, and have set its own.
//!
//! Why 3 keeps what 4 says: of the fences of a promise and of a commit one comes first. If it is the promise's, the
//! commit sees its writes, and reserves beyond its position. If it is the commit's, the promise was answered after
//! the time that the commit has noted, so the time of the oldest stays at or before the answer. The lag is never
//! shown shorter than it is; it may be shown longer by the time between a commit's begin and the next promise.
//!
//! Why 4 loses none: if the promise read the old time, its fence came before the second of 4, whose look sees it.

use std::time::Duration;

use crate::clock::Clock;
use crate::format::Position;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::sync::{CachePadded, WaitQueue};

/// What was promised, and since when.
pub(super) struct Lag {
    clock: Clock,
    /// The highest position of a promise.
    position: CachePadded<AtomicU64>,
    /// The highest count of device writes that a record or a promise depends on.
    writes: CachePadded<AtomicU64>,
    /// When the oldest promise that is not kept was made, or earlier; 0: there is none.
    since: CachePadded<AtomicU64>,
    /// The streaming thread is to end.
    over: AtomicBool,
    /// The streaming thread is to begin, whatever the age.
    hurried: AtomicBool,
    /// Where the streaming thread sleeps.
    streamer: WaitQueue,
}

/// What has been kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    /// Every promise made before this time.
    pub(super) before: u64,
    /// Everything below this position is durable.
    pub(super) position: Position,
    /// So many device writes are flushed.
    pub(super) writes: u64,
}

impl Lag {
    pub(super) fn new(clock: Clock) -> Lag {
        Lag {
            clock,
            position: CachePadded::new(AtomicU64::new(0)),
            writes: CachePadded::new(AtomicU64::new(0)),
            since: CachePadded::new(AtomicU64::new(0)),
            over: AtomicBool::new(false),
            hurried: AtomicBool::new(false),
            streamer: WaitQueue::new(),
        }
    }

    /// Step 1.
    pub(super) fn depend(&self, writes: u64) {
        // Relaxed: for a record the reservation's Release passes it on, for a promise the fence.
        self.writes.fetch_max(writes, Ordering::Relaxed);
    }

    /// Step 2; the lag, this promise included.
    pub(super) fn promise(&self, position: Position) -> Duration {
        let now = self.clock.now();
        // Relaxed: the fence orders it.
        self.position.fetch_max(position, Ordering::Relaxed);
        // Pairs with the fences in `begin` and `keep`.
        fence(Ordering::SeqCst);
        // Relaxed: it is only compared.
        let mut since = self.since.load(Ordering::Relaxed);
        if since == 0 {
            // AcqRel: pairs with itself in `keep`: a thread that takes this time away sees the promise. Relaxed on
            // failure: only compared.
            match self.since.compare_exchange(0, now, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    since = now;
                    self.streamer.wake_all();
                }
                // Taken away meanwhile: its taker looks at the promises again.
                Err(0) => since = now,
                Err(other) => since = other,
            }
        }
        Duration::from_nanos(now.saturating_sub(since))
    }

    /// The first half of step 3: the time to note.
    pub(super) fn begin(&self) -> u64 {
        let now = self.clock.now();
        // Pairs with the fence in `promise`.
        fence(Ordering::SeqCst);
        now
    }

    /// Device writes that must be flushed before a commit begun before this call is submitted.
    pub(super) fn writes(&self) -> u64 {
        // Relaxed: the commit's reservation, or the fence in `begin`, orders it.
        self.writes.load(Ordering::Relaxed)
    }

    /// The highest position of a promise.
    pub(super) fn position(&self) -> Position {
        // Relaxed: as `writes`.
        self.position.load(Ordering::Relaxed)
    }

    /// Step 4.
    pub(super) fn keep(&self, kept: Kept) {
        let all = || self.position() <= kept.position && self.writes() <= kept.writes;
        // Relaxed throughout: the exchange verifies it, or it is only compared.
        let mut since = self.since.load(Ordering::Relaxed);
        while since != 0 && since < kept.before {
            match self.since.compare_exchange(since, kept.before, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => since = kept.before,
                Err(now) => since = now,
            }
        }
        if since == 0 || !all() {
            return;
        }
        // AcqRel: pairs with itself in `promise`.
        if self.since.compare_exchange(since, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        // Pairs with the fence in `promise`.
        fence(Ordering::SeqCst);
        if all() {
            return;
        }
        let older = |since| (since == 0 || since > kept.before).then_some(kept.before);
        if self.since.fetch_update(Ordering::AcqRel, Ordering::Relaxed, older).is_ok() {
            self.streamer.wake_all();
        }
    }

    /// The age of the oldest promise that is not kept.
    pub(super) fn now(&self) -> Duration {
        // Relaxed: for any thread that watches.
        match self.since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_nanos(self.clock.now().saturating_sub(since)),
        }
    }

    /// Much was promised: the streaming thread begins now, lest a thread that needs it durable finds all of it to
    /// write.
    pub(super) fn hurry(&self) {
        // Relaxed: a hint, which carries nothing; the queue's fences order it against sleeping.
        if !self.hurried.load(Ordering::Relaxed) && !self.hurried.swap(true, Ordering::Relaxed) {
            self.streamer.wake_all();
        }
    }

    /// Sleeps until the oldest promise has the age `due`, or much was promised, without a promise for as long as it
    /// takes; false once the thread is to end.
    pub(super) fn wait_due(&self, due: Duration) -> bool {
        // Relaxed: the queue's fences order both.
        let over = || self.over.load(Ordering::Relaxed);
        let since = || self.since.load(Ordering::Relaxed);
        loop {
            self.streamer.wait_until(|| since() != 0 || over());
            if over() {
                return false;
            }
            let age = self.now();
            if since() != 0 && (self.hurried.swap(false, Ordering::Relaxed) || age >= due) {
                return true;
            }
            let hurried = || self.hurried.load(Ordering::Relaxed);
            self.streamer.wait_timeout(|| over() || hurried(), due.saturating_sub(age));
        }
    }

    /// Ends the streaming thread.
    pub(super) fn end(&self) {
        // Relaxed: as in `wait_due`.
        self.over.store(true, Ordering::Relaxed);
        self.streamer.wake_all();
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod models {
    use super::*;
    use crate::sync::{Arc, Counter, thread};

    /// One fsync and two commits. A promise that no commit has kept is never forgotten, nor taken for younger than
    /// its answer.
    fn no_promise_is_forgotten() {
        let clock = Arc::new(Counter::new());
        let lag = Arc::new(Lag::new(Clock::moved_by(Arc::clone(&clock))));
        let (tail, durable) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
        let commit = {
            let (lag, tail, durable, clock) = (lag.clone(), tail.clone(), durable.clone(), clock.clone());
            move || {
                clock.add(1);
                let before = lag.begin();
                let position = tail.fetch_add(1, Ordering::AcqRel);
                let writes = lag.writes();
                // Commits are published in order.
                if durable.fetch_max(position, Ordering::AcqRel) <= position {
                    lag.keep(Kept { before, position, writes });
                }
                writes
            }
        };
        // An older one that only the second commit has to keep.
        lag.depend(1);
        lag.promise(1);
        let fsync = {
            let (lag, tail, clock) = (lag.clone(), tail.clone(), clock.clone());
            thread::spawn(move || {
                let position = tail.fetch_add(1, Ordering::AcqRel) + 1;
                lag.depend(2);
                lag.promise(position);
                (position, clock.get() + 1)
            })
        };
        let flushed = commit();
        let (position, answered) = fsync.join().expect("no panic");
        let since = lag.since.load(Ordering::Relaxed);
        if position > durable.load(Ordering::Relaxed) || flushed < 2 {
            assert!(
                since != 0 && since <= answered,
                "position {position}: since {since}, answered {answered}"
            );
        }
        commit();
        assert_eq!(lag.since.load(Ordering::Relaxed), 0, "all is kept");
    }

    /// Of two promises that a commit does not keep, the first finds the time that the commit takes away, and the second none.
    fn the_first_of_two_promises_counts() {
        let clock = Arc::new(Counter::new());
        let lag = Arc::new(Lag::new(Clock::moved_by(Arc::clone(&clock))));
        lag.promise(1);
        let kept = Kept { before: lag.begin(), position: 1, writes: 0 };
        let theirs = Arc::clone(&lag);
        let keeper = thread::spawn(move || theirs.keep(kept));
        clock.add(1);
        lag.promise(2);
        let answered = clock.get() + 1;
        clock.add(1);
        lag.promise(3);
        keeper.join().expect("no panic");
        let since = lag.since.load(Ordering::Relaxed);
        assert!(since != 0 && since <= answered, "since {since}, answered {answered}");
    }

    #[cfg(loom)]
    #[test]
    fn loom_the_first_of_two_promises_counts() {
        loom::model(the_first_of_two_promises_counts);
    }

    #[cfg(shuttle)]
    #[test]
    fn shuttle_the_first_of_two_promises_counts() {
        shuttle::check_random(the_first_of_two_promises_counts, 2000);
    }

    #[cfg(loom)]
    #[test]
    fn loom_no_promise_is_forgotten() {
        loom::model(no_promise_is_forgotten);
    }

    #[cfg(shuttle)]
    #[test]
    fn shuttle_no_promise_is_forgotten() {
        shuttle::check_random(no_promise_is_forgotten, 2000);
    }

    /// A promise wakes the streaming thread.
    #[cfg(loom)]
    #[test]
    fn loom_a_promise_wakes_the_streaming_thread() {
        loom::model(|| {
            let lag = Arc::new(Lag::new(Clock::default()));
            let theirs = Arc::clone(&lag);
            let streaming = thread::spawn(move || {
                assert!(theirs.wait_due(Duration::ZERO));
                let before = theirs.begin();
                theirs.keep(Kept { before, position: theirs.position(), writes: theirs.writes() });
            });
            lag.promise(1);
            streaming.join().expect("no panic");
        });
    }
}
