//! For how long the kernel may trust a name.
//!
//! The kernel does not check search permission on the way along names that it trusts, unless it checks all
//! permissions ([`Permissions::Kernel`]): another user could walk through a directory that was open once and is
//! closed by now. Where the server checks, a name is therefore *lent* for [`HOLD`], and only in a directory that
//! everyone may search; whatever closes such a directory, or moves a name out of it into a closed one, is not
//! answered before every lease has run out. A path that is walked all the time costs a look-up of each of its
//! names every [`HOLD`], and closing a directory that was just used costs a wait of up to that and [`LATE`]. Who
//! moves many names pays that once: leases of a directory for which somebody had to wait are [`SHORT`] for the
//! time after, [`BACK_OFF`].
//!
//! What it leaves to others: attributes, which no permission hangs on here.
//!
//! Invariants: a lease is recorded before it is decided whether the directory is open, and closing reads the
//! records after the directory is closed: whichever comes first under the directory's lock, no lease outlives the
//! answer to the closing. A record may be of another directory as well (they share [`SLOTS`]): then a wait is
//! for nothing.

use super::Caching;
use crate::mount::Permissions;
use narufs_engine::blocking;
use narufs_engine::format::Nid;
use narufs_engine::vfs::Vfs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// As good as for ever.
pub const LONG: Duration = Duration::from_secs(24 * 3600);
/// How long a lease is.
const HOLD: Duration = Duration::from_millis(200);
/// How long it is where somebody had to wait for its end.
const SHORT: Duration = Duration::from_millis(50);
/// For how long it is that then.
const BACK_OFF: Duration = Duration::from_secs(10);
/// How much longer it is taken for: the kernel counts from when the caller runs again, which may be late.
const LATE: Duration = Duration::from_millis(50);
/// Records are this much longer still, so that a busy directory's record is written now and then only.
const AHEAD: Duration = Duration::from_millis(20);
/// Records; a power of two.
const SLOTS: usize = 1024;

/// For how long names may be trusted, and what is lent.
#[derive(Debug)]
pub enum Names {
    /// Not at all.
    Never,
    /// The kernel checks permissions itself, and nobody else changes names.
    Long,
    /// As the module says.
    Lent(Leases),
}

/// What is lent.
#[derive(Debug)]
pub struct Leases {
    start: Instant,
    /// When all leases of a directory have run out, in microseconds from the start. SeqCst is not needed: the
    /// directory's own lock orders a record with the closing (see the module), so that Relaxed is enough.
    ends: Box<[AtomicU64]>,
    /// Until when leases of a directory are short, likewise. Relaxed is enough: a lease is recorded as long as it is.
    back_off: Box<[AtomicU64]>,
}

impl Names {
    /// Names cached as `caching` says, permissions checked as `permissions` says. In a successor everything may just have
    /// been lent.
    pub fn new(caching: Caching, permissions: Permissions, is_successor: bool) -> Names {
        match (caching, permissions) {
            (_, Permissions::Kernel) => Names::Long,
            (Caching::Shared, Permissions::Server) => Names::Never,
            (Caching::Exclusive, Permissions::Server) => {
                let all = |micros| (0..SLOTS).map(|_| AtomicU64::new(micros)).collect();
                let lent = if is_successor { (HOLD + LATE + AHEAD).as_micros() as u64 } else { 0 };
                Names::Lent(Leases { start: Instant::now(), ends: all(lent), back_off: all(0) })
            }
        }
    }

    /// To be called before the operation that finds or makes names in `dir`.
    pub fn lend(&self, fs: &Vfs, dir: Nid) -> Lease {
        match self {
            Names::Never => Lease::NONE,
            Names::Long => Lease { since: None, hold: LONG },
            Names::Lent(leases) => {
                let since = Instant::now();
                let hold = leases.hold(dir, since);
                leases.record(dir, leases.micros(since + hold + LATE));
                let hold = if fs.everyone_may_search(dir) == Some(true) { hold } else { Duration::ZERO };
                Lease { since: Some(since), hold }
            }
        }
    }

    /// To be called between a change of who may do what with `nid` and the answer to it. If that is a directory, and not
    /// everyone may search it now, no name in it is trusted any more when this returns.
    pub fn permissions_changed(&self, fs: &Vfs, nid: Nid) {
        if let Names::Lent(leases) = self
            && fs.everyone_may_search(nid) == Some(false)
        {
            leases.wait(nid, leases.end(nid));
        }
    }

    /// To be called between the move of a name to another directory and the answer to it: the lease moves too.
    pub fn moved(&self, fs: &Vfs, from: Nid, to: Nid) {
        if let Names::Lent(leases) = self {
            let end = leases.end(from);
            leases.record(to, end);
            if fs.everyone_may_search(to) != Some(true) {
                leases.wait(from, end);
            }
        }
    }
}

impl Leases {
    fn micros(&self, at: Instant) -> u64 {
        at.duration_since(self.start).as_micros() as u64
    }

