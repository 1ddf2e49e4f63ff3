//! A device whose writes need not outlive the mount: a flush has nothing to do.

use super::{BlockDevice, Cause, CauseCount, Completion, IoBuf, Request, Ticket};
use crate::Result;
use crate::sync::Arc;

/// Another device without its flushes.
pub(crate) struct Unordered(pub Arc<dyn BlockDevice>);

impl BlockDevice for Unordered {
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        self.0.submit(batch)
    }

    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        self.0.wait(ticket)
    }

    fn read_into(&self, block: u64, into: &mut [u8], cause: Cause) -> Result<()> {
        self.0.read_into(block, into, cause)
    }

    fn write_durably(&self, block: u64, buf: IoBuf, cause: Cause) -> Result<()> {
        self.0.run(vec![Request::write(block, buf, cause)]).map(drop)
    }

    fn submitters(&self) -> usize {
        self.0.submitters()
    }

    fn writes_completed(&self) -> u64 {
        self.0.writes_completed()
    }

    fn flush_upto(&self, _upto: u64) -> Result<()> {
        Ok(())
    }

    fn writes_flushed(&self) -> u64 {
        self.0.writes_completed()
    }

    fn flushes(&self) -> u64 {
        self.0.flushes()
    }

    fn counters(&self) -> Vec<CauseCount> {
        self.0.counters()
    }
}
