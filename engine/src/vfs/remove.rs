//! Taking names away: unlink, rmdir; and the end of inodes.

use super::dir_room::is_freed;
use super::*;
use crate::dir::{self, ENTRY_SLOTS, Left};
use crate::format::{Inode, InodeFlags, Intent};
use crate::inode::{Draft, InodeObj};
use crate::lock::{Access, StripeSet, Want};
use crate::planted::{self, Bug};
use crate::store::Handle;
use crate::sync::Arc;
use crate::sync::atomic::{Ordering, fence};
use crate::takeover::requests;

const REMOVE_SLOTS: u32 = ENTRY_SLOTS + 14;

impl Vfs {
    /// EPERM where a sticky directory protects an entry.
    pub(super) fn check_sticky(&self, ctx: &Context, dir: &Inode, victim: &Inode) -> Result<()> {
        let sticky = u32::from(dir.mode.get()) & libc::S_ISVTX != 0;
        if sticky
            && !ctx.is_root()
            && !ctx.is_checked()
            && ctx.uid != victim.uid.get()
            && ctx.uid != dir.uid.get()
        {
            return Err(Error::Errno(libc::EPERM));
        }
        Ok(())
    }

    /// Takes one name of a file from a draft; without names it becomes an orphan.
    pub(super) fn drop_name(
        &self,
        h: &mut Handle<'_>,
        inode: &InodeObj,
        draft: &mut Draft,
        names: u32,
        at: i64,
    ) -> Result<()> {
        let left = draft.image.nlink.get().saturating_sub(names);
        draft.image.nlink.set(left);
        draft.image.ctime.set(at);
        if left == 0 {
            // A thread that found it before waits for its lock, to give it another name perhaps; it is being freed.
            inode.forbid_links();
            let dead = if inode.is_dir() { InodeFlags::DEAD.bits() } else { 0 };
            draft.image.flags.set(draft.image.flags.get() | InodeFlags::ORPHAN.bits() | dead);
            if !planted::is(Bug::NoOrphanEntry) {
                self.meta.space.begin_intent(h, inode.nid(), inode.generation(), Intent::Orphan, [0, 0])?;
            }
        }
        Ok(())
    }

    /// The inode that a name leads to, with no lock held any more: a guess, to be checked under the locks.
    pub(super) fn guess(
        &self,
        ctx: &Context,
        dir: &Arc<InodeObj>,
        name: &[u8],
    ) -> Result<Option<Arc<InodeObj>>> {
        self.find(ctx, dir, name, Ok)
    }

    /// Removes a name that is not a directory.
    pub fn unlink(&self, ctx: &Context, parent: Nid, name: &[u8]) -> Result<()> {
        self.unlink_at(ctx, &self.reach(parent)?, name)
    }

    /// As [`Vfs::unlink`], in a directory that a walk has reached.
    ///
    /// The name is looked up once, under its bucket's lock; the inode's lock, which may come before that in the order
    /// of locks, is tried then. If it is taken, all begins again with the inode's lock.
    pub fn unlink_at(&self, ctx: &Context, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let dir = &dir.0;
        if matches!(name, b"." | b"..") {
            return Err(Error::Errno(libc::EISDIR));
        }
        let (inode, left, end) = self.alloc_room(|| self.take_name(ctx, dir, name))?;
        self.tell(ctx, Changed::Name { dir: dir.nid(), name });
        if let Some(inode) = inode {
            self.tell(ctx, Changed::Attributes { nid: inode.nid() });
            self.reap(&inode);
        }
        self.shrink(dir, left);
        self.finish(end)
    }

