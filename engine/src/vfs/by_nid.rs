//! Operations that need no open file: lookups, attributes, and all that makes, moves or takes away names.
//!
//! The work is done in `names`, `remove` and `attr`; here is what each may be asked.

use super::make::New;
use super::*;

impl Fs {
    /// Makes something that must be new, held as `by` says.
    pub(super) fn made(
        &self,
        ctx: &Context,
        dir: &Arc<InodeObj>,
        name: &[u8],
        new: &New,
        by: u64,
    ) -> Result<Arc<InodeObj>> {
        let made = self.make(ctx, dir, name, new, by);
        self.tell(ctx, Changed::Name { dir: dir.nid(), name });
        match made? {
            Ok(inode) => Ok(inode),
            Err(there) => {
                if there.holds.forget(1) {
                    self.reap(&there);
                }
                Err(Error::Errno(libc::EEXIST))
            }
        }
    }

    /// Looks a name up. ".." leads to the parent. Needs search permission.
    pub fn lookup(&self, ctx: &Context, parent: Nid, name: &[u8]) -> Result<Entry> {
        Ok(self.entry(&*self.lookup_inode(ctx, parent, name)?))
    }
    /// Gives `n` lookup counts back; the last frees an inode without names. Never fails: a count that was not
    /// given is ignored.
    pub fn forget(&self, nid: Nid, n: u64) {
        let inode = match self.meta.table.forget_parked(nid, n) {
            Forgotten::Live(inode) => inode,
            Forgotten::Parked | Forgotten::Unknown => return,
        };
        if inode.holds.forget(n) {
            self.reap(&inode);
        }
        drop(inode);
        self.meta.log_waiting_times();
    }
    /// Gives all lookup counts back: the kernel is gone.
    pub fn forget_all(&self) {
        self.meta.table.forget_all_parked();
        for inode in self.meta.table.all() {
            if inode.holds.forget(u64::MAX) {
                self.reap(&inode);
            }
        }
    }
    /// Attributes.
    pub fn getattr(&self, nid: Nid) -> Result<Attr> {
        let inode = self.meta.inode(nid)?;
        let image = inode.lock.read();
        Ok(self.attr_of(&inode, &image))
    }
    /// Sets attributes. With a handle that writes, the size may be set without write permission.
    pub fn setattr(
        &self,
        ctx: &Context,
        nid: Nid,
        handle: Option<&FileHandle>,
        set: &SetAttr,
    ) -> Result<Attr> {
        let inode = self.meta.inode(nid)?;
        let done = self.set_attributes(ctx, &inode, handle, set);
        self.tell_set(ctx, nid, set);
        done?;
        let image = inode.lock.read();
        Ok(self.attr_of(&inode, &image))
    }
    /// Target of a symlink.
    pub fn readlink(&self, nid: Nid) -> Result<Vec<u8>> {
        self.link_target(&*self.meta.inode(nid)?)
    }
    /// Makes a symlink.
    pub fn symlink(&self, ctx: &Context, parent: Nid, name: &[u8], target: &[u8]) -> Result<Entry> {
        Ok(self.entry(&*self.make_symlink(ctx, &self.meta.inode(parent)?, name, target, 1)?))
    }
    pub(super) fn make_symlink(
        &self,
        ctx: &Context,
        dir: &Arc<InodeObj>,
        name: &[u8],
        target: &[u8],
        by: u64,
    ) -> Result<Arc<InodeObj>> {
        check_path(target)?;
        self.made(ctx, dir, name, &New { mode: libc::S_IFLNK | 0o777, rdev: 0, target: Some(target) }, by)
    }
    /// Makes a regular file, fifo, socket or device node; `mode` with its type bits, before the umask.
    pub fn mknod(&self, ctx: &Context, parent: Nid, name: &[u8], mode: u32, rdev: u32) -> Result<Entry> {
        let mode = if mode & libc::S_IFMT == 0 { libc::S_IFREG | mode } else { mode };
        match FileType::from_mode(mode) {
            None | Some(FileType::Directory | FileType::Symlink) => return Err(Error::Errno(libc::EINVAL)),
            Some(FileType::CharDevice | FileType::BlockDevice) if !ctx.is_root() => {
                return Err(Error::Errno(libc::EPERM));
            }
            Some(_) => {}
        }
        let new = New { mode, rdev, target: None };
        Ok(self.entry(&*self.made(ctx, &self.meta.inode(parent)?, name, &new, 1)?))
    }
    /// Makes a directory; `mode` before the umask.
    pub fn mkdir(&self, ctx: &Context, parent: Nid, name: &[u8], mode: u32) -> Result<Entry> {
        let new = New { mode: libc::S_IFDIR | mode & 0o1777, rdev: 0, target: None };
        Ok(self.entry(&*self.made(ctx, &self.meta.inode(parent)?, name, &new, 1)?))
    }
    /// Removes a name that is not a directory.
    pub fn unlink(&self, ctx: &Context, parent: Nid, name: &[u8]) -> Result<()> {
        let done = self.unlink_name(ctx, &self.meta.inode(parent)?, name);
        self.tell(ctx, Changed::Name { dir: parent, name });
        done
    }
    /// Removes an empty directory.
    pub fn rmdir(&self, ctx: &Context, parent: Nid, name: &[u8]) -> Result<()> {
        let done = self.remove_dir(ctx, &self.meta.inode(parent)?, name);
        self.tell(ctx, Changed::Name { dir: parent, name });
        done
    }
    /// Renames, replaces or exchanges.
    pub fn rename(
        &self,
        ctx: &Context,
        parent: Nid,
        name: &[u8],
        new_parent: Nid,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let (old_dir, new_dir) = (self.meta.inode(parent)?, self.meta.inode(new_parent)?);
        let done = self.rename_name(ctx, (&old_dir, name), (&new_dir, new_name), flags);
        self.tell_moved(ctx, (parent, name), (new_parent, new_name));
        done
    }
    /// Gives an inode another name; one of [`Fs::tmpfile`] its first.
    pub fn link(&self, ctx: &Context, nid: Nid, new_parent: Nid, new_name: &[u8]) -> Result<Entry> {
        let inode = self.meta.inode(nid)?;
        let done = self.link_inode(ctx, &inode, &self.meta.inode(new_parent)?, new_name);
        self.tell_moved(ctx, (new_parent, new_name), (new_parent, new_name));
        done?;
        Ok(self.entry(&inode))
    }
}
