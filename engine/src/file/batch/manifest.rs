//! The manifest of a large batch: what lies where in the staging file, and where it goes.

use super::StagedFile;
use crate::format::{BatchHeader, BatchRun, MAX_BATCH_RUNS, Nid, U32, U64};
use crate::pages::PAGES_END;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a manifest at the most.
pub(crate) const MOST_MANIFEST_BYTES: u64 =
    (size_of::<BatchHeader>() + MAX_BATCH_RUNS * size_of::<BatchRun>()) as u64;

/// The runs of files all of whose pages are in the staging file, in ascending order.
pub(super) fn runs_of(files: &[StagedFile]) -> Vec<BatchRun> {
    let mut runs: Vec<BatchRun> = Vec::new();
    for file in files {
        let size = if file.end > file.inode.data().size() { file.end } else { 0 };
        for (&page, spilled) in &file.spilled {
            let source = spilled.source;
            if let Some(last) = runs.last_mut()
                && last.nid.get() == file.inode.nid()
                && last.target.get() + u64::from(last.pages.get()) == page
                && last.source.get() + u64::from(last.pages.get()) == source
            {
                last.pages.set(last.pages.get() + 1);
                continue;
            }
            runs.push(BatchRun {
                nid: U64::new(file.inode.nid()),
                generation: U32::new(file.inode.generation()),
                pages: U32::new(1),
                target: U64::new(page),
                source: U64::new(source),
                size: U64::new(size),
            });
        }
    }
    runs
}

/// The bytes.
pub(crate) fn encode(runs: &[BatchRun]) -> Vec<u8> {
    let mut header = BatchHeader { crc: U32::ZERO, count: U32::new(runs.len() as u32) };
    header.crc = U32::new(crc_of(&header, runs.as_bytes()));
    [header.as_bytes(), runs.as_bytes()].concat()
}

/// What the bytes say, of a staging file with so many pages before them; none if they do not verify, or say what cannot be.
pub(crate) fn manifest_runs(bytes: &[u8], pages: u64, spill_file: Nid) -> Option<Vec<BatchRun>> {
    let (header, rest) = BatchHeader::read_from_prefix(bytes).ok()?;
    if header.crc.get() != crc_of(&header, rest) {
        return None;
    }
    let runs = rest.chunks_exact(size_of::<BatchRun>());
    let runs: Vec<_> = runs.map(BatchRun::read_from_bytes).collect::<Result<_, _>>().ok()?;
    let fits = |run: &BatchRun| {
        let (count, target, source) = (u64::from(run.pages.get()), run.target.get(), run.source.get());
        count > 0
            && run.nid.get() != spill_file
            && target.checked_add(count).is_some_and(|end| end <= PAGES_END)
            && source.checked_add(count).is_some_and(|end| end <= pages)
            && run.size.get() <= PAGES_END * crate::pages::PAGE
    };
    let is_whole = runs.len() == header.count.get() as usize && rest.len() == size_of_val(runs.as_slice());
    (is_whole && runs.iter().all(fits)).then_some(runs)
}

fn crc_of(header: &BatchHeader, runs: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(header.count.as_bytes()), runs)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_does_not_verify() {
        let run = BatchRun {
            nid: U64::new(7),
            generation: U32::new(1),
            pages: U32::new(3),
            target: U64::new(9),
            source: U64::new(2),
            size: U64::new(0),
        };
        let bytes = encode(&[run, run]);
        assert_eq!(manifest_runs(&bytes, 5, 8), Some(vec![run, run]));
        assert_eq!(manifest_runs(&bytes, 5, 7), None, "it is for itself");
        assert_eq!(manifest_runs(&bytes, 4, 8), None, "it lies beyond the staged pages");
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(manifest_runs(&bad, 5, 8), None, "byte {at}");
        }
        assert_eq!(manifest_runs(&bytes[..bytes.len() - 1], 5, 8), None);
        assert_eq!(manifest_runs(&[], 5, 8), None);
    }
}
