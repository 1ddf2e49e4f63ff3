//! The port over `/dev/fuse`: one descriptor, cloned for each core from the mount's first one.
//!
//! The request buffer is placed so that the data of a WRITE begins on a page boundary, and the reply buffer
//! begins on one: the engine may hand both to a device.
//!
//! Invariant: whoever reads from the device has a buffer for the largest request, all of which is in memory where it is to
//! be. Where more requests sleep than [`IDLE_SPARES`], those that are small lie in buffers of their own size, and whoever
//! reads next has that buffer.

use super::buffers::{Kept, Placed};
use super::ending::Ending;
use super::lane::IDLE_SPARES;
use super::latency::Latencies;
use super::{Channel, Port, has_buffer};
use crate::sys::{self, Stay};
use crate::wire::{InHeader, OutHeader, ReadIn, RequestParts, WriteIn};
use narufs_engine::fork::KeptFromChildren;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::{FromBytes, IntoBytes};

const PAGE: usize = 4096;

/// Room for a request's header and arguments beside the data of a WRITE: names of two directory entries,
/// extended attributes' names, and extensions.
const ARGUMENTS: usize = 2 * PAGE;

/// What a request may carry, or ask for, to get a buffer of its own size, in bytes.
const SMALL: usize = 64 * 1024;

/// Buffers that are kept: where no more than the spares sleep, and one more, none is made anew.
const KEPT: usize = IDLE_SPARES + 1;

/// What comes before the data of a WRITE, in bytes.
const BEFORE_DATA: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Parts of a message at most, its header included.
const MOST_PARTS: usize = 8;

/// One descriptor of `/dev/fuse`.
pub struct DevicePort {
    /// A child that is forked would keep the mount from ending with its server.
    _kept: KeptFromChildren,
    fd: OwnedFd,
    largest: usize,
    /// Nobody else reads from the descriptor: whether that waits may be changed.
    is_own: bool,
    /// Whether reading does not wait. Relaxed is enough: a thread that holds the lane's reading role alone reads and
    /// changes it, and the role is handed over under a mutex.
    nonblocking: AtomicBool,
    /// Whether buffers are to be in memory before they are used. A kill in the middle of the kernel's copy into a page
    /// that is not there would fail the request.
    is_pinned: bool,
    /// What ends it where the kernel might not.
    ending: Option<Arc<Ending>>,
    latencies: Arc<Latencies>,
    /// For the threads that will read next.
    requests: Kept,
    replies: Kept,
}

impl DevicePort {
    /// A port over a descriptor that is connected to a mount; `largest` is the most that a READ or WRITE carries,
    /// in bytes.
    pub fn new(fd: OwnedFd, largest: usize) -> Self {
        // Extended attributes have up to 64 KiB of value, however small reads and writes are.
        let largest = largest.max(64 * 1024);
        DevicePort {
            _kept: KeptFromChildren::enter(&fd),
            fd,
            largest,
            is_own: false,
            nonblocking: AtomicBool::new(false),
            is_pinned: false,
            ending: None,
            latencies: Arc::default(),
            requests: Kept::default(),
            replies: Kept::default(),
        }
    }

    /// The same port, to be ended by this as well.
    pub fn ended_by(self, ending: Option<Arc<Ending>>) -> DevicePort {
        DevicePort { ending, ..self }
    }

    /// The same port, whose buffers are in memory before they are used.
    pub fn pinned(self) -> DevicePort {
        DevicePort { is_pinned: true, requests: Kept::default(), replies: Kept::default(), ..self }
    }

    /// The same port over a descriptor that another process has read from, and nobody else does now. Whether that process
    /// waited is not known: from here on reading does.
    pub fn inherited(self) -> io::Result<DevicePort> {
        rustix::fs::fcntl_setfl(&self.fd, OFlags::RDWR)?;
        Ok(DevicePort { nonblocking: AtomicBool::new(false), ..self })
    }

    /// Another descriptor of the same mount, with a queue of its own for requests being served.
    pub fn try_clone(&self) -> io::Result<DevicePort> {
        let fd = sys::clone_fuse_device(self.fd.as_fd())?;
        Ok(self.lane_over(fd))
    }

    /// A port like this one over another descriptor of the same mount.
    pub fn lane_over(&self, fd: OwnedFd) -> DevicePort {
        let ending = self.ending.clone();
        DevicePort { is_own: true, is_pinned: self.is_pinned, ending, ..DevicePort::new(fd, self.largest) }
    }

    /// The same mount, with what INIT has found to be the largest READ or WRITE.
    pub fn with_largest(self, largest: usize) -> Self {
        DevicePort { is_pinned: self.is_pinned, ending: self.ending, ..DevicePort::new(self.fd, largest) }
    }

