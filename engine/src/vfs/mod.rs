//! Operations on inodes: what FUSE, the path API and the tests call.
//!
//! An operation takes credits, then locks in the order of [`crate::lock::LockClass`], builds its change on one
//! journal handle, commits, updates what is in memory, and unlocks. Permissions are checked here, on every
//! way in. This module leaves bytes of files to `file`, entries to `dir`, attributes in memory to `inode`.
//!
//! Lookup counts: every [`Entry`] returned holds one count on its inode, raised before the call returns. The
//! caller gives it back with [`Vfs::forget`], also when it could not deliver the reply.

mod attr;
mod batch;
mod borrowed;
mod content;
mod dir_room;
mod fsync;
mod inherited;
mod intents;
mod link;
mod make;
mod names;
mod open;
mod pending_eviction;
mod readdir;
mod records;
mod remove;
mod rename;
#[cfg(test)]
mod tests;
mod types;
mod volume;
mod walk;
mod watch;
mod xattrs;

pub use crate::file::{ErrorMark, Written};
pub use crate::inode::{Lent, Recall};
pub use batch::{Batch, BatchDurability};
pub use fsync::Waiting;
pub use open::FileHandle;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use records::RECORDS;
pub(crate) use records::STEP;
pub use records::{LARGEST_RECORD, LARGEST_RESERVE_RECORD};
pub use types::*;
pub use walk::{Arrive, InodeRef, Walked};
pub use watch::{Changed, Watch};

use crate::checkpoint::Checkpointer;
use crate::error::{Error, Result};
use crate::file::{DataOptions, DataPath};
use crate::format::{Inode, Nid, Position};
use crate::inode::{Forgotten, InodeObj, now};
use crate::lock::{AdvisoryKind, AdvisoryLocks, LockClass, LockSet, Owner, Rank, RankedMutex};
use crate::meta::Meta;
use crate::planted::kill::{self, Step};
use crate::sync::{Arc, OnceLock};
use crate::takeover::Takeover;
use inherited::InheritedHolds;
use pending_eviction::PendingEviction;
use watch::Watched;

/// A mounted image. Shared through an `Arc`.
#[derive(Debug)]
pub struct Vfs {
    options: VfsOptions,
    meta: Arc<Meta>,
    data: Arc<DataPath>,
    locks: AdvisoryLocks,
    /// Held while a directory may get another parent.
    directory_move: RankedMutex<()>,
    pending_eviction: Arc<PendingEviction>,
    watched: Watched,
    /// In a successor: what the kernel may hold though it was counted by a predecessor.
    inherited: Option<InheritedHolds>,
    /// Where walks of absolute paths begin, once there was one.
    root: OnceLock<InodeRef>,
    /// After all that logs.
    checkpointer: Arc<Checkpointer>,
}

/// An inode of a set of locks that was asked for.
fn locked<'l, const N: usize>(locks: &'l LockSet<'_, Inode, N>, inode: &InodeObj) -> &'l Inode {
    locks.inode(inode.nid()).expect("the set was acquired with it")
}

/// The same, of one that was asked for exclusively.
fn locked_mut<'l, const N: usize>(locks: &'l mut LockSet<'_, Inode, N>, inode: &InodeObj) -> &'l mut Inode {
    locks.inode_mut(inode.nid()).expect("the set was acquired with it, exclusively")
}

impl Vfs {
    /// The file system over the metadata of a mounted image, which the checkpointer writes home. With `takeover` a
    /// predecessor of this process may have left something there, which [`DataPath::inherit`] brings back, and the
    /// kernel may hold inodes by lookup counts of its.
    pub fn new(
        checkpointer: Arc<Checkpointer>,
        meta: Arc<Meta>,
        options: VfsOptions,
        data: DataOptions,
        takeover: Option<Arc<Takeover>>,
    ) -> Result<Vfs> {
        let inherits = takeover.as_ref().is_some_and(|memory| memory.incarnation() > 0);
        let pending_eviction = Arc::new(PendingEviction::default());
        pending_eviction.hear(!inherits);
        let awaited = Arc::clone(&pending_eviction);
        meta.alloc.set_await_frees(Box::new(move || awaited.wait(pending_eviction::PATIENCE)));
        Ok(Vfs {
            options,
            data: Arc::new(DataPath::new(Arc::clone(&meta), data, takeover)?),
            meta,
            locks: AdvisoryLocks::new(),
            directory_move: RankedMutex::new(Rank::new(LockClass::DirectoryMove, 0), ()),
            pending_eviction,
            watched: Watched::default(),
            inherited: inherits.then(InheritedHolds::default),
            root: OnceLock::new(),
            checkpointer,
        })
    }

    /// The data path: its background threads, what a checkpoint asks of it, its counters.
    pub fn data(&self) -> &DataPath {
        &self.data
    }

    /// The metadata.
    pub fn meta(&self) -> &Arc<Meta> {
        &self.meta
    }

    /// What writes the metadata home.
    pub fn checkpointer(&self) -> &Arc<Checkpointer> {
        &self.checkpointer
    }

    /// Waits for the record of an operation where the mount is synchronous.
    fn finish(&self, end: Position) -> Result<()> {
        kill::step(Step::Unlocked);
        if self.options.sync { self.meta.store.settle_upto(end, self.meta.durability) } else { Ok(()) }
    }

    /// Runs an operation, once more with what can be freed if space ran out.
    fn alloc_room<T>(&self, operation: impl FnMut() -> Result<T>) -> Result<T> {
        self.meta.alloc.with_room(operation)
    }

    fn writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::Errno(libc::EROFS));
        }
        self.meta.store.check_writable()
    }

    /// The options of the mount.
    pub fn options(&self) -> &VfsOptions {
        &self.options
    }

    /// The locks that programs ask for (fcntl, flock), by nid.
    pub fn locks(&self) -> &AdvisoryLocks {
        &self.locks
    }
}
