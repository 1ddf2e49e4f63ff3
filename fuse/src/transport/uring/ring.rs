//! What goes to the kernel through the ring and what comes back: commands about places, completions, the sleep.
//!
//! What touches the ring's queues takes the [`Turn`], which shows that its thread holds the mutex: it is the only one
//! there.
//!
//! What this leaves to others: what a completion means, and which thread replies when ([`super`]).

#![allow(unsafe_code, reason = "a leaf module: queues shared with the kernel")]

use super::memory::DATA_LEN;
use super::{Data, NOBODY, Replied, Turn, UringPort};
use crate::wire::OutHeader;
use io_uring::register::Restriction;
use io_uring::{Builder, IoUring, opcode, squeue, types};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
const ENTER_GETEVENTS: u32 = 1;
/// The completion that wakes the reader, by its user data; others are numbers of places.
pub(super) const WAKE: u64 = u64::MAX;

/// A ring that can do what is done here, and nothing else: what it is asked to do no filter of system calls sees.
pub(super) fn restricted(
    builder: &mut Builder<squeue::Entry128>,
    entries: u32,
) -> io::Result<IoUring<squeue::Entry128>> {
    let ring = builder.setup_r_disabled().build(entries)?;
    let mut allowed = [opcode::UringCmd80::CODE, opcode::Read::CODE].map(Restriction::sqe_op);
    ring.submitter().register_restrictions(&mut allowed)?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

impl UringPort {
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
    pub(super) fn register(&self, turn: &mut Turn, owner: u32) -> Result<(), Errno> {
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
    pub(super) fn completed(&self, _: &Turn) -> Option<(u64, i32)> {
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
    pub(super) fn exchange(&self, turn: &mut Turn, owner: u32, wait: bool) -> io::Result<()> {
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
}
