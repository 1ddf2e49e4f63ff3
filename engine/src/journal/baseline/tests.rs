//! The baselines over memory: what every journal must do, and what a scan finds of them.

use std::sync::atomic::AtomicU8;

use super::*;
use crate::clock::Clock;
use crate::device::{BLOCK_SIZE, BlockDevice, MemoryDevice};
use crate::journal::{Scan, ring_bytes, scan_device, scan_mapped};
use crate::pmem::PersistentMemory;
use crate::sim::{PmemSpec, SimMedia};
use crate::sync::Arc;

const SLOTS: u64 = 4096;
const CHOICES: [JournalBaseline; 3] = [JournalBaseline::Jbd2, JournalBaseline::Fine, JournalBaseline::Paper];

fn options() -> Options {
    Options {
        image_uuid: [1; 16],
        ring_uuid: [2; 16],
        slots: SLOTS,
        epoch: 5,
        round: 0,
        start: 32,
        lanes: 2,
        need_checkpoint: Box::new(|| ()),
        clock: Clock::default(),
    }
}

fn memory() -> Arc<dyn PersistentMemory> {
    let spec = PmemSpec { len: ring_bytes(SLOTS).expect("small"), durability: DurabilityLevel::Power };
    SimMedia::new(1, &[spec]).pmem(0).expect("just made")
}

/// A journal on each kind of ring, and a scan of what survives a loss of power.
struct Bench {
    journal: MountJournal,
    memory: Arc<dyn PersistentMemory>,
    device: Option<Arc<dyn BlockDevice>>,
}

impl Bench {
    fn new(choice: JournalBaseline, in_image: bool) -> Bench {
        let memory = memory();
        let (device, media) = if in_image {
            let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(SLOTS / 16 + 8));
            let media = Media::Ssd { staging: memory.clone(), device: device.clone(), start: 3 };
            (Some(device), media)
        } else {
            (None, Media::Mapped(memory.clone()))
        };
        let data = device.clone().unwrap_or_else(|| Arc::new(MemoryDevice::new(8)));
        let journal = MountJournal::start(choice, media, options(), data).expect("starts");
        Bench { journal, memory, device }
    }

    fn scan(&self) -> Scan {
        let scan = match &self.device {
            Some(device) => scan_device(Arc::clone(device), 3, SLOTS / 16 + 2),
            None => scan_mapped(Arc::clone(&self.memory)),
        };
        scan.expect("a header")
    }
}

fn all() -> impl Iterator<Item = (JournalBaseline, bool)> {
    CHOICES.into_iter().flat_map(|choice| [(choice, false), (choice, true)])
}

#[test]
fn every_baseline_keeps_the_promises_of_a_journal() {
    for (choice, in_image) in all() {
        crate::conformance::journal::check(|| Bench::new(choice, in_image).journal);
    }
}

/// A block of which every byte is its fill.
struct Filled(u64, AtomicU8);

impl Buffer for Filled {
    fn block(&self) -> u64 {
        self.0
    }

    fn copy(&self, into: &mut [u8; BLOCK_SIZE]) {
        into.fill(self.1.load(std::sync::atomic::Ordering::SeqCst));
    }

    fn log_block(&self, frozen: Option<&[u8; BLOCK_SIZE]>, into: &mut Vec<u8>) {
        self.log_units(u16::MAX, frozen, into);
        into.truncate(into.len() - 15 * (touched::UNIT_BYTES - UNIT));
    }

    fn log_units(&self, units: u16, frozen: Option<&[u8; BLOCK_SIZE]>, into: &mut Vec<u8>) {
        let fill = frozen.map_or_else(|| self.1.load(std::sync::atomic::Ordering::SeqCst), |bytes| bytes[0]);
        into.resize(into.len() + units.count_ones() as usize * touched::UNIT_BYTES, fill);
    }
}

struct Touching(Arc<Filled>, u16);

impl Touches for Touching {
    fn blocks(&self) -> Vec<Touch> {
        let buffer: Arc<dyn Buffer> = self.0.clone();
        vec![Touch { buffer, units: self.1, made: Vec::new() }]
    }

    fn logical(&self) -> Logical {
        Logical::default()
    }
}

