//! What is done on a mount whose drive may fail, and what must be there afterwards.

use crate::over::{MEMORY, Over};
use narufs_testing::content::Content;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of a file that memory has no room for, and the piece that one call moves.
const BIG: usize = 3 * MEMORY;
const PIECE: usize = 1 << 20;
const SMALL: usize = 300_000;
const ROUNDS: u8 = 2;

/// A file that is open, and what it may hold.
struct Known {
    name: &'static str,
    file: File,
    content: Content,
    /// Whether it surely holds what its content says; not after a write that failed.
    sure: bool,
}

/// The files of a mount.
pub struct Files {
    small: Known,
    big: Known,
    /// What the name that others are renamed to may lead to, each whole.
    renamed: Vec<Vec<u8>>,
    /// Directories that are durable.
    directories: Vec<String>,
    /// What failed, as it was told.
    pub told: Vec<String>,
}

/// Bytes that differ from place to place and from one another.
fn bytes(len: usize, kind: u8) -> Vec<u8> {
    (0..len).map(|at| kind.wrapping_add((at / 512) as u8).wrapping_mul(31) | 1).collect()
}

fn opened(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

impl Known {
    fn new(over: &Over, name: &'static str, content: Vec<u8>) -> Known {
        let file = opened(&over.at(name)).expect("the drive works");
        file.write_all_at(&content, 0).and_then(|()| file.sync_all()).expect("the drive works");
        Known { name, file, content: Content::durable(content), sure: true }
    }

    /// Writes piece by piece; one that is not written whole has failed.
    fn write(&mut self, at: usize, bytes: &[u8]) -> io::Result<()> {
        let mut after = self.content.now().to_vec();
        after.resize(after.len().max(at + bytes.len()), 0);
        after[at..at + bytes.len()].copy_from_slice(bytes);
        let mut done = Ok(());
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            done = done.and_then(|()| self.file.write_all_at(piece, (at + number * PIECE) as u64));
        }
        self.content.set(after);
        self.sure &= done.is_ok();
        done
    }

    fn truncate(&mut self, len: usize) -> io::Result<()> {
        let mut after = self.content.now().to_vec();
        after.resize(len, 0);
        self.content.set(after);
        let done = self.file.set_len(len as u64);
        self.sure &= done.is_ok();
        done
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if self.sure {
            self.content.synced();
        } else if let Ok(seen) = self.seen() {
            // What it was that the failure left is what is durable now.
            self.content.may_be(&seen).unwrap_or_else(|e| panic!("{}, after an fsync: {e}", self.name));
            self.content = Content::durable(seen);
            self.sure = true;
        }
        Ok(())
    }

    fn seen(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0xAA; self.file.metadata()?.len() as usize];
        for (number, piece) in bytes.chunks_mut(PIECE).enumerate() {
            self.file.read_exact_at(piece, (number * PIECE) as u64)?;
        }
        Ok(bytes)
    }

    fn read(&self) -> io::Result<()> {
        let seen = self.seen()?;
        if !self.sure {
            self.content.may_be(&seen).unwrap_or_else(|e| panic!("{}, read: {e}", self.name));
        } else if seen != self.content.now() {
            let now = self.content.now();
            let at = (0..now.len()).find(|at| seen.get(*at) != Some(&now[*at]));
            let differ = seen.iter().zip(now).filter(|(seen, now)| seen != now).count();
            panic!(
                "{} reads what it does not hold: {} bytes, it has {}; from {at:?} on, {differ} bytes",
                self.name,
                seen.len(),
                now.len()
            );
        }
        Ok(())
    }
}

