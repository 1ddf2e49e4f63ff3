//! One ring: what its mutex guards, and the calls into the kernel.
//!
//! What this leaves to others: which caller calls when, and what becomes of a result (the module above).

#![allow(unsafe_code, reason = "a leaf module: queues shared with the kernel")]

use std::collections::VecDeque;
use std::os::fd::AsRawFd;

use io_uring::register::Restriction;
use io_uring::{Builder, IoUring, opcode, squeue, types};
use rustix::io::Errno;

use crate::device::slab::Slab;
use crate::device::{BLOCK_SIZE, Completion, ImageFile, Op, Request};
use crate::sync::{Arc, Condvar, Mutex};

/// Requests in flight per ring; the completion queue is twice as long, so it never overflows.
const DEPTH: u32 = 128;
/// Largest piece of one submission entry; a longer request continues like one that was done in part.
const MAX_PIECE: usize = 1 << 30;

pub(super) struct Ring {
    ring: IoUring,
    pub state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub batches: Slab<Batch>,
    pub requests: Slab<InFlight>,
    /// Requests that wait for a place in the ring, by their slot.
    pub backlog: VecDeque<usize>,
    /// Entries that the kernel has and has not completed.
    pub in_kernel: u32,
    /// Whether a thread owns the completion queue.
    pub reaping: bool,
    /// Batches whose threads sleep and may become the reaper.
    pub sleeping: Vec<usize>,
}

pub(super) struct Batch {
    pub completions: Vec<Completion>,
    pub left: usize,
    pub done: Arc<Condvar>,
}

/// A request that is in the ring or its backlog.
pub(super) struct InFlight {
    pub batch: usize,
    pub index: usize,
    pub request: Request,
    pub moved: usize,
    pub retries: u8,
}

impl Ring {
    /// A ring of the kernel's.
    pub fn new() -> std::io::Result<Self> {
        let restricted = restricted(IoUring::builder().dontfork());
        let ring = restricted.or_else(|_| probed(IoUring::builder().dontfork()))?;
        Ok(Self { ring, state: Mutex::new(State::default()) })
    }

    /// Takes the completions that are there: slots of requests, with their results. The caller is the reaper.
    pub fn completed(&self, state: &mut State) -> Vec<(usize, i32)> {
        // SAFETY: only the reaper touches the completion queue, and there is one reaper, which holds the
        // mutex. Guarded by `uring_conforms` (many threads on one ring).
        let completions = unsafe { self.ring.completion_shared() };
        let seen: Vec<_> = completions.map(|c| (c.user_data() as usize, c.result())).collect();
        state.in_kernel -= seen.len() as u32;
        seen
    }

    /// Submits what is left of a request, as soon as there is room.
    pub fn resubmit(&self, image: &ImageFile, state: &mut State, slot: usize) {
        state.backlog.push_back(slot);
        self.fill(image, state);
    }

    /// Moves the backlog into the ring as far as there is room, and tells the kernel. False when the kernel
    /// could not take all of it now: nobody may sleep for a completion that it has not been asked for.
    pub fn fill(&self, image: &ImageFile, state: &mut State) -> bool {
        let mut added = 0;
        while state.in_kernel + added < DEPTH
            && let Some(slot) = state.backlog.pop_front()
        {
            let entry = entry(image, state.requests.get_mut(slot)).user_data(slot as u64);
            // SAFETY: the mutex makes this thread the only one at the submission queue; the buffer belongs to
            // the slot, which stays until the entry's completion is settled, and the descriptor is open until
            // the device is dropped, which waits for everything in flight. Guarded by `uring_conforms`.
            let pushed = unsafe { self.ring.submission_shared().push(&entry) };
            pushed.expect("fewer entries are in flight than the queue has places");
            added += 1;
        }
        state.in_kernel += added;
        self.enter_to_submit()
    }

