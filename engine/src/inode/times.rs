//! The times of an inode in memory: when they change, whether they were seen, and whether they wait to be logged.
//!
//! Threads that write to one file would pass the cache line of its times from core to core with each write. So
//! changes of content share a time while they are of one tick of the clock, unless somebody looks in between:
//! a reader that looks twice, with a change of content in between, sees two times.
//!
//! # Protocol
//! `state` is SEEN (somebody may have seen the times: the next change of content must show), SETTLED (nobody has
//! since a change of content set them), or CHANGING.
//! 1. *Change*: with SETTLED and times of this tick nothing is to be done. Otherwise, with the mutex: CHANGING,
//!    the new times, the mark that they wait to be logged, SETTLED. So a thread that finds SETTLED finds times that are
//!    complete and marked, and an fsync of its own logs them.
//! 2. *Look*: if the state is SEEN before and after, the times read in between were. Otherwise, with the mutex:
//!    SEEN, then the times.
//! 3. Content is changed before 1 begins, and a reader reads content after 2; a fence (SeqCst) lies in between on
//!    both sides. So either the change finds SEEN, or the reader reads what was changed.

use super::tick::is_of_this_tick;
use super::{Time, now};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering, fence};

const SEEN: u8 = 0;
const SETTLED: u8 = 1;
const CHANGING: u8 = 2;

/// Last access, change of content, change of the inode.
#[derive(Debug)]
pub(super) struct Times {
    atime: AtomicI64,
    mtime: AtomicI64,
    ctime: AtomicI64,
    state: AtomicU8,
    /// They differ from the image.
    lazy: AtomicBool,
    changing: Mutex<()>,
}

impl Times {
    /// The times of an image. Somebody may have seen them before the inode came into memory.
    pub fn new([atime, mtime, ctime]: [Time; 3]) -> Times {
        Times {
            atime: AtomicI64::new(atime),
            mtime: AtomicI64::new(mtime),
            ctime: AtomicI64::new(ctime),
            state: AtomicU8::new(SEEN),
            lazy: AtomicBool::new(false),
            changing: Mutex::new(()),
        }
    }

    /// The times, for a caller that will compare them with later ones.
    pub fn show(&self) -> [Time; 3] {
        // Acquire: pairs with the Release of SEEN and of SETTLED, for times as new as the state.
        let seen = || self.state.load(Ordering::Acquire) == SEEN;
        let mut times = None;
        if seen() {
            times = Some(self.get()).filter(|_| seen());
        }
        let times = times.unwrap_or_else(|| {
            let _changing = self.changing.lock();
            // Release: pairs with the Acquire above.
            self.state.store(SEEN, Ordering::Release);
            self.get()
        });
        // SeqCst: rule 3; pairs with that of `touch_content`.
        fence(Ordering::SeqCst);
        times
    }

    /// The times, for a caller that will not.
    pub fn get(&self) -> [Time; 3] {
        // Acquire: pairs with the Release of a change, whose CHANGING is seen behind its times.
        [&self.atime, &self.mtime, &self.ctime].map(|time| time.load(Ordering::Acquire))
    }

    /// Rule 1.
    pub fn touch_content(&self) {
        // SeqCst: rule 3; pairs with that of `show`.
        fence(Ordering::SeqCst);
        if self.is_shown() {
            return;
        }
        let _changing = self.changing.lock();
        // Another thread may have changed them since, after this one's change of content.
        if self.is_shown() {
            return;
        }
        let old = self.get()[1];
        // Release on the times: pairs with the Acquire of `get`, which sees this first.
        self.state.store(CHANGING, Ordering::Relaxed);
        // The clock may stand still between two looks at it.
        let at = Some(now()).filter(|at| *at != old).unwrap_or(old.saturating_add(1));
        self.mtime.store(at, Ordering::Release);
        self.ctime.store(at, Ordering::Release);
        self.mark_lazy();
        // Release: pairs with the Acquire of `is_shown`, for the times and their mark.
        self.state.store(SETTLED, Ordering::Release);
    }

    /// Whether a change of content is shown by the times as they are. An access since then counts as a look: the
    /// next change must not seem older.
    fn is_shown(&self) -> bool {
        // The times first: those of a change that is under way come with its CHANGING.
        let [atime, mtime, ctime] = self.get();
        // Acquire: pairs with the Release of SETTLED.
        self.state.load(Ordering::Acquire) == SETTLED
            && atime <= mtime
            && is_of_this_tick(mtime)
            && is_of_this_tick(ctime)
    }

    /// The content was read.
    pub fn touch_access(&self) {
        // Relaxed, both: lone values.
        let seen = self.state.load(Ordering::Relaxed) == SEEN;
        if !seen && is_of_this_tick(self.atime.load(Ordering::Relaxed)) {
            return;
        }
        self.atime.store(now(), Ordering::Release);
        self.mark_lazy();
    }