    /// Takes a name that is not a directory's out of its directory. The inode, unless it is gone with the name.
    fn take_name(
        &self,
        ctx: &Context,
        dir: &Arc<InodeObj>,
        name: &[u8],
    ) -> Result<(Option<Arc<InodeObj>>, Left, Position)> {
        // What the name led to, if that inode is to be locked before the directory.
        let mut expected: Option<Arc<InodeObj>> = None;
        loop {
            let mut h = self.meta.begin(REMOVE_SLOTS)?;
            let first = expected.take();
            let first_lock = first.as_ref().map(|inode| inode.lock.write());
            let image = dir.lock.read();
            self.may_search(ctx, dir, &image)?;
            dir::check_name(name)?;
            let entries = self.meta.dir(dir);
            let stripe = StripeSet::of(u64::from(entries.bucket_of(&image, name)));
            let bucket = dir.bucket_locks().lock(stripe, Access::Write);
            let found = entries.locate(None, &image, name)?.ok_or(Error::Errno(libc::ENOENT))?;
            let inode = self.meta.named(found.hit().nid)?;
            if inode.is_dir() {
                self.may_change_entries(ctx, dir, &image)?;
                drop((bucket, image, first_lock));
                return Err(self.not_a_file(ctx, dir, &inode));
            }
            let is_first = first.as_ref().is_some_and(|first| Arc::ptr_eq(first, &inode));
            let mut own = match first_lock.filter(|_| is_first).or_else(|| inode.lock.try_write()) {
                Some(own) => own,
                None if inode.nid() > dir.nid() => inode.lock.write(),
                None => {
                    drop((bucket, image));
                    expected = Some(Arc::clone(&inode));
                    continue;
                }
            };
            self.may_change_entries(ctx, dir, &image)?;
            self.check_sticky(ctx, &image, &own)?;
            // Held over the commit where the inode goes with its last name: no write-back comes after it. A thread that
            // is busy with the file is not waited for.
            let has_data = inode.file_type() == FileType::Regular;
            let quiet = (has_data && own.nlink.get() == 1 && inode.holds.is_free())
                .then(|| self.data.try_quiet(&inode))
                .flatten();
            let left = entries.take(&mut h, &found)?;
            let at = now();
            let mut draft = inode.draft(&own);
            self.meta.stage_dir_time(&mut h, dir, at)?;
            let small = own.nlink.get() == 1
                && own.extent_depth == 0
                && own.xattr_block.get() == 0
                && inode.is_usable();
            let mut goes = small
                && (quiet.is_some() || !has_data)
                && self.counts_all_holds(&inode)
                && inode.holds.retire();
            if goes && quiet.as_ref().is_some_and(|quiet| !quiet.lasts(&inode)) {
                inode.holds.revive();
                goes = false;
            }
            if goes {
                draft.image.nlink.set(0);
                let staged = self.meta.stage_end(&mut h, &inode, &mut draft.image);
                let gone = staged.and_then(|()| {
                    requests::decides(0);
                    self.meta.commit(h)
                });
                let (end, carrying) = gone.inspect_err(|_| inode.holds.revive())?;
                self.forget_unlinked(dir, name);
                dir.show_content_time(at);
                inode.install(&mut own, &draft);
                // The slot is another's from now on: a thread that still knows the inode logs nothing about it.
                own.nid.set(0);
                drop(carrying);
                drop((own, bucket, image));
                if has_data {
                    self.data.discard_quiet(&inode);
                }
                self.meta.table.remove(&inode);
                drop(quiet);
                return Ok((None, left, end));
            }
            self.drop_name(&mut h, &inode, &mut draft, 1, at)?;
            self.meta.stage(&mut h, &inode, &draft.image)?;
            requests::decides(0);
            let (end, carrying) = self.meta.commit(h)?;
            self.forget_unlinked(dir, name);
            dir.show_content_time(at);
            inode.install(&mut own, &draft);
            drop(carrying);
            drop((own, bucket, image));
            drop(quiet);
            return Ok((Some(inode), left, end));
        }
    }

    fn forget_unlinked(&self, dir: &InodeObj, name: &[u8]) {
        if !planted::is(Bug::NameKept) {
            self.forget_name(dir, name);
        }
    }

    /// What is answered to a caller that would unlink a directory. No lock is held.
    fn not_a_file(&self, ctx: &Context, dir: &InodeObj, inode: &InodeObj) -> Error {
        let own = *inode.lock.read();
        let image = dir.lock.read();
        self.check_sticky(ctx, &image, &own).err().unwrap_or(Error::Errno(libc::EISDIR))
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, ctx: &Context, parent: Nid, name: &[u8]) -> Result<()> {
        self.rmdir_at(ctx, &self.reach(parent)?, name)
    }

