//! For how long the kernel may trust the attributes of a directory, where it checks permissions by them.
//!
//! The kernel forgets a directory's attributes when it has changed a name in it, and asks anew. But an answer that was
//! given just before a change, and arrives just after the kernel has forgotten, brings the old times back. So attributes
//! of a directory that has changed lately are *lent* for [`SHORT`]; those of a directory that has been *quiet* for
//! [`QUIET`] for as long as nothing changes. If a change follows such a lease within [`ON_THE_WAY`], the answer may have
//! been on its way: the kernel is told to forget once more, [`ON_THE_WAY`] later.
//!
//! What it leaves to others: everything that is not a time or count of a directory, which the kernel orders by versions
//! of its own; and whether names may be trusted ([`names`](super::names)).
//!
//! # Invariants
//! 1. A long lease is recorded before the times that it is for are read a last time; a change reads the records after it
//!    has been made. SeqCst fences stand between: either the change sees the record, or the lender the change.
//! 2. A record may be of another directory as well (they share [`SLOTS`]): then the kernel is told for nothing.
//! 3. Nothing is sent by a thread that serves a request: the kernel holds locks meanwhile that it would wait for.
//! 4. Where the mount outlives its server, what is to be told is left to a successor until it was told. Where half the room
//!    for that is in use nothing is lent for long, so that nothing more comes to it.

use super::names::LONG;
use crate::server::Notifier;
use crate::wire::notify::Notification;
use narufs_engine::format::Nid;
use narufs_engine::takeover::{MOST_NOTICES, Takeover};
use narufs_engine::vfs::Attr;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

/// What a directory's attributes are lent for while it changes.
const SHORT: Duration = Duration::from_secs(1);
/// How long a directory must not have changed to be quiet.
const QUIET: Duration = Duration::from_secs(2);
/// The longest that an answer is taken to be on its way to the kernel.
const ON_THE_WAY: Duration = Duration::from_secs(1);
/// Records; a power of two.
const SLOTS: usize = 4096;

/// What is lent, and what the kernel is to be told.
#[derive(Debug)]
pub struct DirTimes {
    start: Instant,
    /// When attributes of a directory were last lent for long, in microseconds from the start, plus one.
    lent: Box<[AtomicU64]>,
    late: Arc<Late>,
}

/// Directories that the kernel is to be told of.
#[derive(Debug, Default)]
struct Late {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// What servers share, where the mount outlives this one.
    memory: Option<Arc<Takeover>>,
    /// How many are waiting. Relaxed: a hint.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    due: VecDeque<(Instant, Nid)>,
    waiting: HashSet<Nid>,
    is_over: bool,
}

impl DirTimes {
    /// No directory is known. In a successor attributes of each may just have been lent, and the kernel is told what its
    /// predecessor has not told it.
    pub fn new(memory: Option<Arc<Takeover>>) -> DirTimes {
        let is_successor = memory.as_ref().is_some_and(|memory| memory.incarnation() > 0);
        let lent = (0..SLOTS).map(|_| AtomicU64::new(u64::from(is_successor))).collect();
        let (start, left) = (Instant::now(), memory.as_ref().map(|memory| memory.notices().left()));
        let late = Late { memory, ..Late::default() };
        for dir in left.into_iter().flatten() {
            late.queue.lock().add(start, dir);
        }
        DirTimes { start, lent, late: Arc::new(late) }
    }

    /// For how long attributes of a directory may be trusted; `again` reads them once more.
    pub fn hold(&self, attr: &Attr, again: impl FnOnce() -> Option<Attr>) -> Duration {
        let changed = attr.mtime.max(attr.ctime);
        let age = narufs_engine::inode::now().saturating_sub(changed);
        // A time to come says nothing of when it was set.
        if age < QUIET.as_nanos() as i64 || self.late.is_full() {
            return SHORT;
        }
        self.record(attr.nid, Instant::now());
        // Pairs with the fence in `changed`.
        fence(Ordering::SeqCst);
        let is_same = |now: Attr| (now.mtime, now.ctime, now.nlink) == (attr.mtime, attr.ctime, attr.nlink);
        if again().is_some_and(is_same) { LONG } else { SHORT }
    }

    /// A name in a directory was made or taken away; to be called before the answer.
    pub fn changed(&self, dir: Nid) {
        // Pairs with the fence in `hold`.
        fence(Ordering::SeqCst);
        let now = Instant::now();
        if self.was_lent(dir, now) {
            self.late.push(now + ON_THE_WAY, dir);
        }
    }

    /// Tells the kernel what it is to be told, from a thread of its own, until [`DirTimes::end`].
    pub fn tell(&self, notifier: Notifier) -> std::io::Result<()> {
        let late = Arc::clone(&self.late);
        let tell = move || {
            while let Some(dir) = late.next() {
                let forget = Notification::InvalInode { nodeid: dir, offset: -1, len: 0 };
                if let Err(e) = notifier.send(&forget) {
                    tracing::trace!(dir, "the kernel knows nothing of it: {e}");
                }
                late.told(dir);
            }
        };
        std::thread::Builder::new().name("naru-fuse-late".into()).stack_size(64 << 10).spawn(tell).map(drop)
    }

    /// Nobody is told any more.
    pub fn end(&self) {
        self.late.queue.lock().is_over = true;
        self.late.changed.notify_all();
    }

