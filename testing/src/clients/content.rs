//! Programs whose files' content is judged: saved anew, rewritten, appended to, written by pages.

use super::Client;
use crate::oracle::Kept;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Saves a file as editors do: anew under another name, then renamed over the old one; with fsync before, with fsync
/// of the directory after, or without any.
pub(super) struct Saver {
    dir: PathBuf,
    kept: Kept,
    syncs: bool,
    /// The version that is being saved.
    next: u64,
    /// The last version whose rename has returned.
    returned: u64,
    /// The last version that was synced after that; 0 is none.
    durable: u64,
}

/// What a version of a file holds.
fn content(version: u64) -> Vec<u8> {
    let len = 1 + version * 7919 % 120_000;
    (0..len).map(|at| (version * 31 + at * 7 + at / 512) as u8).collect()
}

impl Saver {
    pub(super) fn new(dir: PathBuf, kept: Kept, syncs: bool) -> Saver {
        Saver { dir, kept, syncs, next: 1, returned: 0, durable: 0 }
    }

    fn path(&self) -> PathBuf {
        self.dir.join("saved")
    }
}

impl Client for Saver {
    fn step(&mut self) -> io::Result<()> {
        let new = self.dir.join("new");
        let mut file = File::create(&new)?;
        file.write_all(&content(self.next))?;
        if self.syncs && self.next % 3 == 1 {
            file.sync_all()?;
        }
        drop(file);
        fs::rename(&new, self.path())?;
        self.returned = self.next;
        if self.syncs && self.next % 3 == 2 {
            File::open(&self.dir)?.sync_all()?;
            self.durable = self.next;
        }
        self.next += 1;
        Ok(())
    }

    fn judge(&self) -> Result<(), String> {
        let least = if self.kept == Kept::All { self.returned } else { self.durable };
        match fs::read(self.path()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && least == 0 => Ok(()),
            Err(e) => Err(format!("the saved file: {e}; version {least} was kept")),
            Ok(found) if (least.max(1)..=self.next).any(|v| content(v) == found) => Ok(()),
            Ok(found) => {
                let older = (1..least).find(|v| content(*v) == found);
                Err(format!(
                    "the saved file has {} bytes that are no version from {least} to {}: {older:?}",
                    found.len(),
                    self.next
                ))
            }
        }
    }
}

/// Empties a file and writes it anew, without any sync: whoever does so finds the old content or the new.
pub(super) struct Rewriter {
    path: PathBuf,
    /// The version that is being written.
    next: u64,
}

impl Rewriter {
    pub(super) fn new(dir: &Path) -> io::Result<Rewriter> {
        let path = dir.join("rewritten");
        let mut file = File::create_new(&path)?;
        file.write_all(&content(0))?;
        file.sync_all()?;
        Ok(Rewriter { path, next: 1 })
    }
}

impl Client for Rewriter {
    fn step(&mut self) -> io::Result<()> {
        fs::write(&self.path, content(self.next))?;
        self.next += 1;
        Ok(())
    }

    fn judge(&self) -> Result<(), String> {
        let found = fs::read(&self.path).map_err(|e| format!("the rewritten file: {e}"))?;
        if (0..=self.next).any(|version| content(version) == found) {
            return Ok(());
        }
        Err(format!("the rewritten file has {} bytes that are no version up to {}", found.len(), self.next))
    }
}

/// Appends records to a log and syncs it now and then.
pub(super) struct Appender {
    path: PathBuf,
    /// Records whose write has returned.
    written: usize,
    /// Records that were there when the last sync began that returned.
    synced: usize,
}

const RECORD: usize = 1000;

impl Appender {
    pub(super) fn new(dir: &Path) -> Appender {
        Appender { path: dir.join("log"), written: 0, synced: 0 }
    }

    fn byte(at: usize) -> u8 {
        (at / RECORD % 251) as u8 + 1
    }
}

impl Client for Appender {
    fn step(&mut self) -> io::Result<()> {
        let mut log = OpenOptions::new().append(true).create(true).open(&self.path)?;
        log.write_all(&[Appender::byte(self.written * RECORD); RECORD])?;
        self.written += 1;
        if self.written.is_multiple_of(5) {
            if self.written.is_multiple_of(2) {
                log.sync_all()?
            } else {
                log.sync_data()?
            }
            self.synced = self.written;
        }
        Ok(())
    }

    fn judge(&self) -> Result<(), String> {
        let found = match fs::read(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.synced == 0 => return Ok(()),
            found => found.map_err(|e| format!("the log: {e}"))?,
        };
        let (least, most) = (self.synced * RECORD, (self.written + 1) * RECORD);
        if !(least..=most).contains(&found.len()) {
            return Err(format!("the log has {} bytes, not {least} to {most}", found.len()));
        }
        let wrong = |(at, byte): &(usize, &u8)| **byte != Appender::byte(*at) && (*at < least || **byte != 0);
        match found.iter().enumerate().find(wrong) {
            Some((at, byte)) => Err(format!("byte {at} of the log is {byte}; {least} bytes were synced")),
            None => Ok(()),
        }
    }
}

/// Writes pages of one file with O_DSYNC: each that returned is there.
pub(super) struct Database {
    path: PathBuf,
    file: File,
    draw: StdRng,
    /// The number of the last write of each page that has returned.
    pages: [u32; 16],
    /// The write that is under way: page and number.
    under_way: Option<(usize, u32)>,
}

const PAGE: usize = 4096;
const SECTOR: usize = 512;

impl Database {
    pub(super) fn new(dir: &Path, seed: u64) -> io::Result<Database> {
        let path = dir.join("pages");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .custom_flags(libc::O_DSYNC)
            .open(&path)?;
        let mut new =
            Database { path, file, draw: StdRng::seed_from_u64(seed), pages: [0; 16], under_way: None };
        for page in 0..new.pages.len() {
            new.write(page, 1)?;
        }
        Ok(new)
    }

    fn content(page: usize, number: u32) -> Vec<u8> {
        (0..PAGE / 8)
            .flat_map(|at| [number, (page * PAGE + at * 8) as u32])
            .flat_map(u32::to_le_bytes)
            .collect()
    }

    fn write(&mut self, page: usize, number: u32) -> io::Result<()> {
        self.under_way = Some((page, number));
        self.file.write_all_at(&Database::content(page, number), (page * PAGE) as u64)?;
        self.under_way = None;
        self.pages[page] = number;
        Ok(())
    }
}

impl Client for Database {
    fn step(&mut self) -> io::Result<()> {
        let page = self.draw.random_range(0..self.pages.len());
        self.write(page, self.pages[page] + 1)
    }

    fn judge(&self) -> Result<(), String> {
        let found = fs::read(&self.path).map_err(|e| format!("the pages: {e}"))?;
        if found.len() != self.pages.len() * PAGE {
            return Err(format!("the pages have {} bytes", found.len()));
        }
        for (page, (found, number)) in found.chunks(PAGE).zip(self.pages).enumerate() {
            let old = Database::content(page, number);
            let new = self.under_way.filter(|(other, _)| *other == page);
            let new = new.map_or_else(|| old.clone(), |(_, number)| Database::content(page, number));
            let sectors = found.chunks(SECTOR).zip(old.chunks(SECTOR).zip(new.chunks(SECTOR)));
            if let Some(at) = sectors.into_iter().position(|(found, (old, new))| found != old && found != new)
            {
                return Err(format!(
                    "sector {at} of page {page} is neither write {number} nor the one after"
                ));
            }
        }
        Ok(())
    }
}
