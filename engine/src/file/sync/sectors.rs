//! Which sectors of a page have changed: a page that is written anew as a whole, a database's say, mostly differs from what
//! was there in few of them, and the others need no second copy in the journal.

use crate::device::BLOCK_SIZE;
use std::ops::Range;

/// The grain at which unsynced writes may survive a crash.
pub(super) const SECTOR: usize = 512;

/// Some sectors of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::file) struct Sectors(u8);

const _: () = assert!(BLOCK_SIZE / SECTOR == u8::BITS as usize);

impl Sectors {
    /// Those in which a page that holds `before` changes by `bytes` at `offset`; the first of them if none does, so that
    /// what was written is never nothing.
    pub fn that_change(before: &[u8], offset: usize, bytes: &[u8]) -> Sectors {
        let end = offset + bytes.len();
        let mut changed = 0;
        for sector in offset / SECTOR..end.div_ceil(SECTOR) {
            let part = offset.max(sector * SECTOR)..end.min((sector + 1) * SECTOR);
            if before[part.clone()] != bytes[part.start - offset..part.end - offset] {
                changed |= 1 << sector;
            }
        }
        Sectors(if changed == 0 { 1 << (offset / SECTOR) } else { changed })
    }

    /// Their bytes in the page, neighbours as one.
    pub fn runs(self) -> impl Iterator<Item = Range<usize>> {
        let mut rest = u16::from(self.0);
        std::iter::from_fn(move || {
            let start = (rest != 0).then(|| rest.trailing_zeros())?;
            let count = (rest >> start).trailing_ones();
            rest &= !(((1 << count) - 1) << start);
            Some(start as usize * SECTOR..(start + count) as usize * SECTOR)
        })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Runs, as where they begin and end.
    fn changed(offset: usize, bytes: &[u8], at: &[usize]) -> Vec<(usize, usize)> {
        let mut before = vec![0; BLOCK_SIZE];
        before[offset..offset + bytes.len()].copy_from_slice(bytes);
        for at in at {
            before[*at] ^= 1;
        }
        Sectors::that_change(&before, offset, bytes).runs().map(|run| (run.start, run.end)).collect()
    }

    #[test]
    fn neighbours_that_change_are_one_run() {
        let page = [7; BLOCK_SIZE];
        assert_eq!(changed(0, &page, &[0, 600, 4095]), [(0, 1024), (3584, 4096)]);
        assert_eq!(changed(0, &page, &(0..BLOCK_SIZE).collect::<Vec<_>>()), [(0, 4096)]);
        // Beside what is written nothing counts, and where nothing changes the first sector stands for it.
        assert_eq!(changed(700, &[7; 1000], &[100, 1699, 2000]), [(1536, 2048)]);
        assert_eq!(changed(700, &[7; 1000], &[]), [(512, 1024)]);
        assert_eq!(changed(4095, &[7], &[4095]), [(3584, 4096)]);
    }

    proptest::proptest! {
        #[test]
        fn what_changes_is_in_a_run(
            offset in 0..BLOCK_SIZE, len in 1..BLOCK_SIZE, at in proptest::collection::vec(0..BLOCK_SIZE, 0..5),
        ) {
            let bytes = vec![9; len.min(BLOCK_SIZE - offset)];
            let runs = changed(offset, &bytes, &at);
            let mut times = [0u32; BLOCK_SIZE];
            at.iter().for_each(|at| times[*at] += 1);
            for (at, times) in times.iter().enumerate().skip(offset).take(bytes.len()) {
                let differs = times % 2 == 1;
                proptest::prop_assert!(!differs || runs.iter().any(|(start, end)| (*start..*end).contains(&at)), "{}: {:?}", at, runs);
            }
            proptest::prop_assert!(runs.windows(2).all(|two| two[0].1 < two[1].0), "{:?}", runs);
        }
    }
}
