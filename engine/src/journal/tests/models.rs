//! Models of the front, on the production types with tiny rings: under loom every interleaving of few threads
//! (with a bound on preemptions) and every value that a load may see, under shuttle random schedules of more.
//!
//! The memory of the models shows a reader that is not ordered after a writer what was there before, so that
//! a missing ordering shows as a slot that does not verify.
//!
//! # What becomes of the models when one ordering is weakened to Relaxed
//! *A model fails:* the store of a seal; the load of a seal, and the load and the store of the walk's end, in
//! `walk`; the store of `committed` on a mapped ring; its load in `durable`; the exchange that takes the lead.
//!
//! *No model fails,* and why it stays:
//! - `reserve`, `reserve_padded`: what they pass on passes through the exchange of `armed` as well, but for
//!   reservers that stand between the two, or find the flag up. Only more threads than loom has could fill a lap
//!   with such, or see a flag that was taken down as up.
//! - `armed` in `reserve`, `claim`: they keep a commit's add to the tail after that of the record it pays for;
//!   loom runs read-modify-writes of one variable in program order, so it cannot show the reverse.
//! - `committed` and `leading` on an SSD ring: a SeqCst fence of a wake-up stands before each store. The
//!   orderings do not rely on that fence, which is there for another reason.
//! - giving and taking credits, and the moved head: likewise, and the tail passes the same on.
//! - `failed`: it orders the reason, which is in a `OnceLock` that loom does not see into.
//!
//! Not tried: the orderings on a lane's cache alone (`swap`, refill); they are those of giving and taking.

#[cfg(loom)]
mod loom_models;
#[cfg(shuttle)]
mod shuttle_models;

use std::sync::Mutex as RealMutex;

use super::*;
use crate::device::{CauseCount, Completion, Op, Request, Ticket};
use crate::format::SLOT_SIZE;
use crate::sync::thread;

const SLOTS: u64 = 8;

/// Keeps what was written, and looks at it: a slot of an index is whole and never older than the one before.
struct ModelDevice {
    ring: Geometry,
    slots: RealMutex<Vec<u64>>,
    done: RealMutex<Vec<(u64, Vec<Completion>)>>,
}

impl ModelDevice {
    fn new(slots: u64) -> Self {
        ModelDevice {
            ring: Geometry::new(slots, &[1; 16], 5, BLOCK_SLOTS),
            slots: RealMutex::new(vec![0; slots as usize]),
            done: RealMutex::new(Vec::new()),
        }
    }
}

impl BlockDevice for ModelDevice {
    fn blocks(&self) -> u64 {
        self.ring.slots / BLOCK_SLOTS + 2
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let mut done = self.done.lock().expect("test");
        for request in &batch {
            if request.op != Op::Write || request.block < 2 {
                continue;
            }
            let first = ((request.block - 2) * BLOCK_SLOTS) as usize;
            let mut slots = self.slots.lock().expect("test");
            for (n, slot) in request.buf.chunks_exact(SLOT_SIZE).enumerate() {
                let slot: &[u8; SLOT_SIZE] = slot.try_into().expect("a slot");
                let position = u64::from_le_bytes(slot[..8].try_into().expect("8 bytes"));
                assert_eq!(self.ring.index(position), first + n);
                assert!(self.ring.verify(position, slot).is_some(), "a stale slot is streamed");
                assert!(slots[first + n] == 0 || position > slots[first + n], "a slot is streamed again");
                slots[first + n] = position;
            }
        }
        let ticket = done.len() as u64;
        let completions = batch.into_iter().map(|r| Completion { buf: r.buf, result: Ok(()) });
        done.push((ticket, completions.collect()));
        Ticket(ticket)
    }

    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        std::mem::take(&mut self.done.lock().expect("test")[ticket.0 as usize].1)
    }

    fn writes_completed(&self) -> u64 {
        0
    }

    fn flush_upto(&self, _upto: u64) -> Result<()> {
        Ok(())
    }

    fn writes_flushed(&self) -> u64 {
        0
    }

    fn flushes(&self) -> u64 {
        0
    }

    fn counters(&self) -> Vec<CauseCount> {
        Vec::new()
    }
}

fn mapped_model() -> (Arc<TestMemory>, Arc<Journal>) {
    let (memory, journal) = mapped(SLOTS);
    (memory, Arc::new(journal))
}

fn ssd_model() -> (Arc<TestMemory>, Arc<Journal>) {
    let staging = Arc::new(TestMemory::new(SLOTS));
    let media = Media::Ssd { staging: staging.clone(), device: Arc::new(ModelDevice::new(SLOTS)), start: 0 };
    (staging, Arc::new(Journal::start(media, options(SLOTS, 0)).expect("starts")))
}

