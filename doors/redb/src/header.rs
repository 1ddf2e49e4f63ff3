//! The first bytes of a database, as far as a sync needs to know them.
//!
//! They are those of redb's file format 3, as its docs/design.md and its header.rs have them: nine bytes of magic, a byte
//! of flags of which one names the primary of two commit slots, and the slots, each with a version and the number of
//! its transaction. What does not look like that is never taken for a phase.

use std::ops::Range;

/// Bytes that redb writes whenever it writes the header.
const BYTES: usize = 320;

const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";
const FLAGS: usize = MAGIC.len();
/// The flag that names the primary slot.
const PRIMARY: u8 = 1;
const SLOTS: [Range<usize>; 2] = [64..192, 192..320];
/// Of a slot: its first byte.
const VERSION: u8 = 3;
/// Of a slot: the number of its transaction.
const TRANSACTION: Range<usize> = 104..112;

/// A header as it was written.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Header(Box<[u8; BYTES]>);

impl Header {
    /// The header that a write brings, if it brings one.
    pub(crate) fn of_write(offset: u64, bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.first_chunk::<BYTES>().filter(|_| offset == 0)?;
        Some(Header(Box::new(*bytes)))
    }

    fn slot(&self, number: usize) -> &[u8] {
        &self.0[SLOTS[number].clone()]
    }

    fn primary(&self) -> usize {
        usize::from(self.0[FLAGS] & PRIMARY)
    }

    fn is_known(&self) -> bool {
        self.0.starts_with(MAGIC) && [0, 1].iter().all(|slot| self.slot(*slot)[0] == VERSION)
    }

    /// Whether the sync of this header, after that of another, is the first phase of a commit of two: a new transaction
    /// lies in the secondary slot, and everything else says what it said. Who opens the database sees nothing of it,
    /// so nobody was promised anything.
    pub(crate) fn is_first_phase_after(&self, synced: &Header) -> bool {
        let (primary, secondary) = (self.primary(), 1 - self.primary());
        self.is_known()
            && synced.is_known()
            && self.0[FLAGS] == synced.0[FLAGS]
            && self.slot(primary) == synced.slot(primary)
            && transaction(self.slot(secondary)) > transaction(self.slot(primary))
            && self.slot(secondary) != synced.slot(secondary)
    }
}

fn transaction(slot: &[u8]) -> u64 {
    slot[TRANSACTION].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Header").field("primary", &self.primary()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(flags: u8, transactions: [u64; 2]) -> Header {
        let mut bytes = [0; BYTES];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[FLAGS] = flags;
        for (slot, number) in SLOTS.into_iter().zip(transactions) {
            let slot = &mut bytes[slot];
            slot[0] = VERSION;
            slot[TRANSACTION].copy_from_slice(&number.to_le_bytes());
        }
        Header::of_write(0, &bytes).expect("a header")
    }

    #[test]
    fn a_new_transaction_in_the_secondary_slot_is_a_first_phase() {
        assert!(header(2, [7, 8]).is_first_phase_after(&header(2, [7, 6])));
        assert!(header(3, [300, 7]).is_first_phase_after(&header(3, [6, 7])));
    }

    #[test]
    fn what_moves_the_primary_or_a_flag_is_none() {
        let synced = header(2, [7, 6]);
        assert!(!header(3, [7, 8]).is_first_phase_after(&synced));
        assert!(!header(0, [7, 8]).is_first_phase_after(&synced));
        assert!(!header(2, [9, 10]).is_first_phase_after(&synced));
        assert!(!header(2, [7, 6]).is_first_phase_after(&synced));
        assert!(!header(2, [7, 5]).is_first_phase_after(&synced));
    }

    #[test]
    fn what_is_not_known_is_none() {
        let mut other = header(2, [7, 8]);
        other.0[SLOTS[0].start] = VERSION + 1;
        assert!(!other.is_first_phase_after(&header(2, [7, 6])));
        assert!(Header::of_write(1, &[0; BYTES]).is_none());
        assert!(Header::of_write(0, &[0; BYTES - 1]).is_none());
    }
}
