//! The old content of files that are truncated to nothing: copied before, and written in place by the checkpoint that is
//! to pass its records.

use crate::Result;
use crate::cache::Use;
use crate::device::{BLOCK_SIZE, Cause, IoBuf, Op, Request};
use crate::file::sync::data_journal::DataJournal;
use crate::format::Position;
use crate::inode::InodeObj;
use crate::meta::Mapping;
use crate::pages::{OldContent, OldPage};
use crate::planted::{self, Bug};
use crate::sync::Arc;

impl DataJournal {
    /// Copies what live records alone hold of a file that is about to be emptied; false if that is too much. The caller
    /// has the file to himself, and its write-back mutex.
    pub fn keep_old_content(&self, inode: &Arc<InodeObj>) -> Result<bool> {
        let data = inode.data();
        let held = data.pages.only_in_records();
        if held.is_empty() {
            return Ok(true);
        }
        let Some(share) = self.old_content.share(held.len()) else { return Ok(false) };
        let mut pages = Vec::with_capacity(held.len());
        for (page, first) in held {
            let found = data.index.get(page).and_then(|slot| self.pool.find(slot, Use::No));
            let Some(found) = found else { return Ok(false) };
            let Mapping::Mapped { block, unwritten: false, .. } = self.meta.map(inode, page)? else {
                return Ok(false);
            };
            let mut bytes = vec![0; BLOCK_SIZE].into_boxed_slice();
            found.latch().copy(0, &mut bytes);
            pages.push(OldPage { block, first, bytes });
        }
        data.pages.keep_old(OldContent::new(pages, share));
        Ok(true)
    }

    /// Writes what is kept, and lies in records up to `upto`, to its old place.
    pub fn write_kept(&self, inode: &Arc<InodeObj>, upto: Position) -> Result<()> {
        let data = inode.data();
        let _guard = data.write_back.lock();
        let requests = data.pages.old_below(upto, |page| Request {
            op: Op::Write,
            block: page.block,
            buf: IoBuf::from_slice(&page.bytes),
            cause: Cause::DataWriteBack,
        });
        if requests.is_empty() {
            return Ok(());
        }
        let count = requests.len() as u64;
        // It may be younger than an fsync that was answered already, and than a batch that nobody waits for.
        let kept = if planted::is(Bug::HomeBeforePromised) {
            Ok(())
        } else {
            self.meta.store().keep_promises_briefly(data.pages.batched_upto())
        };
        let written = kept.and_then(|()| self.meta.store().device().run(requests).map(drop));
        data.wrote(self.meta.store().device().writes_completed());
        if written.is_err() {
            self.write_back.note_failure(data);
            return written;
        }
        self.write_back.note_written(count);
        data.pages.old_in_place(upto);
        Ok(())
    }
}
