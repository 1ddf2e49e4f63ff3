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
//!    row. A thread that has counted enough takes the mutex, and sets `alone` if nobody else has.
//! 2. While a lane reads alone, each request is noted under the mutex: one lane takes it, so nobody waits for it. The
//!    lanes that were asleep in the kernel when it began read one more request, then they rest.
//! 3. `alone` is changed under the mutex only. It is looked at in passing to find which of the two holds: a thread that
//!    finds an old value counts a request too many, or finds the right one under the mutex.
//!
//! What it leaves to others: reading and serving (`lane`); on which side of a client it is served faster (`beside`). A
//! transport with a queue for each core needs none of this.
//!
//! Invariants: readers rest only while another lane reads alone; that lane is one that can read: a lane that
//! cannot go on reading gives the focus up. It is a matter of speed only: whichever lane reads, all is served.

use super::beside::{Chooser, Placement};
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
    /// What reads alone, or [`ALL`]. Relaxed is enough to look at it in passing: a thread that rests looks again under
    /// the mutex, under which it is changed.
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
            Placement::Home => lone.home,
            Placement::Beside => ((lone.home + 1) % self.cores.len()) | BESIDE,
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
mod tests;
