//! For how long the kernel may trust a name.
//!
//! The kernel does not check search permission on the way along names that it trusts, unless it checks all
//! permissions ([`Permissions::Kernel`]): another user could walk through a directory that was open once and is
//! closed by now. Where the server checks, a name is therefore *lent* for [`HOLD`], and only in a directory that
//! everyone may search; whatever closes such a directory, or moves a name out of it into a closed one, is not
//! answered before every loan has run out. A path that is walked all the time costs a look-up of each of its
//! names every [`HOLD`], and closing a directory that was just used costs a wait of up to that and [`LATE`]. Who
//! moves many names pays that once: loans of a directory for which somebody had to wait are [`SHORT`] for the
//! time after, [`WARY`].
//!
//! What it leaves to others: attributes, which no permission hangs on here.
//!
//! Invariants: a loan is recorded before it is decided whether the directory is open, and closing reads the
//! records after the directory is closed: whichever comes first under the directory's lock, no loan outlives the
//! answer to the closing. A record may be of another directory as well (they share [`SLOTS`]): then a wait is
//! for nothing.

use super::Caching;
use crate::mount::Permissions;
use narufs_engine::blocking;
use narufs_engine::format::Nid;
use narufs_engine::vfs::Fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// As good as for ever.
pub const LONG: Duration = Duration::from_secs(24 * 3600);
/// How long a loan is.
const HOLD: Duration = Duration::from_millis(200);
/// How long it is where somebody had to wait for its end.
const SHORT: Duration = Duration::from_millis(50);
/// For how long it is that then.
const WARY: Duration = Duration::from_secs(10);
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
    Lent(Loans),
}

/// What is lent.
#[derive(Debug)]
pub struct Loans {
    start: Instant,
    /// When all loans of a directory have run out, in microseconds from the start. SeqCst is not needed: the
    /// directory's own lock orders a record with the closing (see the module), so that Relaxed is enough.
    ends: Box<[AtomicU64]>,
    /// Until when loans of a directory are short, likewise. Relaxed is enough: a loan is recorded as long as it is.
    wary: Box<[AtomicU64]>,
}

impl Names {
    pub fn new(caching: Caching, permissions: Permissions) -> Names {
        match (caching, permissions) {
            (_, Permissions::Kernel) => Names::Long,
            (Caching::Shared, Permissions::Server) => Names::Never,
            (Caching::Exclusive, Permissions::Server) => {
                let zeros = || (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
                Names::Lent(Loans { start: Instant::now(), ends: zeros(), wary: zeros() })
            }
        }
    }

    /// To be called before the operation that finds or makes names in `dir`.
    pub fn lend(&self, fs: &Fs, dir: Nid) -> Loan {
        match self {
            Names::Never => Loan::NONE,
            Names::Long => Loan { since: None, hold: LONG },
            Names::Lent(loans) => {
                let since = Instant::now();
                let hold = loans.hold(dir, since);
                loans.record(dir, loans.micros(since + hold + LATE));
                let hold = if fs.everyone_may_search(dir) == Some(true) { hold } else { Duration::ZERO };
                Loan { since: Some(since), hold }
            }
        }
    }

    /// To be called between a change of who may do what with `nid` and the answer to it. If that is a directory, and not
    /// everyone may search it now, no name in it is trusted any more when this returns.
    pub fn permissions_changed(&self, fs: &Fs, nid: Nid) {
        if let Names::Lent(loans) = self
            && fs.everyone_may_search(nid) == Some(false)
        {
            loans.wait(nid, loans.end(nid));
        }
    }

    /// To be called between the move of a name to another directory and the answer to it: the loan moves too.
    pub fn moved(&self, fs: &Fs, from: Nid, to: Nid) {
        if let Names::Lent(loans) = self {
            let end = loans.end(from);
            loans.record(to, end);
            if fs.everyone_may_search(to) != Some(true) {
                loans.wait(from, end);
            }
        }
    }
}

impl Loans {
    fn micros(&self, at: Instant) -> u64 {
        at.duration_since(self.start).as_micros() as u64
    }