    /// As [`Vfs::rmdir`], in a directory that a walk has reached.
    pub fn rmdir_at(&self, ctx: &Context, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let dir = &dir.0;
        match name {
            b"." => return Err(Error::Errno(libc::EINVAL)),
            b".." => return Err(Error::Errno(libc::ENOTEMPTY)),
            _ => {}
        }
        let (inode, left, end) = self.alloc_room(|| self.take_directory(ctx, dir, name))?;
        self.tell(ctx, Changed::Name { dir: dir.nid(), name });
        self.tell(ctx, Changed::Attributes { nid: inode.nid() });
        self.reap(&inode);
        self.shrink(dir, left);
        self.finish(end)
    }

    /// Takes the name of an empty directory out of that above it.
    fn take_directory(
        &self,
        ctx: &Context,
        dir: &Arc<InodeObj>,
        name: &[u8],
    ) -> Result<(Arc<InodeObj>, Left, Position)> {
        loop {
            let mut h = self.meta.begin(REMOVE_SLOTS)?;
            let inode = self.guess(ctx, dir, name)?.ok_or(Error::Errno(libc::ENOENT))?;
            let entries = self.meta.dir(dir);
            let mut locks = LockSet::acquire([
                Want::Inode(&dir.lock, Access::Write),
                Want::Inode(&inode.lock, Access::Write),
            ]);
            let image = locked(&locks, dir);
            let own = locked(&locks, &inode);
            if entries.lookup(None, image, name)?.map(|hit| hit.nid) != Some(inode.nid())
                || is_freed(&inode, own)?
            {
                continue;
            }
            self.may_change_entries(ctx, dir, image)?;
            self.check_sticky(ctx, image, own)?;
            if !inode.is_dir() {
                return Err(Error::Errno(libc::ENOTDIR));
            }
            if !self.meta.dir(&inode).is_empty(None, own)? {
                return Err(Error::Errno(libc::ENOTEMPTY));
            }
            let left = entries.remove(&mut h, image, name)?;
            let at = now();
            let mut draft = inode.draft(own);
            let all = draft.image.nlink.get();
            self.drop_name(&mut h, &inode, &mut draft, all, at)?;
            let mut above = dir.draft(image);
            above.image.nlink.set(above.image.nlink.get().saturating_sub(1));
            above.image.mtime.set(at);
            above.image.ctime.set(at);
            self.meta.stage(&mut h, &inode, &draft.image)?;
            self.meta.stage(&mut h, dir, &above.image)?;
            requests::decides(0);
            let (end, carrying) = self.meta.commit(h)?;
            self.forget_name(dir, name);
            inode.install(locked_mut(&mut locks, &inode), &draft);
            dir.install(locked_mut(&mut locks, dir), &above);
            drop(carrying);
            drop(locks);
            return Ok((inode, left, end));
        }
    }

    /// Frees an inode that has neither names nor holders.
    pub(super) fn reap(&self, inode: &Arc<InodeObj>) {
        // Pairs with itself: of the thread that takes the last name and the one that takes the last hold, either the
        // first finds no hold or the second no name.
        fence(Ordering::SeqCst);
        if inode.nlink() != 0 {
            return;
        }
        if self.asks_first(inode) {
            return self.pending_eviction.held(inode);
        }
        self.free_unheld(inode);
    }

    /// The same for one that the kernel does not hold.
    pub(super) fn free_unheld(&self, inode: &Arc<InodeObj>) {
        // What a committed batch has still to move is for the next mount.
        if self.meta.space.is_begun(inode.nid(), Intent::Batch) {
            return;
        }
        // Who was in line to be asked about may have got a name since, or get one before it is retired.
        if inode.nlink() != 0 || !inode.holds.retire() {
            return self.pending_eviction.held(inode);
        }
        if inode.nlink() != 0 {
            inode.holds.revive();
            return self.pending_eviction.held(inode);
        }
        self.pending_eviction.frees(inode.nid());
        if inode.file_type() == FileType::Regular {
            self.data.discard(inode);
        }
        if let Err(e) = self.meta.free_inode(inode) {
            tracing::warn!(nid = inode.nid(), "an unlinked inode stays until the next mount: {e}");
        }
        self.pending_eviction.left(inode.nid());
    }
}
