//! The load generator: threads that start together, call until the time is over or the work is done, and say
//! how long each call took.
//!
//! One reading of the clock ends an operation and begins the next, so that the generator's own work is part of
//! the latency and nothing is left out. Each thread has its own histogram. What this leaves to others: what an
//! operation is, counters.

use crate::pin;
use crate::stop::Stop;
use crate::target::Session;
use crate::workload::{Step, Worker};
use crate::{Error, Result};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

/// The longest operation that is told from longer ones: ten minutes.
const LONGEST_NS: u64 = 600_000_000_000;
/// How often progress is shown and the user heard.
const TICK: Duration = Duration::from_millis(100);

/// A thread of the run with its view of the target.
pub struct Member<S, W> {
    /// The view.
    pub session: S,
    /// What it does.
    pub worker: W,
}

/// When a phase ends.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// After this time; `None`: when the work is done.
    pub time: Option<Duration>,
    /// After so many operations of each thread.
    pub ops: Option<u64>,
    /// Whether threads stay on cores of their own.
    pinned: bool,
}

impl Limits {
    /// Limits of a phase.
    pub fn new(time: Option<Duration>, ops: Option<u64>, pinned: bool) -> Limits {
        Limits { time, ops, pinned }
    }
}

/// What a phase gave.
#[derive(Debug, Clone)]
pub struct Measured {
    /// From the first thread's start to the last one's end.
    pub time: Duration,
    /// Operations.
    pub ops: u64,
    /// Bytes of files read and written.
    pub bytes: u64,
    /// Nanoseconds of each operation.
    pub latency: Histogram<u64>,
    /// Whether every thread ended because there was nothing left to do.
    pub done: bool,
}

struct Share {
    begin: Instant,
    end: Instant,
    ops: u64,
    bytes: u64,
    latency: Histogram<u64>,
    done: bool,
}

/// An empty histogram: three digits, from a nanosecond on.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("these bounds are good ones")
}

/// Calls `f` for each member on a thread of its own; the first error ends it all.
pub fn each<S: Send, W: Send>(
    members: &mut [Member<S, W>],
    f: impl Fn(usize, &mut Member<S, W>) -> Result<()> + Sync,
) -> Result<()> {
    std::thread::scope(|scope| {
        let f = &f;
        let begun = members.iter_mut().enumerate().map(|(index, m)| scope.spawn(move || f(index, m)));
        let begun: Vec<_> = begun.collect();
        // Every one is joined, whatever the others say.
        let ended: Vec<Result<()>> =
            begun.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(died()))).collect();
        ended.into_iter().collect()
    })
}

/// What is said of a thread that cannot be joined.
pub(crate) fn died() -> Error {
    Error::Refused("a thread of the load generator has panicked".into())
}

fn work<S: Session, W: Worker<S>>(
    Member { session, worker }: &mut Member<S, W>,
    limits: &Limits,
    halt: &AtomicBool,
) -> Result<Share> {
    let begin = Instant::now();
    let deadline = limits.time.map(|time| begin + time);
    let most = limits.ops.unwrap_or(u64::MAX);
    let mut share = Share { begin, end: begin, ops: 0, bytes: 0, latency: histogram(), done: false };
    let mut last = begin;
    // Relaxed: the flag alone counts, nothing is handed over with it.
    while share.ops < most && deadline.is_none_or(|at| last < at) && !halt.load(Ordering::Relaxed) {
        match worker.step(session)? {
            Step::Done(bytes) => share.bytes += bytes,
            Step::End => {
                share.done = true;
                break;
            }
        }
        let now = Instant::now();
        share.latency.saturating_record((now - last).as_nanos() as u64);
        share.ops += 1;
        last = now;
    }
    worker.finish(session)?;
    share.end = Instant::now();
    Ok(share)
}

/// Runs one phase. `started` is called when all threads are ready, just before they begin; `tick` now and then
/// with the time that has passed.
///
/// # Errors
/// The first failure of a thread, or [`Error::Interrupted`].
pub fn drive<S: Session + Send, W: Worker<S>>(
    members: &mut [Member<S, W>],
    limits: &Limits,
    stop: &Stop,
    started: impl FnOnce() -> Result<()>,
    mut tick: impl FnMut(Duration),
) -> Result<Measured> {
    let cores = if limits.pinned { pin::cores()? } else { Vec::new() };
    let (count, halt) = (members.len(), AtomicBool::new(false));
    let ready = Barrier::new(count + 1);
    let go = Barrier::new(count + 1);
    let (send, results) = mpsc::channel();
    let mut shares = Vec::with_capacity(count);
    let mut failure = None;
    std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(count);
        for (thread, member) in members.iter_mut().enumerate() {
            let (send, cores, ready, go, halt) = (send.clone(), &cores, &ready, &go, &halt);
            threads.push(scope.spawn(move || {
                let pinned = if limits.pinned { pin::pin(thread, cores) } else { Ok(()) };
                ready.wait();
                go.wait();
                let result = pinned.and_then(|()| work(member, limits, halt));
                // Who waits for it lives longer than this thread.
                let _ = send.send(result);
            }));
        }
        drop(send);
        ready.wait();
        if let Err(e) = started() {
            failure = Some(e);
            halt.store(true, Ordering::Relaxed);
        }
        let begin = Instant::now();
        go.wait();
        loop {
            match results.recv_timeout(TICK) {
                Ok(Ok(share)) => shares.push(share),
                Ok(Err(e)) => {
                    // Relaxed: see `work`.
                    halt.store(true, Ordering::Relaxed);
                    failure.get_or_insert(e);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => tick(begin.elapsed()),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            if stop.is_set() {
                halt.store(true, Ordering::Relaxed);
            }
        }
        for thread in threads {
            if thread.join().is_err() {
                failure.get_or_insert_with(died);
            }
        }
    });
    stop.check()?;
    match failure {
        Some(e) => Err(e),
        None => Ok(merged(shares)),
    }
}

fn merged(shares: Vec<Share>) -> Measured {
    let first = shares.iter().map(|s| s.begin).min();
    let last = shares.iter().map(|s| s.end).max();
    let time = first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first);
    let mut all = Measured { time, ops: 0, bytes: 0, latency: histogram(), done: true };
    for share in shares {
        all.ops += share.ops;
        all.bytes += share.bytes;
        all.done &= share.done;
        all.latency += &share.latency;
    }
    all
}
