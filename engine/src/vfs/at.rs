//! What can be asked of what a walk has reached, and in the directories that it has reached.
//!
//! The work is done in `names`, `remove`, `rename` and `attr`, as for those who know inodes by number
//! (`by_name`).

use super::make::New;
use super::walk::gone;
use super::*;
use crate::dir;
use crate::inode::Holds;

/// An inode that a walk has reached. It stays in memory as long as this does, but may be removed meanwhile: what is
/// asked for then fails, or tells of a file without names.
#[derive(Debug, Clone)]
pub struct InodeRef(pub(super) Arc<InodeObj>);

impl InodeRef {
    /// Its number.
    pub fn nid(&self) -> Nid {
        self.0.nid()
    }
    /// The generation of the number.
    pub fn generation(&self) -> u32 {
        self.0.generation()
    }
    /// Its type.
    pub fn file_type(&self) -> FileType {
        self.0.file_type()
    }
}

impl Fs {
    /// Gives back what [`Arrive::Opening`] has taken.
    pub fn leave(&self, reached: InodeRef) {
        self.let_go(&reached.0);
    }

    pub(super) fn let_go(&self, inode: &Arc<InodeObj>) {
        if inode.file_type() == FileType::Symlink {
            return;
        }
        if inode.holds.close() {
            self.reap(inode);
        } else if inode.holds.opens() == 0 {
            self.pending_eviction.held(inode);
        }
    }

    /// Opens what a walk has reached with [`Arrive::Opening`]; a failure gives that back.
    pub fn open_at(&self, ctx: &Context, reached: InodeRef, flags: OpenFlags) -> Result<FileHandle> {
        let InodeRef(inode) = reached;
        match self.may_open(ctx, &inode, flags) {
            Ok(()) => self.opened(ctx, inode, flags),
            Err(e) => {
                self.let_go(&inode);
                Err(e)
            }
        }
    }

    /// Attributes of what a walk has reached.
    pub fn getattr_at(&self, reached: &InodeRef) -> Attr {
        self.attr_of(&reached.0, &reached.0.lock.read())
    }

    /// Attributes of an open file.
    pub fn getattr_open(&self, handle: &FileHandle) -> Attr {
        self.attr_of(&handle.inode, &handle.inode.lock.read())
    }

    /// As [`Fs::setattr`] with the handle of an open file.
    pub fn setattr_open(&self, ctx: &Context, handle: &FileHandle, set: &SetAttr) -> Result<Attr> {
        let done = self.set_attributes(ctx, &handle.inode, Some(handle), set);
        self.tell_set(ctx, handle.nid(), set);
        done?;
        Ok(self.getattr_open(handle))
    }

    /// Target of a symbolic link.
    pub fn readlink_at(&self, reached: &InodeRef) -> Result<Vec<u8>> {
        self.link_target(&reached.0)
    }

    /// Opens a regular file, which is made if the name does not exist; with EXCLUSIVE it must not exist. ELOOP: the
    /// name is a symbolic link's.
    pub fn create_open(
        &self,
        ctx: &Context,
        dir: &InodeRef,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
    ) -> Result<FileHandle> {
        let exclusive = flags.contains(OpenFlags::EXCLUSIVE);
        if matches!(name, b"." | b"..") {
            return Err(Error::Errno(if exclusive { libc::EEXIST } else { libc::EISDIR }));
        }
        dir::check_name(name)?;
        // Making it takes room in the journal: who only opens it needs none.
        if !exclusive || self.meta.options.read_only {
            match self.walk(ctx, dir, name, false, Arrive::Opening) {
                Ok(Walked::There(found)) if exclusive => {
                    self.leave(found);
                    return Err(Error::Errno(libc::EEXIST));
                }
                Ok(Walked::There(found)) => return self.open_to_use(ctx, found, flags),
                Ok(Walked::Link { .. }) => return Err(Error::Errno(libc::ELOOP)),
                Err(Error::Errno(libc::ENOENT)) => {}
                Err(e) => return Err(e),
            }
        }
        let new = New { mode: libc::S_IFREG | mode & 0o7777, rdev: 0, target: None };
        let made = self.make(ctx, &dir.0, name, &new, Holds::ONE_OPEN);
        self.tell(ctx, Changed::Name { dir: dir.nid(), name });
        match made? {
            Ok(made) => Ok(self.handle(made, flags)),
            Err(there) => {
                let opened = if exclusive {
                    Err(Error::Errno(libc::EEXIST))
                } else if !Arrive::Opening.take(&there) {
                    Err(gone())
                } else {
                    self.open_to_use(ctx, InodeRef(Arc::clone(&there)), flags)
                };
                if there.holds.forget(1) {
                    self.reap(&there);
                }
                opened
            }
        }
    }

    fn open_to_use(&self, ctx: &Context, found: InodeRef, flags: OpenFlags) -> Result<FileHandle> {
        if found.0.is_dir() {
            self.leave(found);
            return Err(Error::Errno(libc::EISDIR));
        }
        self.open_at(ctx, found, flags)
    }

    /// As [`Fs::mkdir`], in a directory that a walk has reached; nobody is told of what was made.
    pub fn mkdir_at(&self, ctx: &Context, dir: &InodeRef, name: &[u8], mode: u32) -> Result<()> {
        let new = New { mode: libc::S_IFDIR | mode & 0o1777, rdev: 0, target: None };
        self.made(ctx, &dir.0, name, &new, 0).map(drop)
    }

    /// As [`Fs::symlink`]; nobody is told of what was made.
    pub fn symlink_at(&self, ctx: &Context, dir: &InodeRef, name: &[u8], target: &[u8]) -> Result<()> {
        self.make_symlink(ctx, &dir.0, name, target, 0).map(drop)
    }

    /// As [`Fs::link`].
    pub fn link_at(&self, ctx: &Context, reached: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<()> {
        self.link_inode(ctx, &reached.0, &dir.0, name)?;
        self.tell_moved(ctx, (dir.nid(), name), (dir.nid(), name));
        if reached.0.holds.forget(1) {
            self.reap(&reached.0);
        }
        Ok(())
    }

    /// As [`Fs::setattr`], of what a walk has reached with [`Arrive::Opening`]; gives that back. What has lost its
    /// last name meanwhile is changed like any open file.
    pub fn setattr_at(&self, ctx: &Context, reached: InodeRef, set: &SetAttr) -> Result<Attr> {
        let done = self.set_attributes(ctx, &reached.0, None, set);
        self.tell_set(ctx, reached.nid(), set);
        let attr = done.map(|()| self.getattr_at(&reached));
        self.leave(reached);
        attr
    }

    /// As [`Fs::unlink`].
    pub fn unlink_at(&self, ctx: &Context, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let done = self.unlink_name(ctx, &dir.0, name);
        self.tell(ctx, Changed::Name { dir: dir.nid(), name });
        done
    }

    /// As [`Fs::rmdir`].
    pub fn rmdir_at(&self, ctx: &Context, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let done = self.remove_dir(ctx, &dir.0, name);
        self.tell(ctx, Changed::Name { dir: dir.nid(), name });
        done
    }

    /// As [`Fs::rename`].
    pub fn rename_at(
        &self,
        ctx: &Context,
        from: (&InodeRef, &[u8]),
        to: (&InodeRef, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let done = self.rename_name(ctx, (&from.0.0, from.1), (&to.0.0, to.1), flags);
        self.tell_moved(ctx, (from.0.nid(), from.1), (to.0.nid(), to.1));
        done
    }
}
