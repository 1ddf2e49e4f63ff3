//! One record about several files.
//!
//! What this leaves to others: what the files' changes are, and the ranges and write-back mutexes under which they are
//! logged (`file::batch`).

use super::log::{Edited, INODE_SLOTS};
use super::{Change, Meta, Need};
use crate::Result;
use crate::format::Position;
use crate::inode::InodeObj;
use crate::store::Handle;

impl Meta {
    /// Slots that one record with all of these takes at the most; none if no record may have so many.
    pub fn slots_of_several<'i>(&self, needs: impl IntoIterator<Item = (&'i InodeObj, Need)>) -> Option<u32> {
        let slots = needs
            .into_iter()
            .fold(INODE_SLOTS, |sum, (inode, need)| sum.saturating_add(self.slots_of(inode, &need).0));
        (self.allowed(slots) == slots).then_some(slots)
    }

    /// Records changes of several files, in ascending order of their nids, within the credits of the handle: all happen, or
    /// none. Takes the inode locks exclusively. What one removes is all that its file has, at once ([`Need::dropped`]).
    /// Volatile blocks are as with [`Meta::log`].
    pub(crate) fn log_several(
        &self,
        mut h: Handle<'_>,
        changes: Vec<(&InodeObj, Change)>,
    ) -> Result<Position> {
        let mut edited = Vec::with_capacity(changes.len());
        for (inode, change) in changes {
            let image = inode.lock.write();
            let drops_all = change.remove.is_some();
            let Edited { draft, picked, .. } = self.edit_as(&mut h, inode, &image, change, drops_all)?;
            edited.push((inode, image, draft, picked));
        }
        let (end, installing) = self.commit(h)?;
        let mut images = Vec::with_capacity(edited.len());
        for (inode, mut image, draft, picked) in edited {
            picked.belong_to_file();
            inode.install(&mut image, &draft);
            images.push(image);
        }
        drop(installing);
        drop(images);
        self.trim_reserved();
        Ok(end)
    }
}