impl Files {
    /// Made and synced on a drive that works.
    pub fn new(over: &Over) -> Files {
        let renamed = bytes(SMALL / 3, 7);
        fs::write(over.at("renamed"), &renamed).expect("the drive works");
        sync(&over.at("renamed")).and_then(|()| sync(&over.at(""))).expect("the drive works");
        Files {
            small: Known::new(over, "small", bytes(SMALL, 1)),
            big: Known::new(over, "big", bytes(BIG, 2)),
            renamed: vec![renamed],
            directories: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Does the same each time, whatever fails of it.
    pub fn work(&mut self, over: &Over) {
        for round in 0..ROUNDS {
            let kind = 10 * (round + 1);
            for (at, len) in [(5_000, 20_000), (100_000, 4096), (250_001, 90_000)] {
                let done = self.small.write(at, &bytes(len, kind + 1));
                self.hear(over, "write", done);
            }
            let done = self.small.sync();
            self.hear(over, "fsync", done);
            let done = self.rename(over, &bytes(SMALL / 2, kind + 2));
            self.hear(over, "rename", done);
            let done = self.big.write(usize::from(round) * 12_345, &bytes(BIG - 50_000, kind + 3));
            self.hear(over, "write of much", done);
            let done = self.big.sync();
            self.hear(over, "fsync of much", done);
            let done = self.big.read();
            self.hear(over, "read of much", done);
            let done = self.small.read();
            self.hear(over, "read", done);
            let done = self.synchronous(over, &bytes(10_000, kind + 4));
            self.hear(over, "write that is synchronous", done);
            let done = self.directory(over, format!("directory {round}"));
            self.hear(over, "mkdir", done);
            let done = self.small.truncate(SMALL / 2).and_then(|()| self.small.sync());
            self.hear(over, "truncation", done);
        }
    }

    /// Nothing may fail before a request has, nor for another reason.
    fn hear(&mut self, over: &Over, what: &str, done: io::Result<()>) {
        let Err(e) = done else { return };
        assert!(over.faults().counts().failed > 0, "{what}: {e}, and no request has failed");
        let errno = e.raw_os_error().unwrap_or_else(|| panic!("{what}: {e}"));
        assert!(matches!(errno, libc::EIO | libc::EROFS), "{what}: {e}");
        self.told.push(format!("{what}: {e}"));
    }

    fn rename(&mut self, over: &Over, content: &[u8]) -> io::Result<()> {
        let from = over.at("renamed.new");
        let mut file = File::create(&from)?;
        file.write_all(content)?;
        file.sync_all()?;
        let done = fs::rename(&from, over.at("renamed"));
        self.renamed.push(content.to_vec());
        done.and_then(|()| sync(&over.at("")))?;
        self.renamed.drain(..self.renamed.len() - 1);
        Ok(())
    }

    fn synchronous(&mut self, over: &Over, bytes: &[u8]) -> io::Result<()> {
        let file = File::options().write(true).custom_flags(libc::O_DSYNC).open(over.at("small"))?;
        let before = std::mem::replace(&mut self.small.file, file);
        let done = self.small.write(30_000, bytes);
        self.small.file = before;
        done?;
        if self.small.sure {
            self.small.content.synced_range(30_000, bytes.len());
        }
        Ok(())
    }

    fn directory(&mut self, over: &Over, name: String) -> io::Result<()> {
        fs::create_dir(over.at(&name))?;
        sync(&over.at(""))?;
        self.directories.push(name);
        Ok(())
    }

    /// The files, as they are when nobody has them open.
    pub fn closed(self) -> Closed {
        let Files { small, big, renamed, directories, .. } = self;
        let known = [small, big].map(|known| (known.name, known.content));
        Closed { known, renamed, directories }
    }
}

/// What must be there.
pub struct Closed {
    known: [(&'static str, Content); 2],
    renamed: Vec<Vec<u8>>,
    directories: Vec<String>,
}

impl Closed {
    /// All that was promised is there.
    ///
    /// # Errors
    /// In words: what is not.
    pub fn are_there(&self, over: &Over) -> Result<(), String> {
        let read = |name: &str| fs::read(over.at(name)).map_err(|e| format!("{name}: {e}"));
        for (name, content) in &self.known {
            content.may_be(&read(name)?).map_err(|e| format!("{name}: {e}"))?;
        }
        if !self.renamed.contains(&read("renamed")?) {
            return Err("renamed: neither what it was nor what it was to be".into());
        }
        match self.directories.iter().find(|name| !over.at(name).is_dir()) {
            Some(name) => Err(format!("{name}: it is not there")),
            None => Ok(()),
        }
    }
}
