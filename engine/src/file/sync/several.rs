//! Absorption of pages of several files into one record: a batch's.

use crate::Result;
use crate::file::sync::data_journal::{Absorbing, DataJournal};
use crate::format::Position;
use crate::inode::InodeObj;
use crate::meta::Change;
use crate::planted::{self, Bug, Spot};
use crate::store::Handle;
use crate::sync::Arc;

/// Dirty pages of one file, and the size that comes with them.
pub(in crate::file) struct Joint<'p> {
    pub inode: &'p Arc<InodeObj>,
    pub pages: Vec<u64>,
    pub size: u64,
}

impl DataJournal {
    /// Logs these pages, and no others, in one record. The caller has the ranges and the write-back mutexes of the files,
    /// which come in ascending order of their nids, and credits for all of it. If it fails, the pages are dirty.
    pub fn log_several(&self, handle: Handle<'_>, files: Vec<Joint<'_>>) -> Result<Position> {
        let (mut absorbing, mut taken, mut changes) = (Vec::new(), Vec::new(), Vec::new());
        let mut outcome = Ok(());
        for Joint { inode, pages, size } in &files {
            let data = inode.data();
            let logging = data.pages.begin_logging_of(pages);
            // Before the record is logged, as for an fsync.
            self.files.lock().insert(inode.nid(), Arc::clone(inode));
            let (mut of_file, mut change) = (Vec::new(), Change::default());
            let all = (usize::MAX, usize::MAX);
            outcome = self.take_in(inode, &logging, *size, all, &mut of_file, &mut change).map(drop);
            change.size = (*size != data.logged_size()).then_some(*size);
            absorbing.push(Absorbing { journal: self, inode, pages: logging });
            taken.push(of_file);
            changes.push((inode.as_ref(), change));
            if outcome.is_err() {
                break;
            }
        }
        planted::panic_at(Spot::Taken);
        let logged = outcome.and_then(|()| {
            let stale = changes.iter().any(|(_, change)| !change.supersede.is_empty());
            if stale && !planted::is(Bug::SupersedeBeforeFlush) {
                let last = files.iter().map(|file| file.inode.data().last_write()).max();
                self.meta.order_after(last.unwrap_or(0))?;
            }
            self.meta.log_several(handle, changes)
        });
        match logged {
            Ok(end) => {
                absorbing.iter_mut().for_each(|file| file.pages.record_logged(end));
                planted::panic_at(Spot::Absorbed);
                for ((file, taken), Joint { size, .. }) in absorbing.into_iter().zip(taken).zip(&files) {
                    file.landed(taken, end, *size, false);
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
