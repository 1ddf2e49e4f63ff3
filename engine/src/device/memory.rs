//! A device in memory: for tests, and for scratch space that nothing outlives.
//!
//! Chunks come into being when they are first written; before that each takes the place of a lock, some 400 MB for a TiB.

use super::counters::Counters;
use super::done::DoneBatches;
use super::flush::GroupFlush;
use super::{BLOCK_SIZE, BlockDevice, CauseCount, Completion, Op, Request, Ticket};
use crate::Result;
use crate::sync::RwLock;

const CHUNK_BLOCKS: u64 = 16;
const CHUNK_BYTES: usize = CHUNK_BLOCKS as usize * BLOCK_SIZE;

/// A device in memory.
#[derive(Debug)]
pub struct MemoryDevice {
    blocks: u64,
    chunks: Vec<RwLock<Option<Box<[u8]>>>>,
    done: DoneBatches,
    counters: Counters,
    group: GroupFlush,
}

impl MemoryDevice {
    /// A device of `blocks` zero blocks.
    pub fn new(blocks: u64) -> Self {
        Self {
            blocks,
            chunks: (0..blocks.div_ceil(CHUNK_BLOCKS)).map(|_| RwLock::new(None)).collect(),
            done: DoneBatches::default(),
            counters: Counters::default(),
            group: GroupFlush::default(),
        }
    }

    fn carry_out(&self, request: &mut Request) -> Result<()> {
        request.check(self.blocks)?;
        self.counters.count(request);
        match request.op {
            Op::Read => {
                for (at, into) in (request.block..).zip(request.buf.chunks_mut(BLOCK_SIZE)) {
                    let (chunk, offset) = self.chunk_of(at);
                    match &*self.chunks[chunk].read() {
                        Some(bytes) => into.copy_from_slice(&bytes[offset..offset + BLOCK_SIZE]),
                        None => into.fill(0),
                    }
                }
            }
            Op::Write => {
                for (at, from) in (request.block..).zip(request.buf.chunks(BLOCK_SIZE)) {
                    let (chunk, offset) = self.chunk_of(at);
                    let mut chunk = self.chunks[chunk].write();
                    let bytes = chunk.get_or_insert_with(|| vec![0; CHUNK_BYTES].into_boxed_slice());
                    bytes[offset..offset + BLOCK_SIZE].copy_from_slice(from);
                }
                self.group.write_completed();
            }
            Op::Discard { count } => {
                for at in request.block..request.block + u64::from(count) {
                    let (chunk, offset) = self.chunk_of(at);
                    if let Some(bytes) = &mut *self.chunks[chunk].write() {
                        bytes[offset..offset + BLOCK_SIZE].fill(0);
                    }
                }
            }
        }
        Ok(())
    }

    fn chunk_of(&self, block: u64) -> (usize, usize) {
        ((block / CHUNK_BLOCKS) as usize, (block % CHUNK_BLOCKS) as usize * BLOCK_SIZE)
    }
}

impl BlockDevice for MemoryDevice {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let done = batch.into_iter().map(|mut request| {
            let result = self.carry_out(&mut request);
            Completion { buf: request.buf, result }
        });
        self.done.put(done.collect())
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
