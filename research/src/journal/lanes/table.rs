//! A stamp and a position of each lane, in one of two places in turn: the newest commit, and the heads.
//!
//! Whatever becomes of the write of one, the one before stands. Nothing here trusts what it reads.

use super::planted::{Bug, Planted};
use super::slot::{Shape, Stamp};
use narufs_engine::pmem::PersistentMemory;

/// Bytes before the positions.
pub(super) const HEADER: usize = 32;
const CRC: std::ops::Range<usize> = 24..28;

/// A stamp, and a position for each lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    /// How many were written before; also tells which place.
    pub(super) number: u64,
    pub(super) stamp: Stamp,
    pub(super) positions: Vec<u64>,
}

impl Table {
    /// Where heads are kept: two places.
    pub(super) const HEADS: usize = 0;
    /// Where commits are.
    pub(super) const COMMITS: usize = 2;

    fn encode(&self, shape: &Shape, place: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(shape.table());
        for word in [self.number, self.stamp, shape.epoch, 0].iter().chain(&self.positions) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c::crc32c_append(place as u32, &bytes);
        bytes[CRC].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Writes it to the place whose turn it is, and writes the lines back. The fence is the caller's.
    pub(super) fn write(&self, memory: &dyn PersistentMemory, shape: &Shape, place: usize) {
        self.write_planted(memory, shape, place, Planted::default());
    }

    pub(super) fn write_planted(
        &self,
        memory: &dyn PersistentMemory,
        shape: &Shape,
        place: usize,
        planted: Planted,
    ) {
        let turn = if planted.is(Bug::OnePlace) { 0 } else { (self.number % 2) as usize };
        let (at, bytes) = ((place + turn) * shape.table(), self.encode(shape, place));
        memory.write(at, &bytes);
        memory.write_back(at, bytes.len());
    }

    /// The newest that verifies.
    pub(super) fn read(memory: &dyn PersistentMemory, shape: &Shape, place: usize) -> Option<Table> {
        let lanes = usize::from(shape.lanes);
        let mut bytes = vec![0; HEADER + 8 * lanes];
        let mut verified = |turn| {
            memory.read((place + turn) * shape.table(), &mut bytes);
            let mut words =
                bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
            let mut next = || words.next().unwrap_or_default();
            let (number, stamp, epoch) = (next(), next(), next());
            next();
            let table = Table { number, stamp, positions: words.collect() };
            (epoch == shape.epoch && table.encode(shape, place) == bytes).then_some(table)
        };
        let tables = [verified(0), verified(1)];
        tables.into_iter().flatten().max_by_key(|table| table.number)
    }
}
