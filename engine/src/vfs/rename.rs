//! Renaming.

use super::dir_room::is_freed;
use super::*;
use crate::acl;
use crate::dir::{self, ENTRY_SLOTS, Insertion, Left};
use crate::format::InodeFlags;
use crate::inode::{Draft, InodeObj};
use crate::lock::{Access, BucketGuard, InodeReadGuard, StripeSet, Want};
use crate::sync::Arc;
use crate::takeover::requests;

pub(super) const RENAME_SLOTS: u32 = 3 * ENTRY_SLOTS + 20;

/// A directory held for changes of some of its names.
struct Entered<'a> {
    image: InodeReadGuard<'a, Inode>,
    _buckets: BucketGuard<'a>,
}

impl Vfs {
    /// Holds a directory shared, and the buckets of some names alone.
    fn enter<'a>(&self, dir: &'a InodeObj, names: &[&[u8]]) -> Entered<'a> {
        let image = dir.lock.read();
        let entries = self.meta.dir(dir);
        let set = names
            .iter()
            .fold(StripeSet::default(), |set, name| set.and(u64::from(entries.bucket_of(&image, name))));
        Entered { _buckets: dir.bucket_locks().lock(set, Access::Write), image }
    }

    /// The usual rename: a file gets a name that nothing has. It takes the directories shared and two buckets, and
    /// looks each name up once, under these locks. None, and nothing has happened, if it is not that simple, or if
    /// somebody has the file's lock, which may come before those in the order of locks.
    fn move_file(
        &self,
        ctx: &Context,
        (old_dir, from): (&Arc<InodeObj>, &[u8]),
        (new_dir, to): (&Arc<InodeObj>, &[u8]),
    ) -> Result<Option<(Left, Position)>> {
        let across = old_dir.nid() != new_dir.nid();
        if !old_dir.is_dir() || !new_dir.is_dir() || !across && from == to {
            return Ok(None);
        }
        loop {
            let mut h = self.meta.begin(RENAME_SLOTS)?;
            let (old, new) = match old_dir.nid().cmp(&new_dir.nid()) {
                std::cmp::Ordering::Equal => (self.enter(old_dir, &[from, to]), None),
                std::cmp::Ordering::Less => {
                    let old = self.enter(old_dir, &[from]);
                    (old, Some(self.enter(new_dir, &[to])))
                }
                std::cmp::Ordering::Greater => {
                    let new = self.enter(new_dir, &[to]);
                    (self.enter(old_dir, &[from]), Some(new))
                }
            };
            let (old_image, new_image) = (&*old.image, new.as_ref().map_or(&*old.image, |new| &*new.image));
            if self.may_search(ctx, old_dir, old_image).is_err()
                || self.may_search(ctx, new_dir, new_image).is_err()
            {
                return Ok(None);
            }
            let (old_entries, new_entries) = (self.meta.dir(old_dir), self.meta.dir(new_dir));
            let Some(found) = old_entries.locate(None, old_image, from)? else { return Ok(None) };
            let file_type = found.hit().file_type;
            if file_type == FileType::Directory {
                return Ok(None);
            }
            let source = self.meta.named(found.hit().nid)?;
            let Some(mut own) = (!source.is_dir()).then(|| source.lock.try_write()).flatten() else {
                return Ok(None);
            };
            // First, so that the room of the old name is seen by any thread that looks for room for the new one.
            let left = old_entries.take(&mut h, &found)?;
            let Ok(vacancy) = new_entries.vacancy(Some(&h), new_image, to)? else { return Ok(None) };
            self.may_change_entries(ctx, old_dir, old_image)?;
            self.may_change_entries(ctx, new_dir, new_image)?;
            self.check_sticky(ctx, old_image, &own)?;
            if new_entries.fill_vacancy(&mut h, vacancy, to, source.nid(), source.file_type())?
                == Insertion::Full
            {
                drop((h, own, old, new));
                self.grow(new_dir, to)?;
                continue;
            }
            let at = now();
            let mut draft = source.draft(&own);
            draft.image.ctime.set(at);
            self.meta.stage(&mut h, &source, &draft.image)?;
            self.meta.stage_dir_time(&mut h, old_dir, at)?;
            if across {
                self.meta.stage_dir_time(&mut h, new_dir, at)?;
            }
            requests::decides(0);
            let (end, _carrying) = self.meta.commit(h)?;
            self.forget_name(old_dir, from);
            old_dir.show_content_time(at);
            if across {
                new_dir.show_content_time(at);
            }
            source.install(&mut own, &draft);
            return Ok(Some((left, end)));
        }
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

    /// Has the content of a file that is to replace another recorded before, in the journal or in place. It is opened
    /// for that: a file that loses its name meanwhile is freed afterwards. False: it is gone, and the name leads
    /// elsewhere by now, or nowhere.
    pub(super) fn log_content_held(&self, source: &Arc<InodeObj>) -> Result<bool> {
        if !source.holds.open() {
            return Ok(false);
        }
        let logged = self.data.settle_for_rename(source);
        self.leave_inode(source);
        logged.map(|()| true)
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
        self.rename_at(ctx, (&self.reach(parent)?, name), (&self.reach(new_parent)?, new_name), flags)
    }

    /// As [`Vfs::rename`], in directories that a walk has reached.
    #[expect(clippy::too_many_lines, reason = "one operation, step by step")]
    pub fn rename_at(
        &self,
        ctx: &Context,
        from: (&InodeRef, &[u8]),
        to: (&InodeRef, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let no_replace = flags.contains(RenameFlags::NO_REPLACE);
        let needs_dir = flags.contains(RenameFlags::DIRECTORY);
        let needs_target_dir = flags.contains(RenameFlags::TARGET_DIRECTORY);
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
        let (old_dir, new_dir) = (&from.0.0, &to.0.0);
        let across = old_dir.nid() != new_dir.nid();
        let moved = self.alloc_room(|| {
            loop {
                if !exchange
                    && !needs_dir
                    && let Some((left, end)) = self.move_file(ctx, (old_dir, from.1), (new_dir, to.1))?
                {
                    return Ok(Some((None, left, end)));
                }
                let source = self.guess(ctx, old_dir, from.1)?.ok_or(Error::Errno(libc::ENOENT))?;
                let target = self.guess(ctx, new_dir, to.1)?;
                // Before any credits, for it takes its own. If under the locks the names lead elsewhere, all begins
                // again: what replaces another file is always one whose earlier content is down, or in the journal.
                let replaces = target.as_ref().is_some_and(|target| target.nid() != source.nid());
                let waits = replaces && !exchange && !no_replace && source.file_type() == FileType::Regular;
                if waits && !across && !self.log_content_held(&source)? {
                    continue;
                }
                let mut h = self.meta.begin(RENAME_SLOTS)?;
                let mut moving = across.then(|| self.directory_move.lock());
                // Told under the locks, if then both names still lead there: they were looked up one after the
                // other, and one may have led nowhere when the other came.
                let mut refusal = match &target {
                    Some(_) if no_replace => Some(libc::EEXIST),
                    None if exchange => Some(libc::ENOENT),
                    Some(target) if needs_target_dir && !target.is_dir() => Some(libc::ENOTDIR),
                    _ if needs_dir && !source.is_dir() => Some(libc::ENOTDIR),
                    _ => None,
                };
                if across && refusal.is_none() {
                    let below =
                        |inner, outer: &InodeObj| Ok(outer.is_dir() && self.is_below(inner, outer.nid())?);
                    if below(new_dir, &source)? {
                        refusal = Some(libc::EINVAL);
                    } else if let Some(target) = &target
                        && below(old_dir, target)?
                    {
                        refusal = Some(if exchange { libc::EINVAL } else { libc::ENOTEMPTY });
                    }
                }
                if !source.is_dir() && !target.as_ref().is_some_and(|target| exchange && target.is_dir()) {
                    moving = None;
                    if waits && across {
                        // It takes credits of its own.
                        drop(h);
                        if !self.log_content_held(&source)? {
                            continue;
                        }
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
                let (old_image, new_image) = (locked(&locks, old_dir), locked(&locks, new_dir));
                let (old_entries, new_entries) = (self.meta.dir(old_dir), self.meta.dir(new_dir));
                let there = |found: Option<dir::Hit>| found.map(|hit| hit.nid);
                if there(old_entries.lookup(None, old_image, from.1)?) != Some(source.nid())
                    || there(new_entries.lookup(None, new_image, to.1)?) != target.as_ref().map(|t| t.nid())
                    || is_freed(&source, locked(&locks, &source))?
                    || is_freed(fourth, locked(&locks, fourth))?
                {
                    continue;
                }
                if let Some(errno) = refusal {
                    return Err(Error::Errno(errno));
                }
                self.may_change_entries(ctx, old_dir, old_image)?;
                self.may_change_entries(ctx, new_dir, new_image)?;
                self.check_sticky(ctx, old_image, locked(&locks, &source))?;
                if let Some(target) = &target {
                    self.check_sticky(ctx, new_image, locked(&locks, target))?;
                    if target.nid() == source.nid() {
                        return Ok(None);
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
                let mut left = Left::Much;
                let at = now();
                let mut drafts: Vec<(&Arc<InodeObj>, Draft)> = vec![(old_dir, old_dir.draft(old_image))];
                if across {
                    drafts.push((new_dir, new_dir.draft(new_image)));
                }
                let last = drafts.len() - 1;
                let nlink = |drafts: &mut Vec<(&Arc<InodeObj>, Draft)>, which: usize, up: bool| {
                    let n = &mut drafts[which].1.image.nlink;
                    n.set(if up { n.get() + 1 } else { n.get().saturating_sub(1) });
                };
                let mut own = source.draft(locked(&locks, &source));
                own.image.ctime.set(at);
                if source.is_dir() && across {
                    own.image.parent.set(new_dir.nid());
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
                            other.image.parent.set(old_dir.nid());
                            nlink(&mut drafts, last, false);
                            nlink(&mut drafts, 0, true);
                        }
                    } else {
                        left = old_entries.remove(&mut h, old_image, from.1)?;
                        let names = if target.is_dir() { other.image.nlink.get() } else { 1 };
                        if target.is_dir() {
                            nlink(&mut drafts, last, false);
                        }
                        self.drop_name(&mut h, target, &mut other, names, at)?;
                    }
                    drafts.push((target, other));
                } else {
                    left = old_entries.remove(&mut h, old_image, from.1)?;
                    if new_entries.insert(&mut h, new_image, to.1, source.nid(), source.file_type())?
                        == Insertion::Full
                    {
                        drop(h);
                        drop(drafts);
                        drop(locks);
                        drop(moving);
                        self.grow(new_dir, to.1)?;
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
                requests::decides(0);
                let (end, carrying) = self.meta.commit(h)?;
                self.forget_name(old_dir, from.1);
                self.forget_name(new_dir, to.1);
                for (inode, draft) in &drafts {
                    inode.install(locked_mut(&mut locks, inode), draft);
                }
                drop(carrying);
                drop(drafts);
                drop(locks);
                return Ok(Some((target.clone().filter(|_| !exchange), left, end)));
            }
        })?;
        // Two names of one inode stay as they are.
        let Some((replaced, left, end)) = moved else { return Ok(()) };
        self.tell_moved(ctx, (old_dir.nid(), from.1), (new_dir.nid(), to.1));
        if let Some(replaced) = replaced {
            self.tell(ctx, Changed::Attributes { nid: replaced.nid() });
            self.reap(&replaced);
        }
        self.shrink(old_dir, left);
        self.finish(end)
    }
}
