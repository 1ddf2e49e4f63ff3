//! Deltas: what a record of the journal consists of. Encoding, and decoding that trusts nothing.
//!
//! Most records are a few writes of a few words, so their headers weigh: a write to the block of the write before it has
//! a short one, and words that repeat (the times of a new inode, what is cleared) are there once.
//!
//! Invariants: every delta is absolute, so that redoing a record any number of times gives the same bytes;
//! a decoded delta lies within its block and names a known kind, whatever the payload held.

#[cfg(test)]
mod tests;

use zerocopy::{FromBytes, IntoBytes};

use crate::device::BLOCK_SIZE;
use crate::format::{
    BLOCK_HEADER_SIZE, BLOCKS_PER_GROUP, BlockHeader, BlockKind, DataKey, DeltaHeader, DeltaKind, FURTHER,
    FurtherHeader, Nid, U16, U32, U64,
};
use crate::{Error, Result};

/// Bytes of a [`DeltaHeader`].
pub const DELTA_HEADER_SIZE: usize = size_of::<DeltaHeader>();
/// Bytes of a [`FurtherHeader`].
pub(super) const FURTHER_HEADER_SIZE: usize = size_of::<FurtherHeader>();
const WORD: usize = 8;
/// So many equal words are worth a header of their own, and another for what follows.
const WORTH_A_HEADER: usize = 4;
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
}

/// Writes a record's deltas into its payload, one after the other.
pub struct Encoder<'p> {
    payload: &'p mut Vec<u8>,
    /// Where the last write went.
    last: Option<(u64, BlockKind)>,
}

