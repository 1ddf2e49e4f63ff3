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
mod tests {
    use super::*;
    use crate::wire::Opcode;
    use zerocopy::FromZeros;

    #[test]
    fn a_message_is_one_write_with_its_length() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let port = DevicePort::new(writer, 0);
        port.send(9, -libc::ENOENT, &[b"ab", b"cde"]).expect("room in the pipe");
        let mut got = [0; 64];
        assert_eq!(rustix::io::read(&reader, &mut got).expect("the message"), 21);
        assert_eq!(&got[..16], OutHeader { len: 21, error: -libc::ENOENT, unique: 9 }.as_bytes());
        assert_eq!(&got[16..21], b"abcde");
    }

    /// A WRITE of so many bytes, each `byte`.
    fn write_of(len: usize, byte: u8) -> Vec<u8> {
        let mut request = vec![byte; BEFORE_DATA + len];
        let header =
            InHeader { len: request.len() as u32, opcode: Opcode::Write as u32, ..InHeader::new_zeroed() };
        request[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
        request
    }

    #[test]
    fn what_is_small_makes_room_for_the_next_reader_where_many_sleep() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let port = DevicePort::new(reader, 1 << 20);
        let mut slots = [port.slot(), port.slot()];
        let request = write_of(PAGE, 7);
        rustix::io::write(&writer, &request).expect("room in the pipe");
        assert!(port.receive(&mut slots[0]).expect("bytes"));
        let read_into = slots[0].request().as_ptr();
        port.settle(&mut slots[0], IDLE_SPARES);
        assert_eq!(slots[0].request().as_ptr(), read_into, "few sleep");
        port.settle(&mut slots[0], IDLE_SPARES + 1);
        assert_eq!((slots[0].request(), port.requests.len()), (&request[..], 1));
        assert_eq!(slots[0].request()[BEFORE_DATA..].as_ptr().addr() % PAGE, 0, "it can go to a device");
        let (whole, reply) = port.open(&mut slots[0]);
        assert!(whole.is_some() && reply.is_empty(), "only reads are answered from a buffer");
        rustix::io::write(&writer, &request).expect("room in the pipe");
        assert!(port.receive(&mut slots[1]).expect("bytes"));
        assert_eq!((slots[1].request().as_ptr(), port.requests.len()), (read_into, 0));
        // Both are over.
        slots.iter_mut().for_each(|slot| port.rest(slot));
        assert_eq!(port.requests.len(), 1);
        assert!(slots[0].request().is_empty());
        port.end();
        assert_eq!(port.requests.len(), 0);
    }

    #[test]
    fn a_small_read_keeps_no_large_buffer_where_many_sleep() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let port = DevicePort::new(reader, 1 << 20);
        let mut slot = port.slot();
        for (size, asleep, wanted, kept) in
            [(1 << 20, 100, 1 << 20, 0), (PAGE, IDLE_SPARES, 1 << 20, 0), (PAGE, IDLE_SPARES + 1, PAGE, 1)]
        {
            let arguments = ReadIn { size: size as u32, ..ReadIn::new_zeroed() };
            let len = (size_of::<InHeader>() + size_of::<ReadIn>()) as u32;
            let header = InHeader { len, opcode: Opcode::Read as u32, ..InHeader::new_zeroed() };
            rustix::io::write(&writer, &[header.as_bytes(), arguments.as_bytes()].concat())
                .expect("room in the pipe");
            assert!(port.receive(&mut slot).expect("bytes"));
            port.settle(&mut slot, asleep);
            let (_, buffer) = port.open(&mut slot);
            assert_eq!((buffer.len(), port.replies.len()), (wanted, kept), "{size} bytes, {asleep} asleep");
        }
    }

    #[test]
    fn what_is_large_stays_where_it_is() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        rustix::pipe::fcntl_setpipe_size(&writer, 1 << 20).expect("a large pipe");
        let port = DevicePort::new(reader, 1 << 20);
        let mut slot = port.slot();
        rustix::io::write(&writer, &write_of(SMALL + ARGUMENTS, 7)).expect("room in the pipe");
        assert!(port.receive(&mut slot).expect("bytes"));
        let read_into = slot.request().as_ptr();
        port.settle(&mut slot, 100);
        assert_eq!((slot.request().as_ptr(), port.requests.len()), (read_into, 0));
    }

    #[test]
    fn a_look_waits_for_nothing_and_a_read_after_it_waits() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let port = DevicePort { is_own: true, ..DevicePort::new(reader, 0) };
        let mut slot = port.slot();
        assert!(port.can_look());
        assert_eq!(port.look(&mut slot).expect("an open pipe"), None);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| port.receive(&mut port.slot()));
            rustix::io::write(&writer, b"request").expect("room in the pipe");
            assert!(waiting.join().expect("it returns").expect("bytes"));
        });
        let nonblocking = rustix::fs::fcntl_getfl(&port.fd).expect("its flags").contains(OFlags::NONBLOCK);
        assert!(!nonblocking);
        rustix::io::write(&writer, b"request").expect("room in the pipe");
        assert_eq!(port.look(&mut slot).expect("an open pipe"), Some(true));
        drop(writer);
        assert_eq!(port.look(&mut slot).expect("an end"), Some(false));
    }

    #[test]
    fn one_that_is_ended_reads_no_more_and_lets_its_file_go() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let ending = Arc::new(Ending::new().expect("a descriptor"));
        let port = DevicePort::new(reader, 0).ended_by(Some(Arc::clone(&ending)));
        let mut slot = port.slot();
        rustix::io::write(&writer, b"request").expect("room in the pipe");
        assert!(port.receive(&mut slot).expect("bytes"));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| port.receive(&mut port.slot()));
            ending.come();
            assert!(!waiting.join().expect("it returns").expect("an end"));
        });
        port.end();
        assert_eq!(rustix::io::write(&writer, b"request"), Err(Errno::PIPE));
        assert!(port.send(9, 0, &[b"ab"]).is_err());
    }

    #[test]
    fn whether_an_inherited_descriptor_waits_is_settled() {
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        for flags in [OFlags::empty(), OFlags::NONBLOCK] {
            rustix::fs::fcntl_setfl(&reader, flags).expect("a pipe");
            let again = reader.try_clone().expect("a descriptor");
            let port = DevicePort::new(again, 0).inherited().expect("a pipe");
            assert!(!rustix::fs::fcntl_getfl(&reader).expect("its flags").contains(OFlags::NONBLOCK));
            assert_eq!(port.look(&mut port.slot()).expect("an open pipe"), None, "it waits for nothing");
        }
    }

    #[test]
    fn a_closed_device_is_the_end() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let port = DevicePort::new(reader, 0);
        drop(writer);
        assert!(!port.receive(&mut port.slot()).expect("an end"));
    }
}
