//! A drive with a volatile write cache: what was written lies in memory until a flush, and a loss of power takes
//! it, or leaves any part of it. A file holds what was flushed.
//!
//! Promised: after [`Drive::cut`] the file has each flush that was answered, and of what was written since, those
//! sectors that a coin leaves there, each as it was written last; nothing is read or written any more. Left to
//! `narufs_engine::sim`, which goes through states one by one: an older version of a sector that was written twice.

pub mod faults;
pub mod shown;
pub mod told;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What a drive writes whole, or not at all.
pub const SECTOR: usize = 512;

/// A full cache goes to the file by itself, as drives do: so many sectors (64 MiB).
const FULL: usize = (64 << 20) / SECTOR;

type Sector = [u8; SECTOR];

/// The drive; see above.
#[derive(Debug)]
pub struct Drive {
    flushed: File,
    size: u64,
    /// What is not flushed, by the sector's number.
    cache: BTreeMap<u64, Box<Sector>>,
    has_power: bool,
    written: Written,
}

/// How a write reaches the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// With the next flush.
    Cached,
    /// Before it is answered (FUA).
    Forced,
}

/// What has reached the medium in order: sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// By flushes.
    pub flushed: u64,
    /// By forced unit access.
    pub forced: u64,
}

/// What a loss of power found: sectors.
#[derive(Debug, PartialEq, Eq)]
pub struct Lost {
    /// Not flushed.
    pub pending: usize,
    /// Those of them that are there nevertheless.
    pub kept: usize,
}

impl Drive {
    /// Over a file that holds what was flushed, with an empty cache.
    ///
    /// # Errors
    /// Those of the calls, and a size that is no number of sectors.
    pub fn new(flushed: File) -> io::Result<Drive> {
        let size = flushed.metadata()?.len();
        if !size.is_multiple_of(SECTOR as u64) {
            return Err(io::Error::other("a drive's size is a number of sectors of 512 bytes"));
        }
        Ok(Drive { flushed, size, cache: BTreeMap::new(), has_power: true, written: Written::default() })
    }