impl<'p> Encoder<'p> {
    /// Of a record of its own, behind what the payload has.
    pub fn new(payload: &'p mut Vec<u8>) -> Encoder<'p> {
        Encoder { payload, last: None }
    }

    /// Appends a delta.
    pub fn add(&mut self, delta: &Delta<'_>) {
        if let Delta::Write { block, kind, offset, bytes } = *delta {
            let mut at = offset;
            return for_each_repeat(bytes, |bytes, times| {
                self.write(block, kind, at, bytes, times - 1);
                at += bytes.len() * times;
            });
        }
        self.last = None;
        let (kind, offset, aux) = match *delta {
            Delta::Write { .. } => unreachable!("written above"),
            Delta::Init { kind, .. } => (DeltaKind::Init, 0, kind as u8),
            Delta::Bits { first, set: true, .. } => (DeltaKind::SetBits, first as usize, 0),
            Delta::Bits { first, .. } => (DeltaKind::ClearBits, first as usize, 0),
            Delta::Forget { .. } => (DeltaKind::Forget, 0, 0),
            Delta::Data { .. } => (DeltaKind::Data, 0, 0),
            Delta::Supersede { .. } => (DeltaKind::Supersede, 0, 0),
        };
        let header = DeltaHeader {
            block: U64::new(delta.block().unwrap_or(0)),
            offset: U16::new(offset as u16),
            len: U16::new(delta.body_len() as u16),
            kind: kind as u8,
            aux,
            again: U16::ZERO,
        };
        self.payload.extend_from_slice(header.as_bytes());
        match *delta {
            Delta::Write { .. } | Delta::Forget { .. } => {}
            Delta::Init { owner, generation, .. } => {
                self.payload.extend_from_slice(&owner.to_le_bytes());
                self.payload.extend_from_slice(&u64::from(generation).to_le_bytes());
            }
            Delta::Bits { count, .. } => self.payload.extend_from_slice(&count.to_le_bytes()),
            Delta::Data { ref key, bytes } => {
                self.payload.extend_from_slice(key.as_bytes());
                // `memcpy` of more may be one instruction that is slow where the two lie unevenly.
                bytes.chunks(BLOCK_SIZE).for_each(|part| self.payload.extend_from_slice(part));
            }
            Delta::Supersede { ref key } => self.payload.extend_from_slice(key.as_bytes()),
        }
        self.pad();
    }

    fn write(&mut self, block: u64, kind: BlockKind, offset: usize, bytes: &[u8], again: usize) {
        let (offset, len) = (U16::new(offset as u16), U16::new(bytes.len() as u16));
        let again = U16::new(again as u16);
        if self.last == Some((block, kind)) {
            let header = FurtherHeader { offset, len, again, reserved: 0, mark: FURTHER };
            self.payload.extend_from_slice(header.as_bytes());
        } else {
            self.last = Some((block, kind));
            let (block, aux) = (U64::new(block), kind as u8);
            let header = DeltaHeader { block, offset, len, kind: DeltaKind::Write as u8, aux, again };
            self.payload.extend_from_slice(header.as_bytes());
        }
        self.payload.extend_from_slice(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.payload.resize(self.payload.len().next_multiple_of(WORD), 0);
    }
}

/// Cuts the bytes of a write where one word follows itself so often that a header of its own costs less: each part, and
/// how many times it is there.
fn for_each_repeat(bytes: &[u8], mut f: impl FnMut(&[u8], usize)) {
    let (words, _) = bytes.as_chunks::<WORD>();
    let (mut from, mut at) = (0, 0);
    while at < words.len() {
        let times = words[at..].iter().take_while(|word| **word == words[at]).count();
        // The whole of it, or more than two headers: one for this part, one for what follows.
        if times >= WORTH_A_HEADER || times > 1 && times * WORD == bytes.len() {
            if from < at {
                f(&bytes[from * WORD..at * WORD], 1);
            }
            f(&words[at], times);
            from = at + times;
        }
        at += times;
    }
    if from * WORD < bytes.len() {
        f(&bytes[from * WORD..], 1);
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

/// The deltas of a record's payload, in order; bytes that repeat are a write each time. Ends after the first error.
pub fn decode(payload: &[u8]) -> Deltas<'_> {
    Deltas { rest: payload, at: 0, last: None, again: None }
}

/// See [`decode`].
#[derive(Debug, Clone)]
pub struct Deltas<'a> {
    rest: &'a [u8],
    at: usize,
    /// Where the last write went.
    last: Option<(u64, BlockKind)>,
    /// The last write, and how often it follows itself.
    again: Option<(Delta<'a>, usize)>,
}

impl<'a> Iterator for Deltas<'a> {
    type Item = Result<Delta<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(repeated) = self.repeated() {
            return Some(Ok(repeated));
        }
        if self.rest.is_empty() {
            return None;
        }
        let before = self.rest.len();
        match self.parse() {
            Ok(delta) => {
                self.at += before - self.rest.len();
                Some(Ok(delta))
            }
            Err(detail) => {
                self.rest = &[];
                Some(Err(Error::Corrupt {
                    what: "journal record",
                    place: format!("byte {}", self.at),
                    detail: detail.to_string(),
                }))
            }
        }
    }
}

impl<'a> Deltas<'a> {
    /// The last write once more, behind itself, if it is there so often.
    fn repeated(&mut self) -> Option<Delta<'a>> {
        let (delta, left) = self.again.take()?;
        let Delta::Write { block, kind, offset, bytes } = delta else { return None };
        let delta = Delta::Write { block, kind, offset: offset + bytes.len(), bytes };
        self.again = left.checked_sub(1).filter(|left| *left > 0).map(|left| (delta, left));
        Some(delta)
    }

    /// The bytes of the next delta, which are padded, after its header of type `H`.
    fn body<H: FromBytes>(&mut self, len: impl Fn(&H) -> U16) -> Result<(H, &'a [u8]), &'static str> {
        let (header, rest) = H::read_from_prefix(self.rest).map_err(|_| "a delta is cut short")?;
        let len = usize::from(len(&header).get());
        let padded = len.next_multiple_of(WORD);
        if rest.len() < padded {
            return Err("a delta is longer than its record");
        }
        self.rest = &rest[padded..];
        Ok((header, &rest[..len]))
    }

    fn parse(&mut self) -> Result<Delta<'a>, &'static str> {
        if self.rest.get(WORD - 1) == Some(&FURTHER) {
            let (header, body) = self.body(|header: &FurtherHeader| header.len)?;
            return self.write(header.offset, body, header.again);
        }
        let (header, body) = self.body(|header: &DeltaHeader| header.len)?;
        let block = header.block.get();
        let kind = || BlockKind::from_byte(header.aux).ok_or("unknown kind of block");
        let key = || DataKey::read_from_prefix(body).map_err(|_| "a data key is cut short");
        if header.kind == DeltaKind::Write as u8 {
            self.last = Some((block, kind()?));
            return self.write(header.offset, body, header.again);
        }
        self.last = None;
        match header.kind {
            k if k == DeltaKind::Init as u8 => {
                let (owner, tail) = U64::read_from_prefix(body).map_err(|_| "an init is cut short")?;
                let (generation, _) = U32::read_from_prefix(tail).map_err(|_| "an init is cut short")?;
                Ok(Delta::Init { block, kind: kind()?, owner: owner.get(), generation: generation.get() })
            }
            k if k == DeltaKind::SetBits as u8 || k == DeltaKind::ClearBits as u8 => {
                let (count, _) = U32::read_from_prefix(body).map_err(|_| "a bit run is cut short")?;
                let (first, count) = (u32::from(header.offset.get()), count.get());
                if u64::from(first) + u64::from(count) > BLOCKS_PER_GROUP {
                    return Err("a bit run passes the end of its bitmap");
                }
                Ok(Delta::Bits { block, first, count, set: k == DeltaKind::SetBits as u8 })
            }
            k if k == DeltaKind::Forget as u8 => Ok(Delta::Forget { block }),
            k if k == DeltaKind::Data as u8 => {
                let (key, bytes) = key()?;
                if key.len.get() != bytes.len() as u64
                    || key.offset.get().checked_add(key.len.get()).is_none()
                {
                    return Err("a data delta does not have the length of its key");
                }
                Ok(Delta::Data { key, bytes })
            }
            k if k == DeltaKind::Supersede as u8 => Ok(Delta::Supersede { key: key()?.0 }),
            _ => Err("unknown kind of delta"),
        }
    }

    /// A write to where the last one went.
    fn write(&mut self, offset: U16, bytes: &'a [u8], again: U16) -> Result<Delta<'a>, &'static str> {
        let (block, kind) = self.last.ok_or("a delta goes on with a block where none was written")?;
        let (offset, again) = (usize::from(offset.get()), usize::from(again.get()));
        if offset + bytes.len() * (again + 1) > BLOCK_SIZE || again > 0 && bytes.is_empty() {
            return Err("a write passes the end of its block");
        }
        let delta = Delta::Write { block, kind, offset, bytes };
        self.again = (again > 0).then_some((delta, again));
        Ok(delta)
    }
}
