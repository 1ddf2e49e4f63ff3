//! What a batch changes, which follows from its number and the round that it is made in, and what is there after it.
//!
//! A batch that a kill has cut off is made again in the next round, with other changes: what is left of the first would
//! be seen.

use anyhow::{Result, bail};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// The key that every batch writes: it tells which was the last.
pub const LAST: &str = "last";

/// Keys of small values, and of large ones.
const SMALL: u32 = 2000;
const LARGE: u32 = 80;

/// A batch; values begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its number, from 1.
    pub batch: u64,
    /// The round that it was made in.
    pub round: u64,
}

/// What is in a database: the batch that the value of each key is of.
pub type Rows = BTreeMap<String, Origin>;

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It gets the batch's value.
    Put,
    /// It goes, if it is there.
    Delete,
}

impl Origin {
    fn random(self, salt: &str) -> StdRng {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.batch.to_le_bytes());
        seed[8..16].copy_from_slice(&self.round.to_le_bytes());
        // Keys are short.
        for (to, from) in seed[16..].iter_mut().zip(salt.bytes()) {
            *to = from;
        }
        StdRng::from_seed(seed)
    }

    /// What it changes, in the order of the keys.
    pub fn changes(self) -> BTreeMap<String, Change> {
        let mut random = self.random("changes");
        let mut changes = BTreeMap::new();
        let change =
            |random: &mut StdRng| if random.random_ratio(3, 4) { Change::Put } else { Change::Delete };
        for _ in 0..random.random_range(1..=12) {
            let key = format!("small/{:04}", random.random_range(0..SMALL));
            changes.insert(key, change(&mut random));
        }
        if random.random_ratio(1, 8) {
            let key = format!("large/{:02}", random.random_range(0..LARGE));
            changes.insert(key, change(&mut random));
        }
        changes.insert(LAST.to_owned(), Change::Put);
        changes
    }

    /// The value that it gives a key.
    pub fn value(self, key: &str) -> Vec<u8> {
        let mut random = self.random(key);
        let len = match key.split_once('/') {
            Some(("large", _)) => random.random_range(50_000..300_000),
            Some(_) => random.random_range(0..2000),
            None => 0,
        };
        let mut value = vec![0; 16 + len];
        value[..8].copy_from_slice(&self.batch.to_le_bytes());
        value[8..16].copy_from_slice(&self.round.to_le_bytes());
        random.fill(&mut value[16..]);
        value
    }

    /// Which batch a value is of.
    ///
    /// # Errors
    /// One that no batch has given this key.
    pub fn of(key: &str, value: &[u8]) -> Result<Origin> {
        let number =
            |at: usize| value.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        let Some((batch, round)) = number(0).zip(number(8)) else {
            bail!("{key} has {} bytes, fewer than any batch gives it", value.len());
        };
        let origin = Origin { batch, round };
        if value != origin.value(key) {
            bail!("{key} has {} bytes that are not those of batch {batch} of round {round}", value.len());
        }
        Ok(origin)
    }

    /// Does what it does to what is there.
    pub fn apply(self, rows: &mut Rows) {
        for (key, change) in self.changes() {
            match change {
                Change::Put => drop(rows.insert(key, self)),
                Change::Delete => drop(rows.remove(&key)),
            }
        }
    }
}

/// The number of the last batch; 0 if there was none.
pub fn last(rows: &Rows) -> u64 {
    rows.get(LAST).map_or(0, |origin| origin.batch)
}

/// Compares what is there after a round with what was before it and what was acknowledged in it; returns whether the batch is
/// there that was not.
///
/// # Errors
/// What differs.
pub fn judge(known: &mut Rows, found: Rows, acknowledged: u64, round: u64) -> Result<bool> {
    let (before, now) = (last(known), last(&found));
    let acknowledged = acknowledged.max(before);
    if now < acknowledged || now > acknowledged + 1 {
        bail!("batch {now} is the last, and {acknowledged} was acknowledged");
    }
    for batch in before + 1..=now {
        Origin { batch, round }.apply(known);
    }
    same(known, &found)?;
    Ok(now > acknowledged)
}

/// Compares what is there with what should be.
///
/// # Errors
/// The first key that differs.
pub fn same(known: &Rows, found: &Rows) -> Result<()> {
    for key in known.keys().chain(found.keys()) {
        if known.get(key) != found.get(key) {
            bail!("{key} should be {:?}, and is {:?}", known.get(key), found.get(key));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(batches: impl IntoIterator<Item = (u64, u64)>) -> Rows {
        let mut rows = Rows::new();
        for (batch, round) in batches {
            Origin { batch, round }.apply(&mut rows);
        }
        rows
    }

    fn judged(found: Rows, acknowledged: u64) -> Result<bool> {
        judge(&mut after((1..=10).map(|n| (n, 1))), found, acknowledged, 2)
    }

    fn ten_and(more: impl IntoIterator<Item = (u64, u64)>) -> Rows {
        after((1..=10).map(|n| (n, 1)).chain(more))
    }

    #[test]
    fn what_was_acknowledged_must_be_there_and_the_next_may_be() {
        assert!(!judged(ten_and([]), 0).expect("nothing was acknowledged"));
        assert!(!judged(ten_and([(11, 2), (12, 2)]), 12).expect("all is there"));
        assert!(judged(ten_and([(11, 2), (12, 2)]), 11).expect("one was under way"));
        judged(ten_and([(11, 2)]), 12).expect_err("one is lost");
        judged(ten_and([(11, 2), (12, 2), (13, 2)]), 11).expect_err("two were never under way");
        judged(after((1..=9).map(|n| (n, 1))), 0).expect_err("an earlier round's is lost");
    }

    #[test]
    fn a_batch_must_be_whole_and_of_its_round() {
        judged(ten_and([(11, 1)]), 11).expect_err("it is of another round");
        let whole = ten_and([(11, 2)]);
        let changes = Origin { batch: 11, round: 2 }.changes();
        assert!(changes.len() > 2, "{changes:?}");
        for (key, change) in changes {
            let mut half = whole.clone();
            match ten_and([]).get(&key) {
                Some(before) => drop(half.insert(key.clone(), *before)),
                None => drop(half.remove(&key)),
            }
            assert_eq!(half == whole, change == Change::Delete && !ten_and([]).contains_key(&key), "{key}");
            assert_eq!(judged(half.clone(), 11).is_ok(), half == whole, "{key}");
        }
    }

    #[test]
    fn a_value_is_that_of_its_batch_and_key() {
        let origin = Origin { batch: 7, round: 3 };
        let value = origin.value("small/0001");
        assert_eq!(Origin::of("small/0001", &value).expect("its own"), origin);
        Origin::of("small/0002", &value).expect_err("another's");
        Origin::of("small/0001", &value[..15]).expect_err("too short");
        let mut torn = origin.value("large/01");
        *torn.last_mut().expect("it is long") ^= 1;
        Origin::of("large/01", &torn).expect_err("torn");
    }
}
