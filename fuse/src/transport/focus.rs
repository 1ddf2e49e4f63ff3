//! Keeps the requests of a lone client on the client's own core.
//!
//! All descriptors of a mount share the kernel's one queue of new requests, and the kernel wakes the reader that
//! has waited longest, on whatever core it is pinned to. With a reader on each core the requests of one client
//! would go round the cores; each would wake a core that has gone idle, and its reply the client's core from
//! there, which costs more than serving it. So while one thread alone asks, the lane of its core reads alone, and
//! the readers of the others *rest*. A second client, or requests that carry much data (which gain from a second
//! core), end that at once.
//!
//! What it leaves to others: reading and serving (`lane`). A transport with a queue for each core needs none of
//! this.
//!
//! Invariants: readers rest only while another lane reads alone; that lane is one that can read: a lane that
//! cannot go on reading gives the focus up. It is a matter of speed only: whichever lane reads, all is served.

use crate::wire::{InHeader, Opcode, ReadIn, RequestParts};
use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use zerocopy::FromBytes;

/// Requests in a row by one thread before it is taken for a lone client, and after which its core is looked at
/// again.
const ROW: u32 = 64;
/// Each time a second client ends a focus, the row for the next is twice as long, up to this many times.
const MOST_DOUBLINGS: u32 = 8;
/// Bytes of a READ or WRITE that gains from another core.
const MUCH: u32 = 64 << 10;
/// `Focus::alone` if all lanes read.
const ALL: usize = usize::MAX;

/// Finds the core that a thread ran on last.
type CoreOf = fn(u32) -> Option<usize>;

/// Which of a mount's lanes read.
#[derive(Debug)]
pub struct Focus {
    /// The core of each lane.
    cores: Vec<usize>,
    core_of: CoreOf,
    /// The lane that reads alone, or [`ALL`]. Relaxed is enough to look at it in passing: who rests looks again
    /// under the mutex, under which it is changed.
    alone: AtomicUsize,
    over: Mutex<bool>,
    changed: Condvar,
}

/// What a lane's reader has seen.
#[derive(Debug, Default)]
pub struct Seen {
    thread: u32,
    row: u32,
    doublings: u32,
}

impl Focus {
    /// For lanes on these cores; all read.
    pub fn new(cores: &[usize]) -> Focus {
        Focus::with(cores, core_of)
    }

    fn with(cores: &[usize], core_of: CoreOf) -> Focus {
        let (alone, over) = (AtomicUsize::new(ALL), Mutex::new(false));
        Focus { cores: cores.to_vec(), core_of, alone, over, changed: Condvar::new() }
    }

    /// Returns when this lane may read; sleeps while another one reads alone.
    pub fn rest(&self, lane: usize) {
        if self.may_read(lane) {
            return;
        }
        let mut over = self.over.lock();
        while !*over && !self.may_read(lane) {
            self.changed.wait(&mut over);
        }
    }

    fn may_read(&self, lane: usize) -> bool {
        let alone = self.alone.load(Ordering::Relaxed);
        alone == ALL || alone == lane
    }

    /// All lanes read from now on.
    pub fn release(&self) {
        if self.alone.load(Ordering::Relaxed) != ALL {
            self.set(ALL);
        }
    }

    /// Nobody rests any more: the mount is gone.
    pub fn end(&self) {
        *self.over.lock() = true;
        self.changed.notify_all();
    }

    fn set(&self, alone: usize) {
        let over = self.over.lock();
        if self.alone.swap(alone, Ordering::Relaxed) != alone {
            self.changed.notify_all();
        }
        drop(over);
    }

