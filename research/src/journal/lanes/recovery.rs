//! What the media hold after a crash, in one order.

use super::planted::{Bug, Planted};
use super::slot::SLOT;
use super::table::Table;
use super::{Error, Shape, Stamp};
use narufs_engine::pmem::PersistentMemory;

/// A record that was recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// When it happened.
    pub stamp: Stamp,
    /// In which lane.
    pub lane: usize,
    /// What was written.
    pub payload: Vec<u8>,
}

/// Everything from the heads to the newest commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Records at or below are home.
    pub home: Stamp,
    /// Records at or below are home or here.
    pub committed: Stamp,
    /// In the order in which to redo them.
    pub records: Vec<Record>,
}

/// Reads the records of an epoch that are committed and perhaps not home.
///
/// # Errors
/// [`Error::Damaged`] if there is no commit, or one of its records is missing.
pub fn recover(memory: &dyn PersistentMemory, shape: &Shape) -> Result<Recovered, Error> {
    recover_planted(memory, shape, Planted::default())
}

pub(super) fn recover_planted(
    memory: &dyn PersistentMemory,
    shape: &Shape,
    planted: Planted,
) -> Result<Recovered, Error> {
    if memory.len() < shape.bytes() {
        return Err(Error::Refused(format!("{} bytes are too few", memory.len())));
    }
    let table = |place, what: &str| {
        Table::read(memory, shape, place).ok_or_else(|| Error::Damaged(format!("no {what} verifies")))
    };
    let (heads, commit) = (table(Table::HEADS, "heads")?, table(Table::COMMITS, "commit")?);
    if commit.stamp < heads.stamp {
        return Err(Error::Damaged("the heads passed the newest commit".into()));
    }
    let mut records = Vec::new();
    for (lane, (&head, &end)) in heads.positions.iter().zip(&commit.positions).enumerate() {
        if end < head || end - head > shape.slots {
            return Err(Error::Damaged(format!("lane {lane} cannot go from {head} to {end}")));
        }
        let mut at = head;
        while at < end {
            let Some((record, count)) = read_record(memory, shape, lane, at, planted) else {
                if planted.is(Bug::GapIgnored) {
                    at += 1;
                    continue;
                }
                return Err(Error::Damaged(format!("lane {lane} has a gap at {at}, below {end}")));
            };
            at += count;
            records.push(record);
        }
    }
    if !planted.is(Bug::LateTaken) {
        records.retain(|record| record.stamp <= commit.stamp);
    }
    if planted.is(Bug::MergedByLane) {
        records.sort_by_key(|record| (record.lane, record.stamp));
    } else {
        records.sort_by_key(|record| (record.stamp, record.lane));
    }
    Ok(Recovered { home: heads.stamp, committed: commit.stamp, records })
}

/// The record that begins at a position of a lane, if all its slots verify, and how many those are.
fn read_record(
    memory: &dyn PersistentMemory,
    shape: &Shape,
    lane: usize,
    first: u64,
    planted: Planted,
) -> Option<(Record, u64)> {
    let (mut payload, mut bytes, mut index, mut shown) = (Vec::new(), [0; SLOT], 0, None);
    loop {
        let position = first + u64::from(index);
        memory.read(shape.offset(lane, position), &mut bytes);
        let slot = shape.verify(lane, position, &bytes, planted.is(Bug::TornAccepted))?;
        let (stamp, count) = *shown.get_or_insert((slot.stamp, slot.count));
        if (slot.stamp, slot.count, slot.index) != (stamp, count, index) {
            return None;
        }
        payload.extend_from_slice(shape.payload(&slot, &bytes));
        index += 1;
        if index == count {
            return Some((Record { stamp, lane, payload }, count.into()));
        }
    }
}
