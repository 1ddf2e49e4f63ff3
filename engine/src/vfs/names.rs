//! Names: what they lead to, which callers may look them up and change them, and the lookup counts of those that know
//! inodes by number. What makes an inode is in `make`.

use super::*;
use crate::acl;
use crate::dir::{self, ENTRY_SLOTS};
use crate::format::{Inode, InodeFlags};
use crate::inode::InodeObj;
use crate::lock::{Access, StripeSet};
use crate::planted::{self, Bug};
use crate::sync::Arc;

/// Slots of a new name, with an inode or without, attributes not counted.
pub(super) const MAKE_SLOTS: u32 = ENTRY_SLOTS + 16;
/// Most names of an inode.
pub(super) const LINK_MAX: u32 = 1 << 30;

impl Vfs {
    /// The inode of a name; its parent's lock and bucket are held while `f` runs with it.
    pub(super) fn find<R>(
        &self,
        ctx: &Context,
        parent: &Arc<InodeObj>,
        name: &[u8],
        f: impl FnOnce(Option<Arc<InodeObj>>) -> Result<R>,
    ) -> Result<R> {
        let image = parent.lock.read();
        self.may_search(ctx, parent, &image)?;
        dir::check_name(name)?;
        let entries = self.meta.dir(parent);
        let stripe = StripeSet::of(u64::from(entries.bucket_of(&image, name)));
        let _bucket = parent.bucket_locks().lock(stripe, Access::Read);
        match entries.lookup(None, &image, name)? {
            Some(hit) => f(Some(self.meta.named(hit.nid)?)),
            None => f(None),
        }
    }

    pub(super) fn may_search(&self, ctx: &Context, dir: &InodeObj, image: &Inode) -> Result<()> {
        if !dir.is_dir() {
            return Err(Error::Errno(libc::ENOTDIR));
        }
        self.check(ctx, dir, image, acl::EXECUTE)
    }

    /// Whether entries may be made and removed.
    pub(super) fn may_change_entries(&self, ctx: &Context, dir: &InodeObj, image: &Inode) -> Result<()> {
        if image.flags.get() & InodeFlags::DEAD.bits() != 0 {
            return Err(Error::Errno(libc::ENOENT));
        }
        self.check(ctx, dir, image, acl::EXECUTE | acl::WRITE)
    }

    /// Looks a name up. ".." leads to the parent. Needs search permission.
    pub fn lookup(&self, ctx: &Context, parent: Nid, name: &[u8]) -> Result<Entry> {
        let dir = self.meta.inode(parent)?;
        let inode = match name {
            b"." => {
                self.may_search(ctx, &dir, &dir.lock.read())?;
                self.hold(dir)?
            }
            b".." => {
                let image = dir.lock.read();
                self.may_search(ctx, &dir, &image)?;
                self.hold(self.parent_of(&image)?)?
            }
            _ => self.find(ctx, &dir, name, |found| self.hold(found.ok_or(Error::Errno(libc::ENOENT))?))?,
        };
        Ok(self.entry(&inode))
    }

    /// The parent of a directory, with a lookup count; of the root itself.
    pub fn parent(&self, nid: Nid) -> Result<Entry> {
        let inode = self.meta.inode(nid)?;
        if !inode.is_dir() {
            return Err(Error::Errno(libc::ENOTDIR));
        }
        let image = inode.lock.read();
        let up = self.hold(self.parent_of(&image)?)?;
        drop(image);
        Ok(self.entry(&up))
    }

    /// The inode of an NFS file handle; ESTALE if it is another's by now. `None` accepts any generation.
    pub fn by_handle(&self, nid: Nid, generation: Option<u32>) -> Result<Entry> {
        let inode = self.meta.inode(nid)?;
        if generation.is_some_and(|g| g != inode.generation())
            || inode.nlink() == 0 && inode.holds.opens() == 0
        {
            return Err(Error::Errno(libc::ESTALE));
        }
        let inode = self.hold(inode).map_err(|_| Error::Errno(libc::ESTALE))?;
        Ok(self.entry(&inode))
    }

    /// The directory above one that is locked: for as long as that is so it is not empty, and cannot go. What was
    /// removed has none: the id that it remembers may be another's.
    pub(super) fn parent_of(&self, image: &Inode) -> Result<Arc<InodeObj>> {
        match image.flags.get() & InodeFlags::DEAD.bits() {
            0 => self.meta.inode(image.parent.get()),
            _ => Err(Error::Errno(libc::ENOENT)),
        }
    }

    /// Adds a lookup count.
    pub(super) fn hold(&self, inode: Arc<InodeObj>) -> Result<Arc<InodeObj>> {
        if inode.holds.look_up() { Ok(inode) } else { Err(Error::Errno(libc::ENOENT)) }
    }

    /// Gives `n` lookup counts back; the last frees an inode without names. Never fails: a count that was not
    /// given is ignored.
    pub fn forget(&self, nid: Nid, n: u64) {
        let inode = match self.meta.table.forget_parked(nid, n) {
            Forgotten::Live(inode) => inode,
            Forgotten::Parked | Forgotten::Unknown => return,
        };
        let n = if planted::is(Bug::ForgottenTwice) { n.saturating_mul(2) } else { n };
        if inode.holds.forget(n) {
            self.reap(&inode);
        }
        drop(inode);
        self.meta.log_waiting_times();
    }

    /// Gives all lookup counts back: the kernel is gone.
    pub fn forget_all(&self) {
        self.end_asking();
        self.meta.table.forget_all_parked();
        for inode in self.meta.table.all() {
            if inode.holds.forget(u64::MAX) {
                self.reap(&inode);
            }
        }
    }

    /// Whether the caller may do what `mask` says (`R_OK`, `W_OK`, `X_OK`, or 0: it exists).
    pub fn access(&self, ctx: &Context, nid: Nid, mask: u32) -> Result<()> {
        let inode = self.meta.inode(nid)?;
        let special =
            !matches!(inode.file_type(), FileType::Regular | FileType::Directory | FileType::Symlink);
        if mask & 2 != 0 && self.options.read_only && !special {
            return Err(Error::Errno(libc::EROFS));
        }
        self.check(ctx, &inode, &inode.lock.read(), mask & 7)
    }
}
