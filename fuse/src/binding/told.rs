//! Tells the kernel of what a program changes through the library.
//!
//! What it leaves to others: which changes there are (`narufs_engine::vfs::watch`).
//!
//! Why what the kernel trusts is never older than the last library call that has returned:
//! 1. *Names.* A look-up, a listing and every change of a name hold the directory's lock in the kernel from before the
//!    request until its answer is in place; dropping a name takes that lock alone. So an answer from before the change is
//!    in place by then, and is dropped, and one that comes later was given after the change.
//! 2. *Attributes.* Each answer is as old as the request: the kernel counts, and leaves an answer aside that was asked for
//!    before it was last told to forget. It counts for inodes that it has, and what comes with a name may be of one that it
//!    has not; nor did it count, before 2025, for attributes that it has set. Both are trusted for no time here
//!    (`EngineOperations::hold_uncounted`).
//! 3. *Pages.* A page that is being read is locked until the answer is in it; dropping it waits for that.
//! 4. *Stores through maps.* A page that was stored to comes to the server as a whole when it is dropped. So pages are dropped
//!    before their bytes are changed, too: what was stored until then comes first. A store to the same page meanwhile has the
//!    rest of that page come with it: who maps a file to write to it agrees with the program on its pages.
//! 5. *Sizes.* A map shows what is below the size that the kernel has, and asks for no other; nor does a write to the end,
//!    which therefore goes past the cache (`EngineOperations::is_direct`). Only bytes that are stored there make that size
//!    larger: the last one, which is dropped again, for it may be another by then.
//!
//! # Invariants
//! The thread that tells serves no request, and holds no lock of the file system: whoever has the kernel's locks gets its
//! answer.

use crate::server::Notifier;
use crate::wire::notify::Notification;
use narufs_engine::format::Nid;
use narufs_engine::vfs::{Changed, Watch};

/// Tells one kernel.
pub struct Teller {
    notifier: Notifier,
}

impl Teller {
    /// Tells by these means.
    pub fn new(notifier: Notifier) -> Teller {
        Teller { notifier }
    }

    fn send(&self, notification: &Notification<'_>) {
        match self.notifier.send(notification) {
            Ok(()) => {}
            // It knows nothing of it, or is gone.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTCONN | libc::ENODEV)) => {}
            Err(e) => tracing::warn!("the kernel may show what has changed: {notification:?}: {e}"),
        }
    }
}

/// The kernel's offset and length of these bytes.
fn range(offset: u64, len: u64) -> (i64, i64) {
    match i64::try_from(offset) {
        // To the end.
        Ok(offset) => (offset, i64::try_from(len).unwrap_or(0)),
        Err(_) => (0, 0),
    }
}

impl Watch for Teller {
    fn is_changing(&self, nid: Nid, offset: u64, len: u64) {
        let (offset, len) = range(offset, len);
        self.send(&Notification::InvalInode { nodeid: nid, offset, len });
    }

    fn changed(&self, change: Changed<'_>) {
        match change {
            Changed::Name { dir, name } => {
                self.send(&Notification::InvalEntry { parent: dir, name, expire_only: false });
                // With the pages of a directory goes its listing.
                self.send(&Notification::InvalInode { nodeid: dir, offset: 0, len: 0 });
            }
            Changed::Attributes { nid } => {
                self.send(&Notification::InvalInode { nodeid: nid, offset: -1, len: 0 });
            }
            Changed::Content { nid, offset, len } => {
                let (offset, len) = range(offset, len);
                self.send(&Notification::InvalInode { nodeid: nid, offset, len });
            }
            Changed::Longer { nid, size, last } => {
                let end = size - 1;
                self.send(&Notification::Store { nodeid: nid, offset: end, data: &[last] });
                let (offset, len) = range(end, 1);
                self.send(&Notification::InvalInode { nodeid: nid, offset, len });
            }
        }
    }
}
