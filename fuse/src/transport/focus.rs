//! Keeps the requests of a lone client on one core.
//!
//! All descriptors of a mount share the kernel's one queue of new requests, and the kernel wakes the reader that
//! has waited longest, on whatever core it is pinned to. With a reader on each core the requests of one client
//! would go round the cores; each would wake a core that has gone idle, and its reply the client's core from
//! there, which costs more than serving it. So while one thread alone asks, one lane reads alone, that of its core or
//! one beside it ([`super::beside`]), and the readers of the others *rest*. A second client, or requests that carry
//! much data (which gain from a second core), end that at once.
//!
//! # Protocol
//! 1. While all lanes read, the reader of each counts by itself ([`Seen`]) how many requests one thread has made in a
//!    row. Who has counted enough takes the mutex, and sets `alone` if nobody else has.
//! 2. While a lane reads alone, each request is noted under the mutex: one lane takes it, so nobody waits for it. The
//!    lanes that were asleep in the kernel when it began read one more request, then they rest.
//! 3. `alone` is changed under the mutex only. It is looked at in passing to find which of the two holds: who finds an
//!    old value counts a request too many, or finds the right one under the mutex.
//!
//! What it leaves to others: reading and serving (`lane`); on which side of a client it is served faster (`beside`). A
//! transport with a queue for each core needs none of this.
//!
//! Invariants: readers rest only while another lane reads alone; that lane is one that can read: a lane that
//! cannot go on reading gives the focus up. It is a matter of speed only: whichever lane reads, all is served.

use super::beside::{Chooser, Place};
use crate::wire::{InHeader, Opcode, ReadIn, RequestParts};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

/// Requests in a row by one thread before it is taken for a lone client, and after which its core is looked at
/// again at first.
const ROW: u32 = 64;
/// While it stays where it is, its core is looked at half as often each time, down to once in so many requests.
const MOST_ROW: u32 = 16 * ROW;
/// Each time a second client ends a focus, the row for the next is twice as long, up to this many times.
const MOST_DOUBLINGS: u32 = 8;
/// Bytes of a READ or WRITE that gains from another core.
const MUCH: u32 = 64 << 10;
/// `Focus::alone` if all lanes read; otherwise a lane, with [`BESIDE`] if it is not the client's own.
const ALL: usize = usize::MAX;
const BESIDE: usize = 1 << (usize::BITS - 2);

/// Finds the core that a thread ran on last.
type CoreOf = fn(u32) -> Option<usize>;

/// Which of a mount's lanes read.
#[derive(Debug)]
pub struct Focus {
    /// The core of each lane.
    cores: Vec<usize>,
    core_of: CoreOf,
    /// Whether a client may be served from another core than its own.
    may_watch: bool,
    began: Instant,
    /// What reads alone, or [`ALL`]. Relaxed is enough to look at it in passing: who rests looks again under the
    /// mutex, under which it is changed.
    alone: AtomicUsize,
    /// How often the row has doubled. Relaxed as `alone`, and changed as that.
    doublings: AtomicU32,
    lone: Mutex<Lone>,
    changed: Condvar,
}

/// The lone client.
#[derive(Debug, Default)]
struct Lone {
    over: bool,
    thread: u32,
    /// The lane of its core.
    home: usize,
    /// Requests until its core is looked at again, and how many they were in all.
    left: u32,
    row: u32,
    chooser: Chooser,
}

/// What a lane's reader has seen while all read.
#[derive(Debug, Default)]
pub struct Seen {
    thread: u32,
    row: u32,
}

/// How to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// As one of several, or on the client's own core: asleep until a request comes.
    Sleep,
    /// Alone, from beside the client: watching for a while.
    Watch,
}

impl Focus {
    /// For lanes on these cores; all read. A lone client may be served from beside if `may_watch`.
    pub fn new(cores: &[usize], may_watch: bool) -> Focus {
        Focus::with(cores, may_watch, core_of)
    }

