//! Walks from name to name along a path, as the path API and programs without a mount resolve it.
//!
//! A step to a name that [`DentryCache`](crate::dir::DentryCache) has, in a directory that everyone may search, takes
//! no lock, holds nothing, and writes nothing that others see. Any other step is a lookup under the locks of the
//! directory, for that step alone; it makes the name known. What a walk has reached at its end is a reference to the
//! inode in memory, which by itself keeps nobody from removing the inode: that is [`Arrive::Opening`], an open count
//! that is taken before the name can have lost its inode unnoticed. Lookup counts are for those that remember inodes by
//! number, as the kernel does.
//!
//! Each step finds its name as it was at a moment of the walk, one after the other, as in every walk of a kernel: what
//! renames move meanwhile may be met in either place. A directory that is removed under a walk has no names any more.
//!
//! What this leaves to others: symbolic links, whose target the caller reads and goes on with.

use super::*;
use crate::acl;
use crate::dir::dentry_cache::{Child, Identity, PermissionGeneration};
use std::borrow::Cow;

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

/// What a walk takes at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrive {
    /// Nothing.
    Looking,
    /// An open count, which [`Vfs::open_at`] or [`Vfs::leave`] takes over; but none on a symbolic link.
    Opening,
}

/// How far a walk has come.
#[derive(Debug)]
pub enum Walked<'p> {
    /// To its end.
    There(InodeRef),
    /// To a symbolic link that is to be followed.
    Link {
        /// The directory where the link lies.
        dir: InodeRef,
        /// The link.
        link: InodeRef,
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

pub(super) fn gone() -> Error {
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
    pub(super) fn take(self, inode: &InodeObj) -> bool {
        match self {
            Arrive::Opening if inode.file_type() != FileType::Symlink => inode.holds.open(),
            _ => !inode.holds.is_gone(),
        }
    }
}

impl Vfs {
    /// The root directory.
    pub fn root(&self) -> Result<&InodeRef> {
        match self.root.get() {
            Some(root) => Ok(root),
            None => {
                let root = self.reach(crate::format::ROOT_NID)?;
                Ok(self.root.get_or_init(|| root))
            }
        }
    }

    /// An inode that the caller holds by number. ESTALE: it does not.
    pub fn reach(&self, nid: Nid) -> Result<InodeRef> {
        self.meta.inode(nid).map(InodeRef)
    }

    /// Goes along `path` from a directory, whether or not it begins with a slash. A symbolic link at its end is
    /// reached, or with `follow` handed out as those on the way are. Needs search permission on each directory.
    pub fn walk<'p>(
        &self,
        ctx: &Context,
        from: &InodeRef,
        path: &'p [u8],
        follow: bool,
        arrive: Arrive,
    ) -> Result<Walked<'p>> {
        let permission_generation = self.meta.known.permission_generation();
        let mut here = Here::at(Cow::Borrowed(&from.0));
        let mut rest = without_slashes(path);
        while !rest.is_empty() {
            let end = rest.iter().position(|c| *c == b'/').unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            rest = without_slashes(after);
            let is_last = rest.is_empty();
            let stops = |file_type| file_type == FileType::Symlink && (follow || !is_last);
            let next = self.step(ctx, &mut here, name, permission_generation)?;
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
                let dir = InodeRef(self.inode_of(here)?.ok_or_else(gone)?);
                return Ok(Walked::Link { dir, link: InodeRef(inode), rest });
            }
            if is_last {
                return Ok(Walked::There(InodeRef(inode)));
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
        permission_generation: PermissionGeneration,
    ) -> Result<Here<'a>> {
        if here.file_type != FileType::Directory {
            return Err(Error::Errno(libc::ENOTDIR));
        }
        if (here.searchable || ctx.is_root())
            && let Some(child) = self.meta.known.find(here.identity, name, permission_generation)
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
                    let permission_generation = known.permission_generation();
                    let file_type = inode.file_type();
                    let child =
                        Child { identity: identity(&inode), file_type, searchable: searchable(&inode) };
                    known.put(identity(dir), name, &child, permission_generation);
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
}
