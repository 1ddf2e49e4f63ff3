//! The locks that programs ask for: flock(2), and record locks by fcntl(2).
//!
//! The two kinds live apart and never meet, as on a local Linux file system. A request that must wait holds
//! no thread: it is kept with a completion, which is called exactly once, by whichever thread grants,
//! cancels or refuses it, with no lock held. What is granted to one who is gone goes on to the next in a loop:
//! all who waited may be gone, and there may be as many of them as there are processes.
//!
//! What this leaves to others: whose requests these are ([`Owner`]), and calling
//! [`release_owner`](AdvisoryLocks::release_owner) when the owner closes.
//!
//! Invariants: within a table no two owners hold overlapping ranges unless both read; no request waits
//! that is not blocked by something held; the wait graph has an edge for every waiting record lock and no cycle.
//! A file that has no lock takes no memory; `room` counts what is held. Mutexes: a file's shard, then the graph; nothing below them.
//!
//! Deadlock is looked for among record locks only, and an owner that is an open file description is not told
//! apart from a process: the kernel's message does not say which it is.

mod graph;
mod room;
mod table;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use super::Access;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::{Error, Result};
use graph::WaitGraph;
use room::Room;
use table::{Table, Waiting};

const SHARDS: usize = 16;

/// Which of the two kinds of locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdvisoryKind {
    /// By flock(2): whole files; asking anew converts, and a conversion that must wait gives up what it had.
    Flock,
    /// By fcntl(2): ranges; asking anew replaces; waiting in a circle is refused with EDEADLK.
    Record,
}

/// Who has locks: equal owners are never in each other's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// Of a program that uses the library, by a number that it hands out.
    Library(u64),
    /// Who comes through a mount, by a number that the kernel hands out: one for each process's open files, or for each
    /// open file description.
    Mount(u64),
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRequest {
    /// Who asks.
    pub owner: Owner,
    /// The process to name to others that are blocked.
    pub pid: u32,
    /// Bytes, half open; `u64::MAX` as end is infinity. All of them for [`AdvisoryKind::Flock`].
    pub range: Range<u64>,
    /// Shared or exclusive.
    pub access: Access,
}

/// A held lock that is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Its bytes.
    pub range: Range<u64>,
    /// Shared or exclusive.
    pub access: Access,
    /// The process that asked for it.
    pub pid: u32,
}

/// Called once with the outcome of a request that may wait. False: who asked is gone, and what was granted is to be
/// given back.
pub type Completion = Box<dyn FnOnce(Result<()>) -> bool + Send>;

/// Names a request that may be waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WaitId {
    nid: u64,
    id: u64,
}

#[derive(Default)]
struct FileTables {
    flock: Table,
    record: Table,
}

type Shard = Mutex<HashMap<u64, FileTables>>;

/// The advisory locks of a file system.
#[derive(Default)]
pub struct AdvisoryLocks {
    shards: [Shard; SHARDS],
    graph: Mutex<WaitGraph>,
    next_id: AtomicU64,
    room: Room,
}

/// Who is told what once the mutexes are released.
#[derive(Default)]
struct Outcomes(VecDeque<(Waiting, Result<()>)>);

impl Outcomes {
    fn add(&mut self, waiting: Waiting, result: Result<()>) {
        self.0.push_back((waiting, result));
    }
}

impl FileTables {
    fn of(&mut self, kind: AdvisoryKind) -> &mut Table {
        match kind {
            AdvisoryKind::Flock => &mut self.flock,
            AdvisoryKind::Record => &mut self.record,
        }
    }
}

impl AdvisoryLocks {
    /// No locks at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// The lock that would block a request, if any: F_GETLK.
    pub fn test(&self, nid: u64, kind: AdvisoryKind, request: &LockRequest) -> Option<Conflict> {
        self.shard(nid).lock().get_mut(&nid)?.of(kind).conflict(request)
    }

    /// Whether an owner has a lock on a file.
    pub fn holds(&self, nid: u64, kind: AdvisoryKind, owner: Owner) -> bool {
        self.shard(nid).lock().get_mut(&nid).is_some_and(|tables| tables.of(kind).holds(owner))
    }

    /// Takes a lock at once.
    ///
    /// # Errors
    /// EAGAIN when another owner's lock is in the way (what the owner has, it keeps); ENOLCK when its side has 65,536
    /// already; EINVAL for an empty range.
    pub fn try_lock(&self, nid: u64, kind: AdvisoryKind, request: &LockRequest) -> Result<()> {
        self.with_table(nid, kind, |table, _| {
            check(request)?;
            if table.conflict(request).is_some() {
                return Err(Error::Errno(libc::EAGAIN));
            }
            table.grant(request, &self.room)
        })
    }