    fn slot(dir: Nid) -> usize {
        (dir.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SLOTS
    }

    /// How long a lease in `dir` is.
    fn hold(&self, dir: Nid, now: Instant) -> Duration {
        let backs_off = self.micros(now) < self.back_off[Leases::slot(dir)].load(Ordering::Relaxed);
        if backs_off { SHORT } else { HOLD }
    }

    fn end(&self, dir: Nid) -> u64 {
        self.ends[Leases::slot(dir)].load(Ordering::Relaxed)
    }

    fn record(&self, dir: Nid, end: u64) {
        let slot = &self.ends[Leases::slot(dir)];
        if slot.load(Ordering::Relaxed) < end {
            slot.fetch_max(end + AHEAD.as_micros() as u64, Ordering::Relaxed);
        }
    }

    /// Sleeps until `end`, when leases of `dir` have run out.
    fn wait(&self, dir: Nid, end: u64) {
        let now = self.micros(Instant::now());
        if now < end {
            self.back_off[Leases::slot(dir)].store(now + BACK_OFF.as_micros() as u64, Ordering::Relaxed);
            blocking::about_to_block();
            // A fuzzer has no kernel that walks by names, and would sleep for nearly all of its time.
            if !cfg!(fuzzing) {
                std::thread::sleep(Duration::from_micros(end - now));
            }
        }
    }
}

/// The right to trust the names that one operation finds.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    since: Option<Instant>,
    hold: Duration,
}

impl Lease {
    /// For what has no name.
    pub const NONE: Lease = Lease { since: None, hold: Duration::ZERO };

    /// For how long, from now on. An operation that took long has used its lease up.
    pub fn hold(&self) -> Duration {
        match self.since {
            Some(since) if !self.hold.is_zero() && since.elapsed() > LATE / 2 => Duration::ZERO,
            _ => self.hold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narufs_engine::format::ROOT_NID;
    use narufs_engine::vfs::Context;
    use narufs_engine::volume::Running;
    use narufs_engine::volume::scratch::{self, ScratchOptions};

    fn leases() -> Leases {
        leases_of(false)
    }

    fn leases_of(is_successor: bool) -> Leases {
        match Names::new(Caching::Exclusive, Permissions::Server, is_successor) {
            Names::Lent(leases) => leases,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_record_only_grows_and_not_at_every_lease() {
        let leases = leases();
        leases.record(5, 1000);
        let end = leases.end(5);
        assert_eq!(end, 1000 + AHEAD.as_micros() as u64);
        leases.record(5, end - 1);
        assert_eq!(leases.end(5), end);
        leases.record(5, end + 1);
        assert!(leases.end(5) > end + 1);
    }

    #[test]
    fn a_successor_takes_all_to_be_lent() {
        let leases = leases_of(true);
        assert!((0..100).all(|dir| leases.end(dir) >= leases.micros(leases.start + HOLD + LATE)));
    }

    #[test]
    fn waiting_ends_after_the_last_lease() {
        let leases = leases();
        let end = leases.micros(Instant::now() + SHORT);
        leases.wait(5, end);
        assert!(leases.micros(Instant::now()) >= end);
        leases.wait(6, 0);
    }

    #[test]
    fn leases_are_short_for_a_time_where_somebody_waited_for_their_end() {
        let leases = leases();
        let hold = |dir, later| leases.hold(dir, Instant::now() + later);
        assert_eq!(hold(5, Duration::ZERO), HOLD);
        leases.wait(5, 0);
        assert_eq!(hold(5, Duration::ZERO), HOLD, "nobody waited");
        leases.wait(5, leases.micros(Instant::now()) + 1000);
        assert_eq!((hold(5, BACK_OFF / 2), hold(6, Duration::ZERO)), (SHORT, HOLD));
        assert_eq!(hold(5, BACK_OFF), HOLD);
    }

    /// Else it ends after an hour.
    #[test]
    fn what_is_no_directory_is_not_waited_for() {
        let (mounted, options) = scratch::make(&ScratchOptions::with_memory(32 << 20)).expect("memory");
        let running = Running::start(mounted.checkpointer(), &options).expect("assembled");
        let fs = running.fs();
        let root = Context::root();
        let file = fs.mknod(&root, ROOT_NID, b"file", libc::S_IFREG | 0o600, 0).expect("made");
        let names = Names::new(Caching::Exclusive, Permissions::Server, false);
        let Names::Lent(leases) = &names else { panic!("{names:?}") };
        // As of a directory whose number falls into the same slot.
        leases.record(file.nid, leases.micros(Instant::now() + Duration::from_secs(3600)));
        names.permissions_changed(fs, file.nid);
    }

    #[test]
    fn a_lease_that_lay_too_long_is_worth_nothing() {
        let fresh = Lease { since: Some(Instant::now()), hold: HOLD };
        assert_eq!(fresh.hold(), HOLD);
        let old = Instant::now().checked_sub(LATE).expect("the machine is up longer than this");
        assert_eq!(Lease { since: Some(old), hold: HOLD }.hold(), Duration::ZERO);
        assert_eq!(Lease { since: None, hold: LONG }.hold(), LONG);
    }
}
