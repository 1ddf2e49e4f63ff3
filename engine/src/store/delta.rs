//! Deltas: what a record of the journal consists of. Encoding, and decoding that trusts nothing.
//!
//! Invariants: every delta is absolute, so that redoing a record any number of times gives the same bytes;
//! a decoded delta lies within its block and names a known kind, whatever the payload held.

use zerocopy::{FromBytes, IntoBytes};

use crate::device::BLOCK_SIZE;
use crate::format::{
    BLOCK_HEADER_SIZE, BLOCKS_PER_GROUP, BlockHeader, BlockKind, DataKey, DeltaHeader, DeltaKind, Nid, U16,
    U32, U64,
};
use crate::{Error, Result};

/// Bytes of a [`DeltaHeader`].
pub const DELTA_HEADER_SIZE: usize = size_of::<DeltaHeader>();
/// Most bytes of file data in one delta.
pub const MAX_DATA: usize = u16::MAX as usize / 8 * 8 - size_of::<DataKey>();

/// One delta, borrowing its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delta<'a> {
    /// Bytes of a metadata block.
    Write {
        /// The block.
        block: u64,
        /// What it holds.
        kind: BlockKind,
        /// Where in the block.
        offset: usize,
        /// The new bytes.
        bytes: &'a [u8],
    },
    /// A fresh block: zeros and a header.
    Init {
        /// The block.
        block: u64,
        /// What it will hold.
        kind: BlockKind,
        /// See [`BlockHeader::owner`].
        owner: Nid,
        /// See [`BlockHeader::generation`].
        generation: u32,
    },
    /// A run of bits of a bitmap block.
    Bits {
        /// The bitmap block.
        block: u64,
        /// First bit.
        first: u32,
        /// Number of bits.
        count: u32,
        /// Whether they become 1.
        set: bool,
    },
    /// The block holds metadata no longer.
    Forget {
        /// The block.
        block: u64,
    },
    /// File data.
    Data {
        /// Where it belongs.
        key: DataKey,
        /// As many bytes as the key says.
        bytes: &'a [u8],
    },
    /// Earlier data in the key's range counts no more.
    Supersede {
        /// The range.
        key: DataKey,
    },
}

impl Delta<'_> {
    /// The metadata block it changes; none for data.
    pub fn block(&self) -> Option<u64> {
        match *self {
            Delta::Write { block, .. }
            | Delta::Init { block, .. }
            | Delta::Bits { block, .. }
            | Delta::Forget { block } => Some(block),
            Delta::Data { .. } | Delta::Supersede { .. } => None,
        }
    }

    /// Changes the bytes of its block. Data, supersedes and forgets change none.
    pub fn apply(&self, page: &mut [u8; BLOCK_SIZE]) {
        match *self {
            Delta::Write { offset, bytes, .. } => page[offset..offset + bytes.len()].copy_from_slice(bytes),
            Delta::Init { kind, owner, generation, .. } => fresh(page, kind, owner, generation),
            Delta::Bits { first, count, set, .. } => fill_bits(page, first, count, set),
            Delta::Forget { .. } | Delta::Data { .. } | Delta::Supersede { .. } => {}
        }
    }

    /// Bytes that [`Delta::encode`] adds.
    pub fn encoded_len(&self) -> usize {
        DELTA_HEADER_SIZE + self.body_len().next_multiple_of(8)
    }

    fn body_len(&self) -> usize {
        match self {
            Delta::Write { bytes, .. } => bytes.len(),
            Delta::Init { .. } => 16,
            Delta::Bits { .. } => 4,
            Delta::Forget { .. } => 0,
            Delta::Data { bytes, .. } => size_of::<DataKey>() + bytes.len(),
            Delta::Supersede { .. } => size_of::<DataKey>(),
        }
    }

    /// Appends the delta to a payload.
    pub fn encode(&self, payload: &mut Vec<u8>) {
        let start = payload.len();
        let (kind, offset, aux) = match *self {
            Delta::Write { kind, offset, .. } => (DeltaKind::Write, offset, kind as u8),
            Delta::Init { kind, .. } => (DeltaKind::Init, 0, kind as u8),
            Delta::Bits { first, set: true, .. } => (DeltaKind::SetBits, first as usize, 0),
            Delta::Bits { first, .. } => (DeltaKind::ClearBits, first as usize, 0),
            Delta::Forget { .. } => (DeltaKind::Forget, 0, 0),
            Delta::Data { .. } => (DeltaKind::Data, 0, 0),
            Delta::Supersede { .. } => (DeltaKind::Supersede, 0, 0),
        };
        let header = DeltaHeader {
            block: U64::new(self.block().unwrap_or(0)),
            offset: U16::new(offset as u16),
            len: U16::new(self.body_len() as u16),
            kind: kind as u8,
            aux,
            reserved: U16::ZERO,
        };
        payload.extend_from_slice(header.as_bytes());
        match *self {
            Delta::Write { bytes, .. } => payload.extend_from_slice(bytes),
            Delta::Init { owner, generation, .. } => {
                payload.extend_from_slice(&owner.to_le_bytes());
                payload.extend_from_slice(&u64::from(generation).to_le_bytes());
            }
            Delta::Bits { count, .. } => payload.extend_from_slice(&count.to_le_bytes()),
            Delta::Forget { .. } => {}
            Delta::Data { ref key, bytes } => {
                payload.extend_from_slice(key.as_bytes());
                // `memcpy` of more may be one instruction that is slow where the two lie unevenly.
                bytes.chunks(BLOCK_SIZE).for_each(|part| payload.extend_from_slice(part));
            }
            Delta::Supersede { ref key } => payload.extend_from_slice(key.as_bytes()),
        }
        payload.resize(start + self.encoded_len(), 0);
    }
}

