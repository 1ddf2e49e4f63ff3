//! A ring for each lane, whose records time stamps order: the alternative to the one word that all reservations of
//! `narufs_engine::journal` add to. Built to be compared, in persistent memory alone; experiment 11 has what came out.
//!
//! What this leaves to others: what records mean, which locks guard which objects, when records are home.
//!
//! # Places
//! A lane has a ring of slots. A *position* counts a lane's slots and never wraps; it is the record's sequence number
//! too. Each lane shares one *word* with those who commit, a stamp and whether a record is under way:
//!
//! - `Idle(s)`: no record of this lane at or below `s` is under way, or ever will be.
//! - `Busy(s)`: one record is under way, with stamp `s`; the rest is as in `Idle(s - 1)`.
//!
//! Beside it stands the lane's *end*: below it every slot belongs to a record that is persistent.
//!
//! # Protocol: who may touch what in which state
//! 1. *Claimed.* A lane belongs to one thread at a time ([`Lane`]), which has one record under way at most.
//! 2. *Reserved.* The owner holds the locks of all objects that the record touches, and has found room up to the head.
//!    It changes its word from `Idle(l)` to `Busy(s)` by an exchange that fails if the word was raised meanwhile (9);
//!    `s` is the clock's time, but above `l` and above the last stamp of each object. The objects' last stamps become
//!    `s`, under their locks. Records that do not commute are in order whatever the clocks of cores show; those that
//!    do may have equal stamps, and the lane's number decides.
//! 3. *Given back.* A reservation that was not persisted may be dropped: the word becomes `Idle(s)`.
//! 4. *Persisted.* Slots are written at the lane's next positions by the owner alone, written back and fenced.
//! 5. *Sealed.* The owner publishes the end, then the word `Idle(s)`. Only then are locks given up and does the
//!    operation return. From here on nobody writes the slots before the head has passed them.
//! 6. *Failed.* Who drops a record between 4 and 5 leaves its lane busy for ever; all is failed then.
//! 7. *Commit.* One thread at a time, under a mutex, chooses a stamp `S`, no lower than what it was asked for, and
//!    visits each lane. `Busy(s)` with `s <= S`: it waits. `Busy(s)` or `Idle(s)` with `s >= S` otherwise: nothing of
//!    this lane is to come at or below `S`. `Idle(l)` with `l < S`: (9). Then, and only then, it reads the end.
//! 8. It writes `S` and all ends to one of two places in turn, persists them, and publishes `S` as committed. An fsync
//!    whose stamp is committed has nothing to do.
//! 9. *Raised.* A visitor may change `Idle(l)` to `Idle(S)`, so a lane that rests holds nobody up, and its next record
//!    has a stamp above `S`. That is the only change which anyone but the owner makes.
//! 10. *Head.* Under the mutex of commits each lane's head moves past records at or below the committed stamp whose
//!     changes are home. It is durable before the owner learns of the room.
//! 11. *Recovery* takes the newest commit that verifies, of each lane every record from the head to its end, refuses if
//!     one is missing, leaves out what is above `S` (a lane that was visited late has such), and sorts by stamp and
//!     lane.
//!
//! Why what is recovered is a prefix: a record at or below `S` either was sealed before its lane's visit, so the end
//! that the visit read covers it, or it was reserved after the visit, and then its stamp is above `S`: the word, which
//! both change by exchange, has one order. So all records at or below `S` are there, none above is taken, and what
//! stands before a record in an object's order has a lower stamp. Clocks have no part in this; they keep the stamps of
//! lanes close to each other, so that what a commit is asked for does not lie in another lane's far future.

mod clock;
mod commit;
mod lane;
#[cfg(all(test, loom))]
mod loom_models;
mod planted;
mod recovery;
mod slot;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;

pub use clock::Clock;
pub use lane::{Lane, LastStamp, Persisted, Reserved};
pub use recovery::{Record, Recovered, recover};
pub use slot::{Shape, Stamp};

use narufs_engine::pmem::PersistentMemory;
use narufs_engine::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use narufs_engine::sync::{Arc, CachePadded, Mutex, WaitQueue};
use planted::Planted;
use table::Table;