/// Changes a block to what the fill says.
fn change(bench: &Bench, block: &Arc<Filled>, units: u16, fill: u8) -> Position {
    let credits = bench.journal.credits(4, CreditClass::Ordinary).expect("room");
    let touches = Touching(Arc::clone(block), units);
    let record = MountRecord { payload: &[fill; 40], touches: Some(&touches) };
    let apply = |_, _| block.1.store(fill, std::sync::atomic::Ordering::SeqCst);
    bench.journal.log(credits, record, apply).expect("logged")
}

/// A transaction logs a block once, as the last of its operations has left it.
#[test]
fn a_transaction_logs_a_block_once() {
    for (choice, bytes) in [(JournalBaseline::Jbd2, 4112), (JournalBaseline::Fine, 3 * 272)] {
        for in_image in [false, true] {
            let bench = Bench::new(choice, in_image);
            let block = Arc::new(Filled(9, AtomicU8::new(0)));
            for fill in 1..=20 {
                change(&bench, &block, 1 << (fill % 3), fill);
            }
            let end = change(&bench, &block, 1, 21);
            assert_eq!(bench.scan().records().count(), 0, "it runs");
            bench.journal.commit_upto(end, Durability::Power).expect("committed");
            let scan = bench.scan();
            assert_eq!((scan.damage.clone(), scan.end), (None, bench.journal.tail()), "{choice:?}");
            let records: Vec<_> = scan.records().collect::<Result<_>>().expect("readable");
            assert_eq!(records, [(32, vec![21; bytes])], "{choice:?}");
            let stats = bench.journal.stats();
            assert_eq!((stats.records, stats.commits), (21, 1));
        }
    }
}

/// Rounds of the ring, with several threads that change the same blocks and wait.
#[test]
fn many_laps_with_many_threads() {
    for (choice, in_image) in all() {
        let bench = Bench::new(choice, in_image);
        let blocks: Vec<_> = (0..5).map(|n| Arc::new(Filled(n, AtomicU8::new(0)))).collect();
        let (bench, blocks) = (&bench, &blocks);
        let over = &std::sync::atomic::AtomicU32::new(3);
        std::thread::scope(|scope| {
            for thread in 0..3u8 {
                scope.spawn(move || {
                    for n in 0..300usize {
                        let end = change(bench, &blocks[n % 5], 1 << (n % 16), thread);
                        if n % 3 == 0 {
                            bench.journal.commit_upto(end, Durability::Power).expect("committed");
                        }
                    }
                    over.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                });
            }
            let mut round = 0;
            while over.load(std::sync::atomic::Ordering::SeqCst) > 0 {
                round += 1;
                let tail = bench.journal.tail();
                bench.journal.commit_upto(tail, Durability::Power).expect("committed");
                let to = bench.journal.commit_beyond(bench.journal.head());
                bench.journal.advance_head(to, round).expect("it is committed");
                std::thread::yield_now();
            }
        });
        let tail = bench.journal.tail();
        bench.journal.commit_upto(tail, Durability::Power).expect("committed");
        let scan = bench.scan();
        let end = bench.journal.tail();
        assert_eq!((scan.damage.clone(), scan.end), (None, end), "{choice:?} {in_image}");
        let stats = bench.journal.stats();
        assert_eq!(stats.records, 900);
        assert!(bench.journal.has_room(4, CreditClass::Ordinary) || stats.tail - stats.head > SLOTS / 2);
    }
}

/// What the engine's own record says is what recovery reads, however many slots are written beside it.
#[test]
fn the_paper_writes_a_slot_for_each_unit() {
    for in_image in [false, true] {
        let bench = Bench::new(JournalBaseline::Paper, in_image);
        let block = Arc::new(Filled(9, AtomicU8::new(7)));
        let first = bench.journal.tail();
        let end = change(&bench, &block, 0b1111, 1);
        assert_eq!(end - first, 4, "its payload fits one");
        bench.journal.commit_upto(end, Durability::Power).expect("committed");
        let records: Vec<_> = bench.scan().records().collect::<Result<_>>().expect("readable");
        assert_eq!(records, [(32, vec![1; 40])]);
    }
}
