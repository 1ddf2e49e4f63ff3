//! What a failed flush of an earlier server may have lost: who syncs a file first is told.

use crate::inode::{InodeObj, InodeTable, NidSet};
use crate::sync::Arc;
use crate::takeover::Takeover;

/// Nids of which nobody has to be told any more: the first sync of the file here was told, or a file of that nid was made
/// here, so that whatever has the nid from then on was. That holds whatever has left memory meanwhile.
#[derive(Debug)]
pub(in crate::file) struct LostBefore(Arc<NidSet>);

impl LostBefore {
    /// None where no flush had failed before this server came. The table is one that nothing was made in yet.
    pub fn of(takeover: Option<&Takeover>, table: &InodeTable) -> Option<LostBefore> {
        takeover.filter(|memory| memory.has_lost_flushes()).map(|_| LostBefore(table.note_made()))
    }

    /// Whether the file may have lost something, and this is the first sync of it.
    pub fn is_to_be_told(&self, inode: &InodeObj) -> bool {
        !inode.is_made_here() && self.0.insert(inode.nid())
    }
}
