//! The port over `/dev/fuse`: one descriptor, cloned for each core from the mount's first one.
//!
//! The request buffer is placed so that the data of a WRITE begins on a page boundary, and the reply buffer
//! begins on one: the engine may hand both to a device.

use super::ending::Ending;
use super::latency::Latencies;
use super::{Channel, Port};
use crate::sys::{self, Stay};
use crate::wire::{InHeader, OutHeader, RequestParts, WriteIn};
use narufs_engine::fork::KeptFromChildren;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::IntoBytes;

const PAGE: usize = 4096;

/// Room for a request's header and arguments beside the data of a WRITE: names of two directory entries,
/// extended attributes' names, and extensions.
const ARGUMENTS: usize = 2 * PAGE;

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
        }
    }

    /// The same port, to be ended by this as well.
    pub fn ended_by(self, ending: Option<Arc<Ending>>) -> DevicePort {
        DevicePort { ending, ..self }
    }

    /// The same port, whose buffers are in memory before they are used.
    pub fn pinned(self) -> DevicePort {
        DevicePort { is_pinned: true, ..self }
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

    fn has_ended(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.has_come())
    }

    /// One read: `None` if it has to be made again.
    fn read(&self, slot: &mut DeviceSlot) -> io::Result<Option<bool>> {
        match rustix::io::read(&self.fd, slot.request.bytes()) {
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

/// A thread's buffers.
pub struct DeviceSlot {
    request: Placed,
    received: usize,
    reply: Placed,
}

impl Port for DevicePort {
    type Slot = DeviceSlot;

    fn slot(&self) -> DeviceSlot {
        let before_data = size_of::<InHeader>() + size_of::<WriteIn>();
        let mut slot = DeviceSlot {
            request: Placed::new(self.largest + ARGUMENTS, before_data),
            received: 0,
            reply: Placed::new(self.largest, 0),
        };
        if self.is_pinned {
            // A kill while the kernel copies into, or out of, a page that is not there fails the call of whoever waits.
            // Of a reply that is just written all pages are, unless they are taken away.
            slot.request.pin(Stay::Whole);
            slot.reply.pin(Stay::OnceUsed);
        }
        slot
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
        if self.has_ended()
            && let Err(e) = sys::let_go(self.fd.as_fd())
        {
            tracing::warn!("who uses the mount waits for the end of this process: {e}");
        }
    }

    fn open<'s>(&'s self, slot: &'s mut DeviceSlot) -> (Option<RequestParts<'s>>, &'s mut [u8]) {
        (RequestParts::whole(&slot.request.bytes()[..slot.received]), slot.reply.bytes())
    }
}

/// Bytes of which the one at a given distance lies on a page boundary.
struct Placed {
    memory: Vec<u8>,
    start: usize,
    len: usize,
    is_pinned: bool,
}

impl Placed {
    fn new(len: usize, before_boundary: usize) -> Self {
        // Zeroed memory of this size comes from the kernel page by page when it is first used.
        let memory = vec![0u8; len + PAGE];
        let address = memory.as_ptr().addr() + before_boundary;
        Placed { start: address.next_multiple_of(PAGE) - address, memory, len, is_pinned: false }
    }

    fn pin(&mut self, stay: Stay) {
        self.is_pinned = true;
        if let Err(e) = sys::pin(self.bytes(), stay) {
            tracing::debug!("a buffer is not locked in memory: {e}");
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // The heap cannot give back what is locked, nor is what lies there next to be.
        if self.is_pinned
            && let Err(e) = sys::pin(self.bytes(), Stay::No)
        {
            tracing::debug!("a buffer stays locked in memory: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_write_begins_on_a_page() {
        for before in [0, 80, PAGE - 1, PAGE, PAGE + 1] {
            let mut placed = Placed::new(3 * PAGE, before);
            let bytes = placed.bytes();
            assert_eq!(bytes.len(), 3 * PAGE);
            assert_eq!(bytes[before..].as_ptr().addr() % PAGE, 0);
        }
    }

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
