//! The phases of a creation's record, each in a loop of its own.
//!
//! Threads begin each loop together, so that where they share something they meet at it. A record changes what a
//! creation does: a NAT entry, an inode, a dentry with the count of its bucket, and the times of the directory; each
//! thread has pages and a directory of its own.

use super::{cpu_ns, start};
use narufs_engine::alloc::{Alloc, Class};
use narufs_engine::device::MemoryDevice;
use narufs_engine::format::BlockKind;
use narufs_engine::journal::{CreditClass, Durability, Journal};
use narufs_engine::lock::{Access, BucketLocks, InodeLock, StripeSet};
use narufs_engine::pmem::{DurabilityLevel, PersistentMemory};
use narufs_engine::store::{Delta, Encoder, Handle, Log, PageRef, Store, StoreOptions};
use narufs_engine::{FormatOptions, Result, mkfs};
use std::hint::black_box;
use std::sync::{Arc, Barrier};

/// The names of the phases, and what belongs to each.
pub const PHASES: [(&str, &str); 7] = [
    ("lock", "the directory shared, a bucket alone, and giving both back"),
    ("build", "private copies of what is changed, the changes, their encoding"),
    ("reserve", "credits, the add to the tail, a look at the flag of the next commit"),
    ("copy", "slots with their checksums into the ring's memory"),
    ("persist", "write-backs of the slots' lines, and a fence"),
    ("apply", "what differs into the pages under their latches, dirty marks, the end of the handle"),
    ("seal", "the seal word, and a look for those who wait"),
];

/// Slots that are promised to each record.
const SLOTS: u32 = 3;
/// Words of an inode that a creation sets.
const INODE_WORDS: usize = 14;

/// Memory of a ring for so many threads with so many records each at once.
pub fn ring_bytes(threads: usize, batch: usize) -> usize {
    narufs_engine::journal::ring_bytes(ring_slots(threads, batch))
        .expect("a few MiB")
        .next_multiple_of(rustix::param::page_size())
}

fn ring_slots(threads: usize, batch: usize) -> u64 {
    (threads * batch * 2 * SLOTS as usize).next_power_of_two().max(4096) as u64
}

/// The same memory without write-backs and fences.
struct Unflushed(Arc<dyn PersistentMemory>);

impl PersistentMemory for Unflushed {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn write(&self, offset: usize, data: &[u8]) {
        self.0.write(offset, data);
    }
    fn write_u64(&self, offset: usize, value: u64) {
        self.0.write_u64(offset, value);
    }
    fn read(&self, offset: usize, into: &mut [u8]) {
        self.0.read(offset, into);
    }
    fn write_back(&self, _offset: usize, _len: usize) {}
    fn fence(&self) {}
    fn durability(&self) -> DurabilityLevel {
        self.0.durability()
    }
    fn counts(&self) -> (u64, u64) {
        self.0.counts()
    }
}

/// What one thread works on.
struct Own {
    nat: PageRef,
    node: PageRef,
    bucket: PageRef,
    above: PageRef,
    dir: InodeLock<u64>,
    buckets: BucketLocks,
    number: u64,
}

impl Own {
    fn new(store: &Store, alloc: &Alloc, nid: u64) -> Result<Own> {
        let mut h = store.begin(64)?;
        let mut page = |kind| {
            let block = alloc.allocate(&mut h, 1, None, Class::Metadata, None)?.start;
            h.init(block, kind, nid, 1)
        };
        let (nat, node) = (page(BlockKind::Nat)?, page(BlockKind::Node)?);
        let (bucket, above) = (page(BlockKind::Bucket)?, page(BlockKind::Node)?);
        h.commit()?;
        let (dir, buckets) = (InodeLock::new(nid, 0), BucketLocks::new(nid));
        Ok(Own { nat, node, bucket, above, dir, buckets, number: 0 })
    }

    fn lock(&mut self) {
        self.number += 1;
        let image = self.dir.read();
        let bucket = self.buckets.lock(StripeSet::of(self.number), Access::Write);
        black_box((&*image, &bucket));
    }

    /// Changes on a handle; every one differs from what the page has.
    fn edit<'s>(&mut self, store: &'s Store) -> Result<Handle<'s>> {
        self.number += 1;
        let (number, place) = (self.number, self.number as usize);
        let mut h = store.begin(SLOTS)?;
        let fill = |bytes: &mut [u8]| fill(number, bytes);
        fill(h.edit(&self.nat, entry(place)));
        let inode = h.edit(&self.node, inode(place));
        fill(&mut inode[..8 * INODE_WORDS]);
        fill(h.edit(&self.bucket, dentry(place)));
        fill(h.edit(&self.bucket, 72..80));
        let mut times = [0; 16];
        fill(&mut times);
        h.write_if_newer(&self.above, 512, &times);
        Ok(h)
    }

    /// The record of such changes.
    fn encode(&self, payload: &mut Vec<u8>) {
        let mut bytes = [0; 8 * INODE_WORDS];
        fill(self.number, &mut bytes);
        let mut encoder = Encoder::new(payload);
        let place = self.number as usize;
        for (page, range) in [
            (&self.nat, entry(place)),
            (&self.node, inode(place).start..inode(place).start + bytes.len()),
            (&self.bucket, dentry(place)),
            (&self.bucket, 72..80),
            (&self.above, 512..528),
        ] {
            let (block, kind, offset) = (page.block(), page.kind(), range.start);
            encoder.add(&Delta::Write { block, kind, offset, bytes: &bytes[..range.len()] });
        }
    }
}

