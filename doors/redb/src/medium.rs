//! What a database lies on: a file of narufs, or what the tests take for one.

use narufs::{Batch, Commit, Dir, File};
use std::fmt::Debug;
use std::io;

/// Bytes for an offset.
pub(crate) type Part<'a> = (u64, &'a [u8]);

/// A file, and batches of it. What was written is lost by a crash, in whole or in part, until a sync; a batch never in
/// part, and never before an older one.
pub(crate) trait Medium: Debug + Send + Sync + 'static {
    /// Its bytes.
    fn len(&self) -> io::Result<u64>;

    /// Fills a buffer; it is an error if the file ends before.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes all of it; the file gets longer if it ends before.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts it, or makes it longer by zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes durable what was done before.
    fn sync(&self) -> io::Result<()>;

    /// Writes all of it or nothing, whatever happens, and durably if that is asked for. False if it is too much for
    /// that: nothing has happened then.
    fn commit<'a>(&self, parts: impl Iterator<Item = Part<'a>>, durable: bool) -> io::Result<bool>;
}

/// A file of narufs.
#[derive(Debug)]
pub(crate) struct OnNarufs {
    file: File,
    /// Any directory of the file system: batches begin there.
    dir: Dir,
}

impl OnNarufs {
    pub(crate) fn new(file: File, dir: Dir) -> OnNarufs {
        OnNarufs { file, dir }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn try_commit<'a>(
        &self,
        mut batch: Batch,
        parts: impl Iterator<Item = Part<'a>>,
        durable: bool,
    ) -> narufs::Result<()> {
        for (offset, bytes) in parts {
            batch.write_all_at(&self.file, bytes, offset)?;
        }
        batch.commit(if durable { Commit::Durable } else { Commit::Ordered })
    }
}

impl Medium for OnNarufs {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        Ok(self.file.read_exact_at(into, offset)?)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        Ok(self.file.write_all_at(bytes, offset)?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(self.file.set_len(len)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(self.file.sync_data()?)
    }

    fn commit<'a>(&self, parts: impl Iterator<Item = Part<'a>>, durable: bool) -> io::Result<bool> {
        match self.try_commit(self.dir.batch(), parts, durable) {
            Err(e) if e.errno() == libc::E2BIG => Ok(false),
            outcome => Ok(outcome.map(|()| true)?),
        }
    }
}
