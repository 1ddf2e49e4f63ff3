//! The simulated device.

use super::media::{Event, Failure, Fault, Shared, pages};
use crate::device::{
    BLOCK_SIZE, BlockDevice, Cause, CauseCount, Completion, Counters, DoneBatches, GroupFlush, IoBuf, Op,
    Request, Ticket,
};
use crate::sync::Arc;
use crate::{Error, Result};

/// What a discarded block reads as: nothing that anyone wrote.
const DISCARDED: u8 = 0xdb;
/// What a read that failed leaves of its buffer where it had not come yet.
const UNREAD: u8 = 0xdf;

/// The device of [`super::SimMedia`].
///
/// A write is issued by `submit` and ends in `wait`; between the two it is in flight.
pub struct SimDevice {
    shared: Arc<Shared>,
    blocks: u64,
    done: DoneBatches<Vec<(Request, Started)>>,
    counters: Counters,
    group: GroupFlush,
}

/// What became of a request when it was submitted.
enum Started {
    Ended(Result<()>),
    InFlight(u64, Result<()>),
}

fn told(context: &'static str, failure: Option<Failure>) -> Result<()> {
    failure.map_or(Ok(()), |Failure { errno, .. }| Err(Error::Device { context, errno }))
}

impl SimDevice {
    pub(super) fn new(shared: Arc<Shared>, blocks: u64) -> Self {
        Self {
            shared,
            blocks,
            done: DoneBatches::default(),
            counters: Counters::default(),
            group: GroupFlush::default(),
        }
    }

    fn start(&self, request: &mut Request) -> Started {
        if let Err(e) = request.check(self.blocks) {
            return Started::Ended(Err(e));
        }
        self.counters.count(request);
        let (block, count, cause) = (request.block, request.bytes() / BLOCK_SIZE as u64, request.cause);
        match request.op {
            Op::Read => {
                let mut world = self.shared.lock();
                let failure = world.fault(|nth| Fault::Read { nth, block, count, cause }, 0);
                let end = failure.map_or(u64::MAX, |failure| block.saturating_add(failure.done));
                for (at, into) in (block..).zip(request.buf.chunks_mut(BLOCK_SIZE)) {
                    if at < end {
                        world.live.read(at, into);
                    } else {
                        into.fill(UNREAD);
                    }
                }
                Started::Ended(told("read", failure))
            }
            Op::Write => self.issue(block, pages(&request.buf), Some(cause)),
            Op::Discard { .. } => {
                let pattern = Arc::new([DISCARDED; BLOCK_SIZE]);
                self.issue(block, vec![pattern; count as usize], None)
            }
        }
    }

    /// Issues a write, which may be made to fail if it has a cause.
    fn issue(&self, block: u64, contents: Vec<Arc<[u8; BLOCK_SIZE]>>, cause: Option<Cause>) -> Started {
        let count = contents.len() as u64;
        let (write, failure) = {
            let mut world = self.shared.lock();
            world.writes += 1;
            let failure =
                cause.and_then(|cause| world.fault(|nth| Fault::Write { nth, block, count, cause }, 1));
            (world.writes, failure)
        };
        // What a crash leaves of one that failed is up to the crash: any of its sectors, these or others.
        let done = failure.map_or(count, |failure| failure.done.min(count));
        let event = Event::WriteIssued { write, block, contents: contents.clone() };
        self.shared.record(event, |world| {
            if (block..block + count).any(|b| world.in_flight.contains(&b)) {
                world.overlaps += 1;
            }
            world.in_flight.extend(block..block + count);
            for (at, page) in (block..block + done).zip(contents) {
                world.live.set(at, page);
            }
        });
        Started::InFlight(write, told("write", failure))
    }

    fn end(&self, request: Request, started: Started, durable: bool) -> Completion {
        let result = match started {
            Started::Ended(result) => result,
            Started::InFlight(write, result) => {
                let blocks = request.block..request.block + request.bytes() / BLOCK_SIZE as u64;
                self.shared.record(Event::WriteEnded { write, ok: result.is_ok(), durable }, |world| {
                    for block in blocks {
                        if let Some(at) = world.in_flight.iter().position(|b| *b == block) {
                            world.in_flight.swap_remove(at);
                        }
                    }
                });
                if request.op == Op::Write && result.is_ok() && !durable {
                    self.group.write_completed();
                }
                result
            }
        };
        Completion { buf: request.buf, result }
    }
}

impl BlockDevice for SimDevice {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let start = |mut request: Request| {
            let started = self.start(&mut request);
            (request, started)
        };
        self.done.put(batch.into_iter().map(start).collect())
    }

    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        self.done
            .take(ticket)
            .into_iter()
            .map(|(request, started)| self.end(request, started, false))
            .collect()
    }

    fn write_durably(&self, block: u64, buf: IoBuf, cause: Cause) -> Result<()> {
        self.group.check()?;
        let mut request = Request::write(block, buf, cause);
        let started = self.start(&mut request);
        self.end(request, started, true).result
    }

    fn writes_completed(&self) -> u64 {
        self.group.completed()
    }

    fn flush_upto(&self, upto: u64) -> Result<()> {
        self.group.flush_upto(upto, || {
            self.shared.record(Event::FlushBegan, |_| ());
            let result = told("flush", self.shared.lock().fault(|nth| Fault::Flush { nth }, 2));
            self.shared.record(Event::FlushEnded { ok: result.is_ok() }, |_| ());
            result
        })
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
