//! The room that a directory has for names: made before one is put there (`dir::grow`), given back after names were
//! removed (`dir::shrink`).

use super::*;
use crate::dir::{self, GROUP, Left, MOST_AT_ANY_TIME, SHRINK_SLOTS};
use crate::extent::edit_slots;
use crate::format::InodeFlags;
use crate::lock::{Access, StripeSet};
use std::time::{Duration, Instant};

/// What a removal may take for joining many buckets.
const PATIENCE: Duration = Duration::from_millis(20);

/// Whether a directory has been removed, and freed perhaps.
pub(super) fn is_removed(image: &Inode) -> bool {
    image.nid.get() == 0 || image.flags.get() & InodeFlags::DEAD.bits() != 0
}

/// Whether the inode that a name leads to was freed, and is another's by now: who looked it up looks again.
///
/// # Errors
/// [`Error::Corrupt`] if it is there and says that it is removed.
pub(super) fn is_freed(inode: &InodeObj, image: &Inode) -> Result<bool> {
    let is_freed = image.nid.get() == 0;
    if !is_freed && is_removed(image) {
        return Err(Error::Corrupt {
            what: "inode",
            place: format!("inode {}", inode.nid()),
            detail: "it says that it is removed, and has a name".into(),
        });
    }
    Ok(is_freed)
}

impl Vfs {
    /// Gives the bucket of a name room, unless it has room by now, or the directory has been removed: a thread that
    /// wants to put the name there looks again.
    pub(super) fn grow(&self, dir: &Arc<InodeObj>, name: &[u8]) -> Result<()> {
        // Credits for many splits are a large part of a small ring: one at a time takes them, and the next finds
        // room, as a rule.
        let _turn = dir.bucket_locks().growth().lock();
        let (mut may_split, mut most_splits) = (true, u32::MAX);
        loop {
            let Some((depth, chain, count)) = self.split_ahead(dir, name)? else { return Ok(()) };
            let count = count.min(most_splits);
            let edit = edit_slots(depth, count);
            let allowed = |slots| self.meta.allowed(slots) == slots;
            let fits = |chain: &u32| allowed(dir::split_slots(*chain) + edit);
            let usual = [2 * count, dir::USUAL_CHAINS].map(|usual| usual.max(chain));
            let mut lengths = usual.into_iter().chain([dir::USUAL_CHAINS]);
            let longest = lengths.find(fits).filter(|_| may_split);
            let own = longest.map_or(dir::OVERFLOW_SLOTS, dir::split_slots);
            // When its turn comes the tree may be higher. A ring smaller than mkfs makes one may divide none.
            let later = edit_slots(depth.saturating_add(1), 1);
            let can_be_split = |chain: &u32| allowed(dir::split_slots(*chain) + later);
            let chains = 1..=dir::MAX_CHAIN as u32;
            let longest_chain = chains.rev().find(can_be_split).unwrap_or(dir::MAX_CHAIN as u32);
            let mut h = self.meta.begin(own + edit)?;
            let mut image = dir.lock.write();
            if is_removed(&image) {
                return Ok(());
            }
            let mut draft = dir.draft(&image);
            // It may have grown since, and would split more at once: not beyond the credits.
            let most = dir::Splits { count, blocks: longest.unwrap_or(0), longest: longest_chain };
            match self.meta.dir(dir).grow(&mut h, &mut draft.image, name, most) {
                // Several splits want a block each, of which there may be one or two.
                Err(Error::Errno(libc::ENOSPC)) if longest.is_some() && count > 1 => most_splits = 1,
                Err(Error::Errno(libc::ENOSPC)) if longest.is_some() => may_split = false,
                Err(e) => return Err(e),
                Ok(false) => return Ok(()),
                Ok(true) => {
                    self.meta.stage(&mut h, dir, &draft.image)?;
                    let _carrying = self.meta.commit(h)?;
                    dir.install(&mut image, &draft);
                    return Ok(());
                }
            }
        }
    }

    /// What the credits for a split follow from: the height of the directory's tree, the length of the chain whose turn
    /// it is, and how many splits there may be. If another chain has come to its turn when the directory is locked, it
    /// may be too long. None: the name has room by now, or is there, or there is no directory any more.
    fn split_ahead(&self, dir: &InodeObj, name: &[u8]) -> Result<Option<(u8, u32, u32)>> {
        let image = dir.lock.read();
        if is_removed(&image) {
            return Ok(None);
        }
        let entries = self.meta.dir(dir);
        let count = dir::most_splits(image.buckets.get());
        let of = |bucket| StripeSet::of(u64::from(bucket));
        let next = entries.next_to_split(&image);
        let both = of(entries.bucket_of(&image, name)).union(next.map_or_else(StripeSet::default, of));
        let _buckets = dir.bucket_locks().lock(both, Access::Read);
        if !entries.vacancy(None, &image, name)?.is_ok_and(|vacancy| vacancy.grows()) {
            return Ok(None);
        }
        let chain = next.map(|bucket| entries.chain(None, &image, bucket)).transpose()?;
        Ok(Some((image.extent_depth, chain.map_or(0, |chain| chain.len() as u32), count)))
    }

    /// Gives room of a directory back, as far as a removal is to do so that has left so much in its block. Nothing is
    /// locked. What was asked for is done: what fails here is left for another time.
    pub(super) fn shrink(&self, dir: &InodeObj, left: Left) {
        if left == Left::Much {
            return;
        }
        let buckets = dir.lock.read().buckets.get();
        let begun = Instant::now();
        for n in 0..left.groups(buckets) {
            if n >= MOST_AT_ANY_TIME && begun.elapsed() > PATIENCE {
                return;
            }
            match self.join_buckets(dir) {
                Ok(true) => {}
                Ok(false) => return,
                Err(e) => {
                    tracing::debug!(nid = dir.nid(), "a directory stays as large as it is: {e}");
                    return;
                }
            }
        }
    }

    /// Joins a group of buckets, if there is a sparse one.
    fn join_buckets(&self, dir: &InodeObj) -> Result<bool> {
        let entries = self.meta.dir(dir);
        let depth = {
            let image = dir.lock.read();
            if is_removed(&image) || !entries.is_sparse(&image) {
                return Ok(false);
            }
            image.extent_depth
        };
        let mut h = self.meta.begin(SHRINK_SLOTS + edit_slots(depth, GROUP))?;
        let mut image = dir.lock.write();
        if is_removed(&image) {
            return Ok(false);
        }
        let mut draft = dir.draft(&image);
        if !entries.shrink(&mut h, &mut draft.image)? {
            return Ok(false);
        }
        self.meta.stage(&mut h, dir, &draft.image)?;
        let _carrying = self.meta.commit(h)?;
        dir.install(&mut image, &draft);
        Ok(true)
    }
}
