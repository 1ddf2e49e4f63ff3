//! The entries of a directory, one after the other.

use super::Dir;
use crate::engine::told;
use crate::error::Result;
use crate::metadata::{FileType, Metadata};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Entries that are fetched at once.
const BATCH: usize = 256;
/// The position before the first entry: after "." and "..".
const FIRST: u64 = 2;

/// A place between the entries of a directory, as telldir(3) gives it: it stays good for as long as the directory is
/// there, whatever entries come and go, also when the file system was closed in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirPosition(u64);

impl DirPosition {
    /// Before the first entry.
    pub const START: DirPosition = DirPosition(FIRST);

    /// As a number, to be kept.
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// Of a number that [`DirPosition::to_u64`] has given.
    pub fn from_u64(position: u64) -> DirPosition {
        DirPosition(position.max(FIRST))
    }
}

/// The entries of a directory, without "." and "..".
///
/// An entry that is there all the time is met once; one that comes or goes meanwhile is met once or not at all.
///
/// ```
/// # use narufs::{Fs, ScratchOptions};
/// # let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
/// fs.create_dir("/d")?;
/// for name in ["a", "b", "c"] {
///     fs.write(format!("/d/{name}"), "")?;
/// }
/// let mut entries = fs.read_dir("/d")?;
/// entries.next().expect("there are three")?;
/// let position = entries.position();
/// let rest: Vec<_> = entries.map(|entry| entry.map(|e| e.file_name().to_owned())).collect::<Result<_, _>>()?;
/// assert_eq!(rest.len(), 2);
///
/// let mut again = fs.read_dir("/d")?;
/// again.seek(position);
/// assert_eq!(again.next().expect("two are left")?.file_name(), rest[0]);
/// # Ok::<(), narufs::Error>(())
/// ```
pub struct ReadDir {
    dir: Arc<Dir>,
    path: Arc<Path>,
    batch: VecDeque<DirEntry>,
    position: DirPosition,
    ended: bool,
}

impl ReadDir {
    pub(super) fn new(dir: Dir, path: &Path) -> ReadDir {
        ReadDir {
            dir: Arc::new(dir),
            path: path.into(),
            batch: VecDeque::new(),
            position: DirPosition::START,
            ended: false,
        }
    }

    /// Where it is: after the entry that was given last.
    pub fn position(&self) -> DirPosition {
        self.position
    }

    /// Goes on behind a position; also one that another [`ReadDir`] of the same directory has told.
    pub fn seek(&mut self, position: DirPosition) {
        self.batch.clear();
        self.position = position;
        self.ended = false;
    }

    fn fetch(&mut self) -> Result<()> {
        let ReadDir { dir, path, batch, position, .. } = self;
        let engine = dir.session.enter("read_dir").map_err(|e| e.at(path))?;
        let Some(handle) = &dir.handle else { return Ok(()) };
        let read = engine.readdir(handle, position.0, &mut |entry| {
            if batch.len() == BATCH {
                return false;
            }
            batch.push_back(DirEntry {
                dir: Arc::clone(dir),
                path: Arc::clone(path),
                name: OsStr::from_bytes(entry.name).to_owned(),
                ino: entry.nid,
                file_type: FileType::of_engine(entry.file_type),
                position: DirPosition(entry.cookie),
            });
            true
        });
        self.ended = self.batch.len() < BATCH;
        read.map_err(|e| told("read_dir", e).at(&self.path))
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if self.batch.is_empty()
            && !self.ended
            && let Err(error) = self.fetch()
        {
            self.ended = true;
            return Some(Err(error));
        }
        let entry = self.batch.pop_front()?;
        self.position = entry.position;
        Some(Ok(entry))
    }
}

impl std::iter::FusedIterator for ReadDir {}

impl std::fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadDir")
            .field("path", &self.path)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

/// One entry of a directory.
#[derive(Clone)]
pub struct DirEntry {
    dir: Arc<Dir>,
    path: Arc<Path>,
    name: OsString,
    ino: u64,
    file_type: FileType,
    position: DirPosition,
}

impl DirEntry {
    /// The name, without the directories above.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// The name behind the path that was given to [`Dir::read_dir`].
    pub fn path(&self) -> PathBuf {
        self.path.join(&self.name)
    }

    /// The type, which is known without asking.
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// The number of the inode.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// The place behind this entry.
    pub fn position(&self) -> DirPosition {
        self.position
    }

    /// Attributes of what has the name by now; of a symlink its own.
    ///
    /// # Errors
    /// ENOENT if it is gone.
    pub fn metadata(&self) -> Result<Metadata> {
        self.dir.symlink_metadata(&self.name)
    }
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirEntry").field("path", &self.path()).field("ino", &self.ino).finish_non_exhaustive()
    }
}
