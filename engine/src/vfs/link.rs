//! Links: further names of an inode, and the targets of symbolic links.

use super::names::{LINK_MAX, MAKE_SLOTS};
use super::*;
use crate::acl;
use crate::dir::{self, Insertion};
use crate::format::{Inode, InodeFlags, Intent, XATTR_SYMLINK};
use crate::inode::InodeObj;
use crate::lock::{Access, StripeSet, Want};
use crate::takeover::requests;
use crate::xattr;

impl Vfs {
    /// Gives an inode another name; one of [`Vfs::tmpfile`] its first.
    pub fn link(&self, ctx: &Context, nid: Nid, new_parent: Nid, new_name: &[u8]) -> Result<Entry> {
        let inode = self.reach(nid)?;
        self.link_inode(ctx, &inode.0, &self.reach(new_parent)?, new_name)?;
        Ok(self.entry(&inode.0))
    }

    /// As [`Vfs::link`], of what a walk has reached.
    pub fn link_at(&self, ctx: &Context, at: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<()> {
        self.link_inode(ctx, &at.0, dir, name)?;
        if at.0.holds.forget(1) {
            self.reap(&at.0);
        }
        Ok(())
    }

    /// EPERM, where links are protected ([`Context::protecting_links`]), for what is neither the caller's own nor a plain
    /// file that he may read and write: a name in a directory of his would keep it from going.
    fn may_link(&self, ctx: &Context, inode: &InodeObj, image: &Inode) -> Result<()> {
        let owns = ctx.is_root() || ctx.is_checked() || ctx.uid == image.uid.get();
        if owns || !ctx.protects_links() {
            return Ok(());
        }
        let mode = u32::from(image.mode.get());
        let runs_as_group = libc::S_ISGID | libc::S_IXGRP;
        let gives_rights = mode & libc::S_ISUID != 0 || mode & runs_as_group == runs_as_group;
        if inode.file_type() != FileType::Regular || gives_rights {
            return Err(Error::Errno(libc::EPERM));
        }
        self.check(ctx, inode, image, acl::READ | acl::WRITE).map_err(|e| match e {
            Error::Errno(libc::EACCES) => Error::Errno(libc::EPERM),
            e => e,
        })
    }

    /// Gives an inode another name, and a lookup count.
    fn link_inode(&self, ctx: &Context, inode: &Arc<InodeObj>, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let dir = &dir.0;
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
                let own = locked(&locks, inode);
                self.may_link(ctx, inode, own)?;
                self.may_change_entries(ctx, dir, image)?;
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
                requests::decides(nid);
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
        self.tell_moved(ctx, (dir.nid(), name), (dir.nid(), name));
        self.finish(end)
    }

    /// Target of a symlink.
    pub fn readlink(&self, nid: Nid) -> Result<Vec<u8>> {
        self.readlink_at(&self.reach(nid)?)
    }

    /// Target of a symbolic link that a walk has reached.
    pub fn readlink_at(&self, at: &InodeRef) -> Result<Vec<u8>> {
        let inode = &at.0;
        if inode.file_type() != FileType::Symlink {
            return Err(Error::Errno(libc::EINVAL));
        }
        let image = inode.lock.read();
        if image.flags.get() & InodeFlags::INLINE_SYMLINK.bits() != 0 {
            let len = image.size.get() as usize;
            return image.inline.get(..len).map(<[u8]>::to_vec).ok_or(Error::Errno(libc::EIO));
        }
        let attributes = xattr::read(&self.meta.store, &image)?;
        xattr::find(&attributes, XATTR_SYMLINK).map(<[u8]>::to_vec).ok_or_else(|| match image.nlink.get() {
            // Removed, and freed, since it was found.
            0 => Error::Errno(libc::ENOENT),
            _ => Error::Corrupt {
                what: "symlink",
                place: format!("nid {}", inode.nid()),
                detail: "its target is missing".into(),
            },
        })
    }
}
