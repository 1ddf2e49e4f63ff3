//! Walks from name to name along a path, as the path API and programs without a mount resolve it.
//!
//! A step to a name that [`Known`](crate::dir::Known) has, in a directory that everyone may search, takes no lock, holds
//! nothing, and writes nothing that others see. Any other step is a lookup under the locks of the directory, for that
//! step alone; it makes the name known. What a walk has reached at its end is a reference to the inode in memory, which
//! by itself keeps nobody from removing the inode: that is [`Arrive::Opening`], an open count that is taken before the
//! name can have lost its inode unnoticed. Lookup counts are for those who remember inodes by number, as the kernel does.
//!
//! Each step finds its name as it was at a moment of the walk, one after the other, as in every walk of a kernel: what
//! renames move meanwhile may be met in either place. A directory that is removed under a walk has no names any more.
//!
//! What this leaves to others: symbolic links, whose target the caller reads and goes on with.

use super::names::New;
use super::*;
use crate::acl;
use crate::dir;
use crate::dir::known::{Child, Closings, Identity};
use crate::inode::Holds;
use std::borrow::Cow;

/// An inode that a walk has reached. It stays in memory as long as this does, but may be removed meanwhile: what is
/// asked for then fails, or tells of a file without names.
#[derive(Debug, Clone)]
pub struct Reached(Arc<InodeObj>);

impl Reached {
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

/// What a walk takes at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrive {
    /// Nothing.
    Looking,
    /// An open count, which [`Fs::open_reached`] or [`Fs::leave`] takes over; but none on a symbolic link.
    Opening,
}

/// How far a walk has come.
#[derive(Debug)]
pub enum Walked<'p> {
    /// To its end.
    There(Reached),
    /// To a symbolic link that is to be followed.
    Link {
        /// The directory where the link lies.
        dir: Reached,
        /// The link.
        link: Reached,
        /// The path after it, without the slashes in between.
        rest: &'p [u8],
    },
}

/// Where a walk is.
struct Here<'a> {
    identity: Identity,
    file_type: FileType,
    /// Everyone may search it, or could when the walk began.
    searchable: bool,
    /// The inode, where it was needed so far.
    inode: Option<Cow<'a, Arc<InodeObj>>>,
}

fn searchable(inode: &InodeObj) -> bool {
    u32::from(inode.everyone_may()) & acl::EXECUTE != 0
}

fn identity(inode: &InodeObj) -> Identity {
    Identity { nid: inode.nid(), generation: inode.generation() }
}

fn gone() -> Error {
    Error::Errno(libc::ENOENT)
}

fn without_slashes(path: &[u8]) -> &[u8] {
    let slashes = path.iter().take_while(|c| **c == b'/').count();
    path.get(slashes..).unwrap_or_default()
}

impl<'a> Here<'a> {
    fn at(inode: Cow<'a, Arc<InodeObj>>) -> Here<'a> {
        Here {
            identity: identity(&inode),
            file_type: inode.file_type(),
            searchable: searchable(&inode),
            inode: Some(inode),
        }
    }

    fn seen(child: Child) -> Here<'a> {
        let Child { identity, file_type, searchable } = child;
        Here { identity, file_type, searchable, inode: None }
    }
}

impl Arrive {
    /// False: the inode is gone.
    fn take(self, inode: &InodeObj) -> bool {
        match self {
            Arrive::Opening if inode.file_type() != FileType::Symlink => inode.holds.open(),
            _ => !inode.holds.is_gone(),
        }
    }
}

impl Fs {
    /// The root directory.
    pub fn root(&self) -> Result<&Reached> {
        match self.root.get() {
            Some(root) => Ok(root),
            None => {
                let root = self.reach(crate::format::ROOT_NID)?;
                Ok(self.root.get_or_init(|| root))
            }
        }
    }

    /// An inode that the caller holds by number. ESTALE: it does not.
    pub fn reach(&self, nid: Nid) -> Result<Reached> {
        self.meta.inode(nid).map(Reached)
    }