/// Why something was not done.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The lane's ring has no room before its head moves.
    #[error("the lane's ring is full")]
    Full,
    /// A record was given up between its persistence and its seal.
    #[error("the lanes failed")]
    Failed,
    /// What was asked for is not possible.
    #[error("{0}")]
    Refused(String),
    /// The media do not hold what was once durable there.
    #[error("damaged: {0}")]
    Damaged(String),
}

/// What a lane shares with those who commit.
struct Shared {
    word: AtomicU64,
    end: AtomicU64,
    /// The head, durable; moved under the mutex of commits.
    head: AtomicU64,
    claimed: AtomicBool,
}

/// Records in a ring for each lane.
pub struct Lanes {
    memory: Arc<dyn PersistentMemory>,
    shape: Shape,
    clock: Clock,
    lanes: Box<[CachePadded<Shared>]>,
    /// Every record at or below is durable, and none will come.
    committed: CachePadded<AtomicU64>,
    /// How often a commit, and a head, were written.
    numbers: Mutex<[u64; 2]>,
    /// Woken by seals.
    seals: WaitQueue,
    failed: AtomicBool,
    planted: Planted,
}

/// The word `Idle(stamp)`.
fn idle(stamp: Stamp) -> u64 {
    stamp << 1
}

/// The word `Busy(stamp)`.
fn busy(stamp: Stamp) -> u64 {
    stamp << 1 | 1
}

/// The stamp of a word, and whether it is busy.
fn parse(word: u64) -> (Stamp, bool) {
    (word >> 1, word & 1 == 1)
}

impl Lanes {
    /// Begins with empty rings: writes both tables durably. `shape` has an epoch that the memory has never seen.
    ///
    /// # Errors
    /// [`Error::Refused`] when the memory is too small.
    pub fn start(memory: Arc<dyn PersistentMemory>, shape: Shape, clock: Clock) -> Result<Lanes, Error> {
        Lanes::start_with(memory, shape, clock, Planted::default())
    }

    fn start_with(
        memory: Arc<dyn PersistentMemory>,
        shape: Shape,
        clock: Clock,
        planted: Planted,
    ) -> Result<Lanes, Error> {
        let lanes = usize::from(shape.lanes);
        if lanes == 0 || shape.slots == 0 || memory.len() < shape.bytes() {
            return Err(Error::Refused(format!(
                "{lanes} lanes of {} slots do not fit {} bytes",
                shape.slots,
                memory.len()
            )));
        }
        for place in [Table::HEADS, Table::COMMITS] {
            Table { number: 0, stamp: 0, positions: vec![0; lanes] }.write(&*memory, &shape, place);
        }
        memory.fence();
        let shared = || Shared {
            word: AtomicU64::new(idle(0)),
            end: AtomicU64::new(0),
            head: AtomicU64::new(0),
            claimed: AtomicBool::new(false),
        };
        Ok(Lanes {
            memory,
            shape,
            clock,
            lanes: (0..lanes).map(|_| CachePadded::new(shared())).collect(),
            committed: CachePadded::new(AtomicU64::new(0)),
            numbers: Mutex::new([0; 2]),
            seals: WaitQueue::new(),
            failed: AtomicBool::new(false),
            planted,
        })
    }

    /// Every record at or below is durable.
    pub fn committed(&self) -> Stamp {
        // Acquire: pairs with the Release in `finish`.
        self.committed.load(Ordering::Acquire)
    }

    /// A stamp that no operation exceeds which returned before this call.
    pub fn tail(&self) -> Stamp {
        // Relaxed: whatever told the caller of an operation orders its word before this load.
        let stamps = self.lanes.iter().map(|lane| parse(lane.word.load(Ordering::Relaxed)).0);
        stamps.fold(0, Stamp::max)
    }

    fn check(&self) -> Result<(), Error> {
        // Acquire: pairs with the Release in `fail`; nothing else rests on it.
        if self.failed.load(Ordering::Acquire) { Err(Error::Failed) } else { Ok(()) }
    }

    fn fail(&self) {
        // Release: pairs with the Acquire in `check`.
        self.failed.store(true, Ordering::Release);
        self.seals.wake_all();
    }
}
