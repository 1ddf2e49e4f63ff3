//! Recovery of absorbed data: what the journal holds of file content goes home, after metadata is redone.
//!
//! Records are taken in order of position; per byte the newest counts that no later supersede covers. They
//! are kept in memory, which the size of the ring bounds. What belongs to a file, or a generation of it, that
//! is no more is left out, and so is what lies beyond the recovered size.

use super::beyond::Pages;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Op, Request};
use crate::format::{DataKey, Nid, U32, U64};
use crate::planted::{self, Bug};
use crate::takeover::NewerHome;
use crate::{Error, Result};
use std::collections::BTreeMap;

/// Absorbed data of all files.
#[derive(Debug, Default)]
pub(crate) struct DataRedo {
    files: BTreeMap<(Nid, u32), BTreeMap<u64, Vec<u8>>>,
}

/// What redo asks of recovered metadata.
pub(crate) trait Resolve {
    /// The recovered size of a regular file, if this generation of it exists.
    fn size(&self, nid: Nid, generation: u32) -> Result<Option<u64>>;
    /// The block of a page of it, where that is allocated and written.
    fn block(&self, nid: Nid, page: u64) -> Result<Option<u64>>;
}

impl DataRedo {
    /// Nothing yet.
    pub(crate) fn new() -> DataRedo {
        DataRedo::default()
    }

    /// A data record. Bytes that do not match the key's length are damage.
    pub(crate) fn data(&mut self, key: &DataKey, bytes: &[u8]) -> Result<()> {
        let offset = key.offset.get();
        if key.len.get() != bytes.len() as u64 || offset.checked_add(bytes.len() as u64).is_none() {
            return Err(Error::Corrupt {
                what: "data record",
                place: format!("nid {}, offset {offset}", key.nid),
                detail: format!("{} bytes where {} are announced", bytes.len(), key.len),
            });
        }
        let older_counts = |file: &BTreeMap<u64, Vec<u8>>| {
            planted::is(Bug::OlderAbsorbedCounts) && file.contains_key(&offset)
        };
        let file = (key.nid.get(), key.generation.get());
        if !bytes.is_empty() && !self.files.get(&file).is_some_and(older_counts) {
            self.supersede(key);
            self.files.entry(file).or_default().insert(offset, bytes.to_vec());
        }
        Ok(())
    }

    /// Earlier data in the key's range count no more.
    pub(crate) fn supersede(&mut self, key: &DataKey) {
        let Some(file) = self.files.get_mut(&(key.nid.get(), key.generation.get())) else { return };
        let (start, end) = range(key);
        let touched: Vec<u64> = near(file, start, end).map(|(at, _)| *at).collect();
        for at in touched {
            let Some(bytes) = file.remove(&at) else { continue };
            let stop = at + bytes.len() as u64;
            if at < start {
                let keep = (start - at).min(bytes.len() as u64) as usize;
                file.insert(at, bytes[..keep].to_vec());
            }
            if stop > end {
                let from = end.max(at);
                file.insert(from, bytes[(from - at) as usize..].to_vec());
            }
        }
    }

    /// The pages that have bytes.
    pub(super) fn pages(&self) -> Pages {
        let page = |offset: u64| offset / BLOCK_SIZE as u64;
        let of_piece = |(at, bytes): (&u64, &Vec<u8>)| {
            page(*at)..=page(at.saturating_add((bytes.len() as u64).saturating_sub(1)))
        };
        let of_file = |pieces: &BTreeMap<u64, Vec<u8>>| pieces.iter().flat_map(of_piece).collect();
        self.files.iter().map(|(file, pieces)| (*file, of_file(pieces))).collect()
    }

    /// The files that have any, each with its generation.
    pub(super) fn files(&self) -> impl Iterator<Item = (Nid, u32)> {
        self.files.iter().filter(|(_, pieces)| !pieces.is_empty()).map(|(file, _)| *file)
    }

    /// The page lies in place in a newer form than what was read so far.
    pub(crate) fn is_home(&mut self, home: &NewerHome) {
        let Some(offset) = home.page.checked_mul(BLOCK_SIZE as u64) else { return };
        self.supersede(&DataKey {
            nid: U64::new(home.nid),
            offset: U64::new(offset),
            len: U64::new(BLOCK_SIZE as u64),
            generation: U32::new(home.generation),
            reserved: U32::ZERO,
        });
    }

