//! The log, the live contents behind it, and the hooks of a test.

use std::collections::BTreeSet;
use std::thread::ThreadId;

use super::crash::CrashPoint;
use super::device::SimDevice;
use super::frontier::{Frontier, PmemFrontier};
use super::image::{Image, PAGE, Page};
use super::pmem::SimPmem;
use crate::device::Cause;
use crate::pmem::{DurabilityLevel, HeapMemory, LINE, PersistentMemory};
use crate::sync::{Arc, Mutex, MutexGuard};

/// A persistent memory to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PmemSpec {
    /// Bytes, a multiple of [`LINE`].
    pub len: usize,
    /// What it survives: staging survives the process alone, persistent memory the loss of power.
    pub durability: DurabilityLevel,
}

/// An event of the log.
#[derive(Debug, Clone)]
pub enum Event {
    /// The device was given a write or a discard.
    WriteIssued {
        /// Its number.
        write: u64,
        /// First block.
        block: u64,
        /// The blocks.
        contents: Vec<Arc<[u8; 4096]>>,
    },
    /// A write's completion was fetched.
    WriteEnded {
        /// Its number.
        write: u64,
        /// False when it failed; its blocks hold anything until they are written again.
        ok: bool,
        /// Whether it is on media by that, as no other is without a flush.
        durable: bool,
    },
    /// A flush began; it covers the writes that had ended.
    FlushBegan,
    /// The flush is over.
    FlushEnded {
        /// Whether it covered anything.
        ok: bool,
    },
    /// A persistent memory of zeros was added.
    PmemAdded {
        /// Its properties.
        spec: PmemSpec,
    },
    /// A store inside one cache line.
    Store {
        /// Number of the memory.
        pmem: usize,
        /// Offset of the first byte.
        offset: usize,
        /// The bytes.
        data: Vec<u8>,
        /// The thread that stored.
        thread: ThreadId,
    },
    /// A write-back of cache lines.
    WriteBack {
        /// Number of the memory.
        pmem: usize,
        /// First line.
        first_line: usize,
        /// Number of lines.
        lines: usize,
        /// The thread that asked.
        thread: ThreadId,
    },
    /// A fence.
    Fence {
        /// Whose earlier write-backs it orders.
        thread: ThreadId,
    },
}

/// A request to the device that a test may fail; `nth` counts requests of its kind from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A read.
    Read {
        /// Which read.
        nth: u64,
        /// First block.
        block: u64,
        /// Blocks.
        count: u64,
        /// What for.
        cause: Cause,
    },
    /// A write.
    Write {
        /// Which write.
        nth: u64,
        /// First block.
        block: u64,
        /// Blocks.
        count: u64,
        /// What for.
        cause: Cause,
    },
    /// A flush.
    Flush {
        /// Which flush.
        nth: u64,
    },
}

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// What it is told.
    pub errno: i32,
    /// Blocks, from its first one on, that were read or written before; of a flush it says nothing.
    pub done: u64,
}

type FaultHook = Box<dyn FnMut(Fault) -> Option<Failure> + Send>;
type EventHook = Arc<dyn Fn(usize, &Event) + Send + Sync>;

pub(super) struct World {
    pub log: Vec<Event>,
    pub live: Image,
    pub writes: u64,
    /// Blocks with a write in flight.
    pub in_flight: Vec<u64>,
    pub overlaps: u64,
    fault: Option<FaultHook>,
    fault_counts: [u64; 3],
    hook: Option<EventHook>,
}

impl World {
    /// Asks the test whether a request fails, and how.
    pub fn fault(&mut self, make: impl FnOnce(u64) -> Fault, kind: usize) -> Option<Failure> {
        let nth = self.fault_counts[kind];
        self.fault_counts[kind] += 1;
        self.fault.as_mut().and_then(|hook| hook(make(nth)))
    }
}

pub(super) struct Shared {
    world: Mutex<World>,
}

impl Shared {
    /// The world, for as long as the guard is held.
    pub fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock()
    }

    /// Logs an event whose effect `change` makes, then lets the test look at it with no lock held.
    pub fn record<R>(&self, event: Event, change: impl FnOnce(&mut World) -> R) -> R {
        let mut world = self.lock();
        let result = change(&mut world);
        let number = world.log.len();
        let hook = world.hook.clone().map(|hook| (hook, event.clone()));
        world.log.push(event);
        drop(world);
        if let Some((hook, event)) = hook {
            hook(number, &event);
        }
        result
    }
}

/// A device and persistent memories with one log.
pub struct SimMedia {
    shared: Arc<Shared>,
    initial: Frontier,
    device: Arc<SimDevice>,
    pmems: Mutex<Vec<Option<Arc<SimPmem>>>>,
}

impl SimMedia {
    /// New media of zeros.
    pub fn new(blocks: u64, pmems: &[PmemSpec]) -> Self {
        let pmems = pmems.iter().map(|spec| Some(PmemFrontier::new(*spec))).collect();
        Self::from_frontier(Frontier { blocks, pmems, ..Frontier::default() })
    }

    /// Media that hold what a crash left: everything pending in `initial` is there to be read.
    pub(super) fn from_frontier(initial: Frontier) -> Self {
        let mut live = initial.device.clone();
        for pending in &initial.pending {
            live.set(pending.block, pending.contents.clone());
        }
        let world = World {
            log: Vec::new(),
            live,
            writes: 0,
            in_flight: Vec::new(),
            overlaps: 0,
            fault: None,
            fault_counts: [0; 3],
            hook: None,
        };
        let shared = Arc::new(Shared { world: Mutex::new(world) });
        let device = Arc::new(SimDevice::new(shared.clone(), initial.blocks));
        let pmems = initial.pmems.iter().enumerate().map(|(number, pmem)| {
            let pmem = pmem.as_ref()?;
            let live = live_memory(pmem);
            Some(Arc::new(SimPmem::new(shared.clone(), number, live)))
        });
        let pmems = Mutex::new(pmems.collect());
        Self { shared, initial, device, pmems }
    }

