//! Reading directories.

use super::*;
use crate::acl;
use crate::lock::{Access, StripeSet};

impl Vfs {
    /// Calls `fill` for "." and "..", then for each entry after `cookie` (0: all) in the order of cookies, until
    /// it returns false: that entry counts as not seen. The dots have the cookies 1 and 2. No lock is held while `fill`
    /// runs.
    pub fn readdir(
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

    /// As [`Vfs::readdir`] with the attributes of each: every entry for which `fill` returned true holds a
    /// lookup count, except "." and "..". An inode that has gone meanwhile comes as `None`, and so do all of them to a
    /// caller who may not search the directory.
    pub fn readdirplus(
        &self,
        ctx: &Context,
        handle: &FileHandle,
        cookie: u64,
        fill: &mut dyn FnMut(&DirEntry, Option<&Entry>) -> bool,
    ) -> Result<()> {
        let searches = match self.check(ctx, &handle.inode, &handle.inode.lock.read(), acl::EXECUTE) {
            Err(Error::Errno(libc::EACCES)) => false,
            checked => checked.map(|()| true)?,
        };
        self.readdir(handle, cookie, &mut |entry| {
            if !searches || matches!(entry.name, b"." | b"..") {
                return fill(entry, None);
            }
            let found = self.meta.inode(entry.nid).and_then(|inode| self.hold(inode));
            let Ok(inode) = found else { return fill(entry, None) };
            let taken = fill(entry, Some(&self.entry(&inode)));
            if !taken && inode.holds.forget(1) {
                self.reap(&inode);
            }
            taken
        })
    }
}