    /// Hands the kernel what stands in the submission queue. Called with the mutex held.
    fn enter_to_submit(&self) -> bool {
        loop {
            // SAFETY: the mutex makes this thread the only one at the submission queue.
            let waiting = unsafe { self.ring.submission_shared() }.len();
            if waiting == 0 {
                return true;
            }
            // SAFETY: the entries stand complete in the queue; no argument is passed. Guarded by
            // `uring_conforms`.
            match unsafe { self.ring.submitter().enter::<()>(waiting as u32, 0, 0, None) } {
                Ok(_) => {}
                Err(e) if is(&e, Errno::INTR) => {}
                // Memory is short: entries stay in the queue, and the reaper tries again.
                Err(_) => return false,
            }
        }
    }

    /// Sleeps until the kernel has completed so many entries, of those that it has. Called by the reaper without the
    /// mutex.
    pub fn sleep(&self, count: u32) {
        // SAFETY: no entry is submitted and no argument passed. Guarded by `uring_conforms`.
        let entered = unsafe { self.ring.submitter().enter::<()>(0, count, IORING_ENTER_GETEVENTS, None) };
        if let Err(e) = entered
            && !is(&e, Errno::INTR)
        {
            // The kernel is short of something that time gives back; the caller looks and sleeps again.
            crate::sync::thread::yield_now();
        }
    }
}

/// A ring that can read and write, and nothing else: what it is asked to do no filter of system calls sees. Takes Linux 5.10.
fn restricted(builder: &mut Builder) -> std::io::Result<IoUring> {
    let ring = probed(builder.setup_r_disabled())?;
    let mut allowed = [opcode::Read::CODE, opcode::Write::CODE].map(Restriction::sqe_op);
    ring.submitter().register_restrictions(&mut allowed)?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

/// A ring of a kernel that can read and write by it.
fn probed(builder: &mut Builder) -> std::io::Result<IoUring> {
    let ring = builder.build(DEPTH)?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if !probe.is_supported(opcode::Read::CODE) || !probe.is_supported(opcode::Write::CODE) {
        return Err(std::io::ErrorKind::Unsupported.into());
    }
    Ok(ring)
}

const IORING_ENTER_GETEVENTS: u32 = 1;

fn is(error: &std::io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// The submission entry for what is left of a request.
fn entry(image: &ImageFile, flight: &mut InFlight) -> squeue::Entry {
    let fd = types::Fd(image.file().as_raw_fd());
    let offset = flight.request.block * BLOCK_SIZE as u64 + flight.moved as u64;
    let rest = &mut flight.request.buf[flight.moved..];
    let len = rest.len().min(MAX_PIECE) as u32;
    match flight.request.op {
        Op::Read => opcode::Read::new(fd, rest.as_mut_ptr(), len).offset(offset).build(),
        _ => opcode::Write::new(fd, rest.as_ptr(), len).offset(offset).build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_reads_and_writes_and_does_nothing_else() {
        let mut ring = restricted(IoUring::builder().dontfork()).expect("io_uring of Linux 5.10");
        let mut byte = [0u8];
        let zeros = std::fs::File::open("/dev/zero").expect("it is there");
        let fd = types::Fd(zeros.as_raw_fd());
        let path = c"/dev/null";
        let entries = [
            (opcode::Read::new(fd, byte.as_mut_ptr(), 1).build(), 1),
            (opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr()).build(), -libc::EACCES),
            (opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build(), -libc::EACCES),
            (opcode::Nop::new().build(), -libc::EACCES),
        ];
        for (entry, result) in entries {
            // SAFETY: what the entry points to lives until its completion, which is waited for here.
            unsafe { ring.submission().push(&entry) }.expect("the queue is empty");
            ring.submit_and_wait(1).expect("one was pushed");
            assert_eq!(ring.completion().next().map(|done| done.result()), Some(result));
        }
        let more = ring.submitter().register_probe(&mut io_uring::Probe::new());
        assert_eq!(more.expect_err("it is closed").raw_os_error(), Some(libc::EACCES));
    }
}
