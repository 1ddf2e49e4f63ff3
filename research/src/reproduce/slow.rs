//! A device in front of another whose requests take a stated time more: what threads wait for is the device then, and
//! not the cores, whatever device the machine has.
//!
//! A device has channels; a request has one of them to itself for as long as its kind takes, and waits until one is
//! free. A flush takes its time beside them. Until it is turned on nothing takes longer, so that files can be made.
//! Waits are sleeps: times below a tenth of a millisecond come out longer than stated.
//!
//! What it leaves to others: bytes, order and counters, which are those of the device below.

use narufs_engine::Result;
use narufs_engine::device::{BlockDevice, Cause, CauseCount, Completion, IoBuf, Op, Request, Ticket};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What requests take more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// A read.
    pub read: Duration,
    /// A write.
    pub write: Duration,
    /// A flush.
    pub flush: Duration,
    /// Requests that are carried out at a time.
    pub channels: usize,
}

/// As much as a flash drive whose cache does not survive a loss of power, and as many requests at a time.
pub const DRIVE: Latency = Latency {
    read: Duration::from_micros(100),
    write: Duration::from_micros(200),
    flush: Duration::from_millis(1),
    channels: 16,
};

/// The device.
pub struct Slow {
    below: Arc<dyn BlockDevice>,
    latency: Latency,
    // Relaxed: it is turned while nothing is under way.
    is_on: AtomicBool,
    /// When each channel is free.
    channels: Mutex<Vec<Instant>>,
    /// When batches are done, by their tickets.
    due: Mutex<HashMap<u64, Instant>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each is whole between any two statements that hold it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sleep_until(due: Instant) {
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
}

impl Slow {
    /// Over another device, turned off.
    pub fn over(below: Arc<dyn BlockDevice>, latency: Latency) -> Slow {
        let channels = Mutex::new(vec![Instant::now(); latency.channels.max(1)]);
        Slow { below, latency, is_on: AtomicBool::new(false), channels, due: Mutex::default() }
    }

    /// Turns it on or off.
    pub fn turn(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// When requests of these kinds, begun now, are done.
    fn due(&self, ops: impl Iterator<Item = Op>) -> Instant {
        let now = Instant::now();
        if !self.is_on.load(Ordering::Relaxed) {
            return now;
        }
        let mut channels = lock(&self.channels);
        let mut last = now;
        for op in ops {
            let takes = match op {
                Op::Read => self.latency.read,
                Op::Write => self.latency.write,
                Op::Discard { .. } => continue,
            };
            if let Some(free) = channels.iter_mut().min() {
                *free = (*free).max(now) + takes;
                last = last.max(*free);
            }
        }
        last
    }
}

impl BlockDevice for Slow {
    fn blocks(&self) -> u64 {
        self.below.blocks()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let due = self.due(batch.iter().map(|request| request.op));
        let ticket = self.below.submit(batch);
        lock(&self.due).insert(ticket.0, due);
        ticket
    }

    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        let due = lock(&self.due).remove(&ticket.0);
        let done = self.below.wait(ticket);
        due.into_iter().for_each(sleep_until);
        done
    }

    fn writes_completed(&self) -> u64 {
        self.below.writes_completed()
    }

    fn flush_upto(&self, upto: u64) -> Result<()> {
        let takes_time = self.is_on.load(Ordering::Relaxed) && self.below.writes_flushed() < upto;
        let due = Instant::now() + self.latency.flush;
        let done = self.below.flush_upto(upto);
        if takes_time {
            sleep_until(due);
        }
        done
    }

    fn writes_flushed(&self) -> u64 {
        self.below.writes_flushed()
    }

    fn flushes(&self) -> u64 {
        self.below.flushes()
    }

    fn counters(&self) -> Vec<CauseCount> {
        self.below.counters()
    }

    fn read_into(&self, block: u64, into: &mut [u8], cause: Cause) -> Result<()> {
        let due = self.due(std::iter::once(Op::Read));
        let done = self.below.read_into(block, into, cause);
        sleep_until(due);
        done
    }

    fn write_durably(&self, block: u64, buf: IoBuf, cause: Cause) -> Result<()> {
        let mut due = self.due(std::iter::once(Op::Write));
        if self.is_on.load(Ordering::Relaxed) {
            due += self.latency.flush;
        }
        let done = self.below.write_durably(block, buf, cause);
        sleep_until(due);
        done
    }

    fn submitters(&self) -> usize {
        self.below.submitters()
    }

    fn grow(&self, blocks: u64, sparse: bool) -> Result<()> {
        self.below.grow(blocks, sparse)
    }

    fn room(&self) -> Option<u64> {
        self.below.room()
    }

    fn ungrow(&self, blocks: u64) {
        self.below.ungrow(blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narufs_engine::device::{BLOCK_SIZE, MemoryDevice};

    const LATENCY: Latency = Latency {
        read: Duration::from_millis(3),
        write: Duration::from_millis(5),
        flush: Duration::from_millis(7),
        channels: 2,
    };

    #[test]
    fn requests_have_a_channel_each_and_wait_for_one() {
        let slow = Slow::over(Arc::new(MemoryDevice::new(16)), LATENCY);
        let before = Instant::now();
        assert!(slow.due([Op::Write; 9].into_iter()) <= Instant::now(), "it is turned off");
        slow.turn(true);
        let due = slow.due([Op::Read, Op::Read].into_iter());
        assert!(due >= before + LATENCY.read && due <= Instant::now() + LATENCY.read, "side by side");
        // Both channels are taken: two rounds of writes come after.
        let later = slow.due([Op::Write; 4].into_iter());
        assert!(later >= due + 2 * LATENCY.write, "one after the other");
        assert!(later <= Instant::now() + LATENCY.read + 2 * LATENCY.write);
    }

    #[test]
    fn bytes_are_those_of_the_device_below() {
        let slow = Slow::over(Arc::new(MemoryDevice::new(16)), LATENCY);
        slow.turn(true);
        let before = Instant::now();
        slow.run(vec![Request::write(3, IoBuf::from_slice(&[7; BLOCK_SIZE]), Cause::Journal)])
            .expect("memory");
        assert!(before.elapsed() >= LATENCY.write);
        let mut read = vec![0; BLOCK_SIZE];
        slow.read_into(3, &mut read, Cause::ReadMiss).expect("memory");
        assert!(read.iter().all(|byte| *byte == 7));
        let before = Instant::now();
        slow.flush().expect("memory");
        assert!(before.elapsed() >= LATENCY.flush);
        assert!(slow.counters().iter().any(|count| count.cause == Cause::Journal && count.writes == 1));
    }
}