    /// Its bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Sectors that are not flushed.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.cache.len()
    }

    /// What has reached the medium so far.
    #[must_use]
    pub fn written(&self) -> Written {
        self.written
    }

    fn powered(&self) -> io::Result<()> {
        if self.has_power { Ok(()) } else { Err(io::Error::other("the drive has no power")) }
    }

    /// The sectors of a range that ends with the drive at the latest: number, first byte in it, bytes of it.
    fn sectors(&self, offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> + use<> {
        let end = self.size.min(offset.saturating_add(len as u64));
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let within = (at % SECTOR as u64) as usize;
            let count = (SECTOR - within).min((end - at) as usize);
            let number = at / SECTOR as u64;
            at += count as u64;
            Some((number, within, count))
        })
    }

    /// The bytes of a range, as they were written last.
    ///
    /// # Errors
    /// Those of the file, and after [`Drive::cut`].
    pub fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.powered()?;
        let count = len.min(self.size.saturating_sub(offset) as usize);
        let mut bytes = vec![0; count];
        self.flushed.read_exact_at(&mut bytes, offset)?;
        let mut done = 0;
        for (number, within, count) in self.sectors(offset, len) {
            if let Some(sector) = self.cache.get(&number) {
                bytes[done..done + count].copy_from_slice(&sector[within..within + count]);
            }
            done += count;
        }
        Ok(bytes)
    }

    /// Writes into the cache; how many bytes there was room for. With forced unit access these sectors, and no
    /// others, survive a loss of power.
    ///
    /// # Errors
    /// Those of the file, and after [`Drive::cut`].
    pub fn write(&mut self, offset: u64, bytes: &[u8], access: Access) -> io::Result<usize> {
        self.powered()?;
        let mut done = 0;
        for (number, within, count) in self.sectors(offset, bytes.len()) {
            let sector = match self.cache.entry(number) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    let mut sector = Box::new([0; SECTOR]);
                    if count < SECTOR {
                        self.flushed.read_exact_at(&mut sector[..], number * SECTOR as u64)?;
                    }
                    entry.insert(sector)
                }
            };
            sector[within..within + count].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
        if access == Access::Forced {
            for (number, ..) in self.sectors(offset, bytes.len()) {
                if let Some(sector) = self.cache.remove(&number) {
                    self.flushed.write_all_at(&sector[..], number * SECTOR as u64)?;
                    self.written.forced += 1;
                }
            }
        }
        if self.cache.len() >= FULL {
            self.flush()?;
        }
        Ok(done)
    }

    /// Everything that was written survives a loss of power.
    ///
    /// # Errors
    /// Those of the file, and after [`Drive::cut`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.powered()?;
        // The machine below goes on: its cache is as good as the medium.
        for (number, sector) in &self.cache {
            self.flushed.write_all_at(&sector[..], number * SECTOR as u64)?;
        }
        self.written.flushed += self.cache.len() as u64;
        self.cache.clear();
        Ok(())
    }

    /// Takes the power away: everything that was not flushed is lost, or, with a seed, some of it.
    ///
    /// # Errors
    /// Those of the file.
    pub fn cut(&mut self, seed: Option<u64>) -> io::Result<Lost> {
        self.has_power = false;
        let mut lost = Lost { pending: self.cache.len(), kept: 0 };
        if let Some(seed) = seed {
            let mut random = StdRng::seed_from_u64(seed);
            for (number, sector) in &self.cache {
                if random.random() {
                    self.flushed.write_all_at(&sector[..], number * SECTOR as u64)?;
                    lost.kept += 1;
                }
            }
        }
        self.cache.clear();
        Ok(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::Access::{Cached, Forced};
    use super::*;

    fn drive(sectors: u64) -> (File, Drive) {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(sectors * SECTOR as u64).expect("room");
        (file.try_clone().expect("a descriptor"), Drive::new(file).expect("a drive"))
    }

    fn medium(file: &File, sector: u64) -> u8 {
        let mut byte = [0];
        file.read_exact_at(&mut byte, sector * SECTOR as u64).expect("it is there");
        byte[0]
    }

    #[test]
    fn a_cut_leaves_what_was_flushed_and_nothing_else() {
        let (file, mut drive) = drive(4);
        drive.write(0, &[1; 2 * SECTOR], Cached).expect("it has power");
        drive.flush().expect("it has power");
        drive.write(SECTOR as u64, &[2; 2 * SECTOR], Cached).expect("it has power");
        assert_eq!(drive.read(SECTOR as u64, 1).expect("it has power"), [2]);
        assert_eq!(drive.cut(None).expect("a file"), Lost { pending: 2, kept: 0 });
        assert_eq!([0, 1, 2].map(|n| medium(&file, n)), [1, 1, 0]);
        assert!(drive.read(0, 1).is_err() && drive.write(0, &[3], Cached).is_err() && drive.flush().is_err());
        assert_eq!(medium(&file, 0), 1);
    }

    #[test]
    fn with_a_seed_a_cut_leaves_some_sectors_whole() {
        let (file, mut drive) = drive(64);
        drive.write(0, &[1; 64 * SECTOR], Cached).expect("it has power");
        let lost = drive.cut(Some(1)).expect("a file");
        assert_eq!(lost.pending, 64);
        assert_eq!((0..64).filter(|n| medium(&file, *n) == 1).count(), lost.kept);
        assert!(lost.kept > 0 && lost.kept < 64, "{lost:?}");
    }

    #[test]
    fn parts_of_sectors_are_written_into_what_is_there_and_nothing_behind_the_end() {
        let (file, mut drive) = drive(2);
        drive.write(0, &[1; 2 * SECTOR], Cached).expect("it has power");
        drive.flush().expect("it has power");
        assert_eq!(drive.write(SECTOR as u64 - 1, &[7; 2], Cached).expect("it has power"), 2);
        assert_eq!(drive.read(SECTOR as u64 - 2, 4).expect("it has power"), [1, 7, 7, 1]);
        assert_eq!(drive.write(2 * SECTOR as u64 - 1, &[9; 9], Cached).expect("it has power"), 1);
        assert_eq!(drive.write(9 * SECTOR as u64, &[9], Cached).expect("it has power"), 0);
        assert!(drive.read(9 * SECTOR as u64, 1).expect("it has power").is_empty());
        drive.flush().expect("it has power");
        assert_eq!([0, 1].map(|n| medium(&file, n)), [1, 7]);
    }

    #[test]
    fn forced_unit_access_is_for_its_own_sectors() {
        let (file, mut drive) = drive(3);
        drive.write(0, &[1; 3 * SECTOR], Cached).expect("it has power");
        drive.write(SECTOR as u64 + 1, &[2], Forced).expect("it has power");
        assert_eq!(drive.cut(None).expect("a file"), Lost { pending: 2, kept: 0 });
        assert_eq!(drive.written(), Written { flushed: 0, forced: 1 });
        assert_eq!([0, 1, 2].map(|n| medium(&file, n)), [0, 1, 0]);
    }
}
