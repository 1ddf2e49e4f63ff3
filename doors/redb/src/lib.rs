//! redb on narufs, in the process of the program: [`NarufsBackend`] is a [`redb::StorageBackend`] on a file of an image.
//!
//! ```
//! use narufs::{FormatOptions, Fs, MountOptions};
//! use narufs_redb::NarufsBackend;
//! use redb::{Builder, ReadableDatabase, TableDefinition};
//!
//! const WORDS: TableDefinition<&str, u64> = TableDefinition::new("words");
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = tempfile::tempdir()?;
//! # let image = place.path().join("image");
//! Fs::format(&image, &FormatOptions::new().size(64 << 20))?;
//! let fs = Fs::open(&image, &MountOptions::new())?;
//! let db = Builder::new().create_with_backend(NarufsBackend::create(&fs, "/words.redb")?)?;
//! let write = db.begin_write()?;
//! write.open_table(WORDS)?.insert("flush", 1)?;
//! write.commit()?; // durable now, by one flush
//! assert_eq!(db.begin_read()?.open_table(WORDS)?.get("flush")?.map(|n| n.value()), Some(1));
//! drop(db);
//! fs.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! `docs/doors/REDB.md` is for users; this is how it works.
//!
//! # The protocol
//! redb writes pages to new places, then a header that names the new root in the one of two slots that is not used, and
//! makes that slot the primary by one bit. With one phase, its default, all of that is written and synced once; after a
//! crash checksums tell whether it is whole. With two (`set_two_phase_commit`, and `set_quick_repair`, which asks for them)
//! pages and slot are synced before the bit is written, and then the bit is.
//!
//! | call of redb | here, where the database is open for nobody else |
//! | --- | --- |
//! | `write` | into a layer in memory, through which this database reads (`layer.rs`) |
//! | `sync_data` | what is in the layer becomes one atomic batch ([`narufs::Batch`]), durable on return: one record, one flush |
//! | `sync_data`, of the first phase | answered at once: pages, slot and bit become one batch by the second |
//! | `set_len` | at once; the sync that follows syncs the file |
//! | `close` | what is in the layer goes into the file, as what a file has that nobody has synced |
//!
//! *Why a phase may be left out.* The first phase is there so that the bit is never durable without what it names. A batch
//! is whole or not there, so the bit never is. Nobody was promised anything by the first sync: the header that it made
//! durable still names the old root. It is recognised by that (`header.rs`); every other sync is one.
//!
//! *More than a batch takes in one record* (1,024 pages) is written to the file as it comes, and the sync is the file's: with
//! two phases two of them, as redb asks.
//!
//! *Readers and writers of one file* (`ConcurrencyMode::SingleWriter` and `MultiWriter`, all in this process, for an image is
//! open in one): what one has written the others are to see before it is synced, so there is no layer, and each write and
//! sync is the file's. Whether somebody else may come is known by the locks: the layer is there while this database has
//! the whole content locked exclusively.

mod header;
mod layer;
mod locks;
mod medium;
mod pages;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod model;

use layer::Layer;
use locks::Locks;
use medium::{Medium, OnNarufs};
use narufs::{Dir, File, LockKind, OpenOptions};
use redb::{BackendError, StorageBackend};
use std::io;
use std::ops::Bound;
use std::path::Path;

/// A database's file in an image of narufs: what redb's `FileBackend` is for a file of the system.
///
/// One is for one handle of one database: `Builder::create_with_backend`, `Builder::open_read_only_with_backend`. Any number
/// of databases share a file system, which stays open while one of them is. redb locks the file: a second handle is
/// refused (`DatabaseError::DatabaseAlreadyOpen`), but for readers beside readers, and what its `ConcurrencyMode`s allow.
///
/// Errors are [`narufs::Error`]s in an [`io::Error`] of the same kind, as redb's `StorageError::Io` has them.
#[derive(Debug)]
pub struct NarufsBackend {
    layer: Layer<OnNarufs>,
    locks: Locks,
}

impl NarufsBackend {
    /// Opens a file for reading and writing, and makes it if there is none.
    ///
    /// # Errors
    /// Those of [`Dir::open_with`](narufs::Dir::open_with).
    pub fn create(dir: &Dir, path: impl AsRef<Path>) -> narufs::Result<NarufsBackend> {
        Self::with(dir, path, OpenOptions::new().read(true).write(true).create(true))
    }

    /// Opens a file that is there for reading and writing.
    ///
    /// # Errors
    /// Those of [`Dir::open_with`](narufs::Dir::open_with).
    pub fn open(dir: &Dir, path: impl AsRef<Path>) -> narufs::Result<NarufsBackend> {
        Self::with(dir, path, OpenOptions::new().read(true).write(true))
    }

    /// Opens a file that is there for reading: for `Builder::open_read_only_with_backend`.
    ///
    /// # Errors
    /// Those of [`Dir::open_with`](narufs::Dir::open_with).
    pub fn open_read_only(dir: &Dir, path: impl AsRef<Path>) -> narufs::Result<NarufsBackend> {
        Self::with(dir, path, OpenOptions::new().read(true))
    }

    fn with(dir: &Dir, path: impl AsRef<Path>, options: &OpenOptions) -> narufs::Result<NarufsBackend> {
        let file = dir.open_with(path, options)?;
        Ok(Self::new(file, dir.open_dir(".")?))
    }

    /// Of an open file, and any directory of its file system. The file was opened for reading, for writing unless the
    /// database is only read, and not for appending.
    pub fn new(file: File, dir: Dir) -> NarufsBackend {
        NarufsBackend { layer: Layer::new(OnNarufs::new(file, dir), layer::MOST), locks: Locks::default() }
    }

    fn file(&self) -> &File {
        self.layer.medium().file()
    }

    /// After a lock was taken.
    fn locked(&self) -> Result<(), BackendError> {
        if self.locks.has_content_without(None) {
            self.layer.set_alone(true)?;
        }
        Ok(())
    }
}

impl StorageBackend for NarufsBackend {
    fn len(&self) -> io::Result<u64> {
        self.layer.medium().len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.layer.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.layer.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.layer.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.layer.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        let put = self.layer.set_alone(false);
        put.and(self.locks.unlock_all(self.file()))
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        let taken = self.locks.try_lock(self.file(), LockKind::Exclusive, start, end)?;
        self.locked()?;
        Ok(taken)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(self.locks.try_lock(self.file(), LockKind::Shared, start, end)?)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.locks.lock(self.file(), LockKind::Exclusive, start, end)?;
        self.locked()
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        Ok(self.locks.lock(self.file(), LockKind::Shared, start, end)?)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        if !self.locks.has_content_without(Some((start, end))) {
            self.layer.set_alone(false)?;
        }
        Ok(self.locks.unlock(self.file(), start, end)?)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(self.locks.is_locked_elsewhere(self.file(), start, end)?)
    }
}
