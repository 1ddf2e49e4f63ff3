//! The taken-bits of one group: finding, taking and giving back runs of blocks.
//!
//! Pure data, no lock, no device. A bit that is 1 is a block that may not be given out, for whatever reason.

use super::ahead::Windows;
use crate::format::BLOCK_HEADER_SIZE;

/// Whether a run of bits of a bitmap block is set throughout.
pub(super) fn all_set(block: &[u8], first: u32, count: u32) -> bool {
    let bit = |at: u32| {
        let byte = BLOCK_HEADER_SIZE + at as usize / 8;
        block.get(byte).is_some_and(|byte| byte >> (at % 8) & 1 == 1)
    };
    let whole = first.div_ceil(8) as usize..((first + count) / 8) as usize;
    if whole.start >= whole.end {
        return (first..first + count).all(bit);
    }
    let (start, end) = (whole.start as u32 * 8, whole.end as u32 * 8);
    let bytes = BLOCK_HEADER_SIZE + whole.start..BLOCK_HEADER_SIZE + whole.end;
    block.get(bytes).is_some_and(|bytes| bytes.iter().all(|byte| *byte == u8::MAX))
        && (first..start).chain(end..first + count).all(bit)
}

/// A set of the blocks of a group.
#[derive(Debug, Clone)]
pub(super) struct Bits {
    words: Box<[u64]>,
    len: u32,
}

impl Bits {
    /// All of them taken.
    pub fn full(len: u32) -> Bits {
        Bits { words: vec![u64::MAX; len.div_ceil(64) as usize].into(), len }
    }

