//! The port over io_uring (Linux 6.14 on): the kernel keeps a queue of requests for each core.
//!
//! A request waits in the queue of the core that its caller runs on, and is answered there: nobody is woken on
//! another core. One call of the kernel hands over all replies that are ready and fetches what waits: with many
//! callers a request costs the server a part of a system call, in place of two.
//!
//! # Protocol
//! 1. The kernel has *places*, each a header and room for the data of a request or its reply. A completion says
//!    that a place holds a request; the submission that *commits* its reply gives the place back to the kernel.
//! 2. Whoever holds the lane's reading role receives: it takes the next completion, or if there is none, commits
//!    the replies and sleeps in the kernel. So replies travel together as long as requests wait, at most
//!    [`MOST_HELD`] of them.
//! 3. Any thread may reply: it leaves the reply in [`Replies`], and wakes the reader if that sleeps; who has several
//!    replies to give, behind the last of them. Another who replies meanwhile finds the reader asleep still, and wakes
//!    it: nobody's reply waits for somebody else's.
//!
//! What it leaves to others: FORGET and INTERRUPT, which come by `/dev/fuse` still, and so does everything until
//! each of the kernel's queues has a place, or if it refuses one.
//!
//! Invariants: a place is the server's from its completion to the submission of its reply, and the kernel's
//! otherwise. A reply that is not in its place already is copied into it just before it is committed, when nobody
//! reads the request any more. The kernel delivers a request in the thread that committed its place last, *owns*
//! it, whatever that thread does meanwhile, and loses the request if the thread ends: so a thread that owns places
//! stays until the mount is gone. The kernel takes the place that was committed last, so that in the long run the
//! places in use are those of the threads that read, and the others own few.

#![allow(unsafe_code, reason = "a leaf module: memory shared with the kernel")]

use super::{Channel, Port};
use crate::wire::{InHeader, Opcode, OutHeader, RequestParts};
use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use zerocopy::{FromBytes, IntoBytes};

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
/// The least that the kernel takes for a place, in bytes.
const LEAST_ROOM: usize = 64 << 10;
/// Distance between the places' headers, in bytes.
const HEADER_STRIDE: usize = 512;
/// Where in a header an operation's first structure lies, and its length.
const FIRST: Range<usize> = 128..256;
/// Where in a header the length of the data is, a u32.
const DATA_LEN: usize = 272;
/// All of a header.
const HEADER_LEN: usize = 288;

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
const ENTER_GETEVENTS: u32 = 1;
/// The completion that wakes the reader, by its user data; others are numbers of places.
const WAKE: u64 = u64::MAX;
/// No slot's number.
const NOBODY: u32 = u32::MAX;
/// Whether the kernel offers io_uring to servers.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// One core's queue, and those that no core serves.
pub struct UringPort {
    ring: IoUring<squeue::Entry128>,
    device: OwnedFd,
    wake: OwnedFd,
    memory: Memory,
    /// The kernel's queue of each place.
    queues: Vec<u16>,
    /// The request that each place holds or held last. Relaxed is enough: who replies was given the request by
    /// whoever stored it.
    uniques: Box<[AtomicU64]>,
    /// Whether others wait for its reply beside its caller. Relaxed as `uniques`.
    urgent: Box<[AtomicBool]>,
    /// The slot of the thread that owns each place, or [`NOBODY`]. Relaxed is enough: a thread asks for its own,
    /// which it alone writes; that another takes one away may be seen late.
    owners: Box<[AtomicU32]>,
    slots: AtomicU32,
    turn: Mutex<Turn>,
    replies: Mutex<Replies>,
    registered: Mutex<Option<Result<(), Errno>>>,
    registration: Condvar,
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
        let ring = IoUring::builder().dontfork().setup_coop_taskrun().build(entries)?;
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
            turn: Mutex::default(),
            replies: Mutex::default(),
            registered: Mutex::default(),
            registration: Condvar::new(),
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

