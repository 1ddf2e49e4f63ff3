//! Commits on a mapped ring, and what both kinds of ring share.
//!
//! The SSD ring's group commit is in [`super::group`].

use zerocopy::IntoBytes;

use super::group::Lead;
use super::handle::Reserved;
use super::{Durability, Journal};
use crate::Result;
use crate::format::{CommitPayload, Position, SLOT_SIZE, SlotKind};
use crate::planted::{self, Bug};
use crate::sync::WaitQueue;
use crate::sync::atomic::Ordering;

impl Journal {
    /// Returns once everything below `upto` (the tail at most) is durable as `wanted`. One commit serves all
    /// callers that it covers. Fails only when the journal has failed.
    pub fn commit_upto(&self, upto: Position, durability: Durability) -> Result<()> {
        let upto = upto.min(self.tail());
        match (&self.stream, durability) {
            (None, _) => self.commit_in_order(upto),
            (Some(stream), Durability::Power) => self.commit_grouped(stream, upto, Lead::Freely),
            (Some(_), durability) => {
                // Sealed in the staging is enough, and any thread that seals does not sleep before it.
                self.sleep(&self.seals, || self.sequence.walk(self.durable(), upto) >= upto);
                self.settle_upto(upto, durability)
            }
        }
    }

    /// The end of the first commit that ends beyond `from`, which is at or above the head; the newest durable one's if
    /// there is none. The head must not move meanwhile.
    pub fn commit_beyond(&self, from: Position) -> Position {
        let durable = self.durable();
        let mut at = from.max(self.head());
        while at < durable {
            // Nobody writes below `durable` as long as the head does not pass: every slot here verifies.
            let mut bytes = [0; SLOT_SIZE];
            self.front.read(self.offset(at), &mut bytes);
            let Some(slot) = self.ring.verify(at, &bytes) else { break };
            at = at - u64::from(slot.index) + u64::from(slot.count);
            if slot.kind == SlotKind::Commit {
                return at.min(durable);
            }
        }
        durable
    }

    /// Returns once every operation that has returned, of those below `upto`, is durable as `wanted`: what an
    /// fsync waits for. Where records are durable when they are sealed (step 11 of the protocol), that is now: a
    /// commit is made only if nothing is in its way, so that no caller waits for a thread that the scheduler has
    /// set aside in the midst of its record.
    pub fn settle_upto(&self, upto: Position, durability: Durability) -> Result<()> {
        match (&self.stream, durability) {
            (Some(_), Durability::Power) => return self.commit_upto(upto, durability),
            (Some(stream), _) => {
                if !self.is_answered(upto, durability)? {
                    return self.commit_and_flush(stream, upto, Lead::Freely);
                }
            }
            (None, _) => {
                let upto = upto.min(self.tail());
                // Relaxed: a hint; a thread that stored it publishes a commit beyond it.
                let is_covered = self.reserved_commit.load(Ordering::Relaxed) >= upto;
                let is_free = || {
                    let tail = self.tail();
                    self.sequence.walk(self.durable(), tail) >= tail || planted::is(Bug::CommitBeforeSeal)
                };
                if !is_covered && is_free() && self.claim() {
                    self.write_commit()?;
                } else {
                    self.counters.coalesced.add(1);
                }
            }
        }
        self.check()
    }

    /// Promises the durability of everything below `upto`, of a ring in the image; says whether the caller may go
    /// before that has come.
    pub(super) fn is_answered(&self, upto: Position, durability: Durability) -> Result<bool> {
        let lag = self.promise(upto.min(self.tail()));
        // What has failed will be kept no more.
        self.check()?;
        Ok(match durability {
            Durability::Process => true,
            Durability::Window(most) => lag < most || planted::is(Bug::WindowIgnored),
            Durability::Power => false,
        })
    }

    /// Steps 3 and 8 of the protocol.
    fn commit_in_order(&self, upto: Position) -> Result<()> {
        let mut own = false;
        while self.durable() < upto {
            self.check()?;
            // Relaxed: a hint. A thread that stored it publishes a commit beyond it, or fails the journal.
            if self.reserved_commit.load(Ordering::Relaxed) >= upto {
                self.sleep(&self.commits, || self.durable() >= upto);
            } else if self.claim() {
                own = true;
                self.write_commit()?;
            } else {
                // What is missing is another's record between its reservation and its flag, or another's
                // commit between the flag and its reservation: a seal follows in either case.
                self.sleep(&self.seals, || {
                    self.durable() >= upto
                        // Relaxed: both are looked at again.
                        || self.armed.load(Ordering::Relaxed)
                        || self.reserved_commit.load(Ordering::Relaxed) >= upto
                });
            }
        }
        if !own {
            self.counters.coalesced.add(1);
        }
        Ok(())
    }

    /// Takes the flag down, if it is up: this thread must make the next commit.
    pub(super) fn claim(&self) -> bool {
        // Acquire: pairs with the Release in `reserve`: the commit's reservation comes after those that raised
        // the flag. Relaxed on failure: nothing was taken.
        self.armed.compare_exchange(true, false, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Writes one commit, in its turn, and publishes it. The caller has taken the flag down.
    fn write_commit(&self) -> Result<()> {
        let reserved = Reserved::commit_slots(self);
        let first = reserved.first();
        // Relaxed: see `commit_in_order`.
        self.reserved_commit.fetch_max(first, Ordering::Relaxed);
        let mut range_start = self.durable();
        if !planted::is(Bug::CommitBeforeSeal) {
            self.sleep(&self.seals, || {
                range_start = self.durable();
                self.sequence.walk(range_start, first) >= first
            });
        }
        self.check()?;
        // Everything below is sealed, the commit before included, which was published before it was sealed;
        // so this is its end, and it cannot move before this commit does.
        range_start = self.durable();
        let payload = CommitPayload {
            range_start: range_start.into(),
            durable_upto: range_start.into(),
            range_crc: 0.into(),
            reserved: 0.into(),
        };
        let sealed = reserved
            .persist_as(SlotKind::Commit, payload.as_bytes())
            .apply(|_, end| {
                // Release: pairs with the Acquire in `durable`.
                self.committed.store(end, Ordering::Release);
            })
            .seal();
        debug_assert_eq!(sealed.first(), first);
        self.counters.commits.add(1);
        self.commits.wake_all();
        Ok(())
    }

    /// Waits until `ready` or the journal has failed.
    pub(super) fn sleep(&self, queue: &WaitQueue, mut ready: impl FnMut() -> bool) {
        let mut ready = || ready() || self.is_failed();
        if ready() || crate::sync::spin(&mut ready) {
            return;
        }
        let since = std::time::Instant::now();
        queue.wait_until(ready);
        self.counters.wait_ns.add(since.elapsed().as_nanos() as u64);
    }
}
