//! A file as it is: a write-ahead log, a journal that another process has left, what SQLite has no special name for.

use crate::db::{code, filled};
use crate::ffi::{Answer, IOERR_FSTAT, IOERR_FSYNC, IOERR_READ, IOERR_TRUNCATE, IOERR_WRITE};
use crate::journal::REAL;
use crate::mount::Mount;
use narufs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open file.
pub struct Plain {
    pub file: File,
    /// Whether it is a journal that is being written, past the memory of its database.
    counts: bool,
    /// A name that was not synced yet.
    is_new: AtomicBool,
    /// Whether what was written may go with the process.
    unsettled: AtomicBool,
    /// A log whose commits nobody tells of: each write is to outlive the process.
    pub settles: bool,
    /// To be removed when it is closed.
    pub gone: Option<String>,
    /// The last of its fields, as a database's is.
    pub mount: Arc<Mount>,
}

impl Plain {
    pub(crate) fn new(mount: Arc<Mount>, file: File, counts: bool) -> Plain {
        if counts {
            REAL.fetch_add(1, Ordering::SeqCst);
        }
        let (is_new, unsettled) = (AtomicBool::new(true), AtomicBool::new(false));
        Plain { file, counts, is_new, unsettled, settles: false, gone: None, mount }
    }

    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> Answer {
        let read = self.file.read_at(into, offset).map_err(|e| code(&e, IOERR_READ))?;
        filled(into, read)
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Answer {
        self.unsettled.store(true, Ordering::Relaxed);
        self.file.write_all_at(bytes, offset).map_err(|e| code(&e, IOERR_WRITE))?;
        if self.settles { self.settle() } else { Ok(()) }
    }

    /// What was written outlives the process from now on.
    pub(crate) fn settle(&self) -> Answer {
        if !self.unsettled.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.file.sync_process().map_err(|e| {
            self.unsettled.store(true, Ordering::Relaxed);
            code(&e, IOERR_FSYNC)
        })
    }

    pub(crate) fn truncate(&self, len: u64) -> Answer {
        self.file.set_len(len).map_err(|e| code(&e, IOERR_TRUNCATE))
    }

    pub(crate) fn sync(&self) -> Answer {
        let synced = if self.is_new.swap(false, Ordering::Relaxed) {
            self.file.sync_all()
        } else {
            self.file.sync_data()
        };
        synced.map_err(|e| code(&e, IOERR_FSYNC))?;
        self.unsettled.store(false, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn size(&self) -> Answer<u64> {
        self.file.metadata().map(|m| m.len()).map_err(|e| code(&e, IOERR_FSTAT))
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        if self.counts {
            REAL.fetch_sub(1, Ordering::SeqCst);
        }
        if let Some(path) = &self.gone {
            // It may be gone already.
            let _ = self.mount.fs.remove_file(path);
        }
    }
}
