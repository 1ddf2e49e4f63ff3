//! Attributes, permissions and access lists.

use super::*;
use crate::acl::{self, Acl, Acls, Owner};
use crate::format::Inode;
use crate::inode::{Draft, InodeObj};
use crate::sync::Arc;
use crate::xattr;

/// Slots of a change of an inode, its attributes' blocks not counted.
pub(super) const ATTR_SLOTS: u32 = 8;

impl Vfs {
    /// What mode and owner of an image say.
    pub(super) fn owner(&self, inode: &InodeObj, image: &Inode) -> Owner {
        Owner {
            file_type: inode.file_type(),
            perm: u32::from(image.mode.get()) & 0o7777,
            uid: image.uid.get(),
            gid: image.gid.get(),
        }
    }

    /// The access lists of an inode, parsed once. The caller holds its lock.
    pub(super) fn acls(&self, inode: &InodeObj, image: &Inode) -> Result<Arc<Acls>> {
        if let Some(known) = &*inode.acls.read() {
            return Ok(Arc::clone(known));
        }
        let attributes = xattr::read(&self.meta.store, image)?;
        let lists =
            Acls::parse(xattr::find(&attributes, acl::ACCESS), xattr::find(&attributes, acl::DEFAULT))?;
        let lists = Arc::new(lists);
        *inode.acls.write() = Some(Arc::clone(&lists));
        Ok(lists)
    }

    /// EACCES unless the caller has each permission wanted. The caller of this holds the inode's lock.
    pub(super) fn check(&self, ctx: &Context, inode: &InodeObj, image: &Inode, want: u32) -> Result<()> {
        let owner = self.owner(inode, image);
        if image.xattr_block.get() == 0 || ctx.is_root() || ctx.uid == owner.uid {
            return acl::check(ctx, owner, None, want);
        }
        acl::check(ctx, owner, self.acls(inode, image)?.access.as_deref(), want)
    }

    /// Whether everyone may search a directory: by its mode, and no access list says otherwise. `None` for what is no
    /// directory, or not there.
    pub fn everyone_may_search(&self, dir: Nid) -> Option<bool> {
        let inode = self.meta.inode(dir).ok().filter(|inode| inode.is_dir())?;
        let image = inode.lock.read();
        let open = u32::from(image.mode.get()) & 0o111 == 0o111;
        let listed = || self.acls(&inode, &image).map_or(true, |lists| lists.access.is_some());
        Some(open && (image.xattr_block.get() == 0 || !listed()))
    }

    pub(super) fn attr_of(&self, inode: &InodeObj, image: &Inode) -> Attr {
        let [atime, mtime, ctime] = inode.show_times();
        Attr {
            nid: inode.nid(),
            generation: inode.generation(),
            file_type: inode.file_type(),
            perm: u32::from(image.mode.get()) & 0o7777,
            nlink: image.nlink.get(),
            uid: image.uid.get(),
            gid: image.gid.get(),
            rdev: image.rdev.get(),
            size: inode.size(),
            blocks: (self.recorded_blocks(inode, image) + inode.delayed_blocks()) * 8,
            atime,
            mtime,
            ctime,
            btime: image.btime.get(),
        }
    }

    /// Blocks that records have given an inode, and that it still has.
    fn recorded_blocks(&self, inode: &InodeObj, image: &Inode) -> u64 {
        let is_emptied = || inode.made_data().is_some_and(|data| data.pages.is_truncate_pending());
        match image.blocks.get() {
            0 => 0,
            // Who reads attributes that are damaged is told.
            _ if is_emptied() => xattr::blocks(&self.meta.store, image).unwrap_or(0),
            blocks => blocks,
        }
    }

    pub(super) fn entry(&self, inode: &InodeObj) -> Entry {
        let attr = self.attr_of(inode, &inode.lock.read());
        Entry { nid: inode.nid(), generation: inode.generation(), attr }
    }

    /// Slots of a change of an inode that makes its attributes longer by so many bytes at the most.
    fn attribute_slots(&self, image: &Inode, more: usize) -> Result<u32> {
        let present = self.attribute_bytes(image)?;
        let attributes = present.map_or(more, |bytes| bytes + more);
        let rewrites = present.is_some() || more > 0;
        Ok(ATTR_SLOTS + if rewrites { xattr::slots(attributes + 8192) } else { 0 })
    }