    /// Has reading wait, or not.
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        if self.nonblocking.load(Ordering::Relaxed) != nonblocking {
            let mut flags = OFlags::RDWR;
            flags.set(OFlags::NONBLOCK, nonblocking);
            rustix::fs::fcntl_setfl(&self.fd, flags)?;
            self.nonblocking.store(nonblocking, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Room for the largest request.
    fn request_buffer(&self) -> Placed {
        let mut buffer = Placed::new(self.largest + ARGUMENTS, BEFORE_DATA);
        if self.is_pinned {
            // A kill while the kernel copies into a page that is not there fails the call of whoever waits.
            buffer.pin(Stay::Whole);
        }
        buffer
    }

    /// Room for the largest reply.
    fn reply_buffer(&self) -> Placed {
        let mut buffer = Placed::new(self.largest, 0);
        if self.is_pinned {
            // Of a reply that is just written all pages are there, unless they are taken away.
            buffer.pin(Stay::OnceUsed);
        }
        buffer
    }

    fn has_ended(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.has_come())
    }

    /// One read: `None` if it has to be made again.
    fn read(&self, slot: &mut DeviceSlot) -> io::Result<Option<bool>> {
        (slot.moved, slot.small_reply) = (None, None);
        let request = slot.request.get_or_insert_with(|| self.requests.take(|| self.request_buffer()));
        match rustix::io::read(&self.fd, request.bytes()) {
            Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Some(false)),
            Ok(received) => {
                slot.received = received;
                Ok(Some(true))
            }
            // NOENT: the request was withdrawn while it was being read.
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => Ok(None),
            // Another lane over this descriptor has let it go.
            Err(_) if self.has_ended() => Ok(Some(false)),
            Err(e) => Err(e.into()),
        }
    }
}

impl AsFd for DevicePort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Channel for DevicePort {
    fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        debug_assert!(parts.len() < MOST_PARTS);
        let len = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let header = OutHeader { len: len as u32, error, unique };
        let mut slices = [IoSlice::new(&[]); MOST_PARTS];
        slices[0] = IoSlice::new(header.as_bytes());
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        loop {
            match rustix::io::writev(&self.fd, &slices[..=parts.len()]) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn latencies(&self) -> Option<&Arc<Latencies>> {
        Some(&self.latencies)
    }
}

/// A thread's buffers, while it has any.
pub struct DeviceSlot {
    request: Option<Placed>,
    received: usize,
    /// Where the request lies if it is not in `request` any more.
    moved: Option<Placed>,
    reply: Option<Placed>,
    /// What the reply is built in instead, no larger than what is asked for. It is not locked in memory: it goes at once.
    small_reply: Option<Placed>,
}

impl DeviceSlot {
    fn request(&mut self) -> &[u8] {
        match self.moved.as_mut().or(self.request.as_mut()) {
            Some(buffer) => &buffer.bytes()[..self.received],
            None => &[],
        }
    }

    /// Whether the reply to the request is built in a buffer.
    fn has_buffer(&mut self) -> bool {
        InHeader::read_from_prefix(self.request()).is_ok_and(|(header, _)| has_buffer(header.opcode))
    }

    /// The most that the reply takes of a buffer; `None` if the request does not tell.
    fn asked_for(&mut self) -> Option<usize> {
        if !self.has_buffer() {
            return Some(0);
        }
        let arguments = self.request().get(size_of::<InHeader>()..)?;
        ReadIn::read_from_prefix(arguments).ok().map(|(arguments, _)| arguments.size as usize)
    }
}

impl Port for DevicePort {
    type Slot = DeviceSlot;

    fn slot(&self) -> DeviceSlot {
        DeviceSlot { request: None, received: 0, moved: None, reply: None, small_reply: None }
    }

    fn receive(&self, slot: &mut DeviceSlot) -> io::Result<bool> {
        self.set_nonblocking(self.ending.is_some())?;
        loop {
            if self.has_ended() {
                return Ok(false);
            }
            if let Some(received) = self.read(slot)? {
                return Ok(received);
            }
            if let Some(ending) = &self.ending {
                ending.or_readable(self.fd.as_fd())?;
            }
        }
    }

    fn can_look(&self) -> bool {
        self.is_own
    }

    fn look(&self, slot: &mut DeviceSlot) -> io::Result<Option<bool>> {
        self.set_nonblocking(true)?;
        if self.has_ended() { Ok(Some(false)) } else { self.read(slot) }
    }

    fn end(&self) {
        self.requests.clear();
        self.replies.clear();
        if self.has_ended()
            && let Err(e) = sys::let_go(self.fd.as_fd())
        {
            tracing::warn!("who uses the mount waits for the end of this process: {e}");
        }
    }

    fn settle(&self, slot: &mut DeviceSlot, asleep: usize) {
        if asleep <= IDLE_SPARES {
            return;
        }
        if let Some(len) = slot.asked_for().filter(|len| *len <= SMALL) {
            slot.small_reply = Some(Placed::new(len, 0)).filter(|_| len > 0);
            if let Some(reply) = slot.reply.take() {
                self.replies.give(reply, KEPT);
            }
        }
        if slot.received <= SMALL + ARGUMENTS
            && let Some(mut request) = slot.request.take()
        {
            slot.moved = Some(Placed::copy_of(&request.bytes()[..slot.received], BEFORE_DATA));
            self.requests.give(request, KEPT);
        }
    }

    fn rest(&self, slot: &mut DeviceSlot) {
        (slot.moved, slot.small_reply) = (None, None);
        if let Some(request) = slot.request.take() {
            self.requests.give(request, KEPT);
        }
        if let Some(reply) = slot.reply.take() {
            self.replies.give(reply, KEPT);
        }
    }

    fn open<'s>(&'s self, slot: &'s mut DeviceSlot) -> (Option<RequestParts<'s>>, &'s mut [u8]) {
        if slot.reply.is_none() && slot.small_reply.is_none() && slot.has_buffer() {
            slot.reply = Some(self.replies.take(|| self.reply_buffer()));
        }
        let DeviceSlot { request, received, moved, reply, small_reply } = slot;
        let request = match moved.as_mut().or(request.as_mut()) {
            Some(buffer) => RequestParts::whole(&buffer.bytes()[..*received]),
            None => None,
        };
        (request, small_reply.as_mut().or(reply.as_mut()).map_or(&mut [], Placed::bytes))
    }
}

#[cfg(test)]
mod tests;
