//! The images that this process has open, and what all stores of one share.
//!
//! An image is closed when the last store of it is gone, and the last object that is still read: each holds a [`Mount`].
//!
//! # Locks
//! Whoever gives a name to an object or takes it away holds the lock of that name for as long as it takes to look what is
//! there and to change it, which may wait for room in the journal or for a page of a directory, but not for what was changed to
//! be durable. Two names are locked in the order of their locks.

use crate::error::generic;
use crate::names::STAGING;
use crate::run::{Memory, Promise};
use crate::upload::Uploads;
use narufs::{Dir, File, FormatOptions, Fs, MountOptions, OpenOptions};
use object_store::Result;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;
use uuid::Uuid;

/// Locks of names.
const LOCKS: usize = 512;

/// Gets that are made elsewhere after one that had to read the device.
const GETS_ELSEWHERE: u32 = 1000;

/// Puts that are made elsewhere after one that has slept: mostly for another that holds a lock for a moment.
const PUTS_ELSEWHERE: u32 = 32;

/// Names of a file at the most, in narufs.
const MOST_LINKS: u64 = 1 << 30;

/// An image that is open.
pub(crate) struct Mount {
    pub(crate) fs: Fs,
    /// A file without a name, whose sync makes durable what has no file of its own; none where nothing can be changed.
    anchor: Option<File>,
    locks: Vec<Mutex<()>>,
    hasher: RandomState,
    pub(crate) uploads: Uploads,
    /// Of those who look for objects.
    pub(crate) memory: Memory,
    /// Of those who put some: room in the journal too.
    pub(crate) room: Memory,
    /// An object has so many names at the most; further copies are files of their own.
    pub(crate) most_links: u64,
    run: Run,
    next: AtomicU64,
    /// The last of its fields: when it goes the image is closed.
    closed: Option<Closed>,
}

/// Tells those who wait for an image that it can be opened.
struct Closed {
    image: PathBuf,
    file: FileId,
}

impl Drop for Closed {
    fn drop(&mut self) {
        let mut open = locked(&OPEN);
        if open.get(&self.file).is_some_and(|mount| mount.strong_count() == 0) {
            open.remove(&self.file);
        }
        CLOSED.notify_all();
    }
}

/// What names have before their number that last for a moment. The system draws it, for children that are forked of one process
/// have the same memory.
struct Run(String);

/// Those in use: a program may open several stores of one file system, each by itself. All other names are of processes that have
/// ended. A child that can open an image has none of its parent's, for that had none open.
static RUNS: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

impl Run {
    fn begin() -> Run {
        let run = Uuid::new_v4().simple().to_string();
        locked(&RUNS).insert(run.clone());
        Run(run)
    }

    /// Whether a name may be one that is in use.
    fn has(name: &OsStr) -> bool {
        let name = name.to_string_lossy();
        name.split_once('-').is_some_and(|(run, _)| locked(&RUNS).contains(run))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        locked(&RUNS).remove(&self.0);
    }
}

/// An image's device and inode.
type FileId = (u64, u64);

type Open = HashMap<FileId, Weak<Mount>>;

/// Those that are open, or that somebody is about to close.
static OPEN: LazyLock<Mutex<Open>> = LazyLock::new(Mutex::default);

static CLOSED: Condvar = Condvar::new();

/// How long one who opens an image waits for one who closes it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A lock whose holder may have panicked: what it guards is changed in single steps.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The image, opened unless this process has it open already; made first if it is not there and a size is given.
///
/// # Errors
/// What narufs says.
pub(crate) fn open(image: &Path, size: Option<u64>, options: &MountOptions) -> Result<Arc<Mount>> {
    if let Some(size) = size {
        // By one of those who find that there is none.
        let _open = locked(&OPEN);
        if !image.exists() {
            Fs::format(image, &FormatOptions::new().size(size)).map_err(generic)?;
        }
    }
    let image = image.canonicalize().map_err(|e| generic(format!("{}: {e}", image.display())))?;
    // Another file may have got the path of one that is open still.
    let metadata = std::fs::metadata(&image).map_err(|e| generic(format!("{}: {e}", image.display())))?;
    let file = (metadata.dev(), metadata.ino());
    let closes = |open: &mut Open| open.get(&file).is_some_and(|mount| mount.strong_count() == 0);
    let waited = CLOSED.wait_timeout_while(locked(&OPEN), PATIENCE, closes);
    let mut open = waited.unwrap_or_else(PoisonError::into_inner).0;
    if let Some(mount) = open.get(&file).and_then(Weak::upgrade) {
        return Ok(mount);
    }
    let fs = Fs::open(&image, options).map_err(generic)?;
    // Told of its end only once it has begun: that takes the lock which this has.
    let mut mount = Mount::of(fs)?;
    mount.closed = Some(Closed { image, file });
    let mount = Arc::new(mount);
    open.insert(file, Arc::downgrade(&mount));
    Ok(mount)
}