    /// Stands an entry in the submission queue.
    fn push(&self, _: &Turn, entry: &squeue::Entry128) {
        // SAFETY: the turn's mutex makes this thread the only one at the submission queue. What the entry points
        // to lies in `memory` or on the stack of the caller that enters the kernel before it returns; the
        // descriptors are open as long as the ring. Guarded by the tests that mount with io_uring.
        let pushed = unsafe { self.ring.submission_shared().push(entry) };
        pushed.expect("the queue has room for an entry of each place and the wake-up");
    }

    /// Hands the kernel what stands in the submission queue, and sleeps until `least` completions are there.
    fn enter(&self, _: &Turn, least: usize) -> io::Result<()> {
        // SAFETY: the turn's mutex makes this thread the only one at the submission queue.
        let waiting = unsafe { self.ring.submission_shared() }.len();
        // SAFETY: the entries stand complete in the queue; no argument is passed. Guarded as above.
        let entered =
            unsafe { self.ring.submitter().enter::<()>(waiting as u32, least as u32, ENTER_GETEVENTS, None) };
        match entered {
            Err(e) if e.raw_os_error() == Some(Errno::INTR.raw_os_error()) => Ok(()),
            // The kernel is short of something that time gives back; entries stay in the queue.
            Err(e) if e.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => {
                std::thread::yield_now();
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// Gives the kernel its places. It can do with fewer, but each queue must have one.
    fn register(&self, turn: &mut Turn, owner: u32) -> Result<(), Errno> {
        for place in 0..self.queues.len() {
            let parts = self.memory.parts(place);
            let address = parts.as_ptr().expose_provenance() as u64;
            self.push(turn, &self.command(REGISTER, place, 0, (address, parts.len() as u32)));
            self.owners[place].store(owner, Ordering::Relaxed);
            // One by one: the kernel reads the parts when it takes the entry.
            self.enter(turn, 0).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
            let is_first = place == 0 || self.queues[place - 1] != self.queues[place];
            while let Some((completed, result)) = self.completed(turn) {
                if result >= 0 || completed != place as u64 {
                    self.arrived(turn, completed, result);
                    continue;
                }
                let refused = Errno::from_raw_os_error(-result);
                if is_first {
                    return Err(refused);
                }
                self.owners[place].store(NOBODY, Ordering::Relaxed);
                tracing::warn!("the kernel's queue of requests is shorter than wanted: {refused}");
            }
        }
        Ok(())
    }

    /// The next completion that is there.
    fn completed(&self, _: &Turn) -> Option<(u64, i32)> {
        // SAFETY: the turn's mutex makes this thread the only one at the completion queue. Guarded by the tests
        // that mount with io_uring.
        let next = unsafe { self.ring.completion_shared() }.next();
        next.map(|completion| (completion.user_data(), completion.result()))
    }

    /// A command to `/dev/fuse` about a place.
    fn command(&self, code: u32, place: usize, commit: u64, parts: (u64, u32)) -> squeue::Entry128 {
        let mut entry = [0; size_of::<squeue::Entry128>()];
        let mut put = |at: usize, bytes: &[u8]| entry[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &[opcode::UringCmd80::CODE]);
        put(4, &self.device.as_raw_fd().to_ne_bytes());
        put(8, &code.to_ne_bytes());
        put(16, &parts.0.to_ne_bytes());
        put(24, &parts.1.to_ne_bytes());
        put(32, &(place as u64).to_ne_bytes());
        put(56, &commit.to_ne_bytes());
        put(64, &self.queues[place].to_ne_bytes());
        // SAFETY: an entry is 128 bytes of the kernel's interface, of which all values are allowed; the crate's
        // own constructor has no field for the number of parts. Guarded by the tests that mount with io_uring.
        unsafe { std::mem::transmute::<[u8; 128], squeue::Entry128>(entry) }
    }

    /// Stands the ready replies in the submission queue.
    fn commit(&self, turn: &mut Turn, owner: u32) {
        let mut ready = std::mem::take(&mut turn.ready);
        for Replied { place, header, data } in ready.list.drain(..) {
            let len = match data {
                Data::Copied(range) => {
                    self.memory.data(place, range.len()).copy_from_slice(&ready.data[range.clone()]);
                    range.len()
                }
                Data::InPlace(len) => len,
            };
            let bytes = self.memory.header(place);
            bytes[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
            bytes[DATA_LEN..DATA_LEN + 4].copy_from_slice(&(len as u32).to_ne_bytes());
            self.owners[place].store(owner, Ordering::Relaxed);
            self.push(turn, &self.command(COMMIT_AND_FETCH, place, header.unique, (0, 0)));
        }
        ready.data.clear();
        ready.urgent = false;
        turn.ready = ready;
    }

    /// Commits what is ready, and sleeps until something completes, if that is to be waited for.
    fn exchange(&self, turn: &mut Turn, owner: u32, wait: bool) -> io::Result<()> {
        {
            let mut replies = self.replies.lock();
            std::mem::swap(&mut turn.ready, &mut replies.ready);
            replies.asleep = wait;
        }
        self.commit(turn, owner);
        if !turn.armed {
            turn.armed = true;
            let (fd, len) = (types::Fd(self.wake.as_raw_fd()), size_of::<u64>() as u32);
            let entry = opcode::Read::new(fd, self.memory.wake(), len).offset(u64::MAX).build();
            self.push(turn, &entry.user_data(WAKE).into());
        }
        let entered = self.enter(turn, usize::from(wait));
        if wait {
            self.replies.lock().asleep = false;
        }
        entered
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
        self.owners.iter().any(|owner| owner.load(Ordering::Relaxed) == slot.number)
    }

    fn open<'s>(&'s self, slot: &'s mut UringSlot) -> (Option<RequestParts<'s>>, &'s mut [u8]) {
        let reads = [Opcode::Read, Opcode::Readdir, Opcode::Readdirplus].map(|opcode| opcode as u32);
        let opcode = InHeader::read_from_bytes(&slot.header).expect("its size").opcode;
        let buffer: &mut [u8] =
            if reads.contains(&opcode) { self.memory.data(slot.place, self.memory.room) } else { &mut [] };
        let body: &[u8] = match slot.written {
            0 => &slot.body,
            written => self.memory.data(slot.place, written),
        };
        (Some(RequestParts { header: &slot.header, first: Some(&slot.first), body }), buffer)
    }
}

/// Memory that the kernel writes to and reads from: a page for waking up, headers, and room for data.
struct Memory {
    start: *mut u8,
    len: usize,
    data: usize,
    room: usize,
}

// SAFETY: the memory belongs to no thread; who may touch which part when is the module's protocol.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

const PAGE: usize = 4096;

impl Memory {
    fn new(places: usize, room: usize) -> io::Result<Memory> {
        let room = room.next_multiple_of(PAGE);
        let data = PAGE + (places * HEADER_STRIDE).next_multiple_of(PAGE);
        let len = data + places * room;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new map, at a place that the kernel chooses.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, access, flags) }?.cast();
        let memory = Memory { start, len, data, room };
        // Of a room's pages most are never used: no huge ones.
        // SAFETY: the range is this map, of which nothing changes but the size of its pages.
        if let Err(e) = unsafe { rustix::mm::madvise(start.cast(), len, Advice::LinuxNoHugepage) } {
            tracing::debug!("rooms of requests may take huge pages: {e}");
        }
        Ok(memory)
    }

    /// Eight bytes that the kernel writes when it wakes the reader.
    fn wake(&self) -> *mut u8 {
        self.start
    }

    /// A place's header. Called by the holder of the turn while the place is the server's.
    #[allow(clippy::mut_from_ref, reason = "the protocol gives each place to one thread at a time")]
    fn header(&self, place: usize) -> &mut [u8] {
        let at = PAGE + place * HEADER_STRIDE;
        assert!(at + HEADER_LEN <= self.data);
        // SAFETY: within the map, as asserted. The place is the server's, and the turn's mutex makes this thread
        // the only one at its header. Guarded by the tests that mount with io_uring.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), HEADER_LEN) }
    }

    /// The first bytes of a place's data. Called while the place is the server's: by the thread that serves the
    /// request, or, when that has replied, by the holder of the turn.
    #[allow(clippy::mut_from_ref, reason = "the protocol gives each place to one thread at a time")]
    fn data(&self, place: usize, len: usize) -> &mut [u8] {
        let at = self.data + place * self.room;
        assert!(len <= self.room && at + self.room <= self.len);
        // SAFETY: within the map, as asserted; one thread at a time, as above. Guarded by the tests that mount
        // with io_uring.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }

    /// Whether bytes are the first of a place's data.
    fn is_data(&self, place: usize, bytes: &[u8]) -> bool {
        bytes.as_ptr().addr() == self.start.addr() + self.data + place * self.room
    }

    /// Header and data of a place, as the kernel wants them described.
    fn parts(&self, place: usize) -> [libc::iovec; 2] {
        let header = self.start.wrapping_add(PAGE + place * HEADER_STRIDE);
        let data = self.start.wrapping_add(self.data + place * self.room);
        [
            libc::iovec { iov_base: header.cast(), iov_len: HEADER_LEN },
            libc::iovec { iov_base: data.cast(), iov_len: self.room },
        ]
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the map any more: the port is gone, and its ring before it. Guarded by the
        // tests that mount with io_uring.
        if let Err(e) = unsafe { rustix::mm::munmap(self.start.cast(), self.len) } {
            tracing::debug!("memory of requests stays mapped: {e}");
        }
    }
}

/// Whether the kernel offers io_uring to servers that ask; `Err` if it cannot.
pub fn is_enabled() -> io::Result<bool> {
    Ok(std::fs::read_to_string(SWITCH)?.trim() == "Y")
}

/// Has the kernel offer it, to every server that asks. Takes root.
pub fn enable() -> io::Result<()> {
    std::fs::write(SWITCH, "Y")
}

/// The kernel's queues: numbers below this one, as many as there may ever be cores.
pub fn queues() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count_of(&text).ok_or_else(|| io::Error::other("/sys tells no possible cores"))
}

/// The numbers in a list like `0-3,5`.
fn count_of(list: &str) -> Option<u16> {
    list.trim().split(',').try_fold(0u16, |count, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let more = last.parse::<u16>().ok()?.checked_sub(first.parse().ok()?)?;
        count.checked_add(more)?.checked_add(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_cores_are_counted() {
        for (list, count) in
            [("0\n", Some(1)), ("0-1\n", Some(2)), ("0-3,8-127\n", Some(124)), ("0,2", Some(2))]
        {
            assert_eq!(count_of(list), count);
        }
        for bad in ["", "3-1", "0-65535", "a"] {
            assert_eq!(count_of(bad), None);
        }
    }

    #[test]
    fn places_do_not_overlap() {
        let memory = Memory::new(3, 5000).expect("memory");
        for place in 0..3 {
            memory.header(place).fill(place as u8 + 1);
            memory.data(place, memory.room).fill(place as u8 + 11);
        }
        for place in 0..3 {
            assert!(memory.header(place).iter().all(|byte| *byte == place as u8 + 1));
            assert!(memory.data(place, memory.room).iter().all(|byte| *byte == place as u8 + 11));
            assert!(memory.is_data(place, memory.data(place, 8)) && !memory.is_data(place, &[0; 8]));
            assert_eq!(memory.data(place, 1).as_ptr().addr() % PAGE, 0);
        }
    }
}
