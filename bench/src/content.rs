//! The content of everything that is written: a function of the run's seed, so that a later check knows what must
//! be there.
//!
//! Bytes come from one random pattern, read from a place that depends on the file: no byte is computed while the
//! time runs. Its length is prime, so that data in a wrong place differs. Pages that are overwritten carry a
//! stamp at both ends: which page of which file, whose write, and the how manieth; ends that differ are a torn
//! write.

use crate::{Error, Result};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// The longest piece that the pattern gives at once.
pub const LONGEST: usize = 1 << 20;
/// The pattern repeats after this prime number of bytes.
const PERIOD: usize = 1_048_573;
/// Bytes of a stamp at the beginning of a page, and of the copy of its last part at the end.
const HEAD: usize = 32;
const TAIL: usize = 16;

/// A generator for one purpose of one run: `stream` tells threads and purposes apart.
pub fn generator(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(stream);
    generator
}

/// Numbers that look unrelated to their arguments, for salts.
pub fn mixed(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The pattern of a run. Clones share it.
#[derive(Debug, Clone)]
pub struct Content {
    seed: u64,
    pattern: Arc<[u8]>,
}

/// What a page says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The page's number in its file.
    pub page: u64,
    /// Who wrote it.
    pub writer: u32,
    /// How many times that writer had written this page.
    pub version: u32,
}

impl Content {
    /// The pattern of a seed.
    pub fn new(seed: u64) -> Content {
        let mut pattern = vec![0; PERIOD + LONGEST];
        generator(seed, u64::MAX).fill_bytes(&mut pattern[..PERIOD]);
        pattern.copy_within(..LONGEST, PERIOD);
        Content { seed, pattern: pattern.into() }
    }

    /// The bytes of a file at an offset: [`LONGEST`] at the most.
    pub fn bytes(&self, file: u64, offset: u64, len: usize) -> &[u8] {
        let start = (mixed(self.seed, file) % PERIOD as u64 + offset % PERIOD as u64) as usize % PERIOD;
        &self.pattern[start..start + len]
    }

    /// Checks bytes of a file read at an offset.
    pub fn check(&self, file: u64, offset: u64, read: &[u8]) -> Result<()> {
        let mut at = 0;
        for piece in read.chunks(LONGEST) {
            let wanted = self.bytes(file, offset + at, piece.len());
            if piece != wanted {
                let differs = piece.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(0) as u64;
                return Err(Error::Wrong(format!("byte {} is not what was written", offset + at + differs)));
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Fills a page, or a larger unit of pages, with its content and stamp.
    pub fn fill(&self, file: u64, stamp: Stamp, unit: &mut [u8]) {
        let len = unit.len();
        unit.copy_from_slice(self.bytes(file, 0, len));
        self.stamp(file, stamp, unit);
    }

    /// Renews the stamp of a filled unit. The rest of it is the same for all pages of a file.
    #[inline]
    pub fn stamp(&self, file: u64, stamp: Stamp, unit: &mut [u8]) {
        let count = u64::from(stamp.version) << 32 | u64::from(stamp.writer);
        let len = unit.len();
        unit[..8].copy_from_slice(&mixed(self.seed, file).to_le_bytes());
        unit[8..16].copy_from_slice(&(len as u64).to_le_bytes());
        unit[16..24].copy_from_slice(&stamp.page.to_le_bytes());
        unit[24..HEAD].copy_from_slice(&count.to_le_bytes());
        unit.copy_within(16..HEAD, len - TAIL);
    }

    /// The length and the page number that the unit at the beginning of some bytes claims to have.
    pub fn claims(unit: &[u8]) -> Option<(usize, u64)> {
        let word = |at: usize| unit.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
        Some((usize::try_from(word(8)?).ok()?, word(16)?))
    }

    /// Checks a unit that was read, and says what it says of itself.
    pub fn read_stamp(&self, file: u64, page: u64, unit: &[u8]) -> Result<Stamp> {
        let word = |at: usize| u64::from_le_bytes(unit[at..at + 8].try_into().expect("eight bytes"));
        let wrong = |what: &str| Err(Error::Wrong(format!("page {page} {what}")));
        if unit.len() < HEAD + TAIL {
            return wrong("is cut short");
        }
        if word(0) != mixed(self.seed, file) || word(8) != unit.len() as u64 || word(16) != page {
            return wrong("holds something else");
        }
        let tail = unit.len() - TAIL;
        if unit[tail..] != unit[16..HEAD] {
            return wrong("is torn: its two ends are of different writes");
        }
        if unit[HEAD..tail] != self.bytes(file, 0, unit.len())[HEAD..tail] {
            return wrong("has wrong bytes between its ends");
        }
        Ok(Stamp { page, writer: word(24) as u32, version: (word(24) >> 32) as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_follows_seed_file_and_place() {
        let content = Content::new(1);
        assert_eq!(content.bytes(3, 70, 100), Content::new(1).bytes(3, 70, 100));
        assert_ne!(content.bytes(3, 70, 100), Content::new(2).bytes(3, 70, 100));
        assert_ne!(content.bytes(3, 70, 100), content.bytes(4, 70, 100));
        assert_ne!(content.bytes(3, 0, 100), content.bytes(3, 4096, 100));
        // A piece is the same whether it is taken at once or in parts, around the period too.
        for start in [0, PERIOD as u64 - 10, 5 * PERIOD as u64 - 1] {
            let whole = content.bytes(9, start, 40).to_vec();
            let parts = [content.bytes(9, start, 15), content.bytes(9, start + 15, 25)].concat();
            assert_eq!(whole, parts);
        }
    }

    #[test]
    fn a_wrong_byte_is_found_and_named() {
        let content = Content::new(5);
        let mut read = content.bytes(1, 1000, 5000).to_vec();
        assert!(content.check(1, 1000, &read).is_ok());
        read[4321] ^= 1;
        assert!(content.check(1, 1000, &read).unwrap_err().to_string().contains("byte 5321"));
    }

    #[test]
    fn pages_know_their_place_their_writer_and_their_version() {
        let content = Content::new(7);
        let stamp = Stamp { page: 12, writer: 3, version: 99 };
        for len in [PAGE, 2 * PAGE] {
            let mut page = vec![0; len];
            content.fill(5, stamp, &mut page);
            assert_eq!(content.read_stamp(5, 12, &page).expect("as filled"), stamp);
            let next = Stamp { version: 100, ..stamp };
            let before = page.clone();
            content.stamp(5, next, &mut page);
            assert_eq!(content.read_stamp(5, 12, &page).expect("as stamped"), next);
            let said =
                |file, number, page: &[u8]| content.read_stamp(file, number, page).unwrap_err().to_string();
            assert!(said(5, 13, &page).contains("something else"));
            assert!(said(6, 12, &page).contains("something else"));
            let mut torn = page.clone();
            torn[len / 2..].copy_from_slice(&before[len / 2..]);
            assert!(said(5, 12, &torn).contains("torn"));
            let mut wrong = page.clone();
            wrong[len / 2] ^= 0x80;
            assert!(said(5, 12, &wrong).contains("between"));
            assert!(said(5, 12, &page[..16]).contains("short"));
        }
    }
}
