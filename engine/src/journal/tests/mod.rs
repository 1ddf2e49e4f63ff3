//! Tests of the journal, and the media they run on.

mod memory;

#[cfg(not(any(loom, shuttle)))]
mod front;
#[cfg(not(any(loom, shuttle)))]
mod lossy;
#[cfg(not(any(loom, shuttle)))]
mod mapped_scan;
#[cfg(any(loom, shuttle))]
mod models;
#[cfg(not(any(loom, shuttle)))]
mod ssd;

use super::*;
use memory::TestMemory;

fn options(slots: u64, start: Position) -> Options {
    Options {
        image_uuid: [1; 16],
        ring_uuid: [2; 16],
        slots,
        epoch: 5,
        round: 0,
        start,
        lanes: 2,
        need_checkpoint: Box::new(|| ()),
        clock: Clock::default(),
    }
}

pub(super) fn mapped(slots: u64) -> (Arc<TestMemory>, Journal) {
    let memory = Arc::new(TestMemory::new(slots));
    let journal = Journal::start(Media::Mapped(memory.clone()), options(slots, 0)).expect("starts");
    (memory, journal)
}

fn log(journal: &Journal, payload: &[u8]) -> Position {
    let credits = journal.credits(Journal::slots_for(payload.len()), CreditClass::Ordinary).expect("room");
    journal.log(credits, payload, |_, _| ()).expect("logged")
}

/// A checkpoint that moves the head when the journal asks.
struct Asked {
    queue: WaitQueue,
    due: AtomicBool,
}

impl Asked {
    fn with(options: Options) -> (Arc<Asked>, Options) {
        let asked = Arc::new(Asked { queue: WaitQueue::new(), due: AtomicBool::new(false) });
        let told = asked.clone();
        let need_checkpoint = Box::new(move || {
            told.due.store(true, Ordering::SeqCst);
            told.queue.wake_all();
        });
        (asked, Options { need_checkpoint, ..options })
    }

    fn checkpoint(&self, journal: &Journal, over: impl Fn() -> bool) {
        let mut round = 0;
        while !over() {
            self.queue.wait_until(|| self.due.load(Ordering::SeqCst) || over());
            // An exchange: what was done before somebody asked is seen by the round.
            self.due.swap(false, Ordering::SeqCst);
            round += 1;
            checkpoint(journal, round);
        }
    }
}

fn checkpoint(journal: &Journal, round: u64) {
    journal.commit_upto(journal.tail(), Durability::Power).expect("committed");
    journal.advance_head(journal.committed(DurabilityLevel::Power), round).expect("moved");
}

/// A record that says which thread made it, and that is whole.
#[cfg(not(any(loom, shuttle)))]
fn payload(thread: u64, number: u64) -> Vec<u8> {
    let fill = (number * 53 + thread * 7) % 700;
    let mut bytes = [thread.to_le_bytes(), number.to_le_bytes()].concat();
    bytes.resize(16 + fill as usize, number as u8 ^ thread as u8);
    bytes
}

/// The thread that made a record; it must be whole.
#[cfg(not(any(loom, shuttle)))]
fn parse(bytes: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let (thread, number) = (word(0), word(8));
    assert_eq!(bytes, payload(thread, number), "a torn record counts");
    (thread, number)
}

/// All records of a scan without damage.
#[cfg(not(any(loom, shuttle)))]
fn records(scan: &Scan) -> Vec<(Position, Vec<u8>)> {
    assert_eq!(scan.damage, None);
    scan.records().collect::<Result<_>>().expect("readable")
}