    /// Whether there is anything to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.values().all(BTreeMap::is_empty)
    }

    /// Writes everything home and flushes; gives the number of pages written. To be done after metadata is
    /// redone and before the checkpoint that ends recovery. Where the metadata of a file are damaged, the other
    /// files are written all the same, and the damage is the answer.
    pub(crate) fn finish(self, device: &dyn BlockDevice, resolve: &dyn Resolve) -> Result<u64> {
        let mut written = Ok(0);
        for ((nid, generation), pieces) in self.files {
            match finish_file(device, resolve, nid, generation, pieces) {
                Ok(pages) => written = written.map(|written| written + pages),
                Err(e @ Error::Corrupt { .. }) => written = written.and(Err(e)),
                Err(e) => return Err(e),
            }
        }
        device.flush()?;
        written
    }
}

/// Where the key's range begins and ends.
fn range(key: &DataKey) -> (u64, u64) {
    (key.offset.get(), key.offset.get().saturating_add(key.len.get()))
}

/// The pieces that may reach into a range: they do not overlap, so only the last before its start can.
fn near(file: &BTreeMap<u64, Vec<u8>>, start: u64, end: u64) -> impl Iterator<Item = (&u64, &Vec<u8>)> {
    let first = file.range(..start).next_back().map_or(start, |(at, _)| *at);
    file.range(first..end.max(first))
}

/// Writes the pieces of one file; the number of pages.
fn finish_file(
    device: &dyn BlockDevice,
    resolve: &dyn Resolve,
    nid: Nid,
    generation: u32,
    pieces: BTreeMap<u64, Vec<u8>>,
) -> Result<u64> {
    let Some(size) = resolve.size(nid, generation)? else { return Ok(0) };
    let mut written = 0;
    let mut pages: BTreeMap<u64, Vec<(usize, Vec<u8>)>> = BTreeMap::new();
    for (at, bytes) in pieces {
        let keep = size.saturating_sub(at).min(bytes.len() as u64) as usize;
        let mut done = 0;
        while done < keep {
            let offset = at + done as u64;
            let within = (offset % BLOCK_SIZE as u64) as usize;
            let part = (BLOCK_SIZE - within).min(keep - done);
            let entry = pages.entry(offset / BLOCK_SIZE as u64).or_default();
            entry.push((within, bytes[done..done + part].to_vec()));
            done += part;
        }
    }
    for (page, parts) in pages {
        // A hole: what was absorbed there is gone for good, by a record without a supersede of its own.
        let Some(block) = resolve.block(nid, page)? else { continue };
        let whole = parts.len() == 1 && parts[0].1.len() == BLOCK_SIZE;
        let mut buf = IoBuf::zeroed(BLOCK_SIZE);
        if !whole {
            let read = Request { op: Op::Read, block, buf, cause: Cause::Recovery };
            buf = device.run(vec![read])?.pop().expect("one completion a request");
        }
        for (within, bytes) in parts {
            buf[within..within + bytes.len()].copy_from_slice(&bytes);
        }
        // A page whose file ends in it: what lies beyond was never written.
        let valid = size.saturating_sub(page * BLOCK_SIZE as u64).min(BLOCK_SIZE as u64) as usize;
        buf[valid..].fill(0);
        device.run(vec![Request { op: Op::Write, block, buf, cause: Cause::Recovery }])?;
        written += 1;
    }
    Ok(written)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn key(offset: u64, len: u64) -> DataKey {
        DataKey {
            nid: U64::new(5),
            offset: U64::new(offset),
            len: U64::new(len),
            generation: U32::new(1),
            reserved: U32::ZERO,
        }
    }

    #[test]
    fn the_newest_unsuperseded_byte_counts() {
        use rand::{Rng, SeedableRng};
        for seed in 0..200 {
            let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
            let mut redo = DataRedo::new();
            let mut model = [None; 64];
            for step in 0..20u8 {
                let at = rng.random_range(0..60usize);
                let len = rng.random_range(1..=64 - at);
                if rng.random_bool(0.7) {
                    redo.data(&key(at as u64, len as u64), &vec![step; len]).expect("well formed");
                    model[at..at + len].fill(Some(step));
                } else {
                    redo.supersede(&key(at as u64, len as u64));
                    model[at..at + len].fill(None);
                }
            }
            let mut seen = [None; 64];
            for (at, bytes) in redo.files.remove(&(5, 1)).unwrap_or_default() {
                for (i, byte) in bytes.iter().enumerate() {
                    assert!(seen[at as usize + i].replace(*byte).is_none(), "pieces overlap");
                }
            }
            assert_eq!(seen, model, "seed {seed}");
        }
    }
}
