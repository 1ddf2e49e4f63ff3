//! A range of bytes and how it is used.

use std::ops::Range;

use super::Access;

/// Bytes of a segment, as a power of two. Small, so that threads in neighbouring blocks of one file part
/// soon; large enough that a request of usual size is in few segments.
const SEGMENT_SHIFT: u32 = 14;

/// A range that is asked for or held. It is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    start: u64,
    end: u64,
    access: Access,
}

impl Span {
    #[inline]
    pub(super) fn new(range: Range<u64>, access: Access) -> Self {
        // An empty range is taken as one byte; the last byte that can be locked is u64::MAX - 1.
        let start = range.start.min(u64::MAX - 1);
        Span { start, end: range.end.max(start + 1), access }
    }

    #[inline]
    pub(super) fn access(&self) -> Access {
        self.access
    }

    #[cfg(feature = "baselines")]
    #[inline]
    pub(super) fn bytes(&self) -> Range<u64> {
        self.start..self.end
    }

    #[inline]
    pub(super) fn overlaps(&self, other: &Span) -> bool {
        self.start < other.end && other.start < self.end
    }

    #[inline]
    pub(super) fn excludes(&self, other: &Span) -> bool {
        (self.access == Access::Write || other.access == Access::Write) && self.overlaps(other)
    }

    /// The set of slots, of `count` (a power of two, 64 at most), that its segments fall into.
    #[inline]
    pub(super) fn slots(&self, count: usize) -> u64 {
        let all = u64::MAX >> (64 - count);
        let (first, last) = (self.start >> SEGMENT_SHIFT, (self.end - 1) >> SEGMENT_SHIFT);
        if last - first >= count as u64 {
            return all;
        }
        (first..=last).fold(0, |set, segment| set | 1 << slot_of(segment, count))
    }

    /// The slot of its segment, if it has one alone.
    #[inline]
    pub(super) fn only_slot(&self, count: usize) -> Option<usize> {
        let first = self.start >> SEGMENT_SHIFT;
        ((self.end - 1) >> SEGMENT_SHIFT == first).then(|| slot_of(first, count))
    }

    /// The span in one word, if it is one of whole pages, and short or without end: what files ask for.
    #[inline]
    pub(super) fn pack(&self) -> Option<u64> {
        let write = if self.access == Access::Write { WRITE } else { 0 };
        let word = |pages| (self.start >> PAGE_SHIFT) << START_SHIFT | pages << PAGES_SHIFT | PACKED | write;
        let pages = (self.end - self.start) >> PAGE_SHIFT;
        if (self.start | self.end) & (PAGE - 1) == 0 {
            return (pages < WITHOUT_END).then(|| word(pages));
        }
        (self.end == u64::MAX && self.start.is_multiple_of(PAGE)).then(|| word(WITHOUT_END))
    }

    /// The span of a word that [`Span::pack`] made.
    #[inline]
    pub(super) fn unpack(word: u64) -> Span {
        let start = (word >> START_SHIFT) << PAGE_SHIFT;
        let end = match (word >> PAGES_SHIFT) & WITHOUT_END {
            WITHOUT_END => u64::MAX,
            pages => start + (pages << PAGE_SHIFT),
        };
        let access = if word & WRITE != 0 { Access::Write } else { Access::Read };
        Span { start, end, access }
    }
}

/// The slot, of `count`, that a segment falls into.
#[inline]
fn slot_of(segment: u64, count: usize) -> usize {
    // Fibonacci hashing: neighbours go apart, and so do equal offsets in regions of round sizes.
    let hash = segment.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    hash as usize & (count - 1)
}

/// Bits 0 and 1 are left to [`super::slot`].
pub(super) const PACKED: u64 = 1 << 2;
const WRITE: u64 = 1 << 3;
const PAGES_SHIFT: u32 = 4;
const WITHOUT_END: u64 = 0xff;
const START_SHIFT: u32 = 12;
const PAGE_SHIFT: u32 = 12;
const PAGE: u64 = 1 << PAGE_SHIFT;

/// The members of a set of slots, ascending.
#[inline]
pub(super) fn members(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(next)
    })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn spans_that_overlap_share_a_slot() {
        for count in [2, 4, 64] {
            let all = Span::new(0..u64::MAX, Access::Read).slots(count);
            assert_eq!(all.count_ones() as usize, count);
            for start in (0..1 << 20).step_by(5000) {
                let long = Span::new(start..start + 300_000, Access::Read).slots(count);
                let short = Span::new(start + 200_000..start + 200_001, Access::Read).slots(count);
                assert_eq!(short.count_ones(), 1);
                assert_eq!(long & short, short);
                assert_eq!(all & long, long);
                let only = Span::new(start..start + 5000, Access::Read);
                let slot = only.only_slot(count).map(|slot| 1 << slot);
                assert_eq!(slot, (start % 16384 + 5000 <= 16384).then(|| only.slots(count)));
            }
        }
        assert!(members(0b1010_0001).eq([0, 5, 7]));
        assert_eq!(members(u64::MAX).count(), 64);
    }

    #[test]
    fn spans_of_whole_pages_come_back_from_their_words() {
        let last = !(PAGE - 1);
        for access in [Access::Read, Access::Write] {
            for range in [0..PAGE, 5 * PAGE..6 * PAGE, PAGE..255 * PAGE, 0..u64::MAX, last..u64::MAX] {
                let span = Span::new(range, access);
                let word = span.pack().expect("whole pages");
                assert_eq!(word & (PACKED | (PACKED - 1)), PACKED);
                assert_eq!(Span::unpack(word), span);
            }
            for range in [0..1, 1..PAGE, PAGE..256 * PAGE, 0..last, 7..u64::MAX, u64::MAX..u64::MAX] {
                assert_eq!(Span::new(range, access).pack(), None);
            }
        }
    }
}