    fn slot(&self, dir: Nid) -> &AtomicU64 {
        &self.lent[(dir.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SLOTS]
    }

    fn micros(&self, at: Instant) -> u64 {
        at.duration_since(self.start).as_micros() as u64 + 1
    }

    fn record(&self, dir: Nid, now: Instant) {
        // Relaxed, as is the load below: the fences order them (invariant 1).
        self.slot(dir).fetch_max(self.micros(now), Ordering::Relaxed);
    }

    fn was_lent(&self, dir: Nid, now: Instant) -> bool {
        let lent = self.slot(dir).load(Ordering::Relaxed);
        lent != 0 && self.micros(now).saturating_sub(lent) < ON_THE_WAY.as_micros() as u64
    }
}

impl Drop for DirTimes {
    fn drop(&mut self) {
        self.end();
    }
}

impl Queue {
    /// False: it is waiting already.
    fn add(&mut self, due: Instant, dir: Nid) -> bool {
        let is_new = self.waiting.insert(dir);
        if is_new {
            self.due.push_back((due, dir));
        }
        is_new
    }
}

impl Late {
    fn push(&self, due: Instant, dir: Nid) {
        let mut queue = self.queue.lock();
        if !queue.add(due, dir) {
            return;
        }
        self.count.store(queue.due.len(), Ordering::Relaxed);
        if self.memory.as_ref().is_some_and(|memory| !memory.notices().put(dir)) {
            tracing::debug!(dir, "no room to leave it to a successor");
        }
        self.changed.notify_all();
    }

    fn told(&self, dir: Nid) {
        let queue = self.queue.lock();
        if let Some(memory) = &self.memory {
            memory.notices().take(dir);
        }
        self.count.store(queue.due.len(), Ordering::Relaxed);
    }

    fn is_full(&self) -> bool {
        self.memory.is_some() && self.count.load(Ordering::Relaxed) >= MOST_NOTICES / 2
    }

    /// The next that the kernel is to be told of, when its time has come. `None`: it is over.
    fn next(&self) -> Option<Nid> {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_over {
                return None;
            }
            match queue.due.front().copied() {
                None => self.changed.wait(&mut queue),
                Some((due, dir)) if due <= Instant::now() => {
                    queue.due.pop_front();
                    // A change from now on is one more reason.
                    queue.waiting.remove(&dir);
                    return Some(dir);
                }
                Some((due, _)) => drop(self.changed.wait_until(&mut queue, due)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narufs_engine::vfs::FileType;

    fn dir(age: Duration) -> Attr {
        let then = narufs_engine::inode::now() - age.as_nanos() as i64;
        Attr {
            nid: 7,
            generation: 0,
            file_type: FileType::Directory,
            perm: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 4096,
            blocks: 8,
            atime: then,
            mtime: then,
            ctime: then,
            btime: then,
        }
    }

    #[test]
    fn what_is_quiet_is_lent_for_long_and_what_changes_for_a_moment() {
        let times = DirTimes::new(None);
        let quiet = dir(2 * QUIET);
        assert_eq!(times.hold(&dir(QUIET / 2), || None), SHORT);
        assert_eq!(times.hold(&quiet, || Some(quiet)), LONG);
        assert_eq!(times.hold(&quiet, || Some(dir(Duration::ZERO))), SHORT, "it changed meanwhile");
        assert_eq!(times.hold(&quiet, || None), SHORT, "it is gone");
        let to_come = Attr { mtime: i64::MAX, ..quiet };
        assert_eq!(times.hold(&to_come, || Some(to_come)), SHORT);
    }

    #[test]
    fn a_change_close_behind_a_long_lease_is_told_once_and_late() {
        let times = DirTimes::new(None);
        times.changed(7);
        assert!(times.late.queue.lock().due.is_empty(), "nothing was lent");
        let quiet = dir(2 * QUIET);
        assert_eq!(times.hold(&quiet, || Some(quiet)), LONG);
        times.changed(7);
        times.changed(7);
        let queue = times.late.queue.lock();
        assert_eq!(queue.due.len(), 1);
        assert!(queue.due[0].0 > Instant::now());
        drop(queue);
        assert!(!times.was_lent(7, Instant::now() + ON_THE_WAY), "the answer has arrived by then");
    }

    #[test]
    fn a_successor_takes_all_to_be_lent_and_tells_what_was_not_told() {
        let memory = Takeover::create(1).expect("memory");
        let first = DirTimes::new(Some(Arc::clone(&memory)));
        (5..8).for_each(|dir| first.late.push(first.start, dir));
        first.late.told(first.late.next().expect("one is due"));
        let again = || memory.descriptor().try_clone_to_owned().expect("a descriptor");
        let times = DirTimes::new(Some(Takeover::adopt(again()).expect("it is there")));
        assert!((0..100).all(|dir| times.was_lent(dir, times.start)));
        assert!(!times.was_lent(7, times.start + ON_THE_WAY));
        for dir in [6, 7] {
            assert_eq!(times.late.next(), Some(dir));
            times.late.told(dir);
        }
        assert!(Takeover::adopt(again()).expect("it is there").notices().left().is_empty());
    }

    #[test]
    fn where_there_is_no_room_for_a_successors_notices_nothing_is_lent_for_long() {
        let times = DirTimes::new(Some(Takeover::create(1).expect("memory")));
        let quiet = dir(2 * QUIET);
        assert_eq!(times.hold(&quiet, || Some(quiet)), LONG);
        (1..=MOST_NOTICES as u64 / 2).for_each(|dir| times.late.push(times.start, dir));
        assert_eq!(times.hold(&quiet, || Some(quiet)), SHORT);
    }

    #[test]
    fn who_is_to_tell_waits_for_its_time_and_for_the_end() {
        let late = Late::default();
        let first = Instant::now() + Duration::from_millis(2);
        late.push(first, 5);
        assert_eq!(late.next(), Some(5));
        assert!(Instant::now() >= first);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| late.next());
            late.queue.lock().is_over = true;
            late.changed.notify_all();
            assert_eq!(waiting.join().expect("no panic"), None);
        });
    }
}
