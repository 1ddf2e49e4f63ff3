//! Names: what they lead to, who may look them up and change them, and links. What makes an inode is in `make`.

use super::*;
use crate::acl;
use crate::dir::{self, ENTRY_SLOTS, Insertion};
use crate::format::{Inode, InodeFlags, Intent};
use crate::inode::InodeObj;
use crate::lock::{Access, StripeSet, Want};
use crate::sync::Arc;

/// Slots of a new name, with an inode or without, attributes not counted.
pub(super) const MAKE_SLOTS: u32 = ENTRY_SLOTS + 16;
/// Most names of an inode.
pub(super) const LINK_MAX: u32 = 1 << 30;

impl Fs {
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

    pub(super) fn lookup_inode(&self, ctx: &Context, parent: Nid, name: &[u8]) -> Result<Arc<InodeObj>> {
        let dir = self.meta.inode(parent)?;
        match name {
            b"." => {
                self.may_search(ctx, &dir, &dir.lock.read())?;
                self.hold(dir)
            }
            b".." => {
                let image = dir.lock.read();
                self.may_search(ctx, &dir, &image)?;
                self.hold(self.parent_of(&image)?)
            }
            _ => self.find(ctx, &dir, name, |found| self.hold(found.ok_or(Error::Errno(libc::ENOENT))?)),
        }
    }

    /// The directory above one that is locked: for as long as that is so it is not empty, and cannot go. What was removed
    /// has none: the id that it remembers may be another's.
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

    /// Gives an inode another name, and a lookup count.
    pub(super) fn link_inode(
        &self,
        ctx: &Context,
        inode: &Arc<InodeObj>,
        dir: &Arc<InodeObj>,
        name: &[u8],
    ) -> Result<()> {
        let nid = inode.nid();
        if !dir.is_dir() {
            return Err(Error::Errno(libc::ENOTDIR));
        }
        if matches!(name, b"." | b"..") {
            return Err(Error::Errno(libc::EEXIST));
        }
        dir::check_name(name)?;
        let end = self.alloc_room(|| {
            loop {
                let mut h = self.meta.begin(MAKE_SLOTS)?;
                let entries = self.meta.dir(dir);
                let bucket = entries.bucket_of(&dir.lock.read(), name);
                if inode.is_dir() {
                    // An existing name is the first thing to be told.
                    let errno = |found: Option<_>| if found.is_some() { libc::EEXIST } else { libc::EPERM };
                    return self.find(ctx, dir, name, |found| Err(Error::Errno(errno(found))));
                }
                let mut locks = LockSet::acquire([
                    Want::Inode(&dir.lock, Access::Read),
                    Want::Buckets(dir.bucket_locks(), StripeSet::of(u64::from(bucket)), Access::Write),
                    Want::Inode(&inode.lock, Access::Write),
                ]);
                let image = locked(&locks, dir);
                if entries.bucket_of(image, name) != bucket {
                    continue;
                }
                self.may_search(ctx, dir, image)?;
                if entries.lookup(None, image, name)?.is_some() {
                    return Err(Error::Errno(libc::EEXIST));
                }
                self.may_change_entries(ctx, dir, image)?;
                let own = locked(&locks, inode);
                let mut draft = inode.draft(own);
                let nlink = own.nlink.get();
                let flags = InodeFlags::from_bits_retain(own.flags.get());
                if inode.holds.is_gone()
                    || nlink == 0 && (!flags.contains(InodeFlags::ORPHAN) || inode.is_unlinkable())
                {
                    return Err(Error::Errno(libc::ENOENT));
                }
                if nlink >= LINK_MAX {
                    return Err(Error::Errno(libc::EMLINK));
                }
                if entries.insert(&mut h, image, name, nid, inode.file_type())? == Insertion::Full {
                    drop(h);
                    drop(locks);
                    self.grow(dir, name)?;
                    continue;
                }
                let at = now();
                draft.image.nlink.set(nlink + 1);
                draft.image.ctime.set(at);
                if nlink == 0 {
                    draft.image.flags.set((flags - InodeFlags::ORPHAN).bits());
                    draft.image.parent.set(dir.nid());
                    self.meta.space.end_intent(&mut h, nid, Intent::Orphan)?;
                }
                self.meta.stage(&mut h, inode, &draft.image)?;
                self.meta.stage_dir_time(&mut h, dir, at)?;
                if !inode.holds.look_up() {
                    return Err(Error::Errno(libc::ENOENT));
                }
                let (end, _carrying) = match self.meta.commit(h) {
                    Ok(committed) => committed,
                    Err(e) => {
                        inode.holds.forget(1);
                        return Err(e);
                    }
                };
                dir.show_content_time(at);
                inode.install(locked_mut(&mut locks, inode), &draft);
                self.pending_eviction.left(nid);
                return Ok(end);
            }
        })?;
        self.finish(end)
    }
}
