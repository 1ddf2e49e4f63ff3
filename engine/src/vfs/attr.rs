//! Attributes, permissions, extended attributes and access lists.

use super::*;
use crate::acl::{self, Acl, Acls, Owner};
use crate::format::Inode;
use crate::inode::{Draft, InodeObj};
use crate::sync::Arc;
use crate::xattr::{self, Use};

/// Slots of a change of an inode, its attributes' blocks not counted.
pub(super) const ATTR_SLOTS: u32 = 8;

impl Fs {
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
            blocks: (image.blocks.get() + inode.delayed_blocks()) * 8,
            atime,
            mtime,
            ctime,
            btime: image.btime.get(),
        }
    }

    pub(super) fn entry(&self, inode: &InodeObj) -> Entry {
        let attr = self.attr_of(inode, &inode.lock.read());
        Entry { nid: inode.nid(), generation: inode.generation(), attr }
    }

    /// Changes the image of an inode in one record; `change` says whether there is something to log.
    pub(super) fn change(
        &self,
        inode: &Arc<InodeObj>,
        slots: u32,
        mut change: impl FnMut(&mut crate::store::Handle<'_>, &Inode, &mut Draft) -> Result<bool>,
    ) -> Result<()> {
        let end = self.alloc_room(|| {
            let mut h = self.meta.begin(slots)?;
            let mut image = inode.lock.write();
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

    pub(super) fn set_attributes(
        &self,
        ctx: &Context,
        inode: &Arc<InodeObj>,
        handle: Option<&FileHandle>,
        set: &SetAttr,
    ) -> Result<()> {
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
        let at = now();
        let times = [set.atime, set.mtime];
        let explicit = times.iter().any(|t| matches!(t, SetTime::At(_)));
        let before = self.attribute_bytes(inode)?;
        let slots = ATTR_SLOTS + before.map_or(0, |bytes| xattr::slots(bytes + 8192));
        let mut lists = None;
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
            return Ok(());
        }
        self.change(inode, slots, |h, image, draft| {
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
                    mode &= !stripped(mode);
                }
            }
            let mut changed = self.without_capability(inode, image, strips)?;
            if let Some(new) = set.mode {
                if !owns {
                    return Err(Error::Errno(libc::EPERM));
                }
                mode = mode & libc::S_IFMT | new & 0o7777;
                if !is_dir && !is_master && !ctx.in_group(draft.image.gid.get()) {
                    mode &= !libc::S_ISGID;
                }
                if before.is_some() {
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
                        lists = Some(Arc::new(Acls {
                            access: Some(Arc::new(access)),
                            default: old.default.clone(),
                        }));
                    }
                }
            }
            if !is_dir && (set.kill_suidgid || resizes && !ctx.is_root()) {
                mode &= !stripped(mode);
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
                xattr::stage(&self.meta, h, &mut draft.image, &attributes)?;
            }
            if lists.is_some() {
                *inode.acls.write() = None;
            }
            Ok(true)
        })?;
        if let Some(size) = set.size {
            if set.mtime == SetTime::Omit {
                self.data.truncate(inode, size)?;
            } else {
                self.data.truncate_keeping_times(inode, size)?;
            }
        }
        Ok(())
    }

    /// Drops what a change of a file's content takes from it: what it may do when it is run, whoever changes it, and
    /// setuid and setgid unless the one who changes it is `privileged`.
    pub(super) fn strip(&self, inode: &Arc<InodeObj>, privileged: bool) -> Result<()> {
        let bits = |mode| if privileged { 0 } else { stripped(mode) };
        let has_capability = self.has_capability(inode)?;
        if !has_capability && bits(inode.mode()) == 0 {
            return Ok(());
        }
        let bytes = if has_capability { self.attribute_bytes(inode)? } else { None };
        let slots = ATTR_SLOTS + bytes.map_or(0, |bytes| xattr::slots(bytes + 8192));
        self.change(inode, slots, |h, image, draft| {
            if let Some(rest) = self.without_capability(inode, image, has_capability)? {
                xattr::stage(&self.meta, h, &mut draft.image, &rest)?;
            }
            let mode = u32::from(image.mode.get());
            draft.image.mode.set((mode & !bits(mode)) as u16);
            draft.image.ctime.set(now());
            Ok(true)
        })
    }

    /// Whether a file has `security.capability`.
    fn has_capability(&self, inode: &InodeObj) -> Result<bool> {
        if !inode.may_have_capability() {
            return Ok(false);
        }
        let image = inode.lock.read();
        let has = self.without_capability(inode, &image, true)?.is_some();
        if !has {
            // With the lock in hand: who sets one has it exclusively.
            inode.note_capability(false);
        }
        Ok(has)
    }

    /// The attributes of a file that has `security.capability`, without it; none if it has not, or if it is not to be
    /// dropped (`drops`). The caller holds the inode's lock.
    fn without_capability(
        &self,
        inode: &InodeObj,
        image: &Inode,
        drops: bool,
    ) -> Result<Option<xattr::Attributes>> {
        if !drops || !inode.may_have_capability() {
            return Ok(None);
        }
        let mut attributes = xattr::read(&self.meta.store, image)?;
        let has = xattr::find(&attributes, xattr::CAPABILITY).is_some();
        xattr::put(&mut attributes, xattr::CAPABILITY, None);
        Ok(has.then_some(attributes))
    }

    pub(super) fn xattr_value(&self, ctx: &Context, inode: &InodeObj, name: &[u8]) -> Result<Vec<u8>> {
        xattr::check_name(ctx, name, inode.file_type(), None, Use::Read)?;
        let image = inode.lock.read();
        if name.starts_with(b"user.") {
            self.check(ctx, inode, &image, acl::READ)?;
        }
        if image.xattr_block.get() == 0 {
            return Err(Error::Errno(libc::ENODATA));
        }
        let attributes = xattr::read(&self.meta.store, &image)?;
        xattr::find(&attributes, name).map(<[u8]>::to_vec).ok_or(Error::Errno(libc::ENODATA))
    }

    /// Bytes of the attributes that lie in blocks, if any do. They may grow before the lock is taken: who
    /// plans a record by them adds some.
    fn attribute_bytes(&self, inode: &InodeObj) -> Result<Option<usize>> {
        let image = inode.lock.read();
        if image.xattr_block.get() == 0 {
            return Ok(None);
        }
        let attributes = xattr::read(&self.meta.store, &image)?;
        Ok(Some(attributes.iter().map(|(n, v)| n.len() + v.len() + 8).sum()))
    }

    /// Sets an attribute, or with `None` removes it.
    pub(super) fn change_xattr(
        &self,
        ctx: &Context,
        inode: &Arc<InodeObj>,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        if value.is_some_and(|v| v.len() > 65_536) {
            return Err(Error::Errno(libc::E2BIG));
        }
        let sticky = {
            let image = inode.lock.read();
            let sticky = inode.is_dir() && u32::from(image.mode.get()) & libc::S_ISVTX != 0;
            sticky.then(|| image.uid.get())
        };
        xattr::check_name(ctx, name, inode.file_type(), sticky, Use::Write)?;
        let is_list = name == acl::ACCESS || name == acl::DEFAULT;
        let list = match value {
            Some(v) if is_list && v.len() > 4 => Some(Acl::parse(v)?),
            _ => None,
        };
        let before = self.attribute_bytes(inode)?.unwrap_or(0);
        let slots = ATTR_SLOTS + xattr::slots(before + value.map_or(0, <[u8]>::len) + name.len() + 8192);
        self.change(inode, slots, |h, image, draft| {
            if is_list {
                if !ctx.is_root() && !ctx.is_checked() && ctx.uid != image.uid.get() {
                    return Err(Error::Errno(libc::EPERM));
                }
                if name == acl::DEFAULT && !inode.is_dir() {
                    return if list.is_some() { Err(Error::Errno(libc::EACCES)) } else { Ok(false) };
                }
            } else if name.starts_with(b"user.") {
                self.check(ctx, inode, image, acl::WRITE)?;
            }
            let mut attributes = xattr::read(&self.meta.store, image)?;
            let exists = xattr::find(&attributes, name).is_some();
            match (mode, exists, value) {
                (XattrMode::Create, true, Some(_)) => return Err(Error::Errno(libc::EEXIST)),
                (XattrMode::Replace, false, Some(_)) => return Err(Error::Errno(libc::ENODATA)),
                (_, false, None) if is_list => return Ok(false),
                (_, false, None) => return Err(Error::Errno(libc::ENODATA)),
                _ => {}
            }
            let mut stored = value.map(<[u8]>::to_vec);
            if name == xattr::CAPABILITY && value.is_some() {
                inode.note_capability(true);
            }
            if is_list {
                stored = list.as_ref().map(Acl::encode);
                if name == acl::ACCESS
                    && let Some(list) = &list
                {
                    let mut new = u32::from(image.mode.get()) & !0o777 | list.mode();
                    if !ctx.is_root() && !ctx.in_group(image.gid.get()) {
                        new &= !libc::S_ISGID;
                    }
                    draft.image.mode.set(new as u16);
                    if list.is_minimal() {
                        stored = None;
                    }
                }
            }
            xattr::put(&mut attributes, name, stored);
            xattr::stage(&self.meta, h, &mut draft.image, &attributes)?;
            draft.image.ctime.set(now());
            if is_list {
                *inode.acls.write() = None;
            }
            Ok(true)
        })
    }
}

/// The bits that a change by an unprivileged task takes: setuid, and setgid where the group may execute.
fn stripped(mode: u32) -> u32 {
    let setgid = if mode & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
    mode & (libc::S_ISUID | setgid)
}