/// What lies between head and end must verify for any thread that learnt that it is committed.
fn verify(memory: &TestMemory, journal: &Journal, end: Position) {
    for position in journal.head()..end {
        let mut slot = [0; SLOT_SIZE];
        memory.read(journal.offset(position), &mut slot);
        assert!(journal.ring.verify(position, &slot).is_some(), "slot {position} is committed and stale");
    }
}

/// Two threads log, two commit: a commit covers sealed records alone.
fn commits_cover_what_is_sealed((memory, journal): (Arc<TestMemory>, Arc<Journal>)) {
    let other = {
        let (memory, journal) = (memory.clone(), journal.clone());
        thread::spawn(move || {
            let end = log(&journal, b"a");
            journal.commit_upto(end, Durability::Power).expect("committed");
            verify(&memory, &journal, journal.committed(DurabilityLevel::Power));
        })
    };
    let end = log(&journal, b"b");
    journal.commit_upto(end, Durability::Power).expect("committed");
    let committed = journal.committed(DurabilityLevel::Power);
    assert!(committed >= end);
    verify(&memory, &journal, committed);
    other.join().expect("no panic");
}

/// A thread that settles finds its own records in the memory, wherever the others stand, and commits neither overlap
/// nor pass what is not sealed.
fn what_is_settled_is_there((memory, journal): (Arc<TestMemory>, Arc<Journal>), durability: Durability) {
    let settle = move |memory: &TestMemory, journal: &Journal, payload: &[u8]| {
        let end = log(journal, payload);
        journal.settle_upto(end, durability).expect("settled");
        let mut slot = [0; SLOT_SIZE];
        memory.read(journal.offset(end - 1), &mut slot);
        assert!(journal.ring.verify(end - 1, &slot).is_some(), "the record at {} is not there", end - 1);
        verify(memory, journal, journal.committed(DurabilityLevel::Power));
    };
    let other = {
        let (memory, journal) = (memory.clone(), journal.clone());
        thread::spawn(move || settle(&memory, &journal, b"a"))
    };
    settle(&memory, &journal, b"b");
    other.join().expect("no panic");
    journal.commit_upto(journal.tail(), Durability::Power).expect("committed");
    verify(&memory, &journal, journal.committed(DurabilityLevel::Power));
}

/// One thread asks to be called, the other waits: the call is made once, when its records are committed.
fn calls_are_made((memory, journal): (Arc<TestMemory>, Arc<Journal>)) {
    let told = Arc::new(AtomicU64::new(0));
    let other = {
        let (journal, told) = (journal.clone(), told.clone());
        thread::spawn(move || {
            let end = log(&journal, b"a");
            let seen = journal.clone();
            let done = move |outcome: Result<()>| {
                outcome.expect("committed");
                assert!(seen.committed(DurabilityLevel::Power) >= end);
                told.fetch_add(1, Ordering::SeqCst);
            };
            journal.commit_then(end, Durability::Power, Box::new(done));
        })
    };
    let end = log(&journal, b"b");
    journal.commit_upto(end, Durability::Power).expect("committed");
    verify(&memory, &journal, journal.committed(DurabilityLevel::Power));
    other.join().expect("no panic");
    assert_eq!(told.load(Ordering::SeqCst), 1);
}

