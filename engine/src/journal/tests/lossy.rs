//! A device that loses any subset of what was not flushed, sector by sector.

use std::sync::Mutex;

use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::device::{BLOCK_SIZE, BlockDevice, CauseCount, Completion, MemoryDevice, Op, Request, Ticket};
use crate::{Error, Result};

const SECTOR: usize = 512;

#[derive(Default)]
struct State {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// Offsets and sectors since the last flush, in order, with their tickets.
    unflushed: Vec<(usize, [u8; SECTOR], u64)>,
    /// Blocks written, to see whether one was written twice without a flush between.
    twice: bool,
    completed: u64,
    flushed: u64,
    fail_writes: bool,
    ignore_flushes: bool,
    done: Vec<(u64, Vec<Completion>)>,
    tickets: u64,
}

pub(super) struct LossyDevice(Mutex<State>);

impl LossyDevice {
    pub(super) fn new(blocks: usize) -> Self {
        let bytes = vec![0; blocks * BLOCK_SIZE];
        LossyDevice(Mutex::new(State { durable: bytes.clone(), current: bytes, ..State::default() }))
    }

    /// What the device holds after a loss of power now.
    pub(super) fn after_power_loss(&self, seed: u64) -> MemoryDevice {
        let mut random = StdRng::seed_from_u64(seed);
        let state = self.0.lock().expect("test");
        let mut bytes = state.durable.clone();
        for (offset, sector, _) in &state.unflushed {
            if random.random() {
                bytes[*offset..offset + SECTOR].copy_from_slice(sector);
            }
        }
        let device = MemoryDevice::new((bytes.len() / BLOCK_SIZE) as u64);
        let buf = crate::device::IoBuf::from_slice(&bytes);
        device
            .run(vec![Request { op: Op::Write, block: 0, buf, cause: crate::device::Cause::Superblock }])
            .expect("memory");
        device
    }

    /// Changes a byte that was flushed long ago.
    pub(super) fn corrupt(&self, offset: usize) {
        self.0.lock().expect("test").durable[offset] ^= 0x10;
    }

    pub(super) fn fail_writes(&self) {
        self.0.lock().expect("test").fail_writes = true;
    }

    /// From now on nothing becomes durable for certain.
    pub(super) fn ignore_flushes(&self) {
        self.0.lock().expect("test").ignore_flushes = true;
    }

    pub(super) fn wrote_a_block_twice(&self) -> bool {
        self.0.lock().expect("test").twice
    }
}

impl BlockDevice for LossyDevice {
    fn blocks(&self) -> u64 {
        (self.0.lock().expect("test").current.len() / BLOCK_SIZE) as u64
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let mut state = self.0.lock().expect("test");
        let mut done = Vec::new();
        state.tickets += 1;
        let ticket = state.tickets;
        for mut request in batch {
            let offset = request.block as usize * BLOCK_SIZE;
            let range = offset..offset + request.buf.len();
            let mut result = Ok(());
            match request.op {
                Op::Read => request.buf.copy_from_slice(&state.current[range]),
                Op::Write if state.fail_writes => {
                    result = Err(Error::Device { context: "test", errno: libc::EIO });
                }
                Op::Write => {
                    state.current[range].copy_from_slice(&request.buf);
                    for (n, sector) in request.buf.chunks_exact(SECTOR).enumerate() {
                        let at = offset + n * SECTOR;
                        state.twice |= state.unflushed.iter().any(|(o, ..)| *o == at);
                        state.unflushed.push((at, sector.try_into().expect("a sector"), ticket));
                    }
                    state.completed += 1;
                }
                Op::Discard { .. } => {}
            }
            done.push(Completion { buf: request.buf, result });
        }
        state.done.push((ticket, done));
        Ticket(ticket)
    }

    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        let mut state = self.0.lock().expect("test");
        let at = state.done.iter().position(|(t, _)| *t == ticket.0).expect("waited for once");
        state.done.swap_remove(at).1
    }

    fn writes_completed(&self) -> u64 {
        self.0.lock().expect("test").completed
    }

    fn flush_upto(&self, _upto: u64) -> Result<()> {
        let mut state = self.0.lock().expect("test");
        if state.ignore_flushes {
            return Ok(());
        }
        let State { durable, unflushed, done, .. } = &mut *state;
        // A write that nobody has waited for is under way: the flush does not cover it.
        let is_over = |ticket: u64| done.iter().all(|(other, _)| *other != ticket);
        for (offset, sector, _) in unflushed.extract_if(.., |(.., ticket)| is_over(*ticket)) {
            durable[offset..offset + SECTOR].copy_from_slice(&sector);
        }
        state.flushed = state.completed;
        Ok(())
    }

    fn writes_flushed(&self) -> u64 {
        self.0.lock().expect("test").flushed
    }

    fn flushes(&self) -> u64 {
        0
    }

    fn counters(&self) -> Vec<CauseCount> {
        Vec::new()
    }
}