/// Words that differ from one another, as those of an inode or a dentry do.
fn fill(number: u64, bytes: &mut [u8]) {
    bytes.chunks_mut(8).zip(number..).for_each(|(word, number)| word.copy_from_slice(&number.to_le_bytes()));
}

fn entry(place: usize) -> std::ops::Range<usize> {
    let at = 64 + place % 250 * 16;
    at..at + 16
}

fn inode(place: usize) -> std::ops::Range<usize> {
    let at = place % 16 * 256;
    at..at + 256
}

fn dentry(place: usize) -> std::ops::Range<usize> {
    let at = 128 + place % 80 * 48;
    at..at + 48
}

/// Nanoseconds of processor time of each phase for a record, medians of `rounds`, with so many threads of `batch`
/// records each.
///
/// # Errors
/// Those of an image in memory; the ring must have [`ring_bytes`].
pub fn measure(
    memory: Arc<dyn PersistentMemory>,
    threads: usize,
    batch: usize,
    rounds: usize,
) -> Result<[f64; PHASES.len()]> {
    let device = Arc::new(MemoryDevice::new(16_384));
    let superblock = mkfs::format(&*device, &FormatOptions { sparse: true, ..FormatOptions::default() })?;
    let store = Store::new(device, superblock, Log::default(), &StoreOptions::default());
    let store = Arc::new(store);
    let alloc = Alloc::load(&store)?;
    let mut owns =
        (0..threads).map(|n| Own::new(&store, &alloc, n as u64 + 2)).collect::<Result<Vec<_>>>()?;
    let slots = ring_slots(threads, batch);
    let mut found = [[0.0; PHASES.len()]; 2];
    for (found, memory) in found.iter_mut().zip([Arc::new(Unflushed(Arc::clone(&memory))), memory]) {
        let journal = start(memory, slots, threads)?;
        let mut all = Vec::new();
        // The first round fills caches.
        for round in 0..=rounds {
            let took = one_round(&store, &journal, &mut owns, batch)?;
            journal.commit_upto(journal.tail(), Durability::Power)?;
            journal.advance_head(journal.committed(DurabilityLevel::Power), round as u64)?;
            if round > 0 {
                all.push(took);
            }
        }
        for (phase, found) in found.iter_mut().enumerate() {
            let mut times: Vec<f64> = all.iter().map(|took| took[phase]).collect();
            times.sort_by(f64::total_cmp);
            *found = times[times.len() / 2];
        }
    }
    let [unflushed, mut flushed] = found;
    let (copy, persist) = (3, 4);
    // One loop has both; without write-backs it is the copy alone.
    flushed[copy] = unflushed[copy];
    flushed[persist] = (flushed[persist] - unflushed[persist]).max(0.0);
    Ok(flushed)
}

/// Each thread's records through all phases; nanoseconds a record, means over the threads. Copy and persist are one
/// loop, and both have its time.
fn one_round(
    store: &Store,
    journal: &Journal,
    owns: &mut [Own],
    batch: usize,
) -> Result<[f64; PHASES.len()]> {
    let (threads, barrier) = (owns.len(), Barrier::new(owns.len()));
    let times: Vec<Result<[f64; PHASES.len()]>> = std::thread::scope(|scope| {
        let workers: Vec<_> = owns
            .iter_mut()
            .map(|own| scope.spawn(|| phases_of(store, journal, own, batch, &barrier)))
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let mut mean = [0.0; PHASES.len()];
    for time in times {
        let time = time?;
        mean.iter_mut().zip(time).for_each(|(mean, ns)| *mean += ns / (threads * batch) as f64);
    }
    Ok(mean)
}

/// Nanoseconds of all records of one thread.
fn phases_of(
    store: &Store,
    journal: &Journal,
    own: &mut Own,
    batch: usize,
    barrier: &Barrier,
) -> Result<[f64; PHASES.len()]> {
    fn timed<T>(barrier: &Barrier, f: impl FnOnce() -> T) -> (f64, T) {
        barrier.wait();
        let began = cpu_ns();
        let result = f();
        ((cpu_ns() - began) as f64, result)
    }
    let mut payload = Vec::with_capacity(1024);
    let (lock, ()) = timed(barrier, || (0..batch).for_each(|_| own.lock()));
    let (built, given_up) = timed(barrier, || (0..batch).try_for_each(|_| own.edit(store).map(drop)));
    let (encoded, ()) = timed(barrier, || {
        (0..batch).for_each(|_| {
            payload.clear();
            own.encode(&mut payload);
            black_box(&payload);
        });
    });
    let (committed, done) =
        timed(barrier, || (0..batch).try_for_each(|_| own.edit(store)?.commit().map(drop)));
    let slots = Journal::slots_for(payload.len());
    let mut reserved = Vec::with_capacity(batch);
    let (reserve, granted) = timed(barrier, || {
        (0..batch).try_for_each(|_| {
            let credits = journal.credits(SLOTS, CreditClass::Ordinary)?;
            reserved.push(journal.reserve(credits, slots)?);
            Ok(())
        })
    });
    let mut persisted = Vec::with_capacity(batch);
    let (persist, ()) =
        timed(barrier, || reserved.drain(..).for_each(|record| persisted.push(record.persist(&payload))));
    let applied: Vec<_> = persisted.drain(..).map(|record| record.apply(|_, _| ())).collect();
    let (seal, ()) = timed(barrier, || {
        applied.into_iter().for_each(|record| {
            black_box(record.seal());
        });
    });
    // Only now: nobody is left at a barrier.
    given_up.and(done).and(granted)?;
    Ok([lock, built + encoded, reserve, persist, persist, (committed - built).max(0.0), seal])
}
