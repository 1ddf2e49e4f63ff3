//! Taking names away: unlink, rmdir, rename; and the end of inodes.

use super::*;
use crate::acl;
use crate::dir::{self, ENTRY_SLOTS, Insertion};
use crate::format::{Inode, InodeFlags, Intent};
use crate::inode::{Draft, InodeObj};
use crate::lock::{Access, StripeSet, Want};
use crate::planted::{self, Bug};
use crate::store::Handle;
use crate::sync::Arc;
use crate::sync::atomic::{Ordering, fence};

const REMOVE_SLOTS: u32 = ENTRY_SLOTS + 14;
pub(super) const RENAME_SLOTS: u32 = 3 * ENTRY_SLOTS + 20;

impl Fs {
    /// EPERM where a sticky directory protects an entry.
    fn check_sticky(&self, ctx: &Context, dir: &Inode, victim: &Inode) -> Result<()> {
        let sticky = u32::from(dir.mode.get()) & libc::S_ISVTX != 0;
        if sticky && !ctx.is_root() && ctx.uid != victim.uid.get() && ctx.uid != dir.uid.get() {
            return Err(Error::Errno(libc::EPERM));
        }
        Ok(())
    }

    /// Takes one name of a file from a draft; without names it becomes an orphan.
    fn drop_name(
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
            let dead = if inode.is_dir() { InodeFlags::DEAD.bits() } else { 0 };
            draft.image.flags.set(draft.image.flags.get() | InodeFlags::ORPHAN.bits() | dead);
            if !planted::is(Bug::NoOrphanEntry) {
                self.meta.space.begin_intent(h, inode.nid(), inode.generation(), Intent::Orphan, [0, 0])?;
            }
        }
        Ok(())
    }

    /// The inode that a name leads to, with no lock held any more: a guess, to be checked under the locks.
    fn guess(&self, ctx: &Context, dir: &Arc<InodeObj>, name: &[u8]) -> Result<Option<Arc<InodeObj>>> {
        self.find(ctx, dir, name, Ok)
    }

    pub(super) fn unlink_name(&self, ctx: &Context, parent: Nid, name: &[u8]) -> Result<()> {
        if matches!(name, b"." | b"..") {
            return Err(Error::Errno(libc::EISDIR));
        }
        let dir = self.meta.inode(parent)?;
        let (inode, end) = loop {
            let mut h = self.meta.begin(REMOVE_SLOTS)?;
            let inode = self.guess(ctx, &dir, name)?.ok_or(Error::Errno(libc::ENOENT))?;
            // Held over the commit where the inode goes with its last name: no write-back comes after it. There
            // are credits in hand, so whoever is busy with the file is not waited for.
            let has_data = inode.file_type() == FileType::Regular;
            let quiet = (has_data && inode.nlink() == 1 && inode.holds.is_free())
                .then(|| self.data.try_quiet(inode.data()))
                .flatten();
            let entries = self.meta.dir(&dir);
            let bucket = entries.bucket_of(&dir.lock.read(), name);
            let mut locks = LockSet::acquire([
                Want::Inode(&dir.lock, Access::Read),
                Want::Buckets(dir.bucket_locks(), StripeSet::of(u64::from(bucket)), Access::Write),
                Want::Inode(&inode.lock, Access::Write),
            ]);
            let image = locked(&locks, &dir);
            if entries.bucket_of(image, name) != bucket {
                continue;
            }
            let entry = entries.locate(None, image, name)?.filter(|entry| entry.hit().nid == inode.nid());
            let Some(entry) = entry else { continue };
            self.may_change_entries(ctx, &dir, image)?;
            self.check_sticky(ctx, image, locked(&locks, &inode))?;
            if inode.is_dir() {
                return Err(Error::Errno(libc::EISDIR));
            }
            entries.take(&mut h, &entry)?;
            let at = now();
            let mut draft = inode.draft(locked(&locks, &inode));
            self.meta.stage_dir_time(&mut h, &dir, at)?;
            let own = locked(&locks, &inode);
            let small = own.nlink.get() == 1
                && own.extent_depth == 0
                && own.xattr_block.get() == 0
                && inode.is_usable();
            let goes = small && (quiet.is_some() || !has_data) && inode.holds.retire();
            if goes {
                draft.image.nlink.set(0);
                let gone = self.meta.stage_end(&mut h, &inode, &mut draft.image).and_then(|()| h.commit());
                let end = gone.inspect_err(|_| inode.holds.revive())?;
                dir.show_content_time(at);
                let image = locked_mut(&mut locks, &inode);
                inode.install(image, &draft);
                // The slot is another's from now on: who still knows the inode logs nothing about it.
                image.nid.set(0);
                drop(locks);
                if has_data {
                    self.data.discard_quiet(&inode);
                }
                self.meta.table.remove(&inode);
                return self.finish(end);
            }
            self.drop_name(&mut h, &inode, &mut draft, 1, at)?;
            self.meta.stage(&mut h, &inode, &draft.image)?;
            let end = h.commit()?;
            dir.show_content_time(at);
            inode.install(locked_mut(&mut locks, &inode), &draft);
            drop(locks);
            drop(quiet);
            break (inode, end);
        };
        self.reap(&inode);
        self.finish(end)
    }

    pub(super) fn remove_dir(&self, ctx: &Context, parent: Nid, name: &[u8]) -> Result<()> {
        match name {
            b"." => return Err(Error::Errno(libc::EINVAL)),
            b".." => return Err(Error::Errno(libc::ENOTEMPTY)),
            _ => {}
        }
        let dir = self.meta.inode(parent)?;
        let (inode, end) = loop {
            let mut h = self.meta.begin(REMOVE_SLOTS)?;
            let inode = self.guess(ctx, &dir, name)?.ok_or(Error::Errno(libc::ENOENT))?;
            let entries = self.meta.dir(&dir);
            let mut locks = LockSet::acquire([
                Want::Inode(&dir.lock, Access::Write),
                Want::Inode(&inode.lock, Access::Write),
            ]);
            let image = locked(&locks, &dir);
            if entries.lookup(None, image, name)?.map(|hit| hit.nid) != Some(inode.nid()) {
                continue;
            }
            self.may_change_entries(ctx, &dir, image)?;
            let own = locked(&locks, &inode);
            self.check_sticky(ctx, image, own)?;
            if !inode.is_dir() {
                return Err(Error::Errno(libc::ENOTDIR));
            }
            if !self.meta.dir(&inode).is_empty(None, own)? {
                return Err(Error::Errno(libc::ENOTEMPTY));
            }
            entries.remove(&mut h, image, name)?;
            let at = now();
            let mut draft = inode.draft(own);
            let all = draft.image.nlink.get();
            self.drop_name(&mut h, &inode, &mut draft, all, at)?;
            let mut above = dir.draft(image);
            above.image.nlink.set(above.image.nlink.get().saturating_sub(1));
            above.image.mtime.set(at);
            above.image.ctime.set(at);
            self.meta.stage(&mut h, &inode, &draft.image)?;
            self.meta.stage(&mut h, &dir, &above.image)?;
            let end = h.commit()?;
            inode.install(locked_mut(&mut locks, &inode), &draft);
            dir.install(locked_mut(&mut locks, &dir), &above);
            drop(locks);
            break (inode, end);
        };
        self.reap(&inode);
        self.finish(end)
    }

    /// Frees an inode that has neither names nor holders.
    pub(super) fn reap(&self, inode: &Arc<InodeObj>) {
        // Pairs with itself: of one who takes the last name and one who takes the last hold, either the first
        // finds no hold or the second no name.
        fence(Ordering::SeqCst);
        if inode.nlink() != 0 {
            return;
        }
        if !inode.holds.retire() {
            return self.departing.held(inode);
        }
        self.departing.frees(inode.nid());
        if inode.file_type() == FileType::Regular {
            self.data.discard(inode);
        }
        if let Err(e) = self.meta.free_inode(inode) {
            tracing::warn!(nid = inode.nid(), "an unlinked inode stays until the next mount: {e}");
        }
        self.departing.left(inode.nid());
    }

    /// Whether `inner` is `outer` or lies below it. The caller holds the directory-move lock: no directory
    /// changes its parent meanwhile. What is removed lies below nothing, and where it lay may be gone as well.
    fn is_below(&self, inner: &Arc<InodeObj>, outer: Nid) -> Result<bool> {
        let mut at = Arc::clone(inner);
        let mut visited = std::collections::HashSet::new();
        loop {
            if at.nid() == outer {
                return Ok(true);
            }
            let (up, removed) = {
                let image = at.lock.read();
                (image.parent.get(), image.flags.get() & InodeFlags::DEAD.bits() != 0)
            };
            if at.nid() == crate::format::ROOT_NID || removed || !visited.insert(up) {
                return Ok(false);
            }
            at = match self.meta.inode(up) {
                // It was empty when it went, so all that was below it is removed too.
                Err(Error::Errno(libc::ESTALE)) => return Ok(false),
                above => above?,
            };
        }
    }

    #[expect(clippy::too_many_lines, reason = "one operation, step by step")]
    pub(super) fn rename_name(
        &self,
        ctx: &Context,
        from: (Nid, &[u8]),
        to: (Nid, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let no_replace = flags.contains(RenameFlags::NO_REPLACE);
        if exchange && no_replace {
            return Err(Error::Errno(libc::EINVAL));
        }
        for name in [from.1, to.1] {
            if matches!(name, b"." | b"..") {
                let errno = if no_replace && name == to.1 { libc::EEXIST } else { libc::EBUSY };
                return Err(Error::Errno(errno));
            }
            dir::check_name(name)?;
        }
        let (old_dir, new_dir) = (self.meta.inode(from.0)?, self.meta.inode(to.0)?);
        let across = from.0 != to.0;
        let (replaced, end) = self.alloc_room(|| {
            loop {
                let source = self.guess(ctx, &old_dir, from.1)?.ok_or(Error::Errno(libc::ENOENT))?;
                let target = self.guess(ctx, &new_dir, to.1)?;
                // Before any credits, for it takes its own. If under the locks the names lead elsewhere, all
                // begins again: what replaces another file is always one whose earlier content is down.
                if target.is_some() && !exchange && source.file_type() == FileType::Regular {
                    self.data.settle_for_rename(&source)?;
                }
                let mut h = self.meta.begin(RENAME_SLOTS)?;
                let moving = across.then(|| self.directory_move.lock());
                // Told under the locks, if then both names still lead there: they were looked up one after the
                // other, and one may have led nowhere when the other came.
                let mut refusal = match &target {
                    Some(_) if no_replace => Some(libc::EEXIST),
                    None if exchange => Some(libc::ENOENT),
                    _ => None,
                };
                if across && refusal.is_none() {
                    let below =
                        |inner, outer: &InodeObj| Ok(outer.is_dir() && self.is_below(inner, outer.nid())?);
                    if below(&new_dir, &source)? {
                        refusal = Some(libc::EINVAL);
                    } else if let Some(target) = &target
                        && below(&old_dir, target)?
                    {
                        refusal = Some(if exchange { libc::EINVAL } else { libc::ENOTEMPTY });
                    }
                }
                let settles = target.is_some() && !exchange && source.file_type() == FileType::Regular;
                if !source.is_dir() && !target.as_ref().is_some_and(|target| exchange && target.is_dir()) {
                    drop(moving);
                    if settles {
                        // It takes credits of its own.
                        drop(h);
                        self.data.settle_for_rename(&source)?;
                        h = self.meta.begin(RENAME_SLOTS)?;
                    }
                }
                let fourth = target.as_ref().unwrap_or(&source);
                let mut locks = LockSet::acquire([
                    Want::Inode(&old_dir.lock, Access::Write),
                    Want::Inode(&new_dir.lock, Access::Write),
                    Want::Inode(&source.lock, Access::Write),
                    Want::Inode(&fourth.lock, Access::Write),
                ]);
                let (old_image, new_image) = (locked(&locks, &old_dir), locked(&locks, &new_dir));
                let (old_entries, new_entries) = (self.meta.dir(&old_dir), self.meta.dir(&new_dir));
                let there = |found: Option<dir::Hit>| found.map(|hit| hit.nid);
                if there(old_entries.lookup(None, old_image, from.1)?) != Some(source.nid())
                    || there(new_entries.lookup(None, new_image, to.1)?) != target.as_ref().map(|t| t.nid())
                {
                    continue;
                }
                if let Some(errno) = refusal {
                    return Err(Error::Errno(errno));
                }
                self.may_change_entries(ctx, &old_dir, old_image)?;
                self.may_change_entries(ctx, &new_dir, new_image)?;
                self.check_sticky(ctx, old_image, locked(&locks, &source))?;
                if let Some(target) = &target {
                    self.check_sticky(ctx, new_image, locked(&locks, target))?;
                    if target.nid() == source.nid() {
                        return Ok((None, 0));
                    }
                    if !exchange {
                        match (source.is_dir(), target.is_dir()) {
                            (true, false) => return Err(Error::Errno(libc::ENOTDIR)),
                            (false, true) => return Err(Error::Errno(libc::EISDIR)),
                            (true, true)
                                if !self.meta.dir(target).is_empty(None, locked(&locks, target))? =>
                            {
                                return Err(Error::Errno(libc::ENOTEMPTY));
                            }
                            _ => {}
                        }
                    }
                }
                // A directory whose ".." changes must be writable.
                for moved in [Some(&source), target.as_ref().filter(|_| exchange)].into_iter().flatten() {
                    if across && moved.is_dir() {
                        self.check(ctx, moved, locked(&locks, moved), acl::WRITE)?;
                    }
                }
                let at = now();
                let mut drafts: Vec<(&Arc<InodeObj>, Draft)> = vec![(&old_dir, old_dir.draft(old_image))];
                if across {
                    drafts.push((&new_dir, new_dir.draft(new_image)));
                }
                let last = drafts.len() - 1;
                let nlink = |drafts: &mut Vec<(&Arc<InodeObj>, Draft)>, which: usize, up: bool| {
                    let n = &mut drafts[which].1.image.nlink;
                    n.set(if up { n.get() + 1 } else { n.get().saturating_sub(1) });
                };
                let mut own = source.draft(locked(&locks, &source));
                own.image.ctime.set(at);
                if source.is_dir() && across {
                    own.image.parent.set(to.0);
                    nlink(&mut drafts, 0, false);
                    nlink(&mut drafts, last, true);
                }
                if let Some(target) = &target {
                    let mut other = target.draft(locked(&locks, target));
                    other.image.ctime.set(at);
                    new_entries.replace(&mut h, new_image, to.1, source.nid(), source.file_type())?;
                    if exchange {
                        old_entries.replace(&mut h, old_image, from.1, target.nid(), target.file_type())?;
                        if target.is_dir() && across {
                            other.image.parent.set(from.0);
                            nlink(&mut drafts, last, false);
                            nlink(&mut drafts, 0, true);
                        }
                    } else {
                        old_entries.remove(&mut h, old_image, from.1)?;
                        let names = if target.is_dir() { other.image.nlink.get() } else { 1 };
                        if target.is_dir() {
                            nlink(&mut drafts, last, false);
                        }
                        self.drop_name(&mut h, target, &mut other, names, at)?;
                    }
                    drafts.push((target, other));
                } else {
                    old_entries.remove(&mut h, old_image, from.1)?;
                    if new_entries.insert(&mut h, new_image, to.1, source.nid(), source.file_type())?
                        == Insertion::Full
                    {
                        drop(h);
                        drop(drafts);
                        drop(locks);
                        self.grow(&new_dir, to.1)?;
                        continue;
                    }
                }
                for (_, draft) in drafts.iter_mut().take(last + 1) {
                    draft.image.mtime.set(at);
                    draft.image.ctime.set(at);
                }
                drafts.push((&source, own));
                for (inode, draft) in &drafts {
                    self.meta.stage(&mut h, inode, &draft.image)?;
                }
                let end = h.commit()?;
                for (inode, draft) in &drafts {
                    inode.install(locked_mut(&mut locks, inode), draft);
                }
                drop(drafts);
                drop(locks);
                return Ok((target.clone().filter(|_| !exchange), end));
            }
        })?;
        if let Some(replaced) = replaced {
            self.reap(&replaced);
        }
        self.finish(end)
    }
}