impl Mount {
    /// A file system that is open.
    pub(crate) fn of(fs: Fs) -> Result<Mount> {
        let anchor = match fs.open_temporary("/", OpenOptions::new().write(true)) {
            Ok(anchor) => Some(anchor),
            Err(e) if e.errno() == libc::EROFS => None,
            // Of a caller who may make nothing there: a sync of the directory covers what has returned as well.
            Err(e) if e.errno() == libc::EACCES => Some(Dir::open(&fs, "/").map_err(generic)?),
            Err(e) => return Err(generic(e)),
        };
        Ok(Mount {
            fs,
            anchor,
            locks: (0..LOCKS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            uploads: Uploads::default(),
            memory: Memory::new(GETS_ELSEWHERE),
            room: Memory::new(PUTS_ELSEWHERE),
            most_links: MOST_LINKS,
            run: Run::begin(),
            next: AtomicU64::new(0),
            closed: None,
        })
    }

    /// Closes the image.
    ///
    /// # Errors
    /// What could not be written.
    pub(crate) fn close(self) -> Result<()> {
        let Mount { fs, anchor, uploads, closed, .. } = self;
        drop((anchor, uploads));
        let outcome = fs.close().map_err(generic);
        drop(closed);
        outcome
    }

    fn lock_of(&self, path: &str) -> usize {
        (self.hasher.hash_one(path) as usize) % LOCKS
    }

    /// Holds a name.
    pub(crate) fn hold(&self, path: &str) -> MutexGuard<'_, ()> {
        self.locked_at(self.lock_of(path))
    }

    fn locked_at(&self, number: usize) -> MutexGuard<'_, ()> {
        match self.locks[number].try_lock() {
            Err(TryLockError::WouldBlock) => {
                // Puts that come are not to wait for it on a thread that has others to serve.
                self.room.was_not_enough();
                locked(&self.locks[number])
            }
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Ok(held) => held,
        }
    }

    /// Holds two names.
    pub(crate) fn hold_both(
        &self,
        one: &str,
        other: &str,
    ) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (one, other) = (self.lock_of(one), self.lock_of(other));
        let first = self.locked_at(one.min(other));
        (first, (one != other).then(|| self.locked_at(one.max(other))))
    }

    /// Makes durable what has returned.
    pub(crate) fn promise(&self) -> Promise {
        match &self.anchor {
            Some(anchor) => Promise::of(|told| anchor.sync_data_then(told)),
            None => Promise::kept(),
        }
    }

    /// Makes the directory of a store and removes what a process that was killed has left there.
    ///
    /// # Errors
    /// What narufs says, but for what cannot be changed.
    pub(crate) fn prepare(&self, root: &str) -> narufs::Result<()> {
        let staging = format!("{root}/{STAGING}");
        match self.fs.create_dir_all(&staging) {
            Err(e) if e.errno() == libc::EROFS => return Ok(()),
            made => made?,
        }
        for entry in self.fs.read_dir(&staging)? {
            let entry = entry?;
            if Run::has(entry.file_name()) {
                continue;
            }
            match self.fs.remove_file(entry.path()) {
                // Another thread does the same; a directory is none of a store's; where nothing can be changed they stay.
                Err(e) if !matches!(e.errno(), libc::ENOENT | libc::EISDIR | libc::EROFS) => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// A name in the directory of such that no file has.
    pub(crate) fn moment(&self, root: &str) -> Moment<'_> {
        // Relaxed: nothing but the number.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Moment { mount: self, path: format!("{root}/{STAGING}/{}-{number:x}", self.run.0), is_used: true }
    }
}

/// A name that a file has for a moment; it goes with this, unless it was moved away.
pub(crate) struct Moment<'m> {
    mount: &'m Mount,
    path: String,
    is_used: bool,
}

impl Moment<'_> {
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The file has got another name in its place.
    pub(crate) fn moved_away(mut self) {
        self.is_used = false;
    }
}

impl Drop for Moment<'_> {
    fn drop(&mut self) {
        if self.is_used {
            // It may not have come to be; if it stays, the next process removes it.
            let _ = self.mount.fs.remove_file(&self.path);
        }
    }
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mount")
            .field("image", &self.closed.as_ref().map(|closed| &closed.image))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a child leaves it that was forked when no image was open, and killed: its siblings have the same memory.
    #[test]
    fn what_one_of_the_same_memory_has_left_is_removed_and_met_by_nobody() {
        let room = tempfile::tempdir().expect("room");
        let image = room.path().join("image");
        let options = MountOptions::new().memory(64 << 20);
        let mut left = Vec::new();
        for _ in 0..2 {
            let mount = open(&image, Some(16 << 20), &options).expect("room");
            mount.prepare("").expect("room");
            let names = mount.fs.read_dir(format!("/{STAGING}")).expect("it is there");
            assert_eq!(names.count(), 0, "all that lies there is of the dead");
            let moment = mount.moment("");
            mount.fs.create_new(moment.path()).expect("no file has the name");
            mount.prepare("").expect("room");
            mount.fs.metadata(moment.path()).expect("a second store leaves it alone");
            left.push(moment.path().to_owned());
            moment.moved_away();
        }
        assert_ne!(left[0], left[1]);
    }

    /// Each has a file system of its own to say, which is the same one.
    #[test]
    fn what_one_store_is_writing_is_left_alone_by_the_next_of_the_same_file_system() {
        let fs = Fs::scratch(&narufs::ScratchOptions::new(64 << 20)).expect("room");
        let one = Mount::of(fs.as_user(0, 0, &[])).expect("room");
        one.prepare("").expect("room");
        let moment = one.moment("");
        one.fs.create_new(moment.path()).expect("no file has the name");
        let other = crate::NarufsStore::new(fs, "/").expect("room");
        one.fs.metadata(moment.path()).expect("it is in use");
        let left = moment.path().to_owned();
        moment.moved_away();
        drop(one);
        other.beside("/").expect("room");
        assert!(other.fs().metadata(left).is_err(), "nobody uses it any more");
    }
}