    fn with(cores: &[usize], may_watch: bool, core_of: CoreOf) -> Focus {
        Focus {
            cores: cores.to_vec(),
            core_of,
            may_watch: may_watch && cores.len() > 1,
            began: Instant::now(),
            alone: AtomicUsize::new(ALL),
            doublings: AtomicU32::new(0),
            lone: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Returns when this lane may read, and how; sleeps while another one reads alone.
    pub fn rest(&self, lane: usize) -> Turn {
        match self.turn(lane) {
            Some(turn) => turn,
            None => self.sleep(lane),
        }
    }

    #[cold]
    fn sleep(&self, lane: usize) -> Turn {
        let mut lone = self.lone.lock();
        loop {
            match self.turn(lane) {
                Some(turn) => return turn,
                None if lone.over => return Turn::Sleep,
                None => self.changed.wait(&mut lone),
            }
        }
    }

    fn turn(&self, lane: usize) -> Option<Turn> {
        match self.alone.load(Ordering::Relaxed) {
            ALL => Some(Turn::Sleep),
            alone if alone == lane => Some(Turn::Sleep),
            alone if alone == lane | BESIDE => Some(Turn::Watch),
            _ => None,
        }
    }

    /// All lanes read from now on.
    pub fn release(&self) {
        if self.alone.load(Ordering::Relaxed) != ALL {
            self.set(&self.lone.lock(), ALL);
        }
    }

    /// Nobody rests any more: the mount is gone.
    pub fn end(&self) {
        self.lone.lock().over = true;
        self.changed.notify_all();
    }

    fn set(&self, _: &MutexGuard<'_, Lone>, alone: usize) {
        if self.alone.swap(alone, Ordering::Relaxed) != alone {
            self.changed.notify_all();
        }
    }

    /// Takes note of a request that is about to be served. Its reader, if it has watched, was set `aside` so often.
    pub fn note(&self, seen: &mut Seen, header: &InHeader, request: &RequestParts<'_>, aside: u32) {
        if header.pid == 0 {
            // The kernel's own, or from another pid name space.
            return;
        }
        let is_much = is_much(header, request);
        if self.alone.load(Ordering::Relaxed) != ALL {
            *seen = Seen::default();
            self.note_alone(header.pid, is_much, self.began.elapsed(), aside);
        } else if header.pid != seen.thread || is_much {
            *seen = Seen { thread: header.pid, row: 0 };
        } else {
            seen.row += 1;
            if seen.row >= ROW << self.doublings.load(Ordering::Relaxed) {
                seen.row = 0;
                self.begin(header.pid);
            }
        }
    }

    /// This thread is taken for a lone client.
    fn begin(&self, thread: u32) {
        let mut lone = self.lone.lock();
        if self.alone.load(Ordering::Relaxed) == ALL {
            (lone.thread, lone.row) = (thread, ROW / 2);
            lone.chooser.begin();
            self.find(&mut lone);
        }
    }

    /// Takes note of a request while a lane reads alone.
    fn note_alone(&self, thread: u32, is_much: bool, now: Duration, aside: u32) {
        let mut lone = self.lone.lock();
        if self.alone.load(Ordering::Relaxed) == ALL {
            return;
        }
        let doublings = self.doublings.load(Ordering::Relaxed);
        if thread != lone.thread || is_much {
            self.doublings.store((doublings + 1).min(MOST_DOUBLINGS), Ordering::Relaxed);
            self.set(&lone, ALL);
            return;
        }
        let place = lone.chooser.place();
        if self.may_watch {
            lone.chooser.note(now, aside);
        }
        lone.left = lone.left.saturating_sub(1);
        if lone.left == 0 {
            self.doublings.store(doublings.saturating_sub(1), Ordering::Relaxed);
            self.find(&mut lone);
        } else if lone.chooser.place() != place {
            self.go(&lone);
        }
    }

    /// Looks for the client's core.
    fn find(&self, lone: &mut MutexGuard<'_, Lone>) {
        match (self.core_of)(lone.thread).and_then(|core| self.cores.iter().position(|c| *c == core)) {
            Some(home) => {
                lone.row = if home == lone.home { (lone.row * 2).min(MOST_ROW) } else { ROW };
                lone.left = lone.row;
                lone.home = home;
                self.go(lone);
            }
            None => self.set(lone, ALL),
        }
    }

    /// Has the lane read alone that the client is to be served by.
    fn go(&self, lone: &MutexGuard<'_, Lone>) {
        let alone = match lone.chooser.place() {
            Place::Home => lone.home,
            Place::Beside => ((lone.home + 1) % self.cores.len()) | BESIDE,
        };
        self.set(lone, alone);
    }
}

fn is_much(header: &InHeader, request: &RequestParts<'_>) -> bool {
    if header.opcode == Opcode::Read as u32 {
        let args = request.first.unwrap_or(request.body);
        return ReadIn::ref_from_prefix(args).is_ok_and(|(args, _)| args.size > MUCH);
    }
    header.len > MUCH
}

/// The core of a thread, from /proc.
fn core_of(thread: u32) -> Option<usize> {
    // It comes in one piece, and is never so long.
    let mut stat = [0; 1024];
    let len = File::open(format!("/proc/{thread}/stat")).and_then(|mut file| file.read(&mut stat)).ok()?;
    parse(&String::from_utf8_lossy(&stat[..len]))
}

/// The 39th field; the second is in parentheses and may hold anything.
fn parse(stat: &str) -> Option<usize> {
    stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    /// Threads below 100 run on the core of their number's last digit.
    fn by_number(thread: u32) -> Option<usize> {
        (thread < 100).then_some(thread as usize % 10)
    }

    fn header(pid: u32) -> InHeader {
        let mut header = InHeader::read_from_bytes(&[0; size_of::<InHeader>()]).expect("its size");
        (header.pid, header.opcode, header.len) = (pid, Opcode::Lookup as u32, 42);
        header
    }

    fn ask(focus: &Focus, seen: &mut Seen, pid: u32, times: u32) {
        let header = header(pid);
        for _ in 0..times {
            let request = RequestParts { header: header.as_bytes(), first: None, body: b"a\0" };
            focus.note(seen, &header, &request, 0);
        }
    }

    fn may_read(focus: &Focus, lane: usize) -> bool {
        focus.turn(lane).is_some()
    }

    #[test]
    fn a_lone_client_gets_the_lane_of_its_core_and_a_second_one_ends_that() {
        let focus = Focus::with(&[0, 1, 2], false, by_number);
        let mut seen = [Seen::default(), Seen::default(), Seen::default()];
        ask(&focus, &mut seen[0], 12, ROW);
        assert!((0..3).all(|lane| may_read(&focus, lane)), "not yet a row");
        ask(&focus, &mut seen[0], 12, 1);
        assert!(may_read(&focus, 2) && !may_read(&focus, 0) && !may_read(&focus, 1));
        ask(&focus, &mut seen[2], 12, 3 * ROW);
        assert!(!may_read(&focus, 0));
        ask(&focus, &mut seen[2], 0, 1);
        assert!(!may_read(&focus, 0), "the kernel's own requests are nobody's");
        ask(&focus, &mut seen[2], 22, 1);
        assert!((0..3).all(|lane| may_read(&focus, lane)));
        ask(&focus, &mut seen[2], 22, ROW + 1);
        assert!(may_read(&focus, 0), "after a second client the row is longer");
        ask(&focus, &mut seen[2], 22, ROW);
        assert!(!may_read(&focus, 0));
    }

    #[test]
    fn a_client_that_moves_is_followed_and_one_that_cannot_be_found_is_not() {
        let focus = Focus::with(&[4, 5], false, |thread| Some(if thread == 7 { 5 } else { 9 }));
        let mut seen = Seen::default();
        ask(&focus, &mut seen, 7, ROW + 1);
        assert!(may_read(&focus, 1) && !may_read(&focus, 0));
        let mut other = Seen::default();
        ask(&focus, &mut other, 8, 4 * ROW);
        assert!(may_read(&focus, 0) && may_read(&focus, 1), "its core has no lane");
    }

    #[test]
    fn the_core_of_a_client_that_stays_is_looked_at_more_and_more_seldom() {
        static LOOKS: AtomicU32 = AtomicU32::new(0);
        let focus = Focus::with(&[0, 1], true, |_| {
            LOOKS.fetch_add(1, Ordering::Relaxed);
            Some(1)
        });
        ask(&focus, &mut Seen::default(), 7, 1 + ROW * (1 + 1 + 2 + 4 + 8 + 3 * 16));
        assert_eq!(LOOKS.load(Ordering::Relaxed), 1 + 4 + 3);
    }

    #[test]
    fn requests_with_much_data_are_served_by_all() {
        let focus = Focus::with(&[0, 1], false, by_number);
        let mut seen = Seen::default();
        ask(&focus, &mut seen, 10, ROW + 1);
        assert!(!may_read(&focus, 1));
        let mut header = header(10);
        (header.opcode, header.len) = (Opcode::Write as u32, MUCH + 1);
        let request = RequestParts { header: &[], first: None, body: &[] };
        focus.note(&mut seen, &header, &request, 0);
        assert!(may_read(&focus, 1));
    }

    /// Has a client ask at times of its own until it is served elsewhere.
    fn until_it_moves(focus: &Focus, pid: u32, every: Duration) -> u32 {
        let before = focus.alone.load(Ordering::Relaxed);
        let mut now = focus.began.elapsed();
        (1..)
            .find(|_| {
                now += every;
                focus.note_alone(pid, false, now, 0);
                focus.alone.load(Ordering::Relaxed) != before
            })
            .expect("it does")
    }

    #[test]
    fn a_client_is_served_from_beside_where_that_is_faster() {
        let focus = Focus::with(&[0, 1, 2], true, by_number);
        ask(&focus, &mut Seen::default(), 12, ROW + 1);
        assert_eq!((0..3).map(|lane| focus.turn(lane)).collect::<Vec<_>>(), [None, None, Some(Turn::Sleep)]);
        until_it_moves(&focus, 12, Duration::from_micros(20));
        assert_eq!((0..3).map(|lane| focus.turn(lane)).collect::<Vec<_>>(), [Some(Turn::Watch), None, None]);
        assert!(until_it_moves(&focus, 12, Duration::from_micros(10)) > 10 * ROW, "it stays there for long");
        assert_eq!(focus.turn(2), Some(Turn::Sleep), "home is tried again");
        focus.note_alone(13, false, Duration::ZERO, 0);
        assert!((0..3).all(|lane| focus.turn(lane) == Some(Turn::Sleep)), "a second client");
    }

    #[test]
    fn a_client_stays_at_home_on_one_core_or_where_watching_is_not_wanted() {
        for (cores, may_watch) in [(&[0][..], true), (&[0, 1], false)] {
            let focus = Focus::with(cores, may_watch, by_number);
            let mut seen = Seen::default();
            ask(&focus, &mut seen, 10, 100 * ROW);
            assert_eq!(focus.alone.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn who_rests_is_woken_by_a_release_and_by_the_end() {
        for end in [false, true] {
            let focus = Focus::with(&[0, 1], false, by_number);
            focus.set(&focus.lone.lock(), 1);
            std::thread::scope(|scope| {
                let resting = scope.spawn(|| focus.rest(0));
                if end {
                    focus.end()
                } else {
                    focus.release()
                }
                resting.join().expect("it returns");
            });
            assert_eq!(focus.rest(1), Turn::Sleep);
        }
    }

    #[test]
    fn our_own_core_is_found() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(core_of(tid).is_some());
        assert_eq!(core_of(u32::MAX), None);
        let mut stat = String::from("7 (a) b) S");
        (4..=38).for_each(|n| stat += &format!(" {n}"));
        assert_eq!(parse(&(stat + " 3 0")), Some(3));
    }
}