    /// Times that are already staged by themselves become visible.
    pub fn set_content(&self, at: Time) {
        let _changing = self.changing.lock();
        // Relaxed, and Release on the times: as in `touch_content`.
        self.state.store(CHANGING, Ordering::Relaxed);
        self.mtime.store(at, Ordering::Release);
        self.ctime.store(at, Ordering::Release);
        // Release: as in `show`. The next change shows in any case.
        self.state.store(SEEN, Ordering::Release);
    }

    /// The times of content that a predecessor has changed, and no record holds.
    pub fn bring(&self, mtime: Time, ctime: Time) {
        let _changing = self.changing.lock();
        // Relaxed, and Release on the times: as in `touch_content`.
        self.state.store(CHANGING, Ordering::Relaxed);
        self.mtime.store(mtime, Ordering::Release);
        self.ctime.store(ctime, Ordering::Release);
        self.mark_lazy();
        // Release: as in `show`. Somebody may have seen them.
        self.state.store(SEEN, Ordering::Release);
    }

    fn mark_lazy(&self) {
        // Release: pairs with the swap in `install`: a thread that takes the flag sees the times.
        self.lazy.store(true, Ordering::Release);
    }

    /// Whether they wait to be logged, or may for all that is known while another thread changes them: a thread that
    /// installs an image takes the mark away before it looks whether they are newer than that.
    pub fn are_lazy(&self) -> bool {
        // Relaxed: the record that logs them folds in what it finds; the lock orders the second look.
        let lazy = || self.lazy.load(Ordering::Relaxed);
        lazy() || self.changing.try_lock().is_none_or(|_changing| lazy())
    }

    /// An image with `logged` is the newest, made when the times were `folded`.
    pub fn install(&self, folded: [Time; 3], logged: [Time; 3]) {
        let _changing = self.changing.lock();
        // Acquire: pairs with the Release in `mark_lazy`; times stored before it are seen below, and those
        // stored later set the flag again.
        self.lazy.swap(false, Ordering::Acquire);
        if folded != logged {
            // The caller that gave them knows them. Release: as in `show`.
            self.state.store(SEEN, Ordering::Release);
        }
        let mut lazy = false;
        for (time, (folded, logged)) in
            [&self.atime, &self.mtime, &self.ctime].into_iter().zip(folded.into_iter().zip(logged))
        {
            // A time that changed since it was folded in is newer than the draft's. Release: as in
            // `touch_content`. Relaxed on failure: nothing is read through it.
            lazy |= time.compare_exchange(folded, logged, Ordering::Release, Ordering::Relaxed).is_err();
        }
        if lazy {
            self.mark_lazy();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn fresh() -> Times {
        let at = now();
        Times::new([at; 3])
    }

    /// Changes of one tick share a time; a look, a look at times that were logged, or at those that were set, ends
    /// that.
    #[test]
    fn a_change_after_a_look_shows() {
        let times = fresh();
        for _ in 0..1000 {
            let before = times.show();
            times.touch_content();
            let after = times.show();
            assert!(after[1] != before[1] && after[1] == after[2]);
            assert!(times.are_lazy());
        }
        let folded = times.get();
        times.touch_content();
        let folded = if times.get() == folded { folded } else { times.get() };
        let set = now();
        times.install(folded, [set; 3]);
        assert!(!times.are_lazy());
        times.touch_content();
        assert!(times.get()[1] != set, "who set it would not see the change");
        assert!(times.are_lazy());
    }

    /// The kernel remembers what it was shown while the inode leaves memory and comes back.
    #[test]
    fn the_first_change_in_memory_shows() {
        for _ in 0..100 {
            let times = fresh();
            let before = times.get();
            times.touch_content();
            assert_ne!(times.get()[1], before[1]);
        }
    }

    #[test]
    fn changes_of_one_tick_share_a_time_until_the_content_is_read() {
        let shared = (0..1000).any(|_| {
            let times = fresh();
            times.touch_content();
            let first = times.get()[1];
            times.touch_content();
            times.get()[1] == first
        });
        assert!(shared, "a tick is longer than this takes, but for once");
        let times = fresh();
        times.touch_content();
        times.atime.store(times.get()[1] + 1, Ordering::Relaxed);
        let first = times.get()[1];
        times.touch_content();
        assert_ne!(times.get()[1], first, "what was read was older");
    }
}

/// Content is a number; it is changed before the times are told, and read after they were looked at.
#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::sync::atomic::AtomicU64;
    use crate::sync::{Arc, thread};

    /// A thread that sees the same time twice has seen all changes of content that were over at the second look, at the
    /// first.
    #[test]
    fn no_change_hides_behind_a_time_that_was_seen() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let shared = Arc::new((Times::new([0; 3]), AtomicU64::new(0)));
            shared.0.touch_content();
            let writers = [1, 2].map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1.fetch_add(1, Ordering::Relaxed);
                    shared.0.touch_content();
                })
            });
            let first = shared.0.show()[1];
            let content = shared.1.load(Ordering::Relaxed);
            writers.into_iter().for_each(|writer| writer.join().expect("a model's threads do not panic"));
            let changed = shared.1.load(Ordering::Relaxed) != content;
            assert!(!changed || shared.0.show()[1] != first, "it changed behind a time that was seen");
            assert!(shared.0.are_lazy());
        });
    }
}