    /// Takes a lock now or later. The completion is told of success, of the errors of
    /// [`try_lock`](Self::try_lock) other than EAGAIN, of EDEADLK, or of EINTR after
    /// [`cancel`](Self::cancel); it may be called before this returns.
    pub fn lock(&self, nid: u64, kind: AdvisoryKind, request: LockRequest, complete: Completion) -> WaitId {
        // Relaxed: the ids need only differ.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.with_table(nid, kind, |table, outcomes| {
            let waiting = Waiting { id, request, complete };
            if let Err(refusal) = check(&waiting.request) {
                outcomes.add(waiting, Err(refusal));
                return;
            }
            let owner = waiting.request.owner;
            let blocked = table.conflict(&waiting.request).is_some();
            if blocked && kind == AdvisoryKind::Flock && table.holds(owner) {
                // Two sharers that both want to be exclusive would wait for each other.
                table.remove_all(owner, &self.room);
            }
            // `with_table` grants it, or finds that it would wait in a circle.
            table.waiting.push_back(waiting);
        });
        WaitId { nid, id }
    }

    /// Gives a range back.
    ///
    /// # Errors
    /// ENOLCK when that would leave two ranges where there was one, and the owner's side has too many for that.
    pub fn unlock(&self, nid: u64, kind: AdvisoryKind, owner: Owner, range: Range<u64>) -> Result<()> {
        if !self.has_locks(nid) {
            return Ok(());
        }
        self.with_table(nid, kind, |table, _| table.remove(owner, &range, &self.room))
    }

    /// Gives back all that an owner has on a file: it closed the file.
    pub fn release_owner(&self, nid: u64, kind: AdvisoryKind, owner: Owner) {
        if self.has_locks(nid) {
            self.with_table(nid, kind, |table, _| table.remove_all(owner, &self.room));
        }
    }

    /// Ends a wait with EINTR; says whether there was one to end.
    pub fn cancel(&self, wait: WaitId) -> bool {
        self.has_locks(wait.nid)
            && [AdvisoryKind::Flock, AdvisoryKind::Record].into_iter().any(|kind| {
                self.with_table(wait.nid, kind, |table, outcomes| {
                    let Some(waiting) = table.withdraw(wait.id) else { return false };
                    if kind == AdvisoryKind::Record {
                        self.graph.lock().done(waiting.request.owner, waiting.id);
                    }
                    outcomes.add(waiting, Err(Error::Errno(libc::EINTR)));
                    true
                })
            })
    }

    fn shard(&self, nid: u64) -> &Shard {
        &self.shards[nid as usize % SHARDS]
    }

    /// Spares a close of a file without locks the rest.
    fn has_locks(&self, nid: u64) -> bool {
        self.shard(nid).lock().contains_key(&nid)
    }

    /// Changes a table, and tells whom that concerns.
    fn with_table<T>(
        &self,
        nid: u64,
        kind: AdvisoryKind,
        change: impl FnOnce(&mut Table, &mut Outcomes) -> T,
    ) -> T {
        let (result, mut outcomes) = self.change(nid, kind, change);
        while let Some((Waiting { request, complete, .. }, outcome)) = outcomes.0.pop_front() {
            let is_granted = outcome.is_ok();
            if !complete(outcome) && is_granted {
                let give_back = |table: &mut Table, _: &mut Outcomes| {
                    table.remove(request.owner, &request.range, &self.room)
                };
                // Where there is no room to split what its owner had before, all of it goes with the owner.
                let (_, others) = self.change(nid, kind, give_back);
                outcomes.0.extend(others.0);
            }
        }
        result
    }

    /// Changes a table, then grants what can be granted and refuses what waits in a circle.
    fn change<T>(
        &self,
        nid: u64,
        kind: AdvisoryKind,
        change: impl FnOnce(&mut Table, &mut Outcomes) -> T,
    ) -> (T, Outcomes) {
        let mut outcomes = Outcomes::default();
        let mut files = self.shard(nid).lock();
        let tables = files.entry(nid).or_default();
        let table = tables.of(kind);
        let result = change(table, &mut outcomes);
        let mut settled = Vec::new();
        table.grant_waiting(&self.room, &mut settled);
        if kind == AdvisoryKind::Record && !(settled.is_empty() && table.waiting.is_empty()) {
            self.update_graph(table, &settled, &mut outcomes);
        }
        for (waiting, outcome) in settled {
            outcomes.add(waiting, outcome);
        }
        if tables.flock.is_empty() && tables.record.is_empty() {
            files.remove(&nid);
        }
        (result, outcomes)
    }

    /// Draws the edges of a file anew after its held locks or its queue changed.
    fn update_graph(&self, table: &mut Table, settled: &[(Waiting, Result<()>)], outcomes: &mut Outcomes) {
        let mut graph = self.graph.lock();
        for (waiting, _) in settled {
            graph.done(waiting.request.owner, waiting.id);
        }
        let mut at = 0;
        while let Some(waiting) = table.waiting.get(at) {
            let blockers = table.blockers(&waiting.request);
            if graph.wait(waiting.request.owner, waiting.id, blockers) {
                at += 1;
            } else if let Some(waiting) = table.waiting.remove(at) {
                outcomes.add(waiting, Err(Error::Errno(libc::EDEADLK)));
            }
        }
    }
}

fn check(request: &LockRequest) -> Result<()> {
    if request.range.is_empty() { Err(Error::Errno(libc::EINVAL)) } else { Ok(()) }
}

impl std::fmt::Debug for AdvisoryLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdvisoryLocks").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