    /// The device.
    pub fn device(&self) -> Arc<SimDevice> {
        self.device.clone()
    }

    /// A persistent memory by number; none when a loss of power took it.
    pub fn pmem(&self, number: usize) -> Option<Arc<SimPmem>> {
        self.pmems.lock()[number].clone()
    }

    /// Number of persistent memories so far, lost ones among them.
    pub fn pmems(&self) -> usize {
        self.pmems.lock().len()
    }

    /// Adds a persistent memory of zeros, as a mount makes a new staging file; returns its number.
    pub fn add_pmem(&self, spec: PmemSpec) -> usize {
        let mut pmems = self.pmems.lock();
        let number = pmems.len();
        self.shared.record(Event::PmemAdded { spec }, |_| ());
        let live = HeapMemory::with_durability(spec.len, spec.durability);
        pmems.push(Some(Arc::new(SimPmem::new(self.shared.clone(), number, live))));
        number
    }

    /// Events so far. What a test notes with it (an operation has returned) holds from that crash point on.
    pub fn events(&self) -> usize {
        self.shared.lock().log.len()
    }

    /// A copy of an event.
    pub fn event(&self, number: usize) -> Event {
        self.shared.lock().log[number].clone()
    }

    /// Writes issued while another write to one of their blocks was in flight.
    pub fn overlapping_writes(&self) -> u64 {
        self.shared.lock().overlaps
    }

    /// Sets what decides whether a request fails: it returns the errno, or none to let it pass. Nothing is done of one
    /// that fails. It runs under the media's lock.
    pub fn set_fault(&self, hook: Option<Box<dyn FnMut(Fault) -> Option<i32> + Send>>) {
        self.set_failure(hook.map(|mut hook| -> FaultHook {
            Box::new(move |fault| hook(fault).map(|errno| Failure { errno, done: 0 }))
        }));
    }

    /// The same where a first part of what fails is done; in the place of another fault.
    pub fn set_failure(&self, hook: Option<Box<dyn FnMut(Fault) -> Option<Failure> + Send>>) {
        self.shared.lock().fault = hook;
    }

    /// Makes these blocks unreadable until they are written anew, or for ever; in the place of another fault.
    pub fn lose(&self, blocks: &[u64], for_ever: bool) {
        let mut lost: BTreeSet<u64> = blocks.iter().copied().collect();
        self.set_fault(Some(Box::new(move |fault| match fault {
            Fault::Read { block, count, .. } => {
                lost.range(block..block + count).next().is_some().then_some(libc::EIO)
            }
            Fault::Write { block, count, .. } if !for_ever => {
                lost.retain(|at| !(block..block + count).contains(at));
                None
            }
            Fault::Write { .. } | Fault::Flush { .. } => None,
        })));
    }

    /// Sets what is called after each event, by the thread that made it and with no lock of the media held: a
    /// hook that blocks stops that thread right there.
    pub fn set_hook(&self, hook: Option<Arc<dyn Fn(usize, &Event) + Send + Sync>>) {
        self.shared.lock().hook = hook;
    }

    /// The crash point after the first `events` events.
    pub fn crash_point(&self, events: usize) -> CrashPoint {
        let mut points = self.crash_points();
        points.skip_to(events);
        points.next().expect("the log has that many events")
    }

    /// The crash points of the log as it is now: before its first event, then after each.
    pub fn crash_points(&self) -> CrashPoints {
        CrashPoints { log: self.shared.lock().log.clone(), next: 0, frontier: self.initial.clone() }
    }
}

/// Walks the log; see [`SimMedia::crash_points`].
pub struct CrashPoints {
    log: Vec<Event>,
    next: usize,
    frontier: Frontier,
}

impl CrashPoints {
    /// Goes on to the point after the first `events` events without stopping at those between.
    pub fn skip_to(&mut self, events: usize) {
        while self.next < events && self.next < self.log.len() {
            self.frontier.apply(&self.log[self.next]);
            self.next += 1;
        }
    }
}

impl Iterator for CrashPoints {
    type Item = CrashPoint;

    fn next(&mut self) -> Option<CrashPoint> {
        if self.next > self.log.len() {
            return None;
        }
        let storing = match self.next.checked_sub(1).map(|last| &self.log[last]) {
            Some(Event::Store { pmem, offset, .. }) => Some((*pmem, offset / LINE)),
            _ => None,
        };
        let point = CrashPoint { events: self.next, frontier: self.frontier.clone(), storing };
        if let Some(event) = self.log.get(self.next) {
            self.frontier.apply(event);
        }
        self.next += 1;
        Some(point)
    }
}

/// What a process reads from a persistent memory: everything stored.
fn live_memory(pmem: &PmemFrontier) -> HeapMemory {
    let live = HeapMemory::with_durability(pmem.spec.len, pmem.spec.durability);
    for page in 0..pmem.spec.len.div_ceil(PAGE) {
        if let Some(contents) = pmem.persisted.get(page as u64) {
            let len = (pmem.spec.len - page * PAGE).min(PAGE);
            live.write(page * PAGE, &contents[..len]);
        }
    }
    for (line, history) in &pmem.lines {
        if let Some(last) = history.states.last() {
            live.write(line * LINE, last);
        }
    }
    live
}

/// The blocks of a buffer.
pub(super) fn pages(bytes: &[u8]) -> Vec<Page> {
    let page = |chunk: &[u8]| Arc::new(chunk.try_into().expect("requests are whole blocks"));
    bytes.chunks(PAGE).map(page).collect()
}
