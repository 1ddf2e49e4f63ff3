//! The port over io_uring (Linux 6.14 on): the kernel keeps a queue of requests for each core.
//!
//! A request waits in the queue of the core that its caller runs on, and is answered there: nobody is woken on
//! another core. One call of the kernel hands over all replies that are ready and fetches what waits: with many
//! callers a request costs the server a part of a system call, in place of two.
//!
//! # Protocol
//! 1. The kernel has *places*, each a header and room for the data of a request or its reply. A completion says
//!    that a place holds a request; the submission that *commits* its reply gives the place back to the kernel.
//! 2. A thread that holds the lane's reading role receives: it takes the next completion, or if there is none, commits
//!    the replies and sleeps in the kernel. So replies travel together as long as requests wait, at most
//!    `MOST_HELD` of them.
//! 3. Any thread may reply: it leaves the reply in `Replies`, and wakes the reader if that sleeps; a thread that has
//!    several replies to give, behind the last of them. Another thread that replies meanwhile finds the reader asleep
//!    still, and wakes it: nobody's reply waits for somebody else's.
//!
//! What it leaves to others: FORGET and INTERRUPT, which come by `/dev/fuse` still, and so does everything until
//! each of the kernel's queues has a place, or if it refuses one.
//!
//! Invariants: a place is the server's from its completion to the submission of its reply, and the kernel's
//! otherwise. A reply that is not in its place already is copied into it just before it is committed, when nobody
//! reads the request any more. The kernel delivers a request in the thread that committed its place last, *owns*
//! it, when that thread runs or sleeps where it can be interrupted, and loses the request if the thread ends: so a thread
//! that owns places stays until the mount is gone, and leaves deeper sleeps to others. The kernel takes the place that was committed last, so that in the long run the
//! places in use are those of the threads that read, and the others own few.
//!
//! Here are the port, its reading role and its replies. `ring` speaks to the kernel, `memory` is what both write
//! to, `deep` waits for devices, `offer` tells whether there may be a port.

mod deep;
mod memory;
mod offer;
mod ring;

pub(super) use offer::count_of;
pub use offer::{can_be_had, enable, is_enabled, queues};

use super::latency::Latencies;
use super::{Channel, Port, has_buffer};
use crate::wire::{InHeader, Opcode, OutHeader, RequestParts};
use deep::Divers;
use io_uring::{IoUring, squeue};
use memory::{DATA_LEN, FIRST, LEAST_ROOM, Memory};
use narufs_engine::blocking::Deep;
use parking_lot::{Condvar, Mutex};
use ring::{WAKE, restricted};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use zerocopy::FromBytes;

/// Places for the core's own callers: as many of their requests are served at once, those that wait included.
const PLACES: usize = 32;
/// Places of a queue whose core serves nobody here.
const PLACES_ELSEWHERE: usize = 16;
/// Replies that wait for others before they are committed.
const MOST_HELD: usize = 16;
/// Requests during which the kernel holds the lock of a directory.
const NAMES: [u32; 10] = [
    Opcode::Lookup as u32,
    Opcode::Create as u32,
    Opcode::Mknod as u32,
    Opcode::Mkdir as u32,
    Opcode::Symlink as u32,
    Opcode::Link as u32,
    Opcode::Unlink as u32,
    Opcode::Rmdir as u32,
    Opcode::Rename as u32,
    Opcode::Rename2 as u32,
];
/// How many of them are served in a row while others wait.
const MOST_NAMES: usize = 16;
/// Bytes of a request or reply that nobody should wait for.
const MUCH: usize = 64 << 10;
/// No slot's number.
const NOBODY: u32 = u32::MAX;

/// One core's queue, and those that no core serves.
pub struct UringPort {
    ring: IoUring<squeue::Entry128>,
    device: OwnedFd,
    wake: OwnedFd,
    memory: Memory,
    /// The kernel's queue of each place.
    queues: Vec<u16>,
    /// The request that each place holds or held last. Relaxed is enough: a thread that replies was given the request
    /// by any thread that stored it.
    uniques: Box<[AtomicU64]>,
    /// Whether others wait for its reply beside its caller. Relaxed as `uniques`.
    urgent: Box<[AtomicBool]>,
    /// The slot of the thread that owns each place, or [`NOBODY`]. Relaxed is enough: a thread asks for its own,
    /// which it alone writes; that another takes one away may be seen late.
    owners: Box<[AtomicU32]>,
    slots: AtomicU32,
    divers: Arc<Divers>,
    turn: Mutex<Turn>,
    replies: Mutex<Replies>,
    registered: Mutex<Option<Result<(), Errno>>>,
    registration: Condvar,
    latencies: Arc<Latencies>,
}

