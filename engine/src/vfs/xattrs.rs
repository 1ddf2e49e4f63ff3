//! Extended attributes.

use super::*;
use crate::acl::{self, Acl};
use crate::inode::InodeObj;
use crate::takeover::requests;
use crate::xattr::{self, Use};

/// Longest value.
const MAX_VALUE: usize = 65_536;

impl Vfs {
    /// Value of an extended attribute. ENODATA: there is none.
    pub fn getxattr(&self, ctx: &Context, nid: Nid, name: &[u8]) -> Result<Vec<u8>> {
        let inode = self.meta.inode(nid)?;
        xattr::check_name(ctx, name, inode.file_type(), None, Use::Read)?;
        let image = inode.lock.read();
        if name.starts_with(b"user.") {
            self.check(ctx, &inode, &image, acl::READ)?;
        }
        if image.xattr_block.get() == 0 {
            return Err(Error::Errno(libc::ENODATA));
        }
        let attributes = xattr::read(&self.meta.store, &image)?;
        xattr::find(&attributes, name).map(<[u8]>::to_vec).ok_or(Error::Errno(libc::ENODATA))
    }

    /// Sets an extended attribute.
    pub fn setxattr(
        &self,
        ctx: &Context,
        nid: Nid,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.change_xattr(ctx, nid, name, Some(value), mode)
    }

    /// Names of the extended attributes that the caller may see, each followed by a zero byte.
    pub fn listxattr(&self, ctx: &Context, nid: Nid) -> Result<Vec<u8>> {
        let inode = self.meta.inode(nid)?;
        let image = inode.lock.read();
        let mut names = Vec::new();
        for (name, _) in xattr::read(&self.meta.store, &image)? {
            if xattr::is_listed(ctx, &name) {
                names.extend_from_slice(&name);
                names.push(0);
            }
        }
        Ok(names)
    }

    /// Removes an extended attribute. ENODATA: there is none.
    pub fn removexattr(&self, ctx: &Context, nid: Nid, name: &[u8]) -> Result<()> {
        self.change_xattr(ctx, nid, name, None, XattrMode::Any)
    }

    /// Sets an attribute, or with `None` removes it.
    fn change_xattr(
        &self,
        ctx: &Context,
        nid: Nid,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let inode = &self.meta.inode(nid)?;
        scopeguard::defer!(self.tell(ctx, Changed::Attributes { nid }));
        if value.is_some_and(|v| v.len() > MAX_VALUE) {
            return Err(Error::Errno(libc::E2BIG));
        }
        let sticky = {
            let image = inode.lock.read();
            let sticky = inode.is_dir() && u32::from(image.mode.get()) & libc::S_ISVTX != 0;
            sticky.then(|| image.uid.get())
        };
        xattr::check_name(ctx, name, inode.file_type(), sticky, Use::Write)?;
        // A list of names tells them apart by zeros. What has such a name already can be read and removed.
        if value.is_some() && name.contains(&0) {
            return Err(Error::Errno(libc::EINVAL));
        }
        let is_list = name == acl::ACCESS || name == acl::DEFAULT;
        let list = match value {
            Some(v) if is_list && v.len() > 4 => Some(Acl::parse(v)?),
            _ => None,
        };
        // Of what is too much no room can be made: [`Vfs::change`] is not told.
        let mut is_too_much = false;
        self.change(inode, value.map_or(0, <[u8]>::len) + name.len(), |h, image, draft| {
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
            let list_before = xattr::len_of_list(&attributes);
            xattr::put(&mut attributes, name, stored);
            if xattr::are_too_many(&attributes, list_before) {
                is_too_much = true;
                return Ok(false);
            }
            xattr::stage(&self.meta.alloc, h, &mut draft.image, &attributes)?;
            draft.image.ctime.set(now());
            if is_list {
                *inode.acls.write() = None;
            }
            requests::decides(0);
            Ok(true)
        })?;
        if is_too_much { Err(Error::Errno(libc::ENOSPC)) } else { Ok(()) }
    }

    /// Bytes of the attributes that lie in blocks, if any do. The caller holds the inode's lock.
    pub(super) fn attribute_bytes(&self, image: &Inode) -> Result<Option<usize>> {
        if image.xattr_block.get() == 0 {
            return Ok(None);
        }
        let attributes = xattr::read(&self.meta.store, image)?;
        Ok(Some(attributes.iter().map(|(n, v)| n.len() + v.len() + 8).sum()))
    }

    /// Whether a file has `security.capability`.
    pub(super) fn has_capability(&self, inode: &InodeObj) -> Result<bool> {
        if !inode.may_have_capability() {
            return Ok(false);
        }
        let image = inode.lock.read();
        let has = self.without_capability(inode, &image, true)?.is_some();
        if !has {
            // With the lock in hand: a thread that sets one has it exclusively.
            inode.note_capability(false);
        }
        Ok(has)
    }

    /// The attributes of a file that has `security.capability`, without it; none if it has not, or if it is not to be
    /// dropped (`drops`). The caller holds the inode's lock.
    pub(super) fn without_capability(
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
}