    /// The bits of a bitmap block; whatever lies past `len` counts as taken.
    pub fn from_block(block: &[u8], len: u32) -> Bits {
        let words = block[BLOCK_HEADER_SIZE..]
            .chunks_exact(8)
            .take(len.div_ceil(64) as usize)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("chunks of eight")))
            .collect();
        let mut bits = Bits { words, len };
        if !len.is_multiple_of(64)
            && let Some(last) = bits.words.last_mut()
        {
            *last |= u64::MAX << (len % 64);
        }
        bits
    }

    /// Makes the set longer; what is new is free.
    pub fn extend(&mut self, len: u32) {
        let old = self.len;
        let mut words = std::mem::take(&mut self.words).into_vec();
        words.resize(len.div_ceil(64) as usize, u64::MAX);
        // Taken, as what lies past the end is.
        self.words = words.into();
        self.len = len;
        self.give(old, len - old);
    }

    /// Number of blocks that are free.
    pub fn free(&self) -> u32 {
        self.words.iter().map(|word| word.count_zeros()).sum()
    }

    fn next(&self, from: u32, flip: u64) -> u32 {
        let mut index = (from / 64) as usize;
        let mut mask = u64::MAX << (from % 64);
        while let Some(word) = self.words.get(index) {
            let found = (word ^ flip) & mask;
            if found != 0 {
                return (index as u32 * 64 + found.trailing_zeros()).min(self.len);
            }
            mask = u64::MAX;
            index += 1;
        }
        self.len
    }

    /// The first free run at or after `from`, cut off at `most` blocks.
    pub fn next_run(&self, from: u32, most: u32) -> Option<(u32, u32)> {
        let start = self.next(from, u64::MAX);
        if start >= self.len {
            return None;
        }
        let end = self.next(start, 0);
        Some((start, (end - start).min(most)))
    }

    /// The first run of at least `want` blocks from `from` on, going round once; failing that the longest
    /// there is. The second value is cut off at `want`. What is `kept` does not count as free.
    pub fn find(&self, from: u32, want: u32, kept: &Windows) -> Option<(u32, u32)> {
        let mut best: Option<(u32, u32)> = None;
        for (low, high) in [(from, self.len), (0, from.min(self.len))] {
            let mut at = low;
            while at < high
                && let Some((start, len)) = self.next_run(at, self.len)
            {
                if start >= high {
                    break;
                }
                let (start, len) = match kept.outside(start..start + len) {
                    Ok(run) => (run.start, run.end - run.start),
                    Err(end) => {
                        at = end;
                        continue;
                    }
                };
                if len >= want {
                    return Some((start, want));
                }
                if best.is_none_or(|(_, longest)| len > longest) {
                    best = Some((start, len));
                }
                at = start + len;
            }
        }
        best
    }

    fn masks(first: u32, count: u32) -> impl Iterator<Item = (usize, u64)> {
        let end = first + count;
        (first / 64..end.div_ceil(64)).map(move |word| {
            let low = first.max(word * 64) % 64;
            let upto = end.min(word * 64 + 64) - word * 64;
            let mask = if upto == 64 { u64::MAX } else { (1 << upto) - 1 };
            (word as usize, mask & (u64::MAX << low))
        })
    }

    /// Takes a run.
    pub fn take(&mut self, first: u32, count: u32) {
        for (word, mask) in Bits::masks(first, count) {
            debug_assert!(self.words[word] & mask == 0, "a block was taken twice");
            self.words[word] |= mask;
        }
    }

    /// Gives a run back.
    pub fn give(&mut self, first: u32, count: u32) {
        for (word, mask) in Bits::masks(first, count) {
            debug_assert!(self.words[word] & mask == mask, "a block was given back twice");
            self.words[word] &= !mask;
        }
    }

    /// Whether every block of a run is taken.
    pub fn all_taken(&self, first: u32, count: u32) -> bool {
        first.checked_add(count).is_some_and(|end| end <= self.len)
            && Bits::masks(first, count).all(|(word, mask)| self.words[word] & mask == mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn empty(len: u32) -> Bits {
        Bits::from_block(&[0; 4096], len)
    }

    #[test]
    fn what_lies_past_the_end_is_never_found() {
        for len in [1, 63, 64, 65, 1000, 32_512] {
            let mut bits = empty(len);
            assert_eq!(bits.free(), len);
            assert_eq!(bits.find(0, u32::MAX, &Windows::default()), Some((0, len)));
            assert!(!bits.all_taken(0, 1));
            bits.take(0, len);
            assert_eq!(bits.free(), 0);
            assert_eq!(bits.find(0, 1, &Windows::default()), None);
            assert!(bits.all_taken(0, len) && !bits.all_taken(0, len + 1));
        }
    }

    #[test]
    fn a_longer_set_keeps_what_it_had_and_frees_what_is_new() {
        for (len, longer) in [(1, 2), (63, 65), (64, 128), (100, 101), (100, 32_512)] {
            let mut bits = empty(len);
            bits.take(0, len);
            bits.extend(longer);
            assert_eq!(bits.find(0, u32::MAX, &Windows::default()), Some((len, longer - len)));
            bits.take(len, longer - len);
            assert_eq!(bits.free(), 0);
            assert!(!bits.all_taken(longer - 1, 2));
        }
    }

    #[test]
    fn a_long_enough_run_is_preferred_to_a_nearer_short_one() {
        let mut bits = empty(200);
        bits.take(10, 5);
        bits.take(20, 100);
        assert_eq!(bits.find(12, 6, &Windows::default()), Some((120, 6)));
        assert_eq!(bits.find(12, 5, &Windows::default()), Some((15, 5)));
        assert_eq!(bits.find(150, 60, &Windows::default()), Some((120, 80 - 20)));
        assert_eq!(bits.find(150, 90, &Windows::default()), Some((120, 80)));
        assert_eq!(bits.next_run(17, 100), Some((17, 3)));
    }

    proptest! {
        #[test]
        fn agrees_with_a_vector(steps in proptest::collection::vec((0u32..300, 1u32..130, any::<bool>()), 1..80)) {
            let mut bits = empty(300);
            let mut model = vec![false; 300];
            for (from, want, find) in steps {
                if find {
                    let Some((start, len)) = bits.find(from, want, &Windows::default()) else {
                        prop_assert!(model.iter().all(|taken| *taken));
                        continue;
                    };
                    prop_assert!(len >= 1 && len <= want);
                    let run = start as usize..(start + len) as usize;
                    prop_assert!(model[run.clone()].iter().all(|taken| !taken));
                    bits.take(start, len);
                    model[run].fill(true);
                } else if bits.all_taken(from, want) {
                    let run = from as usize..(from + want) as usize;
                    prop_assert!(model[run.clone()].iter().all(|taken| *taken));
                    bits.give(from, want);
                    model[run].fill(false);
                }
                let mut block = vec![0u8; BLOCK_HEADER_SIZE];
                block.extend(bits.words.iter().flat_map(|word| word.to_le_bytes()));
                prop_assert_eq!(all_set(&block, from, want.min(300 - from)), bits.all_taken(from, want.min(300 - from)));
                prop_assert_eq!(bits.free() as usize, model.iter().filter(|taken| !**taken).count());
            }
        }
    }
}