/// What the holder of the reading role has in hand.
#[derive(Default)]
struct Turn {
    registered: bool,
    /// Places whose requests have arrived: those of requests about names, and the others.
    names: VecDeque<usize>,
    others: VecDeque<usize>,
    /// How many of `names` were served in a row while `others` waited.
    row: usize,
    over: bool,
    /// The kernel waits for `wake`.
    armed: bool,
    ready: Ready,
}

/// Replies that wait to be committed.
#[derive(Default)]
struct Ready {
    list: Vec<Replied>,
    /// Their data, but for what lies in its place already.
    data: Vec<u8>,
    /// One of them should not wait.
    urgent: bool,
}

struct Replied {
    place: usize,
    header: OutHeader,
    data: Data,
}

enum Data {
    /// Part of [`Ready::data`].
    Copied(Range<usize>),
    /// So many bytes, which are there.
    InPlace(usize),
}

#[derive(Default)]
struct Replies {
    ready: Ready,
    /// The reader sleeps, or is about to.
    asleep: bool,
}

/// The request that a thread serves.
pub struct UringSlot {
    number: u32,
    place: usize,
    header: [u8; size_of::<InHeader>()],
    first: [u8; FIRST.end - FIRST.start],
    /// What follows, of all requests but WRITE.
    body: Vec<u8>,
    /// Bytes of a WRITE, in its place.
    written: usize,
}

impl UringPort {
    /// A port for the queue of `core` and `others` of the mount that `device` is connected to, for READs and WRITEs
    /// of `largest` bytes. Nothing arrives before every queue of the mount has a port whose lane has begun to
    /// receive.
    pub fn new(device: OwnedFd, largest: usize, core: u16, others: &[u16]) -> io::Result<UringPort> {
        let mut queues = vec![core; PLACES];
        queues.extend(others.iter().flat_map(|queue| [*queue; PLACES_ELSEWHERE]));
        let count = queues.len();
        // One submission for each place and one for `wake` are there at most.
        let entries = u32::try_from(count + 1).map_err(io::Error::other)?.next_power_of_two();
        let builder = || IoUring::builder().dontfork().setup_coop_taskrun().clone();
        let ring = restricted(&mut builder(), entries).or_else(|_| builder().build(entries))?;
        let memory = Memory::new(count, largest.max(LEAST_ROOM))?;
        Ok(UringPort {
            ring,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            memory,
            queues,
            uniques: (0..count).map(|_| AtomicU64::new(0)).collect(),
            urgent: (0..count).map(|_| AtomicBool::new(false)).collect(),
            owners: (0..count).map(|_| AtomicU32::new(NOBODY)).collect(),
            slots: AtomicU32::new(0),
            divers: Arc::default(),
            turn: Mutex::default(),
            replies: Mutex::default(),
            registered: Mutex::default(),
            registration: Condvar::new(),
            latencies: Arc::default(),
            device,
        })
    }

    /// Waits until the lane has begun to receive. An error: one of the queues has no place, and no request will
    /// ever come through io_uring.
    pub fn wait_registered(&self) -> io::Result<()> {
        let mut registered = self.registered.lock();
        loop {
            match *registered {
                Some(result) => return result.map_err(io::Error::from),
                None => self.registration.wait(&mut registered),
            }
        }
    }

    /// Whether the thread of this slot owns places.
    fn owns(&self, slot: u32) -> bool {
        self.owners.iter().any(|owner| owner.load(Ordering::Relaxed) == slot)
    }

    /// Takes note of a completion.
    fn arrived(&self, turn: &mut Turn, completed: u64, result: i32) {
        if completed == WAKE {
            turn.armed = false;
            return;
        }
        let place = completed as usize;
        if result == 0 {
            let (header, _) =
                InHeader::ref_from_prefix(self.memory.header(place)).expect("room for a header");
            let is_about_names = NAMES.contains(&header.opcode);
            self.uniques[place].store(header.unique, Ordering::Relaxed);
            self.urgent[place].store(is_about_names, Ordering::Relaxed);
            self.owners[place].store(NOBODY, Ordering::Relaxed);
            if is_about_names { &mut turn.names } else { &mut turn.others }.push_back(place);
            return;
        }
        match Errno::from_raw_os_error(-result) {
            Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED => turn.over = true,
            error => tracing::error!(place, "the kernel did not take a reply: {error}"),
        }
    }

    /// The request to serve next.
    fn next(&self, turn: &mut Turn) -> Option<usize> {
        if (turn.others.is_empty() || turn.row < MOST_NAMES)
            && let Some(place) = turn.names.pop_front()
        {
            turn.row += 1;
            return Some(place);
        }
        turn.row = 0;
        turn.others.pop_front()
    }

