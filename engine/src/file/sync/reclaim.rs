//! What the journal holds of files' data goes home before the ring's head passes it.

use crate::Result;
use crate::file::sync::data_journal::{DataJournal, take_out};
use crate::file::writeback::Order;
use crate::format::Position;
use crate::inode::InodeObj;
use crate::pages::Below;
use crate::pages::PAGES_END;
use crate::planted::{self, Bug};
use crate::sync::Arc;

impl DataJournal {
    /// What of a file only records below `upto` hold.
    pub(in crate::file) fn still_logged(&self, inode: &Arc<InodeObj>, upto: Position) -> Below {
        let store = self.meta.store();
        let head = store.journal().map_or_else(|| store.tail(), |journal| journal.head());
        let mut files = self.files.lock();
        let (below, has_none) = inode.data().pages.look_below(head, upto);
        if has_none {
            take_out(&mut files, inode);
        }
        below
    }

    /// Before the ring's head passes `upto`: what is absorbed below it goes home; the flush is the round's. Takes no
    /// credits and no range.
    pub fn pre_checkpoint(&self, upto: Position) -> Result<()> {
        if planted::is(Bug::HeadPassesAbsorbed) {
            return Ok(());
        }
        let mut files = self.files();
        let mut waiting = Vec::new();
        // What has nothing here now has nothing later: what is absorbed from now on lies beyond.
        files.retain(|inode| match self.still_logged(inode, upto) {
            Below::Nothing => false,
            Below::Cached => {
                waiting.push(Arc::clone(inode));
                true
            }
            Below::Old | Below::Underway => true,
        });
        self.write_back.write_side_by_side(&waiting, Order::RECORDED);
        for inode in &files {
            let data = inode.data();
            loop {
                match self.still_logged(inode, upto) {
                    Below::Nothing => break,
                    Below::Cached => self.write_back.write_pages(inode, 0..PAGES_END, Order::RECORDED)?,
                    Below::Old => self.write_kept(inode, upto)?,
                    // Should their write fail, they are dirty again: look once more.
                    Below::Underway => drop(data.write_back.lock()),
                }
            }
        }
        self.write_back.queue().remove_written(&files);
        Ok(())
    }
}