/// Some wait and some ask to be called: nobody is left behind.
#[cfg(shuttle)]
fn nobody_is_left_behind(journal: Arc<Journal>) {
    let told = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..4)
        .map(|t| {
            let (journal, told) = (journal.clone(), told.clone());
            thread::spawn(move || {
                for n in 0..3 {
                    let end = log(&journal, b"a");
                    if (t + n) % 2 == 0 {
                        journal.commit_upto(end, Durability::Power).expect("committed");
                        told.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                    let told = told.clone();
                    let done = move |outcome: Result<()>| {
                        outcome.expect("committed");
                        told.fetch_add(1, Ordering::SeqCst);
                    };
                    journal.commit_then(end, Durability::Power, Box::new(done));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(told.load(Ordering::SeqCst), 12, "all have been told when all leaders have left");
}

/// A failure reaches those that wait and those that are to be called, whenever it comes.
#[cfg(shuttle)]
fn a_failure_is_told_to_all((_, journal): (Arc<TestMemory>, Arc<Journal>)) {
    let told = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..3)
        .map(|t| {
            let (journal, told) = (journal.clone(), told.clone());
            thread::spawn(move || {
                let credits = journal.credits(1, CreditClass::Ordinary);
                let Ok(end) = credits.and_then(|credits| journal.log(credits, b"a", |_, _| ())) else {
                    told.fetch_add(1, Ordering::SeqCst);
                    return;
                };
                if t == 0 {
                    // Either way.
                    let _ = journal.commit_upto(end, Durability::Power);
                    told.fetch_add(1, Ordering::SeqCst);
                } else {
                    let done = move |_| {
                        told.fetch_add(1, Ordering::SeqCst);
                    };
                    journal.commit_then(end, Durability::Power, Box::new(done));
                }
            })
        })
        .collect();
    journal.fail("a test".into());
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(told.load(Ordering::SeqCst), 3);
}

/// Slots are used again while the other thread's credits are older than the move of the head.
fn slots_are_reused_in_order((memory, journal): (Arc<TestMemory>, Arc<Journal>)) {
    let other = {
        let journal = journal.clone();
        thread::spawn(move || log(&journal, b"a"))
    };
    for round in 0..3 {
        log(&journal, b"b");
        checkpoint(&journal, round);
    }
    other.join().expect("no panic");
    log(&journal, b"c");
    journal.commit_upto(journal.tail(), Durability::Power).expect("committed");
    verify(&memory, &journal, journal.committed(DurabilityLevel::Power));
}

/// One thread's walk over the seals spares another the same walk.
fn walks_are_shared((memory, journal): (Arc<TestMemory>, Arc<Journal>)) {
    let spawn = |work: fn(&Journal)| {
        let journal = journal.clone();
        thread::spawn(move || work(&journal))
    };
    let logs = spawn(|journal| {
        log(journal, b"a");
    });
    let walks = spawn(|journal| {
        journal.committed(DurabilityLevel::Process);
    });
    let end = log(&journal, b"b");
    journal.commit_upto(end, Durability::Power).expect("committed");
    verify(&memory, &journal, journal.committed(DurabilityLevel::Power));
    logs.join().expect("no panic");
    walks.join().expect("no panic");
}

/// Credits that are older than the move of the head which freed the slots.
fn old_credits_find_free_slots((_, journal): (Arc<TestMemory>, Arc<Journal>)) {
    let other = {
        let journal = journal.clone();
        thread::spawn(move || {
            let credits = journal.credits(1, CreditClass::Ordinary).expect("room");
            journal.log(credits, b"a", |_, _| ()).expect("logged");
        })
    };
    for round in 0..4 {
        log(&journal, b"b");
        checkpoint(&journal, round);
    }
    log(&journal, b"c");
    other.join().expect("no panic");
}

/// A thread that starves is woken, whether credits come back to a lane or to the centre.
fn credits_come_back() {
    let pool = Arc::new(Pool::new(SLOTS, 1, 2));
    let turn = |pool: &Pool| {
        if !pool.take_quickly(4, CreditClass::Ordinary) {
            pool.take(4, CreditClass::Ordinary, || false, &|| ());
        }
        pool.give(4);
    };
    let other = {
        let pool = pool.clone();
        thread::spawn(move || turn(&pool))
    };
    turn(&pool);
    other.join().expect("no panic");
    assert!(pool.take_quickly(SLOTS, CreditClass::Reserve), "credits are lost");
}

/// Room that an ordinary taker waits for comes from another's record once that is sealed and checkpointed.
fn a_starving_taker_gets_room_from_a_checkpoint() {
    let memory = Arc::new(TestMemory::new(SLOTS));
    let (asked, options) = Asked::with(options(SLOTS, 0));
    let journal = Arc::new(Journal::start(Media::Mapped(memory), options).expect("starts"));
    let over = Arc::new(AtomicBool::new(false));
    let other = {
        let (journal, over) = (journal.clone(), over.clone());
        thread::spawn(move || asked.checkpoint(&journal, || over.load(Ordering::SeqCst)))
    };
    for _ in 0..4 {
        log(&journal, &[0; 300]);
    }
    over.store(true, Ordering::SeqCst);
    (journal.need_checkpoint)();
    other.join().expect("no panic");
}

/// A failure wakes a thread that waits for what will not come.
fn a_failure_ends_every_wait() {
    let (_, journal) = mapped_model();
    let credits = journal.credits(1, CreditClass::Ordinary).expect("room");
    let stuck = journal.reserve(credits, 1).expect("reserved");
    let other = {
        let journal = journal.clone();
        thread::spawn(move || journal.commit_upto(journal.tail(), Durability::Power).is_err())
    };
    journal.fail("a test".into());
    drop(stuck);
    let _ = other.join().expect("no panic");
}
