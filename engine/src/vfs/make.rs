//! Making: inodes with a name and without.
//!
//! What has a name is an entry and an inode in one record. Links to what is there are made in `link`.

use super::names::{LINK_MAX, MAKE_SLOTS};
use super::*;
use crate::acl::{self, Acl, Acls};
use crate::dir::{self, Insertion};
use crate::format::{INODE_INLINE_SIZE, Inode, InodeFlags, Intent, XATTR_SYMLINK};
use crate::inode::{Holds, InodeLocation, InodeObj, fresh_image};
use crate::lock::{Access, StripeSet};
use crate::planted::{self, Bug};
use crate::store::{BrokenOff, Handle, PageRef};
use crate::sync::Arc;
use crate::takeover::requests;
use crate::xattr::{self, Attributes};

/// What is to be made.
pub(super) struct New<'a> {
    /// Type and permissions, before umask and default list.
    pub mode: u32,
    pub rdev: u32,
    pub target: Option<&'a [u8]>,
}

impl<'a> New<'a> {
    /// A regular file.
    pub fn file(mode: u32) -> New<'a> {
        New { mode: libc::S_IFREG | mode & 0o7777, rdev: 0, target: None }
    }

    fn dir(mode: u32) -> New<'a> {
        New { mode: libc::S_IFDIR | mode & 0o1777, rdev: 0, target: None }
    }

    fn symlink(target: &'a [u8]) -> Result<New<'a>> {
        check_target(target)?;
        Ok(New { mode: libc::S_IFLNK | 0o777, rdev: 0, target: Some(target) })
    }
}

/// An inode with a slot, not yet in any record.
struct Made {
    inode: Arc<InodeObj>,
    image: Inode,
    /// The page of the slot.
    node: PageRef,
}

impl Vfs {
    /// Makes a directory; `mode` before the umask.
    pub fn mkdir(&self, ctx: &Context, parent: Nid, name: &[u8], mode: u32) -> Result<Entry> {
        let made = self.make_new(ctx, &self.reach(parent)?, name, &New::dir(mode), 1)?;
        Ok(self.entry(&made))
    }

    /// As [`Vfs::mkdir`], in a directory that a walk has reached; no lookup count is taken.
    pub fn mkdir_at(&self, ctx: &Context, dir: &InodeRef, name: &[u8], mode: u32) -> Result<()> {
        self.make_new(ctx, dir, name, &New::dir(mode), 0).map(drop)
    }

    /// Makes a symlink.
    pub fn symlink(&self, ctx: &Context, parent: Nid, name: &[u8], target: &[u8]) -> Result<Entry> {
        let made = self.make_new(ctx, &self.reach(parent)?, name, &New::symlink(target)?, 1)?;
        Ok(self.entry(&made))
    }

    /// As [`Vfs::symlink`], in a directory that a walk has reached; no lookup count is taken.
    pub fn symlink_at(&self, ctx: &Context, dir: &InodeRef, name: &[u8], target: &[u8]) -> Result<()> {
        self.make_new(ctx, dir, name, &New::symlink(target)?, 0).map(drop)
    }

    /// Makes a regular file, fifo, socket or device node; `mode` with its type bits, before the umask.
    pub fn mknod(&self, ctx: &Context, parent: Nid, name: &[u8], mode: u32, rdev: u32) -> Result<Entry> {
        let mode = if mode & libc::S_IFMT == 0 { libc::S_IFREG | mode } else { mode };
        match FileType::from_mode(mode) {
            None | Some(FileType::Directory | FileType::Symlink) => return Err(Error::Errno(libc::EINVAL)),
            // The kernel has looked at the capabilities of who comes checked.
            Some(FileType::CharDevice | FileType::BlockDevice) if !ctx.is_root() && !ctx.is_checked() => {
                return Err(Error::Errno(libc::EPERM));
            }
            Some(_) => {}
        }
        let made = self.make_new(ctx, &self.reach(parent)?, name, &New { mode, rdev, target: None }, 1)?;
        Ok(self.entry(&made))
    }

    /// Makes something that must be new, held as `by` says.
    fn make_new(
        &self,
        ctx: &Context,
        dir: &InodeRef,
        name: &[u8],
        new: &New,
        by: u64,
    ) -> Result<Arc<InodeObj>> {
        match self.make(ctx, &dir.0, name, new, by)? {
            Ok(inode) => Ok(inode),
            Err(there) => {
                if there.holds.forget(1) {
                    self.reap(&there);
                }
                Err(Error::Errno(libc::EEXIST))
            }
        }
    }

    /// Slots of what a directory hands down: its default list, twice. A thread that finds more when it is locked asks again,
    /// see [`Vfs::are_short`].
    fn inherited_slots(&self, dir: &InodeObj) -> Result<u32> {
        // A directory that many make files in is not locked twice for that.
        if !dir.has_attributes() {
            return Ok(0);
        }
        self.slots_of_default(dir, &dir.lock.read())
    }

