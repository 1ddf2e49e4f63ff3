//! Absorption of pages of several files into one record: a batch's.

use crate::Result;
use crate::file::sync::data_journal::{Absorbing, DataJournal};
use crate::file::sync::sectors::Sectors;
use crate::file::writeback::key_of;
use crate::format::Position;
use crate::inode::InodeObj;
use crate::meta::Change;
use crate::pages::PAGES_END;
use crate::planted::{self, Bug, Spot};
use crate::store::Handle;
use crate::sync::Arc;

/// Dirty pages of one file.
pub(in crate::file) struct Joint<'p> {
    pub inode: &'p Arc<InodeObj>,
    /// In ascending order. Where sectors are named, the others of the page are durable, or in records, as they are.
    pub pages: Vec<(u64, Option<Sectors>)>,
    /// Where the file ends with them, if that is beyond where it ends now.
    pub grown: Option<u64>,
    /// It was truncated to nothing, and what it held goes with this record.
    pub emptied: bool,
}

impl Joint<'_> {
    fn sectors(&self, page: u64) -> Option<Sectors> {
        let at = self.pages.binary_search_by_key(&page, |(page, _)| *page).ok()?;
        self.pages[at].1
    }
}

impl DataJournal {
    /// Logs these pages, and no others, in one record. The caller has the ranges and the write-back mutexes of the files,
    /// which come in ascending order of their nids, and credits for all of it. If it fails, the pages are dirty.
    pub fn log_several(&self, handle: Handle<'_>, files: Vec<Joint<'_>>) -> Result<Position> {
        let (mut absorbing, mut taken, mut changes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut outcome, mut stale) = (Ok(()), false);
        for file in &files {
            let Joint { inode, pages, grown, emptied } = file;
            let data = inode.data();
            let logging = data.pages.begin_logging_of(pages.iter().map(|(page, _)| *page));
            // Before the record is logged, as for an fsync.
            self.files.lock().insert(inode.nid(), Arc::clone(inode));
            let (mut of_file, mut change) = (Vec::new(), Change::default());
            let size = data.size().max(grown.unwrap_or(0));
            let (changed, all) = (|page| file.sectors(page), (usize::MAX, usize::MAX));
            outcome =
                self.take_in(inode, &logging, changed, (size, all), &mut of_file, &mut change).map(drop);
            change.size = grown.filter(|size| *size != data.logged_size());
            stale |= !change.supersede.is_empty();
            if *emptied {
                // As of the record of an emptied file by itself: nothing of the new content is anywhere else.
                change.remove = Some(0..PAGES_END);
                change.supersede.push(key_of(inode.as_ref(), 0, u64::MAX));
            }
            absorbing.push(Absorbing { journal: self, inode, pages: logging });
            taken.push(of_file);
            changes.push((inode.as_ref(), change));
            if outcome.is_err() {
                break;
            }
        }
        planted::panic_at(Spot::Taken);
        let logged = outcome.and_then(|()| {
            if stale && !planted::is(Bug::SupersedeBeforeFlush) {
                let last = files.iter().map(|file| file.inode.data().last_write()).max();
                self.meta.order_after(last.unwrap_or(0))?;
            }
            self.meta.log_several(handle, changes)
        });
        match logged {
            Ok(end) => {
                for file in &mut absorbing {
                    file.inode.data().pages.batched(end);
                    file.pages.record_logged(end);
                }
                planted::panic_at(Spot::Absorbed);
                for ((file, taken), Joint { inode, grown, emptied, .. }) in
                    absorbing.into_iter().zip(taken).zip(&files)
                {
                    file.landed(taken, end, grown.unwrap_or(inode.data().logged_size()), *emptied);
                }
            }
            Err(_) => {
                for (mut file, taken) in absorbing.into_iter().zip(taken) {
                    file.failed(taken);
                }
            }
        }
        logged
    }
}
