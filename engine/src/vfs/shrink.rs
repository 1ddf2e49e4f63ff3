//! Room of directories that names were removed from: see `dir::shrink`.

use super::*;
use crate::dir::{GROUP, Left, MOST_AT_ANY_TIME, SHRINK_SLOTS};
use crate::extent::edit_slots;
use crate::format::InodeFlags;
use std::time::{Duration, Instant};

/// What a removal may take for joining many buckets.
const PATIENCE: Duration = Duration::from_millis(20);

/// Whether a directory has been removed, and freed perhaps.
pub(super) fn is_removed(image: &Inode) -> bool {
    image.nid.get() == 0 || image.flags.get() & InodeFlags::DEAD.bits() != 0
}

impl Fs {
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
