//! A device served by io_uring: many requests in flight, no helper threads.
//!
//! There are a few rings, each under one mutex; a thread uses the ring of the core it runs on. What the mutex
//! guards: the submission queue, the table of batches and requests, the backlog, and the *reaper* flag.
//!
//! 1. A submitter fills slots and submission entries under the mutex and enters the kernel once for the
//!    batch. What exceeds the ring's depth waits in the backlog.
//! 2. A waiter whose batch is done takes it. Otherwise, if the ring has no reaper, it becomes the reaper:
//!    it drops the mutex, sleeps in the kernel until something completes, takes the mutex again and handles
//!    all completions. Only the reaper touches the completion queue; were another thread to empty it, the
//!    reaper could sleep on although its own batch is done.
//! 3. Other waiters sleep on their own batch's condition variable. The reaper wakes each whose batch it
//!    finished; when its own batch is done it gives the role up and wakes one waiter that may take it.
//!
//! So a thread that is alone enters the kernel once to submit and once to wait, and is woken by nobody else.
//!
//! A request that the kernel did in part is submitted again for the rest, from the last whole block on; one that it
//! interrupted or cancelled (its submitter's thread ended) is submitted again whole, by the reaper.

mod ring;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use super::counters::Counters;
use super::flush::GroupFlush;
use super::plain::{flush_all, read_straight, room_for, write_durably};
use super::whole::{CUT_OFF, MAX_RETRIES, blocks_of, read_whole, write_whole};
use super::{
    BLOCK_SIZE, BlockDevice, Cause, CauseCount, Completion, Erased, ImageFile, IoBuf, Op, Request, Ticket,
    read_copied,
};
use crate::sync::{Arc, Condvar, MutexGuard, available_cores};
use crate::{Error, Result, blocking};
use ring::{Batch, InFlight, Ring, State};

const MAX_RINGS: usize = 16;
/// Completions that a reaper waits for at the most before it looks: others' requests wait with it.
const MOST_AWAITED: u32 = 8;

/// A device served by io_uring.
pub struct UringDevice {
    /// Before the image: a ring is torn down with nothing in flight.
    rings: Vec<Ring>,
    image: ImageFile,
    counters: Counters,
    group: GroupFlush,
}

impl UringDevice {
    /// A device over an open image, or the image back with the reason why the kernel offers no rings.
    pub fn new(image: ImageFile) -> std::result::Result<Self, (ImageFile, std::io::Error)> {
        let count = available_cores().min(MAX_RINGS);
        let rings: std::io::Result<Vec<_>> = (0..count).map(|_| Ring::new()).collect();
        match rings {
            Ok(rings) => {
                Ok(Self { rings, image, counters: Counters::default(), group: GroupFlush::default() })
            }
            Err(e) => Err((image, e)),
        }
    }

    /// Files the result of an entry: the request is done, has failed, or goes on.
    fn complete(&self, ring: &Ring, state: &mut State, slot: usize, result: i32) {
        let flight = state.requests.get_mut(slot);
        let outcome = match usize::try_from(result) {
            Ok(0) if flight.moved < flight.request.buf.len() => Some(Err(CUT_OFF)),
            Ok(bytes) => {
                let whole = blocks_of(bytes);
                if whole == 0 {
                    return self.again(ring, state, slot);
                }
                flight.moved += whole;
                flight.retries = 0;
                (flight.moved >= flight.request.buf.len()).then_some(Ok(()))
            }
            Err(_) if matches!(-result, libc::EAGAIN | libc::EINTR | libc::ECANCELED) => {
                return self.again(ring, state, slot);
            }
            Err(_) => {
                let context = if flight.request.op == Op::Read { "read" } else { "write" };
                Some(Err(Error::Device { context, errno: -result }))
            }
        };
        match outcome {
            Some(result) => self.finish(state, slot, result),
            None => ring.resubmit(&self.image, state, slot),
        }
    }

