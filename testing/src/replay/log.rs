//! The format of dm-log-writes (Linux, Documentation/admin-guide/device-mapper/log-writes.rst), which QEMU's blklogwrites
//! writes too: a sector that says how many entries there are, then each entry, a sector of its own, and its data.

use crate::demand;
use crate::outlive::Outcome;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// How a record begins, with the version.
pub const MAGIC: u64 = 0x006a_7366_7773_6872;
/// The one version that there is.
pub const VERSION: u64 = 1;
/// Largest sector.
const LARGEST: u64 = 64 << 10;

const FLUSH: u64 = 1;
const FORCED: u64 = 1 << 1;
const DISCARD: u64 = 1 << 2;
const MARK: u64 = 1 << 3;
/// What marks metadata changes nothing.
const METADATA: u64 = 1 << 4;

/// A record, from its beginning on.
#[derive(Debug)]
pub struct Log {
    file: File,
    len: u64,
    sector: u64,
    /// Where the next entry begins.
    at: u64,
    left: u64,
}

/// What was done to the disk.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// What was written before it is to survive, before anything of it does.
    pub flushes: bool,
    /// It survives a loss of power once it has ended.
    pub forced: bool,
    /// Where, in bytes.
    pub offset: u64,
    /// What.
    pub content: Content,
}

/// See [`Entry`].
#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes, none for a flush alone.
    Data(Vec<u8>),
    /// So many bytes hold nothing of use any more.
    Discarded(u64),
    /// Somebody's word.
    Mark,
}

impl Log {
    /// Opens a record.
    ///
    /// # Errors
    /// It is none.
    pub fn open(file: File) -> Outcome<Log> {
        let len = file.metadata()?.len();
        let mut header = [0; 28];
        demand!(len >= header.len() as u64, "the record has {len} bytes, which is no record");
        file.read_exact_at(&mut header, 0)?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        demand!(word(0) == MAGIC && word(8) == VERSION, "that is no record of writes");
        let sector = u64::from(u32::from_le_bytes(std::array::from_fn(|i| header[24 + i])));
        let fits = sector.is_power_of_two() && (512..=LARGEST).contains(&sector);
        demand!(fits, "the record has sectors of {sector} bytes");
        Ok(Log { file, len, sector, at: sector, left: word(16) })
    }

    /// Where the entry that was read last ends, in bytes.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The next entry, while there is one.
    ///
    /// # Errors
    /// One that goes beyond the record, or that says what no entry does.
    pub fn next_entry(&mut self) -> Outcome<Option<Entry>> {
        if self.left == 0 {
            return Ok(None);
        }
        let at = self.at;
        let beyond = || format!("the entry at byte {at} goes beyond the record, of {} bytes", self.len);
        let data = at.checked_add(self.sector).filter(|end| *end <= self.len).ok_or_else(beyond)?;
        let mut header = [0; 32];
        self.file.read_exact_at(&mut header, at)?;
        let [first, count, flags] =
            [0, 8, 16].map(|at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i])));
        let known = FLUSH | FORCED | DISCARD | MARK | METADATA;
        demand!(flags & !known == 0, "the entry at byte {at} has unknown flags, {flags:#x}");
        let bytes = count.checked_mul(self.sector).ok_or_else(beyond)?;
        let offset = first.checked_mul(self.sector).ok_or_else(beyond)?;
        let (content, end) = if flags & MARK != 0 {
            (Content::Mark, data)
        } else if flags & DISCARD != 0 {
            (Content::Discarded(bytes), data)
        } else {
            let end = data.checked_add(bytes).filter(|end| *end <= self.len).ok_or_else(beyond)?;
            let mut read = vec![0; usize::try_from(bytes)?];
            self.file.read_exact_at(&mut read, data)?;
            (Content::Data(read), end)
        };
        self.at = end;
        self.left -= 1;
        Ok(Some(Entry { flushes: flags & FLUSH != 0, forced: flags & FORCED != 0, offset, content }))
    }
}
