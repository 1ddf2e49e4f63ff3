//! Which bits of bitmap pages an operation sets or clears, so that it is quick to see whether it does so with these.
//!
//! One record can free more than a hundred thousand runs, and each free asks for those before it.

use std::collections::BTreeMap;
use std::ops::Range;

/// Runs of bits: of a page, from a bit, up to another. None meets the next one.
#[derive(Default)]
pub(super) struct Marks(BTreeMap<(usize, u32), u32>);

impl Marks {
    /// None any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds bits of a page.
    pub fn add(&mut self, page: usize, bits: Range<u32>) {
        let (mut start, mut end) = (bits.start, bits.end);
        while let Some((&(of, from), &upto)) = self.0.range(..=(page, end)).next_back()
            && of == page
            && upto >= start
        {
            self.0.remove(&(of, from));
            (start, end) = (start.min(from), end.max(upto));
        }
        self.0.insert((page, start), end);
    }

    /// Whether any of these bits is among them.
    pub fn meet(&self, page: usize, bits: &Range<u32>) -> bool {
        let before_end = self.0.range(..(page, bits.end)).next_back();
        before_end.is_some_and(|((of, _), upto)| *of == page && *upto > bits.start)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_are_met_that_were_added_and_no_others(
            runs in proptest::collection::vec((0usize..3, 0u32..120, 1u32..12), 0..60),
            asked in proptest::collection::vec((0usize..3, 0u32..130, 1u32..12), 40),
        ) {
            let (mut marks, mut all) = (Marks::default(), Vec::new());
            for (page, first, count) in runs {
                marks.add(page, first..first + count);
                all.extend((first..first + count).map(|bit| (page, bit)));
                let mut pieces = marks.0.iter().zip(marks.0.iter().skip(1));
                prop_assert!(pieces.all(|(a, b)| a.0.0 != b.0.0 || *a.1 < b.0.1), "pieces are apart");
            }
            for (page, first, count) in asked {
                let among = (first..first + count).any(|bit| all.contains(&(page, bit)));
                prop_assert_eq!(marks.meet(page, &(first..first + count)), among);
            }
        }
    }

    #[test]
    fn neighbours_are_one_piece() {
        let mut marks = Marks::default();
        (0..1000).for_each(|n| marks.add(1, n..n + 1));
        assert_eq!(marks.0.len(), 1);
        marks.clear();
        assert!(!marks.meet(1, &(0..1000)));
    }
}
