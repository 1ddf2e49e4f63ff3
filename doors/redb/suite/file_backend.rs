//! What `suite.sh` puts in the place of redb's `FileBackend`: a file in an image of narufs for each file of the system.
//!
//! Reads and lengths are those of narufs. What is written goes to the file of the system as well, so that tests that
//! look at it, or change it while the database is closed, find what they expect; what they have changed is taken over
//! by the next who opens it. When the last handle of a file is closed both must be the same, to the byte. Locks are taken
//! on both, for tests and other processes try those of the system's file.

use crate::{BackendError, DatabaseError, Result, StorageBackend};
use narufs::{Durability, FormatOptions, Fs, MountOptions, OpenOptions};
use narufs_redb::NarufsBackend;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use stock::StorageBackend as Stock;
use stock::backends::FileBackend as System;

/// Of the image; what nobody has written takes no room.
const SIZE: u64 = 16 << 30;

/// What is compared and copied at a time.
const CHUNK: usize = 1 << 20;

/// Device and inode.
type Id = (u64, u64);

#[derive(Default)]
struct Place {
    /// Open while a handle is.
    fs: Option<Fs>,
    handles: usize,
    /// Handles that are not closed, of each file.
    open: HashMap<Id, usize>,
}

static PLACE: LazyLock<Mutex<Place>> = LazyLock::new(Mutex::default);

fn place() -> MutexGuard<'static, Place> {
    PLACE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn image() -> PathBuf {
    let dir = std::env::var_os("NARUFS_REDB_SUITE").expect("suite.sh says where");
    PathBuf::from(dir).join(format!("image-{}", std::process::id()))
}

/// Opens the image, or makes it.
fn opened() -> narufs::Result<Fs> {
    let image = image();
    if !image.exists() {
        Fs::format(&image, &FormatOptions::new().size(SIZE).sparse(true))?;
    }
    // Nothing here takes the power away.
    Fs::open(&image, &MountOptions::new().memory(256 << 20).durability(Durability::Process))
}

fn name((device, inode): Id) -> String {
    format!("/{device}-{inode}")
}

/// Makes a file of narufs what one of the system is; says whether it was.
fn take_over(fs: &Fs, id: Id, file: &File) -> io::Result<bool> {
    let ours = fs.open_with(name(id), OpenOptions::new().read(true).write(true).create(true))?;
    let len = file.metadata()?.len();
    let mut same = ours.metadata()?.len() == len;
    ours.set_len(len)?;
    let (mut theirs, mut there) = (vec![0; CHUNK], vec![0; CHUNK]);
    for offset in (0..len).step_by(CHUNK) {
        let count = CHUNK.min((len - offset) as usize);
        file.read_exact_at(&mut theirs[..count], offset)?;
        ours.read_exact_at(&mut there[..count], offset)?;
        if theirs[..count] != there[..count] {
            same = false;
            ours.write_all_at(&theirs[..count], offset)?;
        }
    }
    Ok(same)
}

/// Stores a database as a file on-disk.
#[derive(Debug)]
pub struct FileBackend {
    /// None while it is dropped alone.
    inner: Option<NarufsBackend>,
    file: File,
    /// redb's own, over the same open file, for its locks.
    system: System,
    id: Id,
    closed: std::sync::atomic::AtomicBool,
}

impl FileBackend {
    /// Creates a new backend which stores data to the given file.
    pub fn new(file: File) -> Result<Self, DatabaseError> {
        Ok(Self::from_file(file))
    }

    pub(crate) fn from_file(file: File) -> Self {
        let metadata = file.metadata().expect("an open file");
        let id = (metadata.dev(), metadata.ino());
        let mut place = place();
        if place.fs.is_none() {
            place.fs = Some(opened().expect("the image is there"));
        }
        place.handles += 1;
        let open = place.open.entry(id).or_default();
        *open += 1;
        let is_first = *open == 1;
        let fs = place.fs.as_ref().expect("opened above");
        if is_first {
            take_over(fs, id, &file).expect("room");
        }
        let inner = NarufsBackend::open(fs, name(id)).expect("it is there");
        drop(place);
        let system = System::new(file.try_clone().expect("a descriptor")).expect("a file");
        FileBackend { inner: Some(inner), file, system, id, closed: false.into() }
    }

    fn inner(&self) -> &NarufsBackend {
        self.inner.as_ref().expect("only the drop takes it")
    }

    /// What a try of both has come to; if one of them is held elsewhere, neither is kept.
    fn both(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
        ours: Result<bool, stock::BackendError>,
        system: impl FnOnce() -> Result<bool, stock::BackendError>,
    ) -> Result<bool, BackendError> {
        if !ours.map_err(told)? {
            return Ok(false);
        }
        let taken = system().map_err(told);
        if !matches!(taken, Ok(true)) {
            Stock::unlock_range(self.inner(), start, end).map_err(told)?;
        }
        taken
    }

    fn close_once(&self) -> io::Result<()> {
        if self.closed.swap(true, std::sync::atomic::Ordering::AcqRel) {
            return Ok(());
        }
        let closed = Stock::close(self.inner()).and(Stock::close(&self.system));
        let mut place = place();
        let open = place.open.get_mut(&self.id).expect("it was counted");
        *open -= 1;
        if *open == 0 {
            place.open.remove(&self.id);
            let fs = place.fs.as_ref().expect("it is open");
            let same = take_over(fs, self.id, &self.file)?;
            assert!(same || std::thread::panicking(), "what was written to a file is not what narufs has");
        }
        closed
    }
}

impl Drop for FileBackend {
    fn drop(&mut self) {
        let closed = self.close_once();
        drop(self.inner.take());
        let mut place = place();
        place.handles -= 1;
        if place.handles == 0 {
            let fs = place.fs.take().expect("it is open");
            let closed = closed.map(|()| fs.close());
            assert!(matches!(closed, Ok(Ok(()))) || std::thread::panicking(), "{closed:?}");
        }
    }
}

fn told(error: stock::BackendError) -> BackendError {
    match error {
        stock::BackendError::Io(error) => BackendError::Io(error),
        stock::BackendError::Unsupported => BackendError::Unsupported,
        other => BackendError::Other(Box::new(other)),
    }
}

impl StorageBackend for FileBackend {
    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.both(start, end, Stock::try_lock_range(self.inner(), start, end), || {
            Stock::try_lock_range(&self.system, start, end)
        })
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.both(start, end, Stock::try_lock_shared_range(self.inner(), start, end), || {
            Stock::try_lock_shared_range(&self.system, start, end)
        })
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        Stock::lock_range(&self.system, start, end).map_err(told)?;
        Stock::lock_range(self.inner(), start, end).map_err(told)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        Stock::lock_shared_range(&self.system, start, end).map_err(told)?;
        Stock::lock_shared_range(self.inner(), start, end).map_err(told)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        Stock::unlock_range(self.inner(), start, end).map_err(told)?;
        Stock::unlock_range(&self.system, start, end).map_err(told)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        let ours = Stock::query_lock_range(self.inner(), start, end).map_err(told)?;
        Ok(ours || Stock::query_lock_range(&self.system, start, end).map_err(told)?)
    }

    fn close(&self) -> io::Result<()> {
        self.close_once()
    }

    fn len(&self) -> io::Result<u64> {
        Stock::len(self.inner())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Stock::read(self.inner(), offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Stock::set_len(self.inner(), len)?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Stock::sync_data(self.inner())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        Stock::write(self.inner(), offset, data)?;
        self.file.write_all_at(data, offset)
    }
}
