//! What the journal holds of files' data goes home before the ring's head passes it.

use crate::Result;
use crate::file::data_path::{DataPath, PAGES_END};
use crate::file::writeback::Order;
use crate::file::{DataInode, Home};
use crate::format::Position;
use crate::planted::{self, Bug};
use crate::sync::Arc;

impl<H: Home> DataPath<H> {
    /// What of a file only records below `upto` hold.
    fn still_absorbed(&self, inode: &H::Inode, upto: Position) -> Absorbed {
        let head = self.home.head();
        let mut absorbed = self.absorbed.lock();
        let mut state = inode.data().state.lock();
        let state = &mut *state;
        state.live.retain(|_, live| live.last > head);
        state.stale.retain(|page| state.live.contains_key(page));
        if state.live.is_empty() && state.synced.is_empty() && state.kept.is_empty() && !state.absorbing {
            absorbed.remove(&inode.nid());
        }
        if state.kept.is_below(upto) && !planted::is(Bug::HeadPassesKept) {
            return Absorbed::Kept;
        }
        let mut pages = state.live.iter().filter(|(_, live)| live.first <= upto).map(|(page, _)| page);
        if pages.clone().any(|page| state.synced.contains(page) || state.dirty.contains(page)) {
            Absorbed::Cached
        } else if state.absorbing || pages.next().is_some() {
            Absorbed::InHands
        } else {
            Absorbed::No
        }
    }

    /// Before the ring's head passes `upto`: what is absorbed below it goes home; the flush is the round's. Takes no
    /// credits and no range.
    pub fn pre_checkpoint(&self, upto: Position) -> Result<()> {
        if planted::is(Bug::HeadPassesAbsorbed) {
            return Ok(());
        }
        let mut files: Vec<_> = self.absorbed.lock().values().cloned().collect();
        let mut waiting = Vec::new();
        // What has nothing here now has nothing later: what is absorbed from now on lies beyond.
        files.retain(|inode| match self.still_absorbed(inode, upto) {
            Absorbed::No => false,
            Absorbed::Cached => {
                waiting.push(Arc::clone(inode));
                true
            }
            Absorbed::Kept | Absorbed::InHands => true,
        });
        self.write_side_by_side(&waiting, Order::LIVE);
        for inode in &files {
            let data = inode.data();
            loop {
                match self.still_absorbed(inode, upto) {
                    Absorbed::No => break,
                    Absorbed::Cached => self.write_pages(inode, 0..PAGES_END, Order::LIVE)?,
                    Absorbed::Kept => self.write_kept(inode, upto)?,
                    // Should their write fail, they are dirty again: look once more.
                    Absorbed::InHands => drop(data.write_back.lock()),
                }
            }
        }
        self.unlist_written(&files);
        Ok(())
    }
}

/// Where bytes are that only records below the head's new place hold.
enum Absorbed {
    /// Nowhere: all are home.
    No,
    /// In dirty or absorbed pages.
    Cached,
    /// In what is kept of the old content of an emptied file.
    Kept,
    /// In the hands of the holder of the write-back mutex.
    InHands,
}
