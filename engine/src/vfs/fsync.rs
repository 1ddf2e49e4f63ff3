//! What makes changes durable: fsync, syncfs, and both without a thread that waits.
//!
//! What is logged and what is promised is the same in either form; with a completion the commit's leader tells the
//! outcome.

use super::*;
use crate::file::SyncKind;
use crate::journal::{Done, Durability};
use std::ops::Deref;

impl Vfs {
    /// Returns when data and attributes of the file, and all metadata changed before, are durable; with
    /// `datasync` attributes that are not needed to read the data may stay behind.
    pub fn fsync(&self, handle: &FileHandle, datasync: bool) -> Result<()> {
        match &handle.mark {
            Some(mark) => {
                let kind = if datasync { SyncKind::Data } else { SyncKind::All };
                self.data.fsync(&handle.inode, kind, mark)
            }
            None => self.fsyncdir(handle, datasync),
        }
    }

    /// As [`Vfs::fsync`], but `done` is called with the outcome, by this thread or another; it must neither sleep
    /// nor take locks of the file system. The handle is let go before anything is waited for: this thread may
    /// come to serve others for long.
    pub fn fsync_then(self: &Arc<Self>, handle: impl Deref<Target = FileHandle>, datasync: bool, done: Done) {
        let Some(mark) = handle.mark.clone() else { return self.fsyncdir_then(handle, done) };
        let (inode, kind) =
            (Arc::clone(&handle.inode), if datasync { SyncKind::Data } else { SyncKind::All });
        let begun = self.data.begin_fsync(&inode, kind);
        drop(handle);
        match begun {
            Ok(begun) => {
                let (upto, fs) = (begun.upto(), Arc::clone(self));
                let end = move |committed| {
                    let outcome = fs.data.end_fsync(&inode, Ok(begun), committed, &mark);
                    // Let go before the caller knows: the end of its use is not to fall to this thread.
                    drop((inode, fs));
                    done(outcome);
                };
                self.meta.store.commit_then(upto, self.meta.durability, Box::new(end));
            }
            failed => done(self.data.end_fsync(&inode, failed, Ok(()), &mark)),
        }
    }

    /// Returns when all metadata changed before is durable.
    pub fn fsyncdir(&self, handle: &FileHandle, _datasync: bool) -> Result<()> {
        let upto = self.log_dir(handle)?;
        self.meta.store.settle_upto(upto, self.meta.durability)
    }

    /// As [`Vfs::fsyncdir`], but `done` is called with the outcome.
    pub fn fsyncdir_then(self: &Arc<Self>, handle: impl Deref<Target = FileHandle>, done: Done) {
        let logged = self.log_dir(&handle);
        drop(handle);
        match logged {
            Ok(upto) => self.meta.store.commit_then(upto, self.meta.durability, done),
            Err(e) => done(Err(e)),
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
