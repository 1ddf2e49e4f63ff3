//! Synchronisation that nobody's thread waits for: the commit's leader tells the outcome.
//!
//! What is logged and what is promised is as in [`Fs::fsync`]; only who waits differs.

use super::*;
use crate::file::SyncKind;
use crate::journal::Done;
use std::ops::Deref;

impl Fs {
    /// As [`Fs::fsync`], but `done` is called with the outcome, by this thread or another; it must neither sleep
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

    /// As [`Fs::fsyncdir`], but `done` is called with the outcome.
    pub fn fsyncdir_then(self: &Arc<Self>, handle: impl Deref<Target = FileHandle>, done: Done) {
        let logged = self.log_dir(&handle);
        drop(handle);
        match logged {
            Ok(upto) => self.meta.store.commit_then(upto, self.meta.durability, done),
            Err(e) => done(Err(e)),
        }
    }

    /// Logs what waits to be, of a directory and of truncations; what is to be committed then.
    pub(super) fn log_dir(&self, handle: &FileHandle) -> Result<Position> {
        self.meta.log_times(&handle.inode)?;
        self.data.settle_deferred()?;
        Ok(self.meta.store.tail())
    }
}