    /// Changes the image of an inode in one record, which makes its attributes longer by so many bytes at the most; `change`
    /// says whether there is something to log.
    pub(super) fn change(
        &self,
        inode: &Arc<InodeObj>,
        more: usize,
        mut change: impl FnMut(&mut crate::store::Handle<'_>, &Inode, &mut Draft) -> Result<bool>,
    ) -> Result<()> {
        let end = self.alloc_room(|| {
            let mut slots = self.attribute_slots(&inode.lock.read(), more)?;
            let (mut h, mut image) = loop {
                let h = self.meta.begin(slots)?;
                let image = inode.lock.write();
                // Others may have made the attributes longer while this waited.
                let needed = self.attribute_slots(&image, more)?;
                if needed <= slots {
                    break (h, image);
                }
                slots = needed;
            };
            if inode.holds.is_gone() {
                return Err(Error::Errno(libc::ESTALE));
            }
            let mut draft = inode.draft(&image);
            if !change(&mut h, &image, &mut draft)? {
                return Ok(0);
            }
            self.meta.stage(&mut h, inode, &draft.image)?;
            let (end, _carrying) = self.meta.commit(h)?;
            let before = u32::from(inode.everyone_may());
            inode.install(&mut image, &draft);
            if inode.is_dir() && before & !u32::from(inode.everyone_may()) & acl::EXECUTE != 0 {
                self.meta.known.close();
            }
            Ok(end)
        })?;
        self.finish(end)
    }

    /// Attributes.
    pub fn getattr(&self, nid: Nid) -> Result<Attr> {
        let inode = self.meta.inode(nid)?;
        let image = inode.lock.read();
        Ok(self.attr_of(&inode, &image))
    }

    /// Attributes of what a walk has reached.
    pub fn getattr_at(&self, at: &InodeRef) -> Attr {
        self.attr_of(&at.0, &at.0.lock.read())
    }

    /// Attributes of an open file.
    pub fn getattr_open(&self, handle: &FileHandle) -> Attr {
        self.attr_of(&handle.inode, &handle.inode.lock.read())
    }

    /// Sets attributes. With a handle that writes, the size may be set without write permission.
    pub fn setattr(
        &self,
        ctx: &Context,
        nid: Nid,
        handle: Option<&FileHandle>,
        set: &SetAttr,
    ) -> Result<Attr> {
        self.set_attributes(ctx, &self.meta.inode(nid)?, handle, set)
    }

    /// As [`Vfs::setattr`] with the handle of an open file.
    pub fn setattr_open(&self, ctx: &Context, handle: &FileHandle, set: &SetAttr) -> Result<Attr> {
        self.set_attributes(ctx, &handle.inode, Some(handle), set)
    }

    /// As [`Vfs::setattr`], of what a walk has reached with [`Arrive::Opening`]; gives that back. What has lost its
    /// last name meanwhile is changed like any open file.
    pub fn setattr_at(&self, ctx: &Context, at: InodeRef, set: &SetAttr) -> Result<Attr> {
        let attr = self.set_attributes(ctx, &at.0, None, set);
        self.leave(at);
        attr
    }

    fn set_attributes(
        &self,
        ctx: &Context,
        inode: &Arc<InodeObj>,
        handle: Option<&FileHandle>,
        set: &SetAttr,
    ) -> Result<Attr> {
        scopeguard::defer!(self.tell(ctx, Changed::Attributes { nid: inode.nid() }));
        if let Some(size) = set.size {
            match inode.file_type() {
                FileType::Regular => {}
                FileType::Directory => return Err(Error::Errno(libc::EISDIR)),
                _ => return Err(Error::Errno(libc::EINVAL)),
            }
            if !handle.is_some_and(|h| h.flags().writes()) {
                self.check(ctx, inode, &inode.lock.read(), acl::WRITE)?;
            }
            if size > crate::format::MAX_FILE_SIZE {
                return Err(Error::Errno(libc::EFBIG));
            }
            self.writable()?;
        }
        // From the page of the new end on: what lay behind it is zeros, should it come back.
        let _changing = set.size.map(|size| self.changing(ctx, inode, size, u64::MAX));
        let times = [set.atime, set.mtime];
        // What is not both, or comes with a size, is for who owns it.
        let explicit = times.iter().any(|t| matches!(t, SetTime::At(_)))
            || set.size.is_none() && times.contains(&SetTime::Now) && times.contains(&SetTime::Omit);
        // To the same size, too: what a truncation takes does not depend on what is there.
        let resizes = set.size.is_some();
        let strips = set.uid.is_some() || set.gid.is_some() || set.kill_suidgid || resizes;
        let changes = set.mode.is_some()
            || set.uid.is_some()
            || set.gid.is_some()
            || set.kill_suidgid
            || times.iter().any(|t| *t != SetTime::Omit)
            || set.size.is_some();
        if !changes {
            return Ok(self.attr_of(inode, &inode.lock.read()));
        }
        self.change(inode, 0, |h, image, draft| {
            let at = now();
            let owner = image.uid.get();
            let is_master = ctx.is_root() || ctx.is_checked();
            let owns = is_master || ctx.uid == owner;
            let mut mode = u32::from(image.mode.get());
            let is_dir = inode.is_dir();
            if set.uid.is_some() || set.gid.is_some() {
                let new_uid = set.uid.unwrap_or(owner);
                let new_gid = set.gid.unwrap_or(image.gid.get());
                let may_uid = is_master || new_uid == owner && ctx.uid == owner || set.uid.is_none();
                let may_gid = is_master
                    || set.gid.is_none()
                    || ctx.uid == owner && (new_gid == image.gid.get() || ctx.in_group(new_gid));
                if !may_uid || !may_gid {
                    return Err(Error::Errno(libc::EPERM));
                }
                draft.image.uid.set(new_uid);
                draft.image.gid.set(new_gid);
                if !is_dir {
                    mode &= !stripped(ctx, image, mode);
                }
            }
            let mut changed = self.without_capability(inode, image, strips)?;
            if let Some(new) = set.mode {
                if !owns {
                    return Err(Error::Errno(libc::EPERM));
                }
                mode = mode & libc::S_IFMT | new & 0o7777;
                if !is_master && !ctx.in_group(draft.image.gid.get()) {
                    mode &= !libc::S_ISGID;
                }
                if image.xattr_block.get() != 0 {
                    let old = self.acls(inode, image)?;
                    if let Some(access) = &old.access {
                        let mut access = Acl::clone(access);
                        access.set_mode(mode);
                        let mut attributes = match changed.take() {
                            Some(attributes) => attributes,
                            None => xattr::read(&self.meta.store, image)?,
                        };
                        xattr::put(&mut attributes, acl::ACCESS, Some(access.encode()));
                        changed = Some(attributes);
                        *inode.acls.write() = None;
                    }
                }
            }
            if !is_dir && (set.kill_suidgid || resizes && !ctx.is_root()) {
                mode &= !stripped(ctx, image, mode);
            }
            draft.image.mode.set(mode as u16);
            if explicit && !owns {
                return Err(Error::Errno(libc::EPERM));
            }
            if times.contains(&SetTime::Now) && !owns {
                self.check(ctx, inode, image, acl::WRITE)?;
            }
            for (time, field) in times.into_iter().zip([&mut draft.image.atime, &mut draft.image.mtime]) {
                match time {
                    SetTime::Omit => {}
                    SetTime::Now => field.set(at),
                    SetTime::At(then) => field.set(then),
                }
            }
            draft.image.ctime.set(at);
            if let Some(attributes) = changed {
                xattr::stage(&self.meta.alloc, h, &mut draft.image, &attributes)?;
            }
            Ok(true)
        })?;
        if let Some(size) = set.size {
            self.alloc_room(|| match set.mtime {
                SetTime::Omit => self.data.truncate(inode, size),
                _ => self.data.truncate_keeping_times(inode, size),
            })?;
            self.sync_cut(inode)?;
        }
        Ok(self.attr_of(inode, &inode.lock.read()))
    }

    /// Drops what a change of a file's content takes from it: what it may do when it is run, whatever changes it, and
    /// setuid and setgid unless the caller is root, or even so (`kills`).
    pub(super) fn strip(&self, ctx: &Context, inode: &Arc<InodeObj>, kills: bool) -> Result<()> {
        let bits = |image: &Inode, mode| match ctx.is_root() && !kills {
            true => 0,
            false => stripped(ctx, image, mode),
        };
        // Most files have neither, and need not be locked for that.
        let has_bits = inode.mode() & (libc::S_ISUID | libc::S_ISGID) != 0;
        let keeps = !has_bits || bits(&inode.lock.read(), inode.mode()) == 0;
        if keeps && !self.has_capability(inode)? {
            return Ok(());
        }
        self.change(inode, 0, |h, image, draft| {
            if let Some(rest) = self.without_capability(inode, image, true)? {
                xattr::stage(&self.meta.alloc, h, &mut draft.image, &rest)?;
            }
            let mode = u32::from(image.mode.get());
            draft.image.mode.set((mode & !bits(image, mode)) as u16);
            draft.image.ctime.set(now());
            Ok(true)
        })
    }
}

/// The bits of a mode that a change of the file takes: setuid, and setgid unless the group may not execute and the caller is
/// of that group, or root.
fn stripped(ctx: &Context, image: &Inode, mode: u32) -> u32 {
    let keeps_setgid = || mode & libc::S_IXGRP == 0 && (ctx.is_root() || ctx.in_group(image.gid.get()));
    match mode & (libc::S_ISUID | libc::S_ISGID) {
        bits if bits & libc::S_ISGID != 0 && keeps_setgid() => bits & !libc::S_ISGID,
        bits => bits,
    }
}
