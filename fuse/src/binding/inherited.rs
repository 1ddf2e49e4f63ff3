//! What an earlier server of the mount has done, and this one answers for.

use super::engine::EngineOperations;
use super::files::PAST_CACHE;
use super::names::Lease;
use crate::operations::Write;
use crate::server::Notifier;
use crate::types::{Entry, Opened, Result};
use crate::wire::notify::Notification;
use narufs_engine::format::Nid;
use narufs_engine::takeover::Prober;
use narufs_engine::vfs;
use std::sync::Arc;

impl EngineOperations {
    /// What was made in `parent`, for the reply that was not sent.
    pub(super) fn made_before(&self, parent: Nid, nid: Nid, lease: Lease) -> Result<Entry> {
        let entry = self.fs().made_before(nid)?;
        self.dir_times.changed(parent);
        Ok(self.entry(&entry, lease))
    }

    /// How the kernel is to treat what was made and opened.
    pub(super) fn opened_before(&self, flags: i32) -> Opened {
        let fh = match self.kernel_keeps_opens() {
            true if self.is_made_past_cache(flags) => PAST_CACHE,
            true => 0,
            false => self.open.foreign(),
        };
        Opened { fh, flags: self.kernel_flags(flags) }
    }

    /// Makes durable what was written, if a file opened so is written through, past the kernel's cache: elsewhere the
    /// kernel asks for that itself.
    pub(super) fn sync_written(&self, nid: Nid, write: &Write) -> Result<()> {
        let flags = vfs::OpenFlags::from_kernel(write.open_flags as u32);
        if self.goes_past_cache(write) && (flags.is_sync() || flags.is_dsync()) {
            let file = self.file(nid, write.fh)?;
            self.fs().fsync(&file, !flags.is_sync())?;
        }
        Ok(())
    }

    /// Has inodes without names freed that the kernel has forgotten behind an earlier server's back.
    pub(super) fn ask_kernel(&self) {
        let Some(notifier) = self.notifier.get() else { return };
        if let Err(e) = self.fs().ask_kernel(Arc::new(Kernel(notifier.clone()))) {
            tracing::warn!("space of files without names is freed at the next mount: {e}");
        }
    }
}

struct Kernel(Notifier);

impl Prober for Kernel {
    fn kernel_holds(&self, nid: u64) -> bool {
        // It drops attributes, which it asks for again, and no pages.
        let question = Notification::InvalInode { nodeid: nid, offset: -1, len: 0 };
        !self.0.send(&question).is_err_and(|e| e.raw_os_error() == Some(libc::ENOENT))
    }
}