    /// Submits a request again that got no further, or carries it out here when that goes on ([`MAX_RETRIES`]).
    fn again(&self, ring: &Ring, state: &mut State, slot: usize) {
        let flight = state.requests.get_mut(slot);
        flight.retries += 1;
        if flight.retries <= MAX_RETRIES {
            return ring.resubmit(&self.image, state, slot);
        }
        let result = self.carry_out(flight);
        self.finish(state, slot, result);
    }

    /// Does what is left of a request without the ring.
    fn carry_out(&self, flight: &mut InFlight) -> Result<()> {
        let offset = flight.request.block * BLOCK_SIZE as u64 + flight.moved as u64;
        let rest = &mut flight.request.buf[flight.moved..];
        match flight.request.op {
            Op::Read => read_whole(self.image.file(), rest, offset),
            Op::Write => write_whole(self.image.file(), rest, offset),
            Op::Discard { .. } => Ok(()),
        }
    }

    /// Files a completion with its batch and wakes its waiter when it was the last.
    fn finish(&self, state: &mut State, slot: usize, result: Result<()>) {
        let flight = state.requests.remove(slot);
        if flight.request.op == Op::Write && result.is_ok() {
            self.group.write_completed();
        }
        let batch = state.batches.get_mut(flight.batch);
        batch.completions[flight.index] = Completion { buf: flight.request.buf, result };
        batch.left -= 1;
        if batch.left == 0 {
            batch.done.notify_one();
        }
    }

    /// Settles every completion that is there. The caller is the reaper.
    fn reap(&self, ring: &Ring, state: &mut State) {
        for (slot, result) in ring.completed(state) {
            self.complete(ring, state, slot, result);
        }
        ring.fill(&self.image, state);
    }
}

impl BlockDevice for UringDevice {
    fn blocks(&self) -> u64 {
        self.image.blocks()
    }

    fn measure(&self) -> Result<u64> {
        self.image.measured()
    }

    fn erase(&self) -> Result<Erased> {
        self.image.erase()
    }

    fn grow(&self, blocks: u64, sparse: bool) -> Result<()> {
        self.image.grow(blocks, sparse, || flush_all(&self.image, &self.group))
    }

    fn room(&self) -> Option<u64> {
        room_for(&self.image)
    }

    fn ungrow(&self, blocks: u64) {
        self.image.cut(blocks);
    }

    /// By pread: one call where the ring takes one to submit and one to wait, and no buffer in between.
    fn read_into(&self, block: u64, into: &mut [u8], cause: Cause) -> Result<()> {
        if read_straight(&self.image, &self.counters, block, into, cause)? {
            return Ok(());
        }
        read_copied(self, block, into, cause)
    }

    /// By pwritev2, or pwrite and a flush: the ring takes one call more, and another wait.
    fn write_durably(&self, block: u64, buf: IoBuf, cause: Cause) -> Result<()> {
        write_durably(&self.image, &self.counters, &self.group, block, &buf, cause)
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let which = rustix::thread::sched_getcpu() % self.rings.len();
        let ring = &self.rings[which];
        // Checks and discards (a system call that may sleep) come before the mutex.
        let ready: Vec<(Request, Option<Result<()>>)> = batch.into_iter().map(|r| self.prepare(r)).collect();

        let mut state = ring.state.lock();
        let left = ready.iter().filter(|(_, result)| result.is_none()).count();
        let completions = Vec::with_capacity(ready.len());
        let id = state.batches.insert(Batch { completions, left, done: Arc::new(Condvar::new()) });
        for (index, (request, result)) in ready.into_iter().enumerate() {
            let completion = match result {
                Some(result) => Completion { buf: request.buf, result },
                None => {
                    let flight = InFlight { batch: id, index, request, moved: 0, retries: 0 };
                    let slot = state.requests.insert(flight);
                    state.backlog.push_back(slot);
                    Completion { buf: super::IoBuf::empty(), result: Ok(()) }
                }
            };
            state.batches.get_mut(id).completions.push(completion);
        }
        ring.fill(&self.image, &mut state);
        Ticket((id * self.rings.len() + which) as u64)
    }

    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        let ring = &self.rings[ticket.0 as usize % self.rings.len()];
        let id = ticket.0 as usize / self.rings.len();
        let mut state = ring.state.lock();
        if state.batches.get_mut(id).left > 0 {
            if !state.reaping {
                // It may have finished meanwhile: looking costs no system call.
                self.reap(ring, &mut state);
            }
            if state.batches.get_mut(id).left > 0 {
                drop(state);
                blocking::about_to_block();
                state = ring.state.lock();
            }
        }
        self.wait_for(ring, state, id)
    }

    /// While one copies or waits for a flush the other has requests in flight.
    fn submitters(&self) -> usize {
        2
    }

    fn writes_completed(&self) -> u64 {
        self.group.completed()
    }

    fn flush_upto(&self, upto: u64) -> Result<()> {
        self.group.flush_upto(upto, || self.image.flush())
    }

    fn when_flush_fails(&self, tell: Box<dyn Fn() + Send + Sync>) {
        self.group.when_it_fails(tell);
    }

    fn writes_flushed(&self) -> u64 {
        self.group.flushed()
    }

    fn flushes(&self) -> u64 {
        self.group.flushes()
    }

    fn counters(&self) -> Vec<CauseCount> {
        self.counters.snapshot()
    }
}

