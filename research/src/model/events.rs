//! The simulation: threads take their steps in the order of time, and wait for what others have.
//!
//! Events lie in a heap by time, then by the order in which they were made, so that a run depends on its seed alone.
//! Lines and the device's channels are queues that are answered at once: who comes later is served later. Locks and
//! batches keep who waits, and wake them.
//!
//! What it leaves out: everything that cores share and no step names, memory bandwidth above all; and the scheduler, for
//! each thread has a core of its own.

use super::machine::Machine;
use super::script::{Access, Pick, Script, Step};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// How those who wait for a lock get it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Waiting {
    /// They spin: the lock's line comes to the next.
    Spin,
    /// They sleep: the next is woken, which takes so many ns.
    Sleep(f64),
}

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Where threads run.
    pub machine: Machine,
    /// Each thread's script; thread `n` runs on core `n`.
    pub threads: Vec<Script>,
    /// Threads that are counted: the first so many. The others serve them.
    pub counted: usize,
    /// Shared lines.
    pub lines: usize,
    /// Locks, and how one waits for each.
    pub locks: Vec<Waiting>,
    /// Requests that the device serves at a time.
    pub channels: usize,
    /// Batches.
    pub batches: usize,
    /// Operations that are counted, after a tenth of as many that are not.
    pub operations: u64,
    /// Of what is random.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Operations a second.
    pub rate: f64,
    /// Nanoseconds that an operation took: the mean, the median, and what 99 of 100 kept below.
    pub latency: [f64; 3],
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct At {
    time: f64,
    order: u64,
    thread: usize,
}