    fn slot(dir: Nid) -> usize {
        (dir.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SLOTS
    }

    /// How long a loan in `dir` is.
    fn hold(&self, dir: Nid, now: Instant) -> Duration {
        let is_wary = self.micros(now) < self.wary[Loans::slot(dir)].load(Ordering::Relaxed);
        if is_wary { SHORT } else { HOLD }
    }

    fn end(&self, dir: Nid) -> u64 {
        self.ends[Loans::slot(dir)].load(Ordering::Relaxed)
    }

    fn record(&self, dir: Nid, end: u64) {
        let slot = &self.ends[Loans::slot(dir)];
        if slot.load(Ordering::Relaxed) < end {
            slot.fetch_max(end + AHEAD.as_micros() as u64, Ordering::Relaxed);
        }
    }

    /// Sleeps until `end`, when loans of `dir` have run out.
    fn wait(&self, dir: Nid, end: u64) {
        let now = self.micros(Instant::now());
        if now < end {
            self.wary[Loans::slot(dir)].store(now + WARY.as_micros() as u64, Ordering::Relaxed);
            blocking::about_to_block();
            std::thread::sleep(Duration::from_micros(end - now));
        }
    }
}

/// The right to trust the names that one operation finds.
#[derive(Debug, Clone, Copy)]
pub struct Loan {
    since: Option<Instant>,
    hold: Duration,
}

impl Loan {
    /// For what has no name.
    pub const NONE: Loan = Loan { since: None, hold: Duration::ZERO };

    /// For how long, from now on. An operation that took long has used its loan up.
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
    use narufs_engine::scratch::{self, ScratchOptions};
    use narufs_engine::vfs::{Context, Running};

    fn loans() -> Loans {
        match Names::new(Caching::Exclusive, Permissions::Server) {
            Names::Lent(loans) => loans,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_record_only_grows_and_not_at_every_loan() {
        let loans = loans();
        loans.record(5, 1000);
        let end = loans.end(5);
        assert_eq!(end, 1000 + AHEAD.as_micros() as u64);
        loans.record(5, end - 1);
        assert_eq!(loans.end(5), end);
        loans.record(5, end + 1);
        assert!(loans.end(5) > end + 1);
    }

    #[test]
    fn waiting_ends_after_the_last_loan() {
        let loans = loans();
        let end = loans.micros(Instant::now() + SHORT);
        loans.wait(5, end);
        assert!(loans.micros(Instant::now()) >= end);
        loans.wait(6, 0);
    }

    #[test]
    fn loans_are_short_for_a_time_where_somebody_waited_for_their_end() {
        let loans = loans();
        let hold = |dir, later| loans.hold(dir, Instant::now() + later);
        assert_eq!(hold(5, Duration::ZERO), HOLD);
        loans.wait(5, 0);
        assert_eq!(hold(5, Duration::ZERO), HOLD, "nobody waited");
        loans.wait(5, loans.micros(Instant::now()) + 1000);
        assert_eq!((hold(5, WARY / 2), hold(6, Duration::ZERO)), (SHORT, HOLD));
        assert_eq!(hold(5, WARY), HOLD);
    }

    /// Else it ends after an hour.
    #[test]
    fn what_is_no_directory_is_not_waited_for() {
        let (mounted, options) = scratch::make(&ScratchOptions::with_memory(32 << 20)).expect("memory");
        let running = Running::start(mounted.store(), &options).expect("assembled");
        let fs = running.fs();
        let root = Context::root();
        let file = fs.mknod(&root, ROOT_NID, b"file", libc::S_IFREG | 0o600, 0).expect("made");
        let names = Names::new(Caching::Exclusive, Permissions::Server);
        let Names::Lent(loans) = &names else { panic!("{names:?}") };
        // As of a directory whose number falls into the same slot.
        loans.record(file.nid, loans.micros(Instant::now() + Duration::from_secs(3600)));
        names.permissions_changed(fs, file.nid);
    }

    #[test]
    fn a_loan_that_lay_too_long_is_worth_nothing() {
        let fresh = Loan { since: Some(Instant::now()), hold: HOLD };
        assert_eq!(fresh.hold(), HOLD);
        let old = Instant::now().checked_sub(LATE).expect("the machine is up longer than this");
        assert_eq!(Loan { since: Some(old), hold: HOLD }.hold(), Duration::ZERO);
        assert_eq!(Loan { since: None, hold: LONG }.hold(), LONG);
    }
}
