//! Threads of a machine, step by step: own work, visits to lines that threads share, critical sections, requests of a
//! device. Events are handled in the order of their times; whoever comes first to a line, a section or a channel has it
//! first.
//!
//! Each thread has a core of its own and does the same steps again and again. A line is one core's at a time; it comes
//! to the next for what a transfer costs. A section that is handed to one that waits for it takes the handover more,
//! which is where sleepers and their wake-ups are. What it leaves out: memory bandwidth, more threads than cores,
//! priorities.

use super::machine::{Costs, Machine};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// A line, or a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The same for all threads.
    Shared(usize),
    /// Each thread's own.
    Own,
}

/// A step of a thread. Times are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Work on lines that are the core's own.
    Work(f64),
    /// The same for a time that is drawn, exponentially, around a mean.
    Drawn(f64),
    /// A visit to a line, to write it.
    Line(Place),
    /// The beginning of a critical section.
    Acquire(Place),
    /// The end of it.
    Release(Place),
    /// A request of the device, for as long as it takes.
    Request(f64),
}

/// What threads meet.
#[derive(Debug, Clone)]
pub struct Scene {
    /// The machine.
    pub machine: Machine,
    /// What lines cost on their way.
    pub costs: Costs,
    /// What a section takes more on its way to one that waits.
    pub handover: f64,
    /// Requests that the device carries out at a time.
    pub channels: usize,
}

/// A thread comes to a step at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Event {
    at: f64,
    /// So that what happens at one time happens in a known order.
    number: u64,
    thread: usize,
    step: usize,
}

impl Eq for Event {}

impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        self.at.total_cmp(&other.at).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug, Clone, Default)]
struct Line {
    owner: Option<usize>,
    free: f64,
}

#[derive(Debug, Clone, Default)]
struct Section {
    line: Line,
    is_held: bool,
    waiting: VecDeque<(usize, usize)>,
}

struct World<'a> {
    scene: &'a Scene,
    queue: BinaryHeap<Reverse<Event>>,
    events: u64,
    /// Shared ones first, then one for each thread.
    lines: Vec<Line>,
    sections: Vec<Section>,
    channels: Vec<f64>,
    random: ChaCha8Rng,
}

/// Shared lines, and shared sections, that a program may name.
pub const SHARED: usize = 16;

fn index(place: Place, thread: usize) -> usize {
    match place {
        Place::Shared(number) => number % SHARED,
        Place::Own => SHARED + thread,
    }
}

impl World<'_> {
    fn push(&mut self, at: f64, thread: usize, step: usize) {
        self.events += 1;
        self.queue.push(Reverse(Event { at, number: self.events, thread, step }));
    }

    /// What it costs a thread to have a line.
    fn transfer(&self, owner: Option<usize>, thread: usize) -> f64 {
        let costs = self.scene.costs;
        match owner {
            Some(owner) if owner != thread => costs.between(self.scene.machine, owner, thread),
            _ => costs.own,
        }
    }

    fn step(&mut self, event: Event, step: Step) {
        let Event { at, thread, step: next, .. } = event;
        let next = next + 1;
        match step {
            Step::Work(time) => self.push(at + time, thread, next),
            Step::Drawn(mean) => {
                let drawn = -mean * (1.0 - self.random.random::<f64>()).ln();
                self.push(at + drawn, thread, next);
            }
            Step::Line(place) => {
                let index = index(place, thread);
                let cost = self.transfer(self.lines[index].owner, thread);
                let line = &mut self.lines[index];
                line.free = line.free.max(at) + cost;
                line.owner = Some(thread);
                let free = line.free;
                self.push(free, thread, next);
            }
            Step::Acquire(place) => {
                let index = index(place, thread);
                if self.sections[index].is_held {
                    self.sections[index].waiting.push_back((thread, next));
                } else {
                    self.enter(index, at, 0.0, thread, next);
                }
            }
            Step::Release(place) => {
                let index = index(place, thread);
                self.sections[index].is_held = false;
                if let Some((waiter, after)) = self.sections[index].waiting.pop_front() {
                    self.enter(index, at, self.scene.handover, waiter, after);
                }
                self.push(at, thread, next);
            }
            Step::Request(time) => {
                let free = self.channels.iter_mut().min_by(|a, b| a.total_cmp(b));
                let done = free.map_or(at + time, |free| {
                    *free = free.max(at) + time;
                    *free
                });
                self.push(done, thread, next);
            }
        }
    }

    fn enter(&mut self, index: usize, at: f64, handover: f64, thread: usize, next: usize) {
        let cost = self.transfer(self.sections[index].line.owner, thread);
        let section = &mut self.sections[index];
        section.is_held = true;
        section.line.owner = Some(thread);
        self.push(at + handover + cost, thread, next);
    }
}

