//! Opening, making and closing files and directories.
//!
//! Two callers open: the kernel, which knows inodes by number and holds them by lookup counts, and walks along a path,
//! which hold what they have reached by an open count ([`Arrive::Opening`]).

use super::make::New;
use super::walk::gone;
use super::*;
use crate::acl;
use crate::dir;
use crate::inode::{Holds, InodeObj};

/// An open file or directory. Given back with [`Vfs::release`] or [`Vfs::releasedir`].
#[derive(Debug)]
pub struct FileHandle {
    pub(super) inode: Arc<InodeObj>,
    pub(super) flags: OpenFlags,
    /// Which failures of write-back it has been told of; a directory has none.
    pub(super) mark: Option<Arc<ErrorMark>>,
}

impl FileHandle {
    /// The inode.
    pub fn nid(&self) -> Nid {
        self.inode.nid()
    }

    /// The same, by which reading leaves the access time as it is, whoever has opened it.
    pub fn keeping_atime(self) -> FileHandle {
        FileHandle { flags: self.flags | OpenFlags::NO_ATIME, ..self }
    }

    /// The flags it was opened with.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// What a cache above, such as the kernel's, may hold of the file's pages: to be told before they are read or
    /// written for it, and asked after each write past it. It is forgotten with the last lookup count and open file.
    pub fn lent(&self) -> &Lent {
        &self.inode.lent
    }
}

impl Vfs {
    /// Opens a regular file.
    pub fn open(&self, ctx: &Context, nid: Nid, flags: OpenFlags) -> Result<FileHandle> {
        self.open_inode(ctx, self.meta.inode(nid)?, flags)
    }

    fn open_inode(&self, ctx: &Context, inode: Arc<InodeObj>, flags: OpenFlags) -> Result<FileHandle> {
        self.may_open(ctx, &inode, flags)?;
        if !inode.holds.open() {
            return Err(Error::Errno(libc::ESTALE));
        }
        self.opened(ctx, inode, flags)
    }

    /// Opens what a walk has reached with [`Arrive::Opening`]; a failure gives that back.
    pub fn open_at(&self, ctx: &Context, at: InodeRef, flags: OpenFlags) -> Result<FileHandle> {
        let InodeRef(inode) = at;
        match self.may_open(ctx, &inode, flags) {
            Ok(()) => self.opened(ctx, inode, flags),
            Err(e) => {
                self.leave_inode(&inode);
                Err(e)
            }
        }
    }

    /// Whether the caller may open a file so.
    fn may_open(&self, ctx: &Context, inode: &InodeObj, flags: OpenFlags) -> Result<()> {
        if flags.contains(OpenFlags::DIRECTORY) && !inode.is_dir() {
            return Err(Error::Errno(libc::ENOTDIR));
        }
        match inode.file_type() {
            FileType::Regular => {}
            FileType::Directory if flags.writes() || flags.contains(OpenFlags::TRUNCATE) => {
                return Err(Error::Errno(libc::EISDIR));
            }
            FileType::Directory => {}
            FileType::Symlink => return Err(Error::Errno(libc::ELOOP)),
            _ => return Err(Error::Errno(libc::ENXIO)),
        }
        let truncates = flags.contains(OpenFlags::TRUNCATE);
        let mut want = 0;
        if flags.contains(OpenFlags::EXECUTE) {
            want |= acl::EXECUTE;
        } else if flags.reads() {
            want |= acl::READ;
        }
        if flags.writes() || truncates {
            want |= acl::WRITE;
        }
        if flags.writes() || truncates {
            self.writable()?;
        }
        let owns = flags.contains(OpenFlags::NO_ATIME) && !ctx.is_root() && !ctx.is_checked();
        if owns || want & !u32::from(inode.everyone_may()) != 0 {
            let image = inode.lock.read();
            self.check(ctx, inode, &image, want)?;
            if owns && ctx.uid != image.uid.get() {
                return Err(Error::Errno(libc::EPERM));
            }
        }
        Ok(())
    }

    /// The handle of a file that may be opened, and that an open count holds; a failure gives it back.
    fn opened(&self, ctx: &Context, inode: Arc<InodeObj>, flags: OpenFlags) -> Result<FileHandle> {
        let truncates = flags.contains(OpenFlags::TRUNCATE);
        let handle = self.handle(inode, flags);
        if truncates {
            let changing = self.changing(ctx, &handle.inode, 0, u64::MAX);
            let done = self.empty(ctx, &handle.inode);
            drop(changing);
            if let Err(e) = done {
                self.release(handle, None);
                return Err(e);
            }
        }
        Ok(handle)
    }

    pub(super) fn handle(&self, inode: Arc<InodeObj>, flags: OpenFlags) -> FileHandle {
        let mark = (inode.file_type() == FileType::Regular).then(|| {
            if flags.writes() {
                self.data.opened(&inode);
            }
            Arc::new(ErrorMark::of(inode.made_data()))
        });
        FileHandle { inode, flags, mark }
    }

    /// O_TRUNC.
    fn empty(&self, ctx: &Context, inode: &Arc<InodeObj>) -> Result<()> {
        self.strip(ctx, inode, false)?;
        // Behind the end of an empty file there may be blocks, set aside by fallocate(2).
        if inode.size() != 0 || inode.lock.read().blocks.get() != 0 {
            self.alloc_room(|| self.data.truncate(inode, 0))?;
        }
        inode.touch_content();
        self.data.keep(inode);
        self.sync_cut(inode)
    }

