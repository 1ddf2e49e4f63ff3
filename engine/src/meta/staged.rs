//! The commit of a large batch, and the moves of its pages from the staging file into the files that they are for.
//!
//! What this leaves to others: the ranges of all these files, which the caller has from before the commit to the end of
//! the moves; what is cached of them (`file::batch`); and the manifest.

use super::Meta;
use super::log::INODE_SLOTS;
use crate::error::{Error, Result};
use crate::extent::{self, Root};
use crate::format::{BatchRun, DataKey, Incompat, Intent, Position};
use crate::inode::InodeObj;
use crate::superblock;

impl Meta {
    /// Has the image say that it may hold what a build without batches would take for damage.
    pub(crate) fn note_batches(&self) -> Result<()> {
        let mut on_media = self.store.superblock_on_media();
        if on_media.incompat.get() & Incompat::BATCHES.bits() != 0 {
            return Ok(());
        }
        self.store.check_writable()?;
        let mut sb = *on_media;
        sb.incompat.set(sb.incompat.get() | Incompat::BATCHES.bits());
        // Both copies: the loss of one is not to bring back a superblock without it.
        superblock::write(self.store.device().as_ref(), &mut sb)?;
        superblock::write(self.store.device().as_ref(), &mut sb)?;
        *on_media = sb;
        Ok(())
    }

    /// Logs the commit of a batch: from this record on it counts. The manifest: its first byte in the staging file, and
    /// its length.
    pub(crate) fn log_batch(&self, staging: &InodeObj, manifest: [u64; 2]) -> Result<Position> {
        let mut h = self.begin(INODE_SLOTS)?;
        let _image = staging.lock.write();
        self.space.begin_intent(&mut h, staging.nid(), staging.generation(), Intent::Batch, manifest)?;
        h.commit()
    }

    /// All is moved.
    pub(crate) fn end_batch(&self, staging: &InodeObj) -> Result<()> {
        let mut h = self.begin_rest(INODE_SLOTS)?;
        let _image = staging.lock.write();
        self.space.end_intent(&mut h, staging.nid(), Intent::Batch)?;
        h.commit().map(drop)
    }

    /// Moves a run into its file, `moved` pages of which are there already; `before` pages lie in the runs before. What
    /// the journal has of these pages counts no more if `key` names it.
    pub(crate) fn move_run(
        &self,
        staging: &InodeObj,
        target: &InodeObj,
        run: &BatchRun,
        (before, mut moved): (u64, u64),
        key: Option<DataKey>,
    ) -> Result<()> {
        let pages = u64::from(run.pages.get());
        while moved < pages {
            let slots = self.step_slots(staging).saturating_add(4 * self.step_slots(target));
            let mut h = self.begin_rest(slots)?;
            let (mut of_staging, mut of_target);
            if staging.nid() < target.nid() {
                of_staging = staging.lock.write();
                of_target = target.lock.write();
            } else {
                of_target = target.lock.write();
                of_staging = staging.lock.write();
            }
            let (mut from, mut to) = (staging.draft(&of_staging), target.draft(&of_target));
            let (mut source, mut sink) = (Root::load(&from.image)?, Root::load(&to.image)?);
            let (at, put) = (run.source.get() + moved, run.target.get() + moved);
            let lies = extent::lookup(&*self.store, &source, page_number(at)?)?;
            let extent::Mapping::Mapped { block, len, unwritten: false } = lies else {
                return Err(Error::Corrupt {
                    what: "batch",
                    place: format!("nid {}", staging.nid()),
                    detail: format!("page {at} of what is to be moved is not there"),
                });
            };
            let len = u64::from(len).min(pages - moved);
            let freed = extent::remove(&mut h, &self.alloc, &mut sink, put..put + len, self.step())?;
            if freed.done {
                extent::take(&mut h, &self.alloc, &mut source, at, len as u32)?;
                let extent = crate::alloc::Extent { start: block, len: len as u32 };
                extent::insert(&mut h, &self.alloc, &mut sink, page_number(put)?, extent, false, None)?;
                moved += len;
                to.image.size.set(to.image.size.get().max(run.size.get()));
            }
            self.space.note_progress(&mut h, staging.nid(), Intent::Batch, before + moved)?;
            source.store(&mut from.image);
            sink.store(&mut to.image);
            self.stage(&mut h, staging, &from.image)?;
            self.stage(&mut h, target, &to.image)?;
            if let Some(key) = key {
                h.supersede(key);
            }
            let (_, installing) = self.commit(h)?;
            staging.install(&mut of_staging, &from);
            target.install(&mut of_target, &to);
            drop(installing);
        }
        Ok(())
    }
}

fn page_number(page: u64) -> Result<u32> {
    u32::try_from(page).map_err(|_| Error::Errno(libc::EFBIG))
}