/// Makes a page what [`Delta::Init`] makes it.
fn fresh(page: &mut [u8; BLOCK_SIZE], kind: BlockKind, owner: Nid, generation: u32) {
    page.fill(0);
    head(page, kind, owner, generation);
}

/// The same for a page of zeros.
pub(super) fn head(page: &mut [u8; BLOCK_SIZE], kind: BlockKind, owner: Nid, generation: u32) {
    if kind != BlockKind::Node {
        let header = BlockHeader::new(kind, owner, generation);
        page[..BLOCK_HEADER_SIZE].copy_from_slice(header.as_bytes());
    }
}

/// Sets or clears `count` bits from `first` on, bit 0 being the lowest of the first byte after the header.
pub(crate) fn fill_bits(page: &mut [u8; BLOCK_SIZE], first: u32, count: u32, set: bool) {
    let bits = &mut page[BLOCK_HEADER_SIZE..];
    let (mut bit, end) = (first as usize, (first + count) as usize);
    while bit < end {
        let upto = end.min((bit / 8 + 1) * 8);
        let mask = (((1u16 << (upto - bit)) - 1) << (bit % 8)) as u8;
        if set {
            bits[bit / 8] |= mask;
        } else {
            bits[bit / 8] &= !mask;
        }
        bit = upto;
    }
}

/// The deltas of a record's payload, in order. Ends after the first error.
pub fn decode(payload: &[u8]) -> Deltas<'_> {
    Deltas { rest: payload, at: 0 }
}

/// See [`decode`].
#[derive(Debug, Clone)]
pub struct Deltas<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Deltas<'a> {
    type Item = Result<Delta<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (delta, rest) = match parse(self.rest) {
            Ok(found) => found,
            Err(detail) => {
                self.rest = &[];
                return Some(Err(Error::Corrupt {
                    what: "journal record",
                    place: format!("byte {}", self.at),
                    detail: detail.to_string(),
                }));
            }
        };
        self.at += self.rest.len() - rest.len();
        self.rest = rest;
        Some(Ok(delta))
    }
}

