//! The file that a request is about.
//!
//! Either each open of a file is a request, and its number names a handle of the engine's
//! ([`Handles`](super::handles::Handles)). Or the kernel
//! *keeps* open files to itself: where it checks permissions and is the only way in, OPEN is answered ENOSYS once, and
//! neither OPEN nor RELEASE comes again. A request then names its inode alone, which the kernel holds by a lookup count
//! as long as the file is open, and a file is borrowed for each request.
//!
//! What is lost with that, and what stands in for it:
//! - flags of an open file: each request brings them along;
//! - O_DIRECT beside each other: the kernel's own way for such files writes one request of a file at a time (with
//!   `io=direct` files are opened as ever);
//! - a failed write-back is told to each open file once: here to each thread that syncs, once ([`Failures`]);
//! - the time of the last close: nothing hangs on it.
//!
//! # Invariants
//! A number that the kernel has is 0, or [`PAST_CACHE`] of a file made for writing alone, where it keeps open files.

use super::engine::EngineOperations;
use super::failures::{Failures, Report};
use super::handles::Open;
use crate::operations::Write;
use crate::session::RequestContext;
use crate::types::Result;
use narufs_engine::format::Nid;
use narufs_engine::vfs::{self, FileHandle};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The number of a file that the kernel writes past its cache, where it keeps open files.
pub const PAST_CACHE: u64 = 1;

/// A file for one request.
pub enum File {
    /// That was opened by a request.
    Opened(Arc<Open>),
    /// That the kernel keeps open.
    Borrowed(FileHandle),
}

impl Deref for File {
    type Target = FileHandle;

    fn deref(&self) -> &FileHandle {
        match self {
            File::Opened(open) => open,
            File::Borrowed(handle) => handle,
        }
    }
}

impl EngineOperations {
    /// Whether the kernel keeps open files to itself.
    pub(super) fn kernel_keeps_opens(&self) -> bool {
        // Relaxed: it is set before the first request is received.
        self.keeps_opens.load(Ordering::Relaxed)
    }

    /// Whether a file that is made with these flags, and that the kernel keeps open, goes past its cache.
    ///
    /// Who writes a new file in pieces of any size, and does not read it, gains nothing from the kernel's cache, where a
    /// piece that begins within a page and goes beyond it is two requests.
    pub(super) fn is_made_past_cache(&self, flags: i32) -> bool {
        !self.kernel_keeps_writes() && flags & libc::O_ACCMODE == libc::O_WRONLY
    }

    /// The file of a request for this inode that names `fh`.
    pub(super) fn file(&self, nid: Nid, fh: u64) -> Result<File> {
        self.file_with(nid, fh, vfs::OpenFlags::READ_WRITE | vfs::OpenFlags::KERNEL_CACHES)
    }

    /// The same; `flags` are those of a file that the kernel keeps open.
    pub(super) fn file_with(&self, nid: Nid, fh: u64, flags: vfs::OpenFlags) -> Result<File> {
        if self.is_borrowed(fh) {
            return Ok(File::Borrowed(self.as_served(self.fs().borrow(nid, flags, None)?)));
        }
        Ok(File::Opened(self.open.get(fh)?))
    }

    /// Whether an open file is the kernel's alone to know: it keeps all of them, or this one was opened by an earlier
    /// server.
    fn is_borrowed(&self, fh: u64) -> bool {
        self.kernel_keeps_opens() || self.open.is_foreign(fh)
    }

    /// The file by which attributes are changed, if there is one that says who may. Of a file that the kernel keeps open
    /// it has checked that itself.
    pub(super) fn opened_for_change(&self, nid: Nid, fh: Option<u64>) -> Result<Option<File>> {
        let fh = fh.filter(|_| !self.kernel_keeps_opens());
        fh.map(|fh| self.file(nid, fh)).transpose()
    }

    /// The flags by which a file that the kernel keeps open is read.
    pub(super) fn flags_to_read(&self, flags: i32) -> vfs::OpenFlags {
        let asked = vfs::OpenFlags::from_kernel(flags as u32);
        let alone = asked & (vfs::OpenFlags::DIRECT | vfs::OpenFlags::NO_ATIME);
        let cached = if alone.contains(vfs::OpenFlags::DIRECT) {
            vfs::OpenFlags::empty()
        } else {
            vfs::OpenFlags::KERNEL_CACHES
        };
        alone | cached
    }

    /// Whether a write goes past the kernel's cache, unless that is written back.
    pub(super) fn goes_past_cache(&self, write: &Write) -> bool {
        if self.kernel_keeps_opens() {
            return write.fh == PAST_CACHE || write.open_flags & libc::O_DIRECT != 0;
        }
        self.is_direct(write.open_flags)
    }

    /// The directory of a request for this inode that names `fh`.
    pub(super) fn directory(&self, nid: Nid, fh: u64) -> Result<File> {
        if self.kernel_keeps_directories() || self.open.is_foreign(fh) {
            let borrowed = self.fs().borrow(nid, vfs::OpenFlags::DIRECTORY, None)?;
            return Ok(File::Borrowed(self.as_served(borrowed)));
        }
        Ok(File::Opened(self.open.get(fh)?))
    }

    /// The file that is to be synced, and, if the kernel keeps it open, what the caller has been told of it.
    pub(super) fn to_sync(
        &self,
        ctx: &RequestContext<'_>,
        nid: Nid,
        fh: u64,
    ) -> Result<(File, Option<Report>)> {
        if !self.is_borrowed(fh) {
            return Ok((File::Opened(self.open.get(fh)?), None));
        }
        let report = Failures::begin(&self.failures, nid, ctx.pid);
        let mark = Some(Arc::clone(&report.mark));
        Ok((File::Borrowed(self.fs().borrow(nid, vfs::OpenFlags::READ_WRITE, mark)?), Some(report)))
    }
}
