//! The memory that a port shares with the kernel: where in it each place has its header and its data.
//!
//! What this leaves to others: whose a place is, and which thread's, which is the port's protocol ([`super`]).

#![allow(unsafe_code, reason = "a leaf module: memory shared with the kernel")]

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::ops::Range;

/// The least that the kernel takes for a place, in bytes.
pub(super) const LEAST_ROOM: usize = 64 << 10;
/// Distance between the places' headers, in bytes.
const HEADER_STRIDE: usize = 512;
/// Where in a header an operation's first structure lies, and its length.
pub(super) const FIRST: Range<usize> = 128..256;
/// Where in a header the length of the data is, a u32.
pub(super) const DATA_LEN: usize = 272;
/// All of a header.
const HEADER_LEN: usize = 288;
const PAGE: usize = 4096;

/// Memory that the kernel writes to and reads from: a page for waking up, headers, and room for data.
pub(super) struct Memory {
    start: *mut u8,
    len: usize,
    data: usize,
    /// Of each place, in bytes.
    pub room: usize,
}

// SAFETY: the memory belongs to no thread; which thread may touch which part when is the protocol of the port.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new(places: usize, room: usize) -> io::Result<Memory> {
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
    pub(super) fn wake(&self) -> *mut u8 {
        self.start
    }

    /// A place's header. Called by the holder of the turn while the place is the server's.
    #[allow(clippy::mut_from_ref, reason = "the protocol gives each place to one thread at a time")]
    pub(super) fn header(&self, place: usize) -> &mut [u8] {
        let at = PAGE + place * HEADER_STRIDE;
        assert!(at + HEADER_LEN <= self.data);
        // SAFETY: within the map, as asserted. The place is the server's, and the turn's mutex makes this thread
        // the only one at its header. Guarded by the tests that mount with io_uring.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), HEADER_LEN) }
    }

    /// The first bytes of a place's data. Called while the place is the server's: by the thread that serves the
    /// request, or, when that has replied, by the holder of the turn.
    #[allow(clippy::mut_from_ref, reason = "the protocol gives each place to one thread at a time")]
    pub(super) fn data(&self, place: usize, len: usize) -> &mut [u8] {
        let at = self.data + place * self.room;
        assert!(len <= self.room && at + self.room <= self.len);
        // SAFETY: within the map, as asserted; one thread at a time, as above. Guarded by the tests that mount
        // with io_uring.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }

    /// Whether bytes are the first of a place's data.
    pub(super) fn is_data(&self, place: usize, bytes: &[u8]) -> bool {
        bytes.as_ptr().addr() == self.start.addr() + self.data + place * self.room
    }

    /// Header and data of a place, as the kernel wants them described.
    pub(super) fn parts(&self, place: usize) -> [libc::iovec; 2] {
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

#[cfg(test)]
mod tests {
    use super::*;

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
