//! What makes changes durable: fsync, syncfs, and both without a thread that waits.

use super::*;
use crate::file::{BegunSync, SyncKind};
use crate::journal::{Done, Durability};
use std::ops::Deref;

/// How the end of an fsync is waited for.
enum Wait<'a> {
    /// The caller sleeps until then.
    Sleeping,
    /// It is called with the outcome. What waits for that is run by whom the second gives it to; without one, by the caller.
    Calling(Done, Option<&'a mut dyn FnMut(Waiting)>),
}

/// Waits for a commit, or leads it, and tells the outcome behind that: a thread that answers others is never the one
/// that tells, so that who is told may let the file system go.
pub type Waiting = Box<dyn FnOnce() + Send>;

impl Vfs {
    /// Returns when data and attributes of the file, and all metadata changed before, are durable; with
    /// `datasync` attributes that are not needed to read the data may stay behind.
    pub fn fsync(&self, handle: &FileHandle, datasync: bool) -> Result<()> {
        self.sync(handle, datasync, Wait::Sleeping)
    }

    /// Returns when the data of the file, and every operation that returned before, survive the end of the process: what
    /// was written or logged does, so that no commit and no flush is waited for. To a loss of power it was not synced.
    pub fn fsync_process(&self, handle: &FileHandle) -> Result<()> {
        match handle.mark.as_deref() {
            Some(mark) => self.data.sync_process(&handle.inode, mark),
            None => self.log_dir(handle).map(drop),
        }
    }

    /// As [`Vfs::fsync`], but `done` is called with the outcome, by this thread or another; it must neither sleep
    /// nor take locks of the file system. The handle is let go before anything is waited for: this thread may
    /// come to serve others for long.
    pub fn fsync_then(&self, handle: impl Deref<Target = FileHandle>, datasync: bool, done: Done) {
        // The outcome is told to `done`.
        let _ = self.sync(handle, datasync, Wait::Calling(done, None));
    }

    /// The same; what waits for the commit is run by whom `later` gives it to, whatever becomes of this thread.
    pub fn fsync_by(
        &self,
        handle: impl Deref<Target = FileHandle>,
        datasync: bool,
        done: Done,
        mut later: impl FnMut(Waiting),
    ) {
        let _ = self.sync(handle, datasync, Wait::Calling(done, Some(&mut later)));
    }

    /// A file's size was changed: that is durable on return where every change is to be.
    pub(super) fn sync_cut(&self, inode: &Arc<InodeObj>) -> Result<()> {
        if !self.options.sync {
            return Ok(());
        }
        self.fsync(&self.handle(Arc::clone(inode), OpenFlags::empty()), false)
    }

    /// The one way of an fsync: what it covers is logged, or written home, then committed, and then it ends.
    fn sync(&self, handle: impl Deref<Target = FileHandle>, datasync: bool, wait: Wait<'_>) -> Result<()> {
        let kind = if datasync { SyncKind::Data } else { SyncKind::All };
        let begun = match handle.mark {
            Some(_) => self.data.begin_fsync(&handle.inode, kind),
            None => self.log_dir(&handle).map(BegunSync::of_metadata),
        };
        let end =
            |data: &DataPath, inode: &Arc<InodeObj>, begun, committed, mark: Option<&ErrorMark>| match mark {
                Some(mark) => data.end_fsync(inode, begun, committed, mark),
                None => committed,
            };
        let (store, durability) = (&self.meta.store, self.meta.durability);
        let upto = begun.as_ref().map(BegunSync::upto).map_err(Clone::clone);
        match (wait, upto) {
            (Wait::Sleeping, upto) => {
                let committed = upto.and_then(|upto| store.settle_upto(upto, durability));
                end(&self.data, &handle.inode, begun, committed, handle.mark.as_deref())
            }
            (Wait::Calling(done, _), Err(e)) => {
                let outcome = end(&self.data, &handle.inode, begun, Err(e), handle.mark.as_deref());
                drop(handle);
                done(outcome);
                Ok(())
            }
            (Wait::Calling(done, later), Ok(upto)) => {
                let (data, inode, mark) =
                    (Arc::clone(&self.data), Arc::clone(&handle.inode), handle.mark.clone());
                drop(handle);
                let end = move |committed| {
                    let outcome = end(&data, &inode, begun, committed, mark.as_deref());
                    // Let go before the caller knows: the end of its use is not to fall to this thread.
                    drop((inode, data));
                    done(outcome);
                };
                let end: Done = Box::new(end);
                match later {
                    None => store.commit_then(upto, durability, end),
                    Some(later) => {
                        let store = Arc::clone(store);
                        later(Box::new(move || end(store.settle_upto(upto, durability))));
                    }
                }
                Ok(())
            }
        }
    }

    /// Logs what waits to be, of a directory and of truncations; what is to be committed then.
    fn log_dir(&self, handle: &FileHandle) -> Result<Position> {
        self.meta.log_times(&handle.inode)?;
        self.data.settle_deferred()?;
        Ok(self.meta.store.tail())
    }

    /// Returns when everything written before is durable.
    pub fn syncfs(&self) -> Result<()> {
        self.data.sync_all(|| {
            let mut stale = self.meta.table.stale(usize::MAX).into_iter();
            stale.try_for_each(|inode| self.meta.log_times(&inode))
        })
    }

    /// Returns when everything that a sync was answered for survives a loss of power, and every operation on
    /// metadata that returned before: at once, with `durability=power`, but for the latter.
    pub fn sync_power(&self) -> Result<()> {
        let store = &self.meta.store;
        let upto = store.tail();
        store.keep_promises()?;
        store.commit_upto(upto, Durability::Power)
    }
}
