//! Open files and directories, and their bytes.

use super::make::New;
use super::*;
use crate::acl;
use crate::file::{At, DataInode, Keep, SyncKind, Written};
use crate::format::{InodeFlags, XATTR_SYMLINK};
use crate::inode::{Holds, InodeObj, tick};
use crate::lock::{Access, StripeSet};
use crate::planted::{self, Bug};
use crate::xattr;

/// A day: relatime changes an access time that old.
const DAY: i64 = 86_400_000_000_000;

impl Fs {
    pub(super) fn link_target(&self, inode: &InodeObj) -> Result<Vec<u8>> {
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

    pub(super) fn handle(&self, inode: Arc<InodeObj>, flags: OpenFlags) -> FileHandle {
        let mark = (inode.file_type() == FileType::Regular).then(|| {
            if flags.writes() {
                self.data.opened(&inode);
            }
            Arc::new(ErrorMark::of(inode.made_data()))
        });
        FileHandle { inode, flags, mark }
    }

    pub(super) fn open_file(
        &self,
        ctx: &Context,
        inode: Arc<InodeObj>,
        flags: OpenFlags,
    ) -> Result<FileHandle> {
        self.may_open(ctx, &inode, flags)?;
        if !inode.holds.open() {
            return Err(Error::Errno(libc::ESTALE));
        }
        self.opened(ctx, inode, flags)
    }

    /// Whether the caller may open a file so.
    pub(super) fn may_open(&self, ctx: &Context, inode: &InodeObj, flags: OpenFlags) -> Result<()> {
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
    pub(super) fn opened(&self, ctx: &Context, inode: Arc<InodeObj>, flags: OpenFlags) -> Result<FileHandle> {
        let truncates = flags.contains(OpenFlags::TRUNCATE);
        let handle = self.handle(inode, flags);
        if truncates {
            let done = self.empty(ctx, &handle.inode);
            self.tell(ctx, Changed::Content { nid: handle.nid(), offset: 0, len: u64::MAX });
            if let Err(e) = done {
                self.release(handle, None);
                return Err(e);
            }
        }
        Ok(handle)
    }

    /// O_TRUNC.
    fn empty(&self, ctx: &Context, inode: &Arc<InodeObj>) -> Result<()> {
        self.strip(inode, ctx.is_root())?;
        if inode.size() != 0 {
            self.data.truncate(inode, 0)?;
        }
        inode.touch_content();
        Ok(())
    }

    pub(super) fn create_file(
        &self,
        ctx: &Context,
        parent: Nid,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Entry, FileHandle, bool)> {
        let new = New { mode: libc::S_IFREG | mode & 0o7777, rdev: 0, target: None };
        match self.make(ctx, &self.meta.inode(parent)?, name, &new, 1 + Holds::ONE_OPEN)? {
            Ok(inode) => {
                let entry = self.entry(&inode);
                Ok((entry, self.handle(inode, flags), true))
            }
            Err(there) => {
                let opened = if flags.contains(OpenFlags::EXCLUSIVE) {
                    Err(Error::Errno(libc::EEXIST))
                } else if there.is_dir() {
                    Err(Error::Errno(libc::EISDIR))
                } else {
                    self.open_file(ctx, Arc::clone(&there), flags)
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

    pub(super) fn temporary_file(
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

    pub(super) fn read_file(&self, handle: &FileHandle, offset: u64, into: &mut [u8]) -> Result<usize> {
        if handle.inode.is_dir() {
            return Err(Error::Errno(libc::EISDIR));
        }
        if !handle.flags.fills() {
            return Err(Error::Errno(libc::EBADF));
        }
        let keep = if handle.flags.contains(OpenFlags::DIRECT) {
            Keep::No
        } else if handle.flags.contains(OpenFlags::KERNEL_CACHES) {
            Keep::Lent
        } else {
            Keep::Yes
        };
        let read = self.data.read_keeping(&handle.inode, offset, into, keep)?;
        self.accessed(handle);
        Ok(read)
    }

    /// Moves the access time on as the mount wants it.
    fn accessed(&self, handle: &FileHandle) {
        if self.meta.options.read_only || handle.flags.contains(OpenFlags::NO_ATIME) {
            return;
        }
        let [atime, mtime, ctime] = handle.inode.times();
        let moves = match self.meta.options.atime {
            AtimePolicy::Never => false,
            AtimePolicy::Strict => true,
            AtimePolicy::Relative => atime <= mtime || atime <= ctime || tick().saturating_sub(atime) >= DAY,
        };
        if moves {
            handle.inode.touch_access();
        }
    }

    pub(super) fn write_file(
        &self,
        ctx: &Context,
        handle: &FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<Written> {
        if !handle.flags.writes() && !flags.contains(WriteFlags::FROM_CACHE) {
            return Err(Error::Errno(libc::EBADF));
        }
        self.writable()?;
        if data.is_empty() {
            return Ok(Written { offset, len: 0 });
        }
        let from_cache = flags.contains(WriteFlags::FROM_CACHE);
        let kills = flags.contains(WriteFlags::KILL_SUIDGID);
        // The kernel has dropped what it had to when its cache was written.
        if kills || !from_cache {
            self.strip(&handle.inode, !kills && ctx.is_root())?;
        }
        let append =
            flags.contains(WriteFlags::APPEND) || handle.flags.contains(OpenFlags::APPEND) && !from_cache;
        let at = if append { At::Append } else { At::Offset(offset) };
        let direct = flags.contains(WriteFlags::DIRECT) || handle.flags.contains(OpenFlags::DIRECT);
        let written = if direct && !from_cache {
            self.data.write_direct(&handle.inode, at, data)?
        } else if flags.contains(WriteFlags::KEEP_TIMES) {
            self.data.write_keeping_times(&handle.inode, at, data)?
        } else {
            self.data.write(&handle.inode, at, data)?
        };
        let sync = flags.contains(WriteFlags::SYNC) || handle.flags.is_sync() || self.meta.options.sync;
        if (sync || flags.contains(WriteFlags::DSYNC) || handle.flags.is_dsync())
            && !planted::is(Bug::DsyncIgnored)
        {
            self.sync_file(handle, !sync)?;
        }
        Ok(written)
    }

    pub(super) fn sync_file(&self, handle: &FileHandle, datasync: bool) -> Result<()> {
        match &handle.mark {
            Some(mark) => {
                let kind = if datasync { SyncKind::Data } else { SyncKind::All };
                self.data.fsync(&handle.inode, kind, mark)
            }
            None => self.fsyncdir(handle, datasync),
        }
    }

    pub(super) fn allocate_range(
        &self,
        ctx: &Context,
        handle: &FileHandle,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        use crate::file::FallocateMode as Mode;
        if !handle.flags.writes() {
            return Err(Error::Errno(libc::EBADF));
        }
        self.writable()?;
        let mode = match mode {
            FallocateMode::Allocate { keep_size } => Mode::Allocate { keep_size },
            FallocateMode::PunchHole => Mode::PunchHole,
            FallocateMode::ZeroRange { keep_size } => Mode::ZeroRange { keep_size },
            FallocateMode::Collapse => Mode::Collapse,
            FallocateMode::Insert => Mode::Insert,
        };
        self.strip(&handle.inode, ctx.is_root())?;
        self.data.fallocate(&handle.inode, mode, offset, len)?;
        if handle.flags.is_dsync() || self.meta.options.sync {
            self.sync_file(handle, false)?;
        }
        Ok(())
    }

    pub(super) fn copy_between(
        &self,
        ctx: &Context,
        (from, from_offset): (&FileHandle, u64),
        (to, to_offset): (&FileHandle, u64),
        len: u64,
    ) -> Result<u64> {
        if !from.flags.reads() || !to.flags.writes() || to.flags.contains(OpenFlags::APPEND) {
            return Err(Error::Errno(libc::EBADF));
        }
        self.writable()?;
        self.strip(&to.inode, ctx.is_root())?;
        let copied = self.data.copy_range(&from.inode, from_offset, &to.inode, to_offset, len)?;
        self.accessed(from);
        if to.flags.is_dsync() || self.meta.options.sync {
            self.sync_file(to, false)?;
        }
        Ok(copied)
    }

    /// Entries after a cookie; the dots have the cookies 1 and 2.
    pub(super) fn read_dir(
        &self,
        handle: &FileHandle,
        cookie: u64,
        fill: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        let dir = &handle.inode;
        if !dir.is_dir() {
            return Err(Error::Errno(libc::ENOTDIR));
        }
        let up = dir.lock.read().parent.get();
        for (at, name, nid) in [(1, &b"."[..], dir.nid()), (2, b"..", up)] {
            if cookie < at && !fill(&DirEntry { name, nid, cookie: at, file_type: FileType::Directory }) {
                return Ok(());
            }
        }
        self.accessed(handle);
        let mut next = Some(cookie.max(2));
        while let Some(cookie) = next {
            let page = {
                let image = dir.lock.read();
                let entries = self.meta.dir(dir);
                let stripe = StripeSet::of(u64::from(entries.bucket_after(&image, cookie)));
                let _bucket = dir.bucket_locks().lock(stripe, Access::Read);
                entries.read(&image, cookie)?
            };
            for e in &page.entries {
                let entry = DirEntry { name: &e.name, nid: e.nid, cookie: e.cookie, file_type: e.file_type };
                if !fill(&entry) {
                    return Ok(());
                }
            }
            next = page.next;
        }
        Ok(())
    }
}