    /// Takes note of a request that this lane is about to serve.
    pub fn note(&self, lane: usize, seen: &mut Seen, header: &InHeader, request: &RequestParts<'_>) {
        if header.pid == 0 {
            // The kernel's own, or from another pid name space.
            return;
        }
        if header.pid != seen.thread || is_much(header, request) {
            if self.alone.load(Ordering::Relaxed) == lane && seen.thread != 0 {
                seen.doublings = (seen.doublings + 1).min(MOST_DOUBLINGS);
                self.release();
            }
            (seen.thread, seen.row) = (header.pid, 0);
            return;
        }
        seen.row += 1;
        let alone = self.alone.load(Ordering::Relaxed);
        let row = if alone == lane { ROW } else { ROW << seen.doublings };
        if seen.row >= row && (alone == ALL || alone == lane) {
            if alone == lane {
                seen.doublings = seen.doublings.saturating_sub(1);
            }
            seen.row = 0;
            match (self.core_of)(seen.thread).and_then(|core| self.cores.iter().position(|c| *c == core)) {
                Some(theirs) => self.set(theirs),
                None => self.release(),
            }
        }
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

    fn ask(focus: &Focus, lane: usize, seen: &mut Seen, pid: u32, times: u32) {
        let (opcode, unique, nodeid, uid, gid, total_extlen, padding) =
            (Opcode::Lookup as u32, 1, 1, 0, 0, 0, 0);
        let header = InHeader { len: 42, opcode, unique, nodeid, uid, gid, pid, total_extlen, padding };
        for _ in 0..times {
            let request = RequestParts { header: header.as_bytes(), first: None, body: b"a\0" };
            focus.note(lane, seen, &header, &request);
        }
    }

    #[test]
    fn a_lone_client_gets_the_lane_of_its_core_and_a_second_one_ends_that() {
        let focus = Focus::with(&[0, 1, 2], by_number);
        let mut seen = [Seen::default(), Seen::default(), Seen::default()];
        ask(&focus, 0, &mut seen[0], 12, ROW);
        assert!((0..3).all(|lane| focus.may_read(lane)), "not yet a row");
        ask(&focus, 0, &mut seen[0], 12, 1);
        assert!(focus.may_read(2) && !focus.may_read(0) && !focus.may_read(1));
        ask(&focus, 2, &mut seen[2], 12, 3 * ROW);
        assert!(!focus.may_read(0));
        ask(&focus, 2, &mut seen[2], 0, 1);
        assert!(!focus.may_read(0), "the kernel's own requests are nobody's");
        ask(&focus, 2, &mut seen[2], 22, 1);
        assert!((0..3).all(|lane| focus.may_read(lane)));
        ask(&focus, 2, &mut seen[2], 22, ROW);
        assert!(focus.may_read(0), "after a second client the row is longer");
        ask(&focus, 2, &mut seen[2], 22, ROW);
        assert!(!focus.may_read(0));
    }

    #[test]
    fn a_client_that_moves_is_followed_and_one_that_cannot_be_found_is_not() {
        let focus = Focus::with(&[4, 5], |thread| Some(if thread == 7 { 5 } else { 9 }));
        let mut seen = Seen::default();
        ask(&focus, 0, &mut seen, 7, ROW + 1);
        assert!(focus.may_read(1) && !focus.may_read(0));
        let mut other = Seen::default();
        ask(&focus, 1, &mut other, 8, 2 * ROW + 2);
        assert!(focus.may_read(0) && focus.may_read(1), "its core has no lane");
    }

    #[test]
    fn requests_with_much_data_are_served_by_all() {
        let focus = Focus::with(&[0, 1], by_number);
        let mut seen = Seen::default();
        ask(&focus, 0, &mut seen, 10, ROW + 1);
        assert!(!focus.may_read(1));
        let mut header = InHeader::read_from_bytes(&[0; size_of::<InHeader>()]).expect("its size");
        (header.pid, header.opcode, header.len) = (10, Opcode::Write as u32, MUCH + 1);
        let request = RequestParts { header: &[], first: None, body: &[] };
        focus.note(0, &mut seen, &header, &request);
        assert!(focus.may_read(1));
    }

    #[test]
    fn who_rests_is_woken_by_a_release_and_by_the_end() {
        for end in [false, true] {
            let focus = Focus::with(&[0, 1], by_number);
            focus.set(1);
            std::thread::scope(|scope| {
                let resting = scope.spawn(|| focus.rest(0));
                if end {
                    focus.end()
                } else {
                    focus.release()
                }
                resting.join().expect("it returns");
            });
            focus.rest(1);
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
