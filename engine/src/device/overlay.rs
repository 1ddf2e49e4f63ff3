//! A device over another that keeps every write to itself: what would be, without doing it.

use super::{
    BLOCK_SIZE, BlockDevice, CauseCount, Completion, Counters, DoneBatches, GroupFlush, IoBuf, Op, Request,
    Ticket, spill::Spill,
};
use crate::Result;
use crate::sync::{Arc, Mutex};

/// The overlay. Memory grows with the blocks written, up to a limit, and with nothing else.
pub(crate) struct Overlay {
    below: Arc<dyn BlockDevice>,
    written: Mutex<Spill>,
    done: DoneBatches,
    counters: Counters,
    group: GroupFlush,
}

impl Overlay {
    /// An overlay that keeps so many blocks in memory, and the rest in a temporary file.
    pub fn new(below: Arc<dyn BlockDevice>, in_memory: usize) -> Overlay {
        Overlay {
            below,
            written: Mutex::new(Spill::new(in_memory)),
            done: DoneBatches::default(),
            counters: Counters::default(),
            group: GroupFlush::default(),
        }
    }

    /// The blocks written, in order of their numbers.
    pub fn blocks_written(&self) -> Vec<u64> {
        self.written.lock().blocks()
    }

    /// The content of a block that was written.
    pub fn content(&self, block: u64) -> Option<Result<IoBuf>> {
        let mut buf = IoBuf::zeroed(BLOCK_SIZE);
        let read = self.written.lock().get(block, &mut buf)?;
        Some(read.map(|()| buf))
    }

    fn keep(&self, request: &Request) -> Result<()> {
        request.check(self.below.blocks())?;
        let mut written = self.written.lock();
        match request.op {
            Op::Write => {
                for (block, bytes) in (request.block..).zip(request.buf.chunks_exact(BLOCK_SIZE)) {
                    written.put(block, bytes)?;
                }
                self.group.write_completed();
            }
            // What a discarded block holds is nobody's business; a read goes below.
            Op::Read | Op::Discard { .. } => {}
        }
        Ok(())
    }
}

impl BlockDevice for Overlay {
    fn blocks(&self) -> u64 {
        self.below.blocks()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        // Reads go below in one batch, so that the device sees them all at once.
        let mut reads = Vec::new();
        let mut requests = Vec::new();
        let mut done: Vec<Option<Completion>> = Vec::new();
        for request in batch {
            self.counters.count(&request);
            if request.op == Op::Read {
                reads.push((done.len(), request.block));
                requests.push(request);
                done.push(None);
            } else {
                let result = self.keep(&request);
                done.push(Some(Completion { buf: request.buf, result }));
            }
        }
        let answers = self.below.wait(self.below.submit(requests));
        for ((index, block), mut answer) in reads.into_iter().zip(answers) {
            let count = (answer.buf.len() / BLOCK_SIZE) as u64;
            let patched = self.written.lock().patch(block, &mut answer.buf);
            match patched {
                // A block that cannot be read below but was written here is whole.
                Ok(kept) if kept == count => answer.result = Ok(()),
                Ok(_) => {}
                Err(e) => answer.result = Err(e),
            }
            done[index] = Some(answer);
        }
        self.done.put(done.into_iter().flatten().collect())
    }

    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        self.done.take(ticket)
    }

    fn writes_completed(&self) -> u64 {
        self.group.completed()
    }

    fn flush_upto(&self, upto: u64) -> Result<()> {
        self.group.flush_upto(upto, || Ok(()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Cause, MemoryDevice};

    #[test]
    fn writes_are_read_back_and_never_go_below() {
        for in_memory in [0, 1, 100] {
            written_and_read(in_memory);
        }
    }

    fn written_and_read(in_memory: usize) {
        let below = Arc::new(MemoryDevice::new(16));
        let over = Overlay::new(below.clone(), in_memory);
        let ones = IoBuf::from_slice(&[1; 2 * BLOCK_SIZE]);
        over.run(vec![Request::write(3, ones, Cause::Fsck)]).expect("memory");
        let read = |device: &dyn BlockDevice| {
            let buf = IoBuf::zeroed(4 * BLOCK_SIZE);
            device.run(vec![Request::read(2, buf, Cause::Fsck)]).expect("memory").remove(0)
        };
        let seen = read(&over);
        assert_eq!((seen[0], seen[BLOCK_SIZE], seen[3 * BLOCK_SIZE - 1], seen[3 * BLOCK_SIZE]), (0, 1, 1, 0));
        assert!(read(&*below).iter().all(|b| *b == 0));
        assert_eq!(over.blocks_written(), [3, 4]);
        let twos = IoBuf::from_slice(&[2; BLOCK_SIZE]);
        over.run(vec![Request::write(4, twos, Cause::Fsck)]).expect("memory");
        let content = |block| over.content(block).map(|read| read.expect("memory")[7]);
        assert_eq!([3, 4, 5].map(content), [Some(1), Some(2), None]);
        let past = Request::write(15, IoBuf::zeroed(2 * BLOCK_SIZE), Cause::Fsck);
        assert!(over.run(vec![past]).is_err());
    }
}