    fn slots_of_default(&self, dir: &InodeObj, image: &Inode) -> Result<u32> {
        if image.xattr_block.get() == 0 {
            return Ok(0);
        }
        let list = self.acls(dir, image)?.default.as_ref().map_or(0, |list| list.encode().len());
        Ok(xattr::slots(2 * list + 8192))
    }

    /// Whether a directory, now locked, has more to hand down than when it was asked.
    fn are_short(&self, inherited: u32, dir: &InodeObj, image: &Inode) -> Result<bool> {
        Ok(self.slots_of_default(dir, image)? > inherited)
    }

    /// Allocates an inode in `h` and gives it owner, mode and attributes as `dir` hands them down.
    fn allocate<'s>(
        &'s self,
        h: &mut Handle<'s>,
        ctx: &Context,
        dir: &InodeObj,
        parent: &Inode,
        new: &New,
    ) -> Result<Made> {
        let file_type = FileType::from_mode(new.mode).ok_or(Error::Errno(libc::EINVAL))?;
        let mut perm = new.mode & 0o7777;
        // Asked for where there may be some alone: all that make files in the directory would count the lists' users.
        let lists = (parent.xattr_block.get() != 0).then(|| self.acls(dir, parent)).transpose()?;
        let mut attributes = Attributes::new();
        let mut own = Acls::default();
        match lists.as_ref().and_then(|lists| lists.default.as_ref()) {
            Some(default) if file_type != FileType::Symlink => {
                let mut access = Acl::clone(default);
                perm = access.inherit(perm);
                if !access.is_minimal() {
                    attributes.push((acl::ACCESS.to_vec(), access.encode()));
                    own.access = Some(Arc::new(access));
                }
                if file_type == FileType::Directory {
                    attributes.push((acl::DEFAULT.to_vec(), default.encode()));
                    own.default = Some(Arc::clone(default));
                }
            }
            _ if file_type != FileType::Symlink => perm &= !ctx.umask,
            _ => {}
        }
        let mut gid = ctx.gid;
        if u32::from(parent.mode.get()) & libc::S_ISGID != 0 {
            gid = parent.gid.get();
            if file_type == FileType::Directory {
                perm |= libc::S_ISGID;
            } else if perm & 0o2010 == 0o2010 && !ctx.is_root() && !ctx.in_group(gid) {
                perm &= !libc::S_ISGID;
            }
        }
        let slot = self.meta.space.allocate(h)?;
        let now = now();
        let mut image = fresh_image(slot.nid, slot.generation, file_type.mode() | perm, ctx.uid, gid, now);
        image.rdev.set(new.rdev);
        image.nlink.set(if file_type == FileType::Directory { 2 } else { 1 });
        image.parent.set(dir.nid());
        if let Some(target) = new.target {
            image.size.set(target.len() as u64);
            if target.len() <= INODE_INLINE_SIZE {
                image.inline[..target.len()].copy_from_slice(target);
                image.flags.set(InodeFlags::INLINE_SYMLINK.bits());
            } else {
                attributes.push((XATTR_SYMLINK.to_vec(), target.to_vec()));
            }
        }
        if !attributes.is_empty() {
            xattr::stage(&self.meta.alloc, h, &mut image, &attributes)?;
        }
        let place = InodeLocation { block: slot.node.block(), slot: slot.slot };
        let inode = Arc::new(self.meta.object(place, file_type, image, Holds::unpublished()));
        if own != Acls::default() {
            *inode.acls.write() = Some(Arc::new(own));
        }
        Ok(Made { inode, image, node: slot.node })
    }

    /// Commits a record that makes an inode, and lets others find it.
    fn publish(
        &self,
        mut h: Handle<'_>,
        made: Made,
        by: u64,
    ) -> Result<(Arc<InodeObj>, Position, BrokenOff<'_>)> {
        Meta::stage_on(&mut h, &made.node, &made.inode, &made.image);
        self.meta.table.insert(Arc::clone(&made.inode));
        if !planted::is(Bug::MadeAfterUnlock) {
            requests::decides(made.inode.nid());
        }
        match self.meta.commit(h) {
            Ok((end, carrying)) => {
                made.inode.holds.publish_with(by);
                Ok((made.inode, end, carrying))
            }
            Err(e) => {
                self.meta.table.remove(&made.inode);
                Err(e)
            }
        }
    }

    /// Makes an inode with a name. `Err` in the outer result is an error; the inner one gives the inode that
    /// has the name already, with a lookup count. A new one is held as `by` says.
    pub(super) fn make(
        &self,
        ctx: &Context,
        dir: &Arc<InodeObj>,
        name: &[u8],
        new: &New,
        by: u64,
    ) -> Result<Result<Arc<InodeObj>, Arc<InodeObj>>> {
        if matches!(name, b"." | b"..") {
            return Err(Error::Errno(libc::EEXIST));
        }
        dir::check_name(name)?;
        let is_dir = FileType::from_mode(new.mode) == Some(FileType::Directory);
        let slots = MAKE_SLOTS
            + if new.target.is_some_and(|t| t.len() > INODE_INLINE_SIZE) { xattr::slots(4096) } else { 0 };
        let (inode, end) = self.alloc_room(|| {
            loop {
                let inherited = self.inherited_slots(dir)?;
                let mut h = self.meta.begin(slots + inherited)?;
                if is_dir {
                    let mut image = dir.lock.write();
                    if self.are_short(inherited, dir, &image)? {
                        continue;
                    }
                    self.may_search(ctx, dir, &image)?;
                    let entries = self.meta.dir(dir);
                    let vacancy = match entries.vacancy(None, &image, name)? {
                        Err(hit) => return Ok((Err(self.hold(self.meta.named(hit.nid)?)?), 0)),
                        Ok(vacancy) => vacancy,
                    };
                    self.may_change_entries(ctx, dir, &image)?;
                    let mut draft = dir.draft(&image);
                    let nlink = draft.image.nlink.get();
                    if nlink >= LINK_MAX {
                        return Err(Error::Errno(libc::EMLINK));
                    }
                    let made = self.allocate(&mut h, ctx, dir, &image, new)?;
                    let nid = made.inode.nid();
                    if entries.fill_vacancy(&mut h, vacancy, name, nid, FileType::Directory)?
                        == Insertion::Full
                    {
                        drop(h);
                        drop(image);
                        self.grow(dir, name)?;
                        continue;
                    }
                    draft.image.nlink.set(nlink + 1);
                    draft.image.mtime = made.image.mtime;
                    draft.image.ctime = made.image.ctime;
                    self.meta.stage(&mut h, dir, &draft.image)?;
                    let (inode, end, _carrying) = self.publish(h, made, by)?;
                    dir.install(&mut image, &draft);
                    return Ok((Ok(inode), end));
                }
                let image = dir.lock.read();
                if self.are_short(inherited, dir, &image)? {
                    continue;
                }
                self.may_search(ctx, dir, &image)?;
                let entries = self.meta.dir(dir);
                let stripe = StripeSet::of(u64::from(entries.bucket_of(&image, name)));
                let bucket = dir.bucket_locks().lock(stripe, Access::Write);
                let vacancy = match entries.vacancy(None, &image, name)? {
                    Err(hit) => return Ok((Err(self.hold(self.meta.named(hit.nid)?)?), 0)),
                    Ok(vacancy) => vacancy,
                };
                self.may_change_entries(ctx, dir, &image)?;
                let made = self.allocate(&mut h, ctx, dir, &image, new)?;
                let (nid, file_type, at) = (made.inode.nid(), made.inode.file_type(), made.image.mtime.get());
                if entries.fill_vacancy(&mut h, vacancy, name, nid, file_type)? == Insertion::Full {
                    drop(h);
                    drop(bucket);
                    drop(image);
                    self.grow(dir, name)?;
                    continue;
                }
                self.meta.stage_dir_time(&mut h, dir, at)?;
                let (inode, end, _carrying) = self.publish(h, made, by)?;
                dir.show_content_time(at);
                return Ok((Ok(inode), end));
            }
        })?;
        if let Ok(inode) = &inode {
            self.tell(ctx, Changed::Name { dir: dir.nid(), name });
            self.finish(end)?;
            if planted::is(Bug::MadeAfterUnlock) {
                requests::decides(inode.nid());
                requests::wrote(0);
            }
        }
        Ok(inode)
    }

    /// Makes an inode without a name, an orphan, open.
    pub(super) fn make_nameless(&self, ctx: &Context, parent: Nid, mode: u32) -> Result<Arc<InodeObj>> {
        let dir = self.meta.inode(parent)?;
        let new = New::file(mode);
        self.alloc_room(|| {
            let (mut h, image) = loop {
                let inherited = self.inherited_slots(&dir)?;
                let h = self.meta.begin(MAKE_SLOTS + inherited)?;
                let image = dir.lock.read();
                if !self.are_short(inherited, &dir, &image)? {
                    break (h, image);
                }
            };
            self.may_search(ctx, &dir, &image)?;
            self.may_change_entries(ctx, &dir, &image)?;
            let mut made = self.allocate(&mut h, ctx, &dir, &image, &new)?;
            made.image.nlink.set(0);
            made.image.flags.set(made.image.flags.get() | InodeFlags::ORPHAN.bits());
            let place = made.inode.place();
            let inode = self.meta.object(place, FileType::Regular, made.image, Holds::unpublished());
            let inode = Arc::new(inode);
            *inode.acls.write() = made.inode.acls.read().clone();
            made.inode = inode;
            let (nid, generation) = (made.inode.nid(), made.inode.generation());
            self.meta.space.begin_intent(&mut h, nid, generation, Intent::Orphan, [0, 0])?;
            Ok(self.publish(h, made, 1 + Holds::ONE_OPEN)?.0)
        })
    }
}
