//! The one word and a ring for each lane, side by side: the same records in the same kind of memory.

use super::lanes::{Clock, Lane, Lanes, LastStamp, Shape};
use super::{cpu_ns, start};
use narufs_bench::pin;
use narufs_engine::journal::{CreditClass, Durability, Journal, ring_bytes};
use narufs_engine::pmem::{DurabilityLevel, MappedMemory, Medium};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Bytes of a record: about a creation's, two slots in both.
const PAYLOAD: [u8; 280] = [7; 280];
const SLOTS: u32 = 2;
/// Stamps between two looks at whether it is enough.
const AT_ONCE: u64 = 64;

/// Nanoseconds of processor time to take a stamp and let commits pass again, with so many threads for so long.
pub fn stamps(threads: usize, time: Duration) -> f64 {
    let shape = Shape { lanes: threads as u16, slots: 2, epoch: 1 };
    let memory = Arc::new(narufs_engine::pmem::HeapMemory::new(shape.bytes()));
    let lanes = Lanes::start(memory, shape, Clock::best()).expect("it fits");
    let (begin, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let work = |number: usize| {
        let mut lane = lanes.claim(number).expect("nobody has it");
        let (mut object, mut taken) = (LastStamp::default(), 0);
        begin.wait();
        let began = cpu_ns();
        loop {
            for _ in 0..AT_ONCE {
                lane = lane.reserve(&mut [&mut object], 1).ok().expect("room").give_back();
            }
            taken += AT_ONCE;
            // Relaxed: it only ends the loop.
            if stop.load(Ordering::Relaxed) {
                return (cpu_ns() - began, taken);
            }
        }
    };
    let found: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        begin.wait();
        std::thread::sleep(time);
        // Relaxed: as above.
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let (took, taken) = found.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    took as f64 / taken as f64
}

/// Both, each in memory of its own that stands for persistent memory.
pub struct Both {
    journal: Journal,
    lanes: Lanes,
    round: u64,
}

/// A figure of each.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// With the word.
    pub word: f64,
    /// With lanes.
    pub lanes: f64,
}

fn medians(all: &mut [Vec<f64>; 2]) -> Pair {
    let [word, lanes] = all.each_mut().map(|times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    Pair { word, lanes }
}

impl Both {
    /// Rings for so many records of each of so many lanes, in files of `dir`.
    ///
    /// # Errors
    /// Those of a file in memory.
    pub fn new(dir: &Path, lanes: usize, records: usize) -> narufs_engine::Result<Both> {
        let page = rustix::param::page_size();
        let map = |name: &str, len: usize| {
            let medium = Medium::Emulated(Default::default());
            MappedMemory::create(&dir.join(name), len.next_multiple_of(page), medium).map(Arc::new)
        };
        let slots = (lanes * records * 2 * SLOTS as usize).next_power_of_two().max(4096) as u64;
        let bytes = ring_bytes(slots).expect("a few MiB");
        let journal = start(map("word", bytes)?, slots, lanes)?;
        let shape = Shape { lanes: lanes as u16, slots: (records * 2 * SLOTS as usize) as u64, epoch: 1 };
        let lanes = Lanes::start(map("lanes", shape.bytes())?, shape, Clock::best()).expect("it fits");
        Ok(Both { journal, lanes, round: 0 })
    }

    fn log_by_word(&self) -> narufs_engine::Result<()> {
        let credits = self.journal.credits(SLOTS, CreditClass::Ordinary)?;
        self.journal.reserve(credits, SLOTS)?.persist(&PAYLOAD).apply(|_, _| ()).seal();
        Ok(())
    }

    fn log_by_lane<'l>(lane: Lane<'l>, object: &mut LastStamp) -> Lane<'l> {
        lane.reserve(&mut [object], SLOTS as u16).ok().expect("room for a round").persist(&PAYLOAD).seal().0
    }

    fn commit_by_lanes(&self) {
        self.lanes.commit_upto(self.lanes.tail()).expect("no record is given up");
    }

    /// Makes room for the next round.
    fn empty(&mut self) -> narufs_engine::Result<()> {
        self.round += 1;
        self.journal.commit_upto(self.journal.tail(), Durability::Power)?;
        self.journal.advance_head(self.journal.committed(DurabilityLevel::Power), self.round)?;
        self.commit_by_lanes();
        self.lanes.advance_heads().expect("the rings are whole");
        Ok(())
    }

    /// Nanoseconds of processor time for a record, from its reservation to its seal, medians of `rounds` of `batch`
    /// records of each of `threads` threads.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn records(&mut self, threads: usize, batch: usize, rounds: usize) -> narufs_engine::Result<Pair> {
        let mut all = [Vec::new(), Vec::new()];
        // The first round fills caches.
        for round in 0..=rounds {
            let barrier = Barrier::new(threads);
            let both = &*self;
            let work = |number: usize| {
                let mut lane = both.lanes.claim(number).expect("nobody has it");
                let mut object = LastStamp::default();
                barrier.wait();
                let began = cpu_ns();
                let done = (0..batch).try_for_each(|_| both.log_by_word());
                let word = cpu_ns() - began;
                barrier.wait();
                let began = cpu_ns();
                for _ in 0..batch {
                    lane = Self::log_by_lane(lane, &mut object);
                }
                done.map(|()| [word, cpu_ns() - began])
            };
            let found: narufs_engine::Result<Vec<_>> = std::thread::scope(|scope| {
                let work = &work;
                let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
                workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
            });
            let found = found?;
            for (kind, all) in all.iter_mut().enumerate().filter(|_| round > 0) {
                let sum: u64 = found.iter().map(|took| took[kind]).sum();
                all.push(sum as f64 / (threads * batch) as f64);
            }
            self.empty()?;
        }
        Ok(medians(&mut all))
    }

    /// Nanoseconds of a commit behind one record of each of so many lanes, medians of `rounds`; the records were
    /// written on the core that commits, or `elsewhere`.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn commits(&mut self, lanes: usize, rounds: usize, elsewhere: bool) -> narufs_engine::Result<Pair> {
        let cores = pin::cores().expect("the kernel tells");
        let on = |core: usize| pin::pin(core, &cores).expect("a core of this process");
        let mut all = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            let both = &*self;
            let write = || -> narufs_engine::Result<()> {
                on(usize::from(elsewhere));
                for number in 0..lanes {
                    both.log_by_word()?;
                    let lane = both.lanes.claim(number).expect("nobody has it");
                    Self::log_by_lane(lane, &mut LastStamp::default());
                }
                Ok(())
            };
            let commit = || -> narufs_engine::Result<[Duration; 2]> {
                on(0);
                let began = Instant::now();
                both.journal.commit_upto(both.journal.tail(), Durability::Power)?;
                let word = began.elapsed();
                let began = Instant::now();
                both.commit_by_lanes();
                Ok([word, began.elapsed()])
            };
            let took = std::thread::scope(|scope| {
                scope.spawn(write).join().expect("no panic")?;
                scope.spawn(commit).join().expect("no panic")
            });
            all.iter_mut().zip(took?).for_each(|(all, took)| all.push(took.as_nanos() as f64));
            self.empty()?;
        }
        Ok(medians(&mut all))
    }
}