/// How many times around their steps `threads` threads are a second, from a tenth of `rounds` on, of `rounds` in all
/// (of all threads together).
pub fn rate(scene: &Scene, program: &[Step], threads: usize, rounds: u64) -> f64 {
    let mut world = World {
        scene,
        queue: BinaryHeap::new(),
        events: 0,
        lines: vec![Line::default(); SHARED + threads],
        sections: vec![Section::default(); SHARED + threads],
        channels: vec![0.0; scene.channels.max(1)],
        random: ChaCha8Rng::seed_from_u64(1),
    };
    if program.is_empty() || threads == 0 {
        return 0.0;
    }
    (0..threads).for_each(|thread| world.push(0.0, thread, 0));
    let (mut done, mut from) = (0_u64, (0.0, 0));
    while let Some(Reverse(event)) = world.queue.pop() {
        if event.step < program.len() {
            world.step(event, program[event.step]);
            continue;
        }
        done += 1;
        if done == rounds / 10 {
            from = (event.at, done);
        }
        if done == rounds {
            return (done - from.1) as f64 / (event.at - from.0).max(f64::MIN_POSITIVE) * 1e9;
        }
        world.push(event.at, event.thread, 0);
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Costs = Costs { own: 0.0, within: 0.0, across: 0.0 };

    fn scene(cores: usize, costs: Costs) -> Scene {
        Scene { machine: Machine { cores, sockets: 1 }, costs, handover: 0.0, channels: 4 }
    }

    fn near(found: f64, wanted: f64, part: f64) {
        assert!((found / wanted - 1.0).abs() < part, "{found}, not {wanted}");
    }

    /// Amdahl: of a part that goes one after the other comes the limit, and nothing else.
    #[test]
    fn a_serial_part_limits_as_amdahl_says() {
        let section = Place::Shared(0);
        let program = [Step::Work(900.0), Step::Acquire(section), Step::Work(100.0), Step::Release(section)];
        let of = |threads| rate(&scene(threads, FREE), &program, threads, 20_000);
        near(of(1), 1e6, 1e-3);
        near(of(4), 4e6, 1e-2);
        // A tenth is serial: ten times as much at the most, on any number of cores.
        near(of(200) / of(1), 10.0, 1e-2);
        let own = [Step::Acquire(Place::Own), Step::Work(1000.0), Step::Release(Place::Own)];
        near(rate(&scene(100, FREE), &own, 100, 20_000), 100e6, 1e-2);
    }

    /// The machine repairman (M/M/1 with as many customers as threads): the chance that the section is idle is
    /// 1 / sum over k of N!/(N-k)! (S/W)^k.
    #[test]
    fn a_section_with_drawn_times_is_as_busy_as_theory_says() {
        let (work, time) = (1000.0, 250.0);
        let section = Place::Shared(0);
        let program = [Step::Drawn(work), Step::Acquire(section), Step::Drawn(time), Step::Release(section)];
        for threads in [1_usize, 2, 4, 8, 16] {
            let mut term = 1.0;
            let mut sum = 1.0;
            for k in 0..threads {
                term *= (threads - k) as f64 * time / work;
                sum += term;
            }
            let wanted = (1.0 - 1.0 / sum) / time * 1e9;
            near(rate(&scene(threads, FREE), &program, threads, 200_000), wanted, 0.02);
        }
    }

    #[test]
    fn a_device_has_its_channels_and_no_more() {
        let program = [Step::Request(1000.0)];
        for (threads, wanted) in [(1, 1e6), (4, 4e6), (64, 4e6)] {
            near(rate(&scene(threads, FREE), &program, threads, 10_000), wanted, 1e-2);
        }
        // Who holds a section over a request has one under way, whatever the device has.
        let section = Place::Shared(1);
        let held = [Step::Acquire(section), Step::Request(1000.0), Step::Release(section)];
        near(rate(&scene(64, FREE), &held, 64, 10_000), 1e6, 1e-2);
    }

    #[test]
    fn a_line_goes_from_core_to_core_one_transfer_at_a_time() {
        let costs = Costs { own: 1.0, within: 50.0, across: 150.0 };
        let program = [Step::Work(10.0), Step::Line(Place::Shared(0))];
        near(rate(&scene(1, costs), &program, 1, 10_000), 1e9 / 11.0, 1e-2);
        near(rate(&scene(32, costs), &program, 32, 50_000), 1e9 / 50.0, 1e-2);
        // Two sockets, one thread on each: every transfer goes across.
        let two = Scene { machine: Machine { cores: 2, sockets: 2 }, ..scene(2, costs) };
        near(rate(&two, &program, 2, 10_000), 1e9 / 150.0, 0.08);
    }

    #[test]
    fn a_handover_is_paid_where_somebody_waits() {
        let section = Place::Shared(0);
        let program = [Step::Acquire(section), Step::Work(100.0), Step::Release(section)];
        let slow = Scene { handover: 900.0, ..scene(8, FREE) };
        near(rate(&slow, &program, 1, 10_000), 10e6, 1e-2);
        near(rate(&slow, &program, 8, 10_000), 1e6, 1e-2);
    }
}
