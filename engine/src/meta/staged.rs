//! The commit of a large batch, and the moves of its pages from the staging file into the files that they are for.
//!
//! What this leaves to others: the ranges of all these files, which the caller has from before the commit to the end of
//! the moves; what is cached of them (`file::batch`); and the manifest.

use super::log::INODE_SLOTS;
use super::{Mapping, Meta};
use crate::alloc::Reservation;
use crate::error::{Error, Result};
use crate::extent::{self, Root};
use crate::format::{BatchRun, DataKey, EXTENT_MAX_DEPTH, Incompat, Intent, Nid, OrphanEntry, Position};
use crate::inode::InodeObj;
use crate::superblock;
use crate::sync::Arc;
use std::collections::BTreeMap;

/// Entries at the least by which extent blocks of a file grow in number by one, behind the first of each height: one that
/// is split leaves 63 in each half, and the halves may be split in their turn.
const ENTRIES_OF_NODE: u64 = 31;

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
        superblock::write_both(self.store.device().as_ref(), &mut sb)?;
        *on_media = sb;
        Ok(())
    }

    /// Nothing of a batch is left: the image need not say any more that there may be. It does so when it is unmounted.
    pub(crate) fn forget_batches(&self) {
        let is_batch = |entry: &OrphanEntry| entry.what() == Some(Intent::Batch);
        if !self.space.entries().iter().any(is_batch) {
            let mut on_media = self.store.superblock_on_media();
            let bits = on_media.incompat.get() & !Incompat::BATCHES.bits();
            on_media.incompat.set(bits);
        }
    }

    /// Extent blocks that moves of these runs take at the most.
    pub(crate) fn nodes_of_moves(
        &self,
        staging: &InodeObj,
        runs: &[BatchRun],
        find: impl Fn(Nid, u32) -> Result<Option<Arc<InodeObj>>>,
    ) -> Result<u64> {
        // What each file has of entries where it changes, and what comes to them.
        let mut entries: BTreeMap<Nid, u64> = BTreeMap::new();
        let (mut moves, mut last) = (0, (0, 0));
        for run in runs {
            let pages = u64::from(run.pages.get());
            let (parts, staged) = self.runs_between(staging, run.source.get(), pages, u64::MAX)?;
            if staged != pages {
                // Behind the commit there would be no way but on.
                return Err(Error::Errno(libc::EIO));
            }
            moves += parts;
            let Some(target) = find(run.nid.get(), run.generation.get())? else { continue };
            let (from, end) = (run.target.get(), run.target.get() + pages);
            let (mut there, _) = self.runs_between(&target, from, pages, u64::MAX)?;
            // What lies before it may have filled a block: as much as makes one.
            there += match last.0 == run.nid.get() && last.1 <= from {
                true => self.runs_between(&target, last.1, from - last.1, ENTRIES_OF_NODE)?.0,
                false => ENTRIES_OF_NODE,
            };
            last = (run.nid.get(), end);
            // What is put in, and a run in whose midst that is.
            *entries.entry(run.nid.get()).or_default() += there + 2 * parts;
        }
        let (all, _) = self.runs_between(staging, 0, extent::LOGICAL_END, u64::MAX)?;
        entries.insert(staging.nid(), all + moves);
        let of_file =
            |entries: u64| 2 * (u64::from(EXTENT_MAX_DEPTH) + 1) + entries.div_ceil(ENTRIES_OF_NODE);
        Ok(entries.into_values().map(of_file).sum())
    }

    /// Runs that a file has in a range of pages, and their pages; no more than so many runs are counted.
    fn runs_between(&self, inode: &InodeObj, from: u64, pages: u64, most: u64) -> Result<(u64, u64)> {
        let (mut page, end) = (from, (from + pages).min(extent::LOGICAL_END));
        let (mut count, mut mapped) = (0, 0);
        while page < end && count < most {
            let mapping = self.map(inode, page)?;
            let len = mapping.len().min(end - page);
            if matches!(mapping, Mapping::Mapped { .. }) {
                count += 1;
                mapped += len;
            }
            page += len;
        }
        Ok((count, mapped))
    }

    /// Sets extent blocks aside. May sleep, as [`Meta::reserve`].
    ///
    /// # Errors
    /// ENOSPC.
    pub(crate) fn promise_nodes(&self, count: u64) -> Result<Reservation> {
        self.alloc.reserve_nodes(count)
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
        mut promised: Option<&mut Reservation>,
    ) -> Result<()> {
        let pages = u64::from(run.pages.get());
        while moved < pages {
            let slots = self.step_slots(staging).saturating_add(4 * self.step_slots(target));
            let mut h = self.begin_rest(slots)?;
            // A write home may be at the zeros around what it writes: no block is freed under it.
            let _quiet = target.made_data().map(|data| data.write_back.lock());
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
            let freed = extent::remove_within(
                (&mut h, &self.alloc, &mut sink),
                put..put + len,
                self.step(),
                promised.as_deref_mut(),
            )?;
            if freed.done {
                let taken = (at, len as u32);
                extent::take(&mut h, &self.alloc, &mut source, taken, promised.as_deref_mut())?;
                let extent = crate::alloc::Extent { start: block, len: len as u32 };
                let (put, promised) = (page_number(put)?, promised.as_deref_mut());
                extent::insert(&mut h, &self.alloc, &mut sink, put, extent, false, promised)?;
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