fn parse(payload: &[u8]) -> Result<(Delta<'_>, &[u8]), &'static str> {
    let (header, rest) = DeltaHeader::read_from_prefix(payload).map_err(|_| "a delta is cut short")?;
    let len = usize::from(header.len.get());
    let padded = len.next_multiple_of(8);
    if rest.len() < padded {
        return Err("a delta is longer than its record");
    }
    let (body, rest) = (&rest[..len], &rest[padded..]);
    let block = header.block.get();
    let offset = usize::from(header.offset.get());
    let kind = || BlockKind::from_byte(header.aux).ok_or("unknown kind of block");
    let key = || DataKey::read_from_prefix(body).map_err(|_| "a data key is cut short");
    let delta = match header.kind {
        k if k == DeltaKind::Write as u8 => {
            if offset + len > BLOCK_SIZE {
                return Err("a write passes the end of its block");
            }
            Delta::Write { block, kind: kind()?, offset, bytes: body }
        }
        k if k == DeltaKind::Init as u8 => {
            let (owner, tail) = U64::read_from_prefix(body).map_err(|_| "an init is cut short")?;
            let (generation, _) = U32::read_from_prefix(tail).map_err(|_| "an init is cut short")?;
            Delta::Init { block, kind: kind()?, owner: owner.get(), generation: generation.get() }
        }
        k if k == DeltaKind::SetBits as u8 || k == DeltaKind::ClearBits as u8 => {
            let (count, _) = U32::read_from_prefix(body).map_err(|_| "a bit run is cut short")?;
            let (first, count) = (u32::from(header.offset.get()), count.get());
            if u64::from(first) + u64::from(count) > BLOCKS_PER_GROUP {
                return Err("a bit run passes the end of its bitmap");
            }
            Delta::Bits { block, first, count, set: k == DeltaKind::SetBits as u8 }
        }
        k if k == DeltaKind::Forget as u8 => Delta::Forget { block },
        k if k == DeltaKind::Data as u8 => {
            let (key, bytes) = key()?;
            if key.len.get() != bytes.len() as u64 || key.offset.get().checked_add(key.len.get()).is_none() {
                return Err("a data delta does not have the length of its key");
            }
            Delta::Data { key, bytes }
        }
        k if k == DeltaKind::Supersede as u8 => Delta::Supersede { key: key()?.0 },
        _ => return Err("unknown kind of delta"),
    };
    Ok((delta, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(len: u64) -> DataKey {
        DataKey {
            nid: U64::new(7),
            offset: U64::new(100),
            len: U64::new(len),
            generation: U32::new(3),
            reserved: U32::ZERO,
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let deltas = [
            Delta::Init { block: 9, kind: BlockKind::Bucket, owner: 5, generation: 2 },
            Delta::Write { block: 9, kind: BlockKind::Bucket, offset: 4093, bytes: &[1, 2, 3] },
            Delta::Bits { block: 4, first: 3, count: 30_000, set: true },
            Delta::Bits { block: 4, first: 32_511, count: 1, set: false },
            Delta::Forget { block: 77 },
            Delta::Data { key: key(5), bytes: b"hello" },
            Delta::Supersede { key: key(u64::MAX) },
        ];
        let mut payload = Vec::new();
        for delta in &deltas {
            let before = payload.len();
            delta.encode(&mut payload);
            assert_eq!(payload.len() - before, delta.encoded_len());
        }
        let back: Vec<_> = decode(&payload).map(|d| d.expect("what we encoded")).collect();
        assert_eq!(back, deltas);
    }

    #[test]
    fn bits_are_set_and_cleared_by_runs() {
        let mut page = [0; BLOCK_SIZE];
        fill_bits(&mut page, 3, 14, true);
        assert_eq!(page[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 4], [0xf8, 0xff, 0x01, 0]);
        fill_bits(&mut page, 8, 8, false);
        fill_bits(&mut page, 4, 1, false);
        assert_eq!(page[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 4], [0xe8, 0, 0x01, 0]);
    }

    #[test]
    fn impossible_deltas_are_errors() {
        let mut payload = Vec::new();
        Delta::Write { block: 1, kind: BlockKind::Nat, offset: 4090, bytes: &[0; 16] }.encode(&mut payload);
        assert!(decode(&payload).next().expect("one").is_err());
        payload.clear();
        Delta::Bits { block: 1, first: 32_000, count: 513, set: true }.encode(&mut payload);
        let mut found = decode(&payload);
        assert!(found.next().expect("one").is_err());
        assert!(found.next().is_none());
    }

    proptest! {
        #[test]
        fn any_payload_is_decoded_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0u8..9) {
            let mut bytes = bytes;
            if bytes.len() > 13 {
                bytes[12] = kind;
                bytes[11] = 0;
            }
            let mut page = [0; BLOCK_SIZE];
            for delta in decode(&bytes).flatten() {
                delta.apply(&mut page);
            }
        }
    }
}
