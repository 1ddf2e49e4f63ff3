//! A device whose unflushed writes a crash applies in part.

use crate::device::{BLOCK_SIZE, BlockDevice, Cause, CauseCount, Completion, IoBuf, Op, Request, Ticket};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use crate::{Error, Result};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};

type Image = BTreeMap<u64, Vec<u8>>;

/// A device that remembers what a flush has covered.
#[derive(Default)]
pub struct LossyDevice {
    blocks: u64,
    now: Mutex<Image>,
    durable: Mutex<Image>,
    pending: Mutex<Vec<(u64, Vec<u8>, Cause)>>,
    done: Mutex<BTreeMap<u64, Vec<Completion>>>,
    tickets: AtomicU64,
    completed: AtomicU64,
    flushed: AtomicU64,
    pub fail_reads: AtomicBool,
    pub fail_writes: AtomicU64,
    pub fail_flushes: AtomicBool,
    holds_flushes: AtomicBool,
    /// Requests that have read data.
    pub reads: AtomicU64,
    data_writes: AtomicU64,
    /// Most requests that were submitted and not yet waited for.
    pub most_submitted: AtomicU64,
    /// Run once, in the midst of a read.
    pub when_read: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    tell: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
}

fn eio() -> Error {
    Error::Device { context: "test", errno: libc::EIO }
}

impl LossyDevice {
    /// A device of so many blocks, none of which anybody has written.
    pub fn new(blocks: u64) -> LossyDevice {
        LossyDevice { blocks, ..LossyDevice::default() }
    }

    /// Requests that have written data in place.
    pub fn data_writes(&self) -> u64 {
        self.data_writes.load(SeqCst)
    }

    fn run_one(&self, request: &mut Request) -> Result<()> {
        let blocks = request.block..;
        match request.op {
            Op::Read => {
                if matches!(request.cause, Cause::ReadMiss | Cause::ReadAhead) {
                    self.reads.fetch_add(1, SeqCst);
                }
                let hook = self.when_read.lock().take();
                if let Some(hook) = hook {
                    hook();
                }
                if self.fail_reads.load(SeqCst) {
                    return Err(eio());
                }
                let now = self.now.lock();
                for (block, into) in blocks.zip(request.buf.chunks_exact_mut(BLOCK_SIZE)) {
                    // Blocks that nobody wrote hold what must never be seen.
                    match now.get(&block) {
                        Some(bytes) => into.copy_from_slice(bytes),
                        None => into.fill(0xEE),
                    }
                }
            }
            Op::Write => {
                let failing = self.fail_writes.load(SeqCst);
                if failing > 0 {
                    self.fail_writes.store(failing - 1, SeqCst);
                    return Err(eio());
                }
                for (block, from) in blocks.zip(request.buf.chunks_exact(BLOCK_SIZE)) {
                    self.now.lock().insert(block, from.to_vec());
                    self.pending.lock().push((block, from.to_vec(), request.cause));
                }
                self.completed.fetch_add(1, SeqCst);
                if matches!(request.cause, Cause::DataWriteBack | Cause::Eviction) {
                    self.data_writes.fetch_add(1, SeqCst);
                }
            }
            Op::Discard { .. } => {}
        }
        Ok(())
    }

    /// Whether a flush has covered each write of these blocks; others may be written meanwhile.
    pub fn all_down(&self, blocks: &BTreeSet<u64>) -> bool {
        self.pending.lock().iter().all(|(block, ..)| !blocks.contains(block))
    }

    /// Pages of memory that batches hold which were not waited for.
    pub fn held(&self) -> usize {
        let all = self.done.lock();
        all.values().flatten().map(|done| IoBuf::held(done.buf.len()).div_ceil(BLOCK_SIZE)).sum()
    }

    /// Flushes return before they have covered anything, from now on or no more: power is about to be lost.
    pub fn hold_flushes(&self, holds: bool) {
        self.holds_flushes.store(holds, SeqCst);
    }

    /// Loses power: of what was not flushed, any sectors may have arrived; of the journal's, some
    /// dozens up to the first that has not.
    pub fn crash(&self, rng: &mut impl Rng) {
        let mut durable = self.durable.lock();
        for (block, bytes, cause) in self.pending.lock().drain(..) {
            let arrives = if cause == Cause::Journal { 0.97 } else { 0.5 };
            let home = durable.entry(block).or_insert_with(|| vec![0xEE; BLOCK_SIZE]);
            for (into, from) in home.chunks_exact_mut(512).zip(bytes.chunks_exact(512)) {
                if rng.random_bool(arrives) {
                    into.copy_from_slice(from);
                }
            }
        }
        *self.now.lock() = durable.clone();
        self.flushed.store(self.completed.load(SeqCst), SeqCst);
    }
}

impl BlockDevice for LossyDevice {
    fn blocks(&self) -> u64 {
        self.blocks
    }
    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let ticket = self.tickets.fetch_add(1, SeqCst);
        let done = batch
            .into_iter()
            .map(|mut request| {
                let result = self.run_one(&mut request);
                Completion { buf: request.buf, result }
            })
            .collect();
        let mut all = self.done.lock();
        all.insert(ticket, done);
        self.most_submitted.fetch_max(all.values().map(|done| done.len() as u64).sum(), SeqCst);
        Ticket(ticket)
    }
    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        self.done.lock().remove(&ticket.0).expect("waited for once")
    }
    fn writes_completed(&self) -> u64 {
        self.completed.load(SeqCst)
    }
    fn flush_upto(&self, upto: u64) -> Result<()> {
        if self.flushed.load(SeqCst) >= upto {
            return Ok(());
        }
        if self.holds_flushes.load(SeqCst) {
            return Ok(());
        }
        if self.fail_flushes.load(SeqCst) {
            if let Some(tell) = &*self.tell.lock() {
                tell();
            }
            return Err(eio());
        }
        let completed = self.completed.load(SeqCst);
        let mut durable = self.durable.lock();
        for (block, bytes, _) in self.pending.lock().drain(..) {
            durable.insert(block, bytes);
        }
        self.flushed.fetch_max(completed, SeqCst);
        Ok(())
    }
    fn when_flush_fails(&self, tell: Box<dyn Fn() + Send + Sync>) {
        *self.tell.lock() = Some(tell);
    }
    fn writes_flushed(&self) -> u64 {
        self.flushed.load(SeqCst)
    }
    fn flushes(&self) -> u64 {
        0
    }
    fn counters(&self) -> Vec<CauseCount> {
        Vec::new()
    }
}