impl UringDevice {
    /// Checks and counts a request; some are over with that.
    fn prepare(&self, request: Request) -> (Request, Option<Result<()>>) {
        if let Err(e) = request.check(self.image.blocks()) {
            return (request, Some(Err(e)));
        }
        self.counters.count(&request);
        if let Op::Discard { count } = request.op {
            self.image.discard(request.block, u64::from(count));
            return (request, Some(Ok(())));
        }
        if request.op == Op::Write {
            self.image.note(request.block, request.buf.len());
        }
        let result = request.buf.is_empty().then_some(Ok(()));
        (request, result)
    }

    /// Sleeps until a batch is done, as the reaper or woken by it.
    fn wait_for<'a>(&self, ring: &'a Ring, mut state: MutexGuard<'a, State>, id: usize) -> Vec<Completion> {
        let mut reaper = false;
        while state.batches.get_mut(id).left > 0 {
            if reaper || !state.reaping {
                reaper = true;
                state.reaping = true;
                let submitted = ring.fill(&self.image, &mut state);
                // Of many that are its own it need not see each: it would wake up as often.
                let own = state.batches.get_mut(id).left as u32;
                let count = own.min(state.in_kernel).div_ceil(2).min(MOST_AWAITED);
                drop(state);
                if submitted {
                    ring.sleep(count);
                } else {
                    crate::sync::thread::yield_now();
                }
                state = ring.state.lock();
                self.reap(ring, &mut state);
            } else {
                let done = Arc::clone(&state.batches.get_mut(id).done);
                state.sleeping.push(id);
                done.wait(&mut state);
                state.sleeping.retain(|other| *other != id);
            }
        }
        if reaper {
            state.reaping = false;
        }
        // A thread that leaves makes sure that somebody reaps for those that stay. A batch that is done was woken
        // already; it will do the same when it leaves.
        if !state.reaping {
            let State { sleeping, batches, .. } = &mut *state;
            if let Some(next) = sleeping.iter().find(|id| batches.get_mut(**id).left > 0) {
                batches.get_mut(*next).done.notify_one();
            }
        }
        state.batches.remove(id).completions
    }
}

impl Drop for UringDevice {
    fn drop(&mut self) {
        // The kernel may still write to buffers of batches that nobody waited for.
        for ring in &self.rings {
            let mut state = ring.state.lock();
            while state.in_kernel > 0 || !state.backlog.is_empty() {
                if ring.fill(&self.image, &mut state) {
                    ring.sleep(1);
                }
                self.reap(ring, &mut state);
            }
        }
    }
}

impl std::fmt::Debug for UringDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringDevice").field("image", &self.image).field("rings", &self.rings.len()).finish()
    }
}