    /// Reads the request that has arrived in a place.
    fn read(&self, place: usize, slot: &mut UringSlot) {
        let header = self.memory.header(place);
        slot.place = place;
        slot.header.copy_from_slice(&header[..size_of::<InHeader>()]);
        slot.first.copy_from_slice(&header[FIRST]);
        let len = u32::from_ne_bytes(header[DATA_LEN..DATA_LEN + 4].try_into().expect("four bytes"));
        let len = (len as usize).min(self.memory.room);
        slot.body.clear();
        slot.written = 0;
        let header = InHeader::read_from_bytes(&slot.header).expect("its size");
        if header.opcode == Opcode::Write as u32 {
            slot.written = len;
        } else {
            slot.body.extend_from_slice(self.memory.data(place, len));
        }
    }
}

impl Channel for UringPort {
    fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        if self.post(unique, error, parts)? {
            self.wake();
        }
        Ok(())
    }

    fn post(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<bool> {
        let holds = |held: &AtomicU64| held.load(Ordering::Relaxed) == unique;
        let Some(place) = self.uniques.iter().position(holds) else {
            return Err(Errno::NOENT.into());
        };
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        if len > self.memory.room {
            return Err(Errno::INVAL.into());
        }
        let header = OutHeader { len: (size_of::<OutHeader>() + len) as u32, error, unique };
        let mut replies = self.replies.lock();
        let ready = &mut replies.ready;
        let data = match parts {
            [part] if self.memory.is_data(place, part) => Data::InPlace(len),
            _ => {
                let start = ready.data.len();
                parts.iter().for_each(|part| ready.data.extend_from_slice(part));
                Data::Copied(start..start + len)
            }
        };
        ready.list.push(Replied { place, header, data });
        ready.urgent |= len > MUCH || self.urgent[place].load(Ordering::Relaxed);
        Ok(replies.asleep)
    }

    fn wake(&self) {
        // Another may have been quicker: then the reader has found what was posted, or will.
        let asleep = std::mem::take(&mut self.replies.lock().asleep);
        if asleep && let Err(e) = rustix::io::write(&self.wake, &1u64.to_ne_bytes()) {
            tracing::error!("the thread that sends replies was not woken: {e}");
        }
    }

    fn latencies(&self) -> Option<&Arc<Latencies>> {
        Some(&self.latencies)
    }
}

impl Port for UringPort {
    type Slot = UringSlot;

    fn slot(&self) -> UringSlot {
        UringSlot {
            number: self.slots.fetch_add(1, Ordering::Relaxed),
            place: 0,
            header: [0; size_of::<InHeader>()],
            first: [0; FIRST.end - FIRST.start],
            body: Vec::new(),
            written: 0,
        }
    }

    fn receive(&self, slot: &mut UringSlot) -> io::Result<bool> {
        let mut turn = self.turn.lock();
        if !turn.registered {
            let registered = self.register(&mut turn, slot.number);
            *self.registered.lock() = Some(registered);
            self.registration.notify_all();
            registered?;
            turn.registered = true;
        }
        let held = {
            let replies = self.replies.lock();
            replies.ready.urgent || replies.ready.list.len() >= MOST_HELD || slot.written > MUCH
        };
        if held {
            self.exchange(&mut turn, slot.number, false)?;
        }
        loop {
            while let Some((completed, result)) = self.completed(&turn) {
                self.arrived(&mut turn, completed, result);
            }
            if turn.over {
                return Ok(false);
            }
            if let Some(place) = self.next(&mut turn) {
                self.read(place, slot);
                return Ok(true);
            }
            self.exchange(&mut turn, slot.number, true)?;
        }
    }

    fn keeps(&self, slot: &UringSlot) -> bool {
        self.owns(slot.number)
    }

    fn deep(self: &Arc<Self>, slot: &UringSlot) -> Option<Deep> {
        let (port, number) = (Arc::clone(self), slot.number);
        Some(Box::new(move |call| if port.owns(number) { port.divers.make(call) } else { call() }))
    }

    fn end(&self) {
        self.divers.end();
    }

    fn open<'s>(&'s self, slot: &'s mut UringSlot) -> (Option<RequestParts<'s>>, &'s mut [u8]) {
        let opcode = InHeader::read_from_bytes(&slot.header).expect("its size").opcode;
        let buffer: &mut [u8] =
            if has_buffer(opcode) { self.memory.data(slot.place, self.memory.room) } else { &mut [] };
        let body: &[u8] = match slot.written {
            0 => &slot.body,
            written => self.memory.data(slot.place, written),
        };
        (Some(RequestParts { header: &slot.header, first: Some(&slot.first), body }), buffer)
    }
}