    /// Goes along `path` from a directory, whether or not it begins with a slash. A symbolic link at its end is
    /// reached, or with `follow` handed out as those on the way are. Needs search permission on each directory.
    pub fn walk<'p>(
        &self,
        ctx: &Context,
        from: &Reached,
        path: &'p [u8],
        follow: bool,
        arrive: Arrive,
    ) -> Result<Walked<'p>> {
        let closings = self.meta.known.closings();
        let mut here = Here::at(Cow::Borrowed(&from.0));
        let mut rest = without_slashes(path);
        while !rest.is_empty() {
            let end = rest.iter().position(|c| *c == b'/').unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            rest = without_slashes(after);
            let is_last = rest.is_empty();
            let stops = |file_type| file_type == FileType::Symlink && (follow || !is_last);
            let next = self.step(ctx, &mut here, name, closings)?;
            if !is_last && !stops(next.file_type) {
                here = next;
                continue;
            }
            let takes = |inode: &InodeObj| !is_last || arrive.take(inode);
            let inode = match self.inode_of(next)?.filter(|inode| takes(inode)) {
                Some(inode) => inode,
                // It went meanwhile: the name leads elsewhere by now, or nowhere.
                None => self.look_up(ctx, &mut here, name, takes)?,
            };
            if stops(inode.file_type()) {
                let dir = Reached(self.inode_of(here)?.ok_or_else(gone)?);
                return Ok(Walked::Link { dir, link: Reached(inode), rest });
            }
            if is_last {
                return Ok(Walked::There(Reached(inode)));
            }
            here = Here::at(Cow::Owned(inode));
        }
        if !arrive.take(&from.0) {
            return Err(gone());
        }
        Ok(Walked::There(from.clone()))
    }

    /// Goes on to a name.
    #[inline]
    fn step<'a>(
        &self,
        ctx: &Context,
        here: &mut Here<'a>,
        name: &[u8],
        closings: Closings,
    ) -> Result<Here<'a>> {
        if here.file_type != FileType::Directory {
            return Err(Error::Errno(libc::ENOTDIR));
        }
        if (here.searchable || ctx.is_root())
            && let Some(child) = self.meta.known.find(here.identity, name, closings)
        {
            return Ok(Here::seen(child));
        }
        self.look_up(ctx, here, name, |_| true).map(|inode| Here::at(Cow::Owned(inode)))
    }

    /// Looks a name up in its directory, and makes it known. `takes` is asked while the name cannot be removed, and
    /// says whether the inode is still there.
    fn look_up(
        &self,
        ctx: &Context,
        here: &mut Here<'_>,
        name: &[u8],
        takes: impl FnOnce(&InodeObj) -> bool,
    ) -> Result<Arc<InodeObj>> {
        if here.inode.is_none() {
            here.inode = self.seen(here.identity)?.map(Cow::Owned);
        }
        let dir = here.inode.as_deref().ok_or_else(gone)?;
        let found = match name {
            b"." => {
                self.may_search(ctx, dir, &dir.lock.read())?;
                Arc::clone(dir)
            }
            b".." => {
                let image = dir.lock.read();
                self.may_search(ctx, dir, &image)?;
                self.parent_of(&image)?
            }
            _ => {
                return self.find(ctx, dir, name, |found| {
                    let inode = found.filter(|inode| takes(inode)).ok_or_else(gone)?;
                    let known = &self.meta.known;
                    let closings = known.closings();
                    let file_type = inode.file_type();
                    let child =
                        Child { identity: identity(&inode), file_type, searchable: searchable(&inode) };
                    known.put(identity(dir), name, &child, closings);
                    Ok(inode)
                });
            }
        };
        if takes(&found) { Ok(found) } else { Err(gone()) }
    }

    /// The inode where a walk is, unless it is gone.
    fn inode_of(&self, here: Here<'_>) -> Result<Option<Arc<InodeObj>>> {
        match here.inode {
            Some(inode) => Ok(Some(inode.into_owned())),
            None => self.seen(here.identity),
        }
    }

    /// An inode that a name was seen to lead to, unless it is gone.
    fn seen(&self, identity: Identity) -> Result<Option<Arc<InodeObj>>> {
        match self.meta.inode(identity.nid) {
            Ok(inode) => Ok(Some(inode).filter(|inode| inode.generation() == identity.generation)),
            Err(Error::Errno(libc::ESTALE)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// A name of a directory leads elsewhere from now on, or nowhere. The directory is locked alone, or shared and the
    /// name's bucket alone; nothing that shows the change without these locks has been done yet.
    pub(super) fn forget_name(&self, dir: &InodeObj, name: &[u8]) {
        self.meta.known.forget(identity(dir), name);
    }

    /// Gives back what [`Arrive::Opening`] has taken.
    pub fn leave(&self, reached: Reached) {
        self.let_go(&reached.0);
    }

    pub(super) fn let_go(&self, inode: &Arc<InodeObj>) {
        if inode.file_type() == FileType::Symlink {
            return;
        }
        if inode.holds.close() {
            self.reap(inode);
        } else if inode.holds.opens() == 0 {
            self.departing.held(inode);
        }
    }

    /// Opens what a walk has reached with [`Arrive::Opening`]; a failure gives that back.
    pub fn open_reached(&self, ctx: &Context, reached: Reached, flags: OpenFlags) -> Result<FileHandle> {
        let Reached(inode) = reached;
        match self.may_open(ctx, &inode, flags) {
            Ok(()) => self.opened(ctx, inode, flags),
            Err(e) => {
                self.let_go(&inode);
                Err(e)
            }
        }
    }

    /// Attributes of what a walk has reached.
    pub fn getattr_reached(&self, reached: &Reached) -> Attr {
        self.attr_of(&reached.0, &reached.0.lock.read())
    }

    /// Attributes of an open file.
    pub fn getattr_open(&self, handle: &FileHandle) -> Attr {
        self.attr_of(&handle.inode, &handle.inode.lock.read())
    }

    /// As [`Fs::setattr`] with the handle of an open file.
    pub fn setattr_open(&self, ctx: &Context, handle: &FileHandle, set: &SetAttr) -> Result<Attr> {
        self.set_attributes(ctx, &handle.inode, Some(handle), set)?;
        Ok(self.getattr_open(handle))
    }

    /// Target of a symbolic link.
    pub fn readlink_reached(&self, reached: &Reached) -> Result<Vec<u8>> {
        self.link_target(&reached.0)
    }

    /// Opens a regular file, which is made if the name does not exist; with EXCLUSIVE it must not exist. ELOOP: the name
    /// is a symbolic link's.
    pub fn create_open(
        &self,
        ctx: &Context,
        dir: &Reached,
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
        match self.make(ctx, &dir.0, name, &new, Holds::ONE_OPEN)? {
            Ok(made) => Ok(self.handle(made, flags)),
            Err(there) => {
                let opened = if exclusive {
                    Err(Error::Errno(libc::EEXIST))
                } else if !Arrive::Opening.take(&there) {
                    Err(gone())
                } else {
                    self.open_to_use(ctx, Reached(Arc::clone(&there)), flags)
                };
                if there.holds.forget(1) {
                    self.reap(&there);
                }
                opened
            }
        }
    }

    fn open_to_use(&self, ctx: &Context, found: Reached, flags: OpenFlags) -> Result<FileHandle> {
        if found.0.is_dir() {
            self.leave(found);
            return Err(Error::Errno(libc::EISDIR));
        }
        self.open_reached(ctx, found, flags)
    }

    /// As [`Fs::mkdir`], in a directory that a walk has reached; nobody is told of what was made.
    pub fn mkdir_in(&self, ctx: &Context, dir: &Reached, name: &[u8], mode: u32) -> Result<()> {
        let new = New { mode: libc::S_IFDIR | mode & 0o1777, rdev: 0, target: None };
        self.made(ctx, &dir.0, name, &new, 0).map(drop)
    }

    /// As [`Fs::symlink`]; nobody is told of what was made.
    pub fn symlink_in(&self, ctx: &Context, dir: &Reached, name: &[u8], target: &[u8]) -> Result<()> {
        self.make_symlink(ctx, &dir.0, name, target, 0).map(drop)
    }

    /// As [`Fs::link`].
    pub fn link_in(&self, ctx: &Context, reached: &Reached, dir: &Reached, name: &[u8]) -> Result<()> {
        self.link_inode(ctx, &reached.0, &dir.0, name)?;
        if reached.0.holds.forget(1) {
            self.reap(&reached.0);
        }
        Ok(())
    }

    /// As [`Fs::setattr`], of what a walk has reached with [`Arrive::Opening`]; gives that back. What has lost its
    /// last name meanwhile is changed like any open file.
    pub fn setattr_reached(&self, ctx: &Context, reached: Reached, set: &SetAttr) -> Result<Attr> {
        let done = self.set_attributes(ctx, &reached.0, None, set);
        let attr = done.map(|()| self.getattr_reached(&reached));
        self.leave(reached);
        attr
    }

    /// As [`Fs::unlink`].
    pub fn unlink_in(&self, ctx: &Context, dir: &Reached, name: &[u8]) -> Result<()> {
        self.unlink_name(ctx, &dir.0, name)
    }

    /// As [`Fs::rmdir`].
    pub fn rmdir_in(&self, ctx: &Context, dir: &Reached, name: &[u8]) -> Result<()> {
        self.remove_dir(ctx, &dir.0, name)
    }

    /// As [`Fs::rename`].
    pub fn rename_in(
        &self,
        ctx: &Context,
        from: (&Reached, &[u8]),
        to: (&Reached, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        self.rename_name(ctx, (&from.0.0, from.1), (&to.0.0, to.1), flags)
    }
}
