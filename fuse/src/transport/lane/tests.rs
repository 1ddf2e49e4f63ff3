//! A lane over a port that is a queue in memory.

use super::*;
use crate::wire::{InHeader, RequestParts};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use zerocopy::IntoBytes;

struct QueuePort {
    requests: Mutex<Receiver<u64>>,
    replies: Sender<(u64, i32)>,
    /// How many slept when the last request began, and how many threads have rested.
    asleep: AtomicUsize,
    rested: AtomicUsize,
}

impl Channel for QueuePort {
    fn send(&self, unique: u64, error: i32, _: &[&[u8]]) -> io::Result<()> {
        self.replies.send((unique, error)).map_err(io::Error::other)
    }
}

impl Port for QueuePort {
    type Slot = (Vec<u8>, [u8; 8]);

    fn slot(&self) -> Self::Slot {
        Default::default()
    }

    fn receive(&self, slot: &mut Self::Slot) -> io::Result<bool> {
        let requests = self.requests.try_lock().expect("only one thread holds the role");
        let Ok(unique) = requests.recv() else { return Ok(false) };
        let len = size_of::<InHeader>() as u32;
        let (opcode, nodeid, uid, gid, pid, total_extlen, padding) = (3, 1, 0, 0, 0, 0, 0);
        let header = InHeader { len, opcode, unique, nodeid, uid, gid, pid, total_extlen, padding };
        slot.0 = header.as_bytes().to_vec();
        Ok(true)
    }

    fn settle(&self, _: &mut Self::Slot, asleep: usize) {
        self.asleep.store(asleep, Ordering::Relaxed);
    }

    fn rest(&self, _: &mut Self::Slot) {
        self.rested.fetch_add(1, Ordering::Relaxed);
    }

    fn open<'s>(&'s self, slot: &'s mut Self::Slot) -> (Option<RequestParts<'s>>, &'s mut [u8]) {
        (RequestParts::whole(&slot.0), &mut slot.1)
    }
}

/// Even requests sleep until the gate opens; 13 panics; the others are answered at once.
struct Sleeper {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Service for Sleeper {
    fn serve(&self, request: RequestParts<'_>, reply: Reply<'_>) {
        let unique = request.header().expect("a header").unique;
        assert!(unique != 13, "the operation that panics");
        if unique.is_multiple_of(2) {
            blocking::about_to_block();
            let mut open = self.open.lock();
            while !*open {
                self.opened.wait(&mut open);
            }
        }
        reply.bytes(&[]).expect("the test listens");
    }
}

struct Rig {
    lane: Lane<QueuePort>,
    requests: Sender<u64>,
    replies: Receiver<(u64, i32)>,
    sleeper: Arc<Sleeper>,
}

fn rig() -> Rig {
    rig_as(LaneConfig::default())
}

fn rig_with(held: &Arc<dyn Any + Send + Sync>) -> Rig {
    rig_as(LaneConfig { held: Some(Arc::clone(held)), ..LaneConfig::default() })
}

fn rig_as(config: LaneConfig) -> Rig {
    let (requests, incoming) = channel();
    let (outgoing, replies) = channel();
    let sleeper = Arc::new(Sleeper { open: Mutex::new(false), opened: Condvar::new() });
    let port = Arc::new(QueuePort {
        requests: Mutex::new(incoming),
        replies: outgoing,
        asleep: AtomicUsize::new(0),
        rested: AtomicUsize::new(0),
    });
    let lane = Lane::start(port, sleeper.clone(), config).expect("a thread");
    Rig { lane, requests, replies, sleeper }
}

impl Rig {
    fn ask(&self, unique: u64) {
        self.requests.send(unique).expect("the lane listens");
    }

    fn reply(&self) -> (u64, i32) {
        self.replies.recv().expect("a reply")
    }

    fn open(&self) {
        *self.sleeper.open.lock() = true;
        self.sleeper.opened.notify_all();
    }

    fn finish(self) {
        drop(self.requests);
        self.lane.wait();
    }
}

#[test]
fn requests_that_sleep_do_not_stall_those_that_follow() {
    let rig = rig();
    for sleeping in 1..=20 {
        rig.ask(2 * sleeping);
        rig.ask(2 * sleeping + 101);
        assert_eq!(rig.reply(), (2 * sleeping + 101, 0));
    }
    rig.open();
    let mut slept: Vec<_> = (0..20).map(|_| rig.reply().0).collect();
    slept.sort_unstable();
    assert_eq!(slept, (1..=20).map(|n| 2 * n).collect::<Vec<_>>());
    while rig.lane.threads() > 1 + IDLE_SPARES {
        std::thread::yield_now();
    }
    rig.ask(1);
    assert_eq!(rig.reply(), (1, 0));
    rig.finish();
}

#[test]
fn a_port_is_told_how_many_sleep_and_of_each_that_did() {
    let rig = rig();
    let asleep = |unique, status| {
        rig.ask(unique);
        assert_eq!(rig.reply(), (unique, status));
        rig.lane.shared.port.asleep.load(Ordering::Relaxed)
    };
    assert_eq!(asleep(1, 0), 0);
    (1..=10).for_each(|n| rig.ask(2 * n));
    assert_eq!(asleep(3, 0), 10);
    assert_eq!(asleep(13, -libc::EIO), 10);
    rig.open();
    (0..10).for_each(|_| assert_eq!(rig.reply().1, 0));
    let rested = || rig.lane.shared.port.rested.load(Ordering::Relaxed);
    while rested() < 10 || rig.lane.shared.asleep.load(Ordering::Relaxed) > 0 {
        std::thread::yield_now();
    }
    assert_eq!(asleep(5, 0), 0);
    assert_eq!(rested(), 10);
    rig.finish();
}

#[test]
fn the_end_waits_for_requests_in_flight() {
    let rig = rig();
    rig.ask(2);
    rig.ask(1);
    assert_eq!(rig.reply(), (1, 0));
    drop(rig.requests);
    *rig.sleeper.open.lock() = true;
    rig.sleeper.opened.notify_all();
    rig.lane.wait();
    assert_eq!(rig.replies.try_recv(), Ok((2, 0)));
    assert_eq!(rig.lane.threads(), 0);
}

#[test]
fn what_lanes_hold_goes_with_the_last_thread_of_the_last_of_them() {
    let held: Arc<dyn Any + Send + Sync> = Arc::new(());
    let (rigs, there) = ([rig_with(&held), rig_with(&held)], Arc::downgrade(&held));
    drop(held);
    let [one, other] = rigs;
    one.finish();
    assert!(there.upgrade().is_some());
    // One of its requests is in flight when no more come.
    other.ask(2);
    other.ask(1);
    assert_eq!(other.reply(), (1, 0));
    drop(other.requests);
    assert!(there.upgrade().is_some());
    *other.sleeper.open.lock() = true;
    other.sleeper.opened.notify_all();
    other.lane.wait();
    assert!(there.upgrade().is_none());
}

#[test]
fn a_panic_is_answered_with_eio_and_the_lane_goes_on() {
    let rig = rig();
    rig.ask(13);
    assert_eq!(rig.reply(), (13, -libc::EIO));
    rig.ask(1);
    assert_eq!(rig.reply(), (1, 0));
    rig.finish();
}
