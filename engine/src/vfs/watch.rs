//! The watcher of changes: the kernel, in front of a mount, that trusts what it knows of a file system for as long as
//! it is not told otherwise, while a program changes the same one through the library.
//!
//! What this leaves to others: how the kernel is told (the mount).
//!
//! # Invariants
//! 1. A change is told before the call that made it returns, after the change is visible, and with no lock of the file
//!    system in hand: the watcher may wait for operations that are under way. A call that has changed no name tells of none.
//! 2. What a mount's own kernel asked for ([`Context::by_kernel`]) is not told: it sees that by itself.
//! 3. That bytes are to change is told before they do, too: what the watcher has of them that is newer comes first.

use super::*;
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed<'a> {
    /// A name in a directory leads elsewhere, or nowhere; with it the directory's own attributes.
    Name {
        /// The directory.
        dir: Nid,
        /// The name.
        name: &'a [u8],
    },
    /// Attributes of an inode, extended ones and access lists among them.
    Attributes {
        /// The inode.
        nid: Nid,
    },
    /// Bytes of a file, and its attributes.
    Content {
        /// The inode.
        nid: Nid,
        /// First byte.
        offset: u64,
        /// Bytes; `u64::MAX` for all that follow.
        len: u64,
    },
    /// A file is longer: told after its content.
    Longer {
        /// The inode.
        nid: Nid,
        /// Bytes that it has now.
        size: u64,
        /// The last of them.
        last: u8,
    },
}

/// Is told of each change. It may wait for operations of others, but not for one of the thread that tells.
pub trait Watch: Send + Sync {
    /// Bytes of a file are going to change.
    fn is_changing(&self, nid: Nid, offset: u64, len: u64);

    /// This has changed.
    fn changed(&self, change: Changed<'_>);
}

/// The watcher, if there is one.
#[derive(Default)]
pub(super) struct Watched {
    /// Whether there is one, so that nobody takes the lock for nothing. SeqCst is not needed: a thread that begins to
    /// trust what it knows has set it before it knew anything.
    is_watched: AtomicBool,
    watch: RwLock<Option<Arc<dyn Watch>>>,
}

impl Vfs {
    /// From now on `watch` is told of each change that [`Context::by_kernel`] has not asked for; with `None` nobody is.
    pub fn watch(&self, watch: Option<Arc<dyn Watch>>) {
        let mut watched = self.watched.watch.write();
        // Release: pairs with the Acquire in `tell`.
        self.watched.is_watched.store(watch.is_some(), Ordering::Release);
        *watched = watch;
    }

    /// Tells of a change that `ctx` has asked for.
    #[inline]
    pub(super) fn tell(&self, ctx: &Context, change: Changed<'_>) {
        if self.is_told(ctx) {
            self.tell_of(change);
        }
    }

    /// Whether somebody is told of what `ctx` changes.
    #[inline]
    pub(super) fn is_told(&self, ctx: &Context) -> bool {
        // Acquire: pairs with the Release in `watch`.
        !ctx.is_by_kernel() && self.watched.is_watched.load(Ordering::Acquire)
    }

    #[cold]
    fn tell_of(&self, change: Changed<'_>) {
        let watch = self.watched.watch.read().clone();
        if let Some(watch) = watch {
            watch.changed(change);
        }
    }

    /// Bytes of a file are going to change, if `ctx` is told of; what this gives tells when they have.
    #[inline]
    pub(super) fn changing(
        &self,
        ctx: &Context,
        inode: &Arc<InodeObj>,
        offset: u64,
        len: u64,
    ) -> Changing<'_> {
        let told = self.is_told(ctx).then(|| self.changing_told(inode, offset, len));
        Changing { vfs: self, told, offset, len }
    }

    #[cold]
    fn changing_told(&self, inode: &Arc<InodeObj>, offset: u64, len: u64) -> (Arc<InodeObj>, u64) {
        let watch = self.watched.watch.read().clone();
        if let Some(watch) = watch {
            watch.is_changing(inode.nid(), offset, len);
        }
        (Arc::clone(inode), inode.size())
    }

    /// Tells that a name has been moved, with what it leads to.
    pub(super) fn tell_moved(&self, ctx: &Context, from: (Nid, &[u8]), to: (Nid, &[u8])) {
        if !self.is_told(ctx) {
            return;
        }
        for (dir, name) in [from, to] {
            self.tell_of(Changed::Name { dir, name });
            // In an exchange both lead somewhere.
            let found = self.meta.inode(dir).and_then(|dir| self.guess(&Context::root(), &dir, name));
            if let Ok(Some(inode)) = found {
                self.tell_of(Changed::Attributes { nid: inode.nid() });
            }
        }
    }
}

/// A change of bytes; dropped, it is told.
pub(super) struct Changing<'v> {
    vfs: &'v Vfs,
    /// The file, and its size before.
    told: Option<(Arc<InodeObj>, u64)>,
    /// What has changed: to be set where that is less than was to change.
    pub offset: u64,
    pub len: u64,
}

impl Drop for Changing<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((inode, size)) = self.told.take() {
            self.vfs.tell_changed(&inode, size, self.offset, self.len);
        }
    }
}

impl Vfs {
    #[cold]
    fn tell_changed(&self, inode: &Arc<InodeObj>, before: u64, offset: u64, len: u64) {
        let nid = inode.nid();
        self.tell_of(Changed::Content { nid, offset, len });
        let (size, mut last) = (inode.size(), [0]);
        // Who cannot read it has more to tell than this.
        if size > before
            && let Ok(1) = self.data.read(inode, size - 1, &mut last)
        {
            self.tell_of(Changed::Longer { nid, size, last: last[0] });
        }
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("is_watched", &self.is_watched).finish_non_exhaustive()
    }
}
