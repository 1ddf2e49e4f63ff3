//! Making every record up to a stamp durable, and moving the heads.

use super::planted::Bug;
use super::slot::SLOT;
use super::table::Table;
use super::{Error, Lanes, Stamp, idle, parse};
use narufs_engine::sync::MutexGuard;
use narufs_engine::sync::atomic::Ordering;

/// A commit that has visited some lanes.
pub(super) struct Commit<'l> {
    lanes: &'l Lanes,
    numbers: MutexGuard<'l, [u64; 2]>,
    stamp: Stamp,
    ends: Vec<u64>,
}

impl Lanes {
    /// Makes every record at or below `stamp` durable, and known to be. For an fsync `stamp` is that of the object, for
    /// all that has returned it is the [`tail`](Self::tail).
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn commit_upto(&self, stamp: Stamp) -> Result<(), Error> {
        let Some(mut commit) = self.begin_commit(stamp) else { return self.check() };
        for _ in 0..self.lanes.len() {
            self.seals.wait_until(|| commit.visit() || self.check().is_err());
            self.check()?;
        }
        commit.finish();
        Ok(())
    }

    /// A commit that has visited no lane, unless there is one already.
    pub(super) fn begin_commit(&self, stamp: Stamp) -> Option<Commit<'_>> {
        if self.committed() >= stamp {
            return None;
        }
        let numbers = self.numbers.lock();
        // Who had the mutex may have committed as much.
        if self.committed() >= stamp {
            return None;
        }
        let stamp = stamp.max(self.clock.now(self.lanes.len()));
        Some(Commit { lanes: self, numbers, stamp, ends: Vec::with_capacity(self.lanes.len()) })
    }

    /// Moves each head to the first record above the committed stamp, and gives the room to the lanes. Everything
    /// committed must be home, durably.
    ///
    /// # Errors
    /// [`Error::Failed`]; [`Error::Damaged`] if the memory no longer holds what was written.
    pub fn advance_heads(&self) -> Result<(), Error> {
        self.check()?;
        let mut numbers = self.numbers.lock();
        let stamp = self.committed();
        let mut positions = Vec::with_capacity(self.lanes.len());
        for (number, lane) in self.lanes.iter().enumerate() {
            // Acquire: pairs with the owner's Release; below the end slots are whole and stay.
            let _ = lane.word.load(Ordering::Acquire);
            // Relaxed: the word told of the end; heads are written under the mutex.
            let (end, mut at) = (lane.end.load(Ordering::Relaxed), lane.head.load(Ordering::Relaxed));
            while at < end {
                let slot = self.first_slot(number, at)?;
                if slot.0 > stamp && !self.planted.is(Bug::HeadPassesCommit) {
                    break;
                }
                at += slot.1;
            }
            positions.push(at);
        }
        let [_, heads] = &mut *numbers;
        *heads += 1;
        Table { number: *heads, stamp, positions: positions.clone() }.write(
            &*self.memory,
            &self.shape,
            Table::HEADS,
        );
        if !self.planted.is(Bug::HeadNotFenced) {
            self.memory.fence();
        }
        for (lane, head) in self.lanes.iter().zip(positions) {
            // Release: pairs with the Acquire in `find_room`.
            lane.head.store(head, Ordering::Release);
        }
        Ok(())
    }

    /// Stamp and count of the record that begins at a position below the end.
    fn first_slot(&self, lane: usize, position: u64) -> Result<(Stamp, u64), Error> {
        let mut bytes = [0; SLOT];
        self.memory.read(self.shape.offset(lane, position), &mut bytes);
        let slot = self.shape.verify(lane, position, &bytes, false).filter(|slot| slot.index == 0);
        let slot =
            slot.ok_or_else(|| Error::Damaged(format!("lane {lane} has no record at {position} any more")))?;
        Ok((slot.stamp, slot.count.into()))
    }
}

impl Commit<'_> {
    /// Visits the next lane; says whether it could be passed. If not, again after a seal.
    pub(super) fn visit(&mut self) -> bool {
        let planted = self.lanes.planted;
        let lane = &self.lanes.lanes[self.ends.len()];
        let mut early = None;
        if planted.is(Bug::EndBeforeWord) {
            // Relaxed: a planted bug.
            early = Some(lane.end.load(Ordering::Relaxed));
        }
        // Acquire: pairs with the Release of the seal, whose end is read below.
        let mut word = lane.word.load(Ordering::Acquire);
        loop {
            let (stamp, is_busy) = parse(word);
            if is_busy && stamp <= self.stamp && !planted.is(Bug::BusyPassed) {
                return false;
            }
            if is_busy || stamp >= self.stamp || planted.is(Bug::NotRaised) {
                break;
            }
            if planted.is(Bug::RaisedBlindly) {
                lane.word.store(idle(self.stamp), Ordering::Relaxed);
                break;
            }
            // Relaxed on success: the load before has acquired this very value, and the owner takes nothing from here
            // but the stamp. Acquire on failure: as in the load.
            match lane.word.compare_exchange(word, idle(self.stamp), Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        // Relaxed: the word told of it.
        self.ends.push(early.unwrap_or_else(|| lane.end.load(Ordering::Relaxed)));
        true
    }

    /// Lanes that were passed.
    #[cfg(all(test, not(loom)))]
    pub(super) fn visited(&self) -> usize {
        self.ends.len()
    }

    /// Writes the commit, after all lanes were visited.
    pub(super) fn finish(mut self) {
        let lanes = self.lanes;
        let [commits, _] = &mut *self.numbers;
        *commits += 1;
        let table = Table { number: *commits, stamp: self.stamp, positions: self.ends };
        table.write_planted(&*lanes.memory, &lanes.shape, Table::COMMITS, lanes.planted);
        if !lanes.planted.is(Bug::CommitNotFenced) {
            lanes.memory.fence();
        }
        // Release: pairs with the Acquire in `committed`.
        lanes.committed.store(self.stamp, Ordering::Release);
    }
}