    /// Makes a regular file if the name does not exist (which EXCLUSIVE demands) and opens it. The last member
    /// says whether it was made.
    ///
    /// ESTALE: the name exists, and the caller was checked by one who took it for free: it is to look anew.
    pub fn create(
        &self,
        ctx: &Context,
        parent: Nid,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Entry, FileHandle, bool)> {
        let new = New::file(mode);
        match self.make(ctx, &self.meta.inode(parent)?, name, &new, 1 + Holds::ONE_OPEN)? {
            Ok(inode) => {
                let entry = self.entry(&inode);
                Ok((entry, self.handle(inode, flags), true))
            }
            Err(there) => {
                let opened = if flags.contains(OpenFlags::EXCLUSIVE) {
                    Err(Error::Errno(libc::EEXIST))
                } else if ctx.is_checked() {
                    // Nobody has checked whether the caller may open what has come there meanwhile, nor what it is.
                    Err(Error::Errno(libc::ESTALE))
                } else if there.is_dir() {
                    Err(Error::Errno(libc::EISDIR))
                } else {
                    self.open_inode(ctx, Arc::clone(&there), flags)
                };
                match opened {
                    Ok(handle) => Ok((self.entry(&there), handle, false)),
                    Err(e) => {
                        self.forget(there.nid(), 1);
                        Err(e)
                    }
                }
            }
        }
    }

    /// Opens a regular file, which is made if the name does not exist; with EXCLUSIVE it must not exist. ELOOP: the
    /// name is a symbolic link's.
    pub fn create_at(
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
        // Making it takes room in the journal: a thread that only opens it needs none.
        if !exclusive || self.options.read_only {
            match self.walk(ctx, dir, name, false, Arrive::Opening) {
                Ok(Walked::There(found)) if exclusive => {
                    self.leave(found);
                    return Err(Error::Errno(libc::EEXIST));
                }
                Ok(Walked::There(found)) => return self.open_file_at(ctx, found, flags),
                Ok(Walked::Link { .. }) => return Err(Error::Errno(libc::ELOOP)),
                Err(Error::Errno(libc::ENOENT)) => {}
                Err(e) => return Err(e),
            }
        }
        let new = New::file(mode);
        match self.make(ctx, &dir.0, name, &new, Holds::ONE_OPEN)? {
            Ok(made) => Ok(self.handle(made, flags)),
            Err(there) => {
                let opened = if exclusive {
                    Err(Error::Errno(libc::EEXIST))
                } else if !Arrive::Opening.take(&there) {
                    Err(gone())
                } else {
                    self.open_file_at(ctx, InodeRef(Arc::clone(&there)), flags)
                };
                if there.holds.forget(1) {
                    self.reap(&there);
                }
                opened
            }
        }
    }

    fn open_file_at(&self, ctx: &Context, found: InodeRef, flags: OpenFlags) -> Result<FileHandle> {
        if found.0.is_dir() {
            self.leave(found);
            return Err(Error::Errno(libc::EISDIR));
        }
        self.open_at(ctx, found, flags)
    }

    /// Makes a regular file without a name and opens it; with EXCLUSIVE it can never get one.
    pub fn tmpfile(
        &self,
        ctx: &Context,
        parent: Nid,
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Entry, FileHandle)> {
        let inode = self.make_nameless(ctx, parent, mode)?;
        if flags.contains(OpenFlags::EXCLUSIVE) {
            inode.forbid_links();
        }
        Ok((self.entry(&inode), self.handle(inode, flags)))
    }

    /// Opens a directory for reading.
    pub fn opendir(&self, ctx: &Context, nid: Nid) -> Result<FileHandle> {
        let inode = self.meta.inode(nid)?;
        if !inode.is_dir() {
            return Err(Error::Errno(libc::ENOTDIR));
        }
        self.check(ctx, &inode, &inode.lock.read(), acl::READ)?;
        if !inode.holds.open() {
            return Err(Error::Errno(libc::ESTALE));
        }
        Ok(FileHandle { inode, flags: OpenFlags::DIRECTORY, mark: None })
    }

    /// A descriptor was closed: reports an error of write-back that this handle was not told of, and gives up
    /// the fcntl locks of `owner`.
    pub fn flush(&self, handle: &FileHandle, owner: Owner) -> Result<()> {
        self.locks.release_owner(handle.nid(), AdvisoryKind::Record, owner);
        match &handle.mark {
            Some(mark) if handle.flags.writes() => handle.inode.data().check(mark),
            _ => Ok(()),
        }
    }

    /// Gives a handle of a file back, and with it the flock of `owner`, if one is given.
    pub fn release(&self, handle: FileHandle, flock_owner: Option<Owner>) {
        if let Some(owner) = flock_owner {
            self.locks.release_owner(handle.nid(), AdvisoryKind::Flock, owner);
        }
        if handle.flags.writes() && handle.inode.file_type() == FileType::Regular {
            self.data.closed(&handle.inode);
        }
        self.releasedir(handle);
    }

    /// Gives a handle of a directory back.
    pub fn releasedir(&self, handle: FileHandle) {
        self.close(&handle.inode);
        drop(handle);
        self.meta.log_waiting_times();
    }

    /// Gives an open count back.
    fn close(&self, inode: &Arc<InodeObj>) {
        if inode.holds.close() {
            self.reap(inode);
        } else if inode.holds.opens() == 0 {
            self.pending_eviction.held(inode);
        }
    }

    /// Gives back what [`Arrive::Opening`] has taken.
    pub fn leave(&self, at: InodeRef) {
        self.leave_inode(&at.0);
    }

    /// As [`Vfs::leave`]; a symbolic link has taken nothing.
    pub(super) fn leave_inode(&self, inode: &Arc<InodeObj>) {
        if inode.file_type() != FileType::Symlink {
            self.close(inode);
        }
    }

    /// Whether a file or directory is open.
    pub fn has_open_files(&self) -> bool {
        self.meta.table.all().iter().any(|inode| inode.holds.opens() > 0)
    }
}