impl Eq for At {}
impl PartialOrd for At {
    fn partial_cmp(&self, other: &At) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for At {
    fn cmp(&self, other: &At) -> Ordering {
        self.time.total_cmp(&other.time).then(self.order.cmp(&other.order))
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Line {
    free_at: f64,
    writer: Option<usize>,
}

#[derive(Debug)]
struct Lock {
    waiting: Waiting,
    readers: usize,
    writer: bool,
    queue: VecDeque<(usize, Access)>,
    /// The core that had it last.
    last: Option<usize>,
}

#[derive(Debug, Default)]
struct Batch {
    waiting: Vec<usize>,
    taken: Vec<usize>,
    /// Who would serve, and has nobody to.
    idle: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    step: usize,
    began: f64,
    /// Those whom it has taken from a batch.
    serves: usize,
}

struct Simulation {
    setup: Setup,
    now: f64,
    orders: u64,
    heap: BinaryHeap<Reverse<At>>,
    threads: Vec<Progress>,
    lines: Vec<Line>,
    locks: Vec<Lock>,
    batches: Vec<Batch>,
    /// When each channel is free.
    channels: Vec<f64>,
    random: ChaCha8Rng,
    done: u64,
    warm_at: f64,
    latencies: Vec<f64>,
}

/// Runs it.
///
/// None: nobody can go on, or a step names what is not there; a script is wrong.
pub fn run(setup: Setup) -> Option<Outcome> {
    let mut simulation = Simulation {
        now: 0.0,
        orders: 0,
        heap: BinaryHeap::new(),
        threads: vec![Progress::default(); setup.threads.len()],
        lines: vec![Line::default(); setup.lines],
        locks: setup.locks.iter().map(|waiting| Lock::new(*waiting)).collect(),
        batches: (0..setup.batches).map(|_| Batch::default()).collect(),
        channels: vec![0.0; setup.channels],
        random: ChaCha8Rng::seed_from_u64(setup.seed),
        done: 0,
        warm_at: 0.0,
        latencies: Vec::new(),
        setup,
    };
    for thread in 0..simulation.threads.len() {
        simulation.wake(thread, 0.0);
    }
    let (warm, all) = (simulation.setup.operations / 10, simulation.setup.operations);
    while simulation.done < warm + all {
        let Reverse(at) = simulation.heap.pop()?;
        simulation.now = at.time;
        simulation.go_on(at.thread, warm)?;
    }
    Some(simulation.outcome())
}

impl Lock {
    fn new(waiting: Waiting) -> Lock {
        Lock { waiting, readers: 0, writer: false, queue: VecDeque::new(), last: None }
    }

    fn admits(&self, access: Access) -> bool {
        !self.writer && (access == Access::Read || self.readers == 0)
    }

    fn enter(&mut self, core: usize, access: Access) {
        match access {
            Access::Read => self.readers += 1,
            Access::Write => self.writer = true,
        }
        self.last = Some(core);
    }
}

impl Simulation {
    fn wake(&mut self, thread: usize, time: f64) {
        self.orders += 1;
        self.heap.push(Reverse(At { time, order: self.orders, thread }));
    }

    fn picked(&mut self, pick: Pick) -> usize {
        pick.first + if pick.of > 1 { self.random.random_range(0..pick.of) } else { 0 }
    }

    /// Takes a thread's next step, and has it wake when that is done.
    fn go_on(&mut self, thread: usize, warm: u64) -> Option<()> {
        let script = self.setup.threads.get(thread)?;
        if self.threads[thread].step == script.len() {
            self.finish(thread, warm);
        }
        let step = *self.setup.threads[thread].get(self.threads[thread].step)?;
        self.threads[thread].step += 1;
        let now = self.now;
        match step {
            Step::Work(length) => self.wake(thread, now + length),
            Step::Varied(mean) => {
                let uniform = self.random.random::<f64>();
                self.wake(thread, now - mean * (1.0 - uniform).ln());
            }
            Step::Line(pick) => {
                let line = self.picked(pick);
                let line = self.lines.get_mut(line)?;
                let cost = line.writer.map_or(0.0, |writer| self.setup.machine.cost(writer, thread));
                line.free_at = line.free_at.max(now) + cost;
                line.writer = Some(thread);
                let free_at = line.free_at;
                self.wake(thread, free_at);
            }
            Step::Lock(lock, access) => {
                let lock = self.locks.get_mut(lock)?;
                if lock.queue.is_empty() && lock.admits(access) {
                    let cost = lock.last.map_or(0.0, |last| self.setup.machine.cost(last, thread));
                    lock.enter(thread, access);
                    self.wake(thread, now + cost);
                } else {
                    lock.queue.push_back((thread, access));
                }
            }
            Step::Unlock(lock) => {
                let held = self.locks.get_mut(lock)?;
                if held.writer {
                    held.writer = false
                } else {
                    held.readers = held.readers.checked_sub(1)?
                }
                self.hand_on(lock);
                self.wake(thread, now);
            }
            Step::Request(length) => {
                let channel = self.channels.iter_mut().min_by(|a, b| a.total_cmp(b))?;
                *channel = channel.max(now) + length;
                let done = *channel;
                self.wake(thread, done);
            }
            Step::Await(batch) => {
                let batch = self.batches.get_mut(batch)?;
                batch.waiting.push(thread);
                if let Some(server) = batch.idle.take() {
                    // It takes its step once more.
                    self.wake(server, now);
                }
            }
            Step::Gather(batch) => {
                let batch = self.batches.get_mut(batch)?;
                if batch.waiting.is_empty() {
                    batch.idle = Some(thread);
                    self.threads[thread].step -= 1;
                } else {
                    batch.taken = std::mem::take(&mut batch.waiting);
                    self.threads[thread].serves = batch.taken.len();
                    self.wake(thread, now);
                }
            }
            Step::WorkForEach(length) => {
                let all = length * self.threads[thread].serves as f64;
                self.wake(thread, now + all);
            }
            Step::Release(batch) => {
                for served in std::mem::take(&mut self.batches.get_mut(batch)?.taken) {
                    self.wake(served, now);
                }
                self.wake(thread, now);
            }
        }
        Some(())
    }

    /// Lets in who waits for a lock and may enter, in order.
    fn hand_on(&mut self, lock: usize) {
        let machine = self.setup.machine;
        let mut woken = Vec::new();
        let lock = &mut self.locks[lock];
        while let Some(&(thread, access)) = lock.queue.front() {
            if !lock.admits(access) {
                break;
            }
            let cost = match lock.waiting {
                Waiting::Spin => lock.last.map_or(0.0, |last| machine.cost(last, thread)),
                Waiting::Sleep(wakeup) => wakeup,
            };
            lock.queue.pop_front();
            lock.enter(thread, access);
            woken.push((thread, self.now + cost));
        }
        for (thread, time) in woken {
            self.wake(thread, time);
        }
    }

    fn finish(&mut self, thread: usize, warm: u64) {
        let began = std::mem::replace(&mut self.threads[thread].began, self.now);
        self.threads[thread].step = 0;
        if thread >= self.setup.counted {
            return;
        }
        self.done += 1;
        match self.done.cmp(&warm) {
            Ordering::Less => {}
            Ordering::Equal => self.warm_at = self.now,
            Ordering::Greater => self.latencies.push(self.now - began),
        }
    }

    fn outcome(mut self) -> Outcome {
        self.latencies.sort_by(f64::total_cmp);
        let counted = self.latencies.len().max(1);
        let at = |share: f64| {
            let place = (share * self.latencies.len() as f64) as usize;
            self.latencies.get(place).copied().unwrap_or_default()
        };
        let mean = self.latencies.iter().sum::<f64>() / counted as f64;
        let rate = self.latencies.len() as f64 / (self.now - self.warm_at) * 1e9;
        Outcome { rate, latency: [mean, at(0.5), at(0.99)] }
    }
}

#[cfg(test)]
mod tests;
