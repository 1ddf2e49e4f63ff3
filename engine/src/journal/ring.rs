//! Slots: where a position lies, how a slot is encoded and how it is recognised.
//!
//! A slot is valid for exactly one position of one epoch of one image: the header names the position, and
//! the checksum is seeded with image and epoch. A slot of an earlier lap, of an abandoned timeline or of
//! another image, and a torn one, therefore do not verify. Nothing here trusts what it reads.

use crate::planted::{self, Bug};
use zerocopy::{FromBytes, IntoBytes};

use crate::format::{Position, SLOT_HEADER_SIZE, SLOT_PAYLOAD, SLOT_SIZE, SlotHeader, SlotKind};

/// Slots of a block of the ring region; models make do with less.
pub(crate) const BLOCK_SLOTS: u64 = if cfg!(any(loom, shuttle)) { 2 } else { crate::format::SLOTS_PER_BLOCK };

/// Bits of a seal word that hold the count.
const COUNT_BITS: u32 = 16;

/// A ring's shape and the seed of its checksums.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    pub(crate) slots: u64,
    /// Commits end at a multiple of this many slots.
    pub(crate) pad: u64,
    seed: u32,
    epoch: u32,
}

/// What a valid slot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) kind: SlotKind,
    pub(crate) index: u16,
    pub(crate) count: u16,
    pub(crate) len: usize,
    pub(crate) crc: u32,
}

impl Geometry {
    pub(crate) fn new(slots: u64, image_uuid: &[u8; 16], epoch: u64, pad: u64) -> Geometry {
        let seed = crc32c::crc32c_append(crate::format::checksum_seed(image_uuid), &epoch.to_le_bytes());
        // The low half is enough in the header: the seed has the whole epoch.
        Geometry { slots, pad, seed, epoch: epoch as u32 }
    }

    pub(crate) fn index(&self, position: Position) -> usize {
        (position % self.slots) as usize
    }

    /// What the seal word of the first slot of a record holds once the record is sealed. Never 0.
    pub(crate) fn seal(&self, position: Position, count: u16) -> u64 {
        (position / self.slots) << COUNT_BITS | u64::from(count)
    }

    /// The count in a seal word, if it seals a record that starts at `position`.
    pub(crate) fn sealed(&self, position: Position, word: u64) -> Option<u64> {
        let count = word & ((1 << COUNT_BITS) - 1);
        (word >> COUNT_BITS == position / self.slots && count != 0).then_some(count)
    }

    /// Encodes slot `index` of the `count` slots of a record; `payload` has [`SLOT_PAYLOAD`] bytes at most.
    /// Gives back the checksum too.
    pub(crate) fn encode(
        &self,
        position: Position,
        (index, count): (u16, u16),
        kind: SlotKind,
        payload: &[u8],
    ) -> [u8; SLOT_SIZE] {
        self.encode_as(position, (index, count), kind, payload, payload.len())
    }

    /// As [`Geometry::encode`], of bytes of which `len` count.
    #[inline]
    pub(crate) fn encode_as(
        &self,
        position: Position,
        (index, count): (u16, u16),
        kind: SlotKind,
        payload: &[u8],
        len: usize,
    ) -> [u8; SLOT_SIZE] {
        let mut bytes = [0; SLOT_SIZE];
        let header = SlotHeader {
            position: position.into(),
            crc: 0.into(),
            epoch: self.epoch.into(),
            index: index.into(),
            count: count.into(),
            kind: kind as u8,
            reserved: 0,
            len: (len as u16).into(),
        };
        bytes[..SLOT_HEADER_SIZE].copy_from_slice(header.as_bytes());
        bytes[SLOT_HEADER_SIZE..SLOT_HEADER_SIZE + payload.len()].copy_from_slice(payload);
        let crc = crc32c::crc32c_append(self.seed, &bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// What the slot says, if it is the valid slot of `position`.
    pub(crate) fn verify(&self, position: Position, bytes: &[u8; SLOT_SIZE]) -> Option<Slot> {
        let (header, _) = SlotHeader::read_from_prefix(bytes).ok()?;
        let kind = [SlotKind::Operation, SlotKind::Commit, SlotKind::Void]
            .into_iter()
            .find(|kind| *kind as u8 == header.kind)?;
        let (index, count, len) = (header.index.get(), header.count.get(), usize::from(header.len.get()));
        if (header.position.get() != position && !planted::is(Bug::StaleSlotAccepted))
            || header.epoch.get() != self.epoch
            || header.reserved != 0
            || index >= count
            || u64::from(count) > self.slots
            || len > SLOT_PAYLOAD
        {
            return None;
        }
        let mut blank = *bytes;
        blank[CRC_AT..CRC_AT + 4].fill(0);
        let crc = header.crc.get();
        (crc32c::crc32c_append(self.seed, &blank) == crc || planted::is(Bug::TornSlotAccepted))
            .then_some(Slot { kind, index, count, len, crc })
    }
}

/// Where the position lies in a slot.
pub(crate) const POSITION_AT: usize = std::mem::offset_of!(SlotHeader, position);
/// Where the checksum lies in a slot.
pub(crate) const CRC_AT: usize = std::mem::offset_of!(SlotHeader, crc);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::MAX_POSITION;
    use proptest::prelude::*;

    const RING: u64 = 64;

    fn ring() -> Geometry {
        Geometry::new(RING, &[7; 16], 3, 1)
    }

    #[test]
    fn a_slot_verifies_for_its_position_epoch_and_image_alone() {
        let bytes = ring().encode(70, (1, 3), SlotKind::Operation, b"payload");
        let slot = ring().verify(70, &bytes).expect("valid");
        assert_eq!((slot.kind, slot.index, slot.count, slot.len), (SlotKind::Operation, 1, 3, 7));
        assert_eq!(ring().verify(70 - RING, &bytes), None);
        assert_eq!(ring().verify(70 + RING, &bytes), None);
        assert_eq!(Geometry::new(RING, &[7; 16], 4, 1).verify(70, &bytes), None);
        assert_eq!(Geometry::new(RING, &[7; 16], 3 + (1 << 32), 1).verify(70, &bytes), None);
        assert_eq!(Geometry::new(RING, &[8; 16], 3, 1).verify(70, &bytes), None);
    }

    #[test]
    fn a_seal_word_names_its_lap() {
        let ring = ring();
        assert_eq!(ring.sealed(0, 0), None);
        assert_eq!(ring.sealed(0, ring.seal(0, 5)), Some(5));
        assert_eq!(ring.sealed(RING, ring.seal(0, 5)), None);
        assert_eq!(ring.sealed(MAX_POSITION, ring.seal(MAX_POSITION, u16::MAX)), Some(65535));
    }

    proptest! {
        #[test]
        fn every_flipped_bit_is_noticed(payload in prop::collection::vec(any::<u8>(), 0..=SLOT_PAYLOAD), bit in 0..SLOT_SIZE * 8) {
            let mut bytes = ring().encode(9, (0, 1), SlotKind::Operation, &payload);
            prop_assert!(ring().verify(9, &bytes).is_some());
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(ring().verify(9, &bytes), None);
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(bytes in any::<[u8; 32]>(), position in any::<u64>()) {
            let mut slot = [0; SLOT_SIZE];
            slot[..32].copy_from_slice(&bytes);
            prop_assert_eq!(ring().verify(position, &slot), None);
        }
    }
}
