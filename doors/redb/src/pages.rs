//! Pages that are written and not in the file yet.

use crate::medium::Part;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::ops::Range;

/// Bytes of a page: those of redb, and of the file system.
pub(crate) const PAGE: usize = 4096;

/// The bytes of a page.
pub(crate) type Page = Box<[u8; PAGE]>;

/// Pages by their number.
#[derive(Debug, Default)]
pub(crate) struct Pages(BTreeMap<u64, Page>);

/// The pages that a range touches.
pub(crate) fn touched(offset: u64, len: usize) -> Range<u64> {
    let page = PAGE as u64;
    offset / page..offset.saturating_add(len as u64).div_ceil(page)
}

/// What of a range lies in a page: bytes of the page, and bytes of the range.
fn shared(page: u64, offset: u64, len: usize) -> (Range<usize>, Range<usize>) {
    let begin = page * PAGE as u64;
    let (from, skipped) =
        if begin < offset { ((offset - begin) as usize, 0) } else { (0, (begin - offset) as usize) };
    let count = (PAGE - from).min(len - skipped);
    (from..from + count, skipped..skipped + count)
}

impl Pages {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, page: u64) -> Option<&Page> {
        self.0.get(&page)
    }

    /// How many pages a write would add.
    pub(crate) fn missing(&self, offset: u64, len: usize) -> usize {
        let touched = touched(offset, len);
        (touched.end - touched.start) as usize - self.0.range(touched).count()
    }

    /// Writes; `fill` says what a page holds of which a part alone is written.
    pub(crate) fn write(
        &mut self,
        offset: u64,
        bytes: &[u8],
        mut fill: impl FnMut(u64) -> io::Result<Page>,
    ) -> io::Result<()> {
        for number in touched(offset, bytes.len()) {
            let (within, of_bytes) = shared(number, offset, bytes.len());
            let page = match self.0.entry(number) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(place) if within.len() == PAGE => place.insert(Box::new([0; PAGE])),
                Entry::Vacant(place) => place.insert(fill(number)?),
            };
            page[within].copy_from_slice(&bytes[of_bytes]);
        }
        Ok(())
    }

    /// Copies what it has of a range over what was read there.
    pub(crate) fn read_over(&self, offset: u64, into: &mut [u8]) {
        for (number, page) in self.0.range(touched(offset, into.len())) {
            let (within, of_range) = shared(*number, offset, into.len());
            into[of_range].copy_from_slice(&page[within]);
        }
    }

    /// The pages of a range that it has, as a layer of their own.
    pub(crate) fn part(&self, offset: u64, len: usize) -> Pages {
        Pages(self.0.range(touched(offset, len)).map(|(number, page)| (*number, page.clone())).collect())
    }

    /// Forgets what lies behind an end.
    pub(crate) fn cut(&mut self, len: u64) {
        self.0.retain(|number, _| number * (PAGE as u64) < len);
        if let Some(last) = self.0.get_mut(&(len / PAGE as u64)) {
            last[(len % PAGE as u64) as usize..].fill(0);
        }
    }

    /// Puts older pages under these.
    pub(crate) fn put_under(&mut self, older: &Pages) {
        for (number, page) in &older.0 {
            self.0.entry(*number).or_insert_with(|| page.clone());
        }
    }

    /// All of them, as far as a file of this length goes.
    pub(crate) fn parts(&self, len: u64) -> impl Iterator<Item = Part<'_>> {
        self.0.iter().filter_map(move |(number, page)| {
            let offset = number * PAGE as u64;
            let count = len.checked_sub(offset).filter(|rest| *rest > 0)?.min(PAGE as u64);
            Some((offset, &page[..count as usize]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(writes: &[(u64, &[u8])]) -> Pages {
        let mut pages = Pages::default();
        for (offset, bytes) in writes {
            pages.write(*offset, bytes, |_| Ok(Box::new([9; PAGE]))).expect("nothing is read");
        }
        pages
    }

    #[test]
    fn what_is_written_in_part_is_filled() {
        let pages = written(&[(4090, &[1; 10])]);
        assert_eq!((pages.len(), pages.missing(0, 3 * PAGE)), (2, 1));
        let mut seen = [0; 14];
        pages.read_over(4088, &mut seen);
        assert_eq!(seen, [9, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 9, 9]);
    }

    #[test]
    fn what_is_cut_reads_as_zeros_when_it_comes_back() {
        let mut pages = written(&[(0, &[1; 3 * PAGE])]);
        pages.cut(PAGE as u64 + 1);
        assert_eq!(pages.len(), 2);
        let mut seen = [5; 3];
        pages.read_over(PAGE as u64 - 1, &mut seen);
        assert_eq!(seen, [1, 1, 0]);
        let parts: Vec<(u64, usize)> =
            pages.parts(PAGE as u64 + 1).map(|(at, bytes)| (at, bytes.len())).collect();
        assert_eq!(parts, [(0, PAGE), (PAGE as u64, 1)]);
    }

    #[test]
    fn older_pages_go_under_newer_ones() {
        let mut newer = written(&[(0, &[2; PAGE])]);
        newer.put_under(&written(&[(0, &[1; 2 * PAGE])]));
        let mut seen = [0; 2];
        newer.part(0, 2 * PAGE).read_over(PAGE as u64 - 1, &mut seen);
        assert_eq!(seen, [2, 1]);
    }
}
