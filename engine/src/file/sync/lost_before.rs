//! What a failed flush of an earlier server may have lost: who syncs a file first is told.

use crate::format::Nid;
use crate::inode::InodeObj;
use crate::sync::Mutex;
use crate::takeover::Takeover;
use std::collections::BTreeSet;

/// Files that nobody has to be told of any more: that were made here, or whose first sync here was told.
#[derive(Debug, Default)]
pub(in crate::file) struct LostBefore(Mutex<BTreeSet<(Nid, u32)>>);

impl LostBefore {
    /// None where no flush had failed before this server came.
    pub fn of(takeover: Option<&Takeover>) -> Option<LostBefore> {
        takeover.filter(|memory| memory.has_lost_flushes()).map(|_| LostBefore::default())
    }

    /// Whether the file may have lost something, and this is the first sync of it.
    pub fn is_to_be_told(&self, inode: &InodeObj) -> bool {
        self.0.lock().insert((inode.nid(), inode.generation())) && !inode.is_made_here()
    }
}
